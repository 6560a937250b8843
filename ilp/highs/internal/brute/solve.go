//go:build highs

package brute

import (
	"math"

	"lorasim/ilp"
)

// Solve returns the objective of the best assignment.
func Solve(p *ilp.Problem) float64 {
	best := math.Inf(1)
	Assignments(p, func(flows []ilp.Flow) {
		if out, err := ilp.Evaluate(p, flows); err == nil {
			best = math.Min(best, out.Objective)
		}
	})
	return best
}

// Assignments calls f with every assignment of the requests of p to workers,
// feasible or not. f must not keep the flows.
func Assignments(p *ilp.Problem, f func([]ilp.Flow)) {
	var flows []ilp.Flow
	var place func(group, worker int, left int64)
	place = func(group, worker int, left int64) {
		if group == len(p.Groups) {
			f(flows)
			return
		}
		if worker == len(p.Workers)-1 {
			mark := len(flows)
			flows = add(flows, group, worker, left)
			if group+1 < len(p.Groups) {
				place(group+1, 0, p.Groups[group+1].Count)
			} else {
				place(group+1, 0, 0)
			}
			flows = flows[:mark]
			return
		}
		for n := range left + 1 {
			mark := len(flows)
			flows = add(flows, group, worker, n)
			place(group, worker+1, left-n)
			flows = flows[:mark]
		}
	}
	if len(p.Groups) == 0 {
		f(nil)
		return
	}
	place(0, 0, p.Groups[0].Count)
}
