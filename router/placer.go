package router

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// placer is what planners that keep a placement of their own share: where each
// adapter is placed, and the demand for it.
type placer struct {
	env      Env
	interval float64   // s between plans
	held     [][]int32 // by worker: adapters placed there, ascending
	placed   []bool    // the same: placed[adapter*workers+worker]
	where    [][]int32 // the same by adapter, ascending
	next     [][]int32 // placement that the plan under way leads to
	demand   []demand  // by adapter
	planAt   float64   // of the latest plan
}

// demand is what is known of an adapter's requests.
type demand struct {
	arrived float64 // since the latest plan
	rate    float64 // requests/s, moving average over plans
	output  mean    // tokens, as expected
	prompt  mean    // tokens
}

// mean is a moving average that begins as an ordinary one.
type mean struct{ value, n float64 }

func (m *mean) add(x float64) { m.addUpTo(x, 50) }

// addUpTo adds to an average over so many values at most.
func (m *mean) addUpTo(x, most float64) {
	m.n = min(m.n+1, most)
	m.value += (x - m.value) / m.n
}

func (m *mean) or(def float64) float64 {
	if m.n == 0 {
		return def
	}
	return m.value
}

// newPlacer deals the adapters out to the workers in turn.
func newPlacer(o *options, env Env) placer {
	p := placer{
		env: env, demand: make([]demand, len(env.Adapters)),
		interval: o.numberOr(env.Interval, "interval", ">=0.001"),
	}
	held := make([][]int32, len(env.Workers))
	for k := range env.Adapters {
		held[k%len(env.Workers)] = append(held[k%len(env.Workers)], int32(k))
	}
	p.setPlacement(held)
	return p
}

// router wraps a policy that is its own planner.
func (p *placer) router(policy interface {
	Policy
	Planner
}) *Router {
	rt := &Router{Policy: policy, Planner: policy}
	if p.env.hostLimited() { // else there is room for every adapter everywhere
		rt.Placement = clonePlacement(p.held)
	}
	return rt
}

func (p *placer) setPlacement(held [][]int32) {
	p.held, p.where = held, transposed(held, len(p.env.Adapters))
	p.placed = make([]bool, len(p.env.Adapters)*len(p.env.Workers))
	for j := range held {
		for _, k := range held[j] {
			p.placed[int(k)*len(p.env.Workers)+j] = true
		}
	}
}

// transposed turns lists by worker of adapters, of which there are n, into lists
// by adapter of workers, or the reverse.
func transposed(lists [][]int32, n int) [][]int32 {
	out := make([][]int32, n)
	for i, list := range lists {
		for _, j := range list {
			out[j] = append(out[j], int32(i))
		}
	}
	return out
}

// note counts a request for the forecast.
func (p *placer) note(r Request) {
	if isAdapter(r.Adapter) {
		d := &p.demand[r.Adapter]
		d.arrived++
		d.prompt.add(float64(r.Prompt))
		d.output.add(r.output())
	}
}

// holds says whether a request's adapter is placed on a worker; the base model is
// everywhere.
func (p *placer) holds(r Request, j int) bool {
	return !isAdapter(r.Adapter) || p.placed[int(r.Adapter)*len(p.env.Workers)+j]
}

// Route counts a request towards the demand; it goes to the least loaded holder.
func (p *placer) Route(r Request, v *View) int {
	p.note(r)
	return p.leastLoadedHolder(r, v)
}

// leastLoadedHolder is the usable worker with the fewest requests among those
// where the adapter is placed, else among all.
func (p *placer) leastLoadedHolder(r Request, v *View) int {
	if isAdapter(r.Adapter) {
		if w := v.leastLoaded(p.where[r.Adapter], nil); w != None {
			return w
		}
	}
	return fewest(v)
}

// rateWeight is the weight of the latest interval in the forecast.
const rateWeight = 0.5

// forecast updates the demand of each adapter by what arrived since the latest
// plan.
func (p *placer) forecast(now float64) {
	dt := now - p.planAt
	if dt <= 0 {
		return
	}
	for k := range p.demand {
		d := &p.demand[k]
		if rate := d.arrived / dt; p.planAt == 0 {
			d.rate = rate
		} else {
			d.rate += rateWeight * (rate - d.rate)
		}
		d.arrived = 0
	}
	p.planAt = now
}

// aim sets the placement that a plan leads to and returns the loads and unloads
// that takes. Where a worker's host memory has room for every adapter nothing is
// unloaded: what is not used is evicted from its slot anyway.
func (p *placer) aim(to [][]int32) (load, unload []Placement) {
	p.next = to
	load, unload = difference(p.held, to)
	return load, slices.DeleteFunc(unload, func(l Placement) bool { return p.env.Workers[l.Worker].HostSlots == 0 })
}

// towards is a plan that leads to a target, for a reason; there is another where it
// changes nothing.
func (p *placer) towards(target func() [][]int32, reason, asIs string) *Pending {
	var to [][]int32
	return &Pending{func() { to = target() }, func() *Plan {
		plan := &Plan{Reason: reason}
		if plan.Load, plan.Unload = p.aim(to); plan.Empty() {
			plan.Reason = asIs
		}
		return plan
	}}
}

func (p *placer) Interval() float64 { return p.interval }

func (p *placer) Applied(_ *Plan, err error) {
	if err == nil && p.next != nil {
		p.setPlacement(p.next)
	}
	p.next = nil
}

func sorted(ks []int32) []int32 {
	slices.Sort(ks)
	return slices.Compact(ks)
}

// rankGroup keeps adapters of like rank together, after LoRAServe: the largest
// rank of a batch sets the price for all of it. Every interval it sorts the
// adapters by rank, cuts them into as many runs of demand x cost, in proportion to
// the workers' speeds, as there are workers, and gives the runs to the workers so that the fewest adapters
// move. An adapter on a cut, or with more than a worker's share, is on several.
type rankGroup struct{ placer }

func newRankGroup(o *options, env Env) (*Router, error) {
	if err := env.needCosts(); err != nil {
		return nil, err
	}
	p := &rankGroup{newPlacer(o, env)}
	p.setPlacement(p.target(upTo(len(env.Workers)))) // with even demand
	return p.router(p), nil
}

func (p *rankGroup) Begin(s *Situation) *Pending {
	p.forecast(s.Now)
	var up []int32
	for j := range s.usable() {
		up = append(up, int32(j))
	}
	if up == nil {
		return nil
	}
	return p.towards(func() [][]int32 { return p.target(up) }, "adapters of like rank and equal demand together", "the groups by rank are as they should be")
}

// typicalBatch is the batch for which the cost of a rank is looked up.
const typicalBatch = 8

// target is the placement on the given workers for the demand as of the latest
// forecast, of which routing changes nothing: the slowest workers get the lowest
// ranks, each as much as its speed.
func (p *rankGroup) target(up []int32) [][]int32 {
	order := upTo(len(p.env.Adapters))
	weight := make([]float64, len(order))
	time := make([]float64, len(up)) // of each worker, for the demand as a whole
	total := 0.0
	for k := range order {
		for j, w := range up {
			// a little for adapters without demand, so that they are somewhere
			t := (p.demand[k].rate + 1e-3) * p.env.Workers[w].Cost.DecodeStep(typicalBatch, 0, p.env.Adapters[k].Rank)
			time[j] += t
			weight[k] += t
		}
		total += weight[k]
	}
	slices.SortStableFunc(order, func(a, b int32) int {
		return cmp.Compare(p.env.Adapters[a].Rank, p.env.Adapters[b].Rank)
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
		runs[g] = sorted(runs[g])
		cost[g] = make([]float64, n)
		for j := range n {
			if time[j] != slow[g] {
				cost[g][j] = math.Inf(1)
				continue
			}
			for _, k := range runs[g] {
				if !p.placed[int(k)*len(p.env.Workers)+int(up[j])] {
					cost[g][j]++
				}
			}
		}
	}
	held := make([][]int32, len(p.env.Workers))
	for g, js := range transport(ones, ones, cost) {
		if len(js) != 1 {
			panic(fmt.Sprintf("router: run %d of adapters has %d workers", g, len(js)))
		}
		held[up[js[0]]] = runs[g]
	}
	return held
}
