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

// limits is a budget being used up.
type limits struct {
	ctx   context.Context
	p     *Problem
	work  int64 // 0: none
	start time.Time
	time  time.Duration // 0: none
}

func newLimits(ctx context.Context, p *Problem, b Budget) *limits {
	l := &limits{ctx: ctx, p: p, work: b.Work, time: b.Time}
	if b.Work <= 0 && b.Time <= 0 {
		l.work = DefaultWork(p)
	}
	if b.Time > 0 {
		l.start = time.Now()
	}
	return l
}

// stopper says when a share of the budget is used up. The clock is only asked
// now and then, and not at all where no time limit is set.
func (l *limits) stopper(s *search, share float64) func() bool {
	work := int64(float64(l.work) * share)
	end := l.start.Add(time.Duration(float64(l.time) * share))
	next := int64(0)
	stopped := false
	return func() bool {
		if stopped || l.work > 0 && s.work >= work {
			return true
		}
		if s.work >= next {
			next = s.work + 2000
			stopped = l.ctx.Err() != nil || l.time > 0 && time.Now().After(end)
		}
		return stopped
	}
}

// exact is the work that proving optimality may take: half of what is left.
func (l *limits) exact(s *search) int64 {
	if l.work > 0 {
		return (l.work - s.work) / 2
	}
	return 2_000_000 // some ten milliseconds; the clock ends it as well
}
