package engine

import (
	"slices"

	"lorasim/internal/tick"
	"lorasim/sim/event"
)

// frontEnd is a server's front end: it hands requests to the engine one after the other, in the order in which they
// came.
type frontEnd struct {
	queue []*Request
	free  tick.Ticks // when it has no more work
	enter func()
}

// Add takes a request that a router has sent, through the front end into the queue.
func (e *Engine) Add(r *Request) {
	r.engine, r.Row, r.FillTokens, r.PrefixTokens = e, e.Row(r.Adapter), 0, 0
	e.sched.Accept(r)
	e.assign(r, 1)
	f, takes := &e.door, e.costs.FrontEnd
	if !r.Row.known && e.isLoRA(r.Adapter) {
		r.Row.known = true
		takes += e.costs.FirstUse
	}
	f.free = max(f.free, e.loop.Now()) + takes
	if f.free == e.loop.Now() {
		e.enqueue(r)
		return
	}
	r.state, r.QueuedAt = Entering, f.free
	e.books.Wait(r.Adapter, r.Prompt, 1)
	f.queue = append(f.queue, r)
	e.loop.At(f.free, event.Enter, f.enter)
}

// enter hands the engine the request whose time in the front end is over.
func (e *Engine) enter() {
	if f := &e.door; len(f.queue) > 0 && f.queue[0].QueuedAt <= e.loop.Now() { // else it has failed, or its client gave it up
		r := f.queue[0]
		f.queue = f.queue[1:]
		e.books.Wait(r.Adapter, r.Prompt, -1)
		e.enqueue(r)
	}
}

// leave takes a request out of the front end.
func (f *frontEnd) leave(r *Request) {
	f.queue = slices.DeleteFunc(f.queue, func(o *Request) bool { return o == r })
}

// EnteringOf is the number of requests of an adapter in the front end.
func (e *Engine) EnteringOf(a *Adapter) (n int) {
	for _, r := range e.door.queue {
		if r.Row == a {
			n++
		}
	}
	return n
}

// EnteringLen is the number of requests in the front end.
func (e *Engine) EnteringLen() int { return len(e.door.queue) }

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
