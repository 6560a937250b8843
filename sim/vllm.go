package sim

import (
	"lorasim/internal/record"
	"lorasim/internal/tick"
	"lorasim/sim/profile"
)

// The scheduler of vLLM (its V1 engine). There are no prefill and decode steps:
// each step has a budget of max_num_batched_tokens, of which every running
// request takes one and prompts take the rest, in chunks, first come first
// served. A waiting request whose adapter finds none of the max_loras slots is
// passed over; the base model needs none. Memory is taken as tokens come, not
// reserved; where it runs out, the newest request is preempted: it loses its KV
// cache and goes to the head of the queue.
//
// Steps without prompt tokens are crossed in leaps, as under the other
// scheduler.

// initVLLM prepares a worker under this scheduler.
func (w *worker) initVLLM() {
	w.eng.HeadOfLine, w.eng.StarvationS = profile.HeadOfLineSkip, 0
	w.eng.MaxLorasPerBatch++ // one for the base model, which keeps it
	w.v.Slots = w.eng.MaxLorasPerBatch
	w.takeSlot(int32(len(w.s.adapters)))
}

// beginVLLM begins the next step, or leap; without anything to do it stays idle.
func (w *worker) beginVLLM() {
	for {
		// a step in which a request is preempted takes no new ones
		preempted := w.stats.Retractions
		w.preempt()
		admits := w.stats.Retractions == preempted && w.retry && !w.full && w.queue.n > 0
		if (admits || w.chunked >= 0) && w.beginMixed(admits) {
			return
		}
		if len(w.batch) > 0 {
			w.beginDecode()
			return
		}
		if w.queue.n == 0 || len(w.adapters.queue) > 0 || w.held > 0 {
			w.phase = idle
			return
		}
		if w.stats.Retractions == preempted && (!w.retry || w.full) { // nothing that happened just now made room
			w.giveUp()
		}
	}
}

// beginMixed forms a step with prompt tokens, of waiting requests only where
// admits is set, and starts it. It reports whether there are any.
func (w *worker) beginMixed(admits bool) bool {
	work := profile.PrefillWork{FirstWave: w.steps == 0}
	w.filling = w.filling[:0]
	budget := int64(w.eng.MaxNumBatchedTokens - len(w.batch))
	var load tick.Ticks
	if w.chunked >= 0 {
		i := w.chunked
		n := w.nextChunk(i, budget)
		if !w.fits(i, n) {
			if len(w.batch) == 0 && w.held == 0 { // it has all there is: it came from another worker with more tokens than fit
				w.dropChunked()
				w.leave(i)
				w.s.finish(i, record.Failed, "out of KV cache", w.s.now+w.costs.Overhead)
				return false
			}
			w.preemptChunked()
			return false
		}
		w.chunked = -1
		budget -= w.take(i, n, &work)
	}
	for admits && w.queue.n > 0 && !w.full && budget > 0 {
		if len(w.batch)+len(w.filling) >= w.eng.MaxRunningRequests {
			w.full = true
			break
		}
		i := w.pick()
		if i < 0 {
			break
		}
		r := &w.s.reqs[i]
		carried := r.carried > 0
		n := w.nextChunk(i, budget)
		if carried {
			n = r.carried + w.kv.size // and a page for its next token
		}
		if !w.fits(i, n) {
			w.full = true
			break
		}
		t, ok := w.start(i)
		load += t
		if !ok {
			continue // its adapter does not load; it is gone
		}
		w.queue.seq++
		r.seq = w.queue.seq // the newest of the running requests
		if carried {
			w.takeCarried(i)
			budget--
			continue
		}
		r.state = filling
		budget -= w.take(i, n, &work)
	}
	if len(w.filling) == 0 && load == 0 {
		w.retry = w.retry && !admits // nothing to take now
		return false
	}
	w.stats.Stalled += load
	if len(w.filling) == 0 { // the load is all there is
		w.schedule(prefill, w.s.now+load)
		return true
	}
	w.stats.PrefillSteps++
	if work.Extends && !w.extended {
		work.FirstExtend, w.extended = true, true
	}
	b := int64(len(w.batch))
	takes := load + w.costs.Mixed(work, b, w.loras, w.ranks.max(), w.ctx)
	w.run = record.Steps{Start: w.s.now, First: takes, Count: 1, Batch: b}
	w.stats.PeakKV = max(w.stats.PeakKV, w.kv.tokens)
	w.v.KVUsed = w.kv.tokens
	w.schedule(mixed, w.s.now+takes)
	return true
}

// nextChunk is how much of its prompt a request gets into a step.
func (w *worker) nextChunk(i int32, budget int64) int64 {
	r := &w.s.reqs[i]
	return min(int64(r.prompt+r.generated-r.prefilled), budget)
}

// fits says whether n more tokens of a request find memory, after what the
// running requests need for their next tokens.
func (w *worker) fits(i int32, n int64) bool {
	have := int64(w.s.reqs[i].prefilled)
	need := w.kv.pagesOf(have+n) - w.kv.pagesOf(have)
	return need <= w.kv.capacity-w.kv.used-w.kv.stepNeed(w.steps)
}

// take counts n prompt tokens of a request into the step.
func (w *worker) take(i int32, n int64, work *profile.PrefillWork) int64 {
	r := &w.s.reqs[i]
	w.kv.grow(int64(r.prefilled), n)
	work.Add(n, int64(r.prefilled), w.isLoRA(r.adapter))
	r.prefilled += int32(n)
	if r.prefilled < r.prompt+r.generated {
		w.chunked = i
	}
	w.filling = append(w.filling, chunk{i, int32(n)})
	return n
}

// takeCarried takes a request that brings its KV cache into the batch.
func (w *worker) takeCarried(i int32) {
	r := &w.s.reqs[i]
	w.kv.grow(0, r.carried)
	r.prefilled, r.carried = int32(r.carried), 0
	w.join(i, r.last)
	w.groups = append(w.groups, group{r.last, 1})
}

// endMixed ends a step with prompt tokens: the running requests have their next
// token, those whose prompt is complete their first.
func (w *worker) endMixed() {
	if len(w.batch) > 0 {
		w.endDecode()
	}
	w.endPrefill()
}

// preempt makes room for the next token of every running request.
func (w *worker) preempt() {
	for len(w.batch) > 0 && w.kv.stepNeed(w.steps) > w.kv.capacity-w.kv.used {
		if w.chunked >= 0 { // the newest of all
			w.preemptChunked()
			continue
		}
		if len(w.batch) == 1 {
			w.outOfMemory()
			return
		}
		k := 0
		for j := range w.batch {
			if w.s.reqs[w.batch[j]].seq > w.s.reqs[w.batch[k]].seq {
				k = j
			}
		}
		i := w.batch[k]
		w.remove(k)
		w.forget(&w.s.reqs[i])
		w.part(i)
		w.s.reqs[i].moving = notMoving
		w.requeue(i)
	}
}

// preemptChunked takes back the request whose prompt is partly prefilled.
func (w *worker) preemptChunked() {
	i := w.chunked
	w.dropChunked()
	w.requeue(i)
}

// dropChunked takes that request out of the worker.
func (w *worker) dropChunked() {
	i := w.chunked
	r := &w.s.reqs[i]
	w.chunked = -1
	w.kv.release(int64(r.prefilled))
	r.prefilled = 0
	w.v.KVUsed = w.kv.tokens
	w.v.Running--
	w.countAdapter(r.adapter, -1, 0)
	w.deactivate(r.adapter)
	w.settle(r.adapter)
	w.full, w.retry = false, true
}

// requeue puts a preempted request at the head of the queue.
func (w *worker) requeue(i int32) {
	r := &w.s.reqs[i]
	r.queued = w.s.now
	r.state = waiting
	w.queue.pushFront(w.s.reqs, i)
	w.v.Queued++
	w.v.QueuedToks += int64(r.prompt)
	w.countAdapter(r.adapter, 0, 1)
	w.stats.Retractions++
	w.full, w.retry = false, true
}

// outOfMemory fails the only running request, which finds no memory.
func (w *worker) outOfMemory() {
	i := w.batch[0]
	w.remove(0)
	w.forget(&w.s.reqs[i])
	w.part(i)
	w.leave(i)
	w.s.finish(i, record.Failed, "out of KV cache", w.s.now+w.costs.Overhead)
}
