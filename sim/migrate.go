package sim

import (
	"lorasim/router"
	"lorasim/sim/engine"
	"lorasim/sim/event"
	"lorasim/sim/record"
	"lorasim/sim/tick"
)

// Precopy ends when the rest takes less than precopyStop to copy, or after precopyRounds (C. Clark et al., NSDI'05, as
// Llumnix uses it).
const (
	precopyRounds = 5
	precopyStop   = 10 * tick.Millisecond
)

// move starts to move a request. It returns false if the mode cannot move the request in its current state.
func (s *sim) move(r *request, m router.Move) bool {
	mode := s.cfg.MoveMode
	if r.worker != m.From || r.Leaving != engine.Staying || mode == router.MoveNone || mode == "" {
		return false
	}
	w := &s.workers[m.From]
	switch {
	case r.State() == engine.Waiting:
		w.engine.Withdraw(&r.Request)
		w.left()
		s.noteRequest(router.Left, r, m.From)
		s.plan.book.Move(router.MoveQueued, 0)
		s.arrive(r, m.To)
	case r.State() != engine.Running || mode == router.MoveQueued:
		return false
	case mode == router.MovePrecopy:
		r.Leaving, r.dest = engine.Copying, m.To
		w.preCopy(r, 0, 1)
	default:
		r.dest = m.To
		w.engine.Eject(&r.Request)
	}
	return true
}

func (w *worker) kvBytes(tokens int64) float64 {
	return float64(tokens) * float64(w.costs.Profile().Memory.KVBytesPerToken)
}

// copy sends n tokens of KV cache over the worker's link.
func (w *worker) copy(n int64, then func()) {
	bytes := w.kvBytes(n)
	w.s.plan.book.Copied += bytes
	w.linkFree = max(w.linkFree, w.s.loop.Now()) + w.costs.Copy(bytes)
	w.s.loop.At(w.linkFree, event.Transfer, then)
}

// preCopy starts a round that copies the KV cache of a running request beyond its first sent tokens. Tokens generated
// meanwhile are copied in another round or, if they are few, with the request.
func (w *worker) preCopy(r *request, sent int64, round int) {
	id, n := r.ID, w.engine.KVTokensOf(&r.Request)
	w.copy(n-sent, func() {
		if r.ID != id || r.Leaving != engine.Copying || r.worker != int32(w.id) {
			return // it ended, was retracted, or lost its worker
		}
		if w.costs.Copy(w.kvBytes(w.engine.KVTokensOf(&r.Request)-n)) <= precopyStop || round >= precopyRounds {
			r.copied = n
			w.engine.Eject(&r.Request)
			return
		}
		w.preCopy(r, n, round+1)
	})
}

// Ejected implements engine.Host: a request that moves has left the batch.
func (w *worker) Ejected(er *engine.Request, n int64) {
	s, r := w.s, w.s.request(er)
	mode := s.cfg.MoveMode
	w.left()
	s.noteRequest(router.Left, r, int32(w.id))
	if mode == router.MoveRecompute {
		s.plan.book.Move(mode, n)
		s.arrive(r, r.dest)
		return
	}
	s.plan.book.Move(mode, 0)
	// the pages stay taken until the copy is complete
	held := n
	if e := w.engine; e.Pipeline != nil { // but not what the step that is formed takes: others share some of them
		held = max(0, min(n, (e.KV.Free()-e.KV.StepNeed(e.Batch.Steps))*e.KV.PageSize()))
	}
	w.reserve(held)
	r.Leaving, r.TransferredKV = engine.Sent, n
	r.Depart()
	s.placed(r, record.EventMoving, int32(w.id), r.dest)
	left := s.loop.Now()
	w.copy(n-r.copied, func() {
		if w.failedAt >= left { // the source failed, and the pages with it
			r.TransferredKV = 0
		} else {
			w.reserve(-held)
			w.engine.CapacityFreed()
		}
		s.plan.book.Lost += s.loop.Now() - left
		r.Leaving = engine.Staying
		s.arrive(r, r.dest)
	})
	r.copied = 0
}

// reserve reserves n tokens of KV cache for a request whose copy is in progress. If n < 0, it frees them.
func (w *worker) reserve(n int64) {
	w.engine.KV.Reserve(n)
	w.v.KVUsed = w.engine.KV.Stored()
	w.engine.Books.Touch()
	w.offWhenEmpty()
}

// arrive puts a moved request into the queue of its new worker. If that worker is down or leaves, the router picks
// another.
func (s *sim) arrive(r *request, to int32) {
	r.migrations++
	if w := &s.workers[to]; w.v.Usable() {
		s.noteRequest(router.Sent, r, to)
		w.send(r)
		return
	}
	r.TransferredKV = 0
	s.route(r)
}
