package policies

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"lorasim/router"
	"lorasim/router/routertest"
)

func TestResidencyTables(t *testing.T) {
	for _, c := range []struct {
		name        string
		worker      router.Worker
		state       router.AdapterState
		score, tier float64
	}{
		{"running", router.Worker{Slots: 1, SlotsUsed: 1, ActiveLoras: 1},
			router.AdapterState{Running: 1, Tier: router.GPU}, 1, 1},
		{"on the GPU, nothing runs", router.Worker{Slots: 1, SlotsUsed: 1, SlotsIdle: 1},
			router.AdapterState{Tier: router.GPU}, 0.8, 1},
		{"on the GPU, others run", router.Worker{Slots: 2, SlotsUsed: 2, ActiveLoras: 2},
			router.AdapterState{Tier: router.GPU}, 0, 1},
		{"one fewer active than slots", router.Worker{Slots: 2, SlotsUsed: 1, ActiveLoras: 1}, router.AdapterState{},
			0.8, 0.6},
		{"as many active and waiting as slots", router.Worker{Slots: 2, SlotsUsed: 1, ActiveLoras: 1, WaitingLoras: 1},
			router.AdapterState{}, 0, 0.6},
		{"slots used by idle adapters", router.Worker{Slots: 2, SlotsUsed: 2, SlotsIdle: 1, ActiveLoras: 1},
			router.AdapterState{},
			0.8, 0.3},
		{"free slot, in host memory", router.Worker{Slots: 2, SlotsUsed: 1, ActiveLoras: 1},
			router.AdapterState{Tier: router.Host}, 0.8,
			0.7},
		{"free slot, on disk", router.Worker{Slots: 2, SlotsUsed: 1, ActiveLoras: 1},
			router.AdapterState{Tier: router.Disk}, 0.8, 0.6},
		{"waiting, room", router.Worker{Slots: 3, SlotsUsed: 1, ActiveLoras: 1, WaitingLoras: 1},
			router.AdapterState{Queued: 1}, 0.8,
			0.6},
		{"waiting while it loads into the last slot", router.Worker{Slots: 1, SlotsUsed: 1, WaitingLoras: 1},
			router.AdapterState{Queued: 1, Tier: router.Host, Loading: true}, 0.6, 1},
		{"waiting for a slot", router.Worker{Slots: 1, SlotsUsed: 1, ActiveLoras: 1, WaitingLoras: 1},
			router.AdapterState{Queued: 1},
			0.6, 0},
		{"full, in host memory", router.Worker{Slots: 1, SlotsUsed: 1, ActiveLoras: 1},
			router.AdapterState{Tier: router.Host}, 0, 0.7},
		{"full", router.Worker{Slots: 1, SlotsUsed: 1, ActiveLoras: 1}, router.AdapterState{}, 0, 0},
	} {
		c.worker.Adapters = []router.AdapterState{c.state}
		if got := activeResidency(&c.worker, 0); got != c.score {
			t.Errorf("%s: score %g, want %g", c.name, got, c.score)
		}
		if got := tierResidency(&c.worker, 0); got != c.tier {
			t.Errorf("%s: residency %g, want %g", c.name, got, c.tier)
		}
	}
}

func TestAffinityWeighs(t *testing.T) {
	env := routertest.Env(3, 2)
	env.Workers = router.Alike(3, router.Spec{Slots: 1})
	// Adapter 0 runs on worker 0, which has the longest queue and half of its KV
	// cache in use; worker 2 has a free slot, worker 1 neither.
	v := routertest.View(env)
	v.Workers[0].Adapters[0].Tier = router.GPU
	v.Workers[0].Count(0, 1, 0)
	v.Workers[0].SlotsUsed, v.Workers[0].Queued, v.Workers[0].KVUsed = 1, 4, 5000
	v.Workers[1].FlightLoras = 1
	v.Workers[1].SlotsUsed, v.Workers[1].ActiveLoras, v.Workers[1].KVUsed = 1, 1, 1000
	v.Workers[2].Queued, v.Workers[2].KVUsed = 2, 9000
	for _, c := range []struct {
		spec    string
		adapter int32
		want    int
	}{
		// Scores of workers 0, 1, 2 in comments, lora + queue + kv.
		{"affinity", 0, 1},                               // 1+0+0.5, 0+1+0.9, 0.8+0.5+0.1
		{"affinity:queue=0", 0, 0},                       // 1.5, 0.9, 0.9
		{"affinity:lora=3", 0, 0},                        // 3.5, 1.9, 3.0
		{"affinity:kv=0,lora=2", 0, 2},                   // 2, 1, 2.1
		{"affinity:lora=0,queue=0", 0, 1},                // kv only
		{"affinity:lora=2,kv=0", 1, 2},                   // adapter 1: 0+0, 0+1, 1.6+0.5
		{"affinity:lora=100", -1, 1},                     // base model: 0.5, 1.9, 0.6
		{"affinity:variant=residency,kv=0,lora=2", 0, 0}, // 2, 1, 1.2+0.5
	} {
		routertest.Equal(t, routertest.Route(routertest.New(t, c.spec, env).Policy, v, c.adapter, 2),
			[]int{c.want, c.want}, c.spec)
	}
	v.Workers[1].Up = false // then the queue score runs from 2 to 4
	routertest.Equal(t, routertest.Route(routertest.New(t, "affinity", env).Policy, v, 0, 1), []int{2},
		"worker 1 down: 1.5 against 1.9")
	routertest.SetRunning(v, -1, -1, -1)
	routertest.Equal(t, routertest.Route(routertest.New(t, "affinity", env).Policy, v, 0, 1), []int{router.None},
		"none")
}

// TestListedAdapters: the metric lists adapters with requests in flight under both labels.
func TestListedAdapters(t *testing.T) {
	env := routertest.Env(1, 4)
	for _, c := range []struct {
		slots           int
		flight          []int32 // adapters with a request; the first runs, others wait
		score, distinct float64 // of adapter 0
	}{
		{2, nil, 0.8, 0.8},
		{2, []int32{0}, 1, 1},
		{2, []int32{1, 0}, 1, 1}, // one that waits is listed as running, too
		{2, []int32{1}, 0, 0.8},  // counts twice, or once
		{3, []int32{1}, 0.8, 0.8},
		{3, []int32{1, 2}, 0, 0.8},
		{3, []int32{1, 2, 3}, 0, 0},
		{0, nil, 0, 0},
	} {
		w := &routertest.View(env).Workers[0]
		w.Slots = c.slots
		for i, a := range c.flight {
			w.Count(a, int32(1-min(i, 1)), int32(min(i, 1)))
			w.Count(a, 1, 1) // more of its requests change nothing
			w.Count(a, -1, -1)
		}
		if a, b := scoreResidency(w, 0), distinctResidency(w, 0); a != c.score || b != c.distinct {
			t.Errorf("%d slots, in flight %v: %g, distinct %g; expected %g, %g", c.slots, c.flight, a, b, c.score,
				c.distinct)
		}
	}
}

// TestHolders: with holders the adapter's workers alone are scored; without any, all.
func TestHolders(t *testing.T) {
	env := routertest.Env(3, 2)
	v := routertest.View(env)
	v.Workers[1].Adapters[0].Tier, v.Workers[1].Queued = router.GPU, 9
	p := routertest.New(t, "affinity:holders=true,lora=0", env).Policy
	routertest.Equal(t, routertest.Route(p, v, 0, 2), []int{1, 1}, "the only holder")
	if w := routertest.Route(p, v, 1, 1)[0]; w == 1 {
		t.Error("nobody holds adapter 1, but the longest queue got it")
	}
	rt := routertest.New(t, "route-to-holder", env).Policy
	routertest.Equal(t, routertest.Route(rt, v, 0, 2), []int{1, 1}, "route-to-holder")
	v.Workers[1].Up = false
	if w := routertest.Route(rt, v, 0, 1)[0]; w == 1 {
		t.Error("a holder that is down got a request")
	}
}

func TestAffinityTies(t *testing.T) {
	env := routertest.Env(4, 1)
	v := routertest.View(env)
	routertest.SetRunning(v, -1, 0, 0, 0)
	counts := routertest.Count(routertest.Route(routertest.New(t, "affinity", env).Policy, v, 0, 30000), 4)
	routertest.Uniform(t, counts[1:])
	routertest.Equal(t, routertest.Route(routertest.New(t, "affinity:ties=first", env).Policy, v, 0, 2), []int{1, 1},
		"ties=first")
}

// The policy against the formula of its comment.
func TestAffinityAgainstFormula(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		env := routertest.Env(rapid.IntRange(1, 6).Draw(t, "workers"), 3)
		v := routertest.View(env)
		routertest.DrawWorkers(t, v)
		weight := rapid.SampledFrom([]float64{0, 0.5, 1, 3})
		p := &affinity{residency: activeResidency, lora: weight.Draw(t, "lora"), queue: weight.Draw(t, "queue"),
			kv: weight.Draw(t, "kv")}
		if rapid.Bool().Draw(t, "residency") {
			p.residency = tierResidency
		}
		r := router.Request{Adapter: rapid.Int32Range(-1, 2).Draw(t, "adapter")}
		least, most := math.Inf(1), math.Inf(-1)
		for _, w := range v.Workers {
			if w.Usable() {
				least, most = min(least, float64(w.Queued)), max(most, float64(w.Queued))
			}
		}
		best := math.Inf(-1)
		scores := make([]float64, len(v.Workers))
		for i := range v.Workers {
			w := &v.Workers[i]
			if !w.Usable() {
				continue
			}
			scores[i] = p.queue + p.kv*(1-float64(w.KVUsed)/float64(w.KVCapacity))
			if most > least {
				scores[i] += p.queue * ((most-float64(w.Queued))/(most-least) - 1)
			}
			if r.Adapter >= 0 {
				scores[i] += p.lora * p.residency(w, r.Adapter)
			}
			best = max(best, scores[i])
		}
		got := p.Route(r, v).Worker
		if math.IsInf(best, -1) {
			if got != router.None {
				t.Fatalf("got %d, none is usable", got)
			}
			return
		}
		if !v.Workers[got].Usable() || scores[got] < best-1e-9 {
			t.Fatalf("got worker %d of scores %v", got, scores)
		}
	})
}
