package router

import "fmt"

// None is the worker of a decision that sends a request nowhere.
const None = -1

// Policy decides where requests go. It may keep state and is not safe for concurrent use. A policy embeds [Base], which
// has all methods but Route, and implements those that it needs. A wrapper embeds the Policy that it wraps, so that it
// passes on every call that it does not change.
type Policy interface {
	// Route decides where a request goes. It neither keeps nor changes the view.
	Route(r Request, v *View) Decision
	// Preview returns the worker to which Route would send a request, without being changed by the question; None:
	// unknown. Of workers that are equal to the policy, it may name another one than Route picks at random.
	Preview(r Request, v *View) int
	// Note tells the policy of an event. An error ends a simulated run; real workers are served further.
	Note(e Event) error
	// Succeed is called once, before the first request, on a policy that takes the place of another one while requests
	// run.
	Succeed(s Succession)
}

// Base has the methods of a policy that neither previews, nor learns from events, nor takes over state. A planner may
// embed it, too, for [Base.Select].
type Base struct{}

// Preview implements Policy: it returns None.
func (Base) Preview(Request, *View) int { return None }

// Note implements Policy: it does nothing.
func (Base) Note(Event) error { return nil }

// Succeed implements Policy: it does nothing.
func (Base) Succeed(Succession) {}

// Select implements Planner: it selects all requests.
func (Base) Select(*View) Selection { return Selection{} }

// Decision is what a policy decides for a request.
type Decision struct {
	Worker  int      // index of a usable worker, or None
	Refusal *Refusal // with None: the policy refuses the request for a reason of its own; nil: no worker is usable
	// Change is the change of placement that the decision requires; nil: none. It needs Router.Places.
	Change *Plan
	// Err is why the policy could not decide by its own rules; nil: it could. The worker is then the least loaded one.
	// A simulated run ends with the error; real workers are served further.
	Err error
}

// To is the decision to send a request to a worker, or nowhere (None).
func To(worker int) Decision { return Decision{Worker: worker} }

// Refusal is why a policy refuses a request.
type Refusal struct {
	Status int // HTTP status
	Reason string
}

// Admission may reject requests before the policy routes them. Package router/admission has the only one: it is an
// interface since the contract knows no rule of admission.
type Admission interface {
	// Refuse returns the reason to reject a request, "" if it is admitted, and the time after which a client may try
	// again, s.
	Refuse(r Request, v *View) (reason string, after float64)
	// Sent notes that a request is sent to a worker, before the view counts the request there.
	Sent(r Request, worker int, v *View)
	// Note notes an event.
	Note(e Event)
}

// Event is something that happened to a request or a worker. After each decision with a worker come, for the same
// request: one Sent; FirstToken, if it is the first one of the request; one Left; and Finished, if the request has
// ended well. A request that moves, or that is tried again elsewhere, has Left its worker before it is Sent to the next
// one.
type Event struct {
	Kind    EventKind
	Now     float64 // time, s
	ID      int64   // request
	Adapter int32   // adapter of the request; trace.BaseModel: none
	Worker  int32   // index of the worker

	// Of Finished:

	Output    int32   // tokens
	Exec      float64 // time from when the request began to run to its end, s
	E2E, TTFT float64 // latencies that the client saw, s

	View *View // of Polled: the cluster; valid only during the call
}

// EventKind is what happened.
type EventKind uint8

// The kinds of events.
const (
	Sent       EventKind = iota // a request was sent to a worker
	FirstToken                  // the first token of a request came from a worker
	Left                        // a request is no longer at a worker, for whatever reason
	Finished                    // a request has ended well
	Polled                      // the time Router.Poll has passed
)

// Succession is what a policy learns when it takes the place of another one. Policies identify a worker by its index,
// its slot. A slot without a worker is not Up.
type Succession struct {
	Before  Policy   // policy of the same or of another kind; it is not used any more
	History *History // latest requests
	View    *View    // the cluster as the new policy sees it
	// Joined is the slot of a worker that has just joined and has none of the requests sent to that slot before; -1:
	// none.
	Joined int
}

// Route asks the policy. An error names the policy.
func (rt *Router) Route(r Request, v *View) Decision {
	d := rt.Policy.Route(r, v)
	if d.Err != nil {
		d.Err = &PolicyError{rt.Name, d.Err}
	}
	return d
}

// Refuse asks the admission. It returns the reason to reject a request, "" if it is admitted, and the time after which
// a client may try again, s.
func (rt *Router) Refuse(r Request, v *View) (reason string, after float64) {
	if rt.Admission == nil {
		return "", 0
	}
	return rt.Admission.Refuse(r, v)
}

// Sent tells the admission that a request is sent to a worker. Call it before the view counts the request there.
func (rt *Router) Sent(r Request, worker int, v *View) {
	if rt.Admission != nil {
		rt.Admission.Sent(r, worker, v)
	}
}

// Note tells the admission and the policy of an event. An error names the policy.
func (rt *Router) Note(e Event) error {
	if rt.Admission != nil {
		rt.Admission.Note(e)
	}
	if err := rt.Policy.Note(e); err != nil {
		return &PolicyError{rt.Name, err}
	}
	return nil
}

// Succeed makes a router continue from the state of the one that it replaces. v is the cluster as the new router sees
// it. joined is the slot of a worker that has just joined; -1: none.
func (rt *Router) Succeed(old *Router, h *History, v *View, joined int) {
	h.vacate(joined)
	rt.Policy.Succeed(Succession{Before: old.Policy, History: h, View: v, Joined: joined})
}

// Plans reports whether the policy moves adapters or requests.
func (rt *Router) Plans() bool { return rt.Planner != nil || rt.Places }

// PolicyError is the error of a policy that failed in a run.
type PolicyError struct {
	Policy string // its spec
	Err    error
}

// Error names the policy and the error.
func (e *PolicyError) Error() string { return fmt.Sprintf("policy %s: %v", e.Policy, e.Err) }

// Unwrap returns the policy's error.
func (e *PolicyError) Unwrap() error { return e.Err }
