package capacity

import (
	"fmt"
	"math"

	"lorasim/bench/scenario"
	"lorasim/bench/stats"
	"lorasim/internal/format"
)

const (
	// shortest is the number of requests of the shortest run of a generated
	// workload; longer ones have 2, 4, 8, ... times that many, whatever num_prompts
	// is, so that its value does not choose the requests.
	shortest = 16000
	// firstSeeds is the number of runs at the first look.
	firstSeeds = 8
	// defaultPrompts is the length of a generated workload that does not state it.
	defaultPrompts = 2000
)

// size is the length of a run, and how much of it is warm-up.
type size struct {
	requests int64 // 0: the workload's own length; all its requests count
	warm     int64 // requests at the start that do not count
	// pauses: the run mostly ends before its last request, so its requests are not collected in advance.
	pauses bool
}

// half is the size of a run whose first half is warm-up.
func half(requests int64) size { return size{requests: requests, warm: requests / 2} }

// plan holds the rules for choosing the runs of a scenario.
type plan struct {
	fixed  string // why runs have the workload's own length; "": they are extended
	single bool   // there is one workload: seeds only break ties
	spread bool   // seeds draw resamples of one workload
	closed bool   // see rule.closed
	least  int64  // requests of the shortest run
	stated int64  // requests of the workload as the scenario states it; 0: unknown
	// busiest describes the part of a period that the answer is about; "": all of the load.
	busiest string
	// partial is why runs of a workload of fixed length are only a part of the load; "": they are all of it.
	partial string
}

// longestPeriod is the number of requests of the longest period of a rate pattern that runs cover.
const longestPeriod = shortest

// busiest returns a scenario with the constant rate of the busiest time of its rate pattern, and a description, if a
// period is too long for the runs of a search. Otherwise it returns the scenario as it is.
func busiest(base *scenario.Scenario) (*scenario.Scenario, string) {
	p := base.Workload.Pattern.Value()
	requests := base.Covers()
	if p.Period() == 0 || p.Flash.Duration > 0 || requests <= longestPeriod || newPlan(base).fixed != "" {
		return base, ""
	}
	own := *base
	factor, at := p.Busiest()
	own.Workload.RequestRate *= factor
	own.Workload.Pattern = scenario.Workload{}.Pattern
	return &own, fmt.Sprintf("%s requests/s, the rate at the busiest time of a period of %s s (%s s after its start); "+
		"the mean rate is %s/s", format.Digits(own.Workload.RequestRate), format.Digits(p.Period()), format.Digits(at),
		format.Digits(base.Workload.RequestRate*p.Mean()))
}

func newPlan(sc *scenario.Scenario) plan {
	w := &sc.Workload
	instant := math.IsInf(w.RequestRate, 1)
	sampling := sc.Sampling()
	p := plan{closed: sc.Client.MaxConcurrency > 0 || instant, stated: w.NumPrompts.Value,
		single: sampling == stats.OneWorkload, spread: sampling == stats.Resampled}
	switch {
	case w.File != "":
		p.fixed = "a saved workload"
	case w.UseTrace || w.TraceName != "" || w.TracePath != "" || w.TraceHistogram.Given():
		p.fixed = "a trace"
	case w.Compat != "":
		p.fixed = "compat " + w.Compat
	case w.Window > 0:
		p.fixed = fmt.Sprintf("a window of %g s", w.Window)
	case w.RampUpStrategy != "":
		p.fixed = "a rate that ramps up"
	case w.Pattern.Value().Flash.Duration > 0:
		p.fixed = "a rate that changes over time (pattern)"
		if n := int64(sc.Covers()); w.NumPrompts.Or(defaultPrompts) < n {
			p.partial = fmt.Sprintf("the runs end before the flash crowd is over: --num-prompts %d covers it", n)
		}
	case sc.Cluster.Outages.Given():
		p.fixed = "a run with outages"
	case instant && sc.Client.MaxConcurrency == 0:
		p.fixed = "a workload that arrives at once"
	}
	if p.fixed == "" {
		if p.stated == 0 {
			p.stated = defaultPrompts
		}
		p.least = shortest
		if period := int64(math.Round(sc.Covers())); period > 0 { // two whole periods in each half of the warm-up
			unit := 4 * cellsOfWarmup / 2 * period
			p.least = (shortest + unit - 1) / unit * unit
		}
		for p.least < p.stated {
			p.least *= 2
		}
	}
	return p
}

// size is the size of runs at first.
func (p *plan) size() size {
	if p.fixed != "" {
		return size{}
	}
	return half(p.least)
}

// The streams of seeds. No two of them have a seed in common, but by chance.
const (
	forDecision = 1 // candidates are accepted or rejected by these
	forInterval = 2 // intervals and headroom come from these, which no decision has seen
	forGuess    = 3 // the first guess comes from these
)
