package router

// Successor is a policy that takes over the state of its predecessor when a router replaces another one
// ([Router.Succeed]).
type Successor interface {
	// Succeed is called before the first request. joined is the index of a worker that has just joined; -1: none.
	Succeed(before Policy, joined int)
}

// Succeed makes a new router continue from the state of its predecessor: it replays the latest requests as if the
// new router had routed them. v is the cluster as the new router sees it.
//
// Policies identify a worker by its index, its slot. A slot without a worker is not Up. joined is the slot of a
// worker that has just joined and has none of the requests sent to that slot before; -1: none.
func (rt *Router) Succeed(old *Router, h *History, v *View, joined int) {
	h.vacate(joined)
	if next, ok := rt.Policy.(*endpointPicker); ok {
		if before, ok := old.Policy.(*endpointPicker); ok {
			next.succeed(before, joined)
		}
		return
	}
	succeed(rt.Policy, old.Policy, joined)
	learn(rt.Policy, h, v)
}

// succeed lets a policy take over the state of the one before it.
func succeed(next, before Policy, joined int) {
	if s, ok := next.(Successor); ok {
		s.Succeed(before, joined)
	}
}
