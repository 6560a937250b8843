package policies

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"lorasim/router"
	"lorasim/router/place"
)

// rankGroup keeps adapters of similar rank together, after LoRAServe: the largest rank of a batch sets the cost of the
// whole batch. Every interval it sorts the adapters by rank and cuts them into one run for each worker, with equal
// demand x cost in proportion to the workers' speeds. It assigns the runs to the workers so that the fewest adapters
// move. An adapter on a cut, or with more than a worker's share, is placed on several workers.
type rankGroup struct{ place.Placer }

type rankGroupOptions struct{ intervalOption }

// Build implements Builder.
func (o *rankGroupOptions) Build(env router.Env) (*router.Router, error) {
	if err := env.NeedCosts(); err != nil {
		return nil, err
	}
	p := &rankGroup{place.New(o.Interval, env)}
	p.SetPlacement(p.target(upTo(len(env.Workers)))) // with even demand
	return p.Router(p), nil
}

func (p *rankGroup) Begin(s *router.PlannerInput) *router.Pending {
	p.Forecast(s.Now)
	var up []int32
	for j := range s.Usable() {
		up = append(up, int32(j))
	}
	if up == nil {
		return nil
	}
	return p.Towards(func() [][]int32 { return p.target(up) },
		"adapters of like rank and equal demand together",
		"no change: the groups by rank are up to date")
}

// typicalBatch is the batch for which the cost of a rank is looked up.
const typicalBatch = 8

// target is the placement on the given workers for the demand as of the latest
// forecast, of which routing changes nothing: the slowest workers get the lowest
// ranks, each as much as its speed.
func (p *rankGroup) target(up []int32) [][]int32 {
	order := upTo(len(p.Env().Adapters))
	weight := make([]float64, len(order))
	time := make([]float64, len(up)) // of each worker, for the demand as a whole
	total := 0.0
	for k := range order {
		for j, w := range up {
			// a little for adapters without demand, so that they are somewhere
			step := p.Env().Workers[w].Cost.DecodeStep(typicalBatch, typicalBatch, 0, p.Env().Adapters[k].Rank)
			t := (p.Demand()[k].Rate + 1e-3) * step
			time[j] += t
			weight[k] += t
		}
		total += weight[k]
	}
	slices.SortStableFunc(order, func(a, b int32) int {
		return cmp.Compare(p.Env().Adapters[a].Rank, p.Env().Adapters[b].Rank)
	})
	slow := slices.Sorted(slices.Values(time))
	slices.Reverse(slow)
	ends := make([]float64, len(slow)) // of the runs, on the scale of weight
	speeds := 0.0
	for g, t := range slow {
		speeds += 1 / t
		ends[g] = speeds
	}
	for g := range ends {
		ends[g] *= total / speeds
	}
	runOf := func(at float64) int {
		g, past := slices.BinarySearch(ends, at)
		if past {
			g++
		}
		return min(g, len(ends)-1)
	}
	runs := make([][]int32, len(up))
	done := 0.0
	for _, k := range order {
		first := runOf(done * (1 + 1e-12))
		done += weight[k]
		for g := first; g <= runOf(done*(1-1e-12)); g++ {
			runs[g] = append(runs[g], k)
		}
	}
	return p.seat(runs, slow, time, up)
}

// seat gives each run, made for a worker that takes slow[g] for the demand, to
// such a worker so that the fewest adapters move.
func (p *rankGroup) seat(runs [][]int32, slow, time []float64, up []int32) [][]int32 {
	n := len(up)
	ones := make([]int, n)
	cost := make([][]float64, n)
	for g := range runs {
		ones[g] = 1
		slices.Sort(runs[g])
		runs[g] = slices.Compact(runs[g])
		cost[g] = make([]float64, n)
		for j := range n {
			if time[j] != slow[g] {
				cost[g][j] = math.Inf(1)
				continue
			}
			for _, k := range runs[g] {
				if !p.Holds(k, int(up[j])) {
					cost[g][j]++
				}
			}
		}
	}
	where, err := transport(p.Env().Context, ones, ones, cost)
	if err != nil {
		return p.Held() // the run has been stopped
	}
	held := make([][]int32, len(p.Env().Workers))
	for g, js := range where {
		if len(js) != 1 {
			panic(fmt.Sprintf("router: run %d of adapters has %d workers", g, len(js)))
		}
		held[up[js[0]]] = runs[g]
	}
	return held
}
