// Package slora simulates the scheduler of S-LoRA (github.com/S-LoRA/S-LoRA, commit c1ddf488781e:
// slora/server/router), which is LightLLM's.
//
// Prefill and decode steps are separate. Requests are admitted first come, first served, last come, first
// served, or with early abort. The first request that does not fit blocks the queue. A request fits if memory
// lasts even if all requests use their full budgets. Adapters and KV cache share the memory: an adapter takes
// a part of it while it has running requests.
//
// Invariant: the memory that the admitted requests and their adapters will ever take is less than the
// capacity, so no request is preempted. The exception is memory reserved for the KV cache of requests from
// other workers.
package slora

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"lorasim/sim/engine"
	"lorasim/sim/lora"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
)

// maxWaitTokens is the number of decode steps between a prefill step and the next look at the queue, unless
// no request runs (RouterManager.max_wait_tokens in slora/server/router/manager.py).
const maxWaitTokens = 10

// A Scheduler is the S-LoRA scheduler of one engine. It implements [engine.Scheduler].
type Scheduler struct {
	e       *engine.Engine
	profile *profile.Engine
	since   int64          // the engine's decode steps at the latest prefill step, see Update
	ends    []need         // needs of running and chosen requests while a step is formed, the largest left first
	latest  bool           // the latest request is next, not the earliest
	abort   *abortReqQueue // nil: no early abort
}

// need is the number of a request's tokens in the KV cache, and the number of tokens that it may still take
// (cache_len_list in slora/server/router/req_queue.py).
type need struct{ has, left int64 }

// Kind returns the kind of engine with S-LoRA's scheduler and rules.
func Kind() engine.Kind { return engine.Kind{Scheduler: newScheduler, Rules: rules} }

func rules(*profile.Profile) engine.Rules {
	return engine.Rules{LoRA: lora.Rules{Unified: true, SlotlessBase: true}}
}

// newScheduler returns a new scheduler for an engine. The error is always nil.
func newScheduler(e *engine.Engine) (engine.Scheduler, error) {
	s := &Scheduler{e: e, profile: &e.Profile, since: e.Batch.Steps}
	s.latest = s.profile.SchedulePolicy == profile.OrderLIFO
	if s.profile.EnableAbort {
		s.abort = newAbortReqQueue()
	}
	return s, nil
}

// Schedule starts the next step (RouterManager._step).
func (s *Scheduler) Schedule() {
	e := s.e
	for {
		if e.Queue.Len() > 0 && s.looks() && s.generateNewBatch() {
			return
		}
		e.Gate.Exhausted() // whether to look is known without it
		switch {
		case e.Batch.Len() > 0:
			if s.makeRoom(); e.Batch.Len() > 0 {
				e.RunDecode(s.stepsToLook())
				return
			}
		case e.Queue.Len() == 0 || e.KV.Reserved() > 0:
			if s.abort != nil && e.Queue.Len() == 0 {
				s.abort.rest(e.Loop.Now())
			}
			return
		default:
			e.FailHead() // nothing runs, so nothing would ever change
		}
	}
}

// looks reports whether the next step may be a prefill step.
func (s *Scheduler) looks() bool {
	return s.e.Batch.Len() == 0 || s.e.Batch.Steps-s.since >= maxWaitTokens
}

// stepsToLook returns the number of decode steps until the next look at the queue. A look may succeed after
// any step, even if no request has ended: the peak of the memory that a waiting request adds to moves while
// running requests approach their ends.
func (s *Scheduler) stepsToLook() int64 {
	if s.e.Queue.Len() == 0 {
		return math.MaxInt64 // a request that comes ends the run
	}
	return max(maxWaitTokens-(s.e.Batch.Steps-s.since), 1)
}

// next returns the waiting request that is served first; nil: none.
func (s *Scheduler) next() *engine.Request {
	if s.latest {
		return s.e.Queue.Newest()
	}
	return s.e.Queue.Oldest()
}

// generateNewBatch forms a prefill step from the waiting queue and starts it after its adapters are loaded
// (ReqQueue.generate_new_batch). It reports whether there was one.
func (s *Scheduler) generateNewBatch() bool {
	e := s.e
	if s.abort != nil {
		s.latest = s.abort.look(e)
	}
	e.Step.Open(e.Batch.Steps == 0)
	s.chooseRequests()
	if len(e.Step.Prompts) == 0 {
		return e.Pause(e.Step.Stall) // for adapters of requests that bring their KV cache, or that failed to load
	}
	if s.abort != nil {
		s.abort.formed(len(e.Step.Prompts), e.Queue.Len())
	}
	e.PrepareAdapters(false)
	e.Run(false)
	return true
}

// chooseRequests takes requests from the queue into the step being formed, until one does not fit.
func (s *Scheduler) chooseRequests() {
	e := s.e
	s.initCacheList()
	tokens, limit := int64(0), s.profile.PrefillTokens(e.KV.CapacityTokens())
	for r := s.next(); r != nil; r = s.next() {
		n := int64(r.Prompt + r.Generated)
		if r.TransferredKV > 0 {
			n = 0
		}
		if !s.canAddNewReq(r) || tokens+n > limit {
			break
		}
		resumed := r.StartedAt != tick.Never
		if !e.Start(r) {
			s.initCacheList() // without it: its adapter does not load, and it is gone
			continue
		}
		if r.TransferredKV > 0 {
			e.StartTransferred(r)
			continue
		}
		e.Report.Admitted(r, resumed)
		tokens += n
		e.AddPrompt(r, n)
	}
}

// initCacheList lists the needs of the running and the chosen requests (_init_cache_list).
func (s *Scheduler) initCacheList() {
	e := s.e
	s.ends = s.ends[:0]
	for k := range e.Batch.Len() {
		r := e.Batch.At(k)
		has := int64(r.Prompt) + e.Batch.Generated(r)
		s.ends = append(s.ends, need{has, e.Batch.Left(r) - 1})
	}
	for _, c := range e.Step.Prompts {
		s.ends = append(s.ends, newNeed(c.Request))
	}
	slices.SortFunc(s.ends, later)
}

// newNeed returns the need of a request that is about to run. Its prompt gives it its next token.
func newNeed(r *engine.Request) need {
	n := need{int64(r.Prompt + r.Generated), int64(r.MaxNew-r.Generated) - 1}
	if r.TransferredKV == 0 {
		n.has++
	}
	return n
}

// later orders needs by the ends of their requests, the last first.
func later(a, b need) int { return cmp.Compare(b.left, a.left) }

// canAddNewReq reports whether memory lasts with one more request (_can_add_new_req), and adds its need to
// the list. Memory is fullest when a request ends: the requests that end later have then taken as many more
// tokens as it has.
func (s *Scheduler) canAddNewReq(r *engine.Request) bool {
	e, n := s.e, newNeed(r)
	at, _ := slices.BinarySearchFunc(s.ends, n, later)
	s.ends = slices.Insert(s.ends, at, n)
	adapters := e.KV.Adapters()
	if a := &r.Row.Adapter; !a.Active() {
		adapters += e.Rows.Cells(a.Index)
	}
	has, peak := int64(0), int64(0)
	for k, n := range s.ends {
		has += n.has
		peak = max(peak, has+n.left*int64(k+1))
	}
	return peak < e.KV.CapacityTokens()-e.KV.Reserved()-adapters && len(s.ends) <= s.profile.MaxRunningRequests
}

// makeRoom preempts the newest requests until there is memory for the next decode step. S-LoRA has no such
// case: it occurs only if memory has been reserved meanwhile for a request that comes from another worker with its KV
// cache.
func (s *Scheduler) makeRoom() {
	e := s.e
	for e.Batch.Len() > 0 && e.KV.StepNeed(e.Batch.Steps) > e.KV.Free() {
		r := slices.MaxFunc(e.Batch.Requests(), func(a, b *engine.Request) int {
			return cmp.Compare(a.Order(), b.Order())
		})
		if e.Remove(r); e.Batch.Len() == 0 && e.KV.Reserved() == 0 {
			e.Finish(r, record.Failed, "out of KV cache")
			return
		}
		e.Preempt(r, s.profile.SchedulePolicy != profile.OrderLIFO)
	}
}

// Update ends a prefill step. The decode steps until the next look at the queue count from here.
func (s *Scheduler) Update(bool) {
	s.e.EndPrompts(false)
	s.since = s.e.Batch.Steps
	if s.abort != nil {
		s.abort.next = s.since + maxWaitTokens
	}
}

// Refuse returns the reason why the engine can never serve a request, or "". A request that does not fit in
// memory even alone is refused here; S-LoRA lets it wait for ever.
func (s *Scheduler) Refuse(r *engine.Request) string {
	context, kv := int64(s.profile.ContextLength), s.e.KV.CapacityTokens()
	prompt := int64(r.Prompt)
	if prompt >= context {
		return fmt.Sprintf(engine.PromptTooLarge, context)
	}
	switch s.profile.ContextOverflow {
	case profile.OverflowReject:
		if prompt+int64(r.MaxNew) > context {
			return fmt.Sprintf(engine.BudgetTooLarge, context)
		}
	case profile.OverflowPrompt:
		r.MaxNew = int32(min(int64(r.MaxNew), context-prompt))
		r.Output = min(r.Output, r.MaxNew)
	}
	cells := s.e.Rows.Cells(r.Adapter)
	// it may come back with nearly all its tokens generated, and then has a prompt of that length
	longest := prompt + int64(r.MaxNew)
	if longest >= kv-cells || longest-1 > s.profile.PrefillTokens(kv) {
		return fmt.Sprintf(engine.KVTooSmall, kv)
	}
	if s.profile.IgnoreEOS {
		r.Output = r.MaxNew
	}
	return ""
}

// Accept does nothing: Refuse has already limited the budget.
func (s *Scheduler) Accept(*engine.Request) {}

// MayWait returns true: every request may wait.
func (s *Scheduler) MayWait(*engine.Request) bool { return true }

// Drop removes a request from the batch. It returns false for a request that is prefilling.
func (s *Scheduler) Drop(r *engine.Request) bool {
	if r.State() == engine.Filling {
		return false
	}
	s.e.Remove(r)
	return true
}

// Running returns the number of running requests.
func (s *Scheduler) Running() int { return s.e.Batch.Len() }

// LeapUntil returns [tick.Never]: decode steps alone require no decision.
func (s *Scheduler) LeapUntil() tick.Ticks { return tick.Never }

// Orphans lists the requests in the front end and in a prefill step.
func (s *Scheduler) Orphans(entering []*engine.Request) []*engine.Request {
	rs := slices.Clone(entering)
	for _, c := range s.e.Step.Prompts {
		rs = append(rs, c.Request)
	}
	return rs
}

// Check returns an error if an invariant does not hold.
func (s *Scheduler) Check() error {
	if s.since > s.e.Batch.Steps {
		return fmt.Errorf("slora: the latest prefill step was after %d decode steps, there were %d", s.since,
			s.e.Batch.Steps)
	}
	of := map[*engine.Adapter]bool{}
	for k := range s.e.Batch.Len() {
		of[s.e.Batch.At(k).Row] = true
	}
	for _, r := range s.Orphans(nil) {
		of[r.Row] = true
	}
	cells := int64(0)
	for a := range of {
		cells += s.e.Rows.Cells(a.Index)
	}
	if cells != s.e.KV.Adapters() {
		return fmt.Errorf("slora: adapters in use take %d KV tokens, counted %d", cells, s.e.KV.Adapters())
	}
	return nil
}
