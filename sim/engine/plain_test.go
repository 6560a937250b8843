package engine

import (
	"math"
	"slices"

	"lorasim/router"
	"lorasim/sim/event"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
)

// plain is a scheduler that takes whole prompts of waiting requests as long as there is memory, before the running
// requests decode. Where memory runs out it retracts the newest.
type plain struct {
	e       *Engine
	filling []*Request
	only    func(*Request) bool // who may wait; nil: everybody
	until   tick.Ticks          // when it has to decide again
}

func (s *plain) Schedule() {
	e := s.e
	e.LoRA.TrimHost()
	e.Step.Open(e.Batch.Steps == 0)
	for e.Gate.Open() && e.Queue.Len() > 0 && s.admit() {
	}
	e.PrepareAdapters(false)
	switch {
	case len(e.Step.Prompts) > 0:
		e.Run(false)
	case e.Pause(e.Step.Stall):
	case e.Batch.Len() > 0:
		for e.Batch.Len() > 1 && e.KV.StepNeed(e.Batch.Steps) > e.KV.Free() {
			newest := slices.MaxFunc(e.Batch.Requests(), func(a, b *Request) int { return int(a.Order() - b.Order()) })
			newest.Retracted = true
			e.Remove(newest)
			e.Preempt(newest, true)
		}
		if e.KV.StepNeed(e.Batch.Steps) > e.KV.Free() {
			r := e.Batch.At(0)
			e.Remove(r)
			e.Finish(r, record.Failed, "out of KV cache")
			e.Interrupt()
			return
		}
		e.RunDecode(math.MaxInt64)
	case e.Queue.Len() > 0 && e.LoRA.Idle():
		e.FailHead()
		e.Interrupt()
	}
}

// admit takes the next waiting request into the step; false: none.
func (s *plain) admit() bool {
	e := s.e
	r := e.Next(e.Queue.Adapters, func(a *Adapter) *Request {
		if !e.LoRA.CanRun(&a.Adapter) {
			return nil
		}
		return a.Head()
	})
	if r == nil {
		e.Gate.Exhausted()
		return false
	}
	match, evictable := e.MatchPrefix(r)
	need := int64(r.Prompt+r.Generated) - match + evictable
	if r.TransferredKV > 0 {
		need = r.TransferredKV
	}
	if e.KV.Pages(need) > e.KV.Free()-e.KV.StepNeed(e.Batch.Steps) {
		e.Gate.NoRoom()
		return false
	}
	if !e.Start(r) {
		return true
	}
	if r.TransferredKV > 0 {
		e.StartTransferred(r)
		return true
	}
	e.LockPrefix(r)
	e.AddPrompt(r, int64(r.Prompt+r.Generated-r.Computed))
	s.filling = append(s.filling, r)
	return true
}

func (s *plain) Update(bool) {
	s.filling = nil
	s.e.EndPrompts(true)
}

func (s *plain) Refuse(r *Request) string {
	if int64(r.Prompt) >= s.e.KV.CapacityTokens() {
		return "too long"
	}
	return ""
}

func (s *plain) Accept(*Request) {}

func (s *plain) MayWait(r *Request) bool {
	if s.only == nil || s.only(r) {
		return true
	}
	s.e.Reject(r, "may not wait")
	return false
}

func (s *plain) Drop(r *Request) bool {
	if r.State() != Running {
		return false
	}
	s.e.Remove(r)
	return true
}

func (s *plain) Running() int          { return s.e.Batch.Len() + len(s.filling) }
func (s *plain) LeapUntil() tick.Ticks { return s.until }
func (s *plain) Check() error          { return nil }

func (s *plain) Orphans(entering []*Request) []*Request { return slices.Concat(s.filling, entering) }

// end is how a request ended.
type end struct {
	status record.Status
	at     tick.Ticks
	tokens int32
}

// bench is an engine with a plain scheduler, three adapters and the base model, which is number 3.
type bench struct {
	l       event.Loop
	e       *Engine
	s       *plain
	view    router.Worker
	ends    map[int64]end
	ejected map[int64]int64 // KV tokens
	tokens  map[int64]int32 // by Hooks.Token
	gaps    map[tick.Ticks]int64
	first   int64 // first tokens
	steps   int64
}

func (b *bench) Finished(r *Request, status record.Status, _ string, at tick.Ticks) {
	if _, twice := b.ends[r.ID]; twice {
		panic("a request has ended twice")
	}
	b.ends[r.ID] = end{status, at, r.Generated}
}

func (b *bench) Ejected(r *Request, kv int64) { b.ejected[r.ID] = kv }
func (b *bench) Tokens(_ tick.Ticks, n int64) { b.first += n }
func (b *bench) Gap(d tick.Ticks, n int64)    { b.gaps[d] += n }
func (b *bench) adapter(a int32) *Adapter     { return b.e.Rows.Of(a) }
func (b *bench) at(t tick.Ticks, do func())   { b.l.At(t, event.Release, do) }
func (b *bench) send(t tick.Ticks, rs ...*Request) {
	for _, r := range rs {
		b.at(t, func() { b.e.Add(r) })
	}
}

func (b *bench) Steps(s record.Steps) {
	b.steps += s.Count
	for k := int64(2); k <= s.Count; k++ {
		b.gaps[s.End(k)-s.End(k-1)] += s.Batch
	}
}

// until lets time pass; check is called at every instant.
func (b *bench) until(end tick.Ticks, check ...func()) {
	for b.l.Next() <= end && b.l.Next() != tick.Never {
		b.l.MoveTo(b.l.Next())
		b.l.Run()
		b.l.RunYielded()
		for _, f := range check {
			f()
		}
	}
	if end != tick.Never {
		b.l.MoveTo(end)
	}
}

// tester is a test, or a property test.
type tester interface {
	Helper()
	Fatal(args ...any)
}

// newBench makes a step of n prompt tokens take 5 + n ms, a decode step 10 ms, and a load nothing.
func newBench(t tester, change func(p *profile.Profile, c *Config)) *bench {
	t.Helper()
	p := profile.Default()
	p.Latency = profile.Latency{Prefill: profile.Prefill{BaseMs: 5, PerTokenUs: 1000},
		Decode: profile.Decode{BaseMs: 10}, LoRA: profile.LoRA{Backend: profile.BackendNone}}
	p.Memory.KVTokens = 1000
	p.Adapters.HostToGPU = profile.Stage{GBPerS: 1e12}
	b := &bench{ends: map[int64]end{}, ejected: map[int64]int64{}, tokens: map[int64]int32{},
		gaps: map[tick.Ticks]int64{}}
	c := Config{Adapters: trace.Names(3, []int{8, 16}), View: &b.view, Index: router.NewIndex(1, 3), Observer: b,
		Start: []int32{0, 1, 2}, Home: router.Disk, Fails: func() bool { return false },
		Kind: Kind{Rules: func(*profile.Profile) Rules { return Rules{} },
			Scheduler: func(e *Engine) (Scheduler, error) {
				b.s = &plain{e: e, until: tick.Never}
				return b.s, nil
			}}}
	if change != nil {
		change(&p, &c)
	}
	c.Costs = p.Compile()
	var err error
	if b.e, err = New(c, b, &b.l); err != nil {
		t.Fatal(err)
	}
	b.view.Up = true
	return b
}

func request(id int64, adapter, prompt, output int32) *Request {
	r := &Request{ID: id, Output: output, MaxNew: output, Expected: output, FirstTokenAt: tick.Never,
		StartedAt: tick.Never}
	r.Adapter, r.Prompt = adapter, prompt
	return r
}
