package sglang

import (
	"reflect"
	"slices"
	"testing"

	"lorasim/internal/testutil"
	"lorasim/router"
	"lorasim/sim/engine"
	"lorasim/sim/engine/dlora"
	"lorasim/sim/event"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
)

// Rules of sglang, one by one, on an engine that takes no steps.

type nobody struct{}

func (nobody) Finished(*engine.Request, record.Status, string, tick.Ticks) {}
func (nobody) Ejected(*engine.Request, int64)                              {}
func (nobody) Tokens(tick.Ticks, int64)                                    {}
func (nobody) Steps(record.Steps)                                          {}
func (nobody) Gap(tick.Ticks, int64)                                       {}

// schedulerWith returns the scheduler of an engine with seven adapters, and the engine's clock.
func schedulerWith(t *testing.T, change func(*profile.Engine)) (*Scheduler, *event.Loop) {
	t.Helper()
	return schedulerOf(t, func(p *profile.Profile) { change(&p.Engine) })
}

func schedulerOf(t *testing.T, change func(*profile.Profile), priorities ...int) (*Scheduler, *event.Loop) {
	t.Helper()
	p := profile.Default()
	p.Memory.KVTokens = 1000
	change(&p)
	var l event.Loop
	adapters := trace.Names(7, []int{8})
	for a, priority := range priorities {
		adapters[a].Priority = priority
	}
	var s *Scheduler
	_, err := engine.New(engine.Config{Costs: p.Compile(), Adapters: adapters, View: &router.Worker{},
		Index: router.NewIndex(1, 7), Observer: nobody{}, Start: []int32{0, 1, 2, 3, 4, 5, 6},
		Fails: func() bool { return false },
		Kind: engine.Kind{Rules: rules, Scheduler: func(e *engine.Engine) (engine.Scheduler, error) {
			x, err := newScheduler(e)
			s = x.(*Scheduler)
			return x, err
		}}}, nobody{}, &l)
	if err != nil {
		t.Fatal(err)
	}
	return s, &l
}

func request(adapter, maxNew int32) *engine.Request {
	r := &engine.Request{MaxNew: maxNew, Output: maxNew, FirstTokenAt: tick.Never, StartedAt: tick.Never}
	r.Adapter, r.Prompt = adapter, 1
	return r
}

// run has a request of an adapter run that had generated some tokens when it joined the batch in a step.
func run(s *Scheduler, step int64, adapter, generated, maxNew int32) *engine.Request {
	r := request(adapter, maxNew)
	r.Generated, r.TransferredKV = generated, 1
	s.e.Batch.Steps = step
	s.e.Add(r)
	s.e.Start(r)
	s.e.StartTransferred(r)
	return r
}

// After a retraction in step 10: one request had 3 tokens when it joined in step 4, another 5 when it joined in step
// 10; they have 9 + 5 of 160 tokens, and 20 more each are provided for (of 161, as sglang divides).
func TestRatioAfterRetract(t *testing.T) {
	s, _ := schedulerWith(t, func(*profile.Engine) {})
	run(s, 4, 0, 3, 100)
	run(s, 10, 1, 5, 60)
	s.ratio.afterRetract(s)
	if testutil.Near(t, "ratio", s.ratio.value, 54.0/161, 1e-12); s.ratio.since != 11 {
		t.Errorf("the ratio falls from step %d on, expected step 11", s.ratio.since)
	}
	s, _ = schedulerWith(t, func(*profile.Engine) {})
	run(s, 4, 0, 3, 10)
	run(s, 10, 1, 5, 10)
	if s.ratio.afterRetract(s); s.ratio.value != 1 {
		t.Errorf("ratio %v, expected no more than 1", s.ratio.value)
	}
}

// Of 160 tokens 9 + 5 are there: 91 and 55 are left, each clipped.
func TestReserved(t *testing.T) {
	for clip, want := range map[int]int64{95: 91 + 55, 80: 80 + 55, 50: 50 + 50} {
		s, _ := schedulerWith(t, func(p *profile.Engine) { p.ClipNewTokens = clip })
		run(s, 4, 0, 3, 100)
		run(s, 10, 1, 5, 60)
		s.e.Batch.Steps = 10
		if got := s.e.Batch.Reserved(); got != want {
			t.Errorf("%d tokens are reserved, each at most %d, expected %d", got, clip, want)
		}
	}
}

// An adapter's longest request counts.
func TestDrainerStats(t *testing.T) {
	s, _ := schedulerWith(t, func(p *profile.Engine) { p.LoraDrainWait = 2 })
	run(s, 4, 0, 3, 100)
	run(s, 10, 1, 5, 60)
	run(s, 10, 1, 1, 20)
	running := s.drainer.updateAdapterStats()
	if len(running) != 2 || !slices.Contains(running, s.e.Rows.Of(0)) || !slices.Contains(running, s.e.Rows.Of(1)) ||
		s.drainer.left[0] != 91 || s.drainer.left[1] != 55 {
		t.Errorf("%d adapters run, with %v tokens left, expected 91 and 55", len(running), s.drainer.left)
	}
}

// Each starving adapter, the longest wait first, is promised the running adapter that is done first, by its longest
// request, and drains for no other (LoRADrainer._update_draining_loras, lora/lora_drainer.py).
func TestDrainerPromises(t *testing.T) {
	s, l := schedulerWith(t, func(p *profile.Engine) { p.LoraDrainWait = 2 })
	d := &s.drainer
	for _, q := range []struct {
		adapter int32
		queued  tick.Ticks
	}{{4, 6 * tick.Second}, {3, 7 * tick.Second}, {6, 8*tick.Second - 1}, {5, 8 * tick.Second}} {
		l.MoveTo(q.queued)
		s.e.Add(request(q.adapter, 10))
	}
	l.MoveTo(10 * tick.Second)
	d.left[0], d.left[1], d.left[2] = 5, 3, 9
	expect := func(want ...int32) {
		t.Helper()
		for a, w := range want {
			got := int32(-1)
			if o := d.draining[int32(a)]; o != nil {
				got = o.Index
			}
			if got != w {
				t.Errorf("adapter %d drains for %d, expected %d", a, got, w)
			}
		}
	}
	running := []*engine.Adapter{s.e.Rows.Of(2), s.e.Rows.Of(0), s.e.Rows.Of(1)}
	d.updateDrainingLoras(running[:2])
	expect(4, -1, 3) // the one that waits since 6 s comes first
	d.updateDrainingLoras(running)
	expect(4, 6, 3) // 6 waits for a tick more than 2 s, 5 for 2 s just now
	l.MoveTo(l.Now() + 1)
	d.updateDrainingLoras(running)
	expect(4, 6, 3) // nobody is left to make way for 5
	if !d.promised[6] || d.promised[5] {
		t.Error("5 is promised a slot, or 6 is not")
	}
}

// A draining adapter takes requests of at most 1.2 times the tokens that its longest one has left
// (LoRADrainer.can_schedule).
func TestDrainerTolerance(t *testing.T) {
	s, _ := schedulerWith(t, func(p *profile.Engine) { p.LoraDrainWait = 2 })
	a := s.e.Rows.Of(0)
	for k, maxNew := range []int32{14, 13, 12} {
		r := request(0, maxNew)
		r.ID = int64(k)
		s.e.Add(r)
	}
	s.drainer.left[0] = 10
	if got := s.drainer.canSchedule(a); got.ID != 0 {
		t.Errorf("draining for none: request %d goes first, expected 0", got.ID)
	}
	s.drainer.draining[0] = s.e.Rows.Of(1)
	if got := s.drainer.canSchedule(a); got.ID != 2 {
		t.Errorf("draining: request %d goes first, expected 2", got.ID)
	}
	s.drainer.left[0] = 9
	if got := s.drainer.canSchedule(a); got != nil {
		t.Errorf("request %d goes first, expected none", got.ID)
	}
}

// An outage ends the process, not the count of the engine's decode steps: dLoRA's credits count iterations from then
// on, as those of a new engine do.
func TestCreditsAfterAnOutage(t *testing.T) {
	var credits []*dlora.Credits
	for _, steps := range []int64{0, 1000} {
		s, _ := schedulerOf(t, func(p *profile.Profile) {
			p.Latency.LoRA.Backend, p.Latency.LoRA.CreditScale = profile.BackendDLoRA, 1
		})
		s.e.Batch.Steps = steps
		after, err := newScheduler(s.e) // as Engine.Reset does
		if err != nil {
			t.Fatal(err)
		}
		s.e.Add(request(0, 10))
		s.e.Add(request(1, 10))
		m := after.(*Scheduler).modes
		m.choose()
		s.e.Batch.Steps += 5
		m.decided = false
		m.choose()
		credits = append(credits, m.credits)
	}
	if !reflect.DeepEqual(credits[0], credits[1]) {
		t.Errorf("after an outage credits are %+v, expected those of a new engine, %+v", *credits[1], *credits[0])
	}
}
