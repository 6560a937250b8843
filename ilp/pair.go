package ilp

import (
	"cmp"
	"math"
	"slices"
)

// pairAdapters is the number of adapters up to which two workers are solved
// exactly: beyond, the average load is as good a bound within any short budget.
const pairAdapters = 12

// pair solves a problem of two workers by branch and bound: first on where each
// adapter may have requests (on one worker, on the other, on both), then on the
// number of requests of each adapter that cross over. A node is bounded by the
// linear relaxation, which for two workers is a continuous knapsack: the busier
// worker sheds work, in the order of what moving it costs for each second of it,
// until the two are even; at any speeds, work sent the other way would only come on
// top. Pages enter only by the overflow that no assignment avoids, evenly divided,
// which no assignment can better where the speeds are equal; else not at all.
type pair struct {
	p        *Problem
	items    []pairItem
	of       [][]int // items of the adapters that have any, most work first
	adapter  []int32 // the adapters of that list
	order    [2][]int
	rank     [2][]int
	slots    [2]int
	overflow float64 // s, in all

	load    [2]float64
	extra   float64 // weights of the loads decided upon
	moves   int64
	used    [2]int
	cross   []int64 // requests of an item that go from 0 to 1, or the reverse below 0
	decided []bool

	best     float64 // value of the best solution known
	gap      float64 // relative, to the best: nodes within it are not looked into
	found    []int64 // cross of the best solution found here; nil: none
	search   *search
	maxWork  int64
	freeFrom int // adapters from here on cost nothing to bring to a worker
}

// pairwise proves a better bound for two workers, and takes over the solution
// if it is better than the current one. It spends at most the work given and
// returns the old bound where it does not apply.
func (s *search) pairwise(bound, gap float64, work int64) float64 {
	p := s.p
	if s.j != 2 || p.MoveWeight > 0 {
		return bound
	}
	e := newPair(s, gap, work)
	if e == nil {
		return bound
	}
	bound = math.Max(bound, e.place(0))
	if e.found == nil {
		return bound
	}
	before, mark := s.objective(), s.mark()
	for i := range e.items {
		it := &e.items[i]
		for h, c := range it.class {
			if c < 0 {
				continue
			}
			away := max(e.found[i]*int64(1-2*h), 0)
			if n := away - s.x[c].of(int32(1-h)); n > 0 {
				s.shift(c, int32(h), int32(1-h), n)
			} else if n < 0 {
				s.shift(c, int32(1-h), int32(h), -n)
			}
		}
	}
	if s.objective() > before {
		s.rollback(mark)
	}
	return bound
}

// newPair prepares the search, or returns nil if there are too many adapters.
func newPair(s *search, gap float64, work int64) *pair {
	p := s.p
	e := &pair{p: p, best: s.objective(), gap: math.Max(gap, 1e-10), search: s, maxWork: s.work + work}
	need := make([]float64, p.Adapters)
	pages, room := 0.0, 0.0
	for k, cs := range s.of {
		if len(cs) == 0 {
			continue
		}
		e.adapter = append(e.adapter, int32(k))
		for _, c := range cs {
			cc := &s.classes[c]
			need[k] += cc.work * float64(cc.count)
			pages += cc.pages * float64(cc.count)
		}
	}
	if len(e.adapter) > pairAdapters {
		return nil
	}
	slices.SortStableFunc(e.adapter, func(a, b int32) int { return cmp.Compare(need[b], need[a]) })
	for _, k := range e.adapter {
		e.of = append(e.of, e.itemsOf(s, k))
	}
	for j := range 2 {
		e.slots[j] = p.Workers[j].Slots
		e.load[j] += p.Workers[j].Base
		room += p.Workers[j].Pages
	}
	if p.PageRate > 0 && s.speed[0] == s.speed[1] {
		e.overflow = math.Max(0, pages-room) / p.PageRate
	}
	e.sortItems()
	e.cross = make([]int64, len(e.items))
	e.decided = make([]bool, len(e.items))
	e.freeFrom = len(e.adapter)
	for e.freeFrom > 0 && e.free(e.adapter[e.freeFrom-1]) {
		e.freeFrom--
	}
	return e
}

// set decides how many requests of an item cross over; by -1 takes it back.
func (e *pair) set(i int, n int64, by int64) {
	e.decided[i] = by > 0
	e.cross[i] = 0
	if by > 0 {
		e.cross[i] = n
	}
	h := 0
	if n < 0 {
		h, n = 1, -n
	}
	it := &e.items[i]
	d := float64(n * by)
	e.load[h] -= d * it.work / e.search.speed[h]
	e.load[1-h] += d * (it.work + it.move[h]) / e.search.speed[1-h]
	e.moves += n * by * it.moving[h]
}

// hopeless says whether a node of this value need not be looked into: it cannot
// improve the best, or the budget is used up.
func (e *pair) hopeless(value float64) bool {
	return value >= e.best*(1-e.gap) || e.search.work >= e.maxWork || e.search.stop()
}

// place decides where adapter n and those after it may be, and returns a bound
// on everything below.
func (e *pair) place(n int) float64 {
	x := e.relax()
	if e.hopeless(x.value) {
		return x.value
	}
	rest := len(e.adapter) - n
	if n >= e.freeFrom && e.used[0]+rest <= e.slots[0] && e.used[1]+rest <= e.slots[1] {
		return e.count(0) // nothing binds the rest
	}
	type child struct {
		on    int // 0, 1, or 2: both
		value float64
	}
	var children [3]child
	list := children[:0]
	for on := range 3 {
		e.allow(n, on, 1)
		if rest--; e.fits(rest) && e.legal(n, on) {
			list = append(list, child{on, e.relax().value})
		}
		rest++
		e.allow(n, on, -1)
	}
	slices.SortStableFunc(list, func(a, b child) int { return cmp.Compare(a.value, b.value) })
	least := math.Inf(1)
	for _, c := range list {
		v := c.value
		if !e.hopeless(v) {
			e.allow(n, c.on, 1)
			v = math.Max(v, e.place(n+1))
			e.allow(n, c.on, -1)
		}
		least = math.Min(least, v)
	}
	return math.Max(x.value, least)
}

// fits says whether the slots can hold the adapters placed and the rest.
func (e *pair) fits(rest int) bool {
	return e.used[0] <= e.slots[0] && e.used[1] <= e.slots[1] && e.used[0]+e.used[1]+rest <= e.slots[0]+e.slots[1]
}

// legal says whether an adapter may have its requests on one worker alone.
func (e *pair) legal(n, on int) bool {
	return on == 2 || !e.p.Workers[on].Closed ||
		!slices.ContainsFunc(e.of[n], func(i int) bool { return e.items[i].count[1-on] > 0 })
}

// allow lets an adapter be on worker on, or on both; by -1 takes it back.
func (e *pair) allow(n, on int, by int64) {
	k := e.adapter[n]
	for j := range 2 {
		if on == 2 || on == j {
			e.used[j] += int(by)
			if !e.p.Workers[j].resident(k) {
				e.load[j] += float64(by) * e.p.TimeToLoad(int(k), j)
				e.extra += float64(by) * e.p.LoadWeight
			}
		}
	}
	for _, i := range e.of[n] {
		switch it := &e.items[i]; on {
		case 0:
			e.set(i, -it.count[1], by)
		case 1:
			e.set(i, it.count[0], by)
		}
	}
}

// count decides the crossings of the undecided items from place at on, where
// adapters may be being decided, and returns a bound on everything below.
func (e *pair) count(at int) float64 {
	for at < len(e.items) && e.decided[at] {
		at++
	}
	x := e.relax()
	if at == len(e.items) {
		return e.leaf(x.value)
	}
	if e.hopeless(x.value) {
		return x.value
	}
	// the value is convex in the crossing: try outwards from where it is least,
	// and end each way at the first that is hopeless
	it := &e.items[at]
	lo, hi := -it.count[1], it.count[0]
	if e.p.Workers[0].Closed {
		lo = 0
	}
	if e.p.Workers[1].Closed {
		hi = 0
	}
	up := min(max(int64(math.Ceil(e.crossing(x, at))), lo), hi+1)
	least, v := math.Inf(1), 0.0
	for end, n := false, up; n <= hi && !end; n++ {
		v, end = e.try(at, n)
		least = math.Min(least, v)
	}
	for end, n := false, up-1; n >= lo && !end; n-- {
		v, end = e.try(at, n)
		least = math.Min(least, v)
	}
	return math.Max(x.value, least)
}

// try decides one crossing, and says whether it was hopeless.
func (e *pair) try(at int, n int64) (value float64, hopeless bool) {
	e.set(at, n, 1)
	defer e.set(at, n, -1)
	v := e.relax().value
	if e.hopeless(v) {
		return v, true
	}
	return e.count(at + 1), false
}

// leaf is reached when everything is decided.
func (e *pair) leaf(value float64) float64 {
	if value < e.best && (e.p.MaxMoves == 0 || e.moves <= int64(e.p.MaxMoves)) {
		e.best = value
		e.found = append(e.found[:0], e.cross...)
	}
	return value
}

// pairItem is the requests of an adapter that take equally long.
type pairItem struct {
	work   float64
	move   [2]float64 // s, of a request whose home is worker 0, 1
	count  [2]int64   // by home
	class  [2]int32   // by home; -1: none
	moving [2]int64   // what a crossing counts as a move: 1, or 0 if virtual
}

// itemsOf makes the items of an adapter, at home.
func (e *pair) itemsOf(s *search, k int32) []int {
	var list []int
	for _, c := range s.of[k] {
		cc := &s.classes[c]
		h := cc.home
		e.load[h] += cc.work * float64(cc.count) / s.speed[h]
		at := slices.IndexFunc(list, func(i int) bool { return e.items[i].work == cc.work && e.items[i].class[h] < 0 })
		if at < 0 {
			at = len(list)
			list = append(list, len(e.items))
			e.items = append(e.items, pairItem{work: cc.work, class: [2]int32{-1, -1}})
		}
		it := &e.items[list[at]]
		it.class[h], it.move[h], it.count[h], it.moving[h] = c, cc.move, cc.count, cc.counts
	}
	return list
}

// sortItems orders the items, for each worker, by what it costs to relieve it.
func (e *pair) sortItems() {
	for h := range 2 {
		for i := range e.items {
			if it := &e.items[i]; it.count[h] > 0 && it.work > 0 && !e.p.Workers[1-h].Closed {
				e.order[h] = append(e.order[h], i)
			}
		}
		slices.SortStableFunc(e.order[h], func(a, b int) int {
			x, y := &e.items[a], &e.items[b]
			return cmp.Compare(x.move[h]*y.work, y.move[h]*x.work)
		})
		e.rank[h] = make([]int, len(e.items))
		for r, i := range e.order[h] {
			e.rank[h][i] = r
		}
	}
}

// free says whether an adapter costs nothing to bring to either worker.
func (e *pair) free(k int32) bool {
	for j := range 2 {
		if w := &e.p.Workers[j]; !w.resident(k) && (e.p.TimeToLoad(int(k), j) > 0 || e.p.LoadWeight > 0) {
			return false
		}
	}
	return true
}

// relaxed is the linear relaxation of what is undecided: worker from sheds all
// items before place at in its order, and part of the item there.
type relaxed struct {
	value float64
	from  int
	at    int
	part  float64 // requests
}

func (e *pair) relax() relaxed {
	h := 0
	if e.load[1] > e.load[0] {
		h = 1
	}
	a, b := e.load[h], e.load[1-h]
	e.search.work += 1 + int64(len(e.order[h]))/8
	for r, i := range e.order[h] {
		if a-b <= e.overflow {
			return relaxed{e.extra + (a+b+e.overflow)/2, h, r, 0}
		}
		if e.decided[i] {
			continue
		}
		it := &e.items[i]
		off, on := it.work/e.search.speed[h], (it.work+it.move[h])/e.search.speed[1-h]
		q := (a - b - e.overflow) / (off + on)
		if n := float64(it.count[h]); q > n {
			a -= n * off
			b += n * on
			continue
		}
		return relaxed{e.extra + a - q*off, h, r, q}
	}
	return relaxed{e.extra + math.Max(a, (a+b+e.overflow)/2), h, len(e.order[h]), 0}
}

// crossing is how many requests of an item the relaxation moves from 0 to 1.
func (e *pair) crossing(x relaxed, i int) float64 {
	it, n := &e.items[i], 0.0
	switch r := e.rank[x.from][i]; {
	case it.count[x.from] == 0 || it.work == 0 || e.p.Workers[1-x.from].Closed || r > x.at:
	case r == x.at:
		n = x.part
	default:
		n = float64(it.count[x.from])
	}
	if x.from == 1 {
		return -n
	}
	return n
}
