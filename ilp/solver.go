package ilp

import (
	"context"
	"time"
)

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
