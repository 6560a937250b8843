package ilp

import (
	"cmp"
	"fmt"
	"slices"
)

// Start returns the assignment that solvers begin with. Every request stays where it is, unless a worker has requests
// of more adapters than slots. Then whole adapters leave that worker: first to workers that have the adapter or a free
// slot; if that is not enough, each adapter goes to one worker. The error states why no assignment was found. Without
// closed workers and a limit of moves, it means that none exists.
func Start(p *Problem) ([]Flow, error) {
	if overFull(p) < 0 {
		return StayFlows(p), nil
	}
	s := newStart(p)
	if s.relieve() && s.allowed() {
		return s.flows(), nil
	}
	s = newStart(p)
	if s.gather() && s.allowed() {
		return s.flows(), nil
	}
	return nil, s.refusal()
}

// overFull returns a worker with requests of more adapters than slots; -1: there is none.
func overFull(p *Problem) int {
	used := make(pairs, 0, len(p.Groups))
	for i := range p.Groups {
		used.add(p.Groups[i].Worker, p.Groups[i].Adapter)
	}
	rest := used.sorted()
	for j := range p.Workers {
		n := rest.count(int32(j))
		if n > p.Workers[j].Slots {
			return j
		}
		rest = rest[n:]
	}
	return -1
}

// start is an assignment of whole adapters: all requests of an adapter that are on one worker move together.
type start struct {
	p *Problem
	// to[k][j] is where the requests of adapter k that are on worker j go; -1: there are none.
	to [][]int32
	// here[k][j] is the number of requests of adapter k that are on worker j, without virtual ones; now[k][j] is the
	// number of them that go there.
	here, now [][]int64
	on        [][]bool // on[k][j]: adapter k has requests on worker j
	used      []int    // adapters with requests, by worker
}

func newStart(p *Problem) *start {
	n := len(p.Workers)
	s := &start{p: p, to: make([][]int32, p.Adapters), here: make([][]int64, p.Adapters),
		now: make([][]int64, p.Adapters), on: make([][]bool, p.Adapters), used: make([]int, n)}
	for k := range s.to {
		s.to[k] = slices.Repeat([]int32{-1}, n)
		s.here[k], s.now[k], s.on[k] = make([]int64, n), make([]int64, n), make([]bool, n)
	}
	for i := range p.Groups {
		g := &p.Groups[i]
		if s.to[g.Adapter][g.Worker] < 0 {
			s.used[g.Worker]++
		}
		s.to[g.Adapter][g.Worker], s.on[g.Adapter][g.Worker] = g.Worker, true
		s.here[g.Adapter][g.Worker] += g.Count * g.counts()
		s.now[g.Adapter][g.Worker] += g.Count * g.counts()
	}
	return s
}

// relieve moves adapters off workers that have too many, the one with the fewest requests first. It prefers workers
// that have the adapter, since those need no slot.
func (s *start) relieve() bool {
	for j := range int32(len(s.p.Workers)) {
		for s.used[j] > s.p.Workers[j].Slots {
			k, to := s.leaving(j)
			if k < 0 {
				return false
			}
			s.send(k, j, to)
		}
	}
	return true
}

// leaving returns the adapter that leaves a worker, and where it goes; -1: none can.
func (s *start) leaving(j int32) (adapter int, to int32) {
	type way struct {
		k    int
		to   int32
		slot int // 1: the adapter needs a slot there
		n    int64
	}
	var ways []way
	for k := range s.to {
		if !s.on[k][j] {
			continue
		}
		for b := range int32(len(s.p.Workers)) {
			w := &s.p.Workers[b]
			if b == j || w.Closed || !s.on[k][b] && s.used[b] >= w.Slots {
				continue
			}
			slot := 1
			if s.on[k][b] {
				slot = 0
			}
			ways = append(ways, way{k, b, slot, s.now[k][j]})
		}
	}
	if len(ways) == 0 {
		return -1, -1
	}
	best := slices.MinFunc(ways, func(a, b way) int {
		return cmp.Or(cmp.Compare(a.slot, b.slot), cmp.Compare(a.n, b.n), cmp.Compare(a.k, b.k),
			cmp.Compare(a.to, b.to))
	})
	return best.k, best.to
}

// send moves what an adapter has on worker j to another one.
func (s *start) send(k int, j, to int32) {
	for from := range s.to[k] {
		if s.to[k][from] == j {
			s.to[k][from] = to
		}
	}
	if !s.on[k][to] {
		s.used[to]++
	}
	s.used[j]--
	s.now[k][to] += s.now[k][j]
	s.now[k][j], s.on[k][j], s.on[k][to] = 0, false, true
}

// gather puts each adapter on one worker: those with the most requests on a worker stay there while slots last, the
// others go to free slots. Closed workers keep adapters of their own while slots last.
func (s *start) gather() bool {
	type home struct {
		k int
		j int32
		n int64
	}
	var homes []home
	for k := range s.to {
		for j := range int32(len(s.p.Workers)) {
			if s.to[k][j] == j {
				homes = append(homes, home{k, j, s.here[k][j]})
			}
		}
	}
	slices.SortStableFunc(homes, func(a, b home) int { return cmp.Compare(b.n, a.n) })
	free := make([]int, len(s.p.Workers))
	for j := range free {
		free[j] = s.p.Workers[j].Slots
	}
	at := slices.Repeat([]int32{-1}, len(s.to)) // the open worker of an adapter
	stays := map[[2]int32]bool{}                // adapter and closed worker
	for _, h := range homes {
		switch closed := s.p.Workers[h.j].Closed; {
		case free[h.j] == 0:
		case closed:
			stays[[2]int32{int32(h.k), h.j}] = true
			free[h.j]--
		case at[h.k] < 0:
			at[h.k] = h.j
			free[h.j]--
		}
	}
	for k := range s.to {
		for j := range int32(len(s.p.Workers)) {
			if s.to[k][j] < 0 || stays[[2]int32{int32(k), j}] {
				continue
			}
			if at[k] < 0 {
				b := slices.IndexFunc(s.p.Workers, func(w Worker) bool { return !w.Closed })
				for ; b >= 0 && b < len(free) && (free[b] == 0 || s.p.Workers[b].Closed); b++ {
				}
				if b < 0 || b == len(free) {
					return false
				}
				at[k] = int32(b)
				free[b]--
			}
			s.to[k][j] = at[k]
		}
	}
	return true
}

// allowed reports whether the moves are within the problem's limit.
func (s *start) allowed() bool {
	if s.p.MaxMoves == 0 {
		return true
	}
	n := int64(0)
	for k := range s.to {
		for from, to := range s.to[k] {
			if to >= 0 && int(to) != from {
				n += s.here[k][from]
			}
		}
	}
	return n <= int64(s.p.MaxMoves)
}

func (s *start) flows() []Flow {
	fs := StayFlows(s.p)
	for i := range fs {
		fs[i].Worker = s.to[s.p.Groups[i].Adapter][fs[i].Worker]
	}
	return fs
}

// refusal is the error of a problem whose requests do not fit.
func (s *start) refusal() error {
	adapters, slots := 0, 0
	for _, here := range s.to {
		if slices.ContainsFunc(here, func(j int32) bool { return j >= 0 }) {
			adapters++
		}
	}
	for j := range s.p.Workers {
		slots += s.p.Workers[j].Slots
	}
	if adapters > slots {
		return fmt.Errorf("requests of %d adapters, but the workers have %d slots", adapters, slots)
	}
	j := overFull(s.p)
	return fmt.Errorf("worker %d: requests of more adapters than its %d slots, and no assignment was found that fits the "+
		"slots, the closed workers and the limit of moves", j, s.p.Workers[j].Slots)
}
