package builtin

import (
	"testing"

	"pgregory.net/rapid"

	"lorasim/router"
	"lorasim/router/routertest"
)

// Which worker is called the first does not matter to policies that price workers.
func TestOrderOfWorkersDoesNotMatter(t *testing.T) {
	for _, spec := range []string{"rank-aware", "rank-aware:slo=30,avg-output=100", "period_mig:spill=0",
		"affinity:ties=first", "llumnix"} {
		rapid.Check(t, func(t *rapid.T) {
			env := routertest.Unequal(4)
			v := routertest.View(env)
			routertest.DrawWorkers(t, v)
			for j := range v.Workers { // nothing ties
				v.Workers[j].Up, v.Workers[j].Draining = true, false
				v.Workers[j].KVUsed += int64(j)
				v.Workers[j].KVCapacity += int64(1001 * j)
			}
			if v.Workers[0].Load() == v.Workers[1].Load() { // rank-aware counts where no worker is fast enough
				v.Workers[1].Queued++
			}
			turned := env
			turned.Workers = routertest.Mirror(env.Workers)
			w := &router.View{Adapters: v.Adapters, Workers: routertest.Mirror(v.Workers)}
			r := router.Request{Adapter: rapid.Int32Range(-1, 3).Draw(t, "adapter"), Prompt: 300, MaxNew: 500}
			a, b := routertest.New(t, spec, env).Policy.Route(r, v).Worker,
				routertest.New(t, spec, turned).Policy.Route(r, w).Worker
			if a != 1-b {
				t.Fatalf("%s: worker %d, and in the other order %d", spec, a, b)
			}
		})
	}
}

// The last in a list of profiles counts as much as the first: an idle fast worker
// is preferred to an idle slow one, wherever it stands.
func TestFastWorkerIsPreferred(t *testing.T) {
	env := routertest.Unequal(2)
	for fast := range 2 {
		for _, spec := range []string{"period_mig:spill=0", "rank-aware:slo=none"} {
			v := routertest.View(env)
			r := router.Request{Adapter: 0, Prompt: 300, MaxNew: 100}
			if w := routertest.New(t, spec, env).Policy.Route(r, v).Worker; w != fast {
				t.Errorf("%s: worker %d of an idle cluster, expected the fast one, %d", spec, w, fast)
			}
		}
		env.Workers = routertest.Mirror(env.Workers)
	}
}
