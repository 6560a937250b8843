package vllm

import (
	"fmt"

	"lorasim/sim/engine"
	"lorasim/sim/profile"
)

// longest returns the maximum number of tokens of a request, prompt and output. vLLM ends a request there
// (v1/core/sched/utils.py, check_stop), and does not start with a KV cache that holds less.
func (s *Scheduler) longest() int64 {
	return min(int64(s.profile.ContextLength), s.e.KV.CapacityTokens()+1) // the last token is not stored
}

// Refuse returns the reason why the engine can never serve a request, or why the server's limits reject it
// now, or "".
func (s *Scheduler) Refuse(r *engine.Request) string {
	limit, prompt := s.longest(), int64(r.Prompt)
	over := s.profile.ContextOverflow == profile.OverflowReject && prompt+int64(r.MaxNew) > limit
	switch {
	case limit < int64(s.profile.ContextLength) && (over || prompt >= limit): // it is the KV cache that limits
		return fmt.Sprintf(engine.KVTooSmall, s.e.KV.CapacityTokens())
	case over:
		return fmt.Sprintf(engine.BudgetTooLarge, limit)
	case prompt >= limit:
		return fmt.Sprintf(engine.PromptTooLarge, limit)
	}
	return s.checkAdmission()
}

// checkAdmission returns the reason why vLLM's server rejects a request, or "" (AsyncLLM.check_admission in
// v1/engine/async_llm.py).
func (s *Scheduler) checkAdmission() string {
	switch p, v := s.profile, &s.e.Books; {
	case p.MaxNumQueuedReqs > 0 && v.Load() >= p.MaxNumQueuedReqs:
		return engine.TooManyRequests
	case p.MaxNumQueuedTokens > 0 && v.PendingPromptTokens >= p.MaxNumQueuedTokens:
		return engine.TooManyTokens
	}
	return ""
}

// Accept limits a request's output to the longest possible request. A request that ends before this limit and
// before its budget is ended by a stop token.
func (s *Scheduler) Accept(r *engine.Request) {
	longest := int32(s.longest()) - r.Prompt
	r.Output = min(r.Output, longest)
	r.Stops = r.Output < min(r.MaxNew, longest)
}

// MayWait returns true: Refuse has already applied the limits of the server.
func (s *Scheduler) MayWait(*engine.Request) bool { return true }
