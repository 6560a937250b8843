package sim

import (
	"errors"
	"fmt"
	"io"
	"math"

	"lorasim/internal/heap"
	"lorasim/internal/record"
	"lorasim/internal/tick"
	"lorasim/router"
	"lorasim/sim/kvcache"
	"lorasim/trace"
)

// request is one request in flight.
type request struct {
	id      int64      // -1: none, the place is free
	arrival float64    // as the workload states it, s
	arrived tick.Ticks // the same in ticks
	sent    tick.Ticks
	started tick.Ticks // when it first entered a prefill step, tick.Never before
	first   tick.Ticks // first token, tick.Never before
	last    tick.Ticks // latest token seen before it left a batch
	queued  tick.Ticks // when it entered its worker's queue, or leaves its front end
	cold    tick.Ticks // waited for adapter weights

	kvcache.Sequence // Adapter: index into a worker's adapter table

	output, maxNew int32
	expected       int32 // output that routers expect
	asked          int32 // max_new_tokens as the client stated it
	generated      int32 // tokens generated before it joined the batch

	workerFirst, worker, migrations int32

	row *adapterRow // of its adapter on its worker

	seq      int64 // order in the queue
	came     int64 // the same, when it first came there
	links    [numLists]link
	order    int64 // order in the batch
	place    int32 // in the heap of the batch
	joinTime tick.Ticks

	looked  int32 // its tokens when it was last looked at, see preemptFor
	matched int32 // of these in the cache
	state   state
	moving  moving
	dest    int32 // worker that it moves to
	carried int64 // KV tokens that come with it
	copied  int64 // KV tokens that a precopy has sent ahead

	gaps []float64 // between its tokens, s, with Config.TokenTimes
}

// state is where a request is.
type state uint8

const (
	waiting  state = iota // in a worker's queue
	filling               // in a prefill step, between two chunks, or parked
	running               // in a batch
	transit               // between two workers
	entering              // in a worker's front end
)

// alloc returns an unused request.
func (s *sim) alloc() *request {
	n := len(s.free)
	if n == 0 {
		s.reqs = append(s.reqs, &request{})
		return s.reqs[len(s.reqs)-1]
	}
	r := s.free[n-1]
	s.free = s.free[:n-1]
	*r = request{} // and field by field: a literal is built beside it and copied
	return r
}

// fetch reads the next request of the source into head.
func (s *sim) fetch() error {
	r, err := s.cfg.Source.Next()
	if errors.Is(err, io.EOF) {
		s.headT = tick.Never
		return nil
	}
	if err != nil {
		return err
	}
	if err := r.Check(len(s.adapters)); err != nil {
		return fmt.Errorf("sim: request %d: %w", r.ID, err)
	}
	if r.Arrival >= tick.Max.Seconds() {
		return fmt.Errorf("sim: request %d arrives after %.0f days, expected at most %.0f; compress the workload's times",
			r.ID, r.Arrival/86400, tick.Max.Seconds()/86400)
	}
	t := tick.FromSeconds(r.Arrival)
	if s.requests > 0 && t < s.headT {
		return fmt.Errorf("sim: request %d arrives at %v s, before its predecessor", r.ID, r.Arrival)
	}
	s.head, s.headT = r, t
	s.requests++
	return nil
}

// send hands the requests that are due, and for which the closed loop has
// room, to the router.
func (s *sim) send() error {
	for len(s.releases) > 0 && s.releases[0].Key <= int64(s.loop.Now()) {
		s.releases.Remove(0)
		s.inFlight--
	}
	for s.headT <= s.loop.Now() && s.hasRoom() {
		s.sendHead()
		if err := s.fetch(); err != nil {
			return err
		}
	}
	return nil
}

func (s *sim) sendHead() {
	h := &s.head
	s.inFlight++
	r := s.alloc()
	r.id, r.arrival, r.arrived, r.sent = h.ID, h.Arrival, s.headT, s.loop.Now()
	r.first, r.started = tick.Never, tick.Never
	r.Prompt, r.output, r.maxNew, r.Adapter = h.Prompt, h.Output, h.Budget(), h.Adapter
	r.Text, r.Reply = h.Text, h.Reply
	r.asked = r.maxNew
	r.workerFirst, r.worker = -1, -1
	if h.Adapter == trace.BaseModel {
		r.Adapter = int32(len(s.adapters)) // the base model has the last row of a worker's adapter table
	}
	if s.plan.byID != nil {
		s.plan.byID[r.id] = r
	}
	if limit := s.cfg.FailAbove; limit > 0 && s.inFlight > limit {
		s.finish(r, record.Failed, fmt.Sprintf("the client has %d requests in flight", limit), s.loop.Now())
		return
	}
	if r.expected = h.Output; !s.cfg.KnownOutputs {
		r.expected = s.outputs.Expect(h.Adapter, r.maxNew)
	}
	s.route(r)
}

// route sends a request on, with the tokens that it has generated, unless the router
// refuses it. While no worker is on it may wait until one is.
func (s *sim) route(r *request) {
	if a := s.cfg.Router.Admission; a != nil && r.workerFirst < 0 {
		if why, _ := a.Refuse(s.question(r), s.routerView()); why != "" {
			s.finish(r, record.Rejected, why, s.loop.Now())
			return
		}
	}
	if !s.holds(r) {
		s.dispatch(r)
	}
}

// question is what a router is asked about a request.
func (s *sim) question(r *request) router.Request {
	q := router.Request{ID: r.id, Adapter: s.adapterOf(r), Prompt: r.Prompt + r.generated,
		MaxNew: r.maxNew - r.generated, Expected: max(r.expected-r.generated, 1)}
	q.Text, q.Known = r.Known(q.Prompt)
	return q
}

// dispatch sends a request to the worker that the router picks. Where none takes it,
// a new one is rejected, and another one failed.
func (s *sim) dispatch(r *request) {
	at, isNew := s.loop.Now(), r.workerFirst < 0
	status, reason := record.Failed, noFailover
	if isNew {
		status, reason = record.Rejected, "no worker available"
	}
	question, view := s.question(r), s.routerView()
	dest := s.cfg.Router.Policy.Route(question, view)
	if dest != router.None && (isNew || s.workers[dest].v.Up) { // new ones wait for a worker whose failure the router has not heard of
		w := &s.workers[dest]
		r.worker = int32(dest)
		if isNew {
			r.workerFirst = r.worker
			at += w.costs.Overhead
		}
		if reason = w.refuses(r); reason == "" {
			s.cfg.Router.Admission.Sent(question, dest, view)
			w.enqueue(r)
			s.adjust()
			return
		}
	}
	s.finish(r, status, reason, at)
}

// adapterOf is a request's adapter as the workload counts them.
func (s *sim) adapterOf(r *request) int32 {
	if int(r.Adapter) == len(s.adapters) {
		return trace.BaseModel
	}
	return r.Adapter
}

// routerView brings the view up to now.
func (s *sim) routerView() *router.View {
	s.view.Now = s.loop.Now().Seconds()
	if rt := s.cfg.Router; rt.ReadsKV && !(rt.ReadsFewKV && s.stale == nil) {
		for i := range s.workers {
			s.workers[i].v.KVUsed = s.workers[i].kvNow()
		}
	}
	if s.stale != nil {
		return s.stale.Update(&s.view)
	}
	return &s.view
}

// unfinishedReason is why requests end as record.Unfinished.
const unfinishedReason = "cut off at the end of the window"

// finish reports a request's end, which its client sees at time at, and
// forgets the request.
func (s *sim) finish(r *request, status record.Status, reason string, at tick.Ticks) {
	if at > s.window { // the client is gone before it sees this
		status, reason, at = record.Unfinished, unfinishedReason, s.window
	}
	rec := &s.rec
	*rec = record.Request{} // and field by field, as in alloc
	rec.ID, rec.Adapter, rec.Prompt, rec.Requested = r.id, s.adapterOf(r), r.Prompt, r.asked
	rec.Arrival, rec.Sent, rec.FirstToken, rec.Finish = r.arrival, r.seconds(r.sent), math.NaN(), r.seconds(at)
	rec.WorkerFirst, rec.WorkerLast, rec.Migrations = r.workerFirst, r.worker, r.migrations
	rec.ColdLoad, rec.Status, rec.Error = r.cold.Seconds(), status, reason
	rec.Cached = r.Found
	rec.Streamed = record.StreamingIf(!s.cfg.NoStream)
	if rec.Adapter >= 0 {
		rec.Rank = int32(s.adapters[rec.Adapter].Rank)
	}
	if status == record.Unfinished && r.first <= s.window && !s.cfg.NoStream {
		rec.FirstToken = r.seconds(r.first)
	}
	if status == record.OK {
		rec.Output = r.output
		s.outputs.Ended(rec.Adapter, r.output)
		if rec.FirstToken, rec.Gaps = r.seconds(r.first), r.gaps; s.cfg.NoStream {
			rec.FirstToken, rec.Gaps = rec.Finish, nil
		}
		s.workers[r.worker].stats.Requests++
	}
	s.cfg.Observer.Done(rec)
	for _, tell := range s.hooks.done {
		tell(rec)
	}
	s.done++
	if s.plan.byID != nil {
		delete(s.plan.byID, r.id)
	}
	if a := s.cfg.Router.Admission; (s.plan.learner != nil || a != nil) && status == record.OK {
		f := router.Finished{Adapter: rec.Adapter, Worker: r.worker, Output: r.output, Exec: (at - r.started).Seconds(), Now: s.loop.Now().Seconds()}
		if a.Finished(f); s.plan.learner != nil {
			s.plan.learner.Finished(f)
		}
	}
	r.id, r.moving = -1, notMoving
	s.end = max(s.end, at)
	s.free = append(s.free, r)
	if s.cfg.MaxConcurrency > 0 {
		s.releases.Push(heap.Entry[struct{}]{Key: int64(at)})
	} else {
		s.inFlight--
	}
}

// seconds converts a time of a request. A request sent the moment it arrives
// keeps the workload's own number, which ticks may not hold exactly.
func (r *request) seconds(t tick.Ticks) float64 {
	if t == r.arrived {
		return r.arrival
	}
	return t.Seconds()
}

// warmUp leaves the adapter of the first request in a GPU slot of the first
// worker that holds it.
func (s *sim) warmUp(adapter int32) {
	for i := range s.workers {
		if w := &s.workers[i]; adapter != trace.BaseModel && w.v.Adapters[adapter].Tier >= router.Host {
			w.takeSlot(adapter, -1)
			w.setTier(adapter, router.GPU)
			return
		}
	}
}

// cutOff ends the run at the end of its window: steps that are over by then
// count, and what is in flight ends unfinished. Requests that were not sent by
// then, in a closed loop say, have no part in the run.
func (s *sim) cutOff() {
	s.watch(s.window)
	s.loop.MoveTo(s.window)
	for i := range s.workers {
		s.workers[i].interrupted()
	}
	for _, r := range s.reqs {
		if r.id >= 0 {
			s.finish(r, record.Unfinished, unfinishedReason, s.loop.Now())
		}
	}
	if s.headT != tick.Never {
		s.requests-- // read, but not sent
	}
}
