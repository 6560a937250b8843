package sim

import (
	"lorasim/internal/tick"
	"lorasim/router"
	"lorasim/sim/event"
)

// moving is how far a request is on its way to another worker.
type moving uint8

const (
	notMoving  moving = iota
	precopying        // its KV cache is being copied while it runs
	departing         // it leaves the batch at the end of the step under way
	inTransit         // its KV cache is being copied; it does not run
	canceled          // its client gave it up; it leaves when it is in the batch and a step ends
)

// Precopy ends when what is left takes less time than precopyStop to copy, or
// after precopyRounds (C. Clark et al., NSDI'05, as Llumnix uses it).
const (
	precopyRounds = 5
	precopyStop   = 10 * tick.Millisecond
)

// move starts to move a request. It returns false where the request is not, or
// no longer, in a state that the mode can move.
func (s *sim) move(r *request, m router.Move) bool {
	mode := s.cfg.MoveMode
	if r.worker != m.From || r.moving != notMoving || mode == router.MoveNone || mode == "" {
		return false
	}
	w := &s.workers[m.From]
	switch {
	case r.state == waiting:
		w.dequeue(r)
		w.count(r, -1)
		w.settle(r.Adapter)
		r.carried = 0 // a KV cache that came with it stays behind
		w.roomMade()  // it may have been the one that held up the queue
		s.plan.stats.Moves[string(router.MoveQueued)]++
		s.arrive(r, m.To)
	case r.state != running || mode == router.MoveQueued:
		return false
	case mode == router.MovePrecopy:
		r.moving, r.dest = precopying, m.To
		w.precopy(r, 0, 1)
	default:
		w.depart(r, m.To)
	}
	return true
}

// kvOf is the number of KV tokens of a running request at this instant.
func (w *worker) kvOf(r *request) int64 { return w.inCache(r) + w.stepsDone() }

func (w *worker) kvBytes(tokens int64) float64 {
	return float64(tokens) * float64(w.costs.Profile().Memory.KVBytesPerToken)
}

// copy sends n tokens of KV cache over the worker's link.
func (w *worker) copy(n int64, then func()) {
	bytes := w.kvBytes(n)
	w.s.plan.stats.Copied += bytes
	w.linkFree = max(w.linkFree, w.s.loop.Now()) + w.costs.Copy(bytes)
	w.s.loop.At(w.linkFree, event.Transfer, then)
}

// precopy begins a round that copies what a running request has beyond its first
// sent tokens. What it generates meanwhile goes in another round, or, if that is
// little, with the request.
func (w *worker) precopy(r *request, sent int64, round int) {
	id, n := r.id, w.kvOf(r)
	w.copy(n-sent, func() {
		if r.id != id || r.moving != precopying || r.worker != int32(w.id) {
			return // it ended, was retracted, or lost its worker
		}
		if w.costs.Copy(w.kvBytes(w.kvOf(r)-n)) <= precopyStop || round >= precopyRounds {
			r.copied = n
			w.depart(r, r.dest)
			return
		}
		w.precopy(r, n, round+1)
	})
}

// depart makes a running request leave at the next boundary between steps.
func (w *worker) depart(r *request, to int32) {
	r.moving, r.dest = departing, to
	w.departing = append(w.departing, r)
	w.interrupt()
}

// sendDeparting takes the requests that are to leave out of the batch; called
// between steps.
func (w *worker) sendDeparting() {
	leaving := w.departing
	w.departing = nil
	for _, r := range leaving {
		switch {
		case r.moving == canceled:
			w.endCanceled(r)
		case r.moving == departing && r.worker == int32(w.id) && r.state == running:
			w.sendAway(r)
		}
	}
}

func (w *worker) sendAway(r *request) {
	s, mode, n := w.s, w.s.cfg.MoveMode, w.kvOf(r)
	w.leaveBatch(r)
	w.count(r, -1)
	r.moving = notMoving
	s.plan.stats.Moves[string(mode)]++
	if mode == router.MoveRecompute {
		s.plan.stats.Recomputed += n
		s.arrive(r, r.dest)
		return
	}
	// the pages stay taken until the copy is complete
	w.hold(n)
	r.moving, r.state, r.carried = inTransit, transit, n
	left := s.loop.Now()
	w.copy(n-r.copied, func() {
		if w.failedAt >= left { // the source failed, and the pages with it
			r.carried = 0
		} else {
			w.hold(-n)
			w.roomMade()
		}
		s.plan.stats.Lost += s.loop.Now() - left
		r.moving = notMoving
		s.arrive(r, r.dest)
	})
	r.copied = 0
}

// hold keeps n tokens for a request whose copy is under way, or frees them.
func (w *worker) hold(n int64) {
	w.kv.Reserve(n)
	w.v.KVUsed = w.kv.Stored()
	w.leaveWhenEmpty()
}

// arrive puts a request that has moved into the queue of its new worker, or of
// another if that is down or leaves.
func (s *sim) arrive(r *request, to int32) {
	r.migrations++
	if w := &s.workers[to]; w.v.Usable() {
		w.enqueue(r)
		return
	}
	r.carried = 0
	s.route(r)
}
