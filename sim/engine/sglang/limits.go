package sglang

import (
	"fmt"

	"lorasim/sim/engine"
	"lorasim/sim/profile"
)

// inputMargin is the least difference in tokens between a prompt and the longest request (max_req_input_len
// in managers/tp_worker.py).
const inputMargin = 5

// Refuse returns the reason why the engine can never serve a request, or "" (TpModelWorker.get_worker_info in
// managers/tp_worker.py, validate_input_length in managers/utils.py, Scheduler.init_req_max_new_tokens in
// managers/scheduler.py). It limits the request's budget to what the engine can serve.
func (s *Scheduler) Refuse(r *engine.Request) string {
	limit, kv, prompt := int64(s.profile.ContextLength), s.e.KV.CapacityTokens(), int64(r.Prompt)
	longest, ignores := min(limit, kv)-1, s.profile.ContextOverflow == profile.OverflowIgnore
	switch {
	case s.profile.ContextOverflow == profile.OverflowReject && prompt+int64(r.MaxNew) > limit:
		return fmt.Sprintf(engine.BudgetTooLarge, limit)
	case prompt >= limit:
		return fmt.Sprintf(engine.PromptTooLarge, limit)
	case ignores && prompt+int64(min(int(r.MaxNew), s.profile.ClipNewTokens)) < kv:
		return ""
	case ignores, prompt >= longest-inputMargin && kv < limit:
		return fmt.Sprintf(engine.KVTooSmall, kv)
	case prompt >= longest-inputMargin:
		return fmt.Sprintf(engine.PromptTooLarge+", less %d tokens", limit, 1+inputMargin)
	}
	r.MaxNew = int32(min(int64(r.MaxNew), longest-prompt-1))
	r.Output = min(r.Output, r.MaxNew)
	if s.profile.IgnoreEOS {
		r.Output = r.MaxNew
	}
	return ""
}

// Accept notes whether a stop token ends the request. Refuse has already limited its budget.
func (s *Scheduler) Accept(r *engine.Request) { r.Stops = r.Output < r.MaxNew }

// MayWait reports whether a request may wait (_abort_on_queued_limit). If max_queued_requests already wait,
// it rejects the request. If the request has a better priority than the last waiting one, it rejects that one
// instead. The limit also applies to requests that lost their KV cache.
func (s *Scheduler) MayWait(r *engine.Request) bool {
	e := s.e
	if limit := s.profile.MaxQueuedRequests; limit == 0 || e.Queue.Len() < limit {
		return true
	}
	if e.Policy.ByPriority() {
		if last := e.Policy.Last(); e.Policy.Priority(r.Row) < e.Policy.Priority(last.Row) {
			e.RejectWaiting(last, engine.Outranked)
			return true
		}
	}
	e.Reject(r, engine.QueueFull)
	return false
}
