package engine

import (
	"slices"

	"lorasim/sim/event"
	"lorasim/sim/tick"
)

// A FrontEnd is a server's front end. It hands requests to the engine one after the other, in the order of
// their arrival.
type FrontEnd struct {
	e     *Engine
	queue []*Request
	held  []*Request // kept back; see Hold
	free  tick.Ticks // end of its present work
	enter func()
}

// Add accepts a request from a router. The request enters the queue after its time in the front end.
func (e *Engine) Add(r *Request) {
	r.engine, r.Row, r.FillTokens, r.PrefixTokens = e, e.Rows.Of(r.Adapter), 0, 0
	e.sched.Accept(r)
	e.assign(r, 1)
	f, takes := &e.FrontEnd, e.Costs.FrontEnd
	if !r.Row.known && e.Rows.isLoRA(r.Adapter) {
		r.Row.known = true
		takes += e.Costs.FirstUse
	}
	f.free = max(f.free, e.Loop.Now()) + takes
	if f.free == e.Loop.Now() {
		e.enqueue(r)
		return
	}
	e.toEntering(r, f.free)
	f.queue = append(f.queue, r)
	e.Loop.At(f.free, event.Enter, f.enter)
}

// Hold keeps a request back, before the front end. Routers see it as waiting. Unhold ends that.
func (f *FrontEnd) Hold(r *Request) {
	r.engine, r.Row = f.e, f.e.Rows.Of(r.Adapter)
	f.e.assign(r, 1)
	f.e.toEntering(r, tick.Never)
	f.held = append(f.held, r)
}

// Unhold takes back a request that is held. The caller adds it to an engine.
func (f *FrontEnd) Unhold(r *Request) {
	f.held = slices.DeleteFunc(f.held, func(o *Request) bool { return o == r })
	f.e.Books.Wait(r.Adapter, r.Prompt, -1)
	f.e.assign(r, -1)
	r.Depart()
}

// Held returns the requests that are held, in the order of Hold. The list is valid until the next Hold or Unhold.
func (f *FrontEnd) Held() []*Request { return f.held }

// Resume puts a request that was in flight before the simulation began into the queue.
func (e *Engine) Resume(r *Request) {
	r.engine, r.Row = e, e.Rows.Of(r.Adapter)
	r.Row.known = true
	e.sched.Accept(r)
	e.assign(r, 1)
	e.enqueue(r)
}

// pass puts the request whose time in the front end has ended into the queue.
func (f *FrontEnd) pass() {
	e := f.e
	if len(f.queue) > 0 && f.queue[0].QueuedAt <= e.Loop.Now() { // else it has failed, or its client gave it up
		r := f.queue[0]
		f.queue = f.queue[1:]
		e.Books.Wait(r.Adapter, r.Prompt, -1)
		e.enqueue(r)
	}
}

// leave removes a request from the front end.
func (f *FrontEnd) leave(r *Request) {
	f.queue = slices.DeleteFunc(f.queue, func(o *Request) bool { return o == r })
}

// Of returns the number of requests of an adapter in the front end.
func (f *FrontEnd) Of(a *Adapter) (n int) {
	for _, r := range f.queue {
		if r.Row == a {
			n++
		}
	}
	return n
}

// Busy reports whether the engine has requests of an adapter, except for those that are held.
func (f *FrontEnd) Busy(index int32) bool {
	a := f.e.Rows.Of(index)
	return a.Waiting > 0 || a.Active() || f.Of(a) > 0
}

// Len returns the number of requests in the front end or held before it.
func (f *FrontEnd) Len() int { return len(f.queue) + len(f.held) }

// enqueue puts a request that has passed the front end into the queue.
func (e *Engine) enqueue(r *Request) {
	if !e.sched.MayWait(r) {
		return
	}
	e.toWaiting(r, false)
	a := &r.Row.Adapter
	a.Keep() // it is needed after all
	g := &e.Gate
	if g.ArrivalOpens {
		g.full = false
	}
	if e.cfg.Prefetch {
		e.LoRA.Prefetch(a)
		if g.PrefetchOpens {
			g.full = false
		}
	}
	e.LoRA.FetchMissing(a)
	e.queueChanged()
}
