package engine

import (
	"slices"

	"lorasim/sim/record"
	"lorasim/sim/tick"
)

// A request is in one place: in the front end, waiting, prefilling (or parked), running, in transit, or it has ended.
// The methods here move it from one place to another. Each keeps the queue, the batch, the KV cache, the adapters and
// the counters for routers consistent.

// toEntering puts a request into the front end until the given time.
func (e *Engine) toEntering(r *Request, until tick.Ticks) {
	r.state, r.QueuedAt = Entering, until
	e.Books.Wait(r.Adapter, r.Prompt, 1)
	placed(e, r)
}

// Depart marks a request as on no engine.
func (r *Request) Depart() { r.state = Transit }

// toWaiting puts a new or preempted request into the queue: first, or else last.
func (e *Engine) toWaiting(r *Request, first bool) {
	r.QueuedAt = e.Loop.Now()
	r.state = Waiting
	if e.Policy.kind == byService {
		e.Policy.lift(r.Row, e.Step.done(e.Loop.Now()))
	}
	e.Queue.add(r, first)
	e.queueLengthChanged()
	e.Books.Wait(r.Adapter, r.Prompt, 1)
	placed(e, r)
}

// placed calls the hook for a request's new place.
func placed(e *Engine, r *Request) {
	if tell := e.cfg.Hooks.Placed; tell != nil {
		tell(r)
	}
}

// dequeue removes a request from the queue.
func (e *Engine) dequeue(r *Request) {
	e.Pipeline.Forget(r)
	e.Queue.remove(r)
	if e.Policy.kind == byService && e.Queue.n == 0 {
		e.Policy.lastDequeued = r.Row
	}
	e.queueLengthChanged()
	e.Books.Wait(r.Adapter, r.Prompt, -1)
}

// Start takes a request from the queue to run it. The load of its adapter is added to the Stall of the step
// being formed. Start returns false if the load failed, and with it the request.
func (e *Engine) Start(r *Request) bool {
	load, ok := e.LoRA.Acquire(&r.Row.Adapter, r.QueuedAt, &r.ColdLoad)
	e.Step.Stall += load
	if !ok {
		return false
	}
	e.dequeue(r)
	if r.StartedAt == tick.Never {
		e.Policy.serve(r.Row, promptWeight*int64(r.Prompt))
	}
	r.state = Filling
	e.Books.Running++
	e.Books.Run(r.Adapter, 1)
	e.Stats.PeakRunning = max(e.Stats.PeakRunning, int64(e.Books.Running))
	r.StartedAt = min(r.StartedAt, e.Loop.Now())
	placed(e, r)
	return true
}

// LockPrefix makes an admitted request hold the cached pages of its prompt. At least one token is left to
// compute.
func (e *Engine) LockPrefix(r *Request) {
	found := e.KV.LockPrefix(&r.Sequence, r.Prompt+r.Generated-1)
	if e.Report != nil {
		e.Report.CachedTokens += int64(found)
	}
}

// MatchPrefix returns how many tokens of a waiting request are cached, and how many of the cached tokens no
// request holds.
func (e *Engine) MatchPrefix(r *Request) (match, evictable int64) {
	if r.TransferredKV > 0 {
		return 0, 0
	}
	return e.KV.MatchPrefix(&r.Sequence, r.Prompt+r.Generated-1, e.Batch.Steps)
}

// AddPrompt adds n prompt tokens of a request to the step being formed.
func (e *Engine) AddPrompt(r *Request, n int64) {
	s := &e.Step
	e.Stats.RepeatedTokens += max(0, min(n, int64(r.lost-r.Computed)))
	s.Work.Add(n, int64(r.Computed), e.Rows.isLoRA(r.Adapter))
	e.KV.Grow(&r.Sequence, n)
	s.Prompts = append(s.Prompts, Chunk{r, int32(n)})
	s.adapters = append(s.adapters, &r.Row.Adapter)
}

// startDecoding adds a request whose prompt is computed to the batch. Its latest token came at time at.
func (e *Engine) startDecoding(r *Request, at tick.Ticks) {
	r.state = Running
	r.joinTime = at
	e.Batch.push(r)
	e.KV.StartDecoding(&r.Sequence, e.Batch.Steps)
	e.Policy.serve(r.Row, 0)
	e.Batch.count(r, 1)
}

// ResumeDecoding adds a request to the batch whose latest token came from another worker, or before it was
// parked.
func (e *Engine) ResumeDecoding(r *Request) {
	e.startDecoding(r, r.lastTokenAt)
	if p := e.Pipeline; p != nil && !p.Idle() {
		p.resumed = append(p.resumed, r) // the step under way has no token for it
		return
	}
	e.itl.joined(r.lastTokenAt, 1)
}

// StartTransferred adds a request that arrives with its KV cache to the batch.
func (e *Engine) StartTransferred(r *Request) {
	e.KV.Grow(&r.Sequence, r.TransferredKV)
	r.TransferredKV = 0
	e.ResumeDecoding(r)
}

// StopDecoding removes a request from the batch and stores its progress. The request keeps its KV cache.
func (e *Engine) StopDecoding(r *Request) {
	if e.Pipeline == nil || e.Step.kind == idle {
		e.itl.leave(r, e.Batch.Steps)
	} else {
		e.Pipeline.left(r)
	}
	stopDecoding(e, r)
}

// stopDecoding is StopDecoding without the time of the request's latest token.
func stopDecoding(e *Engine, r *Request) {
	e.Batch.heap.Remove(int(r.heapIndex))
	r.state = Filling
	r.Generated += int32(e.Batch.Steps - r.Joined)
	e.KV.StopDecoding(&r.Sequence, e.Batch.Steps)
	e.Policy.serve(r.Row, 0)
	e.Batch.count(r, -1)
}

// awaitLast marks a request whose last token is in flight. It has left the batch.
func (r *Request) awaitLast() { r.state = Ending }

// stopAwaiting marks a preempted request whose last token is in flight.
func (r *Request) stopAwaiting() { r.state = Filling }

// Free frees the KV cache of a running request that is not in the batch.
func (e *Engine) Free(r *Request) {
	r.lost = max(r.lost, r.Computed)
	e.KV.Release(&r.Sequence)
	e.Books.KVUsed = e.KV.Stored()
	e.Books.Running--
	e.Books.Run(r.Adapter, -1)
	if !r.unslotted {
		e.LoRA.Release(&r.Row.Adapter)
	}
	r.unslotted = false
	e.LoRA.UnloadIfUnused(&r.Row.Adapter)
	e.Gate.RequestLeft()
}

// Remove removes a request from the batch and frees its KV cache.
func (e *Engine) Remove(r *Request) {
	e.StopDecoding(r)
	e.Free(r)
}

// Preempt returns a request that has left the batch, and lost its KV cache, to the queue: first, or else last.
func (e *Engine) Preempt(r *Request, first bool) {
	r.Leaving = Staying // a migration that was under way is off
	e.Report.preempted(r)
	e.Stats.Preemptions++
	if e.sched.MayWait(r) {
		e.toWaiting(r, first)
	}
}

// EndPrompts gives every request of the step whose prompt is complete its next token. A request that ends
// with this token never joins the batch. insert: prompts are inserted in the prefix cache.
func (e *Engine) EndPrompts(insert bool) {
	var first, joined int64
	now := e.Loop.Now()
	for _, c := range e.Step.Prompts {
		r := c.Request
		if insert {
			e.KV.Insert(&r.Sequence)
		}
		if r.Computed < r.Prompt+r.Generated {
			continue // it goes on
		}
		r.Generated++
		e.token(r)
		first++
		if r.Generated == r.Output {
			e.Free(r)
			e.Finish(r, record.OK, "")
			continue
		}
		e.startDecoding(r, now)
		joined++
	}
	e.Step.clear()
	if first > 0 {
		e.cfg.Observer.Tokens(now+e.Costs.Overhead, first)
	}
	if joined > 0 {
		e.itl.joined(now, joined)
	}
	e.Books.Running = e.sched.Running()
}

// token reports the token of a request whose prompt is complete.
func (e *Engine) token(r *Request) {
	now := e.Loop.Now()
	e.Policy.serve(r.Row, OutputWeight)
	if r.FirstTokenAt == tick.Never {
		e.Books.PendingPromptTokens -= int64(r.Prompt)
		r.FirstTokenAt = now + e.Costs.Overhead
		if e.cfg.Hooks.First != nil {
			e.cfg.Hooks.First(r)
		}
	} else {
		e.cfg.Observer.Gap(now-r.lastTokenAt, 1)
		if e.cfg.TokenTimes {
			r.Gaps = append(r.Gaps, (now - r.lastTokenAt).Seconds())
		}
	}
	if e.cfg.Hooks.Token != nil {
		e.cfg.Hooks.Token(r.ID, now+e.Costs.Overhead)
	}
}

// Finish ends a request that is neither in the queue nor in the batch.
func (e *Engine) Finish(r *Request, status record.Status, reason string) {
	e.end(r, status, reason, e.Loop.Now())
}

func (e *Engine) end(r *Request, status record.Status, reason string, at tick.Ticks) {
	e.assign(r, -1)
	e.host.Finished(r, status, reason, at+e.Costs.Overhead)
}

// assign adds a request to the counters for routers (d = 1), or removes it (d = -1).
func (e *Engine) assign(r *Request, d int64) {
	e.Books.Assign(r.Prompt, r.Expected, r.Row.Rank, r.FirstTokenAt == tick.Never, d)
}

// Reject ends a request that may not wait. It is failed if its client has seen tokens of it, else rejected.
func (e *Engine) Reject(r *Request, reason string) {
	status := record.Rejected
	if r.FirstTokenAt != tick.Never {
		status = record.Failed
	}
	e.LoRA.UnloadIfUnused(&r.Row.Adapter)
	e.Finish(r, status, reason)
}

// RejectWaiting is [Engine.Reject] for a request in the queue.
func (e *Engine) RejectWaiting(r *Request, reason string) {
	e.dequeue(r)
	e.Reject(r, reason)
}

// FailHead fails the first waiting request, which does not fit in the KV cache even alone.
func (e *Engine) FailHead() {
	r := e.Policy.Head()
	e.dequeue(r)
	e.LoRA.UnloadIfUnused(&r.Row.Adapter)
	e.Gate.RequestLeft()
	e.Finish(r, record.Failed, "does not fit in the worker's KV cache")
}

// takeAll lists the engine's requests and stores their progress.
func (e *Engine) takeAll() []*Request {
	rs := slices.Collect(e.Queue.All())
	rs = append(rs, e.sched.Orphans(e.FrontEnd.queue)...)
	rs = append(rs, e.FrontEnd.held...)
	rs = append(rs, e.Pipeline.lose()...)
	for len(e.Batch.heap) > 0 { // those that would be done first come first
		r := e.Batch.heap[0].Value
		rs = append(rs, r)
		e.StopDecoding(r)
	}
	for _, r := range rs {
		r.state, r.Leaving, r.TransferredKV, r.unslotted = Waiting, Staying, 0, false
		r.lost = max(r.lost, r.Computed)
		r.Forget()
	}
	return rs
}
