// Package capacity finds the fewest workers that serve a workload within an SLO, or the cheapest mix of workers,
// slots, host places, policies and profiles.
//
//	answer, err := capacity.Find(ctx, &sc, capacity.Options{SLO: slo, Attain: 0.99, MaxWorkers: 64})
//	err = answer.WriteText(os.Stdout)
//
// The answer holds for the steady state. Runs of generated workloads are as long as needed, and their first half is
// warm-up, which does not count.
//
// The search doubles and bisects the number of workers, with one run each. A run stops as soon as too many requests
// have missed the SLO. The result of this search is a guess: single runs are noisy, and some policies serve less with
// more workers. Further seeds then decide the candidates around the guess. A sequential test (see rule) accepts or
// rejects a candidate once the evidence suffices. If the budget runs out first, the candidate is undecided and the
// next one is tried. The confidence intervals in the answer come from held-out seeds, not used in any decision.
package capacity

import (
	"cmp"
	"context"
	"errors"
	"time"

	"lorasim/bench/result"
	"lorasim/bench/result/waits"
	"lorasim/bench/scenario"
	"lorasim/bench/stats"
)

// Options are the options of [Find]: the target and the clusters to consider.
type Options struct {
	SLO    result.SLO
	Attain float64 // share of all requests that must meet the SLO
	// PerAdapter, if above 0, is a share of the adapters, and replaces the target over all requests. For this share of
	// the adapters, the share Attain of the adapter's requests must meet the SLO.
	PerAdapter float64
	// Hold, if above 0, is a share of the runs of the workload's length, and replaces the target for the mean over the
	// runs. This share of the runs must reach Attain (or PerAdapter).
	Hold       float64
	MaxWorkers int
	MaxSeeds   int   // maximum number of seeds for one decision or interval
	Budget     int64 // requests to simulate; 0: DefaultBudget
	// CPU, if above 0, is the processor time of the search, in place of Budget. Used is then the processor time that
	// the process has used so far.
	CPU  time.Duration
	Used func() time.Duration
	// Values to try for the other settings of the cluster; empty: the scenario's value.
	Slots, HostPlaces  []int
	Policies, Profiles []string
	Cost               map[string]float64 // cost of a worker, by profile; default 1
	Mix                bool               // also try clusters of two of the profiles
	// Progress, if not nil, is called with the numbers of runs and requests simulated so far. Several goroutines call
	// it.
	Progress func(runs, requests int64)
	// Note, if not nil, receives the first guess and each decision as one line of text, while the search goes on.
	Note func(line string)
}

// DefaultBudget is the default number of requests that a search may simulate.
const DefaultBudget = 24_000_000

// A Verdict states how close a cluster is to its limit.
type Verdict string

// The values of Verdict.
const (
	Stable    Verdict = "stable"
	Near      Verdict = "near"
	Saturated Verdict = "overloaded"
	Unknown   Verdict = "undecided" // the search ended before a candidate was accepted, or its headroom measured
)

const (
	// nearBelow is the headroom below which a cluster is near saturation.
	nearBelow = 1.1
	// backlogged: a run of fixed length is overloaded if more than this share of its
	// requests wait when the last one arrives.
	backlogged = 0.05
	// watchedRuns is the number of runs that say what requests wait for.
	watchedRuns = 2
	// freshRuns is the number of runs of an interval that no decision has used, beside those of the decision. mostFresh
	// is that number if the interval contains the target, as far as 1/freshShare of the budget allows.
	freshRuns, mostFresh, freshShare = 4, 16, 12
	// fixedSeeds is the least number of seeds of the final intervals of workloads of fixed length, and of --hold;
	// fewestSeeds is that number if the budget is small.
	fixedSeeds, fewestSeeds = 64, 16
)

// Tried is a candidate with its decision.
type Tried struct {
	Candidate
	Decision   Decision
	Holds      bool           // Decision is Holds
	Certain    bool           // the decision is certain, and agrees with the interval
	Attainment stats.Estimate // over the runs of the decision and fresh ones
	// Mean is the mean attainment of the runs. It differs from Attainment if Options.Hold is set.
	Mean     float64
	Size     size // size of the runs
	Causes   waits.Causes
	Rejected float64 // share of the requests
	// Worst is the adapter with the smallest share of its requests within the SLO, over all seeds.
	Worst result.Worst
	panel []*run  // of the decision, if they are as long as those of the interval
	runs  []*run  // of the interval, which no decision has used
	last  float64 // time of the last arrival, s
}

// A Kind is the fewest workers of one kind that hold, by the first seed. For two profiles, it is the cheapest mix, if
// that is cheaper than either profile alone.
type Kind struct {
	Candidate // Workers is 0 if even the maximum does not hold, or no mix is cheaper
	Cost      float64
	Bound     bool   // fewer workers fail; it is not known whether Workers hold
	Err       string // reason why the kind was not tried
}

// An Answer is the result of [Find].
type Answer struct {
	Options
	Found       Tried  // the cheapest candidate that holds; if none holds, the best one tried
	NextCheaper *Tried // fails, or is undecided; nil: the answer is one worker, or nothing holds
	Kinds       []Kind // one entry per kind, if there are several
	Headroom    Headroom
	Limit       waits.Causes // causes of failure just beyond the headroom
	Verdict     Verdict
	Spent       int64 // requests simulated
	// Stopped: the budget was spent before a candidate was accepted.
	Stopped bool
	// Interrupted: the context ended, and the answer is the best that was known. Found may be a guess, with no runs.
	Interrupted bool
	// NextCommand is the command that would decide what is open (see Next); "": none. The caller sets it.
	NextCommand string
	plan
}

// Find searches for the cheapest candidate that holds. If ctx ends before, it returns the best answer so far, if there
// is any.
func Find(ctx context.Context, base *scenario.Scenario, o Options) (*Answer, error) {
	o.Budget = cmp.Or(o.Budget, DefaultBudget)
	s := newSearch(ctx, base, o)
	defer s.dropAll()
	if err := s.guess(); err != nil {
		return nil, err
	}
	found, kinds, err := s.find()
	if s.mustStop() != nil && (err != nil || found.Attainment.N == 0 || ctx.Err() != nil && s.stopped) {
		if best := s.soFar(); best != nil {
			found, err = best, nil
		}
	}
	if errors.Is(err, errSpent) {
		return nil, o.noneWithin()
	}
	if err != nil {
		return nil, err
	}
	a := &Answer{Options: o, Kinds: kinds, plan: s.plan, NextCheaper: s.nextCheaper(found)}
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
	a.Interrupted = ctx.Err() != nil
	a.Stopped = !a.Interrupted && (s.stopped || !found.Holds && s.mustStop() != nil)
	switch {
	case found.Decision == Undecided || found.Holds && a.Headroom.Seeds == 0:
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
