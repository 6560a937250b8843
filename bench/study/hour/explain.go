package hour

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"lorasim/bench/fidelity/fit"
	"lorasim/bench/scenario"
	"lorasim/internal/format"
	"lorasim/sim/profile"
)

// Options are the options of [Explain].
type Options struct {
	// Profile is the profile to start the fit from, without the scenario's settings of the engine; nil: the nearest of
	// the embedded ones.
	Profile *profile.Profile
	// Policy says that the policy of the scenario is that of the fleet. Else it is static if the requests went as
	// static sends them.
	Policy   bool
	KVTokens int64   // size of a worker's KV cache; 0: as the engines or the profile say
	Facts    *Facts  // what the engines state; nil: unknown. Settings of the scenario win
	MaxError float64 // largest error of mean TTFT and mean E2E latency with which an hour counts as reproduced
	Draws    int     // resampled hours
	// Progress, if not nil, is called with the finished and all parts of a phase.
	Progress func(phase string, done, total int64)
}

// An Answer is the outcome of [Explain].
type Answer struct {
	*Hour
	Start   string // profile from which the fit starts
	Tried   int    // embedded profiles of which Start came nearest; 0: it was given
	Fit     *fit.Result
	Policy  string
	Guessed float64 // share of requests that went where Policy sends them; 0: the policy was given or is the default
	Slots   int     // GPU adapter slots of a worker
	KV      int64   // size of a worker's KV cache, tokens
	Proof   Proof
	Refused []string // why the hour counts as not reproduced; empty: it does
	Base    Outcome  // the fleet as it is, simulated
	Changes []Change // none if Refused
	options Options
	missed  float64 // mean deviation of the figures of the first half after the fit, in logarithms
}

// hourStudy is one run of Explain.
type hourStudy struct {
	*Hour
	opt  Options
	base fleet
}

// Explain fits a profile to the first half of an hour, predicts the second half, and simulates changes of the fleet.
// The scenario has the policy and the settings of the engine.
func Explain(ctx context.Context, h *Hour, sc *scenario.Scenario, o Options) (*Answer, error) {
	n := 0
	if len(h.Requests) > 0 {
		n = h.half()
	}
	if n < leastRequests || len(h.Requests)-n < leastRequests {
		return nil, fmt.Errorf("%s with whole replies, %d of them in the first half of the time: expected at least %d "+
			"in each half%s", format.Count(len(h.Requests), "request"), n, leastRequests, h.leftText())
	}
	s, err := newStudy(h, sc, o)
	if err != nil {
		return nil, err
	}
	a := &Answer{Hour: h, options: o}
	if err := s.fit(ctx, a); err != nil {
		return nil, err
	}
	s.guessPolicy(a)
	if err := s.prove(ctx, a); err != nil || len(a.Refused) > 0 {
		return a, err
	}
	return a, s.change(ctx, a)
}

// newStudy completes the hour with the scenario's limits of outputs, and the scenario with what the engines state.
func newStudy(h *Hour, sc *scenario.Scenario, o Options) (*hourStudy, error) {
	w, err := sc.WithBudgets(&h.workload)
	if err != nil {
		return nil, err
	}
	own := *h
	own.workload, own.Requests = *w, slices.Clone(h.Requests)
	for i := range own.Requests {
		own.Requests[i].Requested = w.Requests[i].MaxNew
	}
	s := &hourStudy{Hour: &own, opt: o, base: fleet{sc: *sc, workers: len(h.Workers)}}
	if f := o.Facts; f != nil {
		s.base.workers = max(s.base.workers, f.Workers)
		s.learn(f)
	}
	if given := sc.Cluster.NumWorkers; given.Given {
		if given.Value < len(h.Workers) {
			return nil, fmt.Errorf("num_workers is %d, but %d workers served the requests", given.Value, len(h.Workers))
		}
		s.base.workers = given.Value // some served none
	}
	return s, nil
}

// learn takes over what the engines state, unless the scenario has it.
func (s *hourStudy) learn(f *Facts) {
	e := &s.base.sc.Cluster.Engine
	s.opt.KVTokens = cmp.Or(s.opt.KVTokens, f.KVTokens)
	if e.Scheduler == "" && !e.Version.Given() {
		e.Scheduler = f.Engine
	}
	e.MaxLorasPerBatch = cmp.Or(e.MaxLorasPerBatch, f.Slots)
	if f.Full {
		e.MaxRunningRequests = cmp.Or(e.MaxRunningRequests, f.Running)
	}
}

// recorded sends each request of the hour to the worker that served it.
func (h *Hour) recorded(id int64) int { return int(h.Requests[id].WorkerLast) }

// phase returns a progress function for a part of the work.
func (s *hourStudy) phase(what string) func(done, total int64) {
	return func(done, total int64) {
		if s.opt.Progress != nil {
			s.opt.Progress(what, done, total)
		}
	}
}

// guessPolicy recognizes static policies by where the requests went, unless the policy was given. These policies depend
// on the order in which the gateway numbers the adapters: that of their numbers, or that of the alphabet.
func (s *hourStudy) guessPolicy(a *Answer) {
	a.Policy = s.base.sc.Routing.Policy.String()
	static := []string{"static", "static-block"}
	if s.opt.Policy && !slices.Contains(static, a.Policy) {
		return
	}
	if s.opt.Policy {
		static = []string{a.Policy}
	}
	const nearlyAll = 0.99
	var order []int32
	for _, name := range static {
		for _, by := range []func(a, b string) int{natural, strings.Compare} {
			number := s.numbers(by)
			if share := s.agreement(name, number); share >= nearlyAll && share > a.Guessed &&
				s.base.sc.Set("policy", name) == nil {
				a.Policy, a.Guessed, order = name, share, number
			}
		}
	}
	if order != nil {
		s.renumber(order)
	}
}

// numbers returns the place of each adapter in an order of their names.
func (s *hourStudy) numbers(by func(a, b string) int) []int32 {
	sorted := make([]int32, len(s.Adapters))
	for i := range sorted {
		sorted[i] = int32(i)
	}
	slices.SortStableFunc(sorted, func(a, b int32) int { return by(s.Adapters[a].Name, s.Adapters[b].Name) })
	number := make([]int32, len(sorted))
	for i, k := range sorted {
		number[k] = int32(i)
	}
	return number
}

// agreement is the share of the requests with an adapter that went where a static policy sends them.
func (s *hourStudy) agreement(policy string, number []int32) float64 {
	workers := int32(s.base.workers)
	block := max((int32(len(number))+workers-1)/workers, 1)
	if policy == "static" {
		block = 1
	}
	as, of := 0, 0
	for i := range s.Requests {
		if r := &s.Requests[i]; r.Adapter >= 0 {
			of++
			if r.WorkerLast == number[r.Adapter]/block%workers {
				as++
			}
		}
	}
	return float64(as) / float64(max(of, 1))
}

// renumber gives the adapters other numbers.
func (s *hourStudy) renumber(number []int32) {
	adapters := slices.Clone(s.Adapters)
	for i, k := range number {
		adapters[k] = s.Adapters[i]
	}
	s.Adapters, s.workload.Adapters = adapters, adapters
	s.workload.Requests = slices.Clone(s.workload.Requests)
	for i := range s.Requests {
		if k := s.Requests[i].Adapter; k >= 0 {
			s.Requests[i].Adapter, s.workload.Requests[i].Adapter = number[k], number[k]
		}
	}
}
