package highs

import (
	"math/rand/v2"
	"slices"

	"lorasim/ilp"
)

// bruteProblem draws a problem with up to 3 workers, 3 adapters and 4 groups, with
// any mixture of what a problem can have: closed and full workers, unequal
// speeds, loading times, weights, pages that press, a limit of moves, virtual
// requests.
func bruteProblem(rng *rand.Rand) *ilp.Problem {
	p := &ilp.Problem{Adapters: 1 + rng.IntN(3)}
	for range 1 + rng.IntN(3) {
		w := ilp.Worker{Pages: float64(rng.IntN(20)), Closed: rng.IntN(6) == 0}
		if rng.IntN(3) == 0 {
			w.Base = 4 * rng.Float64()
		}
		if rng.IntN(3) == 0 {
			w.Speed = 0.25 + 2*rng.Float64()
		}
		for k := range p.Adapters {
			if rng.IntN(2) == 0 {
				w.Resident = append(w.Resident, int32(k))
			}
		}
		p.Workers = append(p.Workers, w)
	}
	addGroups(p, rng)
	addSlots(p, rng)
	if rng.IntN(2) == 0 {
		p.Load = make([]float64, p.Adapters*len(p.Workers))
		for i := range p.Load {
			p.Load[i] = 2 * rng.Float64()
		}
	}
	if rng.IntN(2) == 0 {
		p.PageRate = 0.5 + 10*rng.Float64()
	}
	if rng.IntN(3) == 0 {
		p.MaxMoves = 1 + rng.IntN(3)
	}
	if rng.IntN(2) == 0 {
		p.MoveWeight, p.LoadWeight = rng.Float64()/2, rng.Float64()/2
	}
	return p
}

func addGroups(p *ilp.Problem, rng *rand.Rand) {
	work := make([]float64, p.Adapters)
	for k := range work {
		work[k] = float64(rng.IntN(8)) * 0.75
	}
	for range rng.IntN(5) {
		k := rng.IntN(p.Adapters)
		g := ilp.Group{Adapter: int32(k), Worker: int32(rng.IntN(len(p.Workers))), Count: int64(1 + rng.IntN(3)),
			Work: work[k], Move: 0.05, Pages: float64(rng.IntN(9)), Virtual: rng.IntN(5) == 0}
		if rng.IntN(4) == 0 {
			g.Work, g.Move = 5*rng.Float64(), rng.Float64()
		}
		p.Groups = append(p.Groups, g)
	}
}

// addSlots gives each worker as many slots as its adapters need, and some.
func addSlots(p *ilp.Problem, rng *rand.Rand) {
	for j := range p.Workers {
		var used []int32
		for i := range p.Groups {
			if g := &p.Groups[i]; int(g.Worker) == j && !slices.Contains(used, g.Adapter) {
				used = append(used, g.Adapter)
			}
		}
		p.Workers[j].Slots = len(used) + rng.IntN(2)
	}
}

func addFlow(flows []ilp.Flow, group, worker int, n int64) []ilp.Flow {
	if n == 0 {
		return flows
	}
	return append(flows, ilp.Flow{Group: int32(group), Worker: int32(worker), Count: n})
}

// bruteAssignment draws a feasible assignment.
func bruteAssignment(p *ilp.Problem, rng *rand.Rand) []ilp.Flow {
	for range 20 {
		counts := make([]int64, len(p.Groups)*len(p.Workers))
		for i := range p.Groups {
			for range p.Groups[i].Count {
				counts[i*len(p.Workers)+rng.IntN(len(p.Workers))]++
			}
		}
		var flows []ilp.Flow
		for i, n := range counts {
			flows = addFlow(flows, i/len(p.Workers), i%len(p.Workers), n)
		}
		if _, err := ilp.Evaluate(p, flows); err == nil {
			return flows
		}
	}
	return ilp.StayFlows(p)
}
