//go:build !highs || !cgo

package highs

import (
	"context"

	"lorasim/ilp"
)

// Available reports whether the program was built with HiGHS.
func Available() bool { return false }

// Version returns the version of HiGHS in the program; "" if [Available] is false.
func Version() string { return "" }

// SolveFrom is Solve with a start solution. Without HiGHS, it returns [ErrUnavailable].
func (s *Solver) SolveFrom(context.Context, *ilp.Problem, *ilp.Solution, ilp.Budget) (*ilp.Solution, error) {
	return nil, ErrUnavailable
}
