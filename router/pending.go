package router

// Pending is a plan under way. A policy and its planner share state, so that only
// one of them may be asked at a time; Solve, which takes the time, works on what
// Begin took with it, and may run beside routing.
type Pending struct {
	solve  func()
	finish func() *Plan
}

// Beginner is a planner whose plans may be made beside routing: Plan is Begin, then
// Solve and Plan of what that returned; nil is no plan.
type Beginner interface {
	Planner
	Begin(s *Situation) *Pending
}

// Solve does what needs neither the policy's state nor the view.
func (p *Pending) Solve() { p.solve() }

// Plan is the plan, once it is solved.
func (p *Pending) Plan() *Plan { return p.finish() }

// now makes a plan at once.
func (p *Pending) now() *Plan {
	if p == nil {
		return nil
	}
	p.Solve()
	return p.Plan()
}
