package sglang

import (
	"cmp"
	"math"
	"slices"

	"lorasim/sim/engine"
)

// adder is the room left while a prefill step is being formed, as sglang's PrefillAdder counts it
// (managers/schedule_policy.py, mem_cache/prefill_budget.py).
type adder struct {
	s       *Scheduler
	ratio   float64    // expected share of the tokens that running requests may still generate
	total   float64    // tokens left after the expected need of running and chosen requests
	current int64      // tokens left after allocated ones
	input   int64      // prompt tokens left of max_prefill_tokens
	chunk   int64      // prompt tokens left of chunked_prefill_size, or noChunks
	states  []reqState // running and chosen requests of known length, by their ends
	counted bool       // states is filled
	spent   bool       // no other request is admitted
}

// noChunks is the value of adder.chunk if prompts are never split.
const noChunks = math.MaxInt64

// open sets the room at the beginning of a prefill step. In a mixed step each running request takes a token.
func (a *adder) open() {
	s := a.s
	e, p := s.e, s.profile
	a.states, a.counted = a.states[:0], false
	a.spent, a.ratio, a.current = e.Gate.Full(), 1, e.KV.FreeTokens()
	a.input, a.chunk = int64(p.MaxPrefillTokens), int64(p.ChunkedPrefillSize)
	if p.MixedChunk {
		b := int64(s.Running())
		a.current -= b
		a.input -= b
		a.chunk -= b
	}
	if p.ChunkedPrefillSize == 0 {
		a.chunk = noChunks
	}
	if !p.IgnoreEOS { // what requests of known length need is no estimate
		a.ratio = s.ratio.at(p, e.Batch.Steps)
	}
	a.total = float64(a.current) - float64(a.ratio*float64(s.reserved()))
}

// more reports whether there is room for another prompt (budget_state).
func (a *adder) more() bool { return !a.spent && a.input > 0 && a.chunk > 0 }

// getNewBatchPrefill forms a prefill step from the waiting queue and starts it. It reports whether there was one. The
// rules are those of Scheduler._get_new_batch_prefill_raw.
func (s *Scheduler) getNewBatchPrefill() bool {
	e, a := s.e, &s.adder
	e.Step.Open(e.Batch.Steps == 0)
	e.KV.BeginStep()
	a.open()
	if s.chunkedReq != nil {
		a.addChunkedReq()
	}
	s.drainer.updateDrainingState()
	for e.Queue.Len() > 0 && a.more() {
		if s.Running()+len(e.Step.Prompts) >= s.profile.MaxRunningRequests {
			if e.Gate.NoRoom(); !s.priorityPreemption { // batch_is_full
				break
			}
		}
		r := s.nextWaiting()
		if r == nil || e.Gate.Full() && !a.preemptToSchedule(r) || !a.addOneReq(r) {
			break
		}
	}
	e.KV.EndStep()
	s.requeuePreempted()
	// a mixed step takes the running requests along, unless they find no memory for a token each
	mixes := s.profile.MixedChunk && e.Batch.Len() > 0 && len(e.Step.Prompts) > 0 &&
		e.KV.StepNeed(e.Batch.Steps) <= e.KV.Free()
	e.PrepareAdapters(mixes)
	if len(e.Step.Prompts) == 0 {
		return s.pause() // for requests that bring their KV cache, or whose adapter failed to load
	}
	if s.modes != nil {
		s.modes.fresh, s.modes.decided = false, false
	}
	s.runningWasEmpty = e.Batch.Len() == 0
	if mixes {
		for k := range e.Batch.Len() {
			r := e.Batch.At(k)
			r.FillTokens = r.Prompt + int32(s.generated(r))
		}
	}
	s.run(mixes)
	return true
}

// newTokensLeft returns the number of tokens that a request may still generate after done tokens, limited by
// clip_new_tokens.
func (s *Scheduler) newTokensLeft(r *engine.Request, done int64) int64 {
	return min(int64(r.MaxNew)-done, int64(s.profile.ClipNewTokens))
}

// clipNewTokens returns the output tokens that a request is charged once its whole prompt is chosen: its full
// budget, limited by clip_new_tokens, even if it generated some of it before a retraction.
func (s *Scheduler) clipNewTokens(r *engine.Request) int64 {
	return int64(min(int(r.MaxNew), s.profile.ClipNewTokens))
}

// addOneReq adds a waiting request, or its first chunk, to the step. It returns false if the request does not
// fit (add_one_req).
func (a *adder) addOneReq(r *engine.Request) bool {
	if r.TransferredKV > 0 {
		return a.addTransferred(r)
	}
	s, e := a.s, a.s.e
	match, evictable := e.MatchPrefix(r)
	r.FillTokens, r.PrefixTokens = r.Prompt+r.Generated, int32(match)
	n, known := int64(r.Prompt+r.Generated)-match, s.profile.IgnoreEOS && s.profile.DisableRadixCache
	unit := e.KV.PageSize()
	// cached pages without a holder count as free until the request takes them
	fits := float64(n+s.newTokensLeft(r, int64(r.Generated))+unit) < a.total-float64(evictable)
	if known {
		fits = a.addOneReqIgnoreEOS(r, n)
	}
	if !fits {
		a.noToken()
		return false
	}
	reserve := s.clipNewTokens(r)
	if known {
		unit = 1 // is not rounded up to pages
	}
	size := (n + unit - 1) / unit * unit
	split := size > a.chunk
	switch {
	case a.chunk == noChunks && !known && size >= a.input && len(e.Step.Prompts) > 0:
		return false
	case split:
		if n, reserve = a.chunk/unit*unit, 0; n == 0 {
			return false
		}
	}
	if !e.Start(r) {
		return true // it is gone; others may follow
	}
	if split {
		s.chunkedReq = r
	}
	e.LockPrefix(r)
	a.total -= float64(evictable)
	a.current -= evictable
	a.updatePrefillBudget(r, n, reserve)
	if a.total <= 0 || a.current <= 0 {
		a.noToken()
	}
	return true
}

// noToken notes that the next request of the queue finds no memory. Memory becomes free only when a request
// leaves the batch, so the gate is closed until then, unless there is no request that could leave.
func (a *adder) noToken() {
	a.spent = true
	a.s.e.Gate.SetFull(len(a.s.e.Step.Prompts) > 0 || a.s.Running() > 0)
}

// addTransferred is addOneReq for a request that arrives with its KV cache and needs no prefill.
func (a *adder) addTransferred(r *engine.Request) bool {
	e := a.s.e
	reserve := a.s.newTokensLeft(r, int64(r.Generated))
	if float64(r.TransferredKV+reserve) >= a.total {
		a.noToken()
		return false
	}
	if !e.Start(r) {
		return false
	}
	before := e.KV.FreeTokens()
	e.StartTransferred(r)
	alloc := before - e.KV.FreeTokens()
	a.total -= float64(alloc + reserve)
	a.current -= alloc
	return true
}

// addChunkedReq adds the next chunk of the request whose prompt is partly prefilled (add_chunked_req).
func (a *adder) addChunkedReq() {
	s := a.s
	r := s.chunkedReq
	limit := min(a.chunk, int64(a.total))
	if limit <= 0 {
		limit = a.chunk // it has to go on so that it is done some time
	}
	// where that is more than there is, sglang breaks down; here it waits
	limit = min(limit, s.e.KV.FreeTokens())
	if limit <= 0 {
		return
	}
	n, reserve := int64(r.Prompt+r.Generated-r.Computed), s.clipNewTokens(r)
	if n > limit {
		n, reserve = limit, 0
	} else {
		s.chunkedReq = nil
	}
	a.updatePrefillBudget(r, n, reserve)
}

// updatePrefillBudget adds n prompt tokens of a request to the step (_update_prefill_budget). Every request
// is charged whole pages, and one more.
func (a *adder) updatePrefillBudget(r *engine.Request, n, reserve int64) {
	kv := &a.s.e.KV
	a.s.e.AddPrompt(r, n)
	paged := kv.RoundUp(n)
	a.total -= float64(paged + kv.PageSize() + reserve)
	a.current -= paged + kv.PageSize()
	a.input -= paged
	if a.chunk != noChunks {
		a.chunk -= paged
	}
}

// Requests with ignore_eos run to their budgets, so their lengths are known in advance. Without a radix cache sglang
// then does not reserve a share of every budget. It checks whether memory lasts if all requests run to their ends
// (add_one_req_ignore_eos).

// reqState is a request in the rule of addOneReqIgnoreEOS: the tokens that it will still take, and those that
// it holds without them.
type reqState struct{ left, holds int64 }

// addOneReqIgnoreEOS reports whether a waiting request with n tokens to prefill fits beside the running and
// chosen requests.
func (a *adder) addOneReqIgnoreEOS(r *engine.Request, n int64) bool {
	kv := &a.s.e.KV
	take := kv.RoundUp(n) + kv.PageSize()
	if take > a.current || float64(take) > a.total {
		return false
	}
	a.addReqState(r)
	free, freed := a.current-take, int64(0)
	for k, c := range a.states {
		b := int64(len(a.states) - k)
		if free+freed-c.left*b <= b { // a token for each, to be safe
			return false
		}
		freed += c.holds
	}
	return true
}

// addReqState inserts a request into the states, in the order of their ends.
func (a *adder) addReqState(r *engine.Request) {
	if a.counted {
		c := a.stateOf(r)
		if c.left <= 0 {
			return
		}
		// add_req_state inserts one that ends after all others before the last
		at := max(len(a.states)-1, 0)
		if k := slices.IndexFunc(a.states, func(o reqState) bool { return c.left <= o.left }); k >= 0 {
			at = k
		}
		a.states = slices.Insert(a.states, at, c)
		return
	}
	a.counted = true
	running := a.s.runningReqs()
	slices.SortFunc(running, func(a, b *engine.Request) int { return cmp.Compare(a.Order(), b.Order()) })
	add := func(r *engine.Request) {
		if c := a.stateOf(r); c.left > 0 {
			a.states = append(a.states, c)
		}
	}
	add(r)
	for _, o := range running {
		add(o)
	}
	for _, c := range a.s.e.Step.Prompts {
		add(c.Request)
	}
	slices.SortStableFunc(a.states, func(a, b reqState) int { return cmp.Compare(a.left, b.left) })
}

func (a *adder) stateOf(r *engine.Request) reqState {
	done := a.s.generated(r)
	return reqState{left: int64(r.MaxNew) - done, holds: int64(r.Prompt) + done}
}

// preemptToSchedule preempts running requests for a waiting one that finds no seat (preempt_to_schedule). It
// preempts those of the worst priority first, the latest first, until the waiting one has memory. It returns
// false if too few have a priority that is worse by more than the threshold. As in sglang, the waiting
// request's tokens count as of the last look at it: none for a new request, and without its latest tokens if
// it was preempted itself.
func (a *adder) preemptToSchedule(r *engine.Request) bool {
	s, e := a.s, a.s.e
	running := s.runningReqs()
	level := e.Policy.Priority
	slices.SortFunc(running, func(a, b *engine.Request) int {
		return cmp.Or(cmp.Compare(level(b.Row), level(a.Row)), cmp.Compare(b.Seq(), a.Seq()))
	})
	reserve := func(o *engine.Request) float64 {
		return float64(a.ratio * float64(s.newTokensLeft(o, s.generated(o))))
	}
	missing := float64(s.clipNewTokens(r)) - a.total + float64(r.FillTokens-r.PrefixTokens)
	n := 0
	for _, o := range running {
		if level(o.Row)-level(r.Row) <= int64(s.profile.PreemptionThreshold) {
			break
		}
		n++
		if missing -= reserve(o); missing <= 0 {
			break
		}
	}
	if n == 0 || missing > 0 {
		return false
	}
	for i, o := range running[:n] {
		a.total += reserve(o)
		before := e.KV.FreeTokens()
		e.LoRA.Hold(&o.Row.Adapter) // it keeps its slot until the step is formed
		o.Retracted, o.PrefixTokens = true, 0
		s.preempt(o)
		freed := e.KV.FreeTokens() - before
		a.total += float64(freed)
		a.current += freed
		s.makeFree(len(running) - i - 1)
		s.preemptList = append(s.preemptList, o)
	}
	e.Gate.NoRoom() // batch_is_full: a second one would have to preempt again
	return true
}

// requeuePreempted puts the preempted requests into the queue once the step is formed.
func (s *Scheduler) requeuePreempted() {
	for _, o := range s.preemptList {
		s.e.LoRA.Release(&o.Row.Adapter)
		s.e.Preempt(o, false)
	}
	s.preemptList = s.preemptList[:0]
}
