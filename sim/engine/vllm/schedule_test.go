package vllm

import (
	"fmt"
	"math"
	"testing"

	"lorasim/sim/engine"
	"lorasim/sim/kvcache"
	"lorasim/sim/profile"
	"lorasim/sim/tick"
)

// free leaves so many pages of the KV cache free.
func (b *bench) free(n int64) { b.s.e.KV.Reserve(b.s.e.KV.Free() - n) }

// Where the oldest request finds no memory for its chunk, the newest are preempted until it does, and no more. One that
// preempts itself preempts nobody else.
func TestPreemptForAPrompt(t *testing.T) {
	for _, c := range []struct {
		name   string
		free   int64
		states []engine.State // of the prompt, then of those that decode with 4 pages each
	}{
		{"the newest finds none", 11, []engine.State{filling, running, running, waiting}}, // 9 + 1 + 1
		{"the newest gives", 8, []engine.State{filling, running, running, waiting}},       // 9 of 8 + 4, then 1 each
		{"two give", 2, []engine.State{filling, running, waiting, waiting}},               // 9 of 2 + 4 + 4
		{"all give", 0, []engine.State{filling, waiting, waiting, waiting}},               // 9 of 12; 3 stay free
	} {
		for _, order := range []string{profile.OrderFCFS, profile.OrderPriority} {
			b := newBench(t, 100, func(p *profile.Engine) { p.SchedulePolicy = order })
			rs := []*engine.Request{b.prefill(9, 0, 12, 3)} // 9 tokens are left
			rs = append(rs, b.run(4, 1, 1, 1)...)
			b.free(c.free)
			bud := budget{tokens: 50, chunk: math.MaxInt64}
			b.s.scheduleRunning(&bud)
			expect(t, c.name+", "+order, b, rs, c.states, map[int64]int32{9: 9})
			if want := 50 - 9 - int64(b.s.e.Batch.Len()); order == profile.OrderPriority && bud.tokens != want {
				t.Errorf("%s, %s: %d tokens left, expected %d", c.name, order, bud.tokens, want)
			}
		}
	}
	b := newBench(t, 100, nil)
	rs := append(b.run(4, 1, 1), b.prefill(9, 0, 60, 3))
	b.free(5) // with its own 3 it has 6 of 57
	bud := budget{tokens: 80, chunk: math.MaxInt64}
	b.s.scheduleRunning(&bud)
	expect(t, "preempts itself", b, rs, []engine.State{running, running, waiting}, nil)
}

// Under priorities requests get tokens as long as there are any (while token_budget > 0): those after catch up later,
// and are not preempted though there is no memory for them, either.
func TestBudgetUnderPriority(t *testing.T) {
	b := newBench(t, 100, func(p *profile.Engine) { p.SchedulePolicy = profile.OrderPriority })
	rs := b.run(4, 0, 1, 2)
	b.free(2)
	bud := budget{tokens: 2, chunk: math.MaxInt64}
	b.s.scheduleRunning(&bud)
	expect(t, "2 tokens for 3 requests", b, rs, []engine.State{running, running, filling}, nil)
	if bud.preempted || bud.tokens != 0 {
		t.Errorf("preempted %v, %d tokens left", bud.preempted, bud.tokens)
	}
	// a prompt behind a request that preempts itself gets no chunk, not even an empty one
	b = newBench(t, 100, func(p *profile.Engine) { p.SchedulePolicy = profile.OrderPriority })
	rs = append(b.run(4, 1, 2), b.prefill(9, 0, 12, 3))
	b.free(1)
	bud = budget{tokens: 50, chunk: math.MaxInt64}
	b.s.scheduleRunning(&bud)
	expect(t, "behind itself", b, rs, []engine.State{running, waiting, filling}, nil)
}

// Beside others a request without memory is preempted; it fails only where it has all the memory.
func TestPreemptedBesideOthers(t *testing.T) {
	b := newBench(t, 8, nil)
	rs := b.run(4, 0, 1)
	bud := budget{tokens: 50, chunk: math.MaxInt64}
	b.s.scheduleRunning(&bud)
	expect(t, "two", b, rs, []engine.State{running, waiting}, nil)
	if len(b.ended) > 0 {
		t.Errorf("ended: %v", b.ended)
	}
	b = newBench(t, 8, nil) // a transfer has the rest: the request waits for its end, without steps
	rs = b.run(4, 0)
	b.free(0)
	b.s.Schedule()
	expect(t, "beside a transfer", b, rs, []engine.State{waiting}, nil)
	if len(b.ended) > 0 || b.l.Next() != tick.Never {
		t.Errorf("ended: %v, next event at %d", b.ended, b.l.Next())
	}
}

// A step that preempts takes no waiting request, nor does one whose gate is closed, nor one without tokens left.
func TestTakesNobody(t *testing.T) {
	for name, c := range map[string]struct {
		tokens int
		change func(b *bench)
		takes  bool
	}{
		"gate open":      {50, func(*bench) {}, true},
		"gate closed":    {50, func(b *bench) { b.s.e.Gate.NoRoom() }, false},
		"preempts":       {50, func(b *bench) { b.free(1) }, false},
		"no tokens left": {2, func(*bench) {}, false},
	} {
		b := newBench(t, 100, func(p *profile.Engine) { p.MaxNumBatchedTokens = c.tokens })
		b.run(4, 0, 1)
		r := request(9, 2, 1, 5)
		b.s.e.Add(r)
		b.s.e.Gate.SetFull(false)
		c.change(b)
		if b.s.Schedule(); (r.State() == filling) != c.takes || (len(b.s.e.Step.Prompts) > 0) != c.takes {
			t.Errorf("%s: the waiting request is in state %d", name, r.State())
		}
	}
}

// A prompt that fits exactly into what is left of the step is not split where prompts may not be.
func TestWholePromptFits(t *testing.T) {
	b := newBench(t, 100, func(p *profile.Engine) { p.MaxNumBatchedTokens, p.NoChunkedPrefill = 10, true })
	b.s.e.Add(request(1, 0, 10, 1))
	b.take()
	if got, want := fmt.Sprint(b.tokens()), "[map[1:10]]"; got != want {
		t.Errorf("steps of %s, expected %s", got, want)
	}
}

// A request that was preempted needs memory for its output, too, less what is cached of its tokens.
func TestCanAllocateResumed(t *testing.T) {
	for match, needs := range map[int64]int64{0: 34, 10: 24} {
		for _, short := range []int64{0, 1} {
			b := newBench(t, 100, nil)
			r := request(9, 0, 30, 5)
			r.Generated = 4
			b.free(needs - short)
			if got := b.s.canAllocate(r, 1, match, 0); got != (short == 0) {
				t.Errorf("%d cached, %d pages free: %v", match, needs-short, got)
			}
		}
	}
}

// A preempted request decodes again once its prompt and its output are computed.
func TestUpdateResumed(t *testing.T) {
	for computed, state := range map[int64]engine.State{8: filling, 9: running} {
		b := newBench(t, 100, nil)
		r := b.prefill(9, 0, 7, 3)
		r.Generated = 2
		b.s.e.AddPrompt(r, computed-3)
		b.s.Update(true)
		if r.State() != state || (len(b.s.prefilling) > 0) != (state == filling) {
			t.Errorf("%d of 7 + 2 tokens computed: state %d, %d prefill", computed, r.State(), len(b.s.prefilling))
		}
	}
}

// A request that does not fit fails where nothing runs, is loaded or is transferred, so that nothing could let it in.
func TestFailsHead(t *testing.T) {
	for name, c := range map[string]struct {
		change func(b *bench)
		ended  int
	}{
		"alone":             {func(*bench) {}, 1},
		"beside a transfer": {func(b *bench) { b.free(90) }, 0},
		"beside a load":     {func(b *bench) { b.s.e.LoRA.StartLoad(&b.s.e.Rows.Of(2).Adapter) }, 0},
		"beside a request":  {func(b *bench) { b.run(4, 1) }, 0},
	} {
		b := newBench(t, 100, nil)
		b.s.e.Add(request(9, 0, 200, 5))
		c.change(b)
		if b.s.Schedule(); len(b.ended) != c.ended || b.s.e.Queue.Len() != 1-c.ended {
			t.Errorf("%s: %d ended, %d wait", name, len(b.ended), b.s.e.Queue.Len())
		}
	}
}

// Prefixes are blocks, if they are kept; the first wave of prompts is that before the first decode step.
func TestRules(t *testing.T) {
	for keeps, want := range map[bool]kvcache.Prefixes{true: kvcache.BlockPool, false: kvcache.NoPrefixes} {
		p := profile.Default()
		p.Engine.PrefixCache = keeps
		if got := rules(&p).Prefixes; got != want {
			t.Errorf("prefix cache %v: %v, expected %v", keeps, got, want)
		}
	}
	for steps, want := range map[int64]bool{0: true, 1: false} {
		b := newBench(t, 100, nil)
		b.s.e.Batch.Steps = steps
		b.s.e.Add(request(1, 0, 9, 5))
		if b.s.Schedule(); b.s.e.Step.Work.FirstWave != want {
			t.Errorf("after %d decode steps: first wave %v", steps, b.s.e.Step.Work.FirstWave)
		}
	}
}

// A report tells requests that run for the first time from those that run again after a preemption.
func TestResumedIsReported(t *testing.T) {
	for resumed, want := range map[bool]string{false: "[9] []", true: "[] [9]"} {
		b := newBench(t, 100, nil)
		r := request(9, 0, 8, 5)
		if b.s.e.Add(r); resumed {
			r.StartedAt = 0
		}
		b.s.Schedule()
		if got := fmt.Sprint(b.s.e.Report.New, b.s.e.Report.Resumed); got != want {
			t.Errorf("resumed %v: new and resumed are %s, expected %s", resumed, got, want)
		}
	}
}

// A request wants what is left of its prompt and of the output that it lost, at most the chunk.
func TestWants(t *testing.T) {
	r := request(1, 0, 8, 5)
	r.Generated = 2
	for chunk, want := range map[int64]int64{math.MaxInt64: 7, 7: 7, 5: 5} {
		if got := (&budget{chunk: chunk}).wants(r, 3); got != want {
			t.Errorf("7 tokens left, chunk %d: wants %d, expected %d", chunk, got, want)
		}
	}
}

// A step that takes prompts alone is no decode step.
func TestPromptsAlone(t *testing.T) {
	b := newBench(t, 100, nil)
	b.s.e.Add(request(1, 0, 8, 1))
	b.take()
	if st := b.s.e.Stats; st.PrefillSteps != 1 || st.DecodeSteps != 0 {
		t.Errorf("%d prefill and %d decode steps, expected 1 and 0", st.PrefillSteps, st.DecodeSteps)
	}
}
