package worth

import (
	"slices"

	"lorasim/bench/study/sweep"
)

// An Answer is the result of a study.
type Answer struct {
	Dir    *sweep.Dir
	Tables *sweep.Tables
	// Effects are the tested effects (routing, waiting requests, plans and their parts), and effects that are only
	// reported.
	Effects []Effect
	// Pays lists the factors with a certain gain. For plans, it lists the parts with a certain gain, or Plans if only
	// the gain of both together is certain.
	Pays []Factor
	// Interval is the interval of the plans that pay, s. If none pay, it is the interval of those that come closest;
	// "": no plans are comparable.
	Interval string
	// Clear: more seeds are unlikely to change the answer.
	Clear bool
	Fixed bool // every seed gives the same run

	alone bool // plans pay without moving waiting requests alone
	opt   Options
	tests [2]int // in the families: whether each stage gains; which part of the plans
	runs  runs
}

// Move reports whether moving requests or placing adapters pays.
func (a *Answer) Move() bool {
	return slices.ContainsFunc(a.Pays, func(f Factor) bool { return f != Routing })
}

// Chosen returns the recommended policy among those with the planner's routing: the one with the parts that pay. Plans
// are recommended as measured: together with moving waiting requests, unless they pay only without.
func (a *Answer) Chosen() string { return a.chosen().policy(a.Interval) }

func (a *Answer) chosen() parts {
	plans := slices.Contains(a.Pays, Plans)
	p := parts{running: plans || slices.Contains(a.Pays, Running), places: plans || slices.Contains(a.Pays, Placing)}
	if a.alone {
		p = a.opt.full()
		p.waiting = false
		return p
	}
	p.waiting = a.opt.base().waiting && (slices.Contains(a.Pays, Waiting) || p.running || p.places)
	return p
}
