package ilp

import (
	"cmp"
	"slices"
)

// class is groups that differ in nothing but pages, or, in a fine state, in nothing.
type class struct {
	adapter, home int32
	count         int64
	work, move    float64
	pages         float64 // of one request, on average
	counts        int64   // Group.counts
	groups        []int32 // by pages, ascending
}

// state is an assignment that is changed step by step. Times are kept as sums;
// they are exact enough to search with and are recomputed at the end.
type state struct {
	p       *Problem
	j       int       // workers
	speed   []float64 // by worker
	classes []class
	of      [][]int32 // classes by adapter

	x       []int64   // x[c*j+w]: requests of class c on worker w
	present []int64   // present[k*j+w]: requests of adapter k on worker w
	used    []int     // adapters with requests, by worker
	load    []float64 // s without overflow, by worker
	pages   []float64 // by worker
	moves   int64
	loads   int64
	on      [][]int32 // adapters with requests on a worker, in no order
	at      []int32   // at[k*j+w]: index of k in on[w], -1: none

	undo []step // since the last commit
	work int64
}

// step moves n requests of a class from one worker to another.
type step struct {
	class, from, to int32
	n               int64
}

func newState(p *Problem, fine bool) *state {
	s := &state{p: p, j: len(p.Workers), of: make([][]int32, p.Adapters)}
	for j := range p.Workers {
		s.speed = append(s.speed, p.Workers[j].speed())
	}
	order := make([]int32, len(p.Groups))
	for i := range order {
		order[i] = int32(i)
	}
	like := func(a, b int32) int {
		x, y := &p.Groups[a], &p.Groups[b]
		v := int(y.counts() - x.counts())
		if fine && x.Pages != y.Pages {
			v = cmp.Compare(x.Pages, y.Pages)
		}
		return cmp.Or(cmp.Compare(x.Adapter, y.Adapter), cmp.Compare(x.Worker, y.Worker),
			cmp.Compare(x.Work, y.Work), cmp.Compare(x.Move, y.Move), v)
	}
	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Or(like(a, b), cmp.Compare(p.Groups[a].Pages, p.Groups[b].Pages), cmp.Compare(a, b))
	})
	for n, i := range order {
		g := &p.Groups[i]
		if n == 0 || like(order[n-1], i) != 0 {
			s.of[g.Adapter] = append(s.of[g.Adapter], int32(len(s.classes)))
			s.classes = append(s.classes, class{adapter: g.Adapter, home: g.Worker, work: g.Work, move: g.Move, counts: g.counts()})
		}
		c := &s.classes[len(s.classes)-1]
		c.pages = (c.pages*float64(c.count) + g.Pages*float64(g.Count)) / float64(c.count+g.Count)
		c.count += g.Count
		c.groups = append(c.groups, i)
	}
	s.reset()
	return s
}

// counts is 1 if a request away from home is a move, 0 if virtual.
func (g *Group) counts() int64 {
	if g.Virtual {
		return 0
	}
	return 1
}

// reset puts every request where it is.
func (s *state) reset() {
	p := s.p
	s.x = make([]int64, len(s.classes)*s.j)
	s.present = make([]int64, p.Adapters*s.j)
	s.at = slices.Repeat([]int32{-1}, p.Adapters*s.j)
	s.used, s.load, s.pages, s.on = make([]int, s.j), make([]float64, s.j), make([]float64, s.j), make([][]int32, s.j)
	for w := range p.Workers {
		s.load[w] = p.Workers[w].Base
	}
	for c := range s.classes {
		s.add(int32(c), s.classes[c].home, s.classes[c].count)
	}
}

// follow takes over an assignment; every request must still be where it was.
func (s *state) follow(flows []Flow) {
	class := make([]int32, len(s.p.Groups))
	for c := range s.classes {
		for _, g := range s.classes[c].groups {
			class[g] = int32(c)
		}
	}
	for _, f := range flows {
		if home := s.p.Groups[f.Group].Worker; home != f.Worker {
			s.shift(class[f.Group], home, f.Worker, f.Count)
		}
	}
	s.undo = s.undo[:0]
}

// busy is the time of a worker, overflow included.
func (s *state) busy(w int) float64 { return s.load[w] + s.over(w, s.pages[w]) }

func (s *state) over(w int, pages float64) float64 {
	if s.p.PageRate > 0 && pages > s.p.Workers[w].Pages {
		return (pages - s.p.Workers[w].Pages) / s.p.PageRate
	}
	return 0
}

// each is what one request of a class adds to a worker's load.
func (s *state) each(c *class, w int32) float64 {
	if c.home == w {
		return c.work / s.speed[w]
	}
	return (c.work + c.move) / s.speed[w]
}

// add changes the number of requests of a class on a worker by n, also below 0.
func (s *state) add(ci, w int32, n int64) {
	c := &s.classes[ci]
	s.x[int(ci)*s.j+int(w)] += n
	s.load[w] += float64(n) * s.each(c, w)
	s.pages[w] += float64(n) * c.pages
	if c.home != w {
		s.moves += n * c.counts
	}
	now := &s.present[int(c.adapter)*s.j+int(w)]
	before := *now
	if *now += n; before == 0 && n > 0 {
		s.enter(c.adapter, w)
	} else if before > 0 && *now == 0 {
		s.exit(c.adapter, w)
	}
}

// enter books an adapter that now has requests on a worker, exit the reverse.
func (s *state) enter(k, w int32) {
	s.used[w]++
	s.at[int(k)*s.j+int(w)] = int32(len(s.on[w]))
	s.on[w] = append(s.on[w], k)
	if !s.p.Workers[w].resident(k) {
		s.loads++
		s.load[w] += s.p.load(int(k), int(w))
	}
}

func (s *state) exit(k, w int32) {
	s.used[w]--
	i := &s.at[int(k)*s.j+int(w)]
	last := s.on[w][len(s.on[w])-1]
	s.on[w][*i] = last
	s.at[int(last)*s.j+int(w)] = *i
	s.on[w] = s.on[w][:len(s.on[w])-1]
	*i = -1
	if !s.p.Workers[w].resident(k) {
		s.loads--
		s.load[w] -= s.p.load(int(k), int(w))
	}
}

// shift moves n requests of a class.
func (s *state) shift(c, from, to int32, n int64) {
	s.work++
	s.add(c, from, -n)
	s.add(c, to, n)
	s.undo = append(s.undo, step{c, from, to, n})
}

// mark and rollback undo the shifts since a mark.
func (s *state) mark() int { return len(s.undo) }

func (s *state) rollback(mark int) {
	for i := len(s.undo) - 1; i >= mark; i-- {
		u := s.undo[i]
		s.add(u.class, u.to, -u.n)
		s.add(u.class, u.from, u.n)
	}
	s.undo = s.undo[:mark]
}

// holds says whether an adapter has requests on a worker, room whether it has,
// or could have.
func (s *state) holds(k, w int32) bool { return s.present[int(k)*s.j+int(w)] > 0 }

func (s *state) room(k, w int32) bool { return s.holds(k, w) || s.used[w] < s.p.Workers[w].Slots }

// open says whether requests of a class may be sent to a worker.
func (s *state) open(c *class, w int32) bool { return !s.p.Workers[w].Closed || c.home == w }

// top is the busiest worker and its time.
func (s *state) top() (w int, t float64) {
	t = s.busy(0)
	for i := 1; i < s.j; i++ {
		if b := s.busy(i); b > t {
			w, t = i, b
		}
	}
	return w, t
}

// objective is the value to minimise, up to rounding.
func (s *state) objective() float64 {
	_, t := s.top()
	return t + s.p.MoveWeight*float64(s.moves) + s.p.LoadWeight*float64(s.loads)
}
