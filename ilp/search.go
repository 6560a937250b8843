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

	// Scratch:
	least   []int32    // of leastBusy
	takers  []taker    // of takersOf
	free    []int32    // of shiftFrom: workers with a free slot that requests may help
	among   []int64    // of shiftFrom, by worker: the latest call that looks at it
	calls   int64      // of shiftFrom
	returns []exchange // of swapFrom
	common  []int      // of swapFrom, by worker: adapters that are on worker a, too
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
	} else if len(s.least) == s.j {
		return s.least
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

// shiftFrom applies the best shift away from worker a, if one helps. All shifts count as work. Few are looked at: those
// after which both workers can be less busy than a is.
func (s *search) shiftFrom(a int32) bool {
	least := math.Inf(1)
	for i := range int32(len(s.on[a])) {
		least = min(least, s.look(a, i).least)
	}
	limit, free := s.busy(int(a))-s.eps, int64(0)
	s.calls++
	s.free = s.free[:0]
	for _, b := range s.leastBusy() {
		if b == a || s.closed[b] {
			continue
		}
		s.among[b] = s.calls
		if s.used[b] < s.p.Workers[b].Slots {
			if free++; s.load[b]+least < limit {
				s.free = append(s.free, b)
			}
		}
	}
	best := shiftMove{}
	for i := range int32(len(s.on[a])) {
		h := s.look(a, i)
		more := s.takersOf(h, limit)
		s.work += (free + more) * int64(len(h.parts))
		if len(s.takers) == 0 && !(h.foreign && s.closes) {
			continue
		}
		for _, p := range h.parts {
			g := s.giver(h, p, a)
			for i := range s.takers {
				s.offer(&g, &s.takers[i], &best)
			}
			if s.closed[g.home] && g.home != a {
				s.offerHome(&g, &best)
			}
		}
	}
	if best.n > 0 {
		s.shift(best.class, best.from, best.to, best.n)
	}
	return best.n > 0
}

// taker is a worker to which requests of an adapter may go.
type taker struct {
	worker int32
	loads  bool    // the adapter has to be loaded there
	load   float64 // time to load it, s; 0: it is there
	busy   float64 // s
}

// taker returns a worker with room for an adapter.
func (s *search) taker(k, b int32, holds bool) taker {
	t := taker{worker: b, busy: s.busy(int(b))}
	if !holds {
		if load, loads := s.toLoad(k, b); loads {
			t.load, t.loads = load, true
		}
	}
	return t
}

// takersOf lists the workers to which requests of an adapter may go such that they are less busy than the limit then,
// in ascending order, in s.takers. It returns the number of workers without a free slot that have the adapter.
func (s *search) takersOf(h *held, limit float64) (full int64) {
	s.takers = s.takers[:0]
	free, k := s.free, h.adapter
	limit += roundOff*limit - h.least
	for _, there := range s.present[k] {
		b := there.worker
		for ; len(free) > 0 && free[0] < b; free = free[1:] {
			s.addTaker(k, free[0], false, limit)
		}
		switch {
		case s.among[b] != s.calls:
			continue
		case s.used[b] >= s.p.Workers[b].Slots:
			full++
		case len(free) > 0 && free[0] == b:
			free = free[1:]
		default:
			continue // too busy
		}
		s.addTaker(k, b, true, limit)
	}
	for _, b := range free {
		s.addTaker(k, b, false, limit)
	}
	return full
}

// addTaker adds a worker to s.takers if its time with the adapter is at most the limit.
func (s *search) addTaker(k, b int32, holds bool, limit float64) {
	if s.load[b] <= limit {
		if t := s.taker(k, b, holds); s.load[b]+t.load <= limit {
			s.takers = append(s.takers, t)
		}
	}
}

// offerHome offers the shift of a class to the closed worker that its requests came from.
func (s *search) offerHome(g *giver, best *shiftMove) {
	if s.room(g.adapter, g.home) && (s.j <= wide || slices.Contains(s.least, g.home)) {
		s.work++
		t := s.taker(g.adapter, g.home, s.holds(g.adapter, g.home))
		s.offer(g, &t, best)
	}
}

// offer takes over the shift of a class to a worker if it is the best so far. Of equal ones the first class is the
// best, and of its shifts the one to the first worker.
func (s *search) offer(g *giver, t *taker, best *shiftMove) {
	each := s.each(g.class, t.worker)
	if g.hopeless(t, each, best.gain) || s.load[t.worker]+each+t.load >= g.busy-s.eps {
		return
	}
	m := s.balance(g, t, each)
	if m.gain > best.gain || m.gain == best.gain && m.n > 0 && m.class == best.class && m.to < best.to {
		*best = m
	}
}

// giver is the requests of a class on a worker that some of them are to leave.
type giver struct {
	*class
	ci, worker int32
	have       int64
	all        int64   // requests of the adapter on the worker, if it is to be loaded there; 0: it is resident
	load       float64 // time to load it, s
	busy       float64 // s
	each       float64 // s of a request
	relief     float64 // s that a request takes of the worker, overflow included
	rounding   float64 // of gains
}

func (s *search) giver(h *held, p part, a int32) giver {
	c := &s.classes[p.class]
	g := giver{class: c, ci: p.class, worker: a, have: p.n, busy: s.busy(int(a)), each: s.each(c, a)}
	if t, loads := s.toLoad(h.adapter, a); loads {
		g.all, g.load = h.n, t
	}
	g.relief = g.each
	if s.p.PageRate > 0 && s.pages[a] > s.p.Workers[a].Pages {
		g.relief += c.pages / s.p.PageRate
	}
	g.rounding = roundOff * g.busy * g.busy
	if s.p.PageRate > 0 || g.all == g.have { // gains have no simple bound
		g.rounding = math.Inf(1)
	}
	return g
}

// hopeless reports whether no shift of the class to a worker gains more than a given shift. each is the time of a
// request there. If n requests could be split, and the worker needed no load, they would gain
//
//	busy² + t.busy² - (busy - n g.each)² - (t.busy + n each)²
//
// at most, which is largest where the derivative by n is 0.
func (g *giver) hopeless(t *taker, each, gain float64) bool {
	if gain <= g.rounding || t.worker == g.home {
		return false
	}
	slope := g.busy*g.each - t.busy*each
	return slope <= 0 || slope*slope <= (gain-g.rounding)*(g.each*g.each+each*each)
}

// balance is the shift of a class to a worker that evens the two out best without making the first less busy than the
// target. Its n is 0 if none helps.
func (s *search) balance(g *giver, t *taker, each float64) shiftMove {
	tb, add := t.busy+t.load, each
	if s.p.PageRate > 0 && s.pages[t.worker] >= s.p.Workers[t.worker].Pages {
		add += g.pages / s.p.PageRate
	}
	if g.busy-tb <= s.eps || g.relief <= 0 {
		return shiftMove{}
	}
	n := min(int64((g.busy-tb)/(g.relief+add)), int64(math.Ceil((g.busy-s.target)/g.relief)), g.have)
	m := s.try(g, t, each, n)
	if n < g.have {
		if up := s.try(g, t, each, n+1); up.gain > m.gain {
			m = up
		}
	}
	return m
}

// try evaluates a shift of n requests exactly.
func (s *search) try(g *giver, t *taker, each float64, n int64) shiftMove {
	if n <= 0 {
		return shiftMove{}
	}
	moved := int64(0)
	switch {
	case g.home == g.worker:
		moved = n * g.counts
	case g.home == t.worker:
		moved = -n * g.counts
	}
	if !s.allowed(moved) {
		return shiftMove{}
	}
	na, nb := s.load[g.worker]-float64(n)*g.each, s.load[t.worker]+float64(n)*each+t.load
	weights := s.p.MoveWeight * float64(moved)
	if t.loads {
		weights += s.p.LoadWeight
	}
	if g.all == n { // the adapter leaves
		na -= g.load
		weights -= s.p.LoadWeight
	}
	if s.p.PageRate > 0 {
		na += s.over(int(g.worker), s.pages[g.worker]-float64(n)*g.pages)
		nb += s.over(int(t.worker), s.pages[t.worker]+float64(n)*g.pages)
	}
	if max(na, nb) >= g.busy-s.eps {
		return shiftMove{}
	}
	gain := g.busy*g.busy + t.busy*t.busy - na*na - nb*nb - weights*g.busy
	return shiftMove{g.ci, g.worker, t.worker, n, gain}
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
	k := s.on[a][s.rng.IntN(len(s.on[a]))].adapter
	mark := s.mark()
	switch s.rng.IntN(3) {
	case 0: // swap two adapters
		if len(s.on[b]) > 0 {
			l := s.on[b][s.rng.IntN(len(s.on[b]))].adapter
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

// exchange is an adapter that could leave its worker for another one, in exchange for one from there.
type exchange struct {
	on, rest float64 // s of the other worker for it, s of its worker without it
	saves    float64 // s of both
	pages    float64
	moves    int64
	index    int32 // on its worker
}

// swapFrom exchanges all requests of an adapter on worker a for all of another
// adapter on another worker: what remains possible when no slot is free. All exchanges count as work.
func (s *search) swapFrom(a int32) bool {
	best := s.margin(s.busy(int(a)))
	bb, bk, bl := int32(nowhere), int32(0), int32(0) // the worker, and the indices of the adapters on a and there
	s.countCommon(a)
	for _, b := range s.leastBusy() {
		if b == a || s.busy(int(b)) >= best {
			continue
		}
		// The two together have this much to do after an exchange that saves nothing. If more than twice the best is
		// left, one of them stays too busy.
		sum := s.load[a] + s.load[b]
		least := func() float64 { return sum*(1-roundOff) - 2*best }
		if !s.closed[b] {
			s.work += int64(len(s.on[b]) * (len(s.on[a]) - s.common[b]))
			if least() >= s.saving(a)+s.saving(b) {
				continue
			}
		}
		returns := s.exchanges(s.returns[:0], b, a, least()-s.saving(a))
		s.returns = returns
		saved, leastOn, leastRest := bounds(returns)
		for _, x := range s.savers[a] {
			if !s.closed[b] && least() >= x.saves+saved {
				break
			}
			h := s.look(a, x.index)
			if s.holds(h.adapter, b) {
				continue
			}
			v, on := s.block(h, a, b)
			if v == nil {
				continue
			}
			if s.closed[b] {
				s.work += int64(len(s.on[b]))
			}
			rest := s.load[a] - v.off
			if rest+leastOn > best || leastRest+on > best {
				continue
			}
			for i := range returns {
				r := &returns[i]
				la, lb := rest+r.on, r.rest+on
				if la > best || lb > best || !s.allowed(v.moves+r.moves) {
					continue
				}
				if s.p.PageRate > 0 {
					d := r.pages - v.pages
					la += s.over(int(a), s.pages[a]+d)
					lb += s.over(int(b), s.pages[b]-d)
				}
				peak := max(la, lb)
				if peak < best || peak == best && b == bb && (x.index < bk || x.index == bk && r.index < bl) {
					best, bb, bk, bl = peak, b, x.index, r.index
				}
			}
		}
	}
	if bb == nowhere {
		return false
	}
	k, l := s.on[a][bk].adapter, s.on[bb][bl].adapter
	s.moveAll(k, a, bb)
	s.moveAll(l, bb, a)
	return true
}

// roundOff is the relative error of sums and differences of times, and more.
const roundOff = 1e-12

// countCommon counts the adapters that a worker has in common with each other one.
func (s *search) countCommon(a int32) {
	clear(s.common)
	for i := range s.on[a] {
		for _, there := range s.present[s.on[a][i].adapter] {
			s.common[there.worker]++
		}
	}
}

// exchanges appends the adapters of a worker that could go to another one and save more than a limit.
func (s *search) exchanges(list []exchange, from, to int32, limit float64) []exchange {
	s.saving(from)
	for _, x := range s.savers[from] {
		if x.saves <= limit {
			break
		}
		if h := s.look(from, x.index); !s.holds(h.adapter, to) {
			if v, on := s.block(h, from, to); v != nil {
				list = append(list, exchange{on, s.load[from] - v.off, v.off - on, v.pages, v.moves, x.index})
			}
		}
	}
	return list
}

// bounds returns the most that an exchange saves, the least that it adds, and the least rest.
func bounds(list []exchange) (saved, on, rest float64) {
	saved, on, rest = math.Inf(-1), math.Inf(1), math.Inf(1)
	for i := range list {
		x := &list[i]
		saved, on, rest = max(saved, x.saves), min(on, x.on), min(rest, x.rest)
	}
	return saved, on, rest
}

// moveAll moves every request of an adapter from b to d and says whether the
// outcome is allowed.
func (s *search) moveAll(k, b, d int32) bool {
	for _, p := range s.holding(k, b).parts { // shifts leave the list as it is
		if !s.open(&s.classes[p.class], d) {
			return false
		}
		s.shift(p.class, b, d, p.n)
	}
	return s.allowed(0)
}
