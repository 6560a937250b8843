package policies

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"lorasim/router"
	"lorasim/router/routertest"
)

func TestLeast(t *testing.T) {
	for _, c := range []struct {
		spec    string
		workers []router.Worker
		want    int
	}{
		{"least-loaded:ties=first", []router.Worker{{Running: 3}, {Running: 1, Queued: 1}, {Running: 2}}, 1},
		{"least-loaded:ties=first", []router.Worker{{Running: 3}, {Queued: 4}, {Running: 2, Queued: 2}}, 0},
		{"least-loaded:ties=first", []router.Worker{{Tokens: 9}, {Running: 1}, {Queued: 1}}, 0},
		{"any-worker:ties=first", []router.Worker{{Running: 3}, {Queued: 2}, {Running: 2}}, 1},
		{"least-tokens:ties=first", []router.Worker{{Tokens: 30}, {Tokens: 10, Running: 9}, {Tokens: 20}}, 1},
		{"weighted-queue:ties=first", []router.Worker{{Queued: 1}, {Running: 4}, {Running: 3}}, 2},
		{"weighted-queue:ties=first", []router.Worker{{Queued: 1}, {Running: 5}, {Running: 6}}, 0},
		{"weighted-queue:ties=first", []router.Worker{{Queued: 1}, {Running: 4}, {Running: 6}}, 0},
		{"weighted-queue:weight=1,ties=first", []router.Worker{{Queued: 2}, {Running: 4}, {Running: 1}}, 2},
		{"weighted-queue:weight=0,ties=first", []router.Worker{{Running: 1}, {Queued: 9}, {Queued: 1}}, 1},
	} {
		env := routertest.Env(3, 1)
		v := &router.View{Workers: c.workers, Adapters: env.Adapters}
		for i := range v.Workers {
			v.Workers[i].Up = true
		}
		p := routertest.New(t, c.spec, env).Policy
		routertest.Equal(t, routertest.Route(p, v, 0, 1), []int{c.want}, c.spec)
		v.Workers[c.want].Draining = true
		if got := routertest.Route(p, v, 0, 1)[0]; got == c.want || got == router.None {
			t.Errorf("%s: draining worker %d, got %d", c.spec, c.want, got)
		}
	}
}

func TestLeastTiesAreUniform(t *testing.T) {
	env := routertest.Env(6, 1)
	v := routertest.View(env)
	routertest.SetRunning(v, 2, 5, 2, -1, 2, 2)
	for _, spec := range []string{"least-loaded", "weighted-queue"} {
		counts := routertest.Count(routertest.Route(routertest.New(t, spec, env).Policy, v, 0, 40000), 6)
		routertest.Uniform(t, []int{counts[0], counts[2], counts[4], counts[5]})
	}
}

// The fast scan against sorting all usable workers.
func TestLeastAgainstSort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		env := routertest.Env(rapid.IntRange(1, 12).Draw(t, "workers"), 1)
		v := routertest.View(env)
		var usable []int
		for i := range v.Workers {
			w := &v.Workers[i]
			w.Up = rapid.Bool().Draw(t, "up")
			w.Running = rapid.IntRange(0, 3).Draw(t, "running")
			w.Queued = rapid.IntRange(0, 3).Draw(t, "queued")
			if w.Up {
				usable = append(usable, i)
			}
		}
		load := func(i int) int { return v.Workers[i].Running + v.Workers[i].Queued }
		slices.SortStableFunc(usable, func(a, b int) int { return load(a) - load(b) })
		first := routertest.New(t, "least-loaded:ties=first", env).Policy.Route(router.Request{}, v).Worker
		seeded := routertest.New(t, "least-loaded", env).Policy.Route(router.Request{}, v).Worker
		if len(usable) == 0 {
			if first != router.None || seeded != router.None {
				t.Fatalf("no usable worker, got %d and %d", first, seeded)
			}
			return
		}
		if first != usable[0] {
			t.Fatalf("got %d, want %d", first, usable[0])
		}
		if !slices.Contains(usable, seeded) || load(seeded) != load(first) {
			t.Fatalf("got %d, which is not among the least loaded", seeded)
		}
	})
}
