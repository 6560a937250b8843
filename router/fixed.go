package router

// Fixed is a policy that sends each request to the worker that a function names.
type Fixed struct {
	Base
	Worker func(id int64) int
}

// Route implements Policy.
func (f Fixed) Route(r Request, _ *View) Decision { return To(f.Worker(r.ID)) }

// Always is a policy that sends every request to the same worker.
func Always(worker int) Fixed { return Fixed{Worker: func(int64) int { return worker }} }
