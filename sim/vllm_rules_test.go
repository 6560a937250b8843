package sim

import (
	"maps"
	"slices"
	"testing"

	"lorasim/router"
	"lorasim/sim/engine"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
)

// The rules of vLLM's scheduler (v1/core/sched/scheduler.py, version 0.32), one
// by one. Requests are named by their ID and come all at once.

// stepLog keeps every step of a server.
type stepLog struct {
	fates
	steps []engine.Report
}

func (l *stepLog) Step(s *engine.Report) { l.steps = append(l.steps, *s) }

type tokens = map[int64]int32

// stepsOf runs requests on a worker with the given change to the profile.
func stepsOf(t *testing.T, change func(*profile.Profile), reqs ...trace.Request) *stepLog {
	t.Helper()
	p := vllmProfile()
	p.Engine.PageSize = 16
	change(&p)
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	l := &stepLog{fates: fates{}}
	adapters := trace.Names(8, []int{8})
	srv, err := NewServer(ServerConfig{Costs: p.Compile(), Hooks: ServerHooks{Token: l.Token, Ended: l.Ended,
		Step: l.Step}, MaxAdapters: len(adapters), Home: router.Disk})
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range adapters {
		srv.Define(int32(i), a)
	}
	for i, r := range reqs {
		r.ID = int64(i)
		if err := srv.Submit(r); err != nil {
			t.Fatal(err)
		}
	}
	for at := srv.Now(); at != tick.Never; at = srv.Next() {
		srv.Advance(at)
	}
	return l
}

func base(prompt, output int32) trace.Request {
	return trace.Request{Adapter: trace.BaseModel, Prompt: prompt, Output: output}
}

func adapted(a, prompt, output int32) trace.Request {
	return trace.Request{Adapter: a, Prompt: prompt, Output: output}
}

// expectTokens compares what the first steps scheduled.
func expectTokens(t *testing.T, l *stepLog, want ...tokens) {
	t.Helper()
	for k, w := range want {
		if k >= len(l.steps) || !maps.Equal(l.steps[k].Tokens, w) {
			t.Fatalf("step %d: %v, expected %v", k, l.steps[k:min(k+1, len(l.steps))], w)
		}
	}
}

// long_prefill_token_threshold: several prompts are partly prefilled at a time;
// the only request is not held back.
func TestVLLMLongPrefill(t *testing.T) {
	long := func(p *profile.Profile) {
		p.Engine.MaxNumBatchedTokens, p.Engine.LongPrefillTokenThreshold = 50, 20
	}
	expectTokens(t, stepsOf(t, long, base(45, 3), base(30, 2), base(25, 1)),
		tokens{0: 20, 1: 20, 2: 10}, // the budget ends within the third
		tokens{0: 20, 1: 10, 2: 15},
		tokens{0: 5, 1: 1},
		tokens{0: 1})
	expectTokens(t, stepsOf(t, long, base(70, 2)), tokens{0: 50}, tokens{0: 20}, tokens{0: 1})
}

// The running requests come first, and the step's budget bounds all.
func TestVLLMBudget(t *testing.T) {
	l := stepsOf(t, func(p *profile.Profile) { p.Engine.MaxNumBatchedTokens = 20 }, base(18, 9), base(30, 2))
	expectTokens(t, l, tokens{0: 18, 1: 2}, tokens{0: 1, 1: 19}, tokens{0: 1, 1: 9}, tokens{0: 1, 1: 1}, tokens{0: 1})
	if !slices.Equal(l.steps[0].New, []int64{0, 1}) {
		t.Errorf("new in step 0: %v", l.steps[0].New)
	}
}

// enable_chunked_prefill off: a prompt that does not fit the rest of the budget
// waits, and those behind it.
func TestVLLMNoChunkedPrefill(t *testing.T) {
	expectTokens(t, stepsOf(t, func(p *profile.Profile) {
		p.Engine.NoChunkedPrefill, p.Engine.ContextLength, p.Engine.MaxNumBatchedTokens = true, 50, 50
	}, base(30, 2), base(21, 1), base(5, 1), base(20, 1)),
		tokens{0: 30}, tokens{0: 1, 1: 21, 2: 5, 3: 20})
	expectTokens(t, stepsOf(t, func(p *profile.Profile) { p.Engine.MaxNumBatchedTokens = 50 }, base(30, 2),
		base(21, 1)),
		tokens{0: 30, 1: 20}, tokens{0: 1, 1: 1})
}

// max_num_seqs bounds the running requests.
func TestVLLMMaxNumSeqs(t *testing.T) {
	l := stepsOf(t, func(p *profile.Profile) { p.Engine.MaxRunningRequests = 2 }, base(5, 2), base(5, 1), base(5, 1))
	expectTokens(t, l, tokens{0: 5, 1: 5}, tokens{0: 1, 2: 5})
	if s := l.steps[0]; s.Running != 1 || s.Waiting != 1 {
		t.Errorf("%d run and %d wait after step 0, expected 1 and 1", s.Running, s.Waiting)
	}
}

// Scheduler._preempt_request: where the next block is missing the newest goes
// back to the head of the queue, the step lets nobody in, and what it has
// generated is computed again.
func TestVLLMPreempt(t *testing.T) {
	l := stepsOf(t, func(p *profile.Profile) { p.Memory.KVTokens = 5 * 16 }, base(32, 20), base(31, 20), base(16, 1))
	// 2 + 2 blocks and one left: request 2 is let in and ends, request 0 takes
	// the fifth, then request 1 finds none
	expectTokens(t, l, tokens{0: 32, 1: 18}, tokens{0: 1, 1: 13}, tokens{0: 1, 1: 1}, tokens{0: 1})
	if s := l.steps[3]; !slices.Equal(s.Preempted, []int64{1}) || s.Running != 1 || s.Waiting != 2 || s.FreePages != 2 {
		t.Errorf("step 3: %+v, expected request 1 preempted and nobody let in", s)
	}
	k := slices.IndexFunc(l.steps, func(s engine.Report) bool { return len(s.Resumed) > 0 })
	if k < 0 || l.steps[k].Tokens[1] != 33 || l.steps[k].Resumed[0] != 1 {
		t.Errorf("resumed in step %d, expected with 31 + 2 tokens", k)
	}
}

// scheduler_reserve_full_isl: a request is let in where its whole prompt finds
// memory; without, where its first chunk does.
func TestVLLMReservesPrompt(t *testing.T) {
	reqs := []trace.Request{base(20, 5), base(60, 1)}
	tight := func(off bool) func(*profile.Profile) {
		return func(p *profile.Profile) {
			p.Memory.KVTokens, p.Engine.MaxNumBatchedTokens, p.Engine.NoReserveFullISL = 5*16, 30, off
		}
	}
	expectTokens(t, stepsOf(t, tight(false), reqs...), tokens{0: 20}, tokens{0: 1})
	expectTokens(t, stepsOf(t, tight(true), reqs...), tokens{0: 20, 1: 10}, tokens{0: 1, 1: 29})
}

// max_loras: a request whose adapter would be one too many is passed over and
// keeps its place; the base model needs no slot.
func TestVLLMSkipsForSlot(t *testing.T) {
	l := stepsOf(t, func(p *profile.Profile) { p.Engine.MaxLorasPerBatch = 2 },
		adapted(0, 5, 3), adapted(1, 5, 1), adapted(2, 5, 1), adapted(3, 5, 1), adapted(0, 5, 1), base(5, 1))
	expectTokens(t, l, tokens{0: 5, 1: 5, 4: 5, 5: 5}, tokens{0: 1, 2: 5}, tokens{0: 1, 3: 5})
}

// check_stop (v1/core/sched/utils.py): a request ends at max_model_len, or where
// the cache is full; a prompt as long is refused.
func TestVLLMLongest(t *testing.T) {
	ends := func(kv int64, reqs ...trace.Request) *stepLog {
		return stepsOf(t, func(p *profile.Profile) {
			p.Engine.ContextLength, p.Engine.ContextOverflow, p.Memory.KVTokens = 40, profile.OverflowPrompt, kv
		}, reqs...)
	}
	l := ends(1000, base(30, 50), base(39, 5), base(40, 1))
	for id, want := range []int{10, 1, 0} {
		if f := l.of(int64(id)); len(f.tokens) != want || (f.status == record.OK) != (want > 0) {
			t.Errorf("request %d: %d tokens, %v, expected %d", id, len(f.tokens), f.status, want)
		}
	}
	if f := ends(32, base(30, 50)).of(0); len(f.tokens) != 3 || f.status != record.OK {
		t.Errorf("%d tokens, %v, where the cache holds 32, expected 3: the last is not stored", len(f.tokens), f.status)
	}
}

// max_cpu_loras is max_loras unless set: an adapter that loses its slot comes
// from disk again.
func TestVLLMHostMemory(t *testing.T) {
	cold := func(host int) tick.Ticks {
		p := vllmProfile()
		p.Engine.MaxLorasPerBatch, p.Engine.MaxLoadedLoras = 1, host
		got, _ := runVLLM(t, p, []trace.Request{adapted(1, 5, 1), {ID: 1, Adapter: 0, Arrival: 1, Prompt: 5, Output: 1},
			{ID: 2, Adapter: 1, Arrival: 2, Prompt: 5, Output: 1}}, 2)
		return tick.FromSeconds(got.recs[2].ColdLoad)
	}
	p := vllmProfile()
	c := p.Compile()
	for host, from := range map[int]router.Tier{0: router.Disk, 1: router.Disk, 2: router.Host} {
		if got, want := cold(host), c.Load(8, from); got != want {
			t.Errorf("max_cpu_loras %d: the load takes %v ms, expected %v", host, got.Milliseconds(),
				want.Milliseconds())
		}
	}
}

// A request given up while its prompt is partly prefilled goes with that step
// (Scheduler.finish_requests).
func TestVLLMCancelPartial(t *testing.T) {
	p := vllmProfile()
	srv, heard := newTestServer(t, &p, nil)
	for _, r := range []trace.Request{{ID: 0, Adapter: trace.BaseModel, Prompt: 500, Output: 5},
		{ID: 1, Adapter: trace.BaseModel, Prompt: 10, Output: 1}} {
		if err := srv.Submit(r); err != nil {
			t.Fatal(err)
		}
	}
	srv.Advance(0)
	srv.Cancel(0)
	for at := srv.Next(); at != tick.Never; at = srv.Next() {
		srv.Advance(at)
	}
	// one step of 50 tokens at 8 + 5 ms, then request 1 alone in 8 + 1 ms
	if a, b := heard.of(0), heard.of(1); a.status != record.Aborted || a.end != 13*tick.Millisecond ||
		b.end != 22*tick.Millisecond {
		t.Errorf("ends at %v and %v ms, expected 13 and 22", a.end.Milliseconds(), b.end.Milliseconds())
	}
}
