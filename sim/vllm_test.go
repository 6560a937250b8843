package sim

import (
	"context"
	"math"
	"slices"
	"testing"

	"lorasim/internal/record"
	"lorasim/internal/tick"
	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/trace"
)

// The reference of vLLM's scheduler: it looks at everything before each step,
// and steps one by one. TestLeapsEqualSteps holds the simulator against it.

// initVLLM gives the base model a slot of its own for good.
func (w *refWorker) initVLLM() {
	w.e.MaxLorasPerBatch++
	w.e.HeadOfLine, w.e.StarvationS = profile.HeadOfLineSkip, 0
	w.ad[len(w.ad)-1].slot = true
}

func (s *reference) beginVLLM(w *refWorker) {
	for {
		preempted := s.preempt(w)
		var fills []int64
		stall := tick.Ticks(0)
		w.filling = nil
		budget := int64(w.e.MaxNumBatchedTokens - len(w.running))
		take := func(r *refRequest) bool {
			n := min(r.need()-r.kv, budget)
			if w.pages(r.kv+n)-w.pages(r.kv) > w.capacity-w.usedPages()-w.decodeNeed() {
				return false
			}
			w.chunked = nil
			w.filling, fills = append(w.filling, r), append(fills, n)
			budget -= n
			r.kv += n
			if r.kv < r.need() {
				w.chunked = r
			}
			return true
		}
		blocked := false
		if r := w.chunked; r != nil && !take(r) {
			s.preemptOne(w, r)
			w.chunked, blocked = nil, true
		}
		for !preempted && !blocked && len(w.waiting) > 0 && budget > 0 && len(w.running)+len(w.filling) < w.e.MaxRunningRequests {
			k := s.choose(w)
			if k < 0 {
				break
			}
			r := w.waiting[k]
			if !take(r) {
				break
			}
			stall += s.use(w, r)
			w.waiting = slices.Delete(w.waiting, k, k+1)
			s.entered++
			r.order = s.entered // newest of the running ones
		}
		if len(w.filling) > 0 {
			s.startMixed(w, fills, stall)
			return
		}
		if len(w.running) > 0 {
			s.startMixed(w, nil, 0)
			return
		}
		if len(w.waiting) == 0 || len(w.loads) > 0 {
			return
		}
		if preempted || blocked {
			continue
		}
		r := w.waiting[0]
		w.waiting = w.waiting[1:]
		s.finish(w, r, record.Failed)
	}
}

// use gives a request its adapter and returns how long the step waits for it.
func (s *reference) use(w *refWorker, r *refRequest) (stall tick.Ticks) {
	row := s.row(r)
	a := &w.ad[row]
	if !a.slot {
		stall = s.take(w, row)
		a.tier = router.GPU
		r.cold += stall
	} else {
		if a.loading {
			stall = a.to - s.now
		}
		r.cold += max(0, a.to-max(a.from, r.queuedAt))
	}
	w.clock++
	a.used = w.clock
	return stall
}

// startMixed starts a step that decodes all running requests and fills those
// of w.filling by so many tokens each.
func (s *reference) startMixed(w *refWorker, fills []int64, stall tick.Ticks) {
	work := profile.PrefillWork{FirstWave: w.steps == 0}
	for i, r := range w.filling {
		work.Add(fills[i], r.kv-fills[i], r.Adapter != trace.BaseModel)
	}
	if work.Extends && !w.extended {
		work.FirstExtend, w.extended = true, true
	}
	var ctx, loras int64
	rank := 0
	for _, r := range w.running {
		ctx += r.kv
		if r.Adapter != trace.BaseModel {
			loras++
			rank = max(rank, w.costs.Rank(s.ranks[r.Adapter]))
		}
	}
	w.busy, w.mixed = true, true
	if len(fills) == 0 {
		w.until = s.now + w.costs.DecodeFixed(int64(len(w.running)), loras, rank) + w.costs.PerKVToken*tick.Ticks(ctx)
		return
	}
	w.until = s.now + stall + w.costs.Mixed(work, int64(len(w.running)), loras, rank, ctx)
}

func (s *reference) endMixed(w *refWorker) {
	if len(w.running) > 0 {
		w.steps++
	}
	for _, r := range w.running {
		r.kv++
		s.token(w, r)
	}
	w.running = slices.DeleteFunc(w.running, func(r *refRequest) bool {
		if r.generated < int64(r.Output) {
			return false
		}
		s.finish(w, r, record.OK)
		return true
	})
	for _, r := range w.filling {
		if r.kv < r.need() {
			continue
		}
		s.token(w, r)
		if r.generated == int64(r.Output) {
			s.finish(w, r, record.OK)
		} else {
			w.running = append(w.running, r)
		}
	}
	w.filling = nil
}

// preempt makes room for the next tokens of the running requests, the newest
// request going first.
func (s *reference) preempt(w *refWorker) (preempted bool) {
	for w.decodeNeed() > w.capacity-w.usedPages() {
		switch {
		case w.chunked != nil:
			s.preemptOne(w, w.chunked)
			w.chunked = nil
		case len(w.running) == 1:
			s.finish(w, w.running[0], record.Failed)
			w.running = nil
			return preempted
		default:
			newest := slices.MaxFunc(w.running, func(a, b *refRequest) int { return a.order - b.order })
			w.running = slices.DeleteFunc(w.running, func(r *refRequest) bool { return r == newest })
			s.preemptOne(w, newest)
		}
		preempted = true
	}
	return preempted
}

func (s *reference) preemptOne(w *refWorker, r *refRequest) {
	r.kv, r.queuedAt = 0, s.now
	w.waiting = slices.Insert(w.waiting, 0, r)
}

// vllmProfile has round step times under vLLM's scheduler.
func vllmProfile() profile.Profile {
	p := testProfile()
	p.Latency = profile.Latency{
		Decode:  profile.Decode{BaseMs: 10, PerRequestMs: 1, PerKVTokenUs: 0},
		Prefill: profile.Prefill{BaseMs: 8, PerTokenUs: 100, FirstWaveFactor: 1},
		LoRA:    profile.LoRA{Backend: profile.BackendNone},
	}
	p.Engine.Scheduler = profile.SchedulerVLLM
	p.Engine.MaxRunningRequests = 8
	p.Engine.MaxNumBatchedTokens = 50
	return p
}

func runVLLM(t *testing.T, p profile.Profile, reqs []trace.Request, adapters int) (*ledger, *Stats) {
	t.Helper()
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	got := newLedger()
	w := trace.Workload{Adapters: trace.Names(adapters, []int{8}), Requests: reqs}
	st, err := Run(context.Background(), Config{Source: w.Source(), Workers: []*profile.Costs{p.Compile()},
		Router: &router.Router{Policy: byID{1}}, Observer: got, Home: router.Disk})
	if err != nil {
		t.Fatal(err)
	}
	return got, st
}

// Worked by hand: request 0 (100 prompt tokens) takes two steps of the whole
// budget of 50, 8+5 ms each, and has its first token at 26 ms. Request 1 comes
// at 20 ms and gets into the step at 26 ms with 30 tokens beside request 0's
// next token: 8+3 ms and 1 ms for the running request, so both have a token at
// 38 ms. Two decode steps of 12 ms follow for the third and fourth token of
// request 0 and the second and third of request 1.
func TestVLLMWorked(t *testing.T) {
	got, st := runVLLM(t, vllmProfile(), []trace.Request{
		{ID: 0, Adapter: trace.BaseModel, Prompt: 100, Output: 4},
		{ID: 1, Adapter: trace.BaseModel, Arrival: 0.020, Prompt: 30, Output: 3},
	}, 0)
	for id, want := range map[int64][2]float64{0: {0.026, 0.062}, 1: {0.038, 0.062}} {
		r := got.recs[id]
		if math.Abs(r.FirstToken-want[0]) > 1e-9 || math.Abs(r.Finish-want[1]) > 1e-9 {
			t.Errorf("request %d: first token at %v, end at %v, expected %v", id, r.FirstToken, r.Finish, want)
		}
	}
	if w := st.Workers[0]; w.PrefillSteps != 3 || w.DecodeSteps != 3 {
		t.Errorf("%d steps with prompt tokens and %d that decode, expected 3 and 3", w.PrefillSteps, w.DecodeSteps)
	}
}

// With one adapter slot, a request of another adapter is passed over while the
// slot is in use, and the base model never is.
func TestVLLMMaxLoras(t *testing.T) {
	p := vllmProfile()
	p.Engine.MaxLorasPerBatch = 1
	got, _ := runVLLM(t, p, []trace.Request{
		{ID: 0, Adapter: 0, Prompt: 10, Output: 20},
		{ID: 1, Adapter: 1, Prompt: 10, Output: 2},
		{ID: 2, Adapter: 0, Prompt: 10, Output: 2},
		{ID: 3, Adapter: trace.BaseModel, Prompt: 10, Output: 2},
	}, 2)
	if a, b, c := got.recs[1], got.recs[2], got.recs[3]; !(b.Finish < a.FirstToken && c.Finish < a.FirstToken) || a.FirstToken < got.recs[0].Finish {
		t.Errorf("adapter 1 at %v, adapter 0 until %v, passed over by requests that end at %v and %v", a.FirstToken, got.recs[0].Finish, b.Finish, c.Finish)
	}
}

// Out of memory, the newest request loses its cache and goes on when there is
// room; nothing is lost.
func TestVLLMPreemptsTheNewest(t *testing.T) {
	p := vllmProfile()
	p.Memory.KVTokens, p.Engine.PageSize = 100, 1
	got, st := runVLLM(t, p, []trace.Request{
		{ID: 0, Adapter: trace.BaseModel, Prompt: 40, Output: 40},
		{ID: 1, Adapter: trace.BaseModel, Prompt: 40, Output: 40},
	}, 0)
	if st.Workers[0].Retractions == 0 || st.Workers[0].PeakKV > 100 {
		t.Errorf("%d preemptions, peak of %d tokens, expected some within 100", st.Workers[0].Retractions, st.Workers[0].PeakKV)
	}
	if a, b := got.recs[0], got.recs[1]; a.Status != record.OK || b.Status != record.OK || a.Finish >= b.Finish {
		t.Errorf("ends %v (%v) and %v (%v), expected the older one first", a.Finish, a.Status, b.Finish, b.Status)
	}
}
