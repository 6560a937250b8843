package sim

import "lorasim/internal/record"

const canceledReason = "given up by the client"

// cancel ends a request that its client gave up: at once where it waits, else
// at the next boundary between steps at which it is in the batch.
func (w *worker) cancel(i int32) {
	r := &w.s.reqs[i]
	switch {
	case r.moving == canceled:
	case r.state == waiting:
		w.dequeue(i)
		w.leave(i)
		w.settle(r.adapter)
		w.s.finish(i, record.Aborted, canceledReason, w.s.now+w.costs.Overhead)
		w.roomMade() // it may have been the one that held up the queue
	case r.state == entering:
		w.cancelEntering(i)
		w.leave(i)
		w.settle(r.adapter)
		w.s.finish(i, record.Aborted, canceledReason, w.s.now+w.costs.Overhead)
	case r.state == running:
		w.depart(i, int32(w.id))
		r.moving = canceled
	default: // in a prefill step, or between two of them
		r.moving = canceled
		w.departing = append(w.departing, i)
	}
}

// sendCanceled ends the canceled requests that are in the batch, or were put back
// into the queue since, and keeps those that are still being prefilled, or wait
// for their turn with their memory, for later.
func (w *worker) sendCanceled() {
	departing := w.departing
	w.departing = nil
	keep := departing[:0]
	for _, i := range departing {
		switch r := &w.s.reqs[i]; {
		case r.moving != canceled:
		case r.state == filling && w.vllm:
			w.drop(i)
			w.leave(i)
			w.s.finish(i, record.Aborted, canceledReason, w.s.now+w.costs.Overhead)
		case r.state == filling:
			keep = append(keep, i)
		case r.state == waiting:
			r.moving = notMoving
			w.cancel(i)
		case r.state == running:
			w.remove(w.indexOf(i))
			w.forget(r)
			w.part(i)
			w.leave(i)
			w.s.finish(i, record.Aborted, canceledReason, w.s.now+w.costs.Overhead)
		}
	}
	w.departing = keep
}

// reportTokens reports a token of every request of the batch, which came with
// the step that just ended.
func (w *worker) reportTokens() {
	for _, i := range w.batch {
		w.s.listener.Token(w.s.reqs[i].id, w.s.now+w.costs.Overhead)
	}
}
