package sim

import "lorasim/internal/tick"

// eventKind orders events of the same instant: what frees or takes away
// capacity comes before arrivals, planning after them.
type eventKind uint8

const (
	eventTransfer eventKind = iota // a request's KV cache has been copied, or a round of it
	eventDown                      // a worker fails
	eventUp                        // a worker is back
	eventEnter                     // a request has passed a worker's front end
	eventArrivals                  // marks the place of arrivals in the order; never queued
	eventApply                     // a plan's solving time is over
	eventPlan                      // a planner's interval is over
)

// event is something that happens apart from steps, loads and arrivals.
type event struct {
	at   tick.Ticks
	kind eventKind
	seq  int64 // order of scheduling, for equal times and kinds
	what int32 // worker, or index of a transfer or plan
}

func (e event) before(f event) bool {
	if e.at != f.at {
		return e.at < f.at
	}
	if e.kind != f.kind {
		return e.kind < f.kind
	}
	return e.seq < f.seq
}

// events is a binary min-heap.
type events struct {
	heap []event
	seq  int64
	work int // events other than eventPlan
}

// top is the time of the earliest event, tick.Never if there is none.
func (h *events) top() tick.Ticks {
	if len(h.heap) == 0 {
		return tick.Never
	}
	return h.heap[0].at
}

func (h *events) push(at tick.Ticks, kind eventKind, what int32) {
	h.seq++
	if kind != eventPlan {
		h.work++
	}
	e := event{at, kind, h.seq, what}
	h.heap = append(h.heap, e)
	i := len(h.heap) - 1
	for i > 0 && e.before(h.heap[(i-1)/2]) {
		h.heap[i] = h.heap[(i-1)/2]
		i = (i - 1) / 2
	}
	h.heap[i] = e
}

// due returns the earliest event if it is due at time at and of a kind before
// the given one.
func (h *events) due(at tick.Ticks, before eventKind) (event, bool) {
	if len(h.heap) == 0 || h.heap[0].at > at || h.heap[0].kind >= before {
		return event{}, false
	}
	top, last := h.heap[0], h.heap[len(h.heap)-1]
	h.heap = h.heap[:len(h.heap)-1]
	i, n := 0, len(h.heap)
	for {
		c := 2*i + 1
		if c >= n {
			break
		}
		if c+1 < n && h.heap[c+1].before(h.heap[c]) {
			c++
		}
		if !h.heap[c].before(last) {
			break
		}
		h.heap[i] = h.heap[c]
		i = c
	}
	if n > 0 {
		h.heap[i] = last
	}
	if top.kind != eventPlan {
		h.work--
	}
	return top, true
}
