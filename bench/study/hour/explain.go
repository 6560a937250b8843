package hour

import (
	"context"
	"fmt"
	"slices"

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
	KVTokens int64   // size of a worker's KV cache; 0: as the profile says
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
	n := h.half()
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

// newStudy completes the hour with the scenario's limits of outputs.
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
	n := len(h.Workers)
	if own := sc.Cluster.NumWorkers; own.Given && own.Value < n {
		return nil, fmt.Errorf("num_workers is %d, but %d workers served the requests", own.Value, n)
	} else if own.Given {
		n = own.Value // some served none
	}
	return &hourStudy{Hour: &own, opt: o, base: fleet{*sc, nil, n}}, nil
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

// guessPolicy recognizes static policies by where the requests went, unless the policy was given.
func (s *hourStudy) guessPolicy(a *Answer) {
	a.Policy = s.base.sc.Routing.Policy.String()
	if s.opt.Policy {
		return
	}
	const nearlyAll = 0.99
	workers, adapters := s.base.workers, len(s.Adapters)
	block := max((adapters+workers-1)/workers, 1)
	for name, home := range map[string]func(int32) int{
		"static":       func(k int32) int { return int(k) % workers },
		"static-block": func(k int32) int { return int(k) / block % workers },
	} {
		as, of := 0, 0
		for i := range s.Requests {
			if r := &s.Requests[i]; r.Adapter >= 0 {
				of++
				if int(r.WorkerLast) == home(r.Adapter) {
					as++
				}
			}
		}
		share := float64(as) / float64(max(of, 1))
		if share < nearlyAll || share < a.Guessed || share == a.Guessed && name > a.Policy {
			continue
		}
		if err := s.base.sc.Set("policy", name); err == nil {
			a.Policy, a.Guessed = name, share
		}
	}
}
