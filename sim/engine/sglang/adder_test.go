package sglang

import (
	"fmt"
	"slices"
	"testing"

	"lorasim/internal/testutil"
	"lorasim/sim/engine"
	"lorasim/sim/profile"
)

// The ratio of a step is what was estimated until that step, and falls from then on, not below its least value.
func TestRatioDecays(t *testing.T) {
	p := &profile.Engine{NewTokenRatio: 0.7, NewTokenRatioMin: 0.2, NewTokenRatioSteps: 100}
	n := newTokenRatio{value: 0.6, since: 50}
	for steps, want := range map[int64]float64{0: 0.6, 50: 0.6, 60: 0.6 - 0.056, 1000: 0.14} { // 0.56 in 100 steps
		testutil.Near(t, fmt.Sprintf("ratio after %d steps", steps), n.at(p, steps), want, 1e-12)
	}
}

// Every request is charged whole pages, and one more; its output is charged to the total alone.
func TestUpdatePrefillBudget(t *testing.T) {
	s, _ := schedulerWith(t, func(p *profile.Engine) { p.PageSize = 16 })
	for chunk, want := range map[int64]int64{100: 68, noChunks: noChunks} {
		a := &s.adder
		a.total, a.current, a.input, a.chunk = 500, 400, 300, chunk
		r := request(0, 50)
		r.Prompt = 20
		s.e.Add(r)
		s.e.Start(r)
		a.updatePrefillBudget(r, 20, 50)
		if a.total != 500-32-16-50 || a.current != 400-32-16 || a.input != 300-32 || a.chunk != want ||
			r.Computed != 20 {
			t.Errorf("%v left in all, %d allocated, %d of the input, %d of the chunk", a.total, a.current, a.input,
				a.chunk)
		}
	}
}

// The gate is full where a request that leaves could make room: somebody runs, or is chosen.
func TestNoToken(t *testing.T) {
	for name, c := range map[string]struct {
		before func(s *Scheduler)
		full   bool
	}{
		"nobody": {func(*Scheduler) {}, false},
		"runs":   {func(s *Scheduler) { run(s, 0, 0, 0, 10) }, true},
		"chosen": {func(s *Scheduler) { s.e.Step.Prompts = []engine.Chunk{{Request: request(0, 1), Tokens: 1}} }, true},
	} {
		s, _ := schedulerWith(t, func(*profile.Engine) {})
		c.before(s)
		if s.adder.noToken(); s.e.Gate.Full() != c.full || s.adder.more() {
			t.Errorf("%s: full %v, expected %v, and nobody else is let in", name, s.e.Gate.Full(), c.full)
		}
	}
}

// A request of 10 prompt tokens and a budget of 5 needs 16, and fewer than there are. Nobody follows one that takes the
// last tokens that are allocated.
func TestAddOneReq(t *testing.T) {
	for _, c := range []struct {
		total         float64
		current       int64
		chunk         int64
		fits, follows bool
		takes         int32 // prompt tokens
	}{
		{16, 100, 100, false, false, 0}, {17, 100, 100, true, true, 10},
		{100, 11, 100, true, false, 10}, {100, 12, 100, true, true, 10},
		{100, 100, 10, true, false, 10}, {100, 100, 7, true, false, 7}, // the rest in the next step
	} {
		s, _ := schedulerWith(t, func(*profile.Engine) {})
		r := request(0, 5)
		r.Prompt = 10
		s.e.Add(r)
		a := &s.adder
		s.e.Step.Open(false)
		a.total, a.current, a.input, a.chunk = c.total, c.current, 1000, c.chunk
		fits := a.addOneReq(r)
		if split := s.chunkedReq == r; fits != c.fits || a.more() != c.follows || r.Computed != c.takes ||
			split != (c.takes > 0 && c.takes < 10) {
			t.Errorf("%v in all, %d allocated, chunks of %d: fits %v, others may follow %v, %d tokens, split %v",
				c.total, c.current, c.chunk, fits, a.more(), r.Computed, split)
		}
	}
}

// The request whose prompt is partly computed goes on with what the chunk, and memory, allow.
func TestAddChunkedReq(t *testing.T) {
	for _, c := range []struct {
		total float64
		chunk int64
		takes int32
		done  bool
	}{{100, 8, 8, false}, {100, 30, 30, true}, {9, 30, 9, false}, {-3, 12, 12, false}, {100, 29, 29, false}} {
		s, _ := schedulerWith(t, func(*profile.Engine) {})
		r := request(0, 5)
		r.Prompt = 30
		s.e.Add(r)
		s.e.Start(r)
		s.chunkedReq = r
		s.e.Step.Open(false)
		a := &s.adder
		a.total, a.chunk = c.total, c.chunk
		if a.addChunkedReq(); r.Computed != c.takes || (s.chunkedReq == nil) != c.done {
			t.Errorf("%v in all, chunks of %d: %d tokens, goes on %v; expected %d", c.total, c.chunk, r.Computed,
				s.chunkedReq != nil, c.takes)
		}
	}
}

// A request fits where every request can run to its end: the memory of those that end first helps the others, and a
// token for each is left.
func TestAddOneReqIgnoreEOS(t *testing.T) {
	for _, c := range []struct {
		states        []reqState
		left, n, free int64
		fits          bool
	}{
		{nil, 10, 4, 5 + 10 + 2, true}, {nil, 10, 4, 5 + 10 + 1, false}, // it takes 4 + 1 now, 10 later
		// between: 2 x 10 and one for each after 3 x 3, when 5 are free again
		{[]reqState{{3, 5}, {20, 1}}, 10, 4, 5 + 18, true}, {[]reqState{{3, 5}, {20, 1}}, 10, 4, 5 + 17, false},
		{[]reqState{{3, 5}}, 10, 4, 5 + 23, true}, {[]reqState{{3, 5}}, 10, 4, 5 + 22, false}, // last: counted first
		{nil, 10, 4, 4, false},
	} {
		s, _ := schedulerWith(t, func(*profile.Engine) {})
		a := &s.adder
		a.counted, a.states, a.current, a.total = true, c.states, c.free, 1000
		if len(c.states) == 0 {
			a.counted = false
		}
		r := request(0, int32(c.left))
		if got := a.addOneReqIgnoreEOS(r, c.n); got != c.fits {
			t.Errorf("%v: %d free, fits %v, expected %v", c.states, c.free, got, c.fits)
		}
		a.total, a.counted = 4, false
		if a.addOneReqIgnoreEOS(r, c.n) {
			t.Error("a request fits that takes more than there is in all")
		}
	}
}

// States are in the order of their ends. One that ends after all others is inserted before the last (add_req_state).
func TestAddReqState(t *testing.T) {
	for left, want := range map[int32][]int64{
		2: {2, 3, 10}, 3: {3, 3, 10}, 7: {3, 7, 10}, 20: {3, 20, 10}, 0: {3, 10},
	} {
		s, _ := schedulerWith(t, func(*profile.Engine) {})
		a := &s.adder
		a.counted, a.states = true, []reqState{{3, 1}, {10, 1}}
		a.addReqState(request(0, left))
		var got []int64
		for _, c := range a.states {
			got = append(got, c.left)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d left: states %v, expected %v", left, got, want)
		}
	}
	s, _ := schedulerWith(t, func(*profile.Engine) {})
	r := run(s, 4, 0, 3, 100)
	s.e.Batch.Steps = 10 // 3 + 6 tokens, and a prompt of 1
	if got, want := s.adder.stateOf(r), (reqState{91, 10}); got != want {
		t.Errorf("%+v, expected %+v", got, want)
	}
	run(s, 10, 1, 0, 5)
	s.adder.counted = false
	s.adder.addReqState(request(2, 20))
	if want := []reqState{{5, 1}, {20, 1}, {91, 10}}; !slices.Equal(s.adder.states, want) {
		t.Errorf("%v, expected %v", s.adder.states, want)
	}
}

// Prompts are split at whole pages: one of 10 tokens takes 12 in pages of 4, and a chunk of 11 has room for 8.
func TestSplitAtPages(t *testing.T) {
	for chunk, want := range map[int64]int32{12: 10, 11: 8, 8: 8, 7: 4, 3: 0} {
		s, _ := schedulerWith(t, func(p *profile.Engine) { p.PageSize = 4 })
		r := request(0, 5)
		r.Prompt = 10
		s.e.Add(r)
		a := &s.adder
		s.e.Step.Open(false)
		a.total, a.current, a.input, a.chunk = 1000, 1000, 1000, chunk
		if fits := a.addOneReq(r); fits != (want > 0) || r.Computed != want {
			t.Errorf("chunk of %d: fits %v, %d tokens, expected %d", chunk, fits, r.Computed, want)
		}
	}
}

// Running requests make way for one of better priority: the worst first, of these the latest, as many as leave it
// memory;
// none whose priority is not worse by more than the threshold. What a request may still generate counts by the ratio.
func TestPreemptToSchedule(t *testing.T) {
	for _, c := range []struct {
		total     float64
		threshold int
		want      []int64
	}{
		{100, 0, []int64{2}}, // one seat is enough
		{5, 0, []int64{2}},   // 10 needed: 5 missing, half of its 10 tokens
		{4.5, 0, []int64{2, 1}}, {0, 0, []int64{2, 1}}, {-0.5, 0, nil}, {100, 2, nil}, {100, 1, []int64{2}},
	} {
		s, _ := schedulerOf(t, func(p *profile.Profile) {
			p.Engine.SchedulePolicy, p.Engine.PreemptionThreshold = profile.OrderPriority, c.threshold
		}, 3, 1, 1)
		for id, a := range []int32{0, 1, 2} {
			run(s, 0, a, 0, 10).ID = int64(id)
		}
		a := &s.adder
		a.ratio, a.total = 0.5, c.total
		r := request(0, 10)
		r.Row = s.e.Rows.Of(0)
		var got []int64
		if ok := a.preemptToSchedule(r); ok != (c.want != nil) {
			t.Errorf("%v in all, threshold %d: finds room %v", c.total, c.threshold, ok)
		}
		for _, o := range s.preemptList {
			got = append(got, o.ID)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v in all, threshold %d: %v make way, expected %v", c.total, c.threshold, got, c.want)
		}
		if want := c.total + 6*float64(len(got)); a.total != want { // half of 10, and a token of KV cache
			t.Errorf("%v in all: %v afterwards, expected %v", c.total, a.total, want)
		}
		s.requeuePreempted()
		if err := s.Check(); err != nil || s.e.Queue.Len() != len(got) {
			t.Errorf("%d wait, expected %d; %v", s.e.Queue.Len(), len(got), err)
		}
	}
}

// A mixed step takes the running requests along: they count with all their tokens from then on.
func TestMixedStep(t *testing.T) {
	for _, mixes := range []bool{true, false} {
		s, _ := schedulerWith(t, func(p *profile.Engine) { p.MixedChunk = mixes })
		o := run(s, 0, 0, 3, 50)
		o.FillTokens = 0
		s.e.Add(request(0, 9))
		if !s.getNewBatchPrefill() || s.e.Step.Decodes() != mixes || (o.FillTokens == 4) != mixes {
			t.Errorf("mixed chunks %v: decodes %v, the running request counts %d tokens", mixes, s.e.Step.Decodes(),
				o.FillTokens)
		}
	}
}

// The room of a step: free memory less what running requests are expected to need. In a mixed step each of them takes a
// token of memory, input and chunk (PrefillAdder.__init__, mixed_with_decode_tokens).
func TestOpen(t *testing.T) {
	for name, c := range map[string]struct {
		change         func(p *profile.Engine)
		current, input int64
		chunk          int64
		ratio          float64
	}{
		"plain":      {func(*profile.Engine) {}, 998, 100, 32, 0.5},
		"mixed":      {func(p *profile.Engine) { p.MixedChunk = true }, 996, 98, 30, 0.5},
		"no chunks":  {func(p *profile.Engine) { p.ChunkedPrefillSize = 0 }, 998, 100, noChunks, 0.5},
		"ignore EOS": {func(p *profile.Engine) { p.IgnoreEOS = true }, 998, 100, 32, 1},
	} {
		s, _ := schedulerWith(t, func(p *profile.Engine) {
			p.ChunkedPrefillSize, p.MaxPrefillTokens, p.NewTokenRatio = 32, 100, 0.5
			c.change(p)
		})
		run(s, 0, 0, 0, 40)
		run(s, 0, 1, 0, 20)
		a := &s.adder
		a.open()
		if want := float64(c.current) - 60*c.ratio; a.current != c.current || a.input != c.input ||
			a.chunk != c.chunk || a.total != want {
			t.Errorf("%s: %d free, %d of the input, %d of the chunk, %v in all; expected %d, %d, %d, %v", name,
				a.current, a.input, a.chunk, a.total, c.current, c.input, c.chunk, want)
		}
	}
}

// Nobody follows where the input or the chunk is used up (budget_state: rem_input_tokens <= 0).
func TestMore(t *testing.T) {
	for _, c := range []struct {
		input, chunk int64
		spent, want  bool
	}{{1, 1, false, true}, {0, 1, false, false}, {1, 0, false, false}, {1, 1, true, false}, {-1, 1, false, false}} {
		if got := (&adder{input: c.input, chunk: c.chunk, spent: c.spent}).more(); got != c.want {
			t.Errorf("%+v: more %v", c, got)
		}
	}
}

// Without chunked prefill a prompt that does not leave a token of max_prefill_tokens waits for the next step, unless it
// is the first of its step (add_one_req: rem_chunk_tokens is None and input_tokens >= rem_input_tokens and
// len(can_run_list) != 0). Requests of known length do not count their input.
func TestMaxPrefillTokens(t *testing.T) {
	for _, c := range []struct {
		chunk, input int64
		first, known bool
		want         bool
	}{
		{noChunks, 11, false, false, true}, {noChunks, 10, false, false, false}, {noChunks, 9, false, false, false},
		{noChunks, 9, true, false, true}, {100, 9, false, false, true}, {noChunks, 9, false, true, true},
	} {
		s, _ := schedulerWith(t, func(p *profile.Engine) { p.IgnoreEOS, p.DisableRadixCache = c.known, c.known })
		r := request(0, 5)
		r.Prompt = 10
		s.e.Add(r)
		s.e.Step.Open(false)
		if !c.first {
			s.e.Step.Prompts = []engine.Chunk{{Request: request(1, 1), Tokens: 1}}
		}
		a := &s.adder
		a.open()
		a.input, a.chunk = c.input, c.chunk
		if got := a.addOneReq(r); got != c.want || s.e.Gate.Full() {
			t.Errorf("%+v: fits %v, full %v", c, got, s.e.Gate.Full()) // a later step has room: the gate stays open
		}
	}
}

// A request that brings its KV cache takes memory for that and for what it may still generate, and nothing of the
// input.
func TestAddTransferred(t *testing.T) {
	for total, fits := range map[float64]bool{13: false, 14: true} { // 10 tokens and 3 of 5 to come
		s, _ := schedulerWith(t, func(p *profile.Engine) { p.PageSize = 4 })
		r := request(0, 5)
		r.TransferredKV, r.Generated = 10, 2
		s.e.Add(r)
		s.e.Step.Open(false)
		a := &s.adder
		a.total, a.current, a.input, a.chunk = total, 100, 50, 50
		if got := a.addOneReq(r); got != fits || a.spent == fits || len(s.e.Step.Prompts) > 0 {
			t.Errorf("%v in all: fits %v, expected %v", total, got, fits)
		}
		if fits && (a.total != total-12-3 || a.current != 88 || a.input != 50 || r.State() != engine.Running) {
			t.Errorf("%v left in all, %d free, %d of the input; expected -1, 88, 50", a.total, a.current, a.input)
		}
	}
}

// A retracted request computes its output like its prompt. Without memory a chunk waits.
func TestChunkOfRetracted(t *testing.T) {
	for _, c := range []struct {
		chunk, free int64
		takes       int32
		done        bool
	}{{30, 100, 30, true}, {29, 100, 29, false}, {30, 20, 20, false}, {30, 0, 0, false}} {
		s, _ := schedulerWith(t, func(*profile.Engine) {})
		r := request(0, 50)
		r.Prompt, r.Generated = 30, 4
		s.e.Add(r)
		s.e.Start(r)
		s.e.AddPrompt(r, 4) // 30 of 34 are left
		s.chunkedReq = r
		s.e.Step.Open(false)
		s.e.KV.Reserve(s.e.KV.Free() - c.free)
		a := &s.adder
		a.total, a.chunk = 100, c.chunk
		a.addChunkedReq()
		if r.Computed-4 != c.takes || (s.chunkedReq == nil) != c.done || (len(s.e.Step.Prompts) > 0) != (c.takes > 0) {
			t.Errorf("chunks of %d, %d free: %d tokens in %d prompts, done %v; expected %d, %v", c.chunk, c.free,
				r.Computed-4, len(s.e.Step.Prompts), s.chunkedReq == nil, c.takes, c.done)
		}
	}
}

// A request that has nothing left to generate frees nothing: it is no state (add_req_state: tokens_left > 0).
func TestNoStateWithoutTokensLeft(t *testing.T) {
	s, _ := schedulerWith(t, func(*profile.Engine) {})
	if s.adder.addReqState(request(0, 0)); len(s.adder.states) != 0 {
		t.Errorf("states %v, expected none", s.adder.states)
	}
}

// A request that made way before needs memory for its tokens as they were when it was last looked at, less those in the
// cache: 3 beside its budget of 10.
func TestPreemptForFillTokens(t *testing.T) {
	for total, want := range map[float64]int{8: 1, 7.5: 2} { // each that makes way gives 5
		s, _ := schedulerOf(t, func(p *profile.Profile) {
			p.Engine.SchedulePolicy, p.Engine.PreemptionThreshold = profile.OrderPriority, 0
		}, 3, 1, 1)
		run(s, 0, 1, 0, 10)
		run(s, 0, 2, 0, 10)
		a := &s.adder
		a.ratio, a.total = 0.5, total
		r := request(0, 10)
		r.Row, r.FillTokens, r.PrefixTokens = s.e.Rows.Of(0), 4, 1
		if a.preemptToSchedule(r); len(s.preemptList) != want {
			t.Errorf("%v in all: %d make way, expected %d", total, len(s.preemptList), want)
		}
	}
}

// With all seats taken a request of better priority takes one, unless preemption is disabled.
func TestPreemptSeat(t *testing.T) {
	for _, disabled := range []bool{false, true} {
		s, _ := schedulerOf(t, func(p *profile.Profile) {
			q := &p.Engine
			q.SchedulePolicy, q.NoPriorityPreemption, q.MaxRunningRequests = profile.OrderPriority, disabled, 1
		}, 20, 0)
		worse := run(s, 0, 1, 0, 10)
		s.e.Add(request(0, 10))
		if got := s.getNewBatchPrefill(); got == disabled || (worse.State() == engine.Waiting) == disabled {
			t.Errorf("preemption disabled %v: prefills %v, the other is in state %d", disabled, got, worse.State())
		}
	}
}

// The first wave of prompts is that before the first decode step.
func TestFirstWave(t *testing.T) {
	for steps, want := range map[int64]bool{0: true, 1: false} {
		s, _ := schedulerWith(t, func(*profile.Engine) {})
		s.e.Batch.Steps = steps
		s.e.Add(request(0, 5))
		if !s.getNewBatchPrefill() || s.e.Step.Work.FirstWave != want {
			t.Errorf("after %d decode steps: first wave %v", steps, s.e.Step.Work.FirstWave)
		}
	}
}

// A mixed step takes the running requests along only where each finds a page for its next token.
func TestMixedStepNeedsMemory(t *testing.T) {
	for free, mixes := range map[int64]bool{2: false, 3: true} { // 1 for the prompt, 2 for those that run
		s, _ := schedulerWith(t, func(p *profile.Engine) { p.MixedChunk = true })
		run(s, 0, 0, 0, 50)
		run(s, 0, 0, 0, 50)
		r := request(1, 9)
		s.e.Add(r)
		s.e.Start(r)
		s.chunkedReq = r
		s.e.KV.Reserve(s.e.KV.Free() - free)
		if !s.getNewBatchPrefill() || s.e.Step.Decodes() != mixes {
			t.Errorf("%d pages free: mixes %v, expected %v", free, s.e.Step.Decodes(), mixes)
		}
	}
}
