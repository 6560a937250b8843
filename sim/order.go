package sim

import (
	"cmp"
	"math"
	"slices"

	"lorasim/internal/record"
	"lorasim/internal/tick"
	"lorasim/sim/profile"
)

// ordering is what decides which waiting request is next, before the order in
// which they came.
type ordering uint8

const (
	asTheyCame ordering = iota
	byPriority          // the adapter's priority
	byService           // what the adapter has been served, least first
)

// initOrder sets up the order of the queue.
func (w *worker) initOrder() {
	w.lastOut = -1
	switch w.eng.SchedulePolicy {
	case profile.OrderPriority:
		w.ordering = byPriority
		w.preempts = !w.vllm && !w.eng.NoPriorityPreemption
		w.queue.byCome = w.vllm
	case profile.OrderVTC:
		w.ordering = byService
	}
}

// rank is an adapter's place in the order, the least first.
func (w *worker) rank(row int32) int64 {
	switch w.ordering {
	case byPriority:
		return w.level(row)
	case byService:
		return w.counter(row, 0)
	}
	return 0
}

// level is an adapter's priority, the least first: as it is under vLLM, turned
// round under sglang unless it says otherwise. The base model's is 0.
func (w *worker) level(row int32) int64 {
	switch {
	case !w.isLoRA(row):
		return 0
	case w.vllm || w.eng.LowPriorityFirst:
		return int64(w.s.adapters[row].Priority)
	}
	return -int64(w.s.adapters[row].Priority)
}

// foremost is the first, in the order of the queue, of the requests that first
// gives for adapters with waiting requests; nil: none.
func (w *worker) foremost(among []int32, first func(row int32) *request) (best *request) {
	if w.ordering == asTheyCame {
		return w.queue.oldest(among, first)
	}
	least := int64(math.MaxInt64)
	for _, row := range among {
		if !w.queue.has(row) {
			continue
		}
		rank := w.rank(row)
		if best != nil && (rank > least || rank == least && w.queue.of(row).seq > best.seq) {
			continue
		}
		if r := first(row); r != nil && (best == nil || rank < least || r.seq < best.seq) {
			best, least = r, rank
		}
	}
	return best
}

// head is the first waiting request, whether it may be picked or not.
func (w *worker) head() *request {
	if w.ordering == asTheyCame {
		return w.queue.head
	}
	return w.foremost(w.queue.waiting, func(row int32) *request { return w.queue.of(row).head })
}

// Virtual token counters (Y. Sheng et al., "Fairness in Serving Large Language
// Models", OSDI'24, Algorithm 2): an adapter's counter is what it was served in
// prompt and output tokens, by weight, and of those with waiting requests the one
// with the least counter is next. One that had none is lifted to the least of the
// others when it comes (back), so that it has no claim on what it did not ask for.
// A prompt counts when its request runs for the first time, not again after a
// retraction or move.
const (
	promptWeight = 1
	outputWeight = 2
)

// service is an adapter's counter: what was counted, and since when the running
// requests count step by step.
type service struct{ tokens, since int64 }

// counter is an adapter's counter after so many steps of the run under way.
func (w *worker) counter(row int32, done int64) int64 {
	r := w.adapters.rows.of(row)
	return r.served.tokens + outputWeight*int64(r.ranks.n)*(w.steps+done-r.served.since)
}

// serve adds tokens to an adapter's counter.
func (w *worker) serve(row int32, tokens int64) {
	if w.ordering == byService { // alone in here, so that it is inlined
		w.countService(row, tokens)
	}
}

func (w *worker) countService(row int32, tokens int64) {
	w.adapters.rows.of(row).served = service{w.counter(row, 0) + tokens, w.steps}
}

// lift raises the counter of an adapter without waiting requests, of which one comes.
func (w *worker) lift(row int32) {
	if w.queue.has(row) {
		return
	}
	done, least := w.stepsDone(), int64(math.MinInt64)
	if w.queue.n > 0 {
		least = math.MaxInt64
		for _, o := range w.queue.waiting {
			least = min(least, w.counter(o, done))
		}
	} else if w.lastOut >= 0 {
		least = w.counter(w.lastOut, done)
	}
	if c := w.counter(row, done); c < least {
		w.adapters.rows.of(row).served.tokens += least - c
	}
}

const queueFull = "the request queue is full"

// queues says whether a request may wait (Scheduler._abort_on_queued_limit in
// sglang's managers/scheduler.py): one that finds max_queued_requests waiting is
// refused, or, where its priority is better than that of one of them, the last of
// these. Requests that lost their KV cache are no exception.
func (w *worker) queues(r *request) bool {
	if w.eng.MaxQueuedRequests == 0 || w.queue.n < w.eng.MaxQueuedRequests {
		return true
	}
	if w.ordering == byPriority {
		last := w.queue.head
		for _, row := range w.queue.waiting {
			if q := w.queue.of(row).tail; cmp.Or(cmp.Compare(w.level(row), w.level(last.Adapter)), cmp.Compare(q.seq, last.seq)) > 0 {
				last = q
			}
		}
		if w.level(r.Adapter) < w.level(last.Adapter) {
			w.dequeue(last)
			w.turnAway(last, "aborted by a request of higher priority")
			return true
		}
	}
	w.turnAway(r, queueFull)
	return false
}

// turnAway ends a request that may not wait: rejected, or failed where its client
// has seen tokens of it.
func (w *worker) turnAway(r *request, reason string) {
	status := record.Rejected
	if r.first != tick.Never {
		status = record.Failed
	}
	w.settle(r.Adapter)
	w.finish(r, status, reason)
}

// overLimits says why vLLM's server refuses a request, "" if it does not
// (AsyncLLM.check_admission in v1/engine/async_llm.py).
func (w *worker) overLimits() string {
	switch e := &w.eng; {
	case e.MaxNumQueuedReqs > 0 && w.v.Load() >= e.MaxNumQueuedReqs:
		return "max_num_queued_reqs is reached"
	case e.MaxNumQueuedTokens > 0 && w.tokenless >= e.MaxNumQueuedTokens:
		return "max_num_queued_tokens is reached"
	}
	return ""
}

// preemptFor has running requests make way for a waiting one that finds no seat:
// those of the worst priority, the latest first, as many as leave it memory. It
// returns false if there are not enough of them whose priority is worse by more
// than the threshold (PrefillAdder.preempt_to_schedule in managers/schedule_policy.py).
// As there its tokens count as they were when it was last looked at: none of a new
// one's, and not those that it has got since, where it made way itself.
func (w *worker) preemptFor(r *request, room *admission) bool {
	running := w.running()
	slices.SortFunc(running, func(a, b *request) int {
		return cmp.Or(cmp.Compare(w.level(b.Adapter), w.level(a.Adapter)), cmp.Compare(b.seq, a.seq))
	})
	missing := float64(w.wholeReserve(r)) - room.total + float64(r.looked-r.matched)
	n := 0
	for _, o := range running {
		if w.level(o.Adapter)-w.level(r.Adapter) <= int64(w.eng.PreemptionThreshold) {
			break
		}
		n++
		if missing -= float64(room.ratio * float64(w.reserve(o, w.steps-o.Joined))); missing <= 0 {
			break
		}
	}
	if n == 0 || missing > 0 {
		return false
	}
	for _, o := range running[:n] {
		room.total += float64(room.ratio * float64(w.reserve(o, w.steps-o.Joined)))
		before := w.kv.Free()
		o.row.active++ // it keeps its slot until the step is formed
		o.Retracted, o.matched = true, 0
		w.leaveBatch(o)
		freed := (w.kv.Free() - before) * w.kv.PageSize()
		room.total += float64(freed)
		room.current += freed
		w.preempted = append(w.preempted, o)
	}
	w.full = true // as batch_is_full is: a second one would have to make way again
	return true
}

// requeue puts those who made way into the queue, once the step is formed.
func (w *worker) requeue() {
	for _, o := range w.preempted {
		w.deactivate(o.Adapter)
		w.putBack(o, false)
	}
	w.preempted = w.preempted[:0]
}
