package slora

import (
	"lorasim/sim/engine"
	"lorasim/sim/tick"
)

// Constants of early abort: responseLimit is the TTFT after which an answer has no value (attainment_func in
// slora/utils/metric.py), abortMargin is added to a request's age (AbortReqQueue.generate_new_batch), and idlePoll is
// the time between two looks of a server without running requests (RouterManager.loop_for_fwd).
var (
	responseLimit = tick.FromSeconds(6)
	abortMargin   = tick.FromSeconds(0.5)
	idlePoll      = tick.FromMilliseconds(10)
)

// aborted is the reason that requests given up early end with.
const aborted = "early abort: it would miss the time to first token of 6 s"

// An abortReqQueue is the queue of S-LoRA's early abort (slora/server/router/abort_req_queue.py). At each look it gives
// up requests that have waited too long. Then it serves the latest requests first while more come than a batch takes,
// and else the earliest.
type abortReqQueue struct {
	rate int // apprx_req_rate: smoothed growth of the queue between two batches
	size int // apprx_bs: smoothed number of requests of a prefill batch
	left int // last_req_num: requests left in the queue by the latest batch

	// The rate changes at each look, also at an empty queue. S-LoRA looks before each decode step from next on
	// and, while nothing runs, every idlePoll from idle on; idle is tick.Never while requests run or wait.
	next int64
	idle tick.Ticks
}

// newAbortReqQueue returns the queue of a server that has been idle for long.
func newAbortReqQueue() *abortReqQueue { return &abortReqQueue{size: 1, idle: tick.Never} }

// look updates the rate, aborts requests, and reports whether the latest requests are served first.
func (q *abortReqQueue) look(e *engine.Engine) (latest bool) {
	now, steps := e.Loop.Now(), e.Batch.Steps
	q.missed(steps - q.next)
	if q.idle != tick.Never {
		q.missed(int64((now - q.idle) / idlePoll))
	}
	q.next, q.idle = steps+1, tick.Never
	if e.Batch.Len() >= e.Profile.MaxRunningRequests {
		return false // no request fits
	}
	q.update(e.Queue.Len())
	var late []*engine.Request
	for r := range e.Queue.All() {
		if now-r.QueuedAt+abortMargin >= responseLimit {
			late = append(late, r)
		}
	}
	for _, r := range late {
		e.RejectWaiting(r, aborted)
	}
	return q.rate >= q.size
}

// missed makes n looks at an empty queue.
func (q *abortReqQueue) missed(n int64) {
	for before := q.rate + 1; n > 0 && before != q.rate; n-- {
		before = q.rate
		q.update(0)
	}
}

// update smooths the growth of the queue. The arithmetic is Python's.
func (q *abortReqQueue) update(waiting int) {
	q.rate = int(float64(0.7*float64(waiting-q.left)) + float64(0.3*float64(q.rate)))
}

// formed notes a prefill batch of n requests.
func (q *abortReqQueue) formed(n, left int) {
	q.left = left
	q.size = max(int(float64(0.7*float64(n))+float64(0.3*float64(q.size))), 1)
}

// rest notes that nothing runs or waits from now on.
func (q *abortReqQueue) rest(now tick.Ticks) { q.idle = min(q.idle, now) }
