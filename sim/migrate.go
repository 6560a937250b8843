package sim

import (
	"lorasim/internal/record"
	"lorasim/internal/tick"
	"lorasim/router"
	"lorasim/trace"
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

// transfer is a request's KV cache on its way.
type transfer struct {
	req   int32
	id    int64 // of the request, to notice that req stands for another by now
	from  int32
	held  int64 // tokens that the source keeps until the copy is complete
	sent  int64 // precopy: tokens copied so far
	round int
	left  tick.Ticks // when the request stopped running
}

// Precopy ends when what is left takes less time than precopyStop to copy, or
// after precopyRounds (C. Clark et al., NSDI'05, as Llumnix uses it).
const (
	precopyRounds = 5
	precopyStop   = 10 * tick.Millisecond
)

// move starts to move a request. It returns false where the request is not, or
// no longer, in a state that the mode can move.
func (s *sim) move(i int32, m router.Move) bool {
	r := &s.reqs[i]
	mode := s.cfg.MoveMode
	if r.worker != m.From || r.moving != notMoving || mode == router.MoveNone || mode == "" {
		return false
	}
	w := &s.workers[m.From]
	switch {
	case r.state == waiting:
		w.dequeue(i)
		w.leave(i)
		w.settle(r.adapter)
		r.carried = 0 // a KV cache that came with it stays behind
		w.roomMade()  // it may have been the one that held up the queue
		s.plan.stats.Moves[string(router.MoveQueued)]++
		s.arrive(i, m.To)
		return true
	case r.state != running || mode == router.MoveQueued:
		return false
	case mode == router.MovePrecopy:
		r.moving, r.dest = precopying, m.To
		n := w.kvOf(r)
		t := s.newTransfer(transfer{req: i, id: r.id, from: m.From, sent: n})
		s.events.push(w.copyTime(n), eventTransfer, t)
	default:
		w.depart(i, m.To)
	}
	return true
}

// kvOf is the number of KV tokens of a running request at this instant.
func (w *worker) kvOf(r *request) int64 {
	return int64(r.prefilled) + w.steps - r.joinStep + w.stepsDone()
}

// copyTime books the worker's link for n tokens and returns when they are over.
func (w *worker) copyTime(n int64) tick.Ticks {
	bytes := float64(n) * float64(w.costs.Profile().Memory.KVBytesPerToken)
	w.s.plan.stats.Copied += bytes
	w.linkFree = max(w.linkFree, w.s.now) + w.costs.Copy(bytes)
	return w.linkFree
}

func (s *sim) newTransfer(t transfer) int32 {
	for k := range s.transfers {
		if s.transfers[k].id < 0 {
			s.transfers[k] = t
			return int32(k)
		}
	}
	s.transfers = append(s.transfers, t)
	return int32(len(s.transfers) - 1)
}

// depart makes a running request leave at the next boundary between steps.
func (w *worker) depart(i, to int32) {
	r := &w.s.reqs[i]
	r.moving, r.dest = departing, to
	w.departing = append(w.departing, i)
	switch w.phase {
	case decode:
		w.shorten()
	case idle:
		w.getReady()
	}
}

// sendDeparting takes the requests that are to leave out of the batch; called
// between steps.
func (w *worker) sendDeparting() {
	if w.s.listener != nil {
		w.sendCanceled() // requests of a Server do not move
		return
	}
	for _, i := range w.departing {
		if r := &w.s.reqs[i]; r.moving == departing && r.worker == int32(w.id) && r.state == running {
			w.sendAway(i)
		}
	}
	w.departing = w.departing[:0]
}

func (w *worker) sendAway(i int32) {
	s := w.s
	r := &s.reqs[i]
	n := w.kvOf(r)
	w.remove(w.indexOf(i))
	w.forget(r)
	w.part(i)
	w.leave(i)
	w.settle(r.adapter)
	r.moving = notMoving
	mode := s.cfg.MoveMode
	s.plan.stats.Moves[string(mode)]++
	if mode == router.MoveRecompute {
		s.plan.stats.Recomputed += n
		s.arrive(i, r.dest)
		return
	}
	// the pages stay taken until the copy is complete
	w.kv.grow(0, n)
	w.held += n
	w.v.KVUsed = w.kv.tokens
	r.moving, r.state, r.carried = inTransit, transit, n
	t := s.newTransfer(transfer{req: i, id: r.id, from: int32(w.id), held: n, left: s.now})
	s.events.push(w.copyTime(n-r.copied), eventTransfer, t)
	r.copied = 0
}

// indexOf finds a request in the heap of the batch.
func (w *worker) indexOf(i int32) int {
	for k, j := range w.batch {
		if j == i {
			return k
		}
	}
	panic("sim: a running request is not in its batch")
}

// endTransfer ends a copy, or a round of a copy.
func (s *sim) endTransfer(k int32) {
	t := s.transfers[k]
	s.transfers[k].id = -1
	if t.held == 0 {
		s.endRound(t)
		return
	}
	w := &s.workers[t.from]
	r := &s.reqs[t.req]
	if w.failedAt >= t.left { // its source failed, and the pages with it
		r.carried = 0
	} else {
		w.kv.release(t.held)
		w.held -= t.held
		w.v.KVUsed = w.kv.tokens
		w.roomMade()
	}
	s.plan.stats.Lost += s.now - t.left
	r.moving = notMoving
	s.arrive(t.req, r.dest)
}

// endRound ends a round of a precopy: what was generated meanwhile goes in
// another round, or, if that is little, with the request.
func (s *sim) endRound(t transfer) {
	r := &s.reqs[t.req]
	if r.id != t.id || r.moving != precopying || r.worker != t.from {
		return // it ended, was retracted, or lost its worker
	}
	w := &s.workers[t.from]
	n := w.kvOf(r)
	if rest := w.costs.Copy(float64(n-t.sent) * float64(w.costs.Profile().Memory.KVBytesPerToken)); rest <= precopyStop || t.round+1 >= precopyRounds {
		r.copied = t.sent
		w.depart(t.req, r.dest)
		return
	}
	more := n - t.sent
	t.sent, t.round = n, t.round+1
	s.events.push(w.copyTime(more), eventTransfer, s.newTransfer(t))
}

// arrive puts a request that has moved into the queue of its new worker, or of
// another if that is down.
func (s *sim) arrive(i, to int32) {
	r := &s.reqs[i]
	r.migrations++
	w := &s.workers[to]
	if !w.v.Up {
		r.carried = 0
		s.reroute(i)
		return
	}
	w.enqueue(i)
}

// reroute sends a request that lost its worker to another.
func (s *sim) reroute(i int32) {
	r := &s.reqs[i]
	q := router.Request{ID: r.id, Adapter: r.adapter, Prompt: r.prompt + r.generated, MaxNew: r.maxNew - r.generated, Expected: max(r.expected-r.generated, 1)}
	if int(r.adapter) == len(s.adapters) {
		q.Adapter = trace.BaseModel
	}
	dest := s.cfg.Router.Policy.Route(q, s.routerView())
	if dest == router.None || !s.workers[dest].v.Up {
		s.finish(i, record.Failed, "its worker failed and no other took it", s.now)
		return
	}
	r.worker = int32(dest)
	w := &s.workers[dest]
	if reason := w.refuses(r); reason != "" {
		s.finish(i, record.Failed, reason, s.now)
		return
	}
	w.enqueue(i)
	s.adjust()
}

// adjust carries out what the latest routing decision entails.
func (s *sim) adjust() {
	if s.plan.adjuster == nil {
		return
	}
	if p := s.plan.adjuster.Adjust(); p != nil {
		s.apply(p, s.now)
	}
}
