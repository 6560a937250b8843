package worth

import (
	"slices"

	"lorasim/bench/study/sweep"
)

// Answer is what came out of a study.
type Answer struct {
	Dir    *sweep.Dir
	Tables *sweep.Tables
	// Effects are the tested ones (routing, waiting requests, plans and their parts)
	// and those that are only shown.
	Effects []Effect
	// Pays are the factors whose effect is a certain gain; of the plans those parts
	// that have one, or Plans where that is certain of neither part.
	Pays []Factor
	// Interval is that of the plans that pay, s, else of those that come closest; "":
	// none can be compared.
	Interval string
	// Clear: more seeds would hardly change the answer.
	Clear bool
	Fixed bool // every seed gives the same run

	opt   Options
	tests [2]int // in the families: whether each stage gains; which part of the plans
	runs  runs
}

// Move says whether moving requests or placing adapters pays.
func (a *Answer) Move() bool {
	return slices.ContainsFunc(a.Pays, func(f Factor) bool { return f != Routing })
}

// Chosen is the policy that the answer recommends among those with this routing:
// with the parts that pay. Plans are recommended as they were measured, on top of
// moving waiting requests.
func (a *Answer) Chosen() string { return a.chosen().policy(a.Interval) }

func (a *Answer) chosen() parts {
	plans := slices.Contains(a.Pays, Plans)
	p := parts{running: plans || slices.Contains(a.Pays, Running), places: plans || slices.Contains(a.Pays, Placing)}
	p.waiting = a.opt.base().waiting && (slices.Contains(a.Pays, Waiting) || p.running || p.places)
	return p
}
