package router

import "slices"

// History keeps the latest requests for the router that replaces another one while requests run, for example when
// workers join or adapters are added. See [Router.Succeed].
type History struct{ window *window }

// NewHistory returns a history that keeps the latest n requests.
func NewHistory(requests int) *History { return &History{newWindow(requests)} }

// Sent notes the worker to which a request was sent.
func (h *History) Sent(r Request, worker int, now float64) {
	if worker != None {
		h.window.sent(&r, worker, now)
	}
}

// Finished notes the end of a request.
func (h *History) Finished(f Finished) {
	if s := h.window.get(f.ID); s != nil && s.worker != None {
		s.output, s.e2e, s.ttft, s.worker = max(f.Output, 1), f.E2E, f.TTFT, f.Worker
	}
}

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
	h.window.vacate(joined)
	if next, ok := rt.Policy.(*auto); ok {
		if before, ok := old.Policy.(*auto); ok {
			next.succeed(before, v, joined)
			return
		}
	}
	if next, ok := rt.Policy.(*endpointPicker); ok {
		if before, ok := old.Policy.(*endpointPicker); ok {
			next.succeed(before, joined)
		}
		return
	}
	succeed(rt.Policy, old.Policy, joined)
	learn(rt.Policy, h.window.recall(len(v.Workers), len(v.Adapters)), v)
}

// succeed lets a policy take over the state of the one before it.
func succeed(next, before Policy, joined int) {
	if s, ok := next.(Successor); ok {
		s.Succeed(before, joined)
	}
}

// vacate forgets that requests were sent to a slot, whose worker has left.
func (w *window) vacate(slot int) {
	for n := w.oldest(); n < w.n; n++ {
		if s := w.at(n); int(s.worker) == slot {
			s.worker = None
		}
	}
}

// succeed takes over what another one knows: its latest requests, what it believes of the candidates, and which of them
// routes.
func (p *auto) succeed(old *auto, v *View, joined int) {
	p.window, p.drift, p.served, p.log = old.window, old.drift, old.served, old.log
	p.window.vacate(joined)
	p.credit, p.raceAt, p.step, p.ended = old.credit, old.raceAt, old.step, old.ended
	p.live.earned, p.live.cost = old.live.earned, old.live.cost
	for k := range p.candidates {
		p.candidates[k].belief, p.candidates[k].behind, p.candidates[k].skip = old.candidates[k].belief,
			old.candidates[k].behind, old.candidates[k].skip
	}
	if old.live.slower != nil {
		p.live.slower = slices.Repeat([]float64{1}, len(p.env.Workers))
		copy(p.live.slower, old.live.slower)
	}
	for j := range old.used {
		copy(p.used[j], old.used[j])
	}
	if joined >= 0 {
		clear(p.used[joined])
		if p.live.slower != nil {
			p.live.slower[joined] = 1
		}
	}
	incumbent, err := New(p.candidates[old.incumbent].spec, p.env.withoutTwin())
	if err != nil { // it was built before
		return
	}
	p.current, p.incumbent, p.chosen = incumbent, old.incumbent, old.chosen
	succeed(incumbent.Policy, old.current.Policy, joined)
	learn(incumbent.Policy, p.recall(), v)
}
