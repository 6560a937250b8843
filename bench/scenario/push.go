package scenario

import (
	"context"
	"errors"
	"fmt"

	"lorasim/bench/result"
	"lorasim/router/push"
	"lorasim/sim"
	"lorasim/trace"
)

// leastPushInterval is the shortest time between two versions of an adapter, s.
const leastPushInterval = 1e-3

// Pushes returns the new versions of adapters of the run; nil: there are none.
func (s *Scenario) Pushes(adapters []trace.Adapter) (*sim.Push, error) {
	c := &s.Cluster
	switch {
	case c.PushInterval == 0 && c.Push.Given():
		return nil, errors.New("push needs push_interval, the time between two versions of an adapter")
	case c.PushInterval == 0 && c.MaxStaleness.Given:
		return nil, errors.New("max_staleness needs push_interval, the time between two versions of an adapter")
	case c.PushInterval == 0:
		return nil, nil
	case c.PushInterval < leastPushInterval:
		return nil, fmt.Errorf("push_interval is %v s, expected 0 or at least %v s", c.PushInterval, leastPushInterval)
	case len(adapters) == 0:
		return nil, errors.New("push_interval needs requests with adapters")
	}
	p := &sim.Push{Interval: c.PushInterval}
	p.Options, p.MaxStaleness = c.PushOptions()
	names := make([]string, len(adapters))
	for a := range adapters {
		names[a] = adapters[a].Name
	}
	var err error
	p.Adapters, err = p.Select(names)
	return p, err
}

// PushOptions returns how new versions come to the workers, and the bound on staleness; -1: none.
func (c *Cluster) PushOptions() (o push.Options, maxStaleness int) {
	if o = push.Default(); c.Push.Given() {
		o = c.Push.Value()
	}
	return o, c.MaxStaleness.Or(-1)
}

// pushLoss adds the comparison with the same run without new versions.
func (s *Scenario) pushLoss(ctx context.Context, res *result.Result) error {
	still := *s
	c := &still.Cluster
	c.PushInterval, c.Push, c.MaxStaleness = 0, pushText{}, defaults.Cluster.MaxStaleness
	without, err := still.Simulate(ctx, RunOptions{})
	if err == nil {
		res.SetPushLoss(without)
	}
	return err
}
