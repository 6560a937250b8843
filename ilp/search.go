package ilp

import (
	"math"
	"math/rand/v2"
	"slices"
)

// search lowers the busiest worker of a state, move by move.
type search struct {
	*state
	target float64 // no worker needs to be less busy than this: the bound on T
	eps    float64 // smaller gains do not count
	rng    *rand.Rand
	stop   func() bool

	returns []block // scratch of swapFrom
	least   []int32 // scratch of leastBusy
}

// shiftMove is a candidate: n requests of a class from one worker to another.
type shiftMove struct {
	class, from, to int32
	n               int64
	gain            float64 // fall of the sum of squared times
}

// descend moves requests away from the busiest worker until no move helps or the target is reached. If moves or loads
// have weights, it then returns to the best assignment on its way.
func (s *search) descend() {
	best, mark := s.objective(), s.mark()
	for !s.stop() {
		a, t := s.top()
		if t <= s.target+s.eps {
			break
		}
		if !s.shiftFrom(int32(a)) && !s.swapFrom(int32(a)) {
			break
		}
		if now := s.objective(); now <= best {
			best, mark = now, s.mark()
		}
	}
	if s.p.MoveWeight > 0 || s.p.LoadWeight > 0 {
		s.rollback(mark)
	}
}

// wide limits the number of workers that each step of the search considers. With more workers, a step considers only
// the least busy ones, so that its cost hardly grows with their number.
const wide = 64

// leastBusy returns workers in ascending order: all, or the least busy ones if there are more than wide.
func (s *search) leastBusy() []int32 {
	n := min(s.j, wide)
	if s.j > wide {
		s.work += int64(s.j)
	}
	s.least = s.least[:0]
	for b := range int32(s.j) {
		t, i := s.busy(int(b)), len(s.least)
		if i < n {
			s.least = append(s.least, b)
		} else if i--; t >= s.busy(int(s.least[i])) {
			continue
		}
		for ; n < s.j && i > 0 && s.busy(int(s.least[i-1])) > t; i-- {
			s.least[i] = s.least[i-1]
		}
		s.least[i] = b
	}
	slices.Sort(s.least)
	return s.least
}

// shiftFrom applies the best shift away from worker a, if one helps.
func (s *search) shiftFrom(a int32) bool {
	best, others := shiftMove{}, s.leastBusy()
	for _, k := range s.on[a] {
		for _, c := range s.of[k] {
			if s.x[c].of(a) == 0 {
				continue
			}
			for _, b := range others {
				if b != a && s.room(k, b) && s.open(&s.classes[c], b) {
					if m := s.balance(c, a, b); m.gain > best.gain {
						best = m
					}
				}
			}
		}
	}
	if best.n > 0 {
		s.shift(best.class, best.from, best.to, best.n)
	}
	return best.n > 0
}

// balance is the shift of a class from a to b that evens the two out best
// without making a less busy than the target. Its n is 0 if none helps.
func (s *search) balance(ci, a, b int32) shiftMove {
	s.work++
	c := &s.classes[ci]
	have := s.x[ci].of(a)
	ta, tb := s.busy(int(a)), s.busy(int(b))
	if t, loads := s.toLoad(c.adapter, b); loads && !s.holds(c.adapter, b) {
		tb += t
	}
	da, db := s.each(c, a), s.each(c, b)
	if s.p.PageRate > 0 {
		if s.pages[a] > s.p.Workers[a].Pages {
			da += c.pages / s.p.PageRate
		}
		if s.pages[b] >= s.p.Workers[b].Pages {
			db += c.pages / s.p.PageRate
		}
	}
	if ta-tb <= s.eps || da <= 0 {
		return shiftMove{}
	}
	n := min(int64((ta-tb)/(da+db)), int64(math.Ceil((ta-s.target)/da)), have)
	m := s.try(ci, a, b, n, ta)
	if n < have {
		if up := s.try(ci, a, b, n+1, ta); up.gain > m.gain {
			m = up
		}
	}
	return m
}

// try evaluates a shift of n requests exactly.
func (s *search) try(ci, a, b int32, n int64, ta float64) shiftMove {
	if n <= 0 || !s.allowed(s.moved(ci, a, b, n)) {
		return shiftMove{}
	}
	na, nb, tb := s.after(ci, a, -n), s.after(ci, b, n), s.busy(int(b))
	if max(na, nb) >= ta-s.eps {
		return shiftMove{}
	}
	return shiftMove{ci, a, b, n, ta*ta + tb*tb - na*na - nb*nb - s.weights(ci, a, b, n)*ta}
}

// after returns the time of a worker with n more requests of a class.
func (s *search) after(ci, w int32, n int64) float64 {
	c := &s.classes[ci]
	load := s.load[w] + float64(n)*s.each(c, w)
	if t, loads := s.toLoad(c.adapter, w); loads {
		switch present := s.present[c.adapter].of(w); {
		case present == 0:
			load += t
		case present+n == 0:
			load -= t
		}
	}
	return load + s.over(int(w), s.pages[w]+float64(n)*c.pages)
}

// allowed reports whether the limit on moves allows the given number of further moves.
func (s *search) allowed(more int64) bool {
	return s.p.MaxMoves == 0 || s.moves+more <= int64(s.p.MaxMoves)
}

// moved is by how much a shift changes the number of moves.
func (s *search) moved(ci, a, b int32, n int64) int64 {
	c := &s.classes[ci]
	switch {
	case c.home == a:
		return n * c.counts
	case c.home == b:
		return -n * c.counts
	}
	return 0
}

// weights is what a shift adds to the objective beside T.
func (s *search) weights(ci, a, b int32, n int64) float64 {
	w := s.p.MoveWeight * float64(s.moved(ci, a, b, n))
	if s.p.LoadWeight > 0 {
		k := s.classes[ci].adapter
		if _, loads := s.toLoad(k, b); loads && !s.holds(k, b) {
			w += s.p.LoadWeight
		}
		if _, loads := s.toLoad(k, a); loads && s.present[k].of(a) == n {
			w -= s.p.LoadWeight
		}
	}
	return w
}

// improve repeats: a random change, then descend; the outcome stays if it is no
// worse than before (iterated local search). It ends when the objective is good
// enough.
func (s *search) improve(enough float64) {
	s.undo = s.undo[:0]
	best := s.objective()
	for !s.stop() && best > math.Max(enough, s.target+s.eps) {
		if !s.perturb() {
			continue
		}
		s.descend()
		if now := s.objective(); now <= best {
			best, s.undo = now, s.undo[:0]
		} else {
			s.rollback(0)
		}
	}
}

// perturb makes a random change between the busiest (mostly) and another worker.
func (s *search) perturb() (done bool) {
	s.work++
	top, _ := s.top()
	a := int32(top)
	if s.rng.IntN(4) == 0 {
		a = s.rng.Int32N(int32(s.j))
	}
	b := s.rng.Int32N(int32(s.j))
	if a == b || len(s.on[a]) == 0 {
		return false
	}
	k := s.on[a][s.rng.IntN(len(s.on[a]))]
	mark := s.mark()
	switch s.rng.IntN(3) {
	case 0: // swap two adapters
		if len(s.on[b]) > 0 {
			l := s.on[b][s.rng.IntN(len(s.on[b]))]
			done = k != l && !s.holds(k, b) && !s.holds(l, a) && s.moveAll(k, a, b) && s.moveAll(l, b, a)
		}
	case 1: // move one adapter
		done = s.room(k, b) && s.moveAll(k, a, b)
	default: // move some requests
		c := s.of[k][s.rng.IntN(len(s.of[k]))]
		n := s.x[c].of(a)
		if n == 0 || !s.room(k, b) || !s.open(&s.classes[c], b) {
			return false
		}
		n = 1 + s.rng.Int64N(min(n, 8))
		if done = s.allowed(s.moved(c, a, b, n)); done {
			s.shift(c, a, b, n)
		}
	}
	if !done {
		s.rollback(mark)
	}
	return done
}

// margin is the time a compound move has to end below, starting at t: one that
// gains next to nothing is not worth its search.
func (s *search) margin(t float64) float64 { return t - math.Max(s.eps, 0.02*(t-s.target)) }

// block is all requests of an adapter on one worker, as seen when it moves to
// another: what it takes from the one and adds to the other.
type block struct {
	off, on, pages float64
	moves          int64
	ok             bool
}

func (s *search) block(k, from, to int32) block {
	v := block{ok: true}
	for _, c := range s.of[k] {
		if n := s.x[c].of(from); n > 0 {
			cc := &s.classes[c]
			if !s.open(cc, to) {
				return block{}
			}
			v.moves += s.moved(c, from, to, n)
			v.off += float64(n) * s.each(cc, from)
			v.on += float64(n) * s.each(cc, to)
			v.pages += float64(n) * cc.pages
		}
	}
	if t, loads := s.toLoad(k, from); loads {
		v.off += t
	}
	if t, loads := s.toLoad(k, to); loads {
		v.on += t
	}
	return v
}

// swapFrom exchanges all requests of an adapter on worker a for all of another
// adapter on another worker: what remains possible when no slot is free.
func (s *search) swapFrom(a int32) bool {
	ta := s.busy(int(a))
	best := s.margin(ta)
	var bk, bl, bb int32 = -1, -1, -1
	for _, b := range s.leastBusy() {
		if b == a || s.busy(int(b)) >= best {
			continue
		}
		s.returns = s.returns[:0]
		for _, l := range s.on[b] {
			v := block{}
			if !s.holds(l, a) {
				v = s.block(l, b, a)
			}
			s.returns = append(s.returns, v)
		}
		for _, k := range s.on[a] {
			if s.holds(k, b) {
				continue
			}
			v := s.block(k, a, b)
			if !v.ok {
				continue
			}
			for i := range s.returns {
				r := &s.returns[i]
				s.work++
				if !r.ok || !s.allowed(v.moves+r.moves) {
					continue
				}
				d := r.pages - v.pages
				la, lb := s.load[a]-v.off+r.on, s.load[b]-r.off+v.on
				if max(la, lb) >= best {
					continue
				}
				la += s.over(int(a), s.pages[a]+d)
				lb += s.over(int(b), s.pages[b]-d)
				if peak := max(la, lb); peak < best {
					best, bk, bl, bb = peak, k, s.on[b][i], b
				}
			}
		}
	}
	if bk < 0 {
		return false
	}
	s.moveAll(bk, a, bb)
	s.moveAll(bl, bb, a)
	return true
}

// moveAll moves every request of an adapter from b to d and says whether the
// outcome is allowed.
func (s *search) moveAll(k, b, d int32) bool {
	for _, c := range s.of[k] {
		if n := s.x[c].of(b); n > 0 {
			if !s.open(&s.classes[c], d) {
				return false
			}
			s.shift(c, b, d, n)
		}
	}
	return s.allowed(0)
}
