package router

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"lorasim/trace"
)

// InFlight is a request in flight as a planner sees it. Like a router, a planner does not know the output length.
type InFlight struct {
	ID        int64
	Adapter   int32 // trace.BaseModel: no adapter
	Worker    int32 // index of the worker on which it waits or runs
	Running   bool  // true: it has begun to run and its KV cache holds tokens; false: it waits
	Prompt    int32
	Generated int32   // tokens so far
	MaxNew    int32   // max_new_tokens of the request
	Expected  int32   // expected output, tokens, as in Request
	KV        int64   // tokens in the KV cache
	Age       float64 // time since it was sent, s
	// Text identifies the first Known tokens of the prompt and of the tokens generated so far.
	Text  *trace.Text
	Known int32
}

// PlannerInput is the input of a planner: the view, and all requests in flight that may be moved.
type PlannerInput struct {
	*View
	Requests []InFlight
	// Idle is set by a planner that makes no plan: the reason, in a few words.
	Idle string
}

// Placement is one adapter on one worker.
type Placement struct {
	Worker  int32 `json:"worker"`
	Adapter int32 `json:"adapter"`
}

// Name returns the adapter's name and the worker's index, as in chat@0. An adapter that is not in the list gets its
// index as a name.
func (p Placement) Name(adapters []trace.Adapter) string {
	name := strconv.Itoa(int(p.Adapter))
	if p.Adapter >= 0 && int(p.Adapter) < len(adapters) {
		name = adapters[p.Adapter].Name
	}
	return fmt.Sprintf("%s@%d", name, p.Worker)
}

// Move sends a request in flight to another worker.
type Move struct {
	ID   int64 `json:"id"`
	From int32 `json:"from"`
	To   int32 `json:"to"`
}

// Plan is a change of the cluster that a planner wants. It is applied as a whole or dropped: if any part of it
// cannot be carried out, nothing is. Requests that have ended in the meantime are ignored.
type Plan struct {
	Reason string `json:"reason"` // why, for users
	// Load brings adapters to workers. Unload removes adapters as soon as no request on the worker uses them.
	Load   []Placement `json:"load,omitempty"`
	Unload []Placement `json:"unload,omitempty"`
	Move   []Move      `json:"move,omitempty"`

	// SolveTime is the time to find the plan, s. The plan is applied that much later than the state for which it
	// was made.
	SolveTime float64 `json:"solve_s"`
	// Solver, Objective, Stay and Bound describe the solution, where a solver was used.
	Solver    string  `json:"solver,omitempty"`
	Objective float64 `json:"objective_s,omitempty"` // predicted time until all requests have ended, s
	Stay      float64 `json:"stay_s,omitempty"`      // the same without any change, s
	Bound     float64 `json:"bound_s,omitempty"`     // lower bound of the objective of any plan, s
}

// Empty reports whether the plan changes nothing.
func (p *Plan) Empty() bool { return len(p.Load) == 0 && len(p.Unload) == 0 && len(p.Move) == 0 }

// Check returns an error if the plan cannot be carried out on a cluster. It ignores the requests' ids: requests
// that have ended do not matter.
func (p *Plan) Check(v *View) error {
	worker := func(w int32) bool { return w >= 0 && int(w) < len(v.Workers) }
	for _, l := range slices.Concat(p.Load, p.Unload) {
		if !worker(l.Worker) || l.Adapter < 0 || int(l.Adapter) >= len(v.Adapters) {
			return fmt.Errorf("adapter %d on worker %d: no such adapter or worker", l.Adapter, l.Worker)
		}
	}
	for _, m := range p.Move {
		if !worker(m.To) || m.To == m.From {
			return fmt.Errorf("request %d to worker %d: not another worker", m.ID, m.To)
		}
	}
	if slices.ContainsFunc(p.Load, func(l Placement) bool { return !v.Workers[l.Worker].Usable() }) ||
		slices.ContainsFunc(p.Move, func(m Move) bool { return !v.Workers[m.To].Usable() }) {
		return errDown
	}
	return nil
}

var errDown = errors.New("a worker that the plan needs is down")

// Gap returns the relative distance of the plan's objective to its bound.
func (p *Plan) Gap() float64 {
	if p.Objective <= p.Bound || p.Objective == 0 {
		return 0
	}
	return (p.Objective - p.Bound) / p.Objective
}

// Planner is a policy, or a part of one, that periodically changes the placement of adapters and moves requests.
// Like routing, planning is deterministic and does no I/O.
type Planner interface {
	// Interval returns the time between plans, s.
	Interval() float64
	// Select returns the requests that the next plan needs. Begin may get more; the zero value selects all.
	Select(v *View) Selection
	// Begin starts to search for a plan; nil: there is none. A plan may be empty; it then tells why nothing
	// changes.
	Begin(s *PlannerInput) *Pending
	// Applied reports that a plan was applied (nil) or the reason why it was dropped.
	Applied(p *Plan, err error)
}

// Repeater is a planner that knows its next plans while no request is in flight and nothing happens.
type Repeater interface {
	// Again returns a function that makes the latest plan again at a later time, s, in place of Begin and Applied. That
	// plan changes nothing and has the same kind of reason. Both return until when the planner then rests
	// ([Selection]). The function is nil if the next plan may be another one. It is valid while nothing happens.
	Again() (rest float64, repeat func(now float64) (rest float64))
}

// Pending is a plan that is being computed. A policy and its planner share state, so that only one of them may be
// called at a time. Solve, which takes the time, works on a copy that Begin made and may run concurrently with
// routing. When it has returned, Plan is the plan.
type Pending struct {
	Solve func()
	Plan  func() *Plan
}

// Ready returns a plan that needs no Solve; nil for nil.
func Ready(p *Plan) *Pending {
	if p == nil {
		return nil
	}
	return &Pending{func() {}, func() *Plan { return p }}
}

// Now computes the plan and returns it.
func (p *Pending) Now() *Plan {
	if p == nil {
		return nil
	}
	p.Solve()
	return p.Plan()
}

// Selection limits the requests that a planner needs for its next plan.
type Selection struct {
	Worker               func(j int) bool // by worker: whether its requests are needed; nil: of all workers
	NoWaiting, NoRunning bool
	MostWaiting          int // number of waiting requests per worker, first ones first; 0: all
	// Rest is the time, s, before which Begin would do nothing, unless requests or workers change. Begin need not be
	// called while it is later than View.Now.
	Rest float64
}
