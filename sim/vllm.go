package sim

import (
	"cmp"
	"math"
	"slices"

	"lorasim/internal/record"
	"lorasim/internal/tick"
	"lorasim/sim/profile"
)

// vllm is the scheduler of vLLM (V1 engine, version 0.32: v1/core/sched/scheduler.py,
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
type vllm struct{ *worker }

// vllmStep is a step while it is formed.
type vllmStep struct {
	work      profile.StepWork
	budget    int64      // tokens left of max_num_batched_tokens
	chunk     int64      // most tokens of one prompt
	load      tick.Ticks // time the step waits for adapters
	preempted bool
}

func (w vllm) begin() {
	for {
		w.trimHost(-1)
		s := vllmStep{budget: int64(w.eng.MaxNumBatchedTokens), chunk: int64(w.eng.LongPrefillTokenThreshold)}
		s.work.FirstWave = w.steps == 0
		// a long prompt holds up nobody where it is the only request
		if s.chunk == 0 || w.seats()+w.queue.n <= 1 {
			s.chunk = math.MaxInt64
		}
		w.filling = w.filling[:0]
		w.scheduleRunning(&s)
		if !s.preempted && w.retry && !w.full {
			w.scheduleWaiting(&s)
		}
		switch {
		case len(w.filling) > 0:
			w.startStep(mixed, &s.work, s.load)
			return
		case w.pause(s.load): // the load is all there is
			return
		case len(w.batch) > 0:
			w.beginDecode()
			return
		case s.preempted && w.seats() > 0: // a step without tokens: nobody after a request that preempted itself has any
			w.noteStep(mixed)
			w.schedule(prefill, w.s.loop.Now())
			return
		case w.queue.n == 0 || len(w.adapters.queue) > 0 || w.kv.Reserved() > 0:
			return
		case !s.preempted:
			w.giveUp() // nothing runs or loads, so nothing would ever change
		}
	}
}

// scheduleRunning gives the running requests their tokens. The budget suffices
// for all but the newest of them, which gets what is left: nobody wants more
// than in the step before, except who was then cut short, after whom nobody was
// let in. Where there is memory for all, too, their order does not matter.
func (w vllm) scheduleRunning(s *vllmStep) {
	s.budget -= int64(len(w.batch))
	left, pages := s.budget, w.kv.StepNeed(w.steps)
	for _, r := range w.partial {
		n := min(s.wants(r), left)
		left -= n
		pages += w.kv.PagesFor(int64(r.Computed), n)
	}
	switch {
	case pages > w.kv.Free() && w.ordering == byPriority:
		w.scheduleByPriority(s)
		return
	case pages > w.kv.Free():
		w.scheduleInOrder(s)
		return
	}
	for _, r := range w.partial {
		w.takeOf(r, min(s.wants(r), s.budget), s)
	}
}

// scheduleInOrder is scheduleRunning request by request, in the order of their
// admission. One that finds no memory preempts the newest, if need be itself.
func (w vllm) scheduleInOrder(s *vllmStep) {
	order := append(w.running(), w.partial...)
	slices.SortFunc(order, func(a, b *request) int { return cmp.Compare(a.seq, b.seq) })
	free := w.kv.Free() // less what the batch gets in this step, which is booked at its end
	for k := 0; k < len(order); k++ {
		r, n := order[k], int64(1)
		if r.state == filling {
			n = min(s.wants(r), s.budget)
		}
		need := w.kv.PagesFor(w.inCache(r), n)
		for need > free && k < len(order) {
			newest := order[len(order)-1]
			order = order[:len(order)-1]
			before := w.kv.Free()
			w.preempt(newest, s)
			free += w.kv.Free() - before // less than it had where others have it, too
		}
		if k == len(order) {
			return // it has preempted itself
		}
		free -= need
		if r.state == filling {
			w.takeOf(r, n, s)
		}
	}
}

// scheduleByPriority is scheduleInOrder where the request of the worst priority is
// preempted, of these the last to come, wherever it is in the order: what it was
// given in this step goes back. Where a request preempts itself those after it
// get nothing in this step.
func (w vllm) scheduleByPriority(s *vllmStep) {
	type share struct {
		r           *request
		n, need     int64 // tokens and pages of this step
		level, came int64
	}
	var order []share
	for _, r := range append(w.running(), w.partial...) {
		order = append(order, share{r: r, level: w.level(r.Adapter), came: r.came})
	}
	slices.SortFunc(order, func(a, b share) int { return cmp.Compare(a.r.seq, b.r.seq) })
	s.budget += int64(len(w.batch))
	free, k := w.kv.Free(), 0
	for itself := false; k < len(order) && s.budget > 0 && !itself; k++ {
		o := &order[k]
		if o.n = 1; o.r.state == filling {
			o.n = min(s.wants(o.r), s.budget)
		}
		need, r := w.kv.PagesFor(w.inCache(o.r), o.n), o.r
		for need > free && !itself {
			v := 0
			for i, q := range order {
				if cmp.Or(cmp.Compare(q.level, order[v].level), cmp.Compare(q.came, order[v].came)) > 0 {
					v = i
				}
			}
			out, before := order[v], w.kv.Free()
			order = slices.Delete(order, v, v+1)
			if v < k {
				s.budget += out.n
			}
			if v <= k {
				k--
			}
			itself = out.r == r
			w.preempt(out.r, s)
			free += out.need + w.kv.Free() - before
		}
		if !itself {
			order[k].need = need
			free -= need
			s.budget -= order[k].n
		}
	}
	for i, o := range order {
		switch {
		case i < k && o.r.state == filling:
			w.take(o.r, o.n, &s.work)
		case i >= k && o.r.state == running: // it catches up like a prompt
			w.unbatch(o.r)
			o.r.state = filling
			at, _ := slices.BinarySearchFunc(w.partial, o.r.seq, func(p *request, seq int64) int { return cmp.Compare(p.seq, seq) })
			w.partial = slices.Insert(w.partial, at, o.r)
		}
	}
}

// wants is how many tokens of its prompt a request gets where nobody else wants
// any.
func (s *vllmStep) wants(r *request) int64 {
	return min(int64(r.Prompt+r.generated-r.Computed), s.chunk)
}

// takeOf counts n tokens of a request that is not in the batch into the step.
func (w vllm) takeOf(r *request, n int64, s *vllmStep) {
	s.budget -= n
	w.take(r, n, &s.work)
}

// scheduleWaiting takes waiting requests into the step.
func (w vllm) scheduleWaiting(s *vllmStep) {
	for w.queue.n > 0 {
		if w.seats() >= w.eng.MaxRunningRequests {
			w.full = true
			return
		}
		if s.budget <= 0 {
			return
		}
		r := w.pick()
		if r == nil {
			w.retry = false
			return
		}
		match, idle := int64(0), int64(0)
		if r.carried == 0 {
			match, idle = w.kv.MatchPrefix(&r.Sequence, r.Prompt+r.generated-1, w.steps)
		}
		r.Computed = int32(match) // for the moment
		n := s.wants(r)
		r.Computed = 0
		if n > s.budget && w.eng.NoChunkedPrefill {
			return
		}
		n = min(n, s.budget)
		if !w.fits(r, n, match, idle) {
			w.full = true
			return
		}
		resumed := r.started != tick.Never
		load, ok := w.start(r)
		s.load += load
		if !ok {
			continue // its adapter does not load; it is gone
		}
		w.queue.seq++
		r.seq = w.queue.seq // the newest of the running requests
		if r.carried > 0 {
			w.joinCarried(r)
			s.budget--
			continue
		}
		w.lockPrefix(r)
		w.noteAdmission(r, resumed)
		r.state = filling
		w.partial = append(w.partial, r)
		w.takeOf(r, n, s)
	}
}

// fits says whether a waiting request that would get n tokens finds memory,
// beside what the running requests get in this step: for all the tokens it has
// (scheduler_reserve_full_isl), or, as versions before that flag, for the n. Of
// match tokens that are kept idle ones are held by nobody so far.
func (w vllm) fits(r *request, n, match, idle int64) bool {
	switch {
	case r.carried > 0:
		n = r.carried + w.kv.PageSize() // and a page for its next token
	case !w.eng.NoReserveFullISL:
		n = int64(r.Prompt+r.generated) - match
	}
	return w.kv.Pages(n+idle) <= w.kv.Free()-w.kv.StepNeed(w.steps)
}

// endMixed ends a step with prompt tokens: the running requests have their next
// token, those whose prompt is complete their first.
func (w vllm) endMixed() {
	if len(w.batch) > 0 {
		w.endDecode()
	}
	w.partial = slices.DeleteFunc(w.partial, func(r *request) bool { return r.Computed == r.Prompt+r.generated })
	w.endPrefill()
}

// preempt puts a running request back to the head of the queue without its KV
// cache (Scheduler._preempt_request). The only request that runs fails: there
// is no more memory than it has.
func (w vllm) preempt(r *request, s *vllmStep) {
	w.drop(r)
	if w.seats() == 0 && w.kv.Reserved() == 0 {
		r.moving = notMoving
		w.finish(r, record.Failed, "out of KV cache")
		return
	}
	s.preempted = true
	w.putBack(r, true)
}

// drop takes a running request and its KV cache off the worker, between steps.
func (w *worker) drop(r *request) {
	if r.state == running {
		w.leaveBatch(r)
		return
	}
	w.partial = slices.DeleteFunc(w.partial, func(o *request) bool { return o == r })
	w.free(r)
}
