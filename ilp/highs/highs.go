// Package highs solves migration problems with HiGHS, a general solver of
// mixed-integer programs: exact on small instances, a polisher of good plans on
// middling ones, and a check on the embedded solver that shares no code with it.
//
//	s, err := highs.New(highs.Auto)
//	sol, err := s.Solve(ctx, p, ilp.Budget{Time: 10 * time.Second})
//	sol, err = s.SolveFrom(ctx, p, sol, ilp.Budget{Gap: 0.01}) // warm start
//
// HiGHS is a C++ library. It is there only in programs built with -tags highs,
// with cgo, where `pkg-config highs` finds version 1.5 up to, not including,
// 1.12; scripts/highs provides it. Elsewhere [Available] is false and [New]
// returns an error.
//
// Solvers may be used by several goroutines at a time. Each solve runs on one
// thread: HiGHS fixes the number of its threads for the whole process with the
// first solve.
package highs

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"lorasim/ilp"
)

// The formulations: ways to state the problem as a mixed-integer program. Request
// and Flow state it exactly. The bounds of all of them hold, apart from rounding
// errors of about 1e-6.
const (
	Auto    = "auto"    // Flow for small problems and Totals for large ones
	Request = "request" // dLoRA's: a binary for each request and worker
	Relaxed = "relaxed" // continuous variables, each request going where the most of it went, as dLoRA solves it
	Flow    = "flow"    // counts requests that are alike instead of looking at each
	Totals  = "d0"      // counts those that leave and enter each worker, leaves pages out; those with the most stay
)

// Formulations lists them.
func Formulations() []string { return []string{Auto, Request, Relaxed, Flow, Totals} }

// FlowColumns is the number of groups times workers up to which Auto takes
// Flow. Beyond about this, Totals finds better solutions in the same time.
const FlowColumns = 1000

// NodeWork is how many units of ilp.Budget.Work a branch-and-bound node counts
// as. HiGHS always finishes the first node.
const NodeWork = 100_000

// ErrUnavailable says that the program was built without HiGHS.
var ErrUnavailable = errors.New("built without HiGHS: run scripts/highs and build with -tags highs (needs cgo)")

// Solver solves with HiGHS.
type Solver struct{ formulation string }

var _ ilp.Solver = (*Solver)(nil)

// New returns a solver, or ErrUnavailable.
func New(f string) (*Solver, error) {
	if !Available() {
		return nil, ErrUnavailable
	}
	if !slices.Contains(Formulations(), f) {
		return nil, fmt.Errorf("formulation is %q, expected one of %v", f, Formulations())
	}
	return &Solver{f}, nil
}

// Name implements [ilp.Solver].
func (s *Solver) Name() string {
	if s.formulation == Auto {
		return "highs"
	}
	return "highs-" + s.formulation
}

// Solve implements [ilp.Solver]. It stops at the gap asked for, or at a limit
// with the best solution found and the bound so far; a budget without a gap or
// a limit means optimality, which may take forever. NodeWork says how Work is
// counted.
//
// Cancelling ctx makes HiGHS stop at its next look, which is between nodes and
// between the steps of the first node; on problems with many thousand columns a
// step can take seconds. A deadline is looked at more often. Either way Solve
// returns the best solution found so far, without an error. With neither a
// deadline nor a time limit in the budget the result is the same on every run.
func (s *Solver) Solve(ctx context.Context, p *ilp.Problem, b ilp.Budget) (*ilp.Solution, error) {
	return s.SolveFrom(ctx, p, nil, b)
}
