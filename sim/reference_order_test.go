package sim

import (
	"cmp"
	"slices"

	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
)

// The reference's order of the queue: it sorts the whole queue whenever it looks
// at it, and counts every token that an adapter is served.

type refOrder struct {
	served    map[int]int64 // by row of the adapter table
	lastOut   int           // row whose request left the queue last
	preempted []*refRequest // in the step being formed
}

func (w *refWorker) preempts() bool {
	return w.e.Scheduler == profile.SchedulerSGLang && w.e.SchedulePolicy == profile.OrderPriority &&
		!w.e.NoPriorityPreemption
}

// level is the priority of a request, the least first.
func (s *reference) level(w *refWorker, r *refRequest) int {
	p := 0
	if row := s.row(r); row < len(s.ranks) {
		p = s.priorities[row]
	}
	if w.e.Scheduler == profile.SchedulerSGLang && !w.e.LowPriorityFirst {
		return -p
	}
	return p
}

// compare orders requests by level, then as they came.
func (s *reference) compare(w *refWorker, a, b *refRequest) int {
	return cmp.Or(cmp.Compare(s.level(w, a), s.level(w, b)), cmp.Compare(a.order, b.order))
}

func (s *reference) sort(w *refWorker) {
	switch w.e.SchedulePolicy {
	case profile.OrderPriority:
		slices.SortFunc(w.waiting, func(a, b *refRequest) int { return s.compare(w, a, b) })
	case profile.OrderVTC:
		slices.SortFunc(w.waiting, func(a, b *refRequest) int {
			return cmp.Or(cmp.Compare(w.served[s.row(a)], w.served[s.row(b)]), cmp.Compare(a.order, b.order))
		})
	}
}

func (s *reference) dequeue(w *refWorker, k int) *refRequest {
	r := w.waiting[k]
	w.waiting = slices.Delete(w.waiting, k, k+1)
	w.lastOut = s.row(r)
	return r
}

// comeBack puts a request that vLLM has preempted into the queue.
func (s *reference) comeBack(w *refWorker, r *refRequest) {
	s.lift(w, r)
	r.queuedAt = s.now
	if w.e.SchedulePolicy != profile.OrderPriority {
		s.entered++
		r.order = -s.entered
	}
	w.waiting = slices.Insert(w.waiting, 0, r)
}

// worst is the index of the running request that vLLM preempts.
func (s *reference) worst(w *refWorker) int {
	at := len(w.running) - 1
	if w.e.SchedulePolicy == profile.OrderPriority {
		for k, r := range w.running {
			if s.compare(w, r, w.running[at]) > 0 {
				at = k
			}
		}
	}
	return at
}

func (s *reference) lift(w *refWorker, r *refRequest) {
	row := s.row(r)
	if slices.ContainsFunc(w.waiting, func(q *refRequest) bool { return s.row(q) == row }) {
		return
	}
	if len(w.waiting) == 0 {
		if w.lastOut >= 0 {
			w.served[row] = max(w.served[row], w.served[w.lastOut])
		}
		return
	}
	least := w.served[s.row(w.waiting[0])]
	for _, q := range w.waiting {
		least = min(least, w.served[s.row(q)])
	}
	w.served[row] = max(w.served[row], least)
}

func (s *reference) serve(w *refWorker, r *refRequest, n int64) { w.served[s.row(r)] += n }

func (s *reference) admitted(w *refWorker, r *refRequest) {
	if !r.ran {
		r.ran = true
		s.serve(w, r, int64(r.Prompt))
	}
}

// queues is Scheduler._abort_on_queued_limit.
func (s *reference) queues(w *refWorker, r *refRequest) bool {
	if w.e.MaxQueuedRequests == 0 || len(w.waiting)+1 <= w.e.MaxQueuedRequests {
		return true
	}
	out := r
	if w.e.SchedulePolicy == profile.OrderPriority {
		last := slices.MaxFunc(w.waiting, func(a, b *refRequest) int { return s.compare(w, a, b) })
		if s.level(w, r) < s.level(w, last) {
			out = last
			s.dequeue(w, slices.Index(w.waiting, last))
		}
	}
	out.status, out.end = record.Rejected, s.now+w.costs.Overhead
	if out.first != tick.Never {
		out.status = record.Failed
	}
	return out != r
}

// overLimits is AsyncLLM.check_admission of vLLM.
func (w *refWorker) overLimits() bool {
	all := slices.Concat(w.running, w.waiting)
	for _, e := range w.entering {
		all = append(all, e.r)
	}
	var tokens int64
	for _, r := range all {
		if r.first == tick.Never {
			tokens += int64(r.Prompt)
		}
	}
	return w.e.MaxNumQueuedReqs > 0 && len(all)+1 > w.e.MaxNumQueuedReqs ||
		w.e.MaxNumQueuedTokens > 0 && tokens >= w.e.MaxNumQueuedTokens
}

// makeWay is PrefillAdder.preempt_to_schedule: who makes way for a request, nil:
// it finds no seat.
func (s *reference) makeWay(w *refWorker, r *refRequest, total, ratio float64) (out []*refRequest) {
	clip := int64(w.e.ClipNewTokens)
	missing := float64(min(int64(r.Budget()), clip)) - total + float64(r.looked)
	candidates := slices.Clone(w.running)
	slices.SortFunc(candidates, func(a, b *refRequest) int { return s.compare(w, b, a) })
	for _, q := range candidates {
		if s.level(w, q)-s.level(w, r) <= w.e.PreemptionThreshold {
			break
		}
		out = append(out, q)
		if missing -= ratio * float64(min(int64(q.Budget())-q.generated, clip)); missing <= 0 {
			return out
		}
	}
	return nil
}
