//go:build !highs || !cgo

package highs

import (
	"context"

	"lorasim/ilp"
)

// Available says whether the program was built with HiGHS.
func Available() bool { return false }

func (s *Solver) solve(context.Context, *ilp.Problem, *ilp.Solution, ilp.Budget) (*ilp.Solution, error) {
	return nil, ErrUnavailable
}
