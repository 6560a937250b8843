package builtin

import (
	"testing"

	"lorasim/router"
	"lorasim/router/routertest"
)

// Being asked changes no policy: it goes on as one that never was.
func TestPreviewLeavesNoTrace(t *testing.T) {
	for _, spec := range specs() {
		env := routertest.Env(3, 4)
		asked, other := routertest.New(t, spec, env), routertest.New(t, spec, env)
		v := routertest.View(env)
		routertest.SetRunning(v, 2, 1, 3)
		same := 0
		for i := range int64(100) {
			r := router.Request{ID: i, Adapter: int32(i % 4), Prompt: 100, MaxNew: 100, Expected: 50}
			would := asked.Policy.Preview(r, v)
			is := asked.Policy.Route(r, v).Worker
			if want := other.Policy.Route(r, v).Worker; is != want {
				t.Fatalf("%s: request %d goes to worker %d, to %d where nobody had asked", spec, i, is, want)
			}
			if would == is || would == router.None {
				same++
			}
			v.Workers[is].Queued++
			v.Workers[is].Tokens += 100 + i
			v.Workers[is].Count(r.Adapter, 0, 1)
		}
		if same < 60 { // it cannot know what is drawn among equals
			t.Errorf("%s: %d of 100 requests go where it said", spec, same)
		}
	}
}
