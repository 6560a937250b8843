package sim

import "lorasim/internal/tick"

// frontEnd is a server's front end: it hands requests to the engine one after
// the other, in the order in which they came.
type frontEnd struct {
	queue []passing
	free  tick.Ticks // when it has no more work
	known []bool     // adapters that it has seen
}

// passing is a request in the front end.
type passing struct {
	req int32
	at  tick.Ticks // when the engine gets it
}

// pass takes a request into the front end. It returns false if the engine gets
// it at once.
func (w *worker) pass(i int32) bool {
	takes := w.costs.FrontEnd
	r := &w.s.reqs[i]
	if w.costs.FirstUse > 0 && w.isLoRA(r.adapter) {
		if w.door.known == nil {
			w.door.known = make([]bool, len(w.s.adapters))
		}
		if !w.door.known[r.adapter] {
			w.door.known[r.adapter] = true
			takes += w.costs.FirstUse
		}
	}
	f := &w.door
	f.free = max(f.free, w.s.now) + takes
	if f.free == w.s.now {
		return false
	}
	r.state = entering
	w.seen(r, 1)
	f.queue = append(f.queue, passing{i, f.free})
	w.s.events.push(f.free, eventEnter, int32(w.id))
	return true
}

// enter hands the engine the request whose time in the front end is over.
func (w *worker) enter() {
	f := &w.door
	if len(f.queue) == 0 || f.queue[0].at > w.s.now {
		return // the worker failed, or its client gave it up
	}
	i := f.queue[0].req
	f.queue = f.queue[1:]
	w.seen(&w.s.reqs[i], -1)
	w.engage(i)
}

// seen counts a request in the front end among those that routers see waiting.
func (w *worker) seen(r *request, d int32) {
	w.v.Queued += int(d)
	w.v.QueuedToks += int64(d) * int64(r.prompt)
	w.countAdapter(r.adapter, 0, d)
}

// entering is the number of requests of a row in the front end.
func (w *worker) entering(row int32) (n int64) {
	for _, p := range w.door.queue {
		if w.s.reqs[p.req].adapter == row {
			n++
		}
	}
	return n
}

// cancelEntering ends a request in the front end that its client gave up.
func (w *worker) cancelEntering(i int32) {
	for k, p := range w.door.queue {
		if p.req == i {
			w.door.queue = append(w.door.queue[:k], w.door.queue[k+1:]...)
			break
		}
	}
	w.seen(&w.s.reqs[i], -1)
}
