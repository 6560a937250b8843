package ilp

import "math"

// held is an adapter with requests on a worker. What follows from the requests is computed when it is asked for, and
// again once they have changed ([state.look]).
type held struct {
	adapter int32
	known   bool    // the rest is up to date
	foreign bool    // some of the requests are away from their worker
	parts   []part  // the requests, by ascending class
	n       int64   // number of requests
	least   float64 // no request takes less time on any worker, s
	leave   block   // the move of all requests, see block
	saves   float64 // no move of all requests shortens the sum of the times of both workers by more, s
}

// part is the requests of a class on a worker.
type part struct {
	class int32
	n     int64
}

// block is all requests of an adapter on one worker, as seen when it moves to
// another: what it takes from the one and adds to the other.
type block struct {
	off, on, pages float64
	moves          int64
}

// look returns an adapter of a worker by its index, up to date until requests move.
func (s *state) look(w, i int32) *held {
	h := &s.on[w][i]
	if h.known {
		return h
	}
	h.known, h.foreign, h.parts, h.n, h.least = true, false, h.parts[:0], 0, math.Inf(1)
	bare := 0.0
	for _, c := range s.of[h.adapter] {
		n := s.x[c].of(w)
		if n <= 0 {
			continue
		}
		cc := &s.classes[c]
		h.parts = append(h.parts, part{c, n})
		h.foreign = h.foreign || cc.home != w
		h.n += n
		h.least = min(h.least, cc.work)
		bare += float64(n) * cc.work
	}
	h.least /= s.fastest
	s.sum(h, w, nowhere, &h.leave)
	switch {
	case !s.alike:
		h.saves = math.Inf(1)
	case h.foreign:
		h.saves = h.leave.off - bare/s.speed[w]
	default:
		h.saves = h.leave.off - h.leave.on
	}
	return h
}

// holding returns an adapter with requests on a worker by its number.
func (s *state) holding(k, w int32) *held {
	i, _ := s.present[k].find(w)
	return s.look(w, s.present[k][i].at)
}

// saver is an adapter of a worker, by its index.
type saver struct {
	saves float64 // see held
	index int32
}

// saving is the most that the move of one adapter from a worker saves. It brings savers up to date.
func (s *state) saving(w int32) float64 {
	list := s.savers[w]
	if s.stale[w] {
		s.stale[w], list = false, list[:0]
		for i := range int32(len(s.on[w])) {
			x := saver{s.look(w, i).saves, i}
			at := len(list)
			list = append(list, x)
			for ; at > 0 && list[at-1].saves < x.saves; at-- {
				list[at] = list[at-1]
			}
			list[at] = x
		}
		s.savers[w] = list
	}
	if len(list) == 0 {
		return math.Inf(-1)
	}
	return list[0].saves
}

// nowhere is a worker that no request came from, as fast as the one where requests are.
const nowhere = -1

// sum adds up the requests of an adapter for a move from a worker to another one, without the time to load it there. It
// returns false if they may not go there.
func (s *state) sum(h *held, from, to int32, v *block) bool {
	*v = block{}
	for _, p := range h.parts {
		c, n := &s.classes[p.class], p.n
		v.off += float64(n) * s.each(c, from)
		v.pages += float64(n) * c.pages
		switch {
		case to == nowhere:
			v.on += float64(n) * ((c.work + c.move) / s.speed[from])
			v.moves += n * c.counts
			continue
		case !s.open(c, to):
			return false
		case c.home == from:
			v.moves += n * c.counts
		case c.home == to:
			v.moves -= n * c.counts
		}
		v.on += float64(n) * s.each(c, to)
	}
	if t, loads := s.toLoad(h.adapter, from); loads {
		v.off += t
	}
	return true
}

// block returns the move of all requests of an adapter from a worker to another one; nil: they may not go there. It is
// valid until the next call. on is block.on with the time to load the adapter.
func (s *state) block(h *held, from, to int32) (v *block, on float64) {
	switch v = &h.leave; {
	case !s.alike || h.foreign:
		if v = &s.moving; !s.sum(h, from, to, v) {
			return nil, 0
		}
	case s.closed[to]:
		return nil, 0
	}
	on = v.on
	if t, loads := s.toLoad(h.adapter, to); loads {
		on += t
	}
	return v, on
}
