package sim

import (
	"math"
	"slices"

	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
)

// The reference of vLLM's asynchronous scheduling, after its source: requests count the tokens that are scheduled (kv)
// and those in flight apart, as AsyncScheduler does with num_computed_tokens and num_output_placeholders.

// refAsync is what a worker with asynchronous scheduling has under way.
type refAsync struct {
	next, cur *refStep
}

// refStep is a step that is formed, or under way.
type refStep struct {
	tokens       map[*refRequest]int64
	order        []*refRequest
	gives        []*refRequest // get a token from it
	decodes      []*refRequest
	takes, ready tick.Ticks
	again        bool // it preempts, and has no tokens
}

func (w *refWorker) async() bool { return w.e.AsyncScheduling }

// limit is the most tokens that a request's length allows it.
func (w *refWorker) limit(r *refRequest) int64 {
	return int64(min(int(r.Budget()), min(w.e.ContextLength, int(w.capacity)*w.e.PageSize+1)-int(r.Prompt)))
}

// over says whether a request is sure to have its last token with a step under way or formed.
func (w *refWorker) over(r *refRequest) bool {
	return r.flying > 0 && r.generated+r.flying >= w.limit(r)
}

func (s *reference) beginAsync(w *refWorker) {
	for {
		if w.next == nil {
			w.next = s.formAsync(w)
		}
		switch k := w.next; {
		case w.busy:
			return
		case len(k.order) > 0:
			s.startAsync(w)
		case k.again:
			w.next = nil
		case len(w.waiting) == 0 || len(w.loads) > 0:
			w.next = nil
			return
		default:
			w.next = nil
			s.sort(w)
			s.finish(w, s.dequeue(w, 0), record.Failed)
		}
	}
}

// formAsync is Scheduler.schedule.
func (s *reference) formAsync(w *refWorker) *refStep {
	k := &refStep{tokens: map[*refRequest]int64{}}
	s.keep(w, -1)
	budget, chunk := int64(w.e.MaxNumBatchedTokens), int64(math.MaxInt64)
	if t := int64(w.e.LongPrefillTokenThreshold); t > 0 && len(w.running)+len(w.waiting) > 1 {
		chunk = t
	}
	used := func() (n int64) {
		for _, r := range w.running {
			n += w.pages(r.kv + k.tokens[r])
		}
		return n
	}
	preempted, itself := false, false
	for i := 0; i < len(w.running) && budget > 0 && !itself; i++ {
		r := w.running[i]
		n := min(r.need()+r.flying-r.kv, chunk, budget)
		if w.over(r) {
			continue
		}
		for !itself && used()+w.pages(r.kv+n)-w.pages(r.kv) > w.capacity {
			v := s.worst(w)
			last := w.running[v]
			w.running = slices.Delete(w.running, v, v+1)
			budget += k.tokens[last]
			delete(k.tokens, last)
			if v <= i {
				i--
			}
			itself, preempted = last == r, true
			last.kv, last.flying, last.decodes, last.ending = 0, 0, false, false
			s.comeBack(w, last)
		}
		if !itself {
			k.tokens[r] = n
			budget -= n
		}
		itself = itself && !w.goesOn()
	}
	for _, r := range w.running {
		if k.tokens[r] == 0 && !w.over(r) {
			r.decodes = false // from now on it catches up like a prompt
		}
	}
	stall := tick.Ticks(0)
	for !preempted && len(w.waiting) > 0 && budget > 0 && len(w.running) < w.e.MaxRunningRequests {
		i := s.choose(w)
		if i < 0 {
			break
		}
		r := w.waiting[i]
		n := min(r.need(), chunk)
		if n > budget && w.e.NoChunkedPrefill {
			break
		}
		n = min(n, budget)
		must := r.need()
		if w.e.NoReserveFullISL {
			must = n
		}
		if used()+w.pages(must) > w.capacity {
			break
		}
		stall += s.use(w, r)
		s.dequeue(w, i)
		s.admitted(w, r)
		w.running = append(w.running, r)
		k.tokens[r] = n
		budget -= n
	}
	k.again = preempted
	s.costAsync(w, k, stall)
	return k
}

// costAsync counts the tokens of a step that is formed, and how long it takes (Scheduler._update_after_schedule).
func (s *reference) costAsync(w *refWorker, k *refStep, stall tick.Ticks) {
	work := profile.StepWork{FirstWave: w.steps == 0}
	var fills []*refRequest
	for _, r := range w.running {
		n := k.tokens[r]
		switch {
		case n == 0:
			continue
		case r.decodes:
			k.decodes = append(k.decodes, r)
		default:
			fills = append(fills, r)
			work.Add(n, r.kv, r.Adapter != trace.BaseModel)
			r.chunk = n
		}
		k.order = append(k.order, r)
	}
	if work.Extends && !w.extended {
		work.FirstExtend, w.extended = true, true
	}
	if len(fills) == 0 {
		work = profile.StepWork{}
	}
	k.takes, k.ready = w.costs.Step(s.work(w, k.decodes, fills, work)), s.now+stall
	for _, r := range k.order {
		r.kv += k.tokens[r]
		if r.kv == r.need()+r.flying {
			k.gives = append(k.gives, r)
			r.flying++
			r.decodes = true
		}
	}
}

// startAsync begins the step that is formed.
func (s *reference) startAsync(w *refWorker) {
	k := w.next
	w.next, w.cur = nil, k
	alive := func(r *refRequest) bool { return r.end == 0 }
	if slices.ContainsFunc(k.decodes, alive) {
		w.steps++
		s.stampRunning(w)
	}
	for _, r := range w.running {
		r.ending = w.over(r)
	}
	w.busy, w.until = true, max(s.now, k.ready)+k.takes
}

// endAsync is Scheduler.update_from_output, and has the step that was formed meanwhile begin.
func (s *reference) endAsync(w *refWorker) {
	for _, r := range w.cur.gives {
		if r.end != 0 {
			continue // it ended with the step before
		}
		s.token(w, r)
		r.flying = max(r.flying-1, 0)
		if r.generated < int64(r.Output) {
			continue
		}
		same := func(q *refRequest) bool { return q == r }
		w.running, w.waiting = slices.DeleteFunc(w.running, same), slices.DeleteFunc(w.waiting, same)
		r.ending = false
		s.finish(w, r, record.OK)
	}
	if w.cur = nil; w.next != nil {
		if len(w.next.order) > 0 {
			s.startAsync(w)
		} else {
			w.next = nil
		}
	}
}

// goesOn says whether requests after one that has preempted itself get tokens.
func (w *refWorker) goesOn() bool {
	return w.e.SchedulePolicy == profile.OrderPriority && w.e.VLLMVersion == "0.33"
}
