package engine

import (
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
)

// Decode steps are not simulated one by one. From start to end of a run only tokens grow, so a run is one event. Code
// that changes the batch or the slots in use calls Engine.Interrupt first. It also does before it changes the queue, if
// steps scan the queue, VTC counts or the drainer waits.

// RunDecode starts a run of decode steps: at most limit, and only steps without a change of the batch.
func (e *Engine) RunDecode(limit int64) {
	b, s := int64(e.Batch.Len()), &e.Step
	k := min(e.KV.StepsThatFit(e.Batch.Steps, b, e.Batch.steps()), limit)
	if e.Gate.Open() && e.Queue.n > 0 || e.cfg.Hooks.Token != nil || e.Report != nil {
		k = 1 // a request retracted just now may be taken back after one step; hooks see every token
	}
	s.clear()
	load := e.LoRA.PrepareBatch(nil, true)
	e.Stats.Stalled += load
	s.Work = profile.StepWork{}
	s.run = record.Steps{
		Start: e.Loop.Now() + load,
		First: e.stepTime(true),
		Incr:  e.Costs.PerKVToken * tick.Ticks(b),
		Count: k,
		Batch: b,
	}
	if t := e.sched.LeapUntil(); t != tick.Never && t < s.run.End(k) {
		s.run.Count = s.run.Until(max(t, e.Loop.Now()))
	}
	e.Report.scheduled(e, decode)
	e.run(decode, s.run.End(s.run.Count))
}

// cut ends the run of decode steps after the step under way.
func (e *Engine) cut() {
	s := &e.Step
	if k := s.run.Until(e.Loop.Now()); k < s.run.Count {
		s.run.Count = k
		e.Loop.Set(&e.timer, s.run.End(k))
	}
}

// KVTokens returns the number of KV tokens at this instant, including those of the run of steps under way.
func (e *Engine) KVTokens() int64 {
	return e.KV.Stored() + (e.Step.done(e.Loop.Now())-e.Pipeline.ahead())*e.Step.run.Batch
}

// KVTokensOf returns the number of KV tokens of a running request at this instant.
func (e *Engine) KVTokensOf(r *Request) int64 {
	return e.Batch.KVTokens(r) + e.Step.done(e.Loop.Now()) - e.Pipeline.ahead()
}

// EndDecode books the run of decode steps and ends the requests that have their last token.
func (e *Engine) EndDecode() {
	e.advance()
	for b := &e.Batch; len(b.heap) > 0 && b.heap[0].Key == b.Steps; {
		r := b.heap[0].Value
		e.Remove(r)
		e.Finish(r, record.OK, "")
	}
}

// advance books the steps of the run.
func (e *Engine) advance() {
	grow(e, e.Step.run.Count)
	observe(e, e.Step.run)
}

// grow books the growth of the batch by k decode steps.
func grow(e *Engine, k int64) {
	b, n := &e.Batch, int64(e.Batch.Len())
	e.LoRA.StampDecode()
	e.KV.Decode(b.Steps, n, k)
	b.Steps += k
	b.kvTokens += k * n
	b.maxNewLeft -= k * n
}

// observe reports the tokens of a run of decode steps. Its last step is the batch's latest.
func observe(e *Engine, run record.Steps) {
	b := &e.Batch
	e.Stats.DecodeSteps += run.Count
	e.Stats.PeakKV = max(e.Stats.PeakKV, e.KV.Stored())
	e.Books.KVUsed = e.KV.Stored()
	if e.cfg.TokenTimes {
		e.itl.record(b, &run)
	}
	if token := e.cfg.Hooks.Token; token != nil {
		for i := range b.heap {
			if r := b.heap[i].Value; r.Joined < b.Steps {
				token(r.ID, e.Loop.Now()+e.Costs.Overhead)
			}
		}
	}
	e.itl.report(run.End(1), e.cfg.Observer)
	last := run.End(run.Count)
	run.Start += e.Costs.Overhead
	e.cfg.Observer.Steps(run)
	e.itl.lastDecode, e.itl.older = last, run.Batch
}

// BookPartial books the completed part of the step under way, which does not end.
func (e *Engine) BookPartial() {
	if k := e.Step.done(e.Loop.Now()); k > 0 { // their tokens are out
		e.Step.run.Count = k
		if p := e.Pipeline; p != nil {
			p.advance()
			grow(e, 1)
		} else {
			e.advance()
		}
	}
	if e.Step.kind != idle {
		e.Stats.Busy += e.Loop.Now() - e.Step.began
	}
}
