// Package capacity finds the fewest workers, or the cheapest mix of workers,
// slots, host places, policies and profiles, that serve a workload within an SLO.
//
//	answer, err := capacity.Find(ctx, &sc, capacity.Options{SLO: slo, Attain: 0.99, MaxWorkers: 64})
//	err = answer.WriteText(os.Stdout)
//
// The answer is about the steady state: runs of generated workloads are as long as
// it takes, and their first half is warm-up that does not count.
//
// More workers serve more. Their number is found by doubling and bisection, with
// one run each, which stops as soon as too many requests have missed the SLO. That
// is a guess: chance may mislead it, and some policies serve less with more
// workers. The candidates around it are decided by further seeds: a candidate is
// accepted, or rejected, once a sequential test (see rule) is certain. Where the
// budget does not suffice, the candidate is undecided and the next one is tried.
// The intervals in the answer come from seeds that no decision has seen.
package capacity

import (
	"cmp"
	"context"
	"errors"

	"lorasim/bench/result"
	"lorasim/bench/result/waits"
	"lorasim/bench/scenario"
	"lorasim/bench/stats"
)

// Options says what is asked for, and of what the cluster may be.
type Options struct {
	SLO    result.SLO
	Attain float64 // share of all requests that must meet it
	// PerAdapter, where above 0, is the share of the adapters of each of which the
	// share Attain of the requests must meet the SLO, instead of all requests.
	PerAdapter float64
	// Hold, where above 0, is the share of the runs of the workload's length that
	// must reach Attain (or PerAdapter), instead of the mean over the runs.
	Hold       float64
	MaxWorkers int
	MaxSeeds   int   // most seeds for one decision or interval
	Budget     int64 // requests to simulate; 0: DefaultBudget
	// What else may vary; empty: as the scenario says.
	Slots, HostPlaces  []int
	Policies, Profiles []string
	Cost               map[string]float64 // of a worker, by profile; one that is missing: 1
	Mix                bool               // clusters of two of the profiles, too
	// Progress, if not nil, is called with how many runs and requests were simulated. It is
	// called from several goroutines.
	Progress func(runs, requests int64)
}

// DefaultBudget is the number of requests that a search may simulate, unless told.
const DefaultBudget = 24_000_000

// Verdict says how near to its limit a cluster is.
type Verdict string

// The verdicts.
const (
	Stable    Verdict = "stable"
	Near      Verdict = "near"
	Saturated Verdict = "overloaded"
	Unknown   Verdict = "undecided" // the budget was spent before anything was accepted
)

const (
	// nearBelow is the headroom below which a cluster is near saturation.
	nearBelow = 1.1
	// backlogged: a run of fixed length is overloaded if more than this share of its
	// requests wait when the last one arrives.
	backlogged = 0.05
	// watchedRuns is the number of runs that say what requests wait for.
	watchedRuns = 2
	// confirmSeeds is the least number of seeds of the final intervals, as far as the
	// budget allows: attainments near 100 % are so skewed that intervals from 16 seeds
	// are too narrow (docs/checks/capacity.md).
	confirmSeeds = 64
	// intervalSeeds is the least number of seeds of the other intervals.
	intervalSeeds = 16
)

// Tried is a candidate that was decided.
type Tried struct {
	Candidate
	Decision   Decision
	Holds      bool           // Decision is Holds
	Certain    bool           // the decision is, and the interval says the same
	Attainment stats.Estimate // over seeds that the decision has not seen
	// Mean is the mean attainment of the runs, which differs from Attainment where
	// the share of runs that hold is asked for.
	Mean     float64
	Size     size // of the runs
	Causes   waits.Causes
	Rejected float64 // share of the requests
	// Worst is the adapter with the smallest share of its requests within the SLO,
	// of all seeds.
	Worst result.Worst
}

// Kind is the fewest workers of one kind that hold, by the first seed; of two
// profiles the cheapest mix, where it is cheaper than either alone.
type Kind struct {
	Candidate // Workers is 0: not even the most hold, or no mix is cheaper
	Cost      float64
	Err       string // why it was not tried
}

// Answer is what was found.
type Answer struct {
	Options
	Found       Tried  // the answer; where nothing holds, the best that was reached
	NextCheaper *Tried // does not hold, or is undecided; nil: the answer is one worker, or nothing holds
	Kinds       []Kind // where there are several
	Headroom    Headroom
	Limit       waits.Causes // what makes it fail just beyond the headroom
	Verdict     Verdict
	Spent       int64 // requests simulated
	// Stopped: the budget was spent before a candidate was accepted.
	Stopped bool
	plan
}

// Find searches for the cheapest candidate that holds.
func Find(ctx context.Context, base *scenario.Scenario, o Options) (*Answer, error) {
	o.Budget = cmp.Or(o.Budget, DefaultBudget)
	s := newSearch(ctx, base, o)
	found, kinds, err := s.find()
	if err != nil {
		return nil, err
	}
	a := &Answer{Options: o, Kinds: kinds, plan: s.plan, Stopped: s.stopped, NextCheaper: s.nextCheaper(found)}
	for _, t := range []*Tried{found, a.NextCheaper} {
		if t != nil {
			if err := s.confirm(t); err != nil {
				return nil, err
			}
		}
	}
	a.Found = *found
	if a.Headroom, a.Limit, err = s.headroom(found); err != nil {
		return nil, err
	}
	switch {
	case found.Decision == Undecided:
		a.Verdict = Unknown
	case !found.Holds:
		a.Verdict = Saturated
	case a.Headroom.Low < nearBelow:
		a.Verdict = Near
	default:
		a.Verdict = Stable
	}
	a.Spent = s.spent.Load()
	return a, nil
}

var errNoRequests = errors.New("the workload has no requests")
