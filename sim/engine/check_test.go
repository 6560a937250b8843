package engine

import (
	"testing"

	"lorasim/sim/profile"
	"lorasim/sim/tick"
)

// TestCheck breaks one invariant after the other on an engine with a request in each place: 1 and 4 decode, 2 prefills,
// 3 waits and 5 is in the front end.
func TestCheck(t *testing.T) {
	for name, spoil := range map[string]func(b *bench, rs []*Request){
		"waiting in the batch":        func(_ *bench, rs []*Request) { rs[0].state = Waiting },
		"running in the queue":        func(_ *bench, rs []*Request) { rs[2].state = Running },
		"waiting in a prefill step":   func(_ *bench, rs []*Request) { rs[1].state = Waiting },
		"waiting in the front end":    func(_ *bench, rs []*Request) { rs[4].state = Waiting },
		"of another engine":           func(_ *bench, rs []*Request) { rs[2].engine = nil },
		"in two places":               func(b *bench, rs []*Request) { b.s.filling = append(b.s.filling, rs[1]) },
		"queue counted wrongly":       func(b *bench, _ []*Request) { b.e.Queue.n++ },
		"adapters of the queue":       func(b *bench, _ []*Request) { b.e.Queue.adapters = nil },
		"queue of an adapter":         func(b *bench, rs []*Request) { rs[2].Row.Waiting++ },
		"place of an adapter's head":  func(b *bench, rs []*Request) { rs[2].Row.queue.seq++ },
		"KV tokens of the batch":      func(b *bench, _ []*Request) { b.e.Batch.kvTokens++ },
		"budgets of the batch":        func(b *bench, _ []*Request) { b.e.Batch.maxNewLeft++ },
		"long budgets of the batch":   func(b *bench, _ []*Request) { b.e.Batch.clipped++ },
		"adapter's running requests":  func(b *bench, rs []*Request) { rs[0].Row.Decoding++ },
		"requests with adapters":      func(b *bench, _ []*Request) { b.e.Batch.loras.loras++ },
		"adapters of the batch":       func(b *bench, _ []*Request) { b.e.Batch.loras.distinct++ },
		"latest tokens":               func(b *bench, _ []*Request) { b.e.itl.older++ },
		"decodes, and has all tokens": func(b *bench, _ []*Request) { b.e.Batch.heap[0].Key = b.e.Batch.Steps },
		"tokens that routers see":     func(b *bench, _ []*Request) { b.e.Books.Tokens++ },
		"prompts without output":      func(b *bench, _ []*Request) { b.e.Books.PendingPromptTokens++ },
		"largest rank":                func(b *bench, _ []*Request) { b.e.Books.MaxRank++ },
		"running as routers see":      func(b *bench, _ []*Request) { b.e.Books.Running++ },
		"waiting as routers see":      func(b *bench, _ []*Request) { b.e.Books.Queued++ },
		"adapter's running, routers":  func(b *bench, _ []*Request) { b.view.Adapters[0].Running++ },
		"adapter's waiting, routers":  func(b *bench, _ []*Request) { b.view.Adapters[2].Queued++ },
		"adapter in use":              func(b *bench, rs []*Request) { b.e.LoRA.Hold(&rs[0].Row.Adapter) },
		"KV tokens":                   func(b *bench, _ []*Request) { b.e.KV.Reserve(1); b.e.KV.Reserve(-2) },
		"slots":                       func(b *bench, _ []*Request) { b.view.SlotsUsed++ },
	} {
		b := newBench(t, func(p *profile.Profile, _ *Config) { p.Latency.FrontEnd.PerRequestMs = 2 })
		rs := []*Request{request(1, 0, 10, 50), request(2, 1, 20, 9), request(3, 2, 9, 9), request(4, 0, 9, 50),
			request(5, 3, 9, 9)}
		b.send(0, rs[0], rs[3])
		b.send(100*ms, rs[1])
		b.send(110*ms, rs[2])
		b.send(113*ms, rs[4])
		b.until(114 * ms)
		for k, want := range []State{Running, Filling, Waiting, Running, Entering} {
			if rs[k].State() != want {
				t.Fatalf("request %d is in state %d, expected %d", rs[k].ID, rs[k].State(), want)
			}
		}
		if err := b.e.Check(); err != nil {
			t.Fatal(err)
		}
		if spoil(b, rs); b.e.Check() == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for name, spoil := range map[string]func(s *Step){
		"a run of another batch": func(s *Step) { s.run.Batch++ }, "a run too long": func(s *Step) { s.run.Count++ },
		"a run of no steps": func(s *Step) { s.run.Count = 0 },
	} {
		b := newBench(t, nil)
		b.send(0, request(1, 0, 10, 50))
		b.until(50 * ms)
		if err := b.e.Check(); err != nil || b.e.Step.kind != decode {
			t.Fatalf("%v in a step of kind %d", err, b.e.Step.kind)
		}
		if spoil(&b.e.Step); b.e.Check() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// Each thing that is left of a request is an error.
func TestCheckEmpty(t *testing.T) {
	for name, spoil := range map[string]func(e *Engine){
		"KV tokens":      func(e *Engine) { e.Batch.kvTokens++ },
		"budgets":        func(e *Engine) { e.Batch.maxNewLeft++ },
		"long budgets":   func(e *Engine) { e.Batch.clipped++ },
		"adapters":       func(e *Engine) { e.Batch.loras.distinct++ },
		"requests":       func(e *Engine) { e.Batch.loras.loras++ },
		"ranks":          func(e *Engine) { e.Batch.loras.ranks.Add(8, 1) },
		"prompts":        func(e *Engine) { e.Books.PendingPromptTokens++ },
		"KV cache":       func(e *Engine) { e.KV.Reserve(1) },
		"waits":          func(e *Engine) { e.Add(request(9, 0, 1, 1)) },
		"latest tokens":  func(e *Engine) { e.itl.older++ },
		"running tokens": func(e *Engine) { e.Books.Tokens++ },
	} {
		b := newBench(t, nil)
		b.send(0, request(1, 0, 10, 5))
		b.until(tick.Never)
		if err := b.e.CheckEmpty(); err != nil {
			t.Fatal(err)
		}
		if spoil(b.e); b.e.CheckEmpty() == nil {
			t.Errorf("%s left: no error", name)
		}
	}
}

// The first prefill step that goes on with a prompt takes longer, once; the most KV tokens and running requests are
// kept.
func TestStatsOfSteps(t *testing.T) {
	b := newBench(t, nil)
	b.send(0, request(1, 0, 10, 30))
	b.send(100*ms, request(2, 1, 300, 2))
	b.until(tick.Never)
	// 9 steps of request 1, the prompt of request 2, then a step of both
	if s := &b.e.Stats; s.PeakKV != 10+9+300+2 || s.PeakRunning != 2 || b.e.Books.KVUsed != 0 {
		t.Errorf("at most %d KV tokens and %d requests, %d KV tokens are left", s.PeakKV, s.PeakRunning,
			b.e.Books.KVUsed)
	}
	e := newBench(t, nil).e
	for _, want := range []bool{false, true, false} { // of a prompt from its beginning, and of two that go on
		e.Step.Open(false)
		e.Step.Work.Extends = e.warmExtend || want
		if e.Run(false); e.Step.Work.FirstExtend != want {
			t.Errorf("the first step that goes on with a prompt: %v, expected %v", e.Step.Work.FirstExtend, want)
		}
		e.Step.kind = idle
		e.Loop.Stop(&e.timer)
	}
}
