package worth

import (
	"math"
	"slices"

	"lorasim/bench/result"
	"lorasim/bench/stats"
)

// A Factor is the cause of an effect.
type Factor string

// The factors, and two further effects of the plans.
const (
	Routing     Factor = "routing"
	Waiting     Factor = "waiting"     // moving waiting requests
	Plans       Factor = "plans"       // placing adapters and moving running requests
	Placing     Factor = "placing"     // placing adapters: its part in the plans
	Running     Factor = "running"     // moving running requests: its part in the plans
	Interaction Factor = "interaction" // effect of the plans minus the sum of the effects of their parts alone
	PlansOnly   Factor = "plans-only"  // plans without moving waiting requests, against routing alone; tested, too
)

// An Effect is the change that a factor causes: a contrast of the means of policies, as a share of the mean of one
// policy.
type Effect struct {
	Factor   Factor
	Interval string   // time between plans, s; "": the effect does not depend on it
	Against  string   // policy of the reference mean
	Changes  []Change // one per metric; nil: the policies completed different requests

	terms    []term
	tested   bool
	better   bool    // certain to gain MinGain or more in one metric at least, and worse in none
	worse    bool    // certain to lose as much in one metric at least
	nothing  bool    // no metric can still turn out better by MinGain
	decrease float64 // sum of the logarithms of the metrics' ratios: the less, the better
}

// term is a policy's share in a contrast.
type term struct {
	weight float64
	policy string
}

// A Change is the effect of a factor on one metric.
type Change struct {
	Metric string
	Diff   stats.Estimate // paired by seed
	Base   float64        // mean of the reference policy (Effect.Against)
	P      float64        // p-value of the paired t-test, with Holm's correction; NaN: not tested
	Sure   bool           // the difference is certainly not 0
	better float64        // as a share, > 0: better
}

// effects lists the contrasts of a study. Those that answer the question come first: routing, waiting requests, and
// plans at each interval, with and without moving waiting requests.
func (o *Options) effects() (stages, split, shown []Effect) {
	base, full := o.base(), o.full()
	diff := func(a, b string) []term { return []term{{1, a}, {-1, b}} }
	for _, b := range o.Baselines {
		stages = append(stages, Effect{Factor: Routing, Against: b, terms: diff(Alone, b)})
	}
	b := base.policy("")
	if base.waiting {
		stages = append(stages, Effect{Factor: Waiting, Against: Alone, terms: diff(b, Alone)})
	}
	for _, s := range o.Intervals {
		all, place := full.policy(s), parts{base.waiting, false, true}.policy(s)
		whole := Effect{Factor: Plans, Interval: s, Against: b, terms: diff(all, b)}
		if !full.running {
			whole.Factor = Placing // which is all that plans do
		}
		stages = append(stages, whole)
		if full.running {
			run := parts{base.waiting, true, false}.policy(s)
			split = append(split,
				Effect{Factor: Placing, Interval: s, Against: b, terms: []term{
					{.5, place}, {-.5, b}, {.5, all}, {-.5, run},
				}},
				Effect{Factor: Running, Interval: s, Against: b, terms: []term{
					{.5, run}, {-.5, b}, {.5, all}, {-.5, place},
				}})
			shown = append(shown, Effect{
				Factor: Interaction, Interval: s, Against: b, terms: []term{{1, all}, {-1, run}, {-1, place}, {1, b}},
			})
		}
		if base.waiting {
			alone := full
			alone.waiting = false
			stages = append(stages, Effect{
				Factor: PlansOnly, Interval: s, Against: Alone, terms: diff(alone.policy(s), Alone),
			})
		}
	}
	return stages, split, shown
}

// measure computes an effect from the runs: the contrast seed by seed, so that what
// a seed does to all policies alike cancels out.
func (e *Effect) measure(r runs, metrics []string, of stats.Sampling) {
	for _, t := range e.terms {
		if !r.comparable(t.policy, e.Against) {
			return
		}
	}
	for _, m := range metrics {
		base := stats.Mean(r.values(e.Against, m)).Mean
		var diffs []float64
		for _, t := range e.terms {
			for i, x := range r.values(t.policy, m) {
				if len(diffs) <= i {
					diffs = append(diffs, 0)
				}
				diffs[i] += t.weight * x
			}
		}
		d := stats.MeanOf(of, diffs)
		if d.N == 0 || d.N == 1 && of != stats.OneWorkload || !(base > 0) {
			e.Changes = nil
			return
		}
		e.Changes = append(e.Changes, Change{
			Metric: m, Diff: d, Base: base, P: math.NaN(), better: -float64(result.MetricOf(m).Better) * d.Mean / base,
		})
	}
}

// judge tests a family of effects: paired t-tests of all their metrics, with Holm's
// correction, at a level.
func judge(family []Effect, level, minGain float64) (tests int) {
	var ps []float64
	for _, e := range family {
		for _, c := range e.Changes {
			ps = append(ps, c.Diff.P())
		}
	}
	tests = len(ps)
	ps = stats.Holm(ps)
	for i := range family {
		e := &family[i]
		e.tested, e.nothing = true, len(e.Changes) > 0
		for k := range e.Changes {
			c := &e.Changes[k]
			c.P, ps = ps[0], ps[1:]
			c.Sure = c.P < level
			e.decrease += math.Log(max(1-c.better, 1e-9))
			e.better = e.better || c.Sure && c.better >= minGain
			e.worse = e.worse || c.Sure && c.better <= -minGain
			e.nothing = e.nothing && c.better+c.Diff.HalfAt(level/float64(tests))/c.Base < minGain
		}
		e.better = e.better && !e.worse
	}
	return tests
}

// withdraw takes back what was said to be certain of an effect: latencies of runs that
// are not steady get no verdict.
func (e *Effect) withdraw() {
	e.better, e.worse = false, false
	for i := range e.Changes {
		e.Changes[i].Sure = false
	}
}

// trades reports whether an effect gains in one metric and loses in another, both for certain.
func (e *Effect) trades(minGain float64) bool {
	return e.worse && slices.ContainsFunc(e.Changes, func(c Change) bool { return c.Sure && c.better >= minGain })
}

// idle reports whether a factor changed nothing.
func (e *Effect) idle() bool {
	return len(e.Changes) > 0 &&
		!slices.ContainsFunc(e.Changes, func(c Change) bool { return c.Diff.Mean != 0 || c.Diff.Std != 0 })
}

// settled reports whether more seeds are unlikely to change the statement on an effect.
func (e *Effect) settled() bool { return len(e.Changes) == 0 || e.better || e.worse || e.nothing }
