package sim

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"

	"lorasim/internal/record"
	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/trace"
)

// Twin implements router.Twin: it runs futures in simulations of their own. Of its
// configuration it takes what a router is told of a cluster: not the source, the outages
// or the elastic rule, all of which lie in the future.
type Twin struct {
	cfg      Config
	adapters []trace.Adapter
	wrong    map[router.ProfileError][]*profile.Costs
}

// NewTwin returns a twin of a cluster.
func NewTwin(cfg Config, adapters []trace.Adapter) *Twin {
	return &Twin{adapters: adapters, wrong: map[router.ProfileError][]*profile.Costs{}, cfg: Config{
		Workers: cfg.Workers, NoStream: cfg.NoStream, Staleness: cfg.Staleness, Home: cfg.Home, MoveMode: cfg.MoveMode,
		LoadFailures: cfg.LoadFailures, NoFailover: cfg.NoFailover, Seed: cfg.Seed,
	}}
}

// Simulate implements router.Twin. The requests' places in the future are their IDs.
func (t *Twin) Simulate(rt *router.Router, f *router.Future) (*router.Outcome, error) {
	cfg := t.cfg
	cfg.Router, cfg.Source = rt, &futureSource{adapters: t.adapters, requests: f.Requests}
	rt.Placement = f.Placement
	if f.Error.Share > 0 {
		cfg.Workers = t.mistaken(f.Error)
	}
	for _, d := range f.Down {
		cfg.Outages = append(cfg.Outages, Outage(d))
	}
	o := newTwinObserver(len(f.Requests))
	cfg.Observer = o
	if _, err := Run(context.Background(), cfg); err != nil {
		return nil, fmt.Errorf("twin: %w", err)
	}
	return &o.Outcome, nil
}

// mistaken returns the workers with profiles that are wrong on purpose.
func (t *Twin) mistaken(e router.ProfileError) []*profile.Costs {
	if costs := t.wrong[e]; costs != nil {
		return costs
	}
	rng := rand.New(rand.NewPCG(e.Seed, 0x77726f6e67))
	known := map[*profile.Profile]*profile.Costs{}
	costs := make([]*profile.Costs, len(t.cfg.Workers))
	for i, c := range t.cfg.Workers {
		p := c.Profile()
		if known[p] == nil {
			known[p] = p.Mistaken(e.Share, rng).Compile()
		}
		costs[i] = known[p]
	}
	t.wrong[e] = costs
	return costs
}

// futureSource yields the requests of a future.
type futureSource struct {
	adapters []trace.Adapter
	requests []trace.Request
	next     int
}

func (s *futureSource) Adapters() []trace.Adapter { return s.adapters }
func (s *futureSource) Len() int64                { return int64(len(s.requests) - s.next) }

func (s *futureSource) Next() (trace.Request, error) {
	if s.next == len(s.requests) {
		return trace.Request{}, io.EOF
	}
	r := s.requests[s.next]
	r.ID = int64(s.next)
	s.next++
	return r, nil
}

// twinObserver notes how requests end.
type twinObserver struct {
	unobserved
	router.Outcome
}

func newTwinObserver(n int) *twinObserver {
	o := &twinObserver{Outcome: router.Outcome{E2E: make([]float32, n), TTFT: make([]float32, n)}}
	nan := float32(math.NaN())
	for i := range n {
		o.E2E[i], o.TTFT[i] = nan, nan
	}
	return o
}

// Done implements record.Observer.
func (o *twinObserver) Done(r *record.Request) {
	if r.Status == record.OK {
		o.E2E[r.ID], o.TTFT[r.ID] = float32(r.E2E()), float32(r.TTFT())
	}
}

var _ record.Observer = (*twinObserver)(nil)
