package router

import (
	"cmp"
	"context"
	"math"
	"slices"

	"lorasim/ilp"
	"lorasim/trace"
)

// grouping builds a migration problem from requests in flight: those that are
// alike become one group, since only their numbers matter.
type grouping struct {
	p       *ilp.Problem
	members [][]int // by group: indices of Situation.Requests
	index   map[likeness]int32
}

// likeness is what requests of one group have in common. Sizes fall into
// buckets of powers of two.
type likeness struct {
	adapter, worker int32
	running         bool
	generated, kv   uint8
}

func newGrouping(p *ilp.Problem) *grouping {
	return &grouping{p: p, index: map[likeness]int32{}}
}

// add puts request i, on worker w of the problem, into the group of those like
// it; the group's times and pages are the means of its members'.
func (g *grouping) add(i int, a *Active, w int32, work, move, pages float64) {
	key := likeness{a.Adapter, w, a.Running, log2(int64(a.Generated)), log2(a.KV)}
	n, ok := g.index[key]
	if !ok {
		n = int32(len(g.p.Groups))
		g.index[key] = n
		g.p.Groups = append(g.p.Groups, ilp.Group{Adapter: a.Adapter, Worker: w})
		g.members = append(g.members, nil)
	}
	to := &g.p.Groups[n]
	mean := func(m *float64, x float64) { *m += (x - *m) / float64(to.Count+1) }
	mean(&to.Work, work)
	mean(&to.Move, move)
	mean(&to.Pages, pages)
	to.Count++
	g.members[n] = append(g.members[n], i)
}

func log2(n int64) uint8 {
	b := uint8(0)
	for ; n > 0; n >>= 1 {
		b++
	}
	return b
}

// moves turns the flows of a solution into moves of requests; workers[w] is the
// cluster's number of worker w of the problem. Of requests that are alike the
// youngest move: they have the most before them.
func (g *grouping) moves(s *Situation, flows []ilp.Flow, workers []int32) []Move {
	var ms []Move
	next := make([]int, len(g.members)) // member of each group that moves next
	for _, m := range g.members {
		slices.SortStableFunc(m, func(a, b int) int { return cmp.Compare(s.Requests[a].Age, s.Requests[b].Age) })
	}
	for _, f := range flows {
		if int(f.Group) >= len(g.members) || f.Worker == g.p.Groups[f.Group].Worker {
			continue
		}
		for range f.Count {
			a := &s.Requests[g.members[f.Group][next[f.Group]]]
			next[f.Group]++
			ms = append(ms, Move{ID: a.ID, From: a.Worker, To: workers[f.Worker]})
		}
	}
	return ms
}

// solve runs the solver that the environment names, within a share of the
// interval, and fills in what the plan tells of it. Where nothing else is asked
// for it is the embedded one with a budget of work, so that a simulation does
// not depend on the machine; the time charged for it is modelled from the work.
func solve(env *Env, p *ilp.Problem, interval float64) (*ilp.Solution, *Plan, error) {
	solver, budget := env.Solver, ilp.Budget{Seed: env.Seed, Gap: 1e-4, Work: int64(solveShare * interval / solveUnit)}
	if solver == nil {
		solver = ilp.Embedded{}
		budget.Work = min(ilp.DefaultWork(p), budget.Work)
	} else { // the clock as well: its units of work are of very different length
		budget.Time = seconds(solveShare * interval)
	}
	sol, err := solver.Solve(context.Background(), p, budget)
	if err != nil {
		return nil, nil, err
	}
	stay, err := ilp.Evaluate(p, ilp.StayFlows(p))
	if err != nil {
		return nil, nil, err
	}
	work := sol.Work
	if work == 0 {
		work = ilp.DefaultWork(p)
	}
	return sol, &Plan{
		Solver: sol.Solver, Objective: sol.Objective, Bound: sol.Bound, Stay: stay.Objective,
		SolveTime: min(solveBase+solveUnit*float64(work), solveShare*interval), // the budget ends it
	}, nil
}

// The charge for solving: about what the embedded solver takes on a server core.
const (
	solveBase  = 100e-6 // s
	solveUnit  = 25e-9  // s per unit of work
	solveShare = 0.2    // of the interval, at most
)

// difference returns what brings a placement from one state to another.
func difference(from, to [][]int32) (load, unload []Placement) {
	for j := range to {
		for _, k := range to[j] {
			if !slices.Contains(from[j], k) {
				load = append(load, Placement{int32(j), k})
			}
		}
		for _, k := range from[j] {
			if !slices.Contains(to[j], k) {
				unload = append(unload, Placement{int32(j), k})
			}
		}
	}
	return load, unload
}

// pagesOf is the number of KV pages, of the given size, of a request, now and when its prompt is in.
func pagesOf(size float64, a *Active) float64 {
	tokens := max(a.KV, int64(a.Prompt)+int64(a.Generated))
	return math.Ceil(float64(tokens) / size)
}

func isAdapter(k int32) bool { return k != trace.BaseModel }
