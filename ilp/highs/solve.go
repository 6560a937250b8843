//go:build highs && cgo

package highs

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"time"

	lanl "github.com/lanl/highs"

	"lorasim/ilp"
)

// Available says whether the program was built with HiGHS.
func Available() bool { return true }

func (s *Solver) solve(ctx context.Context, p *ilp.Problem, start *ilp.Solution, b ilp.Budget) (*ilp.Solution, error) {
	if err := p.Check(); err != nil {
		return nil, fmt.Errorf("problem: %w", err)
	}
	until := deadline(ctx, b)
	a := &attempt{p: p, best: ilp.Solution{Solver: s.Name(), Objective: math.Inf(1)}, bound: ilp.LowerBound(p)}
	if err := a.offer(ilp.StayFlows(p), ilp.Stay); err != nil {
		return nil, fmt.Errorf("problem: %w", err)
	}
	if start != nil {
		if err := a.offer(start.Flows, ilp.Limit); err != nil {
			return nil, fmt.Errorf("start: %w", err)
		}
	}
	if !a.within(b.Gap) && ctx.Err() == nil && !passed(until) {
		form, err := s.form(p)
		if err != nil {
			return nil, err
		}
		r, err := minimise(ctx, form.program(), form.Encode(a.best.Flows), b, until)
		if err != nil {
			return nil, fmt.Errorf("HiGHS: %w", err)
		}
		a.bound = math.Max(a.bound, r.bound)
		a.best.Work = r.nodes * NodeWork
		if r.x != nil {
			// should tolerances have made it infeasible, the best so far stands
			_ = a.offer(form.Decode(r.x), ilp.Limit)
		}
	}
	return a.result(b.Gap)
}

// form states the problem in the solver's formulation.
func (s *Solver) form(p *ilp.Problem) (form, error) {
	f := s.formulation
	if f == Auto {
		f = Totals
		if len(p.Groups)*len(p.Workers) <= FlowColumns {
			f = Flow
		}
	}
	switch f {
	case Request, Relaxed:
		return newRequestForm(p, f == Relaxed)
	case Flow:
		return newFlowForm(p)
	default:
		return newTotalsForm(p)
	}
}

// attempt collects what is known of a problem.
type attempt struct {
	p     *ilp.Problem
	best  ilp.Solution
	bound float64
}

// offer makes an assignment the best if it is better and feasible.
func (a *attempt) offer(flows []ilp.Flow, status ilp.Status) error {
	out, err := ilp.Evaluate(a.p, flows)
	if err != nil {
		return err
	}
	if out.Objective < a.best.Objective {
		a.best.Flows, a.best.T, a.best.Objective = flows, out.T, out.Objective
		a.best.Moves, a.best.Loads, a.best.Status = out.Moves, out.Loads, status
	}
	return nil
}

// tolerance is the relative gap below which numbers say nothing more: HiGHS is
// exact to about 1e-6.
const tolerance = 1e-6

func (a *attempt) within(gap float64) bool {
	return a.best.Objective-a.bound <= math.Max(gap*a.best.Objective, tolerance*math.Max(1, a.best.Objective))
}

// result closes the attempt.
func (a *attempt) result(gap float64) (*ilp.Solution, error) {
	s := &a.best
	s.Bound = math.Min(a.bound, s.Objective)
	switch {
	case a.within(0):
		s.Status = ilp.Optimal
	case a.within(gap):
		s.Status = ilp.WithinGap
	}
	if err := ilp.Verify(a.p, s); err != nil {
		return nil, err
	}
	return s, nil
}

// deadline is when to stop; zero: never.
func deadline(ctx context.Context, b ilp.Budget) time.Time {
	until, _ := ctx.Deadline()
	if b.Time > 0 {
		if t := time.Now().Add(b.Time); until.IsZero() || t.Before(until) {
			until = t
		}
	}
	return until
}

func passed(until time.Time) bool { return !until.IsZero() && !time.Now().Before(until) }

// answer is what HiGHS found.
type answer struct {
	x     []float64 // nil: nothing
	bound float64
	nodes int64
}

// minimise solves a model, beginning with the columns' values in x.
func minimise(ctx context.Context, m *model, x []float64, b ilp.Budget, until time.Time) (answer, error) {
	raw, err := rawModel(m)
	if err != nil {
		return answer{}, err
	}
	defer runtime.KeepAlive(raw) // its finalizer frees what n points to
	n, err := nativeOf(raw)
	if err != nil || passed(until) {
		return answer{bound: math.Inf(-1)}, err
	}
	if err := errors.Join(setOptions(raw, b, until), n.setSolution(x)); err != nil {
		return answer{}, err
	}
	defer n.stopWith(ctx)()
	_, err = raw.Solve()
	// a warning: a limit or ctx ended the search
	if cs := (lanl.CallStatus{}); err != nil && !(errors.As(err, &cs) && cs.IsWarning()) {
		return answer{}, err
	}
	return n.answer(m, err == nil)
}

// answer reads the result of a solve.
func (n native) answer(m *model, finished bool) (answer, error) {
	x, err := n.solution()
	if err != nil {
		return answer{}, err
	}
	r := answer{x: x, bound: math.Inf(-1)}
	switch {
	case x == nil:
	case m.Mixed():
		if r.bound, err = n.float("mip_dual_bound"); err == nil {
			r.nodes, err = n.nodes()
		}
	case finished:
		r.bound, err = n.float("objective_function_value")
	}
	return r, err
}

// rawModel hands a model to HiGHS.
func rawModel(m *model) (*lanl.RawModel, error) {
	model := lanl.Model{ColCosts: m.Cost, ColLower: m.Lower, ColUpper: m.Upper, RowLower: m.RowLower, RowUpper: m.RowUpper,
		VarTypes: make([]lanl.VariableType, len(m.Cost)), ConstMatrix: make([]lanl.Nonzero, 0, len(m.Value))}
	for i, integer := range m.Integer {
		if integer {
			model.VarTypes[i] = lanl.IntegerType
		}
	}
	for row := range m.RowLower {
		for i := m.Start[row]; i < m.Start[row+1]; i++ {
			model.ConstMatrix = append(model.ConstMatrix, lanl.Nonzero{Row: row, Col: int(m.Index[i]), Val: m.Value[i]})
		}
	}
	return model.ToRawModel()
}

func setOptions(raw *lanl.RawModel, b ilp.Budget, until time.Time) error {
	errs := []error{
		raw.SetBoolOption("output_flag", false),
		raw.SetIntOption("threads", 1),
		raw.SetStringOption("parallel", "off"),
		raw.SetIntOption("random_seed", int(b.Seed%math.MaxInt32)),
		raw.SetFloat64Option("mip_rel_gap", b.Gap),
		raw.SetFloat64Option("mip_abs_gap", tolerance/2),
	}
	if b.Work > 0 {
		errs = append(errs, raw.SetIntOption("mip_max_nodes", int(min(1+b.Work/NodeWork, math.MaxInt32))))
	}
	if !until.IsZero() {
		errs = append(errs, raw.SetFloat64Option("time_limit", time.Until(until).Seconds()))
	}
	return errors.Join(errs...)
}
