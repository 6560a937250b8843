// Package sglang simulates the scheduler of sglang (managers/scheduler.py). Each step is a prefill step if
// one can be formed, else a decode step. Files and methods have the names of their counterparts in sglang.
//
// Invariants, between events ([Scheduler.Check]): preempted requests are in the queue; at most one request
// has part of its prompt computed; exactly the requests that a merged mode does not run are parked; an
// adapter drains for one other, and no other adapter drains for that one.
package sglang

import (
	"fmt"
	"slices"

	"lorasim/sim/engine"
	"lorasim/sim/kvcache"
	"lorasim/sim/profile"
	"lorasim/sim/tick"
)

// A Scheduler is the sglang scheduler of one engine. It implements [engine.Scheduler].
type Scheduler struct {
	e       *engine.Engine
	profile *profile.Engine
	modes   *modes // merged and unmerged execution; nil: the backend has no modes
	drainer drainer
	ratio   newTokenRatio

	headOfLineBlock    bool
	priorityPreemption bool              // requests of better priority preempt running ones
	preemptList        []*engine.Request // preempted for the step being formed
	chunkedReq         *engine.Request   // request with a partly prefilled prompt; nil: none
	runningWasEmpty    bool              // the batch was empty when the prefill step began

	adder     adder
	fcfsFirst func(a *engine.Adapter) *engine.Request
	among     func() []*engine.Adapter
}

// Kind returns the kind of engine with sglang's scheduler and rules.
func Kind() engine.Kind { return engine.Kind{Scheduler: newScheduler, Rules: rules} }

// rules returns the rules of sglang outside the scheduler.
func rules(p *profile.Profile) (r engine.Rules) {
	q := &p.Engine
	switch {
	case !q.PrefixCache:
	case q.PrefixEviction == profile.EvictNodes:
		r.Prefixes = kvcache.RadixNodes
	default:
		r.Prefixes = kvcache.RadixPages
	}
	r.Async, r.Overlaps, r.KeepsSlot = q.OverlapSchedule, q.OverlapSchedule, q.OverlapSchedule
	r.LoRA.Displaces = q.AdapterLoading == profile.LoadBlocking && !merges(p)
	return r
}

// merges reports whether adapters are merged into the weights.
func merges(p *profile.Profile) bool {
	b := p.Latency.LoRA.Backend
	return b == profile.BackendMerged || b == profile.BackendDLoRA
}

// newScheduler returns a new scheduler for an engine. The error is always nil.
func newScheduler(e *engine.Engine) (engine.Scheduler, error) {
	p := &e.Profile
	s := &Scheduler{e: e, profile: p, headOfLineBlock: p.HeadOfLine == profile.HeadOfLineBlock}
	s.priorityPreemption = e.Policy.ByPriority() && !p.NoPriorityPreemption
	s.ratio = newTokenRatio{value: p.NewTokenRatio, since: e.Batch.Steps}
	if merges(e.Costs.Profile()) {
		s.modes = newModes(s)
	}
	s.drainer = newDrainer(s)
	s.fcfsFirst = s.canScheduleLoRA
	s.among = func() []*engine.Adapter { return e.Queue.Candidates(&e.LoRA, e.Rows) }
	s.adder.s = s
	g := &e.Gate
	g.ArrivalOpens, g.LoadOpens, g.Always = s.priorityPreemption, s.headOfLineBlock, s.modes != nil
	return s, nil
}

// Schedule starts the next step (get_next_batch_to_run), or forms it while another one is under way.
func (s *Scheduler) Schedule() {
	e := s.e
	if e.Pipeline != nil {
		s.scheduleAhead()
		return
	}
	for {
		e.LoRA.TrimHost()
		s.updateGate()
		if s.modes != nil && e.Pause(s.modes.choose()) {
			return
		}
		if s.chunkedReq != nil || e.Gate.Open() && e.Queue.Len() > 0 {
			if s.getNewBatchPrefill() {
				return
			}
			e.Gate.Exhausted()
		}
		switch {
		case e.Batch.Len() > 0: // update_running_batch
			if s.retractDecode(); e.Batch.Len() > 0 {
				e.RunDecode(s.leapLimit())
				return
			}
			// its last request failed for lack of memory; look at the queue again
		case s.modes != nil && len(s.modes.parked) > 0:
			if e.Pause(s.modes.resume()) {
				return
			}
		case e.Queue.Len() > 0 && e.LoRA.Idle() && e.KV.Reserved() == 0:
			e.FailHead() // nothing runs or loads, so nothing would ever change
			if s.modes != nil {
				s.modes.decided = false
			}
		default:
			// an idle server forgets its estimate
			s.ratio = newTokenRatio{value: s.profile.NewTokenRatio, since: e.Batch.Steps}
			return
		}
	}
}

// updateGate opens the gate if a look at the queue may help.
func (s *Scheduler) updateGate() {
	g := &s.e.Gate
	if s.Running() == 0 {
		g.SetFull(false) // no running request is left to free memory
	}
	if s.drainer.on && s.drainer.starvesAt() <= s.e.Loop.Now() {
		g.Look()
	}
	if s.priorityPreemption {
		s.e.Gate.RequestLeft()
	}
}

// leapLimit returns the number of decode steps for which the scheduler makes no decision.
func (s *Scheduler) leapLimit() int64 {
	limit := int64(1 << 62)
	if s.priorityPreemption && s.e.Queue.Len() > 0 {
		limit = 1
	}
	if s.modes != nil {
		limit = min(limit, s.modes.stepLimit())
		s.modes.fresh, s.modes.decided = false, false
	}
	return limit
}

// LeapUntil returns the time of the drainer's next look at the queue. It returns the present time if
// priorities require a decision after each step.
func (s *Scheduler) LeapUntil() tick.Ticks {
	if s.priorityPreemption && s.e.Queue.Len() > 0 {
		return s.e.Loop.Now()
	}
	if !s.drainer.on {
		return tick.Never
	}
	return s.drainer.starvesAt()
}

// Running returns the number of running requests: those in the batch, parked, or with their last token in
// flight.
func (s *Scheduler) Running() int {
	n := s.e.Batch.Len() + s.e.Pipeline.Len()
	if s.modes != nil {
		n += len(s.modes.parked)
	}
	return n
}

// Update ends a prefill step (process_batch_result_prefill). Under the overlap schedule it begins a step of
// any kind.
func (s *Scheduler) Update(mixed bool) {
	e := s.e
	switch {
	case e.Pipeline != nil:
		s.beginStep(mixed)
		return
	case mixed:
		s.updateMixed()
		return
	}
	// sglang keeps the note that the queue finds no memory with the running batch: it goes when the chunked request is
	// taken out of the step's batch, and where that takes the place of an empty running batch (get_next_batch_to_run).
	reopens := len(e.Step.Prompts) > 0 && (s.chunkedReq != nil || s.runningWasEmpty)
	s.endPrompts()
	if reopens {
		e.Gate.RequestLeft()
	}
}

// updateMixed ends a prefill step that also decoded (_get_new_batch_prefill_raw, last part). Its batch
// replaces the running one, with the new requests in front. Such steps do not change the new-token ratio.
func (s *Scheduler) updateMixed() {
	e := s.e
	e.EndDecode()
	s.ratio.since++
	end := e.Batch.Front(len(e.Step.Prompts))
	s.endPrompts()
	end()
	e.Gate.RequestLeft()
}

func (s *Scheduler) endPrompts() {
	s.e.EndPrompts(true)
	if s.chunkedReq != nil {
		s.e.Books.Running++
	}
}

// Drop removes a request from the batch. It returns false for a request that is prefilling or parked.
func (s *Scheduler) Drop(r *engine.Request) bool {
	if r.State() == engine.Filling {
		return false
	}
	s.e.Remove(r)
	return true
}

// Orphans lists the requests in the front end, in a prefill step and parked.
func (s *Scheduler) Orphans(entering []*engine.Request) []*engine.Request {
	rs := slices.Clone(entering)
	for _, c := range s.e.Step.Prompts {
		if c.Request != s.chunkedReq {
			rs = append(rs, c.Request)
		}
	}
	if s.chunkedReq != nil {
		rs = append(rs, s.chunkedReq)
	}
	if s.modes != nil {
		rs = append(rs, s.modes.parked...)
	}
	return rs
}

// Check returns an error if an invariant does not hold.
func (s *Scheduler) Check() error {
	switch {
	case len(s.preemptList) > 0:
		return fmt.Errorf("sglang: %d preempted requests are in no queue", len(s.preemptList))
	case s.chunkedReq != nil && s.chunkedReq.State() != engine.Filling:
		return fmt.Errorf("sglang: request %d, whose prompt is split, is in state %d", s.chunkedReq.ID,
			s.chunkedReq.State())
	case !(s.ratio.value >= 0 && s.ratio.value <= max(1, s.profile.NewTokenRatio)):
		return fmt.Errorf("sglang: requests are expected to use %v of their budgets", s.ratio.value)
	case s.modes != nil:
		return s.modes.check()
	}
	return s.drainer.check()
}
