package policies

import (
	"testing"

	"lorasim/router"
	"lorasim/router/routertest"
	"lorasim/trace"
)

// rank-group puts equal demand of like rank together: with two workers the low
// ranks go to one and the high ones to the other.
func TestRankGroups(t *testing.T) {
	env := router.Env{Workers: router.Alike(2, router.Spec{Cost: routertest.Cost{}, MaxRunning: 8, Slots: 4}),
		Adapters: trace.Names(4, []int{8, 64})}
	rt := routertest.New(t, "rank-group", env)
	for j, held := range rt.Policy.(*rankGroup).Held() {
		low, high := 0, 0
		for _, k := range held {
			if env.Adapters[k].Rank == 8 {
				low++
			} else {
				high++
			}
		}
		if max(low, high) != 2 || min(low, high) > 1 {
			t.Errorf("worker %d holds %d adapters of rank 8 and %d of rank 64", j, low, high)
		}
	}
}

// rank-group gives the fast of two workers three quarters of an even demand.
func TestRankGroupMindsSpeed(t *testing.T) {
	env := routertest.Unequal(8)
	env.Adapters = trace.Names(8, []int{16})
	for fast := range 2 {
		held := routertest.New(t, "rank-group", env).Policy.(*rankGroup).Held()
		if len(held[fast]) != 6 || len(held[1-fast]) != 2 {
			t.Errorf("%d adapters on the fast worker and %d on the slow one, expected 6 and 2", len(held[fast]),
				len(held[1-fast]))
		}
		env.Workers = routertest.Mirror(env.Workers)
	}
}
