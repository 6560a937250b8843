package ilp

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// Outcome is what an assignment amounts to, computed from the problem alone.
type Outcome struct {
	T         float64
	Objective float64
	Moves     int64
	Loads     int64
	Busy      []float64 // by worker, overflow included
}

// Evaluate computes the outcome of an assignment and checks that it is
// feasible. It shares no code with the solvers.
func Evaluate(p *Problem, flows []Flow) (Outcome, error) {
	out := Outcome{Busy: make([]float64, len(p.Workers))}
	left := make([]int64, len(p.Groups))
	for i := range p.Groups {
		left[i] = p.Groups[i].Count
	}
	pages := make([]float64, len(p.Workers))
	used := make([]map[int32]bool, len(p.Workers))
	for j := range p.Workers {
		out.Busy[j] = p.Workers[j].Base
		used[j] = map[int32]bool{}
	}
	for _, f := range flows {
		if int(f.Group) < 0 || int(f.Group) >= len(p.Groups) || int(f.Worker) < 0 || int(f.Worker) >= len(p.Workers) || f.Count < 1 {
			return out, fmt.Errorf("flow of %d requests of group %d to worker %d: out of range", f.Count, f.Group, f.Worker)
		}
		g, j := &p.Groups[f.Group], int(f.Worker)
		left[f.Group] -= f.Count
		n := float64(f.Count)
		out.Busy[j] += n * g.Work / p.Workers[j].speed()
		pages[j] += n * g.Pages
		used[j][g.Adapter] = true
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
	for j := range p.Workers {
		w := &p.Workers[j]
		if len(used[j]) > w.Slots {
			return out, fmt.Errorf("worker %d: requests of %d adapters in %d slots", j, len(used[j]), w.Slots)
		}
		// in ascending order, so that the sum has one value
		for _, k := range slices.Sorted(maps.Keys(used[j])) {
			if !w.resident(k) {
				out.Busy[j] += p.load(int(k), j)
				out.Loads++
			}
		}
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

// Verify checks a solution against its problem: that it is feasible, that its
// numbers are right, and that it does not undercut its own bound.
func Verify(p *Problem, s *Solution) error {
	out, err := Evaluate(p, s.Flows)
	if err != nil {
		return fmt.Errorf("solution of %s: %w", s.Solver, err)
	}
	near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-6*math.Max(1, math.Abs(b)) }
	switch {
	case !near(s.Objective, out.Objective) || !near(s.T, out.T):
		return fmt.Errorf("solution of %s: objective %v (T %v), really %v (T %v)", s.Solver, s.Objective, s.T, out.Objective, out.T)
	case s.Moves != out.Moves || s.Loads != out.Loads:
		return fmt.Errorf("solution of %s: %d moves and %d loads, really %d and %d", s.Solver, s.Moves, s.Loads, out.Moves, out.Loads)
	case !(s.Bound <= out.Objective*(1+1e-6)+1e-9): // nor NaN
		return fmt.Errorf("solution of %s: objective %v below its bound %v", s.Solver, out.Objective, s.Bound)
	}
	return nil
}

// StayFlows leaves every request where it is.
func StayFlows(p *Problem) []Flow {
	fs := make([]Flow, len(p.Groups))
	for i := range p.Groups {
		fs[i] = Flow{Group: int32(i), Worker: p.Groups[i].Worker, Count: p.Groups[i].Count}
	}
	return fs
}
