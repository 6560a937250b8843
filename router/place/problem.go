package place

import (
	"cmp"
	"math"
	"slices"
	"time"

	"lorasim/ilp"
	"lorasim/router"
)

// Grouping builds a migration problem from requests in flight: those that are alike become one group, since only their
// numbers matter.
type Grouping struct {
	Problem *ilp.Problem
	members [][]int // by group: indices of PlannerInput.Requests
	index   map[likeness]int32
}

// likeness is what requests of one group have in common. Sizes fall into
// buckets of powers of two.
type likeness struct {
	adapter, worker int32
	running         bool
	generated, kv   uint8
}

// NewGrouping returns a grouping that adds groups to a problem.
func NewGrouping(p *ilp.Problem) *Grouping {
	return &Grouping{Problem: p, index: map[likeness]int32{}}
}

// Add puts request i of the planner's input, on worker w of the problem, into the group of those like it. The group's
// times and pages are the means of its members'.
func (g *Grouping) Add(i int, a *router.InFlight, w int32, work, move, pages float64) {
	key := likeness{a.Adapter, w, a.Running, log2(int64(a.Generated)), log2(a.KV)}
	n, ok := g.index[key]
	if !ok {
		n = int32(len(g.Problem.Groups))
		g.index[key] = n
		g.Problem.Groups = append(g.Problem.Groups, ilp.Group{Adapter: a.Adapter, Worker: w})
		g.members = append(g.members, nil)
	}
	to := &g.Problem.Groups[n]
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

// Moves turns the flows of a solution into moves of requests. workers[w] is the cluster's index of worker w of the
// problem; nil: the same index. Of requests that are alike the youngest move: they have the most before them.
func (g *Grouping) Moves(s *router.PlannerInput, flows []ilp.Flow, workers []int32) []router.Move {
	var ms []router.Move
	next := make([]int, len(g.members)) // member of each group that moves next
	for _, m := range g.members {
		slices.SortStableFunc(m, func(a, b int) int { return cmp.Compare(s.Requests[a].Age, s.Requests[b].Age) })
	}
	for _, f := range flows {
		if int(f.Group) >= len(g.members) || f.Worker == g.Problem.Groups[f.Group].Worker {
			continue
		}
		for range f.Count {
			a := &s.Requests[g.members[f.Group][next[f.Group]]]
			next[f.Group]++
			to := f.Worker
			if workers != nil {
				to = workers[to]
			}
			ms = append(ms, router.Move{ID: a.ID, From: a.Worker, To: to})
		}
	}
	return ms
}

// Solve runs the solver that the environment names, within a share of the
// interval, and fills in what the plan tells of it. Where nothing else is asked
// for it is the embedded one with a budget of work, so that a simulation does
// not depend on the machine; the time charged for it is modelled from the work.
// It ends with the environment's context.
func Solve(env *router.Env, p *ilp.Problem, interval float64) (*ilp.Solution, *router.Plan, error) {
	solver, budget := env.Solver, ilp.Budget{Seed: env.Seed, Gap: 1e-4, Work: int64(solveShare * interval / solveUnit)}
	if solver == nil {
		solver = ilp.Embedded{}
		budget.Work = min(ilp.DefaultWork(p), budget.Work)
	} else { // the clock as well: its units of work are of very different length
		budget.Time = time.Duration(solveShare * interval * float64(time.Second))
	}
	sol, err := solver.Solve(env.Context, p, budget)
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
	return sol, &router.Plan{
		Solver: sol.Solver, Objective: sol.Objective, Bound: sol.Bound, Stay: stay.Objective,
		SolveTime: min(SolveBase+solveUnit*float64(work), solveShare*interval), // the budget ends it
	}, nil
}

// The charge for solving: about what the embedded solver takes on a server core.
const (
	SolveBase  = 100e-6 // s, without any work of a solver
	solveUnit  = 25e-9  // s per unit of work
	solveShare = 0.2    // of the interval, at most
)

// Pages returns the number of KV pages, of the given size, of a request, now and when its prompt is in.
func Pages(size float64, a *router.InFlight) float64 {
	tokens := max(a.KV, int64(a.Prompt)+int64(a.Generated))
	return math.Ceil(float64(tokens) / size)
}

// PageSize returns the size of the pages that KV caches are counted in where workers
// are compared: the largest of theirs, tokens.
func PageSize(e *router.Env) float64 {
	size := 1
	for j := range e.Workers {
		size = max(size, e.Workers[j].PageSize)
	}
	return float64(size)
}
