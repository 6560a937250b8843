package sglang

import (
	"lorasim/sim/engine"
	"lorasim/sim/profile"
	"lorasim/sim/record"
)

// retractDecode returns requests to the queue until there is memory for the next decode step. It takes those
// with the fewest generated tokens first, then those with the longest prompt, then the last in the batch. A
// request that is alone and still finds no memory fails (ScheduleBatch.retract_decode in
// managers/schedule_batch.py).
func (s *Scheduler) retractDecode() {
	e := s.e
	if s.checkDecodeMem() {
		return
	}
	for ok := false; !ok; ok = s.checkDecodeMem() {
		switch {
		case s.modes != nil && len(s.modes.parked) > 0:
			s.modes.retract()
		case e.Batch.Len() > 1:
			r := s.retractVictim()
			r.Retracted, r.PrefixTokens = true, 0
			s.preempt(r)
			s.makeFree(e.Batch.Len())
			e.Preempt(r, false)
			e.Report.RetractedOne()
		default:
			r := e.Batch.At(0)
			s.preempt(r)
			e.Finish(r, record.Failed, "out of KV cache")
			return
		}
	}
	s.ratio.afterRetract(s)
}

// checkDecodeMem reports whether there is memory for the next decode step. If not, only what requests hold stays in
// the prefix cache: sglang evicts before it finds that this is not enough (ScheduleBatch.check_decode_mem).
func (s *Scheduler) checkDecodeMem() bool {
	kv := &s.e.KV
	need := kv.StepNeed(s.e.Batch.Steps)
	if need <= kv.Free() {
		return true
	}
	kv.MakeFree(need * kv.PageSize())
	return false
}

// makeFree evicts from the prefix cache, after a retraction, what the next steps of the n other requests may need
// (release_req in managers/schedule_batch.py).
func (s *Scheduler) makeFree(n int) { s.e.KV.MakeFree(retractHeadroom * int64(n)) }

// preempt removes a running request from the batch and frees its KV cache. Its token in flight is lost: the
// result of the step under way skips retracted requests (process_batch_result_decode in
// batch_result_processor.py).
func (s *Scheduler) preempt(r *engine.Request) {
	if r.State() == engine.Ending {
		s.e.Pipeline.Preempt(r)
	} else {
		s.e.StopDecoding(r)
	}
	s.e.Free(r)
	s.e.Pipeline.Forget(r)
}

// retractVictim returns the request of the batch to retract.
func (s *Scheduler) retractVictim() *engine.Request {
	b := &s.e.Batch
	best := b.At(0)
	least := s.generated(best)
	for k := 1; k < b.Len(); k++ {
		r := b.At(k)
		d := least - s.generated(r)
		if d > 0 || d == 0 && (r.Prompt > best.Prompt || r.Prompt == best.Prompt && r.Order() > best.Order()) {
			best, least = r, least-d
		}
	}
	return best
}

// newTokenRatio is the share of their remaining budgets that running requests are expected to use
// (NewTokenRatioTracker). It is value in decode step since, and decreases from then on.
type newTokenRatio struct {
	value float64
	since int64
}

// retractHeadroom is the number of decode steps that the estimate after a retraction allows for (sglang's
// RETRACT_DECODE_STEPS).
const retractHeadroom = 20

// afterRetract sets the ratio from the tokens that the running requests have used
// (estimate_new_token_ratio_after_retract). The decode step that follows does not lower it
// (Scheduler.update_running_batch).
func (n *newTokenRatio) afterRetract(s *Scheduler) {
	b := &s.e.Batch
	var generated, maxNew int64
	for k := range b.Len() {
		r := b.At(k)
		generated += s.generated(r)
		maxNew += int64(r.MaxNew)
	}
	n.value = min(1, float64(generated+retractHeadroom*int64(b.Len()))/float64(maxNew+1))
	n.since = b.Steps + 1
}

// at returns the ratio after the given number of decode steps.
func (n *newTokenRatio) at(p *profile.Engine, steps int64) float64 {
	if steps < n.since {
		return n.value
	}
	lo := p.NewTokenRatio * p.NewTokenRatioMin
	decay := (p.NewTokenRatio - lo) / float64(p.NewTokenRatioSteps)
	return max(n.value-float64(decay*float64(steps-n.since)), lo)
}
