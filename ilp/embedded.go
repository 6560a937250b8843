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

// Embedded is the solver that is always there: pure Go, no dependencies. It
// starts from "nothing moves", lowers the busiest worker by shifts of requests and
// swaps of whole adapters until none helps, and goes on with iterated local search
// within its budget. Two workers with few adapters it solves exactly. With a budget
// of work its result is the same on every machine.
type Embedded struct{}

var _ Solver = Embedded{}

// Name implements Solver.
func (Embedded) Name() string { return "embedded" }

// DefaultWork is the budget of a problem where none is given: about a
// millisecond for 2 workers and 200 requests, tens for 32 and 5000, and some hundred
// at most.
func DefaultWork(p *Problem) int64 {
	cells := int64(len(p.Workers)) * int64(p.Adapters)
	return min(8_000+110*cells, 4_000_000)
}

// Solve implements Solver. It ends early at the gap asked for, when ctx ends,
// or when the bound is reached.
func (e Embedded) Solve(ctx context.Context, p *Problem, b Budget) (*Solution, error) {
	if err := p.Check(); err != nil {
		return nil, fmt.Errorf("migration problem: %w", err)
	}
	l := newLimits(ctx, p, b)
	s := newSearch(p, false, LowerBound(p), b.Seed)
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
	}
}

// fineCells is the number of groups times workers up to which a search that
// knows the pages of each group follows the one that knows averages.
const fineCells = 2000

// refine goes on from a solution knowing the pages of each group.
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

// trim takes back what the busiest worker does not need: requests go home
// where that leaves T as it is and adds nothing to the weights.
func (s *search) trim() {
	_, limit := s.top()
	for c := range s.classes {
		cc := &s.classes[c]
		for w := range int32(s.j) {
			n := s.x[c*s.j+int(w)]
			if w == cc.home || n == 0 || !s.room(cc.adapter, cc.home) {
				continue
			}
			for ; n > 0; n /= 2 {
				for s.x[c*s.j+int(w)] >= n && s.after(int32(c), cc.home, n) <= limit && s.weights(int32(c), w, cc.home, n) <= 0 {
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
		panic("ilp: embedded solver left an infeasible state: " + err.Error())
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
	slices.SortFunc(flows, func(a, b Flow) int { return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Worker, b.Worker)) })
	return flows
}

// whole returns the worker that has all requests of a class, if there is one.
func (s *search) whole(c int) (int32, bool) {
	for w := range int32(s.j) {
		if n := s.x[c*s.j+int(w)]; n > 0 {
			return w, n == s.classes[c].count
		}
	}
	return 0, false
}

// spread distributes the groups of a class over the workers that its requests
// go to. Groups are taken by falling pages; each request goes to the worker
// with the most pages to spare for each request that it still gets.
func (s *search) spread(flows []Flow, c int, left []float64) []Flow {
	cl := &s.classes[c]
	want := make([]int64, s.j)
	copy(want, s.x[c*s.j:(c+1)*s.j])
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
	// Time is the wall-clock limit; 0: none. Results within it depend on the
	// machine, so simulations use Work instead.
	Time time.Duration
	// Work is the limit in units of the embedded solver (candidate moves
	// looked at), the same on every machine; 0: none.
	Work int64
	// Gap is the relative gap to the bound at which to stop.
	Gap  float64
	Seed uint64
}

// Solver solves migration problems. It never returns an infeasible solution:
// at worst every request stays where it is.
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

// stopper says when a share of the budget is used up. The clock is only asked
// now and then, and not at all where no time limit is set.
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

// exact is the work that proving optimality may take: half of what is left.
func (l *limits) exact(s *search) int64 {
	if l.Work > 0 {
		return (l.Work - s.work) / 2
	}
	return 2_000_000 // some ten milliseconds; the clock ends it as well
}
