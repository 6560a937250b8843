package router

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"lorasim/trace"
)

// drawWorkers gives every worker an arbitrary state, consistent or not.
func drawWorkers(t *rapid.T, v *View) {
	small := rapid.IntRange(0, 20)
	for i := range v.Workers {
		w := &v.Workers[i]
		w.Up = rapid.IntRange(0, 3).Draw(t, "up") > 0
		w.Draining = rapid.IntRange(0, 5).Draw(t, "draining") == 0
		w.Running, w.Queued = small.Draw(t, "running"), small.Draw(t, "queued")
		w.Tokens = rapid.Int64Range(0, 1<<40).Draw(t, "tokens")
		w.QueuedToks = rapid.Int64Range(0, 5000).Draw(t, "queued tokens")
		w.MaxRank = rapid.SampledFrom([]int{0, 8, 64}).Draw(t, "rank")
		w.KVUsed = rapid.Int64Range(0, w.KVCapacity).Draw(t, "kv")
		w.SlotsUsed = rapid.IntRange(0, w.Slots).Draw(t, "slots")
		w.SlotsIdle = rapid.IntRange(0, w.SlotsUsed).Draw(t, "idle slots")
		w.ActiveLoras, w.WaitingLoras, w.FlightLoras = 0, 0, 0
		for a := range w.Adapters {
			w.Adapters[a] = AdapterState{
				Tier:    Tier(rapid.IntRange(0, 3).Draw(t, "tier")),
				Loading: rapid.Bool().Draw(t, "loading"),
			}
			w.Count(int32(a), int32(rapid.IntRange(0, 2).Draw(t, "adapter running")),
				int32(rapid.IntRange(0, 2).Draw(t, "adapter queued")))
		}
	}
}

func TestSpecsCoverEveryPolicy(t *testing.T) {
	for _, d := range List() {
		found := false
		for _, s := range specs() {
			name, _, _ := strings.Cut(s, ":")
			found = found || name == d.Name
		}
		if !found {
			t.Errorf("no test spec of policy %s", d.Name)
		}
	}
}

// Every policy picks usable workers, None only if there is none, decides the
// same for the same seed and views, and leaves the view alone.
func TestEveryPolicy(t *testing.T) {
	for _, spec := range specs() {
		t.Run(spec, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { checkPolicy(t, spec) })
		})
	}
}

// indexOf returns the index of a view.
func indexOf(v *View) *Index {
	x := NewIndex(len(v.Workers), len(v.Adapters))
	for j := range v.Workers {
		for k, a := range v.Workers[j].Adapters {
			x.Set(j, int32(k), a)
		}
	}
	return x
}

func checkPolicy(t *rapid.T, spec string) {
	env := testEnv(rapid.IntRange(1, 6).Draw(t, "workers"), rapid.IntRange(1, 5).Draw(t, "adapters"))
	env.Seed = rapid.Uint64().Draw(t, "seed")
	p, twin := mustNew(t, spec, env).Policy, mustNew(t, spec, env).Policy
	v := testView(env)
	indexed := rapid.Bool().Draw(t, "with an index")
	texts := []*trace.Text{nil, {ID: 1}, {ID: 2}}
	texts = append(texts, &trace.Text{ID: 3, Parent: texts[1], Start: 300})
	for id := range int64(8) {
		v.Now += rapid.Float64Range(0, 5).Draw(t, "dt")
		drawWorkers(t, v)
		if v.Index = nil; indexed {
			v.Index = indexOf(v)
		}
		r := Request{
			ID:      id,
			Adapter: int32(rapid.IntRange(-1, len(env.Adapters)-1).Draw(t, "adapter")),
			Prompt:  int32(rapid.IntRange(1, 4000).Draw(t, "prompt")),
			MaxNew:  int32(rapid.IntRange(0, 1000).Draw(t, "max new")),
		}
		if r.Text = rapid.SampledFrom(texts).Draw(t, "text"); r.Text != nil {
			r.Known = rapid.Int32Range(1, r.Prompt).Draw(t, "known")
		}
		before := cloneView(v)
		w := p.Route(r, v).Worker
		if again := twin.Route(r, v).Worker; again != w {
			t.Fatalf("same seed and view, but %d and %d", w, again)
		}
		if !reflect.DeepEqual(before, v) { // cmp.Diff is slow
			t.Fatalf("the view changed: %s", cmp.Diff(before, v))
		}
		if w == None {
			for i := range v.Workers {
				if v.Workers[i].Usable() {
					t.Fatalf("None, but worker %d is usable", i)
				}
			}
			continue
		}
		if w < 0 || w >= len(v.Workers) || !v.Workers[w].Usable() {
			t.Fatalf("sent to worker %d, which is not usable", w)
		}
	}
}

// A placement holds every adapter, and a policy that has one sends the first
// request of an adapter, to an idle cluster, where the adapter is.
func TestPlacementMatchesRouting(t *testing.T) {
	for _, spec := range specs() {
		for _, size := range [][2]int{{1, 1}, {3, 8}, {8, 3}} {
			env := testEnv(size[0], size[1])
			rt := mustNew(t, spec, env)
			if rt.Placement == nil {
				continue
			}
			for a := range int32(size[1]) {
				homes := make(map[int]bool)
				for w, list := range rt.Placement {
					for _, b := range list {
						if b == a {
							homes[w] = true
						}
					}
				}
				if w := rt.Policy.Route(Request{Adapter: a}, testView(env)).Worker; !homes[w] {
					t.Errorf("%s: adapter %d goes to worker %d and lives on %v", spec, a, w, homes)
				}
			}
		}
	}
}

// benchView is a cluster in the middle of a run: differing loads, two adapters
// in the slots of each worker.
func benchView(env Env) *View {
	v := testView(env)
	rng := newRand(Env{Seed: 9})
	for i := range v.Workers {
		w := &v.Workers[i]
		w.Running, w.Queued = rng.IntN(8), rng.IntN(4)
		w.Tokens, w.QueuedToks, w.KVUsed = rng.Int64N(1e5), rng.Int64N(4000), rng.Int64N(9000)
		w.MaxRank, w.SlotsUsed = 8<<rng.IntN(4), 2
		for range w.Slots {
			w.Adapters[rng.IntN(len(w.Adapters))].Tier = GPU
		}
	}
	return v
}

func TestRoutesDoNotAllocate(t *testing.T) {
	env := testEnv(16, 64)
	for _, spec := range specs() {
		p, v := mustNew(t, spec, env).Policy, benchView(env)
		id := int64(0)
		step := func() {
			id++
			p.Route(Request{ID: id, Adapter: int32(id%65) - 1, Prompt: 100, MaxNew: 100}, v)
		}
		for range 1000 {
			step() // hash orders are worked out on first use
		}
		if n := testing.AllocsPerRun(500, step); n != 0 {
			t.Errorf("%s: %g allocations per request", spec, n)
		}
	}
}

func BenchmarkRoute(b *testing.B) {
	for _, spec := range specs() {
		if strings.Contains(spec, ":") && !strings.HasPrefix(spec, "explicit:map=rest") &&
			spec != "affinity:variant=residency,ties=first" && spec != "least-loaded:ties=first" {
			continue
		}
		for _, workers := range []int{2, 16, 256} {
			b.Run(fmt.Sprintf("%s/workers=%d", strings.ReplaceAll(spec, "=", "-"), workers), func(b *testing.B) {
				env := testEnv(workers, 64)
				p, v := mustNew(b, spec, env).Policy, benchView(env)
				b.ReportAllocs()
				id := int64(0)
				for b.Loop() {
					id++
					p.Route(Request{ID: id, Adapter: int32(id % 64), Prompt: 100, MaxNew: 100}, v)
				}
			})
		}
	}
}

func BenchmarkStale(b *testing.B) {
	env := testEnv(256, 64)
	live := benchView(env)
	s := NewStale(1)
	b.ReportAllocs()
	for b.Loop() {
		live.Now += 0.001
		s.Update(live)
	}
}
