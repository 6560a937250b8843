package engine

import (
	"slices"

	"lorasim/sim/record"
	"lorasim/sim/tick"
)

// A request is in one place: in the front end, waiting, prefilling (or parked), running, in transit, or it has ended.
// The methods here are the ways from one place to another. Each keeps the queue, the batch, the KV cache, the adapters
// and the books of routers together.

// toEntering has a request be in the front end until a time.
func (e *Engine) toEntering(r *Request, until tick.Ticks) {
	r.state, r.QueuedAt = Entering, until
	e.Books.Wait(r.Adapter, r.Prompt, 1)
	placed(e, r)
}

// Depart has the request be between two workers.
func (r *Request) Depart() { r.state = Transit }

// toWaiting puts a request into the queue, last or first; new and retracted ones alike.
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

// placed tells the hook where a request is now.
func placed(e *Engine, r *Request) {
	if tell := e.cfg.Hooks.Placed; tell != nil {
		tell(r)
	}
}

// dequeue takes a request out of the queue.
func (e *Engine) dequeue(r *Request) {
	e.Pipeline.Forget(r)
	e.Queue.remove(r)
	if e.Policy.kind == byService && e.Queue.n == 0 {
		e.Policy.lastDequeued = r.Row
	}
	e.queueLengthChanged()
	e.Books.Wait(r.Adapter, r.Prompt, -1)
}

// Start takes a request from the queue to run it. The step under formation waits for its adapter, as long as it says
// in Stall. False: the adapter could not be loaded, and the request has failed.
func (e *Engine) Start(r *Request) bool {
	load, ok := e.LoRA.Acquire(&r.Row.Adapter, r.QueuedAt, &r.ColdLoad)
	e.Step.Stall += load
	if !ok {
		return false
	}
	e.dequeue(r)
	if r.StartedAt == tick.Never {
		e.Policy.serve(r.Row, PromptWeight*int64(r.Prompt))
	}
	r.state = Filling
	e.Books.Running++
	e.Books.Run(r.Adapter, 1)
	e.Stats.PeakRunning = max(e.Stats.PeakRunning, int64(e.Books.Running))
	r.StartedAt = min(r.StartedAt, e.Loop.Now())
	placed(e, r)
	return true
}

// LockPrefix has a request that is admitted hold what is kept of its prompt; one token is always left to compute.
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

// AddPrompt counts n prompt tokens of a request into the step.
func (e *Engine) AddPrompt(r *Request, n int64) {
	s := &e.Step
	s.Work.Add(n, int64(r.Computed), e.Rows.isLoRA(r.Adapter))
	e.KV.Grow(&r.Sequence, n)
	s.Prompts = append(s.Prompts, Chunk{r, int32(n)})
	s.adapters = append(s.adapters, &r.Row.Adapter)
}

// startDecoding takes a request whose prompt is computed into the batch. Its latest token came at time at.
func (e *Engine) startDecoding(r *Request, at tick.Ticks) {
	r.state = Running
	r.joinTime = at
	e.Batch.push(r)
	e.KV.StartDecoding(&r.Sequence, e.Batch.Steps)
	e.Policy.serve(r.Row, 0)
	e.Batch.count(r, 1)
}

// ResumeDecoding takes a request that saw its latest token elsewhere, or long ago, into the batch.
func (e *Engine) ResumeDecoding(r *Request) {
	e.startDecoding(r, r.lastTokenAt)
	if p := e.Pipeline; p != nil && !p.Idle() {
		p.resumed = append(p.resumed, r) // the step under way has no token for it
		return
	}
	e.itl.joined(r.lastTokenAt, 1)
}

// StartTransferred takes a request that brings its KV cache into the batch.
func (e *Engine) StartTransferred(r *Request) {
	e.KV.Grow(&r.Sequence, r.TransferredKV)
	r.TransferredKV = 0
	e.ResumeDecoding(r)
}

// StopDecoding takes a request that has not ended, or just did, out of the batch and notes how far it is; it keeps its
// KV cache.
func (e *Engine) StopDecoding(r *Request) {
	if e.Pipeline == nil || e.Step.kind == idle {
		e.itl.leave(r, e.Batch.Steps)
	} else {
		e.Pipeline.left(r)
	}
	stopDecoding(e, r)
}

// stopDecoding is StopDecoding without what is known of the time of its latest token.
func stopDecoding(e *Engine, r *Request) {
	e.Batch.heap.Remove(int(r.heapIndex))
	r.state = Filling
	r.Generated += int32(e.Batch.Steps - r.Joined)
	e.KV.StopDecoding(&r.Sequence, e.Batch.Steps)
	e.Policy.serve(r.Row, 0)
	e.Batch.count(r, -1)
}

// Free frees the KV cache of a request that was running and is not in the batch.
func (e *Engine) Free(r *Request) {
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

// Remove takes a request out of the batch and frees its KV cache.
func (e *Engine) Remove(r *Request) {
	e.StopDecoding(r)
	e.Free(r)
}

// Requeue returns a request that has lost its KV cache to the queue, last or first.
func (e *Engine) Requeue(r *Request, first bool) {
	r.Leaving = Staying // a migration that was under way is off
	e.Report.preempted(r)
	e.Stats.Retractions++
	if e.sched.MayWait(r) {
		e.toWaiting(r, first)
	}
}

// EndPrompts gives every request of the step whose prompt is complete its next token. One whose only (or last) token
// that is never joins the batch. insert: prompts are entered in the prefix cache.
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
			e.cfg.Hooks.First(r.ID)
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

// Finish ends a request that is neither in the queue nor in the batch any more.
func (e *Engine) Finish(r *Request, status record.Status, reason string) {
	e.end(r, status, reason, e.Loop.Now())
}

func (e *Engine) end(r *Request, status record.Status, reason string, at tick.Ticks) {
	e.assign(r, -1)
	e.host.Finished(r, status, reason, at+e.Costs.Overhead)
}

// assign counts a request into what routers see, 1, or out of it, -1.
func (e *Engine) assign(r *Request, d int64) {
	e.Books.Assign(r.Prompt, r.Expected, r.Row.Rank, r.FirstTokenAt == tick.Never, d)
}

// Reject ends a request that may not wait: rejected, or failed where its client has seen tokens of it.
func (e *Engine) Reject(r *Request, reason string) {
	status := record.Rejected
	if r.FirstTokenAt != tick.Never {
		status = record.Failed
	}
	e.LoRA.UnloadIfUnused(&r.Row.Adapter)
	e.Finish(r, status, reason)
}

// RejectWaiting is Reject for a request of the queue.
func (e *Engine) RejectWaiting(r *Request, reason string) {
	e.dequeue(r)
	e.Reject(r, reason)
}

// FailHead fails the first waiting request, which cannot even run alone.
func (e *Engine) FailHead() {
	r := e.Policy.Head()
	e.dequeue(r)
	e.LoRA.UnloadIfUnused(&r.Row.Adapter)
	e.Gate.RequestLeft()
	e.Finish(r, record.Failed, "does not fit in the worker's KV cache")
}

// takeAll lists the engine's requests and notes how far they are.
func (e *Engine) takeAll() []*Request {
	rs := slices.Collect(e.Queue.All())
	rs = append(rs, e.sched.Orphans(e.FrontEnd.queue)...)
	rs = append(rs, e.Pipeline.lose()...)
	for len(e.Batch.heap) > 0 { // those that would be done first come first
		r := e.Batch.heap[0].Value
		rs = append(rs, r)
		e.StopDecoding(r)
	}
	for _, r := range rs {
		r.state, r.Leaving, r.TransferredKV, r.unslotted = Waiting, Staying, 0, false
		r.Forget()
	}
	return rs
}
