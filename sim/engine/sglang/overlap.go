package sglang

import "lorasim/sim/engine"

// sglang's overlap schedule (Scheduler.event_loop_overlap in managers/scheduler.py): while a step runs, the next one is
// formed from the results up to the step before. Tokens in flight count only in the memory of a request
// (kv_committed_len), so it may still generate one token more than by the engine's batch.

// scheduleAhead forms the step after the one under way (get_next_batch_to_run). If the engine is idle, the
// step begins at once. It forms no step if all running requests have their last token in flight, or if these
// requests will free the memory that the others lack (update_running_batch): sglang then ends the step under
// way first.
func (s *Scheduler) scheduleAhead() {
	e, p := s.e, s.e.Pipeline
	for {
		e.LoRA.TrimHost()
		s.updateGate()
		if s.chunkedReq != nil || e.Gate.Open() && e.Queue.Len() > 0 {
			if s.getNewBatchPrefill() {
				return
			}
			e.Gate.Exhausted()
		}
		if e.Batch.Len() > 0 {
			if p.Len() > 0 && !s.checkDecodeMem() {
				return
			}
			if s.retractDecode(); e.Batch.Len() == 0 && p.Idle() {
				continue // its last request failed for lack of memory; look at the queue again
			}
		}
		switch {
		case e.Batch.Len() > 0:
			e.Step.Open(false)
			p.Plan(true)
			return
		case !p.Idle():
			return
		case e.Queue.Len() == 0 || !e.LoRA.Idle() || e.KV.Reserved() > 0:
			// an idle server forgets its estimate
			s.ratio = newTokenRatio{value: s.profile.NewTokenRatio, since: e.Batch.Steps}
			return
		}
		e.FailHead() // nothing runs or loads, so nothing would ever change
	}
}

// beginStep begins the formed step: the requests whose prompts it computes run from here on
// (get_next_batch_to_run merges last_batch before it forms the next step).
func (s *Scheduler) beginStep(mixed bool) {
	e := s.e
	if len(e.Step.Prompts) == 0 {
		return
	}
	reopens := s.chunkedReq != nil || s.runningWasEmpty || mixed
	if mixed {
		s.ratio.since++
		end := e.Batch.Front(len(e.Step.Prompts))
		e.Pipeline.EndPrompts()
		end()
	} else {
		e.Pipeline.EndPrompts()
	}
	if reopens {
		e.Gate.RequestLeft()
	}
}

// run starts the formed step, or schedules it after the one under way.
func (s *Scheduler) run(mixes bool) {
	if p := s.e.Pipeline; p != nil {
		p.Plan(mixes)
	} else {
		s.e.Run(mixes)
	}
}

// pause waits for the loads of a step without prompts. It returns false if there are none.
func (s *Scheduler) pause() bool {
	p := s.e.Pipeline
	if p == nil {
		return s.e.Pause(s.e.Step.Stall)
	}
	if s.e.Step.Stall > 0 {
		p.Plan(false)
	}
	return s.e.Step.Stall > 0
}

// runningReqs lists the running requests in no order, including those whose last token is in flight.
func (s *Scheduler) runningReqs() []*engine.Request {
	return append(s.e.Batch.Requests(), s.e.Pipeline.Ending()...)
}

// generated returns the number of known tokens of a running request, without tokens in flight.
func (s *Scheduler) generated(r *engine.Request) int64 {
	n := int64(r.Generated)
	if r.State() == engine.Running {
		n = s.e.Batch.Generated(r)
	}
	return n - s.e.Pipeline.InFlight(r)
}

// left returns the number of tokens that a running request may still generate, including tokens in flight.
func (s *Scheduler) left(r *engine.Request) int64 { return int64(r.MaxNew) - s.generated(r) }

// reserved returns the number of tokens that the running requests may still generate, each limited by
// clip_new_tokens.
func (s *Scheduler) reserved() int64 {
	b, p := &s.e.Batch, s.e.Pipeline
	if p == nil {
		return b.Reserved()
	}
	ending := int64(p.Len()) // one each
	if b.Clips() {
		sum := ending
		for k := range b.Len() {
			sum += min(s.left(b.At(k)), int64(s.profile.ClipNewTokens))
		}
		return sum
	}
	return b.Reserved() + p.TokensInFlight() + ending
}
