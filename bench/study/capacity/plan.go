package capacity

import (
	"fmt"
	"math"

	"lorasim/bench/scenario"
	"lorasim/bench/stats"
	"lorasim/trace/synth"
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
}

// half is the size of a run whose first half is warm-up.
func half(requests int64) size { return size{requests, requests / 2} }

// plan holds the rules for choosing the runs of a scenario.
type plan struct {
	fixed  string // why runs have the workload's own length; "": they are extended
	single bool   // there is one workload: seeds only break ties
	spread bool   // seeds draw resamples of one workload
	closed bool   // see rule.closed
	least  int64  // requests of the shortest run
	stated int64  // requests of the workload as the scenario states it; 0: unknown
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
	case w.Pattern.Value() != (synth.Pattern{}):
		p.fixed = "a rate that changes over time (pattern)"
	case sc.Cluster.Outages.Given():
		p.fixed = "a run with outages"
	case instant && sc.Client.MaxConcurrency == 0:
		p.fixed = "a workload that arrives at once"
	}
	if p.fixed == "" {
		if p.stated == 0 {
			p.stated = defaultPrompts
		}
		for p.least = shortest; p.least < p.stated; p.least *= 2 {
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
