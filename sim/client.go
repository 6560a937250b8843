package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"lorasim/internal/heap"
	"lorasim/router"
	"lorasim/sim/engine"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
)

// request is one request in flight. Its ID is -1 if the entry is free.
type request struct {
	engine.Request
	arrival float64    // as the workload states it, s
	arrived tick.Ticks // the same in ticks
	sent    tick.Ticks
	asked   int32 // max_new_tokens as the client stated it

	workerFirst, worker, migrations int32

	dest   int32 // worker that it moves to
	copied int64 // KV tokens that a precopy has sent ahead

	needs, newest, version int32      // versions of its adapter: needed, the newest at its arrival, that of its worker
	age                    float64    // of its version at admission, s
	heldAt, waited         tick.Ticks // for a version: since when, and in all
}

// request returns the request of an engine's request.
func (s *sim) request(r *engine.Request) *request { return s.reqs[r.Slot] }

// alloc returns an unused request.
func (s *sim) alloc() *request {
	n := len(s.free)
	if n == 0 {
		r := &request{}
		r.Slot = int32(len(s.reqs))
		s.reqs = append(s.reqs, r)
		return r
	}
	r := s.free[n-1]
	s.free = s.free[:n-1]
	slot := r.Slot
	*r = request{} // and field by field: a literal is built beside it and copied
	r.Slot = slot
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
	if err := r.Check(len(s.view.Adapters)); err != nil {
		return fmt.Errorf("sim: request %d: %w", r.ID, err)
	}
	if r.Arrival >= tick.Max.Seconds() {
		return fmt.Errorf("sim: request %d arrives after %.4g days, expected at most %.0f; compress the workload's times",
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

// send gives the router the due requests, as far as the closed loop has room for them. There may be no end of requests
// that are due at one time, so it ends with ctx, too.
func (s *sim) send(ctx context.Context) error {
	for len(s.releases) > 0 && s.releases[0].Key <= int64(s.loop.Now()) {
		s.releases.Remove(0)
		s.inFlight--
	}
	for s.headT <= s.loop.Now() && s.hasRoom() {
		s.sendHead()
		if err := s.fetch(); err != nil {
			return err
		}
		if s.requests&0xfff == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

func (s *sim) sendHead() {
	h := &s.head
	s.inFlight++
	r := s.alloc()
	r.ID, r.arrival, r.arrived, r.sent = h.ID, h.Arrival, s.headT, s.loop.Now()
	r.FirstTokenAt, r.StartedAt = tick.Never, tick.Never
	r.Prompt, r.Output, r.MaxNew, r.Adapter = h.Prompt, h.Output, h.Budget(), h.Adapter
	r.Text, r.Reply = h.Text, h.Reply
	r.asked = r.MaxNew
	r.workerFirst, r.worker = -1, -1
	s.plan.sent.add(r, s.reqs)
	if h.Adapter == trace.BaseModel {
		r.Adapter = int32(len(s.adapters)) // the base model has the last row of a worker's adapter table
	}
	if limit := s.cfg.FailAbove; limit > 0 && s.inFlight > limit {
		s.finish(r, record.Failed, fmt.Sprintf("the client has %d requests in flight", limit), s.loop.Now())
		return
	}
	if r.Expected = h.Output; !s.cfg.KnownOutputs {
		r.Expected = s.outputs.Expect(h.Adapter, r.MaxNew)
	}
	s.route(r)
}

// route sends a request, with the tokens that it has generated, unless the router rejects it. While no worker is on,
// the request may wait for one.
func (s *sim) route(r *request) {
	if s.cfg.Router.Admission != nil && r.workerFirst < 0 {
		if why, _ := s.cfg.Router.Refuse(s.question(r), s.routerView()); why != "" {
			s.finish(r, record.Rejected, why, s.loop.Now())
			return
		}
	}
	if !s.holds(r) {
		s.dispatch(r)
	}
}

// question returns a request in the form in which the router sees it.
func (s *sim) question(r *request) router.Request {
	q := router.Request{ID: r.ID, Adapter: s.adapterOf(r), Prompt: r.Prompt + r.Generated,
		MaxNew: r.MaxNew - r.Generated, Expected: max(r.Expected-r.Generated, 1)}
	q.Text, q.Known = r.Known(q.Prompt)
	return q
}

// dispatch sends a request to the worker that the router picks. If no worker accepts it, a new request is rejected and
// an earlier one fails.
func (s *sim) dispatch(r *request) {
	at, isNew := s.loop.Now(), r.workerFirst < 0
	status, reason := record.Failed, noFailover
	if isNew {
		status, reason = record.Rejected, "no worker available"
	}
	question, view := s.question(r), s.routerView()
	d := s.cfg.Router.Route(question, view)
	dest := d.Worker
	if d.Err != nil && s.fault == nil {
		s.fault = d.Err
	}
	if d.Refusal != nil && isNew {
		reason = d.Refusal.Reason
	}
	if dest != router.None {
		s.noteRequest(router.Sent, r, int32(dest))
	}
	// new ones wait for a worker whose failure the router has not heard of
	if dest != router.None && (isNew || s.workers[dest].v.Up) {
		w := &s.workers[dest]
		r.worker = int32(dest)
		if isNew {
			r.workerFirst = r.worker
			at += w.costs.Overhead
		}
		if reason = w.engine.Refuse(&r.Request); reason == "" {
			s.cfg.Router.Sent(question, dest, view)
			w.send(r)
			s.change(d.Change)
			return
		}
	}
	if dest != router.None {
		s.noteRequest(router.Left, r, int32(dest))
		s.change(d.Change) // the policy counts on it, whatever became of the request
	}
	s.finish(r, status, reason, at)
}

// adapterOf returns a request's adapter by its index in the workload.
func (s *sim) adapterOf(r *request) int32 {
	if s.push != nil {
		return s.push.adapter(r.Adapter)
	}
	if int(r.Adapter) == len(s.adapters) {
		return trace.BaseModel
	}
	return r.Adapter
}

// routerView returns the router's view, updated to the current time.
func (s *sim) routerView() *router.View {
	s.view.Now = s.loop.Now().Seconds()
	if rt := s.cfg.Router; rt.ReadsKV && !(rt.ReadsFewKV && s.stale == nil) {
		for i := range s.workers {
			s.workers[i].v.KVUsed = s.workers[i].engine.KVTokens()
		}
	}
	if s.stale != nil {
		return s.stale.Update(&s.view)
	}
	return &s.view
}

// unfinishedReason is the reason of requests that end as record.Unfinished.
const unfinishedReason = "cut off at the end of the window"

// finish reports a request's end, which its client sees at time at, and frees the request.
func (s *sim) finish(r *request, status record.Status, reason string, at tick.Ticks) {
	if at > s.window { // the client is gone before it sees this
		status, reason, at = record.Unfinished, unfinishedReason, s.window
	}
	rec := &s.rec
	*rec = record.Request{} // and field by field, as in alloc
	rec.ID, rec.Adapter, rec.Prompt, rec.Requested = r.ID, s.adapterOf(r), r.Prompt, r.asked
	rec.Arrival, rec.Sent, rec.FirstToken, rec.Finish = r.arrival, r.seconds(r.sent), math.NaN(), r.seconds(at)
	rec.WorkerFirst, rec.WorkerLast, rec.Migrations = r.workerFirst, r.worker, r.migrations
	rec.ColdLoad, rec.Status, rec.Error = r.ColdLoad.Seconds(), status, reason
	rec.Cached = r.Found
	rec.Streamed = record.StreamingIf(!s.cfg.NoStream)
	if rec.Adapter >= 0 {
		rec.Rank = int32(s.adapters[rec.Adapter].Rank)
	}
	if s.push != nil {
		s.push.record(r, rec)
	}
	if status == record.Unfinished && r.FirstTokenAt <= s.window && !s.cfg.NoStream {
		rec.FirstToken = r.seconds(r.FirstTokenAt)
	}
	if status == record.OK {
		rec.Output = r.Output
		s.outputs.Ended(rec.Adapter, r.Output)
		if rec.FirstToken, rec.Gaps = r.seconds(r.FirstTokenAt), r.Gaps; s.cfg.NoStream {
			rec.FirstToken, rec.Gaps = rec.Finish, nil
		}
		s.workers[r.worker].finished++
	}
	s.cfg.Observer.Done(rec)
	if s.events.Wants(record.EventEnded) {
		s.emit(record.Event{Kind: record.EventEnded, Worker: r.worker, ID: r.ID, Adapter: rec.Adapter, Request: rec})
	}
	s.done++
	if status == record.OK {
		s.note(router.Event{Kind: router.Finished, Now: s.loop.Now().Seconds(), ID: rec.ID, Adapter: rec.Adapter,
			Worker: r.worker, Output: r.Output, Exec: (at - r.StartedAt).Seconds(), E2E: rec.E2E(), TTFT: rec.TTFT()})
	}
	r.ID, r.Leaving = -1, engine.Staying
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

// warmUp puts the adapter of the first request into a GPU slot of the first worker that holds it.
func (s *sim) warmUp(adapter int32) {
	for i := range s.workers {
		if w := &s.workers[i]; adapter != trace.BaseModel && w.v.Adapter(adapter).Tier >= router.Host {
			w.engine.LoRA.WarmUp(&w.adapter(adapter).Adapter)
			return
		}
	}
}

// cutOff ends the run at the end of its window. Steps that have ended count, and requests in flight end as Unfinished.
// Requests that were not sent, for example in a closed loop, are not part of the run.
func (s *sim) cutOff() {
	s.watch(s.window)
	s.loop.MoveTo(s.window)
	for i := range s.workers {
		s.workers[i].engine.BookPartial()
	}
	for _, r := range s.reqs {
		if r.ID >= 0 {
			s.finish(r, record.Unfinished, unfinishedReason, s.loop.Now())
		}
	}
	if s.headT != tick.Never {
		s.requests-- // read, but not sent
	}
}
