package sim

import (
	"context"
	"math"
	"slices"
	"testing"

	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
)

// The reference of vLLM's scheduler: it keeps one list of running requests,
// looks at everything before each step, and steps one by one.
// TestLeapsEqualSteps holds the simulator against it.

// initVLLM gives the base model a slot of its own for good.
func (w *refWorker) initVLLM() {
	if w.e.MaxLoadedLoras == 0 {
		w.e.MaxLoadedLoras = w.e.MaxLorasPerBatch
	}
	w.e.MaxLorasPerBatch++
	w.e.HeadOfLine, w.e.LoraDrainWait = profile.HeadOfLineSkip, 0
	w.ad[len(w.ad)-1].slot = true
}

func (s *reference) beginVLLM(w *refWorker) {
	for {
		w.scheduled = map[*refRequest]int64{}
		budget, chunk := int64(w.e.MaxNumBatchedTokens), int64(math.MaxInt64)
		if t := int64(w.e.LongPrefillTokenThreshold); t > 0 && len(w.running)+len(w.waiting) > 1 {
			chunk = t
		}
		schedule := func(r *refRequest, n int64) {
			w.scheduled[r] = n
			budget -= n
		}
		preempted, itself := false, false
		for k := 0; k < len(w.running) && budget > 0 && !itself; k++ {
			r := w.running[k]
			n := min(r.need()-r.kv, chunk, budget)
			for !itself && w.pagesAfterStep()+w.pages(r.kv+n)-w.pages(r.kv) > w.capacity {
				v := s.worst(w)
				last := w.running[v]
				w.running = slices.Delete(w.running, v, v+1)
				budget += w.scheduled[last]
				delete(w.scheduled, last)
				if v < k || v == k && w.goesOn() {
					k--
				}
				itself = last == r
				if len(w.running) == 0 {
					s.finish(w, last, record.Failed)
					break
				}
				preempted = true
				last.kv, last.decodes, w.full = 0, false, false
				s.comeBack(w, last)
			}
			if !itself {
				schedule(r, n)
			}
			itself = itself && !w.goesOn()
		}
		for _, r := range w.running {
			if w.scheduled[r] == 0 {
				r.decodes = false // from now on it catches up like a prompt
			}
		}
		stall := tick.Ticks(0)
		for !preempted && !w.full && len(w.waiting) > 0 && budget > 0 && len(w.running) < w.e.MaxRunningRequests {
			k := s.choose(w)
			if k < 0 {
				break
			}
			r := w.waiting[k]
			n := min(r.need(), chunk)
			if n > budget && w.e.NoChunkedPrefill {
				break
			}
			n = min(n, budget)
			must := r.need()
			if w.e.NoReserveFullISL {
				must = n
			}
			if w.pagesAfterStep()+w.pages(must) > w.capacity {
				// others are not tried, whatever they have been served meanwhile
				w.full = w.e.SchedulePolicy == profile.OrderVTC
				break
			}
			stall += s.use(w, r)
			s.dequeue(w, k)
			s.admitted(w, r)
			w.running = append(w.running, r)
			schedule(r, n)
		}
		if len(w.scheduled) > 0 {
			s.startMixed(w, stall)
			return
		}
		if preempted {
			continue
		}
		if len(w.waiting) == 0 || len(w.loads) > 0 {
			return
		}
		s.sort(w)
		s.finish(w, s.dequeue(w, 0), record.Failed)
	}
}

// pagesAfterStep is the number of KV pages that the running requests have with
// what they get in this step.
func (w *refWorker) pagesAfterStep() (n int64) {
	for _, r := range w.running {
		n += w.pages(r.kv + w.scheduled[r])
	}
	return n
}

// startMixed starts the step that has been scheduled.
func (s *reference) startMixed(w *refWorker, stall tick.Ticks) {
	work := profile.StepWork{FirstWave: w.steps == 0}
	var decodes, fills []*refRequest
	for _, r := range w.running {
		switch n := w.scheduled[r]; {
		case n == 0:
		case r.decodes:
			decodes = append(decodes, r)
		default:
			fills = append(fills, r)
			work.Add(n, r.kv, r.Adapter != trace.BaseModel)
			r.chunk = n
		}
	}
	if work.Extends && !w.extended {
		work.FirstExtend, w.extended = true, true
	}
	w.busy, w.mixed = true, true
	w.until = s.now + stall + w.costs.Step(s.work(w, decodes, fills, work))
	if len(decodes) > 0 {
		w.steps++
	}
}

func (s *reference) endMixed(w *refWorker) {
	if slices.ContainsFunc(w.running, func(r *refRequest) bool { return r.decodes && w.scheduled[r] > 0 }) {
		s.stampRunning(w)
	}
	w.running = slices.DeleteFunc(w.running, func(r *refRequest) bool {
		r.kv += w.scheduled[r]
		if r.kv < r.need() || w.scheduled[r] == 0 {
			return false
		}
		s.token(w, r)
		r.decodes = true
		if r.generated < int64(r.Output) {
			return false
		}
		s.finish(w, r, record.OK)
		return true
	})
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
		Router: &router.Router{Policy: byID{n: 1}}, Observer: got, Home: router.Disk})
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
	if a, b, c := got.recs[1], got.recs[2], got.recs[3]; !(b.Finish < a.FirstToken && c.Finish < a.FirstToken) ||
		a.FirstToken < got.recs[0].Finish {
		t.Errorf("adapter 1 at %v, adapter 0 until %v, passed over by requests that end at %v and %v", a.FirstToken,
			got.recs[0].Finish, b.Finish, c.Finish)
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
	if st.Workers[0].Preemptions == 0 || st.Workers[0].PeakKV > 100 {
		t.Errorf("%d preemptions, peak of %d tokens, expected some within 100", st.Workers[0].Preemptions,
			st.Workers[0].PeakKV)
	}
	if a, b := got.recs[0], got.recs[1]; a.Status != record.OK || b.Status != record.OK || a.Finish >= b.Finish {
		t.Errorf("ends %v (%v) and %v (%v), expected the older one first", a.Finish, a.Status, b.Finish, b.Status)
	}
}
