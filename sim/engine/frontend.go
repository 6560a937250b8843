package engine

import (
	"slices"

	"lorasim/sim/event"
	"lorasim/sim/tick"
)

// FrontEnd is a server's front end: it hands requests to the engine one after the other, in the order in which they
// came.
type FrontEnd struct {
	e     *Engine
	queue []*Request
	free  tick.Ticks // when it has no more work
	enter func()
}

// Add takes a request that a router has sent, through the front end into the queue.
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

// Meet notes that the front end has seen requests of the adapter.
func (a *Adapter) Meet() { a.known = true }

// Resume puts a request that was in flight before the simulation began into the queue.
func (e *Engine) Resume(r *Request) {
	r.engine, r.Row = e, e.Rows.Of(r.Adapter)
	r.Row.known = true
	e.sched.Accept(r)
	e.assign(r, 1)
	e.enqueue(r)
}

// pass hands the engine the request whose time in the front end is over.
func (f *FrontEnd) pass() {
	e := f.e
	if len(f.queue) > 0 && f.queue[0].QueuedAt <= e.Loop.Now() { // else it has failed, or its client gave it up
		r := f.queue[0]
		f.queue = f.queue[1:]
		e.Books.Wait(r.Adapter, r.Prompt, -1)
		e.enqueue(r)
	}
}

// leave takes a request out of the front end.
func (f *FrontEnd) leave(r *Request) {
	f.queue = slices.DeleteFunc(f.queue, func(o *Request) bool { return o == r })
}

// Of is the number of requests of an adapter in the front end.
func (f *FrontEnd) Of(a *Adapter) (n int) {
	for _, r := range f.queue {
		if r.Row == a {
			n++
		}
	}
	return n
}

// Len is the number of requests in the front end.
func (f *FrontEnd) Len() int { return len(f.queue) }

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
