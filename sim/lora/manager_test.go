package lora

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"lorasim/router"
	"lorasim/sim/event"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
)

// engine is an engine that only notes what its manager tells it.
type engine struct {
	adapters []*Adapter
	tiers    map[int32]router.Tier
	gaveUp   int
	loaded   tick.Ticks // time of loads into a GPU slot
}

func (e *engine) TierChanged(a *Adapter, t router.Tier) { e.tiers[a.Index] = t }
func (e *engine) LoadFailed(*Adapter)                   {}
func (e *engine) GiveUp(a *Adapter, _ tick.Ticks)       { a.Waiting = 0; e.gaveUp++ }
func (e *engine) LoadEnded()                            {}
func (e *engine) LoadBooked(_ *Adapter, slot bool, from, to tick.Ticks) {
	if slot {
		e.loaded += to - from
	}
}
func (e *engine) SlotFreed() {}

// TestManager has requests of random adapters come, run and leave, and plans load and unload adapters, under all
// rules. The invariants hold after every operation, the engine hears of every change of tier, and in the end no
// adapter is active.
func TestManager(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const n = 7
		p := profile.Default()
		costs, stats, view := p.Compile(), record.Counters{}, router.Worker{Adapters: make([]router.AdapterState, n)}
		var l event.Loop
		e := &engine{tiers: map[int32]router.Tier{}}
		for i := range int32(n + 1) {
			a := NewAdapter(i, i == n)
			e.adapters = append(e.adapters, &a)
		}
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		failing := rapid.SampledFrom([]float64{0, 0, 0.3, 1}).Draw(t, "failing")
		o := Options{Adapters: trace.Names(n, []int{8, 16}), Costs: costs, Home: router.Disk,
			Slots:   rapid.IntRange(1, 3).Draw(t, "slots"),
			MaxRank: 16, Blocking: rapid.Bool().Draw(t, "blocking"), FIFO: rapid.Bool().Draw(t, "fifo"),
			Fails: func() bool { return rng.Float64() < failing }}
		o.HostLimit = rapid.SampledFrom([]int{0, o.Slots + 1, n}).Draw(t, "host")
		if vllm := rapid.Bool().Draw(t, "vllm"); vllm {
			o.Rules = Rules{SlotlessBase: true, FetchesInSteps: true, SlotsLast: true}
		} else {
			o.Displaces = o.Blocking && rapid.Bool().Draw(t, "displaces")
		}
		books := router.NewBooks(&view, 0, router.NewIndex(1, n))
		var m Manager
		m.Init(o, &l, &books, e, &stats, []int32{0, 1, 2, 3}, func(i int32) *Adapter { return e.adapters[i] })
		for i, st := range view.Adapters {
			e.tiers[int32(i)] = st.Tier
		}
		var running []*Adapter
		for range rapid.IntRange(1, 80).Draw(t, "operations") {
			a := rapid.SampledFrom(e.adapters).Draw(t, "adapter")
			switch op := rapid.IntRange(0, 6).Draw(t, "operation"); {
			case op <= 1: // a request comes and runs, if it can
				m.FetchMissing(a)
				var cold tick.Ticks
				if !m.CanRun(a) {
					continue
				}
				if m.MustLoad(a) {
					m.StartLoad(a)
					continue
				}
				if _, ok := m.Acquire(a, l.Now(), &cold); ok {
					running = append(running, a)
					m.PrepareBatch([]*Adapter{a}, false)
				}
			case op == 2 && len(running) > 0:
				m.Release(running[0])
				m.UnloadIfUnused(running[0])
				running = running[1:]
			case op == 3 && a.Index < n:
				m.Load(a)
			case op == 4 && a.Index < n:
				m.Unload(a)
			case op == 5:
				m.StampDecode()
				m.TrimHost()
			case op == 6 && l.Next() != tick.Never:
				l.MoveTo(l.Next())
				l.Run()
			}
			if err := m.Check(); err != nil {
				t.Fatal(err)
			}
			for i, st := range view.Adapters {
				if e.tiers[int32(i)] != st.Tier {
					t.Fatalf("adapter %d is in tier %d, the engine was told %d", i, st.Tier, e.tiers[int32(i)])
				}
			}
		}
		for _, a := range running {
			m.Release(a)
		}
		for l.Next() != tick.Never {
			l.MoveTo(l.Next())
			l.Run()
		}
		if err := m.Check(); err != nil || len(m.ActiveAdapters()) > 0 || !m.Idle() {
			t.Fatalf("%d adapters are active, idle %v, %v", len(m.ActiveAdapters()), m.Idle(), err)
		}
		if m.TrimHost(); o.HostLimit > 0 && m.Hosts() > o.HostLimit {
			t.Fatalf("%d adapters in host memory, expected at most %d", m.Hosts(), o.HostLimit)
		}
	})
}
