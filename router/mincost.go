package router

import (
	"cmp"
	"math"
	"slices"
)

// minCost places adapters as Dynamo does: each gets replicas by its share of the
// load, and a minimum-cost flow says where, which prefers the workers that its
// hash ranks first and those that have it. An adapter's number of replicas
// changes at most once per cooldown.
type minCost struct {
	placer
	hashes     *hrw
	move, keep float64
	cooldown   float64 // s
	replicas   []int
	changed    []float64 // when an adapter's number of replicas last changed
}

func newMinCost(o *options, env Env) (*Router, error) {
	p := &minCost{
		placer:   newPlacer(o, env),
		hashes:   newHRW(env),
		move:     o.number("move", 0, math.Inf(1)),
		keep:     o.number("keep", 0, math.Inf(1)),
		cooldown: o.number("cooldown", 0, math.Inf(1)),
		replicas: make([]int, len(env.Adapters)),
		changed:  make([]float64, len(env.Adapters)),
	}
	for k := range p.replicas {
		p.replicas[k], p.changed[k] = 1, math.Inf(-1)
	}
	p.setPlacement(p.target(slices.Repeat([]bool{true}, len(env.Workers))))
	return p.router(p), nil
}

func (p *minCost) Route(r Request, v *View) int {
	p.note(r)
	return p.leastLoadedHolder(r, v)
}

// Begin implements Beginner.
func (p *minCost) Begin(s *Situation) *Pending {
	p.forecast(s.Now)
	up := make([]bool, len(s.Workers))
	n, slots := 0, 0
	for j := range s.Workers {
		if up[j] = s.Workers[j].Usable(); up[j] {
			n++
			slots += p.env.Workers[j].Slots
		}
	}
	if n == 0 {
		return nil
	}
	p.resize(s.Now, n, float64(slots))
	return p.towards(func() [][]int32 { return p.target(up) }, "replicas follow the load", "replicas and places are as they should be")
}

// resize shares out the slots by the largest remainder of load share x slots,
// at least one and at most every worker to each adapter.
func (p *minCost) resize(now float64, up int, slots float64) {
	total := 0.0
	for k := range p.demand {
		total += p.demand[k].rate
	}
	if total == 0 {
		return
	}
	want := make([]int, len(p.replicas))
	rest := make([]float64, len(p.replicas))
	order := make([]int, len(p.replicas))
	left := int(slots)
	for k := range want {
		exact := slots * p.demand[k].rate / total
		want[k], order[k] = int(exact), k
		rest[k] = exact - math.Floor(exact)
		left -= want[k]
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rest[b], rest[a]) })
	for _, k := range order[:min(max(left, 0), len(order))] {
		want[k]++
	}
	for k := range want {
		want[k] = min(max(want[k], 1), up)
	}
	for k, n := range want {
		if n != p.replicas[k] && now-p.changed[k] >= p.cooldown {
			p.replicas[k], p.changed[k] = n, now
		}
	}
}

// target is the cheapest placement of the replicas, of which routing changes nothing.
func (p *minCost) target(up []bool) [][]int32 {
	n := len(p.env.Workers)
	room := make([]int, n)
	slots, total := 0, 0
	for j := range up {
		if up[j] {
			slots += max(p.env.Workers[j].Slots, 1)
		}
	}
	for _, r := range p.replicas {
		total += r
	}
	for j := range room {
		if up[j] { // more than the slots where there are more adapters
			own := max(p.env.Workers[j].Slots, 1)
			room[j] = max(own, (total*own+slots-1)/slots)
		}
	}
	cost := make([][]float64, len(p.replicas))
	for k := range cost {
		cost[k] = make([]float64, n)
		for rank, j := range p.hashes.order(int32(k)) {
			cost[k][j] = float64(rank) + p.move
			if p.placed[k*n+int(j)] {
				cost[k][j] = float64(rank) - p.keep
			}
		}
	}
	return transposed(transport(p.replicas, room, cost), n)
}
