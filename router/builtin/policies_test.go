package builtin

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"lorasim/router"
	"lorasim/router/routertest"
	"lorasim/trace"
)

func TestSpecsCoverEveryPolicy(t *testing.T) {
	for _, d := range router.List() {
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
func indexOf(v *router.View) *router.Index {
	x := router.NewIndex(len(v.Workers), len(v.Adapters))
	for j := range v.Workers {
		for k, a := range v.Workers[j].Adapters {
			x.Set(j, int32(k), a)
		}
	}
	return x
}

func checkPolicy(t *rapid.T, spec string) {
	env := routertest.Env(rapid.IntRange(1, 6).Draw(t, "workers"), rapid.IntRange(1, 5).Draw(t, "adapters"))
	env.Seed = rapid.Uint64().Draw(t, "seed")
	p, twin := routertest.New(t, spec, env).Policy, routertest.New(t, spec, env).Policy
	v := routertest.View(env)
	indexed := rapid.Bool().Draw(t, "with an index")
	texts := []*trace.Text{nil, {ID: 1}, {ID: 2}}
	texts = append(texts, &trace.Text{ID: 3, Parent: texts[1], Start: 300})
	for id := range int64(8) {
		v.Now += rapid.Float64Range(0, 5).Draw(t, "dt")
		routertest.DrawWorkers(t, v)
		if v.Index = nil; indexed {
			v.Index = indexOf(v)
		}
		r := router.Request{
			ID:      id,
			Adapter: int32(rapid.IntRange(-1, len(env.Adapters)-1).Draw(t, "adapter")),
			Prompt:  int32(rapid.IntRange(1, 4000).Draw(t, "prompt")),
			MaxNew:  int32(rapid.IntRange(0, 1000).Draw(t, "max new")),
		}
		if r.Text = rapid.SampledFrom(texts).Draw(t, "text"); r.Text != nil {
			r.Known = rapid.Int32Range(1, r.Prompt).Draw(t, "known")
		}
		before := routertest.CloneView(v)
		w := p.Route(r, v).Worker
		if again := twin.Route(r, v).Worker; again != w {
			t.Fatalf("same seed and view, but %d and %d", w, again)
		}
		if !reflect.DeepEqual(before, v) { // cmp.Diff is slow
			t.Fatalf("the view changed: %s", cmp.Diff(before, v, cmpopts.IgnoreUnexported(router.Worker{})))
		}
		if w == router.None {
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
			env := routertest.Env(size[0], size[1])
			rt := routertest.New(t, spec, env)
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
				if w := rt.Policy.Route(router.Request{Adapter: a}, routertest.View(env)).Worker; !homes[w] {
					t.Errorf("%s: adapter %d goes to worker %d and lives on %v", spec, a, w, homes)
				}
			}
		}
	}
}
