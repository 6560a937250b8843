// Package vllm simulates the scheduler of vLLM (V1 engine, version 0.32: v1/core/sched/scheduler.py,
// Scheduler.schedule).
//
// There are no separate prefill and decode steps: each step has a budget of max_num_batched_tokens. The
// running requests use it first, in the order of their admission. A decoding request takes one token, another
// one a chunk of its prompt. The rest of the budget goes to waiting requests, first come, first served. A
// request whose adapter finds none of the max_loras slots is skipped; the base model needs no slot.
//
// Memory is allocated as tokens come, not reserved. If it runs out, the newest running request is preempted:
// it loses its KV cache and goes to the head of the queue, and the step admits no waiting request.
package vllm

import (
	"fmt"
	"math"
	"slices"

	"lorasim/sim/engine"
	"lorasim/sim/kvcache"
	"lorasim/sim/lora"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
)

// A Scheduler is the vLLM scheduler of one engine. It implements [engine.Scheduler]. Decoding requests form
// the engine's batch. Steps in which all requests only decode are simulated as runs.
type Scheduler struct {
	e       *engine.Engine
	profile *profile.Engine
	// prefilling are the running requests whose prompt is partly computed, in the order of their admission.
	prefilling []*engine.Request
	goesOn     bool // version 0.33: requests after one that has preempted itself get tokens
	canRun     func(a *engine.Adapter) *engine.Request
	among      func() []*engine.Adapter
}

// Kind returns the kind of engine with vLLM's scheduler and rules.
func Kind() engine.Kind { return engine.Kind{Scheduler: newScheduler, Rules: rules} }

// rules returns the rules of vLLM outside the scheduler. The lowest priority value comes first.
func rules(p *profile.Profile) engine.Rules {
	r := engine.Rules{LowFirst: true, KeepsPlace: true,
		Async: p.Engine.AsyncScheduling, KeepsSlot: p.Engine.VLLMAtLeast(33),
		LoRA: lora.Rules{SlotlessBase: true, FetchesInSteps: true, SlotsLast: true}}
	if p.Engine.PrefixCache {
		r.Prefixes = kvcache.BlockPool
	}
	return r
}

// newScheduler returns a new scheduler for an engine. The error is always nil.
func newScheduler(e *engine.Engine) (engine.Scheduler, error) {
	s := &Scheduler{e: e, profile: &e.Profile, goesOn: e.Profile.VLLMAtLeast(33)}
	s.canRun = func(a *engine.Adapter) *engine.Request {
		if !e.LoRA.CanRun(&a.Adapter) {
			return nil
		}
		return a.Head()
	}
	s.among = func() []*engine.Adapter { return e.Queue.Candidates(&e.LoRA, e.Rows) }
	g := &e.Gate
	g.ArrivalOpens, g.PrefetchOpens, g.LoadOpens = !e.Policy.FCFS(), true, true
	return s, nil
}

// budget is the room left in a step while it is formed.
type budget struct {
	tokens    int64 // tokens left of max_num_batched_tokens
	chunk     int64 // most tokens of one prompt
	preempted bool
}

// wants returns how many tokens of its prompt a request with the given computed tokens can use in a step.
func (b *budget) wants(r *engine.Request, computed int32) int64 {
	return min(int64(r.Prompt+r.Generated-computed), b.chunk)
}

// form forms a step.
func (s *Scheduler) form() budget {
	e := s.e
	e.LoRA.TrimHost()
	b := budget{tokens: int64(s.profile.MaxNumBatchedTokens), chunk: int64(s.profile.LongPrefillTokenThreshold)}
	// a long prompt delays no other request if it is the only one
	if b.chunk == 0 || s.Running()+e.Queue.Len() <= 1 {
		b.chunk = math.MaxInt64
	}
	e.Step.Open(e.Batch.Steps == 0)
	s.scheduleRunning(&b)
	if !b.preempted && e.Gate.Open() {
		s.scheduleWaiting(&b)
	}
	return b
}

// Schedule starts the next step, or forms it while another one is under way.
func (s *Scheduler) Schedule() {
	if s.e.Pipeline != nil {
		s.scheduleAhead()
		return
	}
	e := s.e
	for {
		b := s.form()
		switch {
		case len(e.Step.Prompts) > 0:
			e.Run(true)
			return
		case e.Pause(e.Step.Stall): // the load is all there is
			return
		case e.Batch.Len() > 0:
			e.RunDecode(math.MaxInt64)
			return
		case b.preempted && s.Running() > 0: // no request after one that preempted itself has tokens
			e.RunEmpty()
			return
		case e.Queue.Len() == 0 || !e.LoRA.Idle() || e.KV.Reserved() > 0:
			return
		case !b.preempted:
			e.FailHead() // nothing runs or loads, so nothing would ever change
		}
	}
}

// scheduleWaiting admits waiting requests to the step.
func (s *Scheduler) scheduleWaiting(b *budget) {
	e := s.e
	for e.Queue.Len() > 0 {
		if s.Running() >= s.profile.MaxRunningRequests {
			e.Gate.NoRoom()
			return
		}
		if b.tokens <= 0 {
			return
		}
		r := e.Next(s.among, s.canRun)
		if r == nil {
			e.Gate.Exhausted()
			return
		}
		match, evictable := e.MatchPrefix(r)
		n := b.wants(r, int32(match))
		if n > b.tokens && s.profile.NoChunkedPrefill {
			return
		}
		n = min(n, b.tokens)
		if !s.canAllocate(r, n, match, evictable) {
			e.Gate.NoRoom()
			return
		}
		resumed := r.StartedAt != tick.Never
		if !e.Start(r) {
			continue // its adapter does not load; it is gone
		}
		e.Queue.Number(r) // the newest of the running requests
		if r.TransferredKV > 0 {
			e.StartTransferred(r)
			b.tokens--
			continue
		}
		e.LockPrefix(r)
		e.Report.Admitted(r, resumed)
		s.prefilling = append(s.prefilling, r)
		b.tokens -= n
		s.addPrompt(r, n)
	}
}

// addPrompt adds n tokens of a request's prompt to the step.
func (s *Scheduler) addPrompt(r *engine.Request, n int64) {
	s.e.AddPrompt(r, n)
	s.e.KV.Insert(&r.Sequence)
}

// canAllocate reports whether there is memory to admit a waiting request with n tokens in this step. The running
// requests of this step come first. Under scheduler_reserve_full_isl all tokens of the request must fit; older versions
// without that flag require room for the n tokens only.
//
// match is the number of the request's tokens in the prefix cache. evictable is the number of cached tokens that no
// request holds: they count as free memory until this request holds them.
func (s *Scheduler) canAllocate(r *engine.Request, n, match, evictable int64) bool {
	kv := &s.e.KV
	switch {
	case r.TransferredKV > 0:
		n = r.TransferredKV + kv.PageSize() // and a page for its next token
	case !s.profile.NoReserveFullISL:
		n = int64(r.Prompt+r.Generated) - match
	}
	return kv.Pages(n+evictable) <= kv.Free()-kv.StepNeed(s.e.Batch.Steps)
}

// Update ends a step with prompt tokens. The running requests get their next token, and requests whose prompt
// is complete their first. With asynchronous scheduling it begins the step, and the engine's Pipeline reports
// the tokens.
func (s *Scheduler) Update(mixed bool) {
	async := s.e.Pipeline != nil
	if mixed || async {
		if s.e.Batch.Len() > 0 && !async {
			s.e.EndDecode()
		}
		s.prefilling = slices.DeleteFunc(s.prefilling, func(r *engine.Request) bool {
			return r.Computed == r.Prompt+r.Generated
		})
	}
	if async {
		s.e.Pipeline.EndPrompts()
	} else {
		s.e.EndPrompts(false)
	}
}

// preemptRequest returns a running request to the head of the queue without its KV cache (_preempt_request).
// If it is the only running request, it fails, because there is no more memory.
func (s *Scheduler) preemptRequest(r *engine.Request, b *budget) {
	s.Drop(r)
	if s.Running() == 0 && s.e.KV.Reserved() == 0 {
		r.Leaving = engine.Staying
		s.e.Finish(r, record.Failed, "out of KV cache")
		return
	}
	b.preempted = true
	s.e.Preempt(r, true)
}

// Drop removes a running request and its KV cache from the engine, between steps. It returns true.
func (s *Scheduler) Drop(r *engine.Request) bool {
	switch r.State() {
	case engine.Running:
		s.e.Remove(r)
		return true
	case engine.Ending:
		s.e.Pipeline.Preempt(r)
	}
	s.prefilling = slices.DeleteFunc(s.prefilling, func(o *engine.Request) bool { return o == r })
	s.e.Free(r)
	return true
}

// Running returns the number of running requests, including those whose prompt is partly computed.
func (s *Scheduler) Running() int { return s.e.Batch.Len() + len(s.prefilling) + s.e.Pipeline.Len() }

// LeapUntil returns [tick.Never]: decode steps alone require no decision.
func (s *Scheduler) LeapUntil() tick.Ticks { return tick.Never }

// Orphans lists the requests in the front end and those whose prompt is partly computed.
func (s *Scheduler) Orphans(entering []*engine.Request) []*engine.Request {
	return slices.Concat(s.prefilling, entering)
}

// Check returns an error if an invariant does not hold.
func (s *Scheduler) Check() error {
	for k, r := range s.prefilling {
		if r.State() != engine.Filling || k > 0 && s.prefilling[k-1].Seq() > r.Seq() {
			return fmt.Errorf("vllm: request %d prefills in state %d, after a newer one", r.ID, r.State())
		}
	}
	return nil
}
