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
	for {
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
			return
		}
		s.finish(w, s.dequeue(w, 0), record.Failed)
	}
}

// prefillSLoRA forms a prefill step.
func (s *reference) prefillSLoRA(w *refWorker) bool {
	tokens, limit := int64(0), max(w.capacity/6, int64(w.e.MaxPrefillTokens))
	k := profile.StepWork{FirstWave: w.steps == 0}
	var stall tick.Ticks
	for len(w.waiting) > 0 {
		r := w.waiting[0]
		chosen := append(slices.Clone(w.filling), r)
		all := append(slices.Clone(chosen), w.running...)
		if len(all) > w.e.MaxRunningRequests || tokens+r.need() > limit ||
			peak(w.running, chosen) >= w.capacity-s.cells(w, all) {
			break
		}
		s.dequeue(w, 0)
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
	w.busy, w.prefilling = true, true
	w.until = s.now + stall + w.costs.Step(s.work(w, nil, w.filling, k))
	return true
}

// endSLoRA ends a prefill step.
func (s *reference) endSLoRA(w *refWorker) {
	idle := len(w.running) == 0
	joined := s.endFilling(w)
	w.running = append(w.running, joined...)
	if idle || len(joined) > 0 {
		w.waited = 0
	}
}
