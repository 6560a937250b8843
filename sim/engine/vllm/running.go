package vllm

import (
	"cmp"
	"slices"

	"lorasim/sim/engine"
)

// scheduleRunning gives the running requests their tokens. The budget suffices for all but the newest
// request, which gets the rest: no request needs more tokens than in the step before, except one that was cut
// short then, and after that one no request was admitted. If there is memory for all, the order of the
// requests does not matter.
func (s *Scheduler) scheduleRunning(b *budget) {
	e := s.e
	b.tokens -= int64(e.Batch.Len())
	left, pages := b.tokens, e.KV.StepNeed(e.Batch.Steps)
	for _, r := range s.prefilling {
		n := min(b.wants(r, r.Computed), left)
		left -= n
		pages += e.KV.PagesFor(int64(r.Computed), n)
	}
	switch {
	case pages > e.KV.Free() && e.Policy.ByPriority():
		s.preemptByPriority(b)
		return
	case pages > e.KV.Free():
		s.preemptNewest(b)
		return
	}
	for _, r := range s.prefilling {
		n := min(b.wants(r, r.Computed), b.tokens)
		b.tokens -= n
		s.addPrompt(r, n)
	}
}

// preemptNewest is scheduleRunning request by request, in the order of their admission. A request that finds
// no memory preempts the newest one, if necessary itself.
func (s *Scheduler) preemptNewest(b *budget) {
	kv, batch := &s.e.KV, &s.e.Batch
	order := slices.Concat(batch.Requests(), s.prefilling, s.e.Pipeline.Ending())
	slices.SortFunc(order, func(a, b *engine.Request) int { return cmp.Compare(a.Seq(), b.Seq()) })
	free := kv.Free() // does not include the batch's pages of this step, which are booked at its end
	for k := 0; k < len(order); k++ {
		r, n := order[k], int64(1)
		switch r.State() {
		case engine.Ending:
			continue
		case engine.Filling:
			n = min(b.wants(r, r.Computed), b.tokens)
		}
		need := kv.PagesFor(batch.KVTokens(r), n)
		for need > free && k < len(order) {
			newest := order[len(order)-1]
			order = order[:len(order)-1]
			before := kv.Free()
			s.preemptRequest(newest, b)
			free += kv.Free() - before // less than it had where others have it, too
		}
		if k == len(order) {
			return // it has preempted itself
		}
		free -= need
		if r.State() == engine.Filling {
			b.tokens -= n
			s.addPrompt(r, n)
		}
	}
}

// share is the part of a step that a running request gets.
type share struct {
	r           *engine.Request
	n, need     int64 // tokens and pages
	level, came int64
}

// preemptByPriority is preemptNewest under priority order. It preempts the request of the worst priority, and
// among equals the last to come, wherever it is in the order. The tokens and pages that it got in this step
// are returned. If a request preempts itself, the requests after it get nothing in this step; since version
// 0.33 they do.
func (s *Scheduler) preemptByPriority(b *budget) {
	kv, batch := &s.e.KV, &s.e.Batch
	var order []share
	for _, r := range slices.Concat(batch.Requests(), s.prefilling, s.e.Pipeline.Ending()) {
		order = append(order, share{r: r, level: s.e.Policy.Priority(r.Row), came: r.ArrivalSeq()})
	}
	slices.SortFunc(order, func(a, b share) int { return cmp.Compare(a.r.Seq(), b.r.Seq()) })
	b.tokens += int64(batch.Len())
	free, k := kv.Free(), 0
	for itself := false; k < len(order) && b.tokens > 0 && (!itself || s.goesOn); k++ {
		itself = false
		o := &order[k]
		if o.r.State() == engine.Ending {
			continue
		}
		if o.n = 1; o.r.State() == engine.Filling {
			o.n = min(b.wants(o.r, o.r.Computed), b.tokens)
		}
		need, r := kv.PagesFor(batch.KVTokens(o.r), o.n), o.r
		for need > free && !itself {
			v := worst(order)
			out, before := order[v], kv.Free()
			order = slices.Delete(order, v, v+1)
			if v < k {
				b.tokens += out.n
			}
			if v <= k {
				k--
			}
			itself = out.r == r
			s.preemptRequest(out.r, b)
			free += out.need + kv.Free() - before
		}
		if !itself {
			order[k].need = need
			free -= need
			b.tokens -= order[k].n
		}
	}
	for i, o := range order {
		switch {
		case i < k && o.r.State() == engine.Filling:
			s.addPrompt(o.r, o.n)
		case i >= k && o.r.State() == engine.Running:
			s.catchUp(o.r)
		}
	}
}

// worst returns the index of the request of the worst priority, and among equals the last to come.
func worst(order []share) (v int) {
	for i, q := range order {
		if cmp.Or(cmp.Compare(q.level, order[v].level), cmp.Compare(q.came, order[v].came)) > 0 {
			v = i
		}
	}
	return v
}

// catchUp removes a request from the batch that gets no token in a step. It computes its missing tokens
// later, like a prompt.
func (s *Scheduler) catchUp(r *engine.Request) {
	s.e.StopDecoding(r)
	at, _ := slices.BinarySearchFunc(s.prefilling, r.Seq(), func(p *engine.Request, seq int64) int {
		return cmp.Compare(p.Seq(), seq)
	})
	s.prefilling = slices.Insert(s.prefilling, at, r)
}
