package router_test

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"lorasim/router"
	"lorasim/router/routertest"
)

// The router's own books are current, what workers report is not.
func TestStaleAgesReportsOnly(t *testing.T) {
	env := routertest.Env(2, 2)
	live := routertest.View(env)
	live.Workers[1].Age = 0.25 // its own signals are late as well
	s := router.NewStale(1)
	for _, c := range []struct {
		now  float64
		kv   int64 // of worker 0 now
		seen int64
		age  float64
	}{
		{0, 1, 1, 0},
		{0.5, 2, 1, 0.5},
		{0.75, 3, 1, 0.75},
		{1, 4, 4, 0},
		{1.75, 5, 4, 0.75},
		{9, 6, 6, 0},
		{9.5, 7, 6, 0.5},
		{3, 8, 8, 0}, // another run begins
	} {
		live.Now = c.now
		w := &live.Workers[0]
		w.KVUsed, w.SlotsUsed, w.SlotsIdle, w.Up = c.kv, int(c.kv), int(c.kv)+1, c.kv%2 == 0
		w.Running, w.Queued, w.Tokens, w.QueuedToks, w.MaxRank = int(c.kv)+2, int(c.kv)+3, c.kv+4, c.kv+5, int(c.kv)+6
		w.ActiveLoras, w.WaitingLoras, w.Draining = int(c.kv)+7, int(c.kv)+8, c.kv%4 < 2
		n := int32(c.kv)
		w.Adapters[0].Tier = router.Tier(n % 4)
		w.Adapters[1] = router.AdapterState{Running: n, Queued: n + 1, Tier: router.GPU, Loading: n%2 == 0,
			Pinned: n%3 == 0}
		want := *w
		want.KVUsed, want.SlotsUsed, want.SlotsIdle, want.Up = c.seen, int(c.seen), 0, c.seen%2 == 0
		want.Age = c.age
		want.Adapters = []router.AdapterState{{Tier: router.Tier(c.seen % 4)}, {Running: n, Queued: n + 1,
			Tier: router.GPU, Loading: c.seen%2 == 0, Pinned: c.seen%3 == 0}}
		v := s.Update(live)
		if d := cmp.Diff(want, v.Workers[0], cmpopts.IgnoreUnexported(router.Worker{})); d != "" {
			t.Errorf("at %g: %s", c.now, d)
		}
		if v.Now != c.now || v.Workers[1].Age != 0.25+c.age {
			t.Errorf("at %g: time %g, age of worker 1 %g, want %g", c.now, v.Now, v.Workers[1].Age, 0.25+c.age)
		}
	}
}

func TestStalePassesThrough(t *testing.T) {
	live := routertest.View(routertest.Env(2, 2))
	for _, period := range []float64{0, -1, math.NaN()} {
		if router.NewStale(period).Update(live) != live {
			t.Errorf("period %g: expected the live view", period)
		}
	}
}

// Whatever happens between two reports, a policy that looks at the router's own
// books alone decides as on the live view.
func TestStaleBooksAreCurrent(t *testing.T) {
	for _, spec := range []string{"least-loaded", "least-tokens", "weighted-queue", "dispatch_only", "k-shard"} {
		rapid.Check(t, func(t *rapid.T) {
			env := routertest.Env(3, 2)
			live := routertest.View(env)
			now, late := routertest.New(t, spec, env).Policy, routertest.New(t, spec, env).Policy
			s := router.NewStale(2)
			for range 10 {
				live.Now += rapid.Float64Range(0, 1.5).Draw(t, "dt")
				routertest.DrawWorkers(t, live)
				for i := range live.Workers {
					live.Workers[i].Up = true
				}
				before := routertest.CloneView(live)
				r := router.Request{Adapter: rapid.Int32Range(-1, 1).Draw(t, "adapter"), Prompt: 10}
				if a, b := now.Route(r, live).Worker, late.Route(r, s.Update(live)).Worker; a != b {
					t.Fatalf("%s: worker %d on the live view, %d on late reports", spec, a, b)
				}
				if d := cmp.Diff(before, live, cmpopts.IgnoreUnexported(router.Worker{})); d != "" {
					t.Fatalf("live view changed: %s", d)
				}
			}
		})
	}
}

func TestStaleFollowsTheNumberOfWorkers(t *testing.T) {
	s := router.NewStale(10)
	s.Update(routertest.View(routertest.Env(2, 2)))
	if v := s.Update(routertest.View(routertest.Env(4, 3))); len(v.Workers) != 4 || len(v.Workers[3].Adapters) != 3 {
		t.Errorf("%d workers", len(v.Workers))
	}
}

func TestStaleDoesNotAllocate(t *testing.T) {
	live := routertest.View(routertest.Env(16, 64))
	for j := range live.Workers {
		router.NewBooks(&live.Workers[j], j, nil)
	}
	s := router.NewStale(1)
	s.Update(live)
	if n := testing.AllocsPerRun(100, func() {
		live.Now += 0.4
		s.Update(live)
	}); n != 0 {
		t.Errorf("%g allocations per update", n)
	}
}

// A worker evicts the adapter that was used the longest time ago, from its slots and from its host memory. The router
// reads no report but the first, and knows what the worker holds from its own requests.
func TestStaleKnowsWhatItsRequestsBring(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slots := rapid.IntRange(1, 4).Draw(t, "slots")
		hosted := rapid.IntRange(slots, 6).Draw(t, "hosted")
		const adapters = 8
		live := routertest.View(routertest.Env(1, adapters))
		w := &live.Workers[0]
		w.Slots, w.HostSlots, w.SlotsUsed = slots, hosted, 0
		for a := range w.Adapters {
			w.Adapters[a] = router.AdapterState{Tier: router.Disk}
		}
		late := router.NewStale(math.Inf(1))
		late.Update(live)
		var used []int32 // the one used last at the end
		for range 20 {
			a := rapid.Int32Range(0, adapters-1).Draw(t, "adapter")
			used = append(slices.DeleteFunc(used, func(b int32) bool { return b == a }), a)
			for i, b := range used {
				switch newer := len(used) - 1 - i; {
				case newer < slots:
					w.Adapters[b].Tier = router.GPU
				case newer < hosted:
					w.Adapters[b].Tier = router.Host
				default:
					w.Adapters[b].Tier = router.Disk
				}
			}
			w.SlotsUsed, w.SlotsIdle = min(len(used), slots), min(len(used), slots)-1
			w.Adapters[a].Running, w.ActiveLoras = 1, 1
			v := late.Update(live)
			if d := cmp.Diff(live.Workers[0], v.Workers[0], cmpopts.IgnoreUnexported(router.Worker{})); d != "" {
				t.Fatalf("%d slots, %d in host memory, used %v: %s", slots, hosted, used, d)
			}
			w.Adapters[a].Running, w.ActiveLoras = 0, 0
		}
	})
}
