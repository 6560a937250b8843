// Package ilp decides, for one instant, which adapters are placed on which workers and which requests move. This is the
// migration problem of dLoRA (OSDI'24), generalised to real costs. The package states the problem and solves it.
//
// A [Problem] holds requests in groups with the same adapter, worker and cost, because only their numbers matter. A
// [Solver] returns a [Solution] with a proven lower bound:
//
//	sol, err := ilp.Embedded{}.Solve(ctx, p, ilp.Budget{})
//	err = ilp.Verify(p, sol) // recomputes objective and feasibility
//
// An [Instance] is a problem in dLoRA's own form, which can be read from a file.
//
// # The model
//
// Worker j, adapter k, group g of n_g requests with adapter m(g) on worker s(g); integer flows f_gj >= 0 with sum_j
// f_gj = n_g; y_kj = 1 if a request of adapter k is on worker j. Minimise
//
//	T + MoveWeight * moves + LoadWeight * loads
//
// where, for every worker,
//
//	T >= Base_j + sum_g f_gj * (Work_g + [s(g) != j] Move_g) / Speed_j
//	     + sum_{k not resident} y_kj * Load_kj + z_j
//	z_j >= (sum_g f_gj * Pages_g - Pages_j) / PageRate,  z_j >= 0
//	sum_k y_kj <= Slots_j
//
// and moves (requests that change their worker) <= MaxMoves. In dLoRA's own formulation, Work is the mean execution
// time of the adapter and Move is alpha; there are no loading times and no weights, and all speeds are equal.
package ilp

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Problem is one instance of the migration problem. All times are in seconds.
type Problem struct {
	Workers  []Worker
	Adapters int // number of adapters
	Groups   []Group
	// Load holds the time to load adapter k on worker j, where it is not resident, at index k*len(Workers)+j; nil: 0.
	Load []float64
	// LoadTime, if not nil, is used instead of Load: the time to load adapter k on worker j, >= 0. It is for problems
	// whose table would be large.
	LoadTime func(k, j int) float64
	// PageRate converts pages beyond a worker's capacity into time, pages/s; 0: pages are ignored.
	PageRate float64

	MaxMoves   int     // limit of requests that change their worker; 0: no limit
	MoveWeight float64 // weight of a moved request in the objective, s
	LoadWeight float64 // weight of a loaded adapter in the objective, s
}

// Worker is one worker of a problem.
type Worker struct {
	Speed    float64 // speed relative to the times of Work and Move; 0: 1
	Slots    int     // limit of different adapters with requests on the worker
	Pages    float64 // capacity of the KV cache, pages
	Base     float64 // time of the worker that no decision changes, s
	Resident []int32 // adapters on the worker, ascending
	Closed   bool    // accepts no requests from other workers
}

// Group is a number of equal requests.
type Group struct {
	Adapter int32
	Worker  int32   // current worker of the requests
	Count   int64   // number of requests, >= 1
	Work    float64 // time of each request on a worker of speed 1, s
	Move    float64 // additional time of each moved request, on a worker of speed 1, s
	Pages   float64 // mean KV pages of a request
	// Virtual requests are expected future requests. Sending them elsewhere does not count as a move.
	Virtual bool
}

// Flow assigns Count requests of a group to a worker.
type Flow struct {
	Group, Worker int32
	Count         int64
}

// Status is the known quality of a solution.
type Status string

// The statuses of a solution.
const (
	Optimal   Status = "optimal"    // no solution is better
	WithinGap Status = "within-gap" // within Budget.Gap of the bound
	Limit     Status = "limit"      // best solution found within the budget
	Stay      Status = "stay"       // nothing moves: no better solution was found
)

// Solution is a feasible assignment of all requests, with its outcome.
type Solution struct {
	Outcome
	Flows  []Flow  // sorted by group, then worker; counts > 0
	Bound  float64 // lower bound on the objective of every solution
	Status Status
	Solver string // name of the solver
	Work   int64  // units of work spent, see [Budget]
}

// Gap returns (objective - bound) / objective, at least 0.
func (s *Solution) Gap() float64 {
	if s.Objective <= s.Bound {
		return 0
	}
	return (s.Objective - s.Bound) / s.Objective
}

// TimeToLoad returns the time to load adapter k on worker j.
func (p *Problem) TimeToLoad(k, j int) float64 {
	switch {
	case p.LoadTime != nil:
		return p.LoadTime(k, j)
	case p.Load == nil:
		return 0
	}
	return p.Load[k*len(p.Workers)+j]
}

// speed returns the speed of a worker, 1 by default.
func (w *Worker) speed() float64 {
	if w.Speed == 0 {
		return 1
	}
	return w.Speed
}

// resident says whether adapter k is resident on worker j.
func (w *Worker) resident(k int32) bool {
	_, ok := slices.BinarySearch(w.Resident, k)
	return ok
}

// Check returns an error if the problem is invalid.
func (p *Problem) Check() error {
	if len(p.Workers) == 0 {
		return errors.New("no workers")
	}
	if p.Adapters < 0 {
		return fmt.Errorf("number of adapters is %d, expected >= 0", p.Adapters)
	}
	if p.Load != nil && len(p.Load) != p.Adapters*len(p.Workers) {
		return fmt.Errorf("%d loading times, expected %d adapters x %d workers", len(p.Load), p.Adapters,
			len(p.Workers))
	}
	for i, t := range p.Load {
		if !finite(t) {
			return fmt.Errorf("loading time of adapter %d on worker %d is %v, expected a number >= 0", i/len(p.Workers),
				i%len(p.Workers), t)
		}
	}
	if !finite(p.PageRate) || !finite(p.MoveWeight) || !finite(p.LoadWeight) || p.MaxMoves < 0 {
		return fmt.Errorf("page rate %v, move weight %v, load weight %v, max moves %d: expected numbers >= 0",
			p.PageRate, p.MoveWeight, p.LoadWeight, p.MaxMoves)
	}
	for j := range p.Workers {
		if err := p.checkWorker(&p.Workers[j]); err != nil {
			return fmt.Errorf("worker %d: %w", j, err)
		}
	}
	for i := range p.Groups {
		if err := p.checkGroup(&p.Groups[i]); err != nil {
			return fmt.Errorf("group %d: %w", i, err)
		}
	}
	if overFull(p) < 0 {
		return nil
	}
	_, err := Start(p) // the requests cannot stay: is there an assignment?
	return err
}

func (p *Problem) checkWorker(w *Worker) error {
	if w.Slots < 0 || !finite(w.Pages) || !finite(w.Base) || !finite(w.Speed) {
		return fmt.Errorf("slots %d, pages %v, base %v, speed %v: expected numbers >= 0", w.Slots, w.Pages, w.Base,
			w.Speed)
	}
	for i, k := range w.Resident {
		if int(k) < 0 || int(k) >= p.Adapters {
			return fmt.Errorf("resident adapter %d, expected 0 to %d", k, p.Adapters-1)
		}
		if i > 0 && k <= w.Resident[i-1] {
			return fmt.Errorf("resident adapters are not ascending at %d", k)
		}
	}
	return nil
}

func (p *Problem) checkGroup(g *Group) error {
	switch {
	case int(g.Adapter) < 0 || int(g.Adapter) >= p.Adapters:
		return fmt.Errorf("adapter %d, expected 0 to %d", g.Adapter, p.Adapters-1)
	case int(g.Worker) < 0 || int(g.Worker) >= len(p.Workers):
		return fmt.Errorf("worker %d, expected 0 to %d", g.Worker, len(p.Workers)-1)
	case g.Count < 1:
		return fmt.Errorf("%d requests, expected >= 1", g.Count)
	case !finite(g.Work) || !finite(g.Move) || !finite(g.Pages):
		return fmt.Errorf("work %v, move %v, pages %v: expected numbers >= 0", g.Work, g.Move, g.Pages)
	}
	return nil
}

func finite(x float64) bool { return x >= 0 && !math.IsInf(x, 0) }

// Outcome is the cost of an assignment, computed from the problem alone.
type Outcome struct {
	T         float64   // largest time of a worker, s
	Objective float64   // T plus weighted moves and loads, s
	Moves     int64     // number of requests on another worker than before
	Loads     int64     // number of adapters with requests on a worker where they are not resident
	Busy      []float64 // time of each worker, including overflow of pages, s
}

// Evaluate returns the outcome of an assignment. It returns an error if the assignment is infeasible. It shares no code
// with the solvers.
func Evaluate(p *Problem, flows []Flow) (Outcome, error) {
	out := Outcome{Busy: make([]float64, len(p.Workers))}
	left := make([]int64, len(p.Groups))
	for i := range p.Groups {
		left[i] = p.Groups[i].Count
	}
	pages := make([]float64, len(p.Workers))
	for j := range p.Workers {
		out.Busy[j] = p.Workers[j].Base
	}
	used := make(pairs, 0, len(flows))
	for _, f := range flows {
		if int(f.Group) < 0 || int(f.Group) >= len(p.Groups) || int(f.Worker) < 0 || int(f.Worker) >= len(p.Workers) ||
			f.Count < 1 {
			return out, fmt.Errorf("flow of %d requests of group %d to worker %d: out of range", f.Count, f.Group,
				f.Worker)
		}
		g, j := &p.Groups[f.Group], int(f.Worker)
		left[f.Group] -= f.Count
		n := float64(f.Count)
		out.Busy[j] += n * g.Work / p.Workers[j].speed()
		pages[j] += n * g.Pages
		used.add(f.Worker, g.Adapter)
		if g.Worker == f.Worker {
			continue
		}
		if p.Workers[j].Closed {
			return out, fmt.Errorf("group %d moves to worker %d, which is closed", f.Group, j)
		}
		out.Busy[j] += n * g.Move / p.Workers[j].speed()
		if !g.Virtual {
			out.Moves += f.Count
		}
	}
	for i, n := range left {
		if n != 0 {
			return out, fmt.Errorf("group %d: %d of %d requests assigned", i, p.Groups[i].Count-n, p.Groups[i].Count)
		}
	}
	for j, rest := 0, used.sorted(); j < len(p.Workers); j++ {
		w := &p.Workers[j]
		n := rest.count(int32(j))
		if n > w.Slots {
			return out, fmt.Errorf("worker %d: requests of %d adapters in %d slots", j, n, w.Slots)
		}
		resident := w.Resident
		for _, x := range rest[:n] { // in ascending order, so that the sum has one value
			k, is := int32(x), false
			if resident, is = from(resident, k); !is {
				out.Busy[j] += p.TimeToLoad(int(k), j)
				out.Loads++
			}
		}
		rest = rest[n:]
		if p.PageRate > 0 {
			out.Busy[j] += math.Max(0, pages[j]-w.Pages) / p.PageRate
		}
		out.T = math.Max(out.T, out.Busy[j])
	}
	if p.MaxMoves > 0 && out.Moves > int64(p.MaxMoves) {
		return out, fmt.Errorf("%d requests move, at most %d may", out.Moves, p.MaxMoves)
	}
	out.Objective = out.T + p.MoveWeight*float64(out.Moves) + p.LoadWeight*float64(out.Loads)
	return out, nil
}

// from returns the part of an ascending list that begins with a number or a larger one, and whether the number is
// there. It is soon found near the start of the list.
func from(list []int32, k int32) ([]int32, bool) {
	n := 1
	for n < len(list) && list[n] < k {
		list = list[n:]
		n *= 2
	}
	i, is := slices.BinarySearch(list[:min(n+1, len(list))], k)
	return list[i:], is
}

// pairs are workers with an adapter each.
type pairs []uint64

func (x *pairs) add(worker, adapter int32) {
	*x = append(*x, uint64(worker)<<32|uint64(uint32(adapter)))
}

// sorted returns each pair once, by worker and adapter.
func (x pairs) sorted() pairs {
	slices.Sort(x)
	return slices.Compact(x)
}

// count returns the number of pairs of a worker at the start of sorted pairs.
func (x pairs) count(worker int32) (n int) {
	for n < len(x) && int32(x[n]>>32) == worker {
		n++
	}
	return n
}

// Verify returns an error if a solution is infeasible, has wrong numbers, or has an objective below its own bound.
func Verify(p *Problem, s *Solution) error {
	out, err := Evaluate(p, s.Flows)
	if err != nil {
		return fmt.Errorf("solution of %s: %w", s.Solver, err)
	}
	near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-6*math.Max(1, math.Abs(b)) }
	switch {
	case !near(s.Objective, out.Objective) || !near(s.T, out.T):
		return fmt.Errorf("solution of %s: objective %v (T %v), recomputed %v (T %v)", s.Solver, s.Objective, s.T,
			out.Objective, out.T)
	case s.Moves != out.Moves || s.Loads != out.Loads:
		return fmt.Errorf("solution of %s: %d moves and %d loads, recomputed %d and %d", s.Solver, s.Moves, s.Loads,
			out.Moves, out.Loads)
	case !(s.Bound <= out.Objective*(1+1e-6)+1e-9): // nor NaN
		return fmt.Errorf("solution of %s: objective %v below its bound %v", s.Solver, out.Objective, s.Bound)
	}
	return nil
}

// StayFlows returns the assignment in which every request stays where it is. It is infeasible where a worker has
// requests of more adapters than slots.
func StayFlows(p *Problem) []Flow {
	fs := make([]Flow, len(p.Groups))
	for i := range p.Groups {
		fs[i] = Flow{Group: int32(i), Worker: p.Groups[i].Worker, Count: p.Groups[i].Count}
	}
	return fs
}
