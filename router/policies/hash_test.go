package policies

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"lorasim/router"
	"lorasim/router/routertest"
	"lorasim/trace"
)

// The first outputs of SplitMix64 with seed 0 and with seed 1234567, as
// published with its reference implementation.
func TestMixIsSplitMix64(t *testing.T) {
	const gamma = 0x9e3779b97f4a7c15
	for _, c := range []struct{ state, want uint64 }{
		{0, 0xe220a8397b1dcdaf},
		{gamma, 0x6e789e6aa1b965f4},
		{1234567, 6457827717110365317},
	} {
		if got := mix(c.state); got != c.want {
			t.Errorf("mix(%#x) = %#x, want %#x", c.state, got, c.want)
		}
	}
}

// order is the slow reference: all workers sorted by weight.
func order(h *hrw, adapter int32) []int {
	workers := make([]int, len(h.workers))
	for w := range workers {
		workers[w] = w
	}
	slices.SortStableFunc(workers, func(a, b int) int {
		wa, wb := h.weight(adapter, a), h.weight(adapter, b)
		switch {
		case wa > wb:
			return -1
		case wa < wb:
			return 1
		}
		return 0
	})
	return workers
}

func TestHRWOrder(t *testing.T) {
	h := newHRW(routertest.Env(9, 50))
	for a := range int32(50) {
		var got []int
		for i := range 9 {
			got = append(got, h.at(a, i))
		}
		routertest.Equal(t, got, order(h, a), "order")
	}
	// Equal weights must still give every worker once.
	for w := range h.workers {
		h.workers[w] = uint64(w / 3)
	}
	h.orders[0] = nil
	h.order(0)
	var got []int
	for i := range 9 {
		got = append(got, h.at(0, i))
	}
	routertest.Equal(t, got, order(h, 0), "order with equal weights")
}

func TestHashSpreadsEvenly(t *testing.T) {
	const workers, adapters = 16, 16000
	rt := routertest.New(t, "hash", routertest.Env(workers, adapters))
	counts := make([]int, workers)
	for w, list := range rt.Placement {
		counts[w] = len(list)
	}
	routertest.Uniform(t, counts)
}

func TestHashMovesOnlyWhatItMust(t *testing.T) {
	const workers, adapters = 8, 200
	env := routertest.Env(workers, adapters)
	rt := routertest.New(t, "hash", env)
	v := routertest.View(env)
	home := make([]int, adapters)
	for w, list := range rt.Placement {
		for _, a := range list {
			home[a] = w
		}
	}
	v.Workers[3].Draining = true
	landed := make(map[int]bool)
	for a := range int32(adapters) {
		got := rt.Policy.Route(router.Request{Adapter: a}, v).Worker
		if home[a] != 3 && got != home[a] {
			t.Errorf("adapter %d moved from %d to %d, though only worker 3 is out", a, home[a], got)
		}
		if home[a] == 3 {
			landed[got] = true
		}
	}
	if len(landed) < 4 || landed[3] {
		t.Errorf("adapters of worker 3 went to %v, expected several others", landed)
	}
	// One worker more takes adapters and moves no others.
	env.Workers = append(env.Workers, env.Workers[0])
	for w, list := range routertest.New(t, "hash", env).Placement {
		for _, a := range list {
			if w != home[a] && w != workers {
				t.Errorf("adapter %d moved from %d to %d when worker %d came", a, home[a], w, workers)
			}
		}
	}
}

func TestHashGoesByNameAndSeed(t *testing.T) {
	env := routertest.Env(5, 20)
	homes := func(env router.Env) map[string]int {
		m := make(map[string]int)
		for w, list := range routertest.New(t, "hash", env).Placement {
			for _, a := range list {
				m[env.Adapters[a].Name] = w
			}
		}
		return m
	}
	before := homes(env)
	reversed := env
	reversed.Adapters = slices.Clone(env.Adapters)
	slices.Reverse(reversed.Adapters)
	seeded := env
	seeded.Seed = 2
	other := homes(seeded)
	same := 0
	for name, w := range homes(reversed) {
		if w != before[name] {
			t.Errorf("%s moved from %d to %d when the list was reversed", name, before[name], w)
		}
		if other[name] == w {
			same++
		}
	}
	if same == len(before) {
		t.Error("another seed gives the same placement")
	}
}

func TestBoundedHash(t *testing.T) {
	env := routertest.Env(4, 1)
	h := newHRW(env)
	o := order(h, 0)
	for _, c := range []struct {
		name  string
		loads []int // in hash order; -1: down
		place int   // in hash order
	}{
		{"idle", []int{0, 0, 0, 0}, 0},
		{"at the bound", []int{6, 4, 4, 2}, 0}, // mean 4, bound 6
		{"above the bound", []int{7, 4, 4, 1}, 1},
		{"two above", []int{8, 8, 0, 0}, 2},
		{"first is down", []int{-1, 5, 5, 5}, 1},
		{"down workers do not count for the mean", []int{6, -1, 4, 2}, 0},
		{"first request of an idle cluster spreads the next", []int{1, 0, 0, 0}, 1},
		{"none", []int{-1, -1, -1, -1}, router.None},
	} {
		v := routertest.View(env)
		for i, load := range c.loads {
			v.Workers[o[i]].Up = load >= 0
			v.Workers[o[i]].Running = max(load, 0) / 2
			v.Workers[o[i]].Queued = max(load, 0) - max(load, 0)/2
		}
		want := c.place
		if want != router.None {
			want = o[want]
		}
		routertest.Equal(t, routertest.Route(routertest.New(t, "bounded-hash", env).Policy, v, 0, 2), []int{want, want},
			c.name)
	}
}

func TestBoundedHashBaseModelIsLeastLoaded(t *testing.T) {
	env := routertest.Env(3, 1)
	v := routertest.View(env)
	routertest.SetRunning(v, 3, 1, 2)
	routertest.Equal(t, routertest.Route(routertest.New(t, "bounded-hash", env).Policy, v, -1, 2), []int{1, 1},
		"base model")
}

func TestBoundedHashBoundsLoad(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		env := routertest.Env(rapid.IntRange(1, 8).Draw(t, "workers"), 3)
		env.Seed = rapid.Uint64().Draw(t, "seed")
		p := routertest.New(t, "bounded-hash:c=1.25", env).Policy
		v := routertest.View(env)
		rng := rand.New(rand.NewPCG(env.Seed, 7))
		for n := range 200 {
			// Skewed on purpose: most requests want adapter 0.
			a := int32(max(rng.IntN(6)-3, 0))
			w := p.Route(router.Request{Adapter: a}, v).Worker
			v.Workers[w].Running++
			if limit := 1.25*float64(n)/float64(len(env.Workers)) + 1; float64(v.Workers[w].Running) > limit {
				t.Fatalf("request %d: worker %d has %d requests, bound %g", n, w, v.Workers[w].Running, limit)
			}
		}
	})
}

func TestHashNamesDiffer(t *testing.T) {
	seen := make(map[uint64]string)
	for _, a := range trace.Names(100000, nil) {
		h := hashName(a)
		if other, ok := seen[h]; ok {
			t.Fatalf("%s and %s have the same hash", a.Name, other)
		}
		seen[h] = a.Name
	}
}
