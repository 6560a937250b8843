package ilp

import "math"

// exchangeFrom swaps requests of two classes between worker a and another so
// that both end below a's time, if it can.
func (s *search) exchangeFrom(a int32) bool {
	ta := s.busy(int(a))
	var best [2]shiftMove
	bestPeak := s.margin(ta)
	for b := range int32(s.j) {
		tb := s.busy(int(b))
		if b == a || tb >= ta-s.eps {
			continue
		}
		for _, k := range s.on[a] {
			if !s.room(k, b) {
				continue
			}
			for _, c := range s.of[k] {
				if s.x[int(c)*s.j+int(a)] == 0 || !s.open(&s.classes[c], b) {
					continue
				}
				s.exchangeWith(a, b, c, &best, &bestPeak)
			}
		}
	}
	if best[0].n == 0 {
		return false
	}
	for _, m := range best {
		s.shift(m.class, m.from, m.to, m.n)
	}
	return true
}

// exchangeWith looks for a class that worker b could give back for some
// requests of class c.
func (s *search) exchangeWith(a, b, c int32, best *[2]shiftMove, bestPeak *float64) {
	cc := &s.classes[c]
	ta, tb := s.busy(int(a)), s.busy(int(b))
	for _, l := range s.on[b] {
		if l == cc.adapter || !s.holds(l, a) && s.used[a] >= s.p.Workers[a].Slots {
			continue
		}
		for _, d := range s.of[l] {
			have := s.x[int(d)*s.j+int(b)]
			dd := &s.classes[d]
			if have == 0 || !s.open(dd, a) {
				continue
			}
			for n := int64(1); n <= min(s.x[int(c)*s.j+int(a)], 4); n++ {
				s.work++
				// give back m so that both are as even as can be
				gain := float64(n) * (s.each(cc, a) + s.each(cc, b))
				back := s.each(dd, a) + s.each(dd, b)
				m := int64(math.Round((gain - (ta - tb)) / back))
				m = min(max(m, 1), have)
				dp := float64(m)*dd.pages - float64(n)*cc.pages
				pa := s.after(c, a, -n) + float64(m)*s.each(dd, a) + s.over(int(a), s.pages[a]+dp) - s.over(int(a), s.pages[a]-float64(n)*cc.pages)
				pb := s.after(c, b, n) - float64(m)*s.each(dd, b) + s.over(int(b), s.pages[b]-dp) - s.over(int(b), s.pages[b]+float64(n)*cc.pages)
				if !s.holds(l, a) && !s.p.Workers[a].resident(l) {
					pa += s.p.load(int(l), int(a))
				}
				if peak := math.Max(pa, pb); peak < *bestPeak && s.allowed(s.moved(c, a, b, n)+s.moved(d, b, a, m)) {
					*bestPeak = peak
					best[0] = shiftMove{class: c, from: a, to: b, n: n}
					best[1] = shiftMove{class: d, from: b, to: a, n: m}
				}
			}
		}
	}
}

// margin is the time a compound move has to end below, starting at t: one that
// gains next to nothing is not worth its search.
func (s *search) margin(t float64) float64 {
	return t - math.Max(s.eps, 0.02*(t-s.target))
}

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
		if n := s.x[int(c)*s.j+int(from)]; n > 0 {
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
	if !s.p.Workers[from].resident(k) {
		v.off += s.p.load(int(k), int(from))
	}
	if !s.p.Workers[to].resident(k) {
		v.on += s.p.load(int(k), int(to))
	}
	return v
}

// swapFrom exchanges all requests of an adapter on worker a for all of another
// adapter on another worker: what remains possible when no slot is free.
func (s *search) swapFrom(a int32) bool {
	ta := s.busy(int(a))
	best := s.margin(ta)
	var bk, bl, bb int32 = -1, -1, -1
	for b := range int32(s.j) {
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
				if math.Max(la, lb) >= best {
					continue
				}
				la += s.over(int(a), s.pages[a]+d)
				lb += s.over(int(b), s.pages[b]-d)
				if peak := math.Max(la, lb); peak < best {
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

// makeRoomFrom moves a light adapter off a less busy worker that has no slot
// for the adapters of worker a, and shifts requests from a into its place.
func (s *search) makeRoomFrom(a int32) bool {
	ta := s.busy(int(a))
	var best []step
	bestPeak := s.margin(ta)
	for b := range int32(s.j) {
		if b == a || s.used[b] < s.p.Workers[b].Slots || s.busy(int(b)) >= ta-s.eps {
			continue
		}
		for _, l := range append([]int32(nil), s.on[b]...) {
			for d := range int32(s.j) {
				if d == b || !s.room(l, d) {
					continue
				}
				mark := s.mark()
				if s.moveAll(l, b, d) && s.busy(int(d)) < bestPeak {
					if m := s.bestInto(a, b); m.n > 0 {
						s.shift(m.class, m.from, m.to, m.n)
						peak := max(s.busy(int(a)), s.busy(int(b)), s.busy(int(d)))
						if peak < bestPeak {
							bestPeak = peak
							best = append(best[:0], s.undo[mark:]...)
						}
					}
				}
				s.rollback(mark)
			}
		}
	}
	if best == nil {
		return false
	}
	for _, u := range best {
		s.shift(u.class, u.from, u.to, u.n)
	}
	return true
}

// moveAll moves every request of an adapter from b to d and says whether the
// outcome is allowed.
func (s *search) moveAll(k, b, d int32) bool {
	for _, c := range s.of[k] {
		if n := s.x[int(c)*s.j+int(b)]; n > 0 {
			if !s.open(&s.classes[c], d) {
				return false
			}
			s.shift(c, b, d, n)
		}
	}
	return s.allowed(0)
}

// bestInto is the best shift from a to b.
func (s *search) bestInto(a, b int32) (best shiftMove) {
	for _, k := range s.on[a] {
		if !s.room(k, b) {
			continue
		}
		for _, c := range s.of[k] {
			if s.x[int(c)*s.j+int(a)] > 0 && s.open(&s.classes[c], b) {
				if m := s.balance(c, a, b); m.gain > best.gain {
					best = m
				}
			}
		}
	}
	return best
}
