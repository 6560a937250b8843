package lora

import (
	"slices"
	"testing"

	"lorasim/router"
	"lorasim/sim/event"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
)

// bench is a manager of five adapters of rank 8, number 4 of rank 32, and the base model, which is number 5. The slots
// are for rank 16.
type bench struct {
	*testing.T
	m      Manager
	l      event.Loop
	e      engine
	view   router.Worker
	stats  record.Counters
	failed int // draws of loads that are to fail yet
	gpu    tick.Ticks
	disk   tick.Ticks // from disk to the GPU
}

func newBench(t *testing.T, o Options, start ...int32) *bench {
	t.Helper()
	p := profile.Default()
	b := &bench{T: t, e: engine{tiers: map[int32]router.Tier{}}, view: router.Worker{
		Adapters: make([]router.AdapterState, 5)}}
	o.Adapters, o.Costs, o.Home, o.MaxRank = trace.Names(5, []int{8}), p.Compile(), router.Disk, 16
	o.Adapters[4].Rank = 32
	o.Fails = func() bool {
		b.failed--
		return b.failed >= 0
	}
	b.gpu, b.disk = o.Costs.Load(8, router.Host), o.Costs.Load(8, router.Disk)
	for i := range int32(6) {
		a := NewAdapter(i, i == 5)
		b.e.adapters = append(b.e.adapters, &a)
	}
	books := router.NewBooks(&b.view, 0, router.NewIndex(1, 5))
	b.m.Init(o, &b.l, &books, &b.e, &b.stats, start, func(i int32) *Adapter { return b.e.adapters[i] })
	return b
}

// wait lets time pass.
func (b *bench) wait(d tick.Ticks) {
	end := b.l.Now() + d
	for b.l.Next() <= end {
		b.l.MoveTo(b.l.Next())
		b.l.Run()
	}
	b.l.MoveTo(end)
}

// run has a request run that has waited since a time; it returns what it and the step wait for its adapter.
func (b *bench) run(a int32, queued tick.Ticks) (cold, wait tick.Ticks, ok bool) {
	wait, ok = b.m.Acquire(b.e.adapters[a], queued, &cold)
	return cold, wait, ok
}

// use has a request of an adapter run and end.
func (b *bench) use(adapters ...int32) {
	b.Helper()
	for _, a := range adapters {
		if _, _, ok := b.run(a, b.l.Now()); !ok {
			b.Fatalf("adapter %d does not load", a)
		}
		b.m.Release(b.e.adapters[a])
	}
}

// slots expects adapters in GPU slots.
func (b *bench) slots(what string, want ...int32) {
	b.Helper()
	var got []int32
	for _, a := range b.m.SlotAdapters() {
		got = append(got, a.Index)
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		b.Errorf("%s: adapters %v in slots, expected %v", what, got, want)
	}
	if err := b.m.Check(); err != nil {
		b.Error(err)
	}
}

// tiers expects where the adapters are: d for disk, h for host memory, g for a slot.
func (b *bench) tiers(what, want string) {
	b.Helper()
	got := ""
	for _, st := range b.view.Adapters {
		got += "rdhg"[st.Tier : st.Tier+1]
	}
	if got != want {
		b.Errorf("%s: adapters are in tiers %s, expected %s", what, got, want)
	}
}

// At the start there are the adapters that fit in host memory, of a rank that fits in a slot.
func TestStart(t *testing.T) {
	b := newBench(t, Options{Slots: 1}, 0, 4, 1, 2)
	if b.tiers("no limit", "hhhdd"); b.m.Hosts() != 3 || b.m.Supports(4) || !b.m.Supports(0) {
		t.Errorf("%d adapters in host memory, expected 3; rank 32 is supported: %v", b.m.Hosts(), b.m.Supports(4))
	}
	b = newBench(t, Options{Slots: 1, HostLimit: 2}, 0, 4, 1, 2)
	if b.tiers("at most two", "hhddd"); b.m.Hosts() != 2 {
		t.Errorf("%d adapters in host memory, expected 2", b.m.Hosts())
	}
}

// A blocking load stops the step for as long as it takes, for the first request alone; the base model needs none.
func TestBlockingLoad(t *testing.T) {
	b := newBench(t, Options{Slots: 2, Blocking: true}, 0)
	for k, c := range []struct {
		adapter int32
		want    tick.Ticks
	}{{0, b.gpu}, {0, 0}, {1, b.disk}, {5, 0}} {
		if k == 3 {
			b.m.Release(b.e.adapters[1])
		}
		if cold, wait, ok := b.run(c.adapter, 0); cold != c.want || wait != c.want || !ok {
			t.Errorf("request %d waits %d, its step %d, loads %v; expected %d", k, cold, wait, ok, c.want)
		}
	}
	if b.stats.ColdLoads != 2 || b.e.loaded != b.gpu+b.disk || b.stats.Evictions != 1 {
		t.Errorf("%+v, expected 2 loads, and adapter 1 evicted for the base model", b.stats)
	}
	b.tiers("after", "ghddd")
}

// vLLM's base model takes no slot: all are the adapters', and it runs where all are in use.
func TestSlotlessBase(t *testing.T) {
	b := newBench(t, Options{Slots: 1, Blocking: true, Rules: Rules{SlotlessBase: true, FetchesInSteps: true}}, 0)
	base := b.e.adapters[5]
	b.run(0, 0)
	if !b.m.CanRun(base) || b.m.CanRun(b.e.adapters[1]) {
		t.Error("the base model cannot run beside an adapter, or a second adapter can")
	}
	if _, wait, ok := b.run(5, 0); wait != 0 || !ok {
		t.Errorf("the base model waits %d, loads %v", wait, ok)
	}
	b.slots("beside the base model", 0)
	if b.view.SlotsUsed != 1 || b.view.SlotsIdle != 0 || !base.Active() {
		t.Errorf("%d slots used, %d idle, expected 1 and 0", b.view.SlotsUsed, b.view.SlotsIdle)
	}
	b.m.Release(base)
	b.m.Release(b.e.adapters[0])
	if b.view.SlotsUsed != 1 || b.view.SlotsIdle != 1 || base.Active() {
		t.Errorf("%d slots used, %d idle, expected 1 and 1", b.view.SlotsUsed, b.view.SlotsIdle)
	}
}

// A fetch to host memory that is under way counts for a blocking load: what is left of it comes before the copy.
func TestLoadDuringAFetch(t *testing.T) {
	b := newBench(t, Options{Slots: 2, Blocking: true, Rules: Rules{FetchesInSteps: true}})
	b.m.StartFetch(b.e.adapters[0])
	fetch := b.disk - b.gpu
	b.l.MoveTo(fetch / 4)
	if cold, wait, _ := b.run(0, b.l.Now()); wait != fetch-fetch/4+b.gpu || cold != 2*fetch-2*(fetch/4)+b.gpu {
		t.Errorf("waits %d, %d in all, expected %d", wait, cold, fetch-fetch/4+b.gpu)
	}
	b.wait(b.disk)
	b.tiers("after both", "gdddd")
	if b.m.Hosts() != 1 || b.stats.ColdLoads != 1 {
		t.Errorf("%d adapters in host memory, %d loads, expected 1 and 1", b.m.Hosts(), b.stats.ColdLoads)
	}
}

// Loads beside the steps go one after the other. A request waits for its adapter from when that load begins, or from
// when the request came.
func TestLoadsBesideSteps(t *testing.T) {
	b := newBench(t, Options{Slots: 3}, 0, 1, 2)
	for a := range int32(3) {
		if !b.m.MustLoad(b.e.adapters[a]) {
			t.Fatalf("adapter %d needs no load", a)
		}
		b.m.StartLoad(b.e.adapters[a])
	}
	if b.m.Idle() || !b.m.Full() || b.view.SlotsUsed != 3 || b.view.SlotsIdle != 0 {
		t.Errorf("idle %v, full %v, %d slots used, %d idle", b.m.Idle(), b.m.Full(), b.view.SlotsUsed, b.view.SlotsIdle)
	}
	b.wait(2*b.gpu - 1)
	b.tiers("before the second has ended", "ghhdd")
	if b.m.CanRun(b.e.adapters[1]) || !b.m.CanRun(b.e.adapters[0]) || !b.view.Adapters[1].Loading {
		t.Error("an adapter runs that is loading, or one does not that is loaded")
	}
	b.wait(1)
	b.tiers("after the second", "gghdd")
	for _, c := range []struct{ queued, cold tick.Ticks }{
		{0, b.gpu}, {3 * b.gpu / 2, b.gpu - b.gpu/2}, {2 * b.gpu, 0},
	} {
		if cold, wait, ok := b.run(1, c.queued); cold != c.cold || wait != 0 || !ok {
			t.Errorf("a request of %d waited %d, its step %d, expected %d and 0", c.queued, cold, wait, c.cold)
		}
	}
	if b.wait(b.gpu); !b.m.Idle() || b.stats.ColdLoads != 3 || b.e.loaded != 3*b.gpu || b.m.Full() {
		t.Errorf("idle %v, %+v, full %v", b.m.Idle(), b.stats, b.m.Full())
	}
}

// The victim is the adapter used longest ago, or loaded first; an adapter that requests use and a pinned one stay, and
// the base model goes last. Of equals the first by index goes.
func TestSelectVictim(t *testing.T) {
	for _, c := range []struct {
		name   string
		fifo   bool
		before func(b *bench)
		want   []int32
	}{
		{"least recently used", false, func(b *bench) { b.use(0, 1, 2, 0) }, []int32{0, 2, 3}},
		{"loaded first", true, func(b *bench) { b.use(0, 1, 2, 0) }, []int32{1, 2, 3}},
		{"not one in use", false, func(b *bench) { b.run(0, 0); b.use(1, 2) }, []int32{0, 2, 3}},
		{"not a pinned one", false, func(b *bench) { b.use(0, 1, 2); b.m.Pin(0, true) }, []int32{0, 2, 3}},
		{"the base model last", false, func(b *bench) { b.use(5, 1, 2) }, []int32{2, 3, 5}},
		{"the base model if need be", false, func(b *bench) { b.run(0, 0); b.run(1, 0); b.use(5) }, []int32{0, 1, 3}},
		{"a decode step counts as use", false, func(b *bench) {
			b.run(0, 0)
			b.use(1, 2)
			b.m.StampDecode()
			b.m.Release(b.e.adapters[0])
		}, []int32{0, 2, 3}},
	} {
		b := newBench(t, Options{Slots: 3, Blocking: true, FIFO: c.fifo}, 0, 1, 2, 3)
		c.before(b)
		b.use(3)
		b.slots(c.name, c.want...)
	}
	b := newBench(t, Options{Slots: 2}, 0, 1, 2) // neither was ever used by a step
	b.m.WarmUp(b.e.adapters[1])
	b.m.WarmUp(b.e.adapters[0])
	b.m.WarmUp(b.e.adapters[2])
	b.slots("of equals the first", 1, 2)
}

// An idle adapter can run as long as a slot is free or its adapter is idle and not pinned.
func TestSlotAvailable(t *testing.T) {
	b := newBench(t, Options{Slots: 2, Blocking: true}, 0, 1, 2, 3)
	b.use(0)
	b.run(1, 0)
	if !b.m.slotAvailable(b.e.adapters[2]) || !b.m.CanRun(b.e.adapters[2]) || b.m.Full() {
		t.Error("adapter 2 cannot take the slot of an idle one")
	}
	b.m.Pin(0, true)
	if b.m.slotAvailable(b.e.adapters[2]) || !b.m.CanRun(b.e.adapters[0]) || !b.m.Pins() {
		t.Error("adapter 2 can take the slot of a pinned one, or that cannot run itself")
	}
	b.m.Pin(0, false)
	b.run(2, 0)
	if b.m.CanRun(b.e.adapters[0]) || !b.m.CanRun(b.e.adapters[1]) || !b.m.Full() {
		t.Error("a third adapter can run beside two, or one of the two cannot")
	}
	if b.m.CanRun(b.e.adapters[4]) {
		t.Error("an adapter can run that is not in host memory")
	}
}

// Host memory drops the adapter used longest ago that nothing needs. sglang keeps those that requests wait for, vLLM
// drops those without a slot first, waited for or not.
func TestTrimHost(t *testing.T) {
	for _, c := range []struct {
		name   string
		rules  Rules
		before func(b *bench)
		want   string
	}{
		{"least recently used", Rules{}, func(b *bench) { b.use(0, 1) }, "dghdd"},
		{"not one in use", Rules{}, func(b *bench) { b.run(0, 0); b.use(1) }, "gdhdd"},
		{"sglang keeps what is waited for", Rules{}, func(b *bench) {
			b.use(0, 1)
			b.e.adapters[0].Waiting = 1
		}, "gdhdd"},
		{"vLLM drops one without a slot", Rules{SlotsLast: true, FetchesInSteps: true}, func(b *bench) {
			b.use(0, 1, 3)
			b.e.adapters[0].Waiting = 1
		}, "dghgd"},
		{"not a pinned one", Rules{}, func(b *bench) { b.use(0, 1); b.m.Pin(0, true) }, "gdhdd"},
	} {
		b := newBench(t, Options{Slots: 2, HostLimit: 2, Blocking: true, Rules: c.rules}, 0, 1)
		if c.rules.SlotsLast {
			b.m.opt.HostLimit = 3
		}
		c.before(b)
		b.m.StartFetch(b.e.adapters[2])
		b.wait(b.disk)
		b.tiers(c.name, c.want)
		if b.m.TrimHost(); b.m.Hosts() != b.m.opt.HostLimit {
			t.Errorf("%s: %d adapters in host memory, expected %d", c.name, b.m.Hosts(), b.m.opt.HostLimit)
		}
		if err := b.m.Check(); err != nil {
			t.Error(err)
		}
	}
	b := newBench(t, Options{Slots: 2, HostLimit: 2, Blocking: true,
		Rules: Rules{SlotsLast: true, FetchesInSteps: true}}, 0, 1)
	b.use(0, 1)
	b.m.StartFetch(b.e.adapters[2]) // both have slots: the least recently used goes
	b.wait(b.disk)
	b.tiers("vLLM, all in slots", "dghdd")
	if b.stats.Evictions != 1 {
		t.Errorf("%d evictions, expected 1", b.stats.Evictions)
	}

	b = newBench(t, Options{Slots: 1, HostLimit: 1, Rules: Rules{SlotsLast: true, FetchesInSteps: true}}, 1)
	b.m.Pin(1, true)
	b.e.adapters[0].Waiting = 1
	b.m.StartLoad(b.e.adapters[0])
	b.wait(b.disk)
	b.m.TrimHost()
	b.tiers("vLLM, loaded beside the steps for a request", "ghddd")
	b.e.adapters[0].Waiting = 0
	b.m.TrimHost()
	b.tiers("vLLM, the request is gone", "dhddd")
}

// A load that fails is tried again, at most ten times; then the requests that wait for the adapter fail.
func TestFailures(t *testing.T) {
	b := newBench(t, Options{Slots: 1, Blocking: true}, 0)
	b.failed = 2
	if _, wait, ok := b.run(0, 0); wait != 3*b.gpu || !ok || b.stats.FailedLoads != 2 || b.stats.ColdLoads != 1 {
		t.Errorf("waits %d, loads %v, %+v; expected three times %d", wait, ok, b.stats, b.gpu)
	}
	b.m.Release(b.e.adapters[0])
	b = newBench(t, Options{Slots: 1, Blocking: true}, 0)
	b.failed = 10
	if _, wait, ok := b.run(0, 0); wait != 10*b.gpu || ok || b.e.gaveUp != 1 || b.stats.ColdLoads != 0 {
		t.Errorf("waits %d, loads %v, given up %d times; expected 10 times %d, then to give up", wait, ok, b.e.gaveUp,
			b.gpu)
	}
	b.slots("given up")

	b = newBench(t, Options{Slots: 1})
	b.failed = 10
	b.e.adapters[0].Waiting = 1
	for k := range 10 {
		if b.e.gaveUp > 0 {
			t.Fatalf("given up after %d failures", k)
		}
		b.m.FetchMissing(b.e.adapters[0]) // has no effect from the second time on: a failure has done it
		b.wait(b.disk)
	}
	if b.e.gaveUp != 1 || b.m.Hosts() != 0 || !b.m.Idle() {
		t.Errorf("given up %d times, %d adapters in host memory, idle %v", b.e.gaveUp, b.m.Hosts(), b.m.Idle())
	}
	b.m.Preload(b.e.adapters[1])
	b.failed = 1
	b.m.StartLoad(b.e.adapters[1])
	b.wait(b.gpu)
	b.slots("after a failure")
	b.tiers("after a failure", "dhddd")
}

// An adapter that is to leave does so once nothing uses it; a request that comes keeps it.
func TestUnload(t *testing.T) {
	b := newBench(t, Options{Slots: 2, Blocking: true, HostLimit: 5}, 0, 1, 2)
	b.run(0, 0)
	b.m.Unload(b.e.adapters[0])
	b.tiers("in use", "ghhdd")
	b.m.Release(b.e.adapters[0])
	b.m.UnloadIfUnused(b.e.adapters[0])
	b.tiers("used no more", "dhhdd")
	b.slots("used no more")
	b.e.adapters[1].Waiting = 1
	b.m.Unload(b.e.adapters[1])
	b.tiers("waited for", "dhhdd")
	b.e.adapters[1].Keep()
	b.e.adapters[1].Waiting = 0
	b.m.UnloadIfUnused(b.e.adapters[1])
	b.tiers("kept", "dhhdd")
	b.m.Unload(b.e.adapters[1])
	b.m.Unload(b.e.adapters[5]) // the base model stays
	b.m.Unload(b.e.adapters[3]) // is not there
	if b.tiers("unused", "ddhdd"); b.m.Hosts() != 1 {
		t.Errorf("%d adapters in host memory, expected 1", b.m.Hosts())
	}
}

// A plan brings an adapter to a slot where one is free, else to host memory; a prefetch takes a slot from an idle
// adapter that no request waits for.
func TestPlannedLoads(t *testing.T) {
	b := newBench(t, Options{Slots: 1}, 0, 1)
	b.m.Load(b.e.adapters[0])
	b.m.Load(b.e.adapters[0]) // is on its way
	b.m.Load(b.e.adapters[2])
	b.m.Load(b.e.adapters[4]) // does not fit into a slot
	b.wait(2 * b.disk)
	if b.tiers("by a plan", "ghhdd"); b.stats.ColdLoads != 1 {
		t.Errorf("%d loads into slots, expected 1", b.stats.ColdLoads)
	}
	b.e.adapters[0].Waiting = 1
	b.m.Prefetch(b.e.adapters[1])
	b.wait(b.disk)
	b.slots("waited for", 0)
	b.e.adapters[0].Waiting = 0
	b.run(0, b.l.Now())
	b.m.Prefetch(b.e.adapters[1])
	b.wait(b.disk)
	b.slots("in use", 0)
	b.m.Release(b.e.adapters[0])
	b.m.Prefetch(b.e.adapters[1])
	b.m.Prefetch(b.e.adapters[5])
	b.wait(b.disk)
	b.slots("idle", 1)
}

// Where a prefill step may take the slots of running requests, adapters get theirs once the step is formed, by index
// after the base model. One whose slot was taken while it ran comes back for the next decode step, which waits for it.
func TestPrepareBatchDisplaces(t *testing.T) {
	b := newBench(t, Options{Slots: 2, Blocking: true, Rules: Rules{Displaces: true}}, 0, 1, 2, 3)
	step := func(what string, want tick.Ticks, decodes bool, slots []int32, prompts ...int32) {
		t.Helper()
		var as []*Adapter
		for _, a := range prompts {
			b.run(a, b.l.Now())
			as = append(as, b.e.adapters[a])
		}
		if got := b.m.PrepareBatch(as, decodes); got != want {
			t.Errorf("%s: the step waits %d for displaced adapters, expected %d", what, got, want)
		}
		b.slots(what, slots...)
		for _, a := range prompts {
			b.e.adapters[a].Decoding = 1
		}
		if decodes {
			b.m.StampDecode()
		}
	}
	step("two prompts", 0, false, []int32{0, 1}, 0, 1)
	step("decodes", 0, true, []int32{0, 1})
	b.m.Release(b.e.adapters[1])
	b.e.adapters[1].Decoding = 0
	// both were used by the latest decode step: the first by index makes way, although it runs
	step("a third", 0, false, []int32{1, 2}, 2)
	step("both decode", b.gpu, true, []int32{0, 2})
	b.m.Release(b.e.adapters[2])
	b.e.adapters[2].Decoding = 0
	step("two prompts, and one decodes meanwhile", 0, false, []int32{1, 3}, 3, 1)
	if b.m.unplaced != 1 || b.view.Adapters[0].Tier != router.Host {
		t.Errorf("%d adapters without a slot, adapter 0 in tier %d", b.m.unplaced, b.view.Adapters[0].Tier)
	}
	b.m.Release(b.e.adapters[3])
	b.e.adapters[3].Decoding = 0
	step("it comes back", b.gpu, true, []int32{0, 1})
	if b.m.unplaced != 0 {
		t.Errorf("%d adapters without a slot, expected none", b.m.unplaced)
	}
}

// Each broken invariant is an error of its own.
func TestCheck(t *testing.T) {
	for name, spoil := range map[string]func(b *bench){
		"too many slots":           func(b *bench) { b.m.slots = append(b.m.slots, b.m.slots[0], b.m.slots[0]) },
		"slot without mark":        func(b *bench) { b.e.adapters[0].slot = false },
		"slot, not in host memory": func(b *bench) { b.view.Adapters[0].Tier = router.Disk },
		"active, without requests": func(b *bench) { b.m.active = append(b.m.active, b.e.adapters[1]) },
		"loading without a slot":   func(b *bench) { b.e.adapters[2].loading, b.e.adapters[2].slot = true, false },
		"placed, but not counted":  func(b *bench) { b.m.unplaced++ },
		"more idle than used":      func(b *bench) { b.view.SlotsIdle = b.view.SlotsUsed + 1 },
		"host memory not counted":  func(b *bench) { b.m.hosts-- },
		"use in the future":        func(b *bench) { b.e.adapters[0].used = b.m.clock + 1 },
	} {
		b := newBench(t, Options{Slots: 3, Blocking: true}, 0, 1, 2)
		b.use(0)
		b.run(2, 0)
		if err := b.m.Check(); err != nil {
			t.Fatal(err)
		}
		if spoil(b); b.m.Check() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// An adapter that is in host memory, or on its way, is not fetched.
func TestFetchOnce(t *testing.T) {
	b := newBench(t, Options{Slots: 1}, 0)
	if b.m.StartFetch(b.e.adapters[0]); !b.m.Idle() || b.m.Gone(b.e.adapters[0]) || !b.m.Loaded(b.e.adapters[0]) {
		t.Error("an adapter is fetched that is there")
	}
	b.m.StartFetch(b.e.adapters[1])
	b.m.StartFetch(b.e.adapters[1])
	if b.m.Gone(b.e.adapters[1]) || b.m.Loaded(b.e.adapters[1]) || b.m.Hosts() != 2 {
		t.Errorf("an adapter on its way is gone, or there; %d adapters in host memory", b.m.Hosts())
	}
	if b.wait(b.disk - b.gpu); !b.m.Idle() || !b.m.Loaded(b.e.adapters[1]) {
		t.Error("an adapter is fetched twice")
	}
}

// Failures count while they follow one another: a load into a slot that succeeds ends the row, a fetch does not.
func TestFailuresInARow(t *testing.T) {
	b := newBench(t, Options{Slots: 1}, 0)
	a := b.e.adapters[0]
	b.failed = 1
	b.m.StartLoad(a)
	b.wait(b.gpu)
	if a.failures != 1 {
		t.Fatalf("%d failures, expected 1", a.failures)
	}
	b.m.Unload(a)
	b.m.StartFetch(a)
	if b.wait(b.disk); a.failures != 1 || !b.m.Loaded(a) {
		t.Errorf("%d failures after a fetch, expected 1", a.failures)
	}
	b.m.StartLoad(a)
	if b.wait(b.gpu); a.failures != 0 {
		t.Errorf("%d failures after a load, expected none", a.failures)
	}
}

// A step's adapters get their slots in the order of their indices, after the base model: where the adapter that was
// loaded first makes way, the lowest does.
func TestPlacesByIndex(t *testing.T) {
	b := newBench(t, Options{Slots: 3, Blocking: true, FIFO: true, Rules: Rules{Displaces: true}}, 0, 1, 2, 3)
	var prompts []*Adapter
	for _, a := range []int32{2, 5, 1} {
		b.run(a, 0)
		prompts = append(prompts, b.e.adapters[a])
	}
	b.m.PrepareBatch(prompts, false)
	for _, a := range prompts {
		b.m.Release(a)
	}
	base, one, two := b.e.adapters[5], b.e.adapters[1], b.e.adapters[2]
	if base.loaded >= one.loaded || one.loaded >= two.loaded {
		t.Errorf("base model loaded at %d, adapters 1 and 2 at %d and %d", base.loaded, one.loaded, two.loaded)
	}
	b.run(0, 0)
	b.m.PrepareBatch([]*Adapter{b.e.adapters[0]}, false)
	b.slots("one more", 0, 2, 5)
}
