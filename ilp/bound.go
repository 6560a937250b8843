package ilp

import (
	"cmp"
	"math"
	"slices"
	"sort"
)

// LowerBound returns a lower bound on the objective of every solution. It is the least T + weighted moves that passes
// four tests:
//
//   - Average: all work, the moves that workers above T force, and the page overflow must fit into what all workers
//     do in T, each at its speed. The overflow is the pages for which no worker has room, at the speed of the slowest
//     worker. A worker sheds its surplus at the lowest cost per second of work. Requests may be split, which relaxes
//     slots and integrality.
//   - Base: the work of a worker that no decision changes.
//   - The longest single request, on its worker or on the fastest one.
//   - The limit on moves: the workers above T shed their longest requests first, split if necessary. That must not take
//     more moves than allowed.
//
// A larger T passes each test more easily, so T is found by bisection.
func LowerBound(p *Problem) float64 {
	b := newBounder(p)
	lo, hi := b.least, math.Max(b.least, b.stay)
	for range 100 {
		mid := lo + (hi-lo)/2
		if mid <= lo || mid >= hi {
			break
		}
		if b.possible(mid) {
			hi = mid
		} else {
			lo = mid
		}
	}
	if p.MoveWeight == 0 {
		return lo
	}
	return b.weighted(lo, hi)
}

type bounder struct {
	p       *Problem
	total   float64 // work of all requests and bases, and of overflow that cannot be avoided, in s at speed 1
	least   float64 // T cannot be lower
	stay    float64 // T if nothing moves
	load    []float64
	speed   []float64 // by worker
	speeds  float64   // their sum
	work    []curve   // by worker: extra work on others for relieving it
	moves   []curve   // by worker: requests moved to relieve it
	limited bool
}

func newBounder(p *Problem) *bounder {
	n := len(p.Workers)
	b := &bounder{p: p, load: make([]float64, n), speed: make([]float64, n), work: make([]curve, n),
		moves: make([]curve, n), limited: p.MaxMoves > 0}
	pages := make([]float64, n)
	groups := make([][]int32, n)
	sum, room := 0.0, 0.0
	slowest, fastest := math.Inf(1), 0.0 // fastest: of those that take requests
	for j := range p.Workers {
		w := &p.Workers[j]
		b.load[j] = w.Base
		b.least = math.Max(b.least, w.Base)
		b.speed[j] = w.speed()
		b.speeds += b.speed[j]
		slowest = math.Min(slowest, b.speed[j])
		if !w.Closed {
			fastest = math.Max(fastest, b.speed[j])
		}
	}
	for i := range p.Groups {
		g := &p.Groups[i]
		n := float64(g.Count)
		b.load[g.Worker] += n * g.Work / b.speed[g.Worker]
		pages[g.Worker] += n * g.Pages
		sum += n * g.Pages
		longest := g.Work / b.speed[g.Worker]
		if fastest > 0 {
			longest = math.Min(longest, (g.Work+g.Move)/fastest)
		}
		b.least = math.Max(b.least, longest)
		if g.Work > 0 {
			groups[g.Worker] = append(groups[g.Worker], int32(i))
		}
	}
	for j := range p.Workers {
		b.total += b.load[j] * b.speed[j]
		room += p.Workers[j].Pages
		busy := b.load[j]
		if p.PageRate > 0 {
			busy += math.Max(0, pages[j]-p.Workers[j].Pages) / p.PageRate
		}
		b.stay = math.Max(b.stay, busy)
		b.work[j] = newCurve(p, groups[j], func(g *Group) float64 { return g.Move })
		if b.limited || p.MoveWeight > 0 {
			b.moves[j] = newCurve(p, groups[j], func(g *Group) float64 { return float64(g.counts()) })
		}
	}
	if p.PageRate > 0 {
		b.total += math.Max(0, sum-room) / p.PageRate * slowest
	}
	return b
}

// possible says whether no test rules T = t out.
func (b *bounder) possible(t float64) bool {
	return b.relief(b.total, b.work, t) <= t*b.speeds &&
		(!b.limited || b.relief(0, b.moves, t) <= float64(b.p.MaxMoves)*(1+1e-9))
}

// relief adds the least cost of relieving all workers above t to a sum.
func (b *bounder) relief(sum float64, cost []curve, t float64) float64 {
	for j, load := range b.load {
		if load > t {
			sum += cost[j].at((load - t) * b.speed[j])
		}
	}
	return sum
}

// weighted is the least of T + MoveWeight * moves over T from lo to hi. Moves
// are a convex function of T that falls, so the sum is convex: ternary search.
// Above hi nothing is forced to move.
func (b *bounder) weighted(lo, hi float64) float64 {
	hi = math.Max(hi, b.stay)
	f := func(t float64) float64 { return t + b.p.MoveWeight*b.relief(0, b.moves, t) }
	for range 120 {
		m1, m2 := lo+(hi-lo)/3, hi-(hi-lo)/3
		if f(m1) <= f(m2) {
			hi = m2
		} else {
			lo = m1
		}
	}
	return math.Min(f(lo), f(hi)) * (1 - 1e-9)
}

// curve is the least cost of relieving a worker as a function of the work taken
// off, requests being divisible: piecewise linear and convex.
type curve struct {
	work, cost []float64 // cumulative over groups, cheapest first; both start with 0
}

func newCurve(p *Problem, groups []int32, cost func(*Group) float64) curve {
	type each struct{ n, work, cost float64 }
	order := make([]each, len(groups))
	for i, k := range groups {
		g := &p.Groups[k]
		order[i] = each{float64(g.Count), g.Work, cost(g)}
	}
	slices.SortFunc(order, func(x, y each) int { return cmp.Compare(x.cost*y.work, y.cost*x.work) })
	c := curve{work: make([]float64, len(order)+1), cost: make([]float64, len(order)+1)}
	for i, x := range order {
		c.work[i+1] = c.work[i] + x.n*x.work
		c.cost[i+1] = c.cost[i] + x.n*x.cost
	}
	return c
}

// at is the cost of taking off an amount of work; beyond what there is, of all.
func (c curve) at(work float64) float64 {
	i := sort.SearchFloat64s(c.work, work)
	if i == 0 {
		return 0
	}
	if i == len(c.work) {
		return c.cost[i-1]
	}
	return c.cost[i-1] + (c.cost[i]-c.cost[i-1])*(work-c.work[i-1])/(c.work[i]-c.work[i-1])
}
