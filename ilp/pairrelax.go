package ilp

import (
	"cmp"
	"math"
	"slices"
)

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
		if w := &e.p.Workers[j]; !w.resident(k) && (e.p.load(int(k), j) > 0 || e.p.LoadWeight > 0) {
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
