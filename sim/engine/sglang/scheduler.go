// Package sglang is the scheduler of sglang (managers/scheduler.py): prefill steps if one can be formed, else decode
// steps. File and method names are sglang's where it has the same part.
//
// Invariants, between events ([Scheduler.Check]): requests that made way are in the queue; at most one request has part
// of its prompt computed; the requests that a merged mode does not run are parked, and no others; an adapter drains for
// one other, which no other drains for.
package sglang

import (
	"fmt"
	"slices"

	"lorasim/sim/engine"
	"lorasim/sim/kvcache"
	"lorasim/sim/profile"
	"lorasim/sim/tick"
)

// Scheduler is the scheduler of one engine.
type Scheduler struct {
	e       *engine.Engine
	profile *profile.Engine
	modes   *modes // merged or unmerged; nil: the backend knows no such modes
	drainer drainer
	ratio   newTokenRatio

	headOfLineBlock    bool
	priorityPreemption bool              // running requests make way for those of better priority
	preemptList        []*engine.Request // in the step that is being formed
	chunkedReq         *engine.Request   // whose prompt is only partly prefilled
	runningWasEmpty    bool              // the batch was empty when the prefill step began

	adder     adder
	choices   []*engine.Adapter // reused
	fcfsFirst func(a *engine.Adapter) *engine.Request
	among     func() []*engine.Adapter
}

// Kind is sglang's kind of engine.
func Kind() engine.Kind { return engine.Kind{Scheduler: New, Rules: rules} }

// rules are those of sglang outside the scheduler.
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

// merges says whether adapters are merged into the weights.
func merges(p *profile.Profile) bool {
	b := p.Latency.LoRA.Backend
	return b == profile.BackendMerged || b == profile.BackendDLoRA
}

// New returns the scheduler of an engine that is made.
func New(e *engine.Engine) (engine.Scheduler, error) {
	p := &e.Profile
	s := &Scheduler{e: e, profile: p, headOfLineBlock: p.HeadOfLine == profile.HeadOfLineBlock}
	s.priorityPreemption = e.Policy.ByPriority() && !p.NoPriorityPreemption
	s.ratio = newTokenRatio{value: p.NewTokenRatio, since: e.Batch.Steps}
	if merges(e.Costs.Profile()) {
		s.modes = newModes(s)
	}
	s.drainer = newDrainer(s)
	s.fcfsFirst, s.among = s.canScheduleLoRA, s.candidates
	s.adder.s = s
	g := &e.Gate
	g.ArrivalOpens, g.LoadOpens, g.Always = s.priorityPreemption, s.headOfLineBlock, s.modes != nil
	return s, nil
}

// Schedule starts the next step (get_next_batch_to_run), or forms it where another one is under way.
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

// updateGate opens the gate where a look at the queue may help.
func (s *Scheduler) updateGate() {
	g := &s.e.Gate
	if s.Running() == 0 {
		g.SetFull(false) // nobody is left who could make room
	}
	if s.drainer.on && s.drainer.starvesAt() <= s.e.Loop.Now() {
		g.Look()
	}
	if s.priorityPreemption {
		s.e.Gate.RequestLeft()
	}
}

// leapLimit is the number of decode steps in which it would decide nothing.
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

// LeapUntil is when the drainer has to look at the queue next, or now where each step does for the sake of priorities.
func (s *Scheduler) LeapUntil() tick.Ticks {
	if s.priorityPreemption && s.e.Queue.Len() > 0 {
		return s.e.Loop.Now()
	}
	if !s.drainer.on {
		return tick.Never
	}
	return s.drainer.starvesAt()
}

// Running is the number of running requests: those in the batch, parked, or whose last token is in flight.
func (s *Scheduler) Running() int {
	n := s.e.Batch.Len() + s.e.Pipeline.Len()
	if s.modes != nil {
		n += len(s.modes.parked)
	}
	return n
}

// Update ends a prefill step (process_batch_result_prefill). Under the overlap schedule it begins any step.
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

// updateMixed ends a prefill step that took the running requests along (_get_new_batch_prefill_raw, last part): its
// batch replaces the running one, with the new requests in front. Such steps leave the new-token ratio as it is.
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

// Drop takes a request out of the batch; one that is being prefilled, or parked, has to go on.
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
