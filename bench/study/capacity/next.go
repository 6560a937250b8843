package capacity

import (
	"math"
	"strconv"
)

const (
	// moreBudget is the least factor of a larger budget, mostBudget the largest.
	moreBudget, mostBudget = 2, 16
	// moreWorkers is the factor of a larger number of workers, moreSeeds that of a larger number of seeds.
	moreWorkers, moreSeeds = 4, 4
	// strictness is about by how much the interval of a look is wider than a plain one.
	strictness = 1.6
)

// Next returns the flag, with its value, that would decide what the answer leaves open; "": nothing is open, or no flag
// would decide it.
func (a *Answer) Next() (flag, value string) {
	f := &a.Found
	switch {
	case a.Interrupted || a.single || a.spread:
		return "", ""
	case f.Decision == Overloaded && !a.Stopped:
		return "max-workers", strconv.Itoa(moreWorkers * a.MaxWorkers)
	}
	factor, open := 0.0, a.Stopped || f.Holds && a.Headroom.Seeds == 0
	for _, t := range []*Tried{f, a.NextCheaper} {
		if t == nil {
			continue
		}
		if t.Decision != Undecided && t.Decision != Likely {
			// an interval contains the target, and the budget allows no more runs
			fresh := min(mostFresh, a.MaxSeeds)
			if !t.Certain && t.hasInterval() && t.panel != nil && len(t.runs) < fresh {
				open, factor = true, max(factor, float64(freshShare*int64(fresh)*t.Size.requests)/float64(a.Budget))
			}
			continue
		}
		if t.Attainment.N >= a.MaxSeeds {
			return "max-seeds", strconv.Itoa(moreSeeds * a.MaxSeeds)
		}
		open, factor = true, max(factor, a.needs(t))
	}
	switch {
	case !open:
		return "", ""
	case a.CPU > 0 || a.Budget < DefaultBudget:
		return "budget", strconv.Itoa(DefaultBudget)
	}
	factor = math.Exp2(math.Ceil(math.Log2(min(max(factor, moreBudget), mostBudget))))
	return "budget", strconv.FormatInt(a.Budget*int64(factor), 10)
}

// Single reports whether there is one workload, of which an interval needs resamples.
func (a *Answer) Single() bool { return a.single && !a.Interrupted }

// Span is the time of the last arrival of the workload, s.
func (a *Answer) Span() float64 { return a.Found.last }

// needs is the factor of the budget with which the test of a candidate would end, by the width of its interval and its
// distance from the target.
func (a *Answer) needs(t *Tried) float64 {
	e := &t.Attainment
	half, gap := (e.High-e.Low)/2, math.Abs(e.Mean-a.target())
	if !t.hasInterval() || gap == 0 {
		return 0
	}
	return math.Pow(strictness*half/gap, 2)
}
