package hour

import (
	"context"
	"fmt"
	"slices"

	"lorasim/bench/scenario"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/trace"
)

// fleet is a simulated fleet.
type fleet struct {
	sc      scenario.Scenario
	profile *profile.Profile
	workers int
}

// run simulates a workload, and returns its requests by ID. route, unless nil, takes the place of the policy.
func (f *fleet) run(ctx context.Context, w *trace.Workload, route func(id int64) int) ([]record.Request, error) {
	sc := f.sc
	sc.Cluster.FixWorkers(f.workers)
	res, err := sc.Simulate(ctx, scenario.RunOptions{
		Input:   &scenario.Input{Source: w.Source(), Dataset: "workload"},
		Workers: slices.Repeat([]*profile.Profile{f.profile}, f.workers), KeepRecords: true, Route: route,
	})
	if err != nil {
		return nil, err
	}
	list := make([]record.Request, len(w.Requests))
	for _, r := range res.Records {
		list[r.ID] = r
	}
	return list, nil
}

// with returns the fleet with another value of a setting.
func (f *fleet) with(key, value string) (*fleet, error) {
	changed := *f
	if err := changed.sc.Set(key, value); err != nil {
		return nil, err
	}
	p := *f.profile
	if err := changed.sc.Override(&p); err != nil {
		return nil, fmt.Errorf("%s %s: %w", key, value, err)
	}
	changed.profile = &p
	return &changed, nil
}
