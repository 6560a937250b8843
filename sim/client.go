package sim

import (
	"math"

	"lorasim/internal/record"
	"lorasim/internal/tick"
	"lorasim/router"
	"lorasim/trace"
)

// send hands the requests that are due, and for which the closed loop has
// room, to the router.
func (s *sim) send() error {
	for len(s.releases) > 0 && s.releases[0] <= s.now {
		s.releases.pop()
		s.inFlight--
	}
	for s.headT <= s.now && s.hasRoom() {
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
	i := s.alloc()
	r := &s.reqs[i]
	*r = request{} // and field by field: a literal is built beside it and copied
	r.id, r.arrival, r.arrived, r.sent = h.ID, h.Arrival, s.headT, s.now
	r.first, r.started = tick.Never, tick.Never
	r.prompt, r.output, r.maxNew, r.adapter = h.Prompt, h.Output, h.Budget(), h.Adapter
	r.asked = r.maxNew
	r.workerFirst, r.worker = -1, -1
	if s.plan.byID != nil {
		s.plan.byID[r.id] = i
	}
	if limit := s.cfg.FailAbove; limit > 0 && s.inFlight > limit {
		s.finish(i, record.Failed, s.tooMany, s.now)
		return
	}
	if r.expected = h.Output; !s.cfg.KnownOutputs {
		r.expected = s.outputs.Expect(h.Adapter, r.maxNew)
	}
	dest := s.cfg.Router.Policy.Route(router.Request{ID: h.ID, Adapter: h.Adapter, Prompt: h.Prompt, MaxNew: r.maxNew, Expected: r.expected}, s.routerView())
	if h.Adapter == trace.BaseModel {
		r.adapter = int32(len(s.adapters)) // the base model has the last row of a worker's adapter table
	}
	if dest == router.None {
		s.finish(i, record.Rejected, "no worker available", s.now)
		return
	}
	r.workerFirst, r.worker = int32(dest), int32(dest)
	w := &s.workers[dest]
	if reason := w.refuses(r); reason != "" {
		s.finish(i, record.Rejected, reason, s.now+w.costs.Overhead)
		return
	}
	w.enqueue(i)
	s.adjust()
}

// routerView brings the view up to now.
func (s *sim) routerView() *router.View {
	s.view.Now = s.now.Seconds()
	if s.cfg.Router.ReadsKV {
		for i := range s.workers {
			s.workers[i].v.KVUsed = s.workers[i].kvNow()
		}
	}
	if s.stale != nil {
		return s.stale.Update(&s.view)
	}
	return &s.view
}

// finish reports a request's end, which its client sees at time at, and
// forgets the request.
func (s *sim) finish(i int32, status record.Status, reason string, at tick.Ticks) {
	r := &s.reqs[i]
	if at > s.window { // the client is gone before it sees this
		status, reason, at = record.Unfinished, unfinishedReason, s.window
	}
	rec := &s.rec
	*rec = record.Request{} // and field by field, as in sendHead
	rec.ID, rec.Adapter, rec.Prompt, rec.Requested = r.id, r.adapter, r.prompt, r.asked
	rec.Arrival, rec.Sent, rec.FirstToken, rec.Finish = r.arrival, s.seconds(r, r.sent), math.NaN(), s.seconds(r, at)
	rec.WorkerFirst, rec.WorkerLast, rec.Migrations = r.workerFirst, r.worker, r.migrations
	rec.ColdLoad, rec.Status, rec.Error = r.cold.Seconds(), status, reason
	rec.Streamed = record.StreamingIf(!s.cfg.NoStream)
	if int(r.adapter) == len(s.adapters) {
		rec.Adapter = trace.BaseModel
	} else if r.adapter >= 0 {
		rec.Rank = int32(s.adapters[r.adapter].Rank)
	}
	if status == record.OK {
		rec.Output = r.output
		s.outputs.Ended(rec.Adapter, r.output)
		rec.FirstToken = s.seconds(r, r.first)
		if s.cfg.NoStream {
			rec.FirstToken = rec.Finish
		}
		s.workers[r.worker].stats.Requests++
		if s.gaps != nil && !s.cfg.NoStream {
			rec.Gaps = s.gaps[i]
		}
	}
	s.obs.Done(rec)
	for _, o := range s.others.ends {
		o.Done(rec)
	}
	s.done++
	if s.plan.byID != nil {
		delete(s.plan.byID, r.id)
	}
	if s.plan.learner != nil && status == record.OK {
		s.plan.learner.Finished(router.Finished{Adapter: rec.Adapter, Worker: r.worker, Output: r.output,
			Exec: (at - r.started).Seconds(), Now: s.now.Seconds()})
	}
	r.id, r.moving = -1, notMoving
	s.end = max(s.end, at)
	s.free = append(s.free, i)
	if s.cfg.MaxConcurrency > 0 {
		s.releases.push(at)
	} else {
		s.inFlight--
	}
}

// seconds converts a time of a request. A request sent the moment it arrives
// keeps the workload's own number, which ticks may not hold exactly.
func (s *sim) seconds(r *request, t tick.Ticks) float64 {
	if t == r.arrived {
		return r.arrival
	}
	return t.Seconds()
}

// warmUp leaves the adapter of the first request in a GPU slot of the first
// worker that holds it.
func (s *sim) warmUp(adapter int32) {
	if adapter == trace.BaseModel {
		return
	}
	for i := range s.workers {
		if w := &s.workers[i]; w.v.Adapters[adapter].Tier >= router.Host {
			w.takeSlot(adapter, -1)
			w.setTier(adapter, router.GPU)
			return
		}
	}
}
