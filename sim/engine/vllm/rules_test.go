package vllm

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"lorasim/router"
	"lorasim/sim/engine"
	"lorasim/sim/event"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
)

// Rules of vLLM, one by one, on an engine that takes no steps unless it is told to.

type nobody struct{ ended map[int64]record.Status }

func (n nobody) Finished(r *engine.Request, s record.Status, _ string, _ tick.Ticks) {
	n.ended[r.ID] = s
}
func (nobody) Ejected(*engine.Request, int64) {}
func (nobody) Tokens(tick.Ticks, int64)       {}
func (nobody) Steps(record.Steps)             {}
func (nobody) Gap(tick.Ticks, int64)          {}

type bench struct {
	s     *Scheduler
	l     event.Loop
	ended map[int64]record.Status
	steps []engine.Report
}

// newBench returns the scheduler of an engine with three adapters of the priorities 0, 1 and 2, the least first.
func newBench(t *testing.T, kv int64, change func(*profile.Engine)) *bench {
	t.Helper()
	p := profile.Default()
	p.Engine.UseVLLM()
	p.Engine.PageSize = 1
	p.Memory.KVTokens = kv
	if change != nil {
		change(&p.Engine)
	}
	b := &bench{ended: map[int64]record.Status{}}
	adapters := trace.Names(3, []int{8})
	for k := range adapters {
		adapters[k].Priority = k
	}
	_, err := engine.New(engine.Config{Costs: p.Compile(), Adapters: adapters, View: &router.Worker{},
		Index: router.NewIndex(1, 3), Observer: nobody{}, Start: []int32{0, 1, 2},
		Fails: func() bool { return false },
		Hooks: engine.Hooks{Step: func(r *engine.Report) { b.steps = append(b.steps, *r) }},
		Kind: engine.Kind{Rules: rules, Scheduler: func(e *engine.Engine) (engine.Scheduler, error) {
			x, err := newScheduler(e)
			b.s = x.(*Scheduler)
			return x, err
		}}}, nobody{b.ended}, &b.l)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func request(id int64, adapter, prompt, maxNew int32) *engine.Request {
	r := &engine.Request{ID: id, MaxNew: maxNew, Output: maxNew, FirstTokenAt: tick.Never, StartedAt: tick.Never}
	r.Adapter, r.Prompt = adapter, prompt
	return r
}

// run has requests decode that have so many tokens in the cache, one for each adapter given.
func (b *bench) run(kv int64, adapters ...int32) (rs []*engine.Request) {
	e := b.s.e
	for id, a := range adapters {
		r := request(int64(id), a, 1, 100)
		r.TransferredKV = kv
		e.Add(r)
		e.Start(r)
		e.Queue.Number(r)
		e.StartTransferred(r)
		rs = append(rs, r)
	}
	return rs
}

// prefill has a request run of whose prompt so many tokens are computed.
func (b *bench) prefill(id int64, adapter, prompt int32, computed int64) *engine.Request {
	e := b.s.e
	r := request(id, adapter, prompt, 100)
	e.Add(r)
	e.Start(r)
	e.Queue.Number(r)
	e.Step.Open(false)
	e.AddPrompt(r, computed)
	b.s.prefilling = append(b.s.prefilling, r)
	e.Step.Open(false)
	return r
}

// take lets the engine step until nothing is left to do.
func (b *bench) take() {
	b.s.e.Books.Up = true
	b.s.e.Interrupt()
	for b.l.RunYielded(); b.l.Next() != tick.Never; b.l.RunYielded() {
		b.l.MoveTo(b.l.Next())
		b.l.Run()
	}
}

// expect compares requests' states, and the tokens that the step takes of prompts.
func expect(t *testing.T, what string, b *bench, rs []*engine.Request, states []engine.State, tokens map[int64]int32) {
	t.Helper()
	for k, r := range rs {
		if r.State() != states[k] {
			t.Errorf("%s: request %d is in state %d, expected %d", what, r.ID, r.State(), states[k])
		}
	}
	for _, c := range b.s.e.Step.Prompts {
		if tokens[c.Request.ID] != c.Tokens {
			t.Errorf("%s: request %d gets %d tokens, expected %d", what, c.Request.ID, c.Tokens, tokens[c.Request.ID])
		}
	}
	if len(b.s.e.Step.Prompts) != len(tokens) {
		t.Errorf("%s: %d prompts, expected %d", what, len(b.s.e.Step.Prompts), len(tokens))
	}
	if err := b.s.Check(); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// A request has at most context_length tokens, and one more than the KV cache: the last is not stored.
func TestRefuse(t *testing.T) {
	const budget, prompt = engine.BudgetTooLarge, engine.PromptTooLarge
	for _, c := range []struct {
		kv             int64
		overflow       string
		prompt, maxNew int32
		want           string
		output         int32 // as accepted
	}{
		{1000, profile.OverflowPrompt, 99, 500, "", 1},
		{1000, profile.OverflowPrompt, 100, 1, fmt.Sprintf(prompt, 100), 0},
		{1000, profile.OverflowReject, 60, 40, "", 40},
		{1000, profile.OverflowReject, 60, 41, fmt.Sprintf(budget, 100), 0},
		{50, profile.OverflowPrompt, 50, 9, "", 1},
		{50, profile.OverflowPrompt, 51, 9, fmt.Sprintf(engine.KVTooSmall, 50), 0},
		{50, profile.OverflowReject, 40, 12, fmt.Sprintf(engine.KVTooSmall, 50), 0},
		{50, profile.OverflowReject, 40, 11, "", 11},
		{99, profile.OverflowPrompt, 100, 1, fmt.Sprintf(prompt, 100), 0}, // both limits are 100
		{99, profile.OverflowReject, 60, 41, fmt.Sprintf(budget, 100), 0},
	} {
		b := newBench(t, c.kv, func(p *profile.Engine) { p.ContextLength, p.ContextOverflow = 100, c.overflow })
		r := request(1, 0, c.prompt, c.maxNew)
		got := b.s.Refuse(r)
		if got != c.want {
			t.Errorf("%d KV tokens, %s, %d + %d tokens: %q, expected %q", c.kv, c.overflow, c.prompt, c.maxNew, got,
				c.want)
		}
		if b.s.Accept(r); got == "" && r.Output != c.output {
			t.Errorf("%d KV tokens, %d + %d tokens: output %d, expected %d", c.kv, c.prompt, c.maxNew, r.Output,
				c.output)
		}
	}
}

// The server refuses requests at its limits of requests, or of prompt tokens without output.
func TestCheckAdmission(t *testing.T) {
	for _, c := range []struct {
		requests int
		tokens   int64
		refused  bool
	}{{0, 0, false}, {2, 0, true}, {3, 0, false}, {0, 20, true}, {0, 21, false}, {3, 20, true}} {
		b := newBench(t, 1000, func(p *profile.Engine) {
			p.MaxNumQueuedReqs, p.MaxNumQueuedTokens = c.requests, c.tokens
		})
		for id := range int64(2) {
			b.s.e.Add(request(id, 0, 10, 1))
		}
		if got := b.s.checkAdmission() != ""; got != c.refused {
			t.Errorf("limits of %d requests and %d tokens: refused %v, expected %v", c.requests, c.tokens, got,
				c.refused)
		}
	}
}

// tokens are those of each step, by request.
func (b *bench) tokens() (all []map[int64]int32) {
	for _, r := range b.steps {
		all = append(all, r.Tokens)
	}
	return all
}

// By hand: a step has 10 tokens. Running requests take theirs first, then the oldest waiting one.
func TestBudget(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*profile.Engine)
		want   string
	}{
		{"chunked", func(*profile.Engine) {}, "[map[1:8 2:2] map[1:1 2:6] map[1:1 2:1] map[2:1]]"},
		{"whole prompts", func(p *profile.Engine) { p.NoChunkedPrefill = true },
			"[map[1:8] map[1:1 2:8] map[1:1 2:1] map[2:1]]"},
		{"at most 5 of a prompt", func(p *profile.Engine) { p.LongPrefillTokenThreshold = 5 },
			"[map[1:5 2:5] map[1:3 2:3] map[1:1 2:1] map[1:1 2:1]]"},
		{"one at a time", func(p *profile.Engine) { p.MaxRunningRequests = 1 },
			"[map[1:8] map[1:1] map[1:1] map[2:8] map[2:1] map[2:1]]"},
	} {
		b := newBench(t, 100, func(p *profile.Engine) {
			p.MaxNumBatchedTokens, p.LongPrefillTokenThreshold = 10, 0
			c.change(p)
		})
		b.s.e.Add(request(1, 0, 8, 3))
		b.s.e.Add(request(2, 1, 8, 3))
		b.take()
		if got := fmt.Sprint(b.tokens()); got != c.want {
			t.Errorf("%s: steps of %s, expected %s", c.name, got, c.want)
		}
	}
	b := newBench(t, 100, func(p *profile.Engine) { p.LongPrefillTokenThreshold = 5 })
	b.s.e.Add(request(1, 0, 8, 1)) // nobody else is there
	b.take()
	if got, want := fmt.Sprint(b.tokens()), "[map[1:8]]"; got != want {
		t.Errorf("alone: steps of %s, expected %s", got, want)
	}
}

// A waiting request needs memory for its whole prompt, or, without the reservation, for its first chunk, beside a page
// for each running request whose pages are full.
func TestCanAllocate(t *testing.T) {
	for _, c := range []struct {
		change func(*profile.Engine)
		free   int64
		n      int64
		want   bool
	}{
		{func(*profile.Engine) {}, 31, 5, false}, {func(*profile.Engine) {}, 32, 5, true}, // 30, and 2 that run
		{func(p *profile.Engine) { p.NoReserveFullISL = true }, 6, 5, false},
		{func(p *profile.Engine) { p.NoReserveFullISL = true }, 7, 5, true},
	} {
		b := newBench(t, 100, c.change)
		b.run(4, 0, 1)
		b.s.e.KV.Reserve(b.s.e.KV.Free() - c.free)
		if got := b.s.canAllocate(request(9, 0, 30, 5), c.n, 0, 0); got != c.want {
			t.Errorf("%d pages free, %d tokens: %v, expected %v", c.free, c.n, got, c.want)
		}
		r := request(9, 0, 30, 5)
		if r.TransferredKV = c.free - 3; !b.s.canAllocate(r, 0, 0, 0) { // a page for its next token, 2 that run
			t.Errorf("%d pages free: a request does not fit that brings %d tokens", c.free, r.TransferredKV)
		}
		if r.TransferredKV++; b.s.canAllocate(r, 0, 0, 0) {
			t.Errorf("%d pages free: a request fits that brings %d tokens", c.free, r.TransferredKV)
		}
		if b.s.canAllocate(request(9, 0, 30, 5), c.n, 0, c.free) {
			t.Error("a request fits in pages that it is to share")
		}
	}
}

const (
	waiting = engine.Waiting
	filling = engine.Filling
	running = engine.Running
)

// Where memory runs out, the newest request is preempted, if need be the one that finds none.
func TestPreemptNewest(t *testing.T) {
	for _, c := range []struct {
		name   string
		free   int64
		states []engine.State
		tokens map[int64]int32
	}{
		{"enough", 6, []engine.State{running, running, filling}, map[int64]int32{9: 4}},
		{"enough for two", 5, []engine.State{running, running, waiting}, map[int64]int32{}}, // itself
		{"enough for one", 1, []engine.State{running, running, waiting}, map[int64]int32{}},
	} {
		b := newBench(t, 100, nil)
		rs := append(b.run(4, 2, 0), b.prefill(9, 1, 7, 3))
		b.s.e.KV.Reserve(b.s.e.KV.Free() - c.free)
		bud := budget{tokens: 50, chunk: math.MaxInt64}
		b.s.scheduleRunning(&bud)
		expect(t, c.name, b, rs, c.states, c.tokens)
		if want := c.states[2] == waiting; bud.preempted != want {
			t.Errorf("%s: preempted %v, expected %v", c.name, bud.preempted, want)
		}
	}
}

// Under priorities the worst request is preempted, wherever it stands: what it was given goes back. After one that
// preempts itself nobody gets tokens in this step: who decodes catches up later.
func TestPreemptByPriority(t *testing.T) {
	for _, c := range []struct {
		name     string
		adapters []int32 // of requests that decode, the adapter's number is the priority
		free     int64
		tokens   int64
		states   []engine.State
		prompts  map[int64]int32
	}{
		{"the first is the worst", []int32{2, 0, 1}, 2, 50, []engine.State{waiting, running, running}, nil},
		{"the last is the worst", []int32{0, 1, 2}, 2, 50, []engine.State{running, running, waiting}, nil},
		{"the middle one, for itself", []int32{1, 2, 0}, 1, 50, []engine.State{running, waiting, filling}, nil},
		{"the middle one, for the last", []int32{1, 2, 0}, 2, 50, []engine.State{running, waiting, running}, nil},
		{"no memory at all", []int32{1, 2, 0}, 0, 50, []engine.State{running, waiting, running}, nil},
		{"of equals the latest", []int32{1, 1, 1}, 2, 50, []engine.State{running, running, waiting}, nil},
	} {
		b := newBench(t, 100, func(p *profile.Engine) { p.SchedulePolicy = profile.OrderPriority })
		rs := b.run(4, c.adapters...)
		b.s.e.KV.Reserve(b.s.e.KV.Free() - c.free)
		b.s.e.Step.Open(false)
		bud := budget{tokens: c.tokens, chunk: math.MaxInt64}
		b.s.scheduleRunning(&bud)
		expect(t, c.name, b, rs, c.states, c.prompts)
		left := c.tokens - int64(b.s.e.Batch.Len())
		if !bud.preempted || bud.tokens != left {
			t.Errorf("%s: preempted %v, %d tokens left, expected %d", c.name, bud.preempted, bud.tokens, left)
		}
	}
	// a prompt in front of one that decodes and finds no memory: its tokens go back, too
	b := newBench(t, 100, func(p *profile.Engine) { p.SchedulePolicy = profile.OrderPriority })
	first := b.prefill(9, 2, 9, 3)
	rs := append(b.run(4, 0), first)
	b.s.e.KV.Reserve(b.s.e.KV.Free() - 6)
	bud := budget{tokens: 50, chunk: math.MaxInt64}
	b.s.scheduleRunning(&bud)
	expect(t, "a prompt", b, rs, []engine.State{running, waiting}, nil)
	if bud.tokens != 49 {
		t.Errorf("%d tokens left, expected 49", bud.tokens)
	}
	if !slices.Equal(b.s.prefilling, nil) {
		t.Errorf("%d requests prefill", len(b.s.prefilling))
	}
}

// The only request that runs fails where memory runs out; it is not preempted.
func TestOutOfMemory(t *testing.T) {
	b := newBench(t, 100, nil)
	b.run(100, 0)
	bud := budget{tokens: 50, chunk: math.MaxInt64}
	b.s.scheduleRunning(&bud)
	if b.ended[0] != record.Failed || bud.preempted || b.s.Running() != 0 {
		t.Errorf("the request ended %v, preempted %v, %d run", b.ended[0], bud.preempted, b.s.Running())
	}
}

// Each broken invariant is an error.
func TestCheck(t *testing.T) {
	b := newBench(t, 100, nil)
	b.prefill(1, 0, 9, 3)
	b.prefill(2, 1, 9, 3)
	if err := b.s.Check(); err != nil {
		t.Fatal(err)
	}
	slices.Reverse(b.s.prefilling)
	if b.s.Check() == nil {
		t.Error("no error where the newest prefills first")
	}
	b.s.prefilling = b.run(4, 2)
	if b.s.Check() == nil {
		t.Error("no error where a request that decodes prefills")
	}
}
