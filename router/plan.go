package router

import (
	"errors"
	"fmt"
	"slices"

	"lorasim/trace"
)

// Active is a request in flight as a planner sees it: like a router, it does
// not know the output length.
type Active struct {
	ID        int64
	Adapter   int32 // trace.BaseModel: no adapter
	Worker    int32 // where it waits or runs
	Running   bool  // it has begun to run (its KV cache holds tokens); else it waits
	Prompt    int32
	Generated int32   // tokens so far
	MaxNew    int32   // max_new_tokens asked for
	Expected  int32   // as of Request
	KV        int64   // tokens in the KV cache
	Age       float64 // s since it was sent
	// Text is what prompt and tokens so far begin with, as far as Known tokens.
	Text  *trace.Text
	Known int32
}

// Situation is what a planner decides on: the view and all requests in flight
// that may be moved.
type Situation struct {
	*View
	Requests []Active
}

// Placement is one adapter on one worker.
type Placement struct {
	Worker  int32 `json:"worker"`
	Adapter int32 `json:"adapter"`
}

// Move sends a request in flight to another worker.
type Move struct {
	ID   int64 `json:"id"`
	From int32 `json:"from"`
	To   int32 `json:"to"`
}

// Plan is a change of the cluster that a planner wants. It is applied wholly
// or not at all: if a part of it cannot be carried out when its time comes,
// none is. Requests that have ended by then need no moving and do not count.
type Plan struct {
	Reason string `json:"reason"` // for people: why this plan
	// Load brings adapters to workers, Unload takes them away as soon as no
	// request there uses them.
	Load   []Placement `json:"load,omitempty"`
	Unload []Placement `json:"unload,omitempty"`
	Move   []Move      `json:"move,omitempty"`

	// SolveTime is the time that finding the plan takes, s: the plan is applied
	// that much later than the situation it was made for.
	SolveTime float64 `json:"solve_s"`
	// What the solver says of the plan, where there was one.
	Solver    string  `json:"solver,omitempty"`
	Objective float64 `json:"objective_s,omitempty"` // predicted time until all is done, s
	Stay      float64 `json:"stay_s,omitempty"`      // the same if nothing changed
	Bound     float64 `json:"bound_s,omitempty"`     // no plan is better
}

// Empty says whether the plan changes nothing.
func (p *Plan) Empty() bool { return len(p.Load) == 0 && len(p.Unload) == 0 && len(p.Move) == 0 }

// Check says why the plan cannot be carried out on a cluster, or nil. It does not
// look at its requests: those that have ended do not count.
func (p *Plan) Check(v *View) error {
	worker := func(w int32) bool { return w >= 0 && int(w) < len(v.Workers) }
	for _, l := range slices.Concat(p.Load, p.Unload) {
		if !worker(l.Worker) || l.Adapter < 0 || int(l.Adapter) >= len(v.Adapters) {
			return fmt.Errorf("adapter %d on worker %d: no such place", l.Adapter, l.Worker)
		}
	}
	for _, m := range p.Move {
		if !worker(m.To) || m.To == m.From {
			return fmt.Errorf("request %d to worker %d: no such move", m.ID, m.To)
		}
	}
	if slices.ContainsFunc(p.Load, func(l Placement) bool { return !v.Workers[l.Worker].Usable() }) ||
		slices.ContainsFunc(p.Move, func(m Move) bool { return !v.Workers[m.To].Usable() }) {
		return errDown
	}
	return nil
}

var errDown = errors.New("a worker that the plan needs is down")

// Gap is the relative distance of the plan to its bound.
func (p *Plan) Gap() float64 {
	if p.Objective <= p.Bound || p.Objective == 0 {
		return 0
	}
	return (p.Objective - p.Bound) / p.Objective
}

// Planner changes placement and moves requests now and then. A policy may be
// one; like routing, planning is pure.
type Planner interface {
	// Interval is the time between plans, s.
	Interval() float64
	// Begin starts on the change to make; nil: there is none. A plan may be empty:
	// it tells that nothing is to be done, and why.
	Begin(s *Situation) *Pending
	// Applied reports what became of a plan: nil, or why it was dropped.
	Applied(p *Plan, err error)
}

// Pending is a plan under way. A policy and its planner share state, so that only
// one of them may be asked at a time; Solve, which takes the time, works on what
// Begin took with it, and may run beside routing. Once it is done Plan is the plan.
type Pending struct {
	Solve func()
	Plan  func() *Plan
}

// Ready is a plan that takes no time to find; nil: none.
func Ready(p *Plan) *Pending {
	if p == nil {
		return nil
	}
	return &Pending{func() {}, func() *Plan { return p }}
}

// Now finds the plan at once.
func (p *Pending) Now() *Plan {
	if p == nil {
		return nil
	}
	p.Solve()
	return p.Plan()
}

// Wanted says which requests a planner wants to see.
type Wanted struct {
	Worker               func(j int) bool // those of these workers; nil: of all
	NoWaiting, NoRunning bool
	MostWaiting          int // the first that wait on each worker; 0: all
}

// Chooser is a planner that does not need all requests for its next plan. It may be
// given more than it wants.
type Chooser interface {
	Planner
	Wants(v *View) Wanted
}

// Adjuster is a policy whose routing decisions may change the placement.
type Adjuster interface {
	// Adjust returns the change that the latest Route entails, or nil.
	Adjust() *Plan
}

// Finished is what a router learns of a request that ended.
type Finished struct {
	Adapter int32
	Worker  int32
	Output  int32   // tokens
	Exec    float64 // s from when it began to run to its end
	Now     float64 // s
}

// Learner is a policy that wants to know how requests end.
type Learner interface {
	Finished(f Finished)
}

// LoadWatcher is a policy that wants to know of adapter loads that failed.
type LoadWatcher interface {
	LoadFailed(p Placement)
}
