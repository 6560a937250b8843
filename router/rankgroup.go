package router

import (
	"cmp"
	"fmt"
	"slices"
)

// rankGroup keeps adapters of like rank together, after LoRAServe: the largest
// rank of a batch sets the price for all of it. Every interval it sorts the
// adapters by rank, cuts them into as many runs of equal demand x cost as there
// are workers, and gives the runs to the workers so that the fewest adapters
// move. An adapter on a cut, or with more than a worker's share, is on several.
type rankGroup struct{ placer }

func newRankGroup(o *options, env Env) (*Router, error) {
	if env.Cost == nil {
		return nil, errNeedsCosts
	}
	p := &rankGroup{newPlacer(o, env)}
	p.setPlacement(p.target()) // with even demand
	return p.router(p), nil
}

func (p *rankGroup) Route(r Request, v *View) int {
	p.note(r)
	return p.leastLoadedHolder(r, v)
}

// Plan implements Planner.
func (p *rankGroup) Plan(s *Situation) *Plan {
	p.forecast(s.Now)
	plan := &Plan{Reason: "adapters of like rank and equal demand together"}
	plan.Load, plan.Unload = p.aim(p.target())
	if plan.Empty() {
		plan.Reason = "the groups by rank are as they should be"
	}
	return plan
}

// typicalBatch is the batch for which the cost of a rank is looked up.
const typicalBatch = 8

// target is the placement for the demand as it is now.
func (p *rankGroup) target() [][]int32 {
	order := make([]int32, len(p.env.Adapters))
	weight := make([]float64, len(order))
	total := 0.0
	for k := range order {
		order[k] = int32(k)
		// a little for adapters without demand, so that they are somewhere
		weight[k] = (p.demand[k].rate + 1e-3) * p.env.Cost.DecodeStep(typicalBatch, 0, p.env.Adapters[k].Rank)
		total += weight[k]
	}
	slices.SortStableFunc(order, func(a, b int32) int {
		return cmp.Compare(p.env.Adapters[a].Rank, p.env.Adapters[b].Rank)
	})
	runs := make([][]int32, p.env.Workers)
	share := total / float64(p.env.Workers)
	done := 0.0
	for _, k := range order {
		first := min(int(done/share*(1+1e-12)), p.env.Workers-1)
		done += weight[k]
		last := min(int(done/share*(1-1e-12)), p.env.Workers-1)
		for g := first; g <= last; g++ {
			runs[g] = append(runs[g], k)
		}
	}
	return p.seat(runs)
}

// seat gives each run to a worker so that the fewest adapters move.
func (p *rankGroup) seat(runs [][]int32) [][]int32 {
	n := p.env.Workers
	ones := make([]int, n)
	cost := make([][]float64, n)
	for g := range runs {
		ones[g] = 1
		runs[g] = sorted(runs[g])
		cost[g] = make([]float64, n)
		for j := range n {
			for _, k := range runs[g] {
				if !p.placed[int(k)*n+j] {
					cost[g][j]++
				}
			}
		}
	}
	held := make([][]int32, n)
	for g, js := range transport(ones, ones, cost) {
		if len(js) != 1 {
			panic(fmt.Sprintf("router: run %d of adapters has %d workers", g, len(js)))
		}
		held[js[0]] = runs[g]
	}
	return held
}
