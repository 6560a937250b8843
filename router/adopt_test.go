package router

import (
	"reflect"
	"testing"

	"lorasim/trace"
)

// A copy of a policy routes as the policy itself does from then on, with a clock that begins at 0. The policy stays as
// it is.
func TestCopiesGoOnAlike(t *testing.T) {
	for _, spec := range []string{"plan-and-route", "route-only", "min-cost-flow", "rank-group",
		"k-shard:high=0.1,low=0.01", "round-robin"} {
		env := testEnv(4, 12)
		for j := range env.Workers {
			env.Workers[j].FrontEnd, env.Workers[j].FirstUse = 0.01, 0.3
		}
		const zero = 64
		p, v := mustNew(t, spec, env), testView(env)
		step := func(rt *Router, v *View, i int64) int {
			for j := range v.Workers {
				v.Workers[j].Running = int(i*7+int64(j)*5) % 9
			}
			if rt.Planner != nil && i%20 == 0 {
				if plan := rt.Planner.Begin(&PlannerInput{View: v}).Now(); plan != nil {
					rt.Planner.Applied(plan, nil)
				}
			}
			w := rt.Policy.Route(Request{ID: i, Adapter: int32(i * i % 12), Prompt: int32(100 + i%300), MaxNew: 90,
				Expected: 50}, v)
			if o, ok := rt.Policy.(CompletionObserver); ok {
				o.Finished(Finished{Worker: int32(w), Adapter: int32(i * i % 12), Output: 40, Exec: 1 + float64(i%3)})
			}
			return w
		}
		for i := range int64(201) {
			v.Now = zero * float64(i) / 256
			step(p, v, i)
		}
		copyOf := func(now float64) *Router {
			q := mustNew(t, spec, env)
			if !q.Policy.(copier).copyFrom(p.Policy, now) {
				t.Fatalf("%s cannot copy itself", spec)
			}
			return q
		}
		run := func(rt *Router, from float64) (workers []int) {
			v := testView(env)
			for i := range int64(200) {
				v.Now = from + zero*float64(i)/256
				workers = append(workers, step(rt, v, 200+i))
			}
			return workers
		}
		shifted, same := run(copyOf(zero), 0), run(copyOf(0), zero)
		if own := run(p, zero); !reflect.DeepEqual(own, same) || !reflect.DeepEqual(own, shifted) {
			t.Errorf("%s: the policy routes to %v, copies to %v and, with another clock, to %v", spec, own, same,
				shifted)
		}
		if fresh := run(mustNew(t, spec, env), 0); reflect.DeepEqual(fresh, shifted) {
			t.Errorf("%s: a fresh one routes alike: the state does not matter here", spec)
		}
		if other := mustNew(t, "static", env); mustNew(t, spec, env).Policy.(copier).copyFrom(other.Policy, 0) {
			t.Errorf("%s copies static", spec)
		}
	}
}

// A policy that takes over from one that is not used any more gets its prefix index as it is, if it is of its kind.
func TestInheritPrefixes(t *testing.T) {
	env := testEnv(3, 4)
	index := func(rt *Router) *prefixIndex { return *rt.Policy.(indexed).prefixes() }
	for _, c := range []struct {
		next, old string
		inherits  bool
	}{
		{"prefix-scorer:prefix=5", "prefix-scorer", true},
		{"prefix-scorer", "kv-router", false},
		{"cache-aware:threshold=0.5", "cache-aware", true},
		{"cache-aware:lora=true", "cache-aware", false},
	} {
		old, next := mustNew(t, c.old, env), mustNew(t, c.next, env)
		m := &recall{window: newWindow(64), used: [][]uint64{{0}, {0}, {0}}}
		replace(next.Policy, old.Policy, m, testView(env), nil, 0)
		if got := index(next) == index(old); got != c.inherits {
			t.Errorf("%s after %s: inherits is %v", c.next, c.old, got)
		}
		again := mustNew(t, c.next, env)
		if takeUp(again.Policy, old.Policy, m, testView(env)); index(again) == index(old) {
			t.Errorf("%s shares the index of %s, which goes on", c.next, c.old)
		}
	}
}

// Who takes over from a policy without accounts knows which adapters front ends have met.
func TestAdoptKnowsFirstUses(t *testing.T) {
	env := testEnv(2, 70)
	for j := range env.Workers {
		env.Workers[j].FirstUse = 0.3
	}
	w := newWindow(64)
	w.sent(&Request{ID: 1, Adapter: 69, Prompt: 10}, 1, 0)
	m := &recall{window: w, used: [][]uint64{{0, 0}, {1, 1 << 5}}}
	next := mustNew(t, "plan-and-route", env).Policy
	takeUp(next, mustNew(t, "static", env).Policy, m, testView(env))
	p := next.(*planAndRoute)
	for _, c := range []struct {
		adapter int32
		worker  int
		first   bool
	}{{0, 1, false}, {69, 1, false}, {69, 0, true}, {1, 1, true}} {
		if got := p.firstUse(c.adapter, c.worker); got != c.first {
			t.Errorf("adapter %d on worker %d: first use is %v", c.adapter, c.worker, got)
		}
	}
}

// An index that was made ready beside routing has what was sent until then; what came later is added.
func TestReplaceWithAReadyIndex(t *testing.T) {
	env, w := testEnv(2, 1), newWindow(64)
	v := testView(env)
	texts := []*trace.Text{{ID: 1}, {ID: 2}, {ID: 3}}
	for i, text := range texts {
		w.sent(&Request{ID: int64(i), Prompt: 500, Text: text, Known: 400}, 1, float64(i))
	}
	ready := *mustNew(t, "cache-aware", env).Policy.(indexed).prefixes()
	past := w.snapshot(0)
	past.n, past.kept = 2, 2
	ready.adopt(past, v, past.keptFrom())
	next := mustNew(t, "cache-aware", env).Policy
	replace(next, mustNew(t, "static", env).Policy, &recall{window: w}, v, ready, 2)
	index := *next.(indexed).prefixes()
	if index != ready {
		t.Error("the index is not the one made ready")
	}
	for i, text := range texts {
		r := Request{Prompt: 500, Text: text, Known: 400}
		if got := index.match(&r, v, 1); got != 400 {
			t.Errorf("text %d: %d tokens are believed to be kept, expected 400", i, got)
		}
	}
	if got, want := index.size(1), int64(3*500); got != want {
		t.Errorf("%d tokens are counted, expected %d: each request once", got, want)
	}
}
