//go:build !highs || !cgo

package highs

import (
	"context"

	"lorasim/ilp"
)

// Available says whether the program was built with HiGHS.
func Available() bool { return false }

// Version is the version of HiGHS that the program was built with; empty where
// [Available] is false.
func Version() string { return "" }

// SolveFrom returns [ErrUnavailable].
func (s *Solver) SolveFrom(context.Context, *ilp.Problem, *ilp.Solution, ilp.Budget) (*ilp.Solution, error) {
	return nil, ErrUnavailable
}
