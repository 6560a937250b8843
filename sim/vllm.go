package sim

import (
	"cmp"
	"math"
	"slices"

	"lorasim/internal/record"
	"lorasim/internal/tick"
	"lorasim/sim/profile"
)

// The scheduler of vLLM (V1 engine, version 0.32: v1/core/sched/scheduler.py,
// Scheduler.schedule). There are no prefill and decode steps: each step has a
// budget of max_num_batched_tokens. The running requests take from it first, in
// the order of their admission: one token where they decode, else a chunk of
// their prompt. What is left goes to waiting requests, first come first served.
// One whose adapter finds none of the max_loras slots is passed over; the base
// model needs none. Memory is taken as tokens come, not reserved; where it runs
// out, the newest running request is preempted: it loses its KV cache and goes
// to the head of the queue, and the step takes no waiting request.
//
// Requests that decode form the batch, as under the other scheduler, and steps
// in which nothing else happens are crossed in leaps. The other running
// requests, those whose prompt is partly prefilled, are in worker.partial, in
// the order of their admission.

// vllmStep is a step while it is formed.
type vllmStep struct {
	work      profile.StepWork
	budget    int64      // tokens left of max_num_batched_tokens
	chunk     int64      // most tokens of one prompt
	load      tick.Ticks // time the step waits for adapters
	preempted bool
}

// initVLLM prepares a worker under this scheduler.
func (w *worker) initVLLM() {
	w.rules.blocks, w.eng.LoraDrainWait = false, 0
	w.eng.MaxLorasPerBatch++ // one for the base model, which keeps it
	w.v.Slots = w.eng.MaxLorasPerBatch
	w.takeSlot(int32(len(w.s.adapters)), -1)
}

// beginVLLM begins the next step, or leap; without anything to do it stays idle.
func (w *worker) beginVLLM() {
	for {
		w.trimHost(-1)
		s := w.newVLLMStep()
		w.scheduleRunning(&s)
		if !s.preempted && w.retry && !w.full {
			w.scheduleWaiting(&s)
		}
		switch {
		case len(w.filling) > 0:
			w.beginMixed(&s)
			return
		case s.load > 0: // the load is all there is
			w.stats.Stalled += s.load
			w.schedule(prefill, w.s.now+s.load)
			return
		case len(w.batch) > 0:
			w.beginDecode()
			return
		case w.queue.n == 0 || len(w.adapters.queue) > 0 || w.held > 0:
			w.phase = idle
			return
		case !s.preempted:
			w.giveUp() // nothing runs or loads, so nothing would ever change
		}
	}
}

func (w *worker) newVLLMStep() vllmStep {
	s := vllmStep{
		work:   profile.StepWork{PrefillWork: profile.PrefillWork{FirstWave: w.steps == 0}},
		budget: int64(w.eng.MaxNumBatchedTokens),
		chunk:  int64(w.eng.LongPrefillTokenThreshold),
	}
	// a long prompt holds up nobody where it is the only request
	if s.chunk == 0 || len(w.batch)+len(w.partial)+w.queue.n <= 1 {
		s.chunk = math.MaxInt64
	}
	w.filling = w.filling[:0]
	return s
}

// scheduleRunning gives the running requests their tokens. The budget suffices
// for all but the newest of them, which gets what is left: nobody wants more
// than in the step before, except who was then cut short, after whom nobody was
// let in. Where there is memory for all, too, their order does not matter.
func (w *worker) scheduleRunning(s *vllmStep) {
	s.budget -= int64(len(w.batch))
	left, pages := s.budget, w.kv.stepNeed(w.steps)
	for _, i := range w.partial {
		r := &w.s.reqs[i]
		n := min(s.wants(r), left)
		left -= n
		pages += w.kv.pagesFor(int64(r.prefilled), n)
	}
	if pages > w.kv.capacity-w.kv.used {
		w.scheduleInOrder(s)
		return
	}
	for _, i := range w.partial {
		w.take(i, min(s.wants(&w.s.reqs[i]), s.budget), s)
	}
}

// scheduleInOrder is scheduleRunning request by request, in the order of their
// admission. One that finds no memory preempts the newest, if need be itself.
func (w *worker) scheduleInOrder(s *vllmStep) {
	order := append(slices.Clone(w.batch), w.partial...)
	slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(w.s.reqs[a].seq, w.s.reqs[b].seq) })
	free := w.kv.capacity - w.kv.used // less what the batch gets in this step, which is booked at its end
	for k := 0; k < len(order); k++ {
		i := order[k]
		r := &w.s.reqs[i]
		n := int64(1)
		if r.state == filling {
			n = min(s.wants(r), s.budget)
		}
		need := w.kv.pagesFor(w.inCache(r), n)
		for need > free && k < len(order) {
			newest := order[len(order)-1]
			order = order[:len(order)-1]
			free += w.kv.pagesOf(w.inCache(&w.s.reqs[newest]))
			w.preempt(newest, s)
		}
		if k == len(order) {
			return // it has preempted itself
		}
		free -= need
		if r.state == filling {
			w.take(i, n, s)
		}
	}
}

// wants is how many tokens of its prompt a request gets where nobody else wants
// any.
func (s *vllmStep) wants(r *request) int64 {
	return min(int64(r.prompt+r.generated-r.prefilled), s.chunk)
}

// inCache is the number of tokens that a running request has in the KV cache
// between steps.
func (w *worker) inCache(r *request) int64 {
	if r.state == running {
		return int64(r.prefilled) + w.steps - r.joinStep
	}
	return int64(r.prefilled)
}

// scheduleWaiting takes waiting requests into the step.
func (w *worker) scheduleWaiting(s *vllmStep) {
	for w.queue.n > 0 {
		if len(w.batch)+len(w.partial) >= w.eng.MaxRunningRequests {
			w.full = true
			return
		}
		if s.budget <= 0 {
			return
		}
		i := w.pick()
		if i < 0 {
			w.retry = false
			return
		}
		r := &w.s.reqs[i]
		n := s.wants(r)
		if n > s.budget && w.eng.NoChunkedPrefill {
			return
		}
		n = min(n, s.budget)
		if !w.fits(r, n) {
			w.full = true
			return
		}
		resumed := r.started != tick.Never
		load, ok := w.start(i)
		s.load += load
		if !ok {
			continue // its adapter does not load; it is gone
		}
		w.queue.seq++
		r.seq = w.queue.seq // the newest of the running requests
		if r.carried > 0 {
			w.takeCarried(i)
			s.budget--
			continue
		}
		w.noteAdmission(r, resumed)
		r.state = filling
		w.partial = append(w.partial, i)
		w.take(i, n, s)
	}
}

// fits says whether a waiting request that would get n tokens finds memory,
// beside what the running requests get in this step: for all the tokens it has
// (scheduler_reserve_full_isl), or, as versions before that flag, for the n.
func (w *worker) fits(r *request, n int64) bool {
	switch {
	case r.carried > 0:
		n = r.carried + w.kv.size // and a page for its next token
	case !w.eng.NoReserveFullISL:
		n = int64(r.prompt + r.generated)
	}
	return w.kv.pagesOf(n) <= w.kv.capacity-w.kv.used-w.kv.stepNeed(w.steps)
}

// take counts n tokens of a request that is not in the batch into the step.
func (w *worker) take(i int32, n int64, s *vllmStep) {
	r := &w.s.reqs[i]
	w.kv.grow(int64(r.prefilled), n)
	s.work.Add(n, int64(r.prefilled), w.isLoRA(r.adapter))
	s.budget -= n
	r.prefilled += int32(n)
	w.filling = append(w.filling, chunk{i, int32(n)})
}

// takeCarried takes a request that brings its KV cache into the batch.
func (w *worker) takeCarried(i int32) {
	r := &w.s.reqs[i]
	w.kv.grow(0, r.carried)
	r.prefilled, r.carried = int32(r.carried), 0
	w.join(i, r.last)
	w.groups = append(w.groups, group{r.last, 1})
}

// beginMixed starts a step with tokens of requests that are not in the batch.
func (w *worker) beginMixed(s *vllmStep) {
	w.stats.Stalled += s.load
	w.stats.PrefillSteps++
	if s.work.Extends && !w.extended {
		s.work.FirstExtend, w.extended = true, true
	}
	takes := s.load + w.stepTime(&s.work, true)
	w.run = record.Steps{Start: w.s.now, First: takes, Count: 1, Batch: int64(len(w.batch))}
	w.stats.PeakKV = max(w.stats.PeakKV, w.kv.tokens)
	w.v.KVUsed = w.kv.tokens
	w.noteStep()
	w.schedule(mixed, w.s.now+takes)
}

// endMixed ends such a step: the running requests have their next token, those
// whose prompt is complete their first.
func (w *worker) endMixed() {
	if len(w.batch) > 0 {
		w.endDecode()
	}
	w.partial = slices.DeleteFunc(w.partial, func(i int32) bool {
		r := &w.s.reqs[i]
		return r.prefilled == r.prompt+r.generated
	})
	w.endPrefill()
	w.v.Running = len(w.batch) + len(w.partial)
}

// preempt puts a running request back to the head of the queue without its KV
// cache (Scheduler._preempt_request). The only request that runs fails: there
// is no more memory than it has.
func (w *worker) preempt(i int32, s *vllmStep) {
	r := &w.s.reqs[i]
	w.drop(i)
	r.moving = notMoving
	if len(w.batch)+len(w.partial) == 0 && w.held == 0 {
		w.leave(i)
		w.s.finish(i, record.Failed, "out of KV cache", w.s.now+w.costs.Overhead)
		return
	}
	s.preempted = true
	w.notePreemption(r)
	r.queued = w.s.now
	r.state = waiting
	w.queue.pushFront(w.s.reqs, i)
	w.queueChanged()
	w.v.Queued++
	w.v.QueuedToks += int64(r.prompt)
	w.countAdapter(r.adapter, 0, 1)
	w.stats.Retractions++
}

// drop takes a running request and its KV cache off the worker, between steps.
func (w *worker) drop(i int32) {
	r := &w.s.reqs[i]
	if r.state == running {
		w.remove(w.indexOf(i))
		w.forget(r)
		w.part(i)
		return
	}
	w.partial = slices.DeleteFunc(w.partial, func(j int32) bool { return j == i })
	w.free(r)
}
