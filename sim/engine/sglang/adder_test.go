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
	s, _ := newScheduler(t, func(p *profile.Engine) { p.PageSize = 16 })
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
		s, _ := newScheduler(t, func(*profile.Engine) {})
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
		s, _ := newScheduler(t, func(*profile.Engine) {})
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
		s, _ := newScheduler(t, func(*profile.Engine) {})
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
		s, _ := newScheduler(t, func(*profile.Engine) {})
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
		s, _ := newScheduler(t, func(*profile.Engine) {})
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
	s, _ := newScheduler(t, func(*profile.Engine) {})
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
		s, _ := newScheduler(t, func(p *profile.Engine) { p.PageSize = 4 })
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
		s, _ := newScheduler(t, func(p *profile.Engine) { p.MixedChunk = mixes })
		o := run(s, 0, 0, 3, 50)
		o.FillTokens = 0
		s.e.Add(request(0, 9))
		if !s.getNewBatchPrefill() || s.e.Step.Decodes() != mixes || (o.FillTokens == 4) != mixes {
			t.Errorf("mixed chunks %v: decodes %v, the running request counts %d tokens", mixes, s.e.Step.Decodes(),
				o.FillTokens)
		}
	}
}
