package sim

import (
	"slices"

	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
)

// The reference's S-LoRA: one decode step at a time, and at each look the memory of every future step is added up.

// refSLoRA is its state on one worker.
type refSLoRA struct {
	waited int // decode steps since the latest prefill
	latest bool
	// early abort: apprx_req_rate, apprx_bs, last_req_num, and the time of the latest look while nothing ran
	rate, size, left int
	polled           tick.Ticks
}

func (w *refWorker) slora() bool { return w.e.Scheduler == profile.SchedulerSLoRA }

// refuseSLoRA says whether a request can never run, and cuts its budget.
func (s *reference) refuseSLoRA(w *refWorker, r *refRequest) bool {
	prompt, budget := int64(r.Prompt), int64(r.Budget())
	context := int64(w.e.ContextLength)
	if w.e.ContextOverflow == profile.OverflowPrompt && prompt < context {
		budget = min(budget, context-prompt)
	}
	if prompt >= context || w.e.ContextOverflow == profile.OverflowReject && prompt+budget > context {
		return true
	}
	r.MaxNew = int32(budget)
	if r.Output = min(r.Output, r.MaxNew); w.e.IgnoreEOS {
		r.Output = r.MaxNew
	}
	limit := max(w.capacity/6, int64(w.e.MaxPrefillTokens))
	return prompt+budget >= w.capacity-s.cells(w, []*refRequest{r}) || prompt+budget-1 > limit
}

// cells is the memory of the distinct adapters of requests, in KV tokens.
func (s *reference) cells(w *refWorker, rs []*refRequest) (n int64) {
	met := map[int32]bool{trace.BaseModel: true}
	for _, r := range rs {
		if !met[r.Adapter] {
			met[r.Adapter] = true
			n += int64(w.e.AdapterCellsPerRank * w.costs.Rank(s.ranks[r.Adapter]))
		}
	}
	return n
}

// peak is the most memory that running and chosen requests will hold at the end of any step, if all run to the ends of
// their budgets. Of chosen ones, whose prompt gives them a token, one token is counted twice.
func peak(running, chosen []*refRequest) (most int64) {
	type future struct{ has, left int64 }
	var fs []future
	for _, r := range running {
		fs = append(fs, future{int64(r.Prompt) + r.generated, int64(r.Budget()) - r.generated - 1})
	}
	for _, r := range chosen {
		fs = append(fs, future{int64(r.Prompt) + r.generated + 1, int64(r.Budget()) - r.generated - 1})
	}
	for _, end := range fs {
		held := int64(0)
		for _, f := range fs {
			if f.left >= end.left { // still there when that request takes its last token
				held += f.has + end.left
			}
		}
		most = max(most, held)
	}
	return most
}

func (s *reference) beginSLoRA(w *refWorker) {
	w.latest = w.e.SchedulePolicy == profile.OrderLIFO
	for {
		if w.e.EnableAbort && (len(w.running) > 0 && w.waited >= 10 || len(w.running) == 0 && len(w.waiting) > 0) {
			s.abortSLoRA(w)
		}
		if len(w.waiting) > 0 && (len(w.running) == 0 || w.waited >= 10) && s.prefillSLoRA(w) {
			return
		}
		if len(w.running) > 0 {
			w.busy, w.prefilling = true, false
			w.waited++
			w.until = s.now + w.costs.Step(s.work(w, w.running, nil, profile.StepWork{}))
			return
		}
		if len(w.waiting) == 0 {
			if w.polled == tick.Never {
				w.polled = s.now
			}
			return
		}
		s.finish(w, s.dequeue(w, 0), record.Failed)
	}
}

// nextSLoRA is the index of the waiting request that is served next.
func (w *refWorker) nextSLoRA() int {
	if w.latest {
		return len(w.waiting) - 1
	}
	return 0
}

// abortSLoRA is the first part of AbortReqQueue.generate_new_batch, after the looks of an idle server, one every 10 ms.
func (s *reference) abortSLoRA(w *refWorker) {
	rate := func(waiting int) {
		w.rate = int(float64(0.7*float64(waiting-w.left)) + float64(0.3*float64(w.rate)))
	}
	for ; w.polled != tick.Never && w.polled+tick.FromMilliseconds(10) <= s.now; w.polled += tick.FromMilliseconds(10) {
		rate(0)
	}
	w.polled, w.size = tick.Never, max(w.size, 1)
	if len(w.running) >= w.e.MaxRunningRequests {
		return
	}
	rate(len(w.waiting))
	for i := 0; i < len(w.waiting); {
		if s.now-w.waiting[i].queuedAt < tick.FromMilliseconds(5500) {
			i++
			continue
		}
		r := s.dequeue(w, i)
		if s.finish(w, r, record.Rejected); r.first != tick.Never {
			r.status = record.Failed
		}
	}
	w.latest = w.rate >= w.size
}

// prefillSLoRA forms a prefill step.
func (s *reference) prefillSLoRA(w *refWorker) bool {
	tokens, limit := int64(0), max(w.capacity/6, int64(w.e.MaxPrefillTokens))
	k := profile.StepWork{FirstWave: w.steps == 0}
	var stall tick.Ticks
	for len(w.waiting) > 0 {
		r := w.waiting[w.nextSLoRA()]
		chosen := append(slices.Clone(w.filling), r)
		all := append(slices.Clone(chosen), w.running...)
		if len(all) > w.e.MaxRunningRequests || tokens+r.need() > limit ||
			peak(w.running, chosen) >= w.capacity-s.cells(w, all) {
			break
		}
		s.dequeue(w, w.nextSLoRA())
		if row := s.row(r); row < len(s.ranks) && s.active(w, row) == 0 {
			takes := w.costs.Load(s.ranks[row], router.Host)
			stall += takes
			r.cold += takes
		}
		tokens += r.need()
		k.Add(r.need(), 0, r.Adapter != trace.BaseModel)
		r.chunk, r.kv = r.need(), r.need()
		w.filling = chosen
	}
	if len(w.filling) == 0 {
		return false
	}
	w.left, w.size = len(w.waiting), max(int(float64(0.7*float64(len(w.filling)))+float64(0.3*float64(w.size))), 1)
	w.busy, w.prefilling = true, true
	w.until = s.now + stall + w.costs.Step(s.work(w, nil, w.filling, k))
	return true
}

// endSLoRA ends a prefill step.
func (s *reference) endSLoRA(w *refWorker) {
	w.running = append(w.running, s.endFilling(w)...)
	w.waited = 0
}
