package ilp

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Embedded is the default solver, in pure Go without dependencies. It starts with the assignment in which nothing
// moves, or with [Start] where a worker has requests of more adapters than slots. It shifts requests and swaps whole
// adapters to lower the time of the busiest worker, until no step helps. Then it continues with iterated local search
// within its budget. Problems with two workers and few adapters are solved
// exactly. With a budget of work, the result is the same on every machine.
type Embedded struct{}

var _ Solver = Embedded{}

// Name implements Solver. It returns "embedded".
func (Embedded) Name() string { return "embedded" }

// DefaultWork returns the budget of work for a problem without a given budget. It takes about a millisecond for 2
// workers and 200 requests, tens of milliseconds for 32 and 5000, and at most some hundred.
func DefaultWork(p *Problem) int64 {
	cells := int64(len(p.Workers)) * int64(p.Adapters)
	return min(8_000+110*cells, 4_000_000)
}

// Solve implements Solver. Without a limit of time or work in b, the limit is [DefaultWork]. Solve stops early at the
// gap in b, when ctx ends, or when it reaches the bound. It returns an error if the problem is invalid.
func (e Embedded) Solve(ctx context.Context, p *Problem, b Budget) (*Solution, error) {
	if err := p.Check(); err != nil {
		return nil, fmt.Errorf("migration problem: %w", err)
	}
	l := newLimits(ctx, p, b)
	s := newSearch(p, false, LowerBound(p), b.Seed)
	if s.overFull() {
		start, err := Start(p)
		if err != nil {
			return nil, fmt.Errorf("migration problem: %w", err)
		}
		s.follow(start)
	}
	fine := p.PageRate > 0 && len(p.Groups)*len(p.Workers) <= fineCells
	if s.stop = l.stopper(s, 1); fine {
		s.stop = l.stopper(s, 0.75)
	}
	s.descend()
	if s.objective() > s.target*(1+b.Gap) {
		s.target = s.pairwise(s.target, b.Gap, l.exact(s))
	}
	bound := s.target
	s.improve(bound * (1 + b.Gap))
	s.trim()
	sol := s.solution(bound)
	if fine && sol.Gap() > b.Gap {
		sol = l.refine(sol, bound, b)
	}
	sol.Solver = e.Name()
	if stay, err := Evaluate(p, StayFlows(p)); err == nil && stay.Objective <= sol.Objective {
		sol.Flows, sol.Outcome, sol.Status = StayFlows(p), stay, Stay
	}
	switch gap := sol.Gap(); {
	case gap <= 1e-9:
		sol.Status = Optimal
	case gap <= b.Gap:
		sol.Status = WithinGap
	}
	return sol, nil
}

func newSearch(p *Problem, fine bool, target float64, seed uint64) *search {
	return &search{
		state:  newState(p, fine),
		target: target,
		eps:    1e-6 * math.Max(target, 1e-9),
		rng:    rand.New(rand.NewPCG(seed, 0x656d626564646564)),
		among:  make([]int64, len(p.Workers)),
		common: make([]int, len(p.Workers)),
	}
}

// fineCells is the largest product of groups and workers for which a search with the pages of each group follows the
// search with mean pages.
const fineCells = 2000

// refine continues from a solution, with the pages of each group.
func (l *limits) refine(sol *Solution, bound float64, b Budget) *Solution {
	s := newSearch(l.p, true, bound, b.Seed)
	s.work = sol.Work
	s.stop = l.stopper(s, 1)
	s.follow(sol.Flows)
	s.descend()
	s.improve(bound * (1 + b.Gap))
	s.trim()
	if better := s.solution(bound); better.Objective <= sol.Objective {
		return better
	}
	sol.Work = s.work
	return sol
}

// trim undoes moves that the busiest worker does not need: requests go home if T and the weights do not grow.
func (s *search) trim() {
	_, limit := s.top()
	for c := range s.classes {
		cc := &s.classes[c]
		for _, there := range slices.Clone(s.x[c]) {
			w, n := there.worker, there.n
			if w == cc.home || !s.room(cc.adapter, cc.home) {
				continue
			}
			for ; n > 0; n /= 2 {
				for s.x[c].of(w) >= n && s.after(int32(c), cc.home, n) <= limit &&
					s.weights(int32(c), w, cc.home, n) <= 0 {
					s.shift(int32(c), w, cc.home, n)
				}
			}
		}
	}
}

// solution turns the state into flows of the problem's groups and evaluates it.
func (s *search) solution(bound float64) *Solution {
	flows := s.decode()
	out, err := Evaluate(s.p, flows)
	if err != nil {
		panic("ilp: the embedded solver returned an infeasible solution: " + err.Error())
	}
	return &Solution{Outcome: out, Flows: flows, Bound: math.Min(bound, out.Objective), Status: Limit, Work: s.work}
}

// decode says which groups of each class go where: those with the most pages to
// the workers that have the most pages to spare, where pages beyond a worker's
// capacity do no harm as long as another worker is busier.
func (s *search) decode() []Flow {
	left := make([]float64, s.j) // pages to spare
	most := slices.Max(s.load)
	for w := range left {
		left[w] = s.p.Workers[w].Pages + (most-s.load[w])*s.p.PageRate
	}
	var flows []Flow
	var split []int
	for c := range s.classes {
		if w, ok := s.whole(c); ok {
			for _, g := range s.classes[c].groups {
				flows = append(flows, Flow{Group: g, Worker: w, Count: s.p.Groups[g].Count})
			}
			left[w] -= s.classes[c].pages * float64(s.classes[c].count)
			continue
		}
		split = append(split, c)
	}
	// classes that are split even the pages out, the largest first
	slices.SortFunc(split, func(a, b int) int {
		x, y := &s.classes[a], &s.classes[b]
		return cmp.Or(cmp.Compare(y.pages*float64(y.count), x.pages*float64(x.count)), cmp.Compare(a, b))
	})
	for _, c := range split {
		flows = s.spread(flows, c, left)
	}
	slices.SortFunc(flows, func(a, b Flow) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Worker, b.Worker))
	})
	return flows
}

// whole returns the worker that has all requests of a class, if there is one.
func (s *search) whole(c int) (int32, bool) {
	if len(s.x[c]) == 0 {
		return 0, false
	}
	return s.x[c][0].worker, s.x[c][0].n == s.classes[c].count
}

// spread distributes the groups of a class over the workers that its requests
// go to. Groups are taken by falling pages; each request goes to the worker
// with the most pages to spare for each request that it still gets.
func (s *search) spread(flows []Flow, c int, left []float64) []Flow {
	cl := &s.classes[c]
	want := make([]int64, s.j)
	for _, there := range s.x[c] {
		want[there.worker] = there.n
	}
	at := map[[2]int32]int{}
	for i := len(cl.groups) - 1; i >= 0; i-- {
		g := cl.groups[i]
		for range s.p.Groups[g].Count {
			best := -1
			for w := range s.j {
				if want[w] > 0 && (best < 0 || left[w]/float64(want[w]) > left[best]/float64(want[best])) {
					best = w
				}
			}
			want[best]--
			left[best] -= s.p.Groups[g].Pages
			key := [2]int32{g, int32(best)}
			if n, ok := at[key]; ok {
				flows[n].Count++
			} else {
				at[key] = len(flows)
				flows = append(flows, Flow{Group: g, Worker: int32(best), Count: 1})
			}
		}
	}
	return flows
}

// Budget limits a solver.
type Budget struct {
	// Time is the limit of wall-clock time; 0: none. The result then depends on the machine, so simulations use Work.
	Time time.Duration
	// Work is the limit in units of the embedded solver (candidate moves); 0: none. They are the same on every machine.
	Work int64
	// Gap is the relative gap to the bound at which the solver stops.
	Gap float64
	// Seed is the seed of random decisions.
	Seed uint64
}

// Solver solves migration problems. A returned solution is always feasible: at worst, it is [Start].
type Solver interface {
	Name() string
	Solve(ctx context.Context, p *Problem, b Budget) (*Solution, error)
}

// limits is a budget being used up.
type limits struct {
	Budget
	ctx   context.Context
	p     *Problem
	start time.Time
}

func newLimits(ctx context.Context, p *Problem, b Budget) *limits {
	if b.Work <= 0 && b.Time <= 0 {
		b.Work = DefaultWork(p)
	}
	return &limits{b, ctx, p, time.Now()}
}

// stopper returns a function that reports whether a share of the budget is used up. It reads the clock only at
// intervals, and not at all without a time limit.
func (l *limits) stopper(s *search, share float64) func() bool {
	work := int64(float64(l.Work) * share)
	end := l.start.Add(time.Duration(float64(l.Time) * share))
	next := int64(0)
	stopped := false
	return func() bool {
		if stopped || l.Work > 0 && s.work >= work {
			return true
		}
		if s.work >= next {
			next = s.work + 2000
			stopped = l.ctx.Err() != nil || l.Time > 0 && time.Now().After(end)
		}
		return stopped
	}
}

// exact returns the work that a proof of optimality may take: half of the work that is left.
func (l *limits) exact(s *search) int64 {
	if l.Work > 0 {
		return (l.Work - s.work) / 2
	}
	return 2_000_000 // some ten milliseconds; the clock ends it as well
}

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
	fastest float64
	alike   bool   // all workers have the same speed
	closed  []bool // by worker
	closes  bool   // some worker is closed
	classes []class
	of      [][]int32 // classes by adapter

	x       []spots   // by class: its requests
	present []spots   // by adapter: its requests
	used    []int     // adapters with requests, by worker
	load    []float64 // s without overflow, by worker
	pages   []float64 // by worker
	moves   int64
	loads   int64
	on      [][]held  // adapters with requests on a worker, in no order
	savers  [][]saver // by worker: its adapters, those that save most first
	stale   []bool    // by worker: savers is to be computed
	moving  block     // scratch of block

	asked []float64 // see toLoad; nil: too many to keep
	row   []int32   // of asked, by adapter

	undo []step // since the last commit
	work int64
}

// step moves n requests of a class from one worker to another.
type step struct {
	class, from, to int32
	n               int64
}

func newState(p *Problem, fine bool) *state {
	s := &state{p: p, j: len(p.Workers), of: make([][]int32, p.Adapters), alike: true}
	for j := range p.Workers {
		s.speed = append(s.speed, p.Workers[j].speed())
		s.closed = append(s.closed, p.Workers[j].Closed)
		s.closes = s.closes || p.Workers[j].Closed
		s.fastest = max(s.fastest, s.speed[j])
		s.alike = s.alike && s.speed[j] == s.speed[0]
	}
	order := make([]int32, len(p.Groups))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int {
		if d := p.differ(a, b, fine); d != 0 {
			return d
		}
		return cmp.Or(cmp.Compare(p.Groups[a].Pages, p.Groups[b].Pages), cmp.Compare(a, b))
	})
	s.classes = make([]class, 0, len(order))
	for n, i := range order {
		g := &p.Groups[i]
		if n == 0 || p.differ(order[n-1], i, fine) != 0 {
			s.classes = append(s.classes, class{adapter: g.Adapter, home: g.Worker, work: g.Work, move: g.Move,
				counts: g.counts(), groups: order[n:n]})
		}
		c := &s.classes[len(s.classes)-1]
		c.pages = (c.pages*float64(c.count) + g.Pages*float64(g.Count)) / float64(c.count+g.Count)
		c.count += g.Count
		c.groups = append(c.groups, i)
	}
	s.remember()
	s.reset()
	return s
}

// remember takes the memory for the loading times of adapters with requests, unless they are too many.
func (s *state) remember() {
	s.row = make([]int32, s.p.Adapters)
	rows := 0
	for c := range s.classes {
		if k := s.classes[c].adapter; c == 0 || k != s.classes[c-1].adapter {
			s.row[k] = int32(rows)
			rows++
		}
	}
	if cells := rows * s.j; cells <= mostAsked {
		s.asked = slices.Repeat([]float64{notAsked}, cells)
	}
}

// differ compares two groups by adapter, worker and times, in a fine state also by pages. It is 0 if they are of one
// class.
func (p *Problem) differ(a, b int32, fine bool) int {
	x, y := &p.Groups[a], &p.Groups[b]
	switch {
	case x.Adapter != y.Adapter:
		return int(x.Adapter) - int(y.Adapter)
	case x.Worker != y.Worker:
		return int(x.Worker) - int(y.Worker)
	case x.Work != y.Work:
		return cmp.Compare(x.Work, y.Work)
	case x.Move != y.Move:
		return cmp.Compare(x.Move, y.Move)
	case fine && x.Pages != y.Pages:
		return cmp.Compare(x.Pages, y.Pages)
	}
	return int(y.counts() - x.counts())
}

// mostAsked is the number of loading times that a state keeps at most.
const mostAsked = 1 << 18

// Values in state.asked that are no times.
const (
	notAsked   = -2
	isResident = -1
)

// toLoad returns the time to load an adapter on a worker, and false if it is resident there.
func (s *state) toLoad(k, w int32) (t float64, loads bool) {
	if s.asked == nil {
		t = s.ask(k, w)
		return t, t >= 0
	}
	at := &s.asked[int(s.row[k])*s.j+int(w)]
	if *at == notAsked {
		*at = s.ask(k, w)
	}
	return *at, *at >= 0
}

func (s *state) ask(k, w int32) float64 {
	if s.p.Workers[w].resident(k) {
		return isResident
	}
	return s.p.TimeToLoad(int(k), int(w))
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
	p, n := s.p, len(s.classes)
	s.x, s.present = make([]spots, n), make([]spots, p.Adapters)
	s.used, s.load, s.pages, s.on = make([]int, s.j), make([]float64, s.j), make([]float64, s.j), make([][]held, s.j)
	s.savers, s.stale = make([][]saver, s.j), slices.Repeat([]bool{true}, s.j)
	for w := range p.Workers {
		s.load[w] = p.Workers[w].Base
	}
	s.reserve()
	for c := range s.classes {
		s.add(int32(c), s.classes[c].home, s.classes[c].count)
	}
}

// reserve takes the memory for all requests where they are at once.
func (s *state) reserve() {
	n := len(s.classes)
	numbers, places, parts := make([]int32, n), make([]spot, 2*n), make([]part, n)
	adapters := make([]int, s.j) // with requests, by worker
	for c := range s.classes {
		numbers[c] = int32(c)
		if c == 0 || s.classes[c].adapter != s.classes[c-1].adapter || s.classes[c].home != s.classes[c-1].home {
			adapters[s.classes[c].home]++
		}
	}
	for w, k := range adapters {
		s.on[w] = make([]held, 0, k+2)
	}
	clear(adapters)
	for c := 0; c < n; {
		k, first := s.classes[c].adapter, c
		for c < n && s.classes[c].adapter == k {
			w, from := s.classes[c].home, c
			for ; c < n && s.classes[c].adapter == k && s.classes[c].home == w; c++ {
				s.x[c] = places[c : c : c+1]
			}
			s.on[w][:adapters[w]+1][adapters[w]].parts = parts[from:from:c]
			adapters[w]++
		}
		s.of[k], s.present[k] = numbers[first:c], places[n+first:n+first:n+c]
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

// overFull reports whether a worker has requests of more adapters than slots.
func (s *state) overFull() bool {
	for w, n := range s.used {
		if n > s.p.Workers[w].Slots {
			return true
		}
	}
	return false
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
	t := c.work
	if c.home != w {
		t += c.move
	}
	if v := s.speed[w]; v != 1 {
		t /= v
	}
	return t
}

// add changes the number of requests of a class on a worker by n, also below 0.
func (s *state) add(ci, w int32, n int64) {
	c := &s.classes[ci]
	s.x[ci].add(w, n)
	s.load[w] += float64(n) * s.each(c, w)
	s.pages[w] += float64(n) * c.pages
	s.stale[w] = true
	if c.home != w {
		s.moves += n * c.counts
	}
	present := &s.present[c.adapter]
	i, there := present.find(w)
	switch {
	case !there:
		if present.add(w, n); n > 0 {
			s.enter(c.adapter, w)
		}
	case (*present)[i].n+n == 0:
		s.exit(c.adapter, w, (*present)[i].at)
		present.add(w, n)
	default:
		(*present)[i].n += n
		s.on[w][(*present)[i].at].known = false
	}
}

// enter books an adapter that now has requests on a worker, exit the reverse; at: its index in on.
func (s *state) enter(k, w int32) {
	s.used[w]++
	i, _ := s.present[k].find(w)
	n := len(s.on[w])
	s.present[k][i].at = int32(n)
	if n < cap(s.on[w]) { // with the memory of an adapter that has left
		s.on[w] = s.on[w][:n+1]
		s.on[w][n].adapter, s.on[w][n].known = k, false
	} else {
		s.on[w] = append(s.on[w], held{adapter: k})
	}
	if t, loads := s.toLoad(k, w); loads {
		s.loads++
		s.load[w] += t
	}
}

func (s *state) exit(k, w, at int32) {
	s.used[w]--
	on := s.on[w]
	last := len(on) - 1
	i, _ := s.present[on[last].adapter].find(w)
	s.present[on[last].adapter][i].at = at
	on[at], on[last] = on[last], on[at]
	s.on[w] = on[:last]
	if t, loads := s.toLoad(k, w); loads {
		s.loads--
		s.load[w] -= t
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
func (s *state) holds(k, w int32) bool { return s.present[k].of(w) > 0 }

func (s *state) room(k, w int32) bool { return s.holds(k, w) || s.used[w] < s.p.Workers[w].Slots }

// open says whether requests of a class may be sent to a worker.
func (s *state) open(c *class, w int32) bool { return !s.closed[w] || c.home == w }

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
