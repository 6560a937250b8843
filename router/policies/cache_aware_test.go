package policies

import (
	"testing"

	"lorasim/router"
	"lorasim/router/routertest"
	"lorasim/trace"
)

func TestCacheAware(t *testing.T) {
	system := &trace.Text{ID: 1}
	a, b := &trace.Text{ID: 2, Parent: system, Start: 100}, &trace.Text{ID: 3, Parent: system, Start: 100}
	texts := func(x ...*trace.Text) []*trace.Text { return x }
	for _, c := range []struct {
		name, spec string
		load       []int
		texts      []*trace.Text
		tokens     []int32
		want       []int
	}{
		// the first of the least loaded; b has 100 of 400 in common, which is not enough
		{"cold", "cache-aware", []int{1, 0, 0}, texts(a, b), []int32{400, 400}, []int{1, 1}},
		{"the match wins over load", "cache-aware", []int{5, 9, 0}, texts(a, a, b), []int32{400, 800, 300},
			[]int{2, 2, 2}},
		{"at the threshold is not above it", "cache-aware:threshold=0.25,cold=smallest-tree", []int{0, 0, 0},
			texts(a, b), []int32{400, 400}, []int{0, 1}},
		{"above the threshold", "cache-aware:threshold=0.25,cold=smallest-tree", []int{0, 0, 0}, texts(a, b),
			[]int32{400, 399}, []int{0, 0}},
		{"smallest tree, unknown prompts count", "cache-aware:cold=smallest-tree", []int{0, 0, 0},
			texts(nil, a, b, nil), []int32{50, 400, 999, 1}, []int{0, 1, 2, 0}},
		{"equal matches go by load", "cache-aware:cold=smallest-tree,threshold=0.9", []int{2, 1, 1},
			texts(a, b, system, system), []int32{200, 200, 200, 100}, []int{0, 1, 2, 1}},
		// 400 - 335 = 65 > 64, but 400 is not more than 1.5 x 335
		{"absolutely unequal", "cache-aware", []int{400, 335, 335}, texts(a, a), []int32{10, 10}, []int{1, 1}},
		{"capacity", "cache-aware:capacity=400", []int{0, 0, 0}, texts(a, b, nil, a), []int32{400, 400, 400, 400},
			[]int{0, 0, 0, 0}},
	} {
		v := routertest.View(routertest.Env(3, 4))
		routertest.SetRunning(v, c.load...)
		routertest.Equal(t, sends(t, c.spec, v, 0, c.texts, c.tokens...), c.want, c.name)
	}
}

// A tree without the adapter in its key takes prompts of other adapters for the
// same; loads that differ too much count for more than a match.
func TestCacheAwareAdaptersAndBalance(t *testing.T) {
	x := &trace.Text{ID: 1}
	for spec, want := range map[string][]int{"cache-aware": {0, 0, 1, 0}, "cache-aware:lora=true": {0, 1, 1, 1}} {
		v := routertest.View(routertest.Env(2, 4))
		p := routertest.New(t, spec, routertest.Env(2, 4)).Policy
		send := func(adapter int32) int {
			return p.Route(router.Request{Adapter: adapter, Prompt: 100, Text: x, Known: 100}, v).Worker
		}
		got := []int{send(0)}
		routertest.SetRunning(v, 1, 0)
		got = append(got, send(1))
		routertest.SetRunning(v, 65, 0) // one more than abs
		got = append(got, send(0))
		routertest.SetRunning(v, 64, 0)
		got = append(got, send(1))
		if want[3] == 0 { // both workers match now: by load
			want[3] = 1
		}
		routertest.Equal(t, got, want, spec)
	}
}

// A prefix index knows after a join what was sent before it, but for what was sent to the slot of the new worker.
func TestSucceedingPrefixIndex(t *testing.T) {
	env := routertest.Env(3, 2)
	h, v := router.NewHistory(64), routertest.View(env)
	old := routertest.New(t, "cache-aware", env)
	texts := []*trace.Text{{ID: 1}, {ID: 2}}
	for i, w := range []int{1, 2} {
		h.Sent(router.Request{ID: int64(i), Adapter: 0, Prompt: 500, MaxNew: 9, Text: texts[i], Known: 400}, w, 0)
	}
	next := routertest.New(t, "cache-aware", env)
	next.Succeed(old, h, v, 2)
	index := next.Policy.(*cacheAware).index
	for i, want := range []int32{400, 0} {
		r := router.Request{Adapter: 0, Prompt: 500, Text: texts[i], Known: 400}
		if got := index.Match(&r, v, i+1); got != want {
			t.Errorf("worker %d is believed to keep %d tokens, expected %d", i+1, got, want)
		}
	}
}
