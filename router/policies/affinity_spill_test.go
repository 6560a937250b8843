package policies

import (
	"testing"

	"lorasim/router"
	"lorasim/router/routertest"
)

func TestAffinitySpill(t *testing.T) {
	env := routertest.Env(4, 2)
	type worker struct {
		load, queued int // load < 0: down
		state        router.AdapterState
	}
	on, off := router.AdapterState{Tier: router.GPU}, router.AdapterState{}
	host, loading, queued := router.AdapterState{Tier: router.Host}, router.AdapterState{Loading: true},
		router.AdapterState{Queued: 1}
	for _, c := range []struct {
		name    string
		workers [4]worker
		want    int
	}{
		{"least loaded of those that have it", [4]worker{{9, 0, on}, {5, 4, on}, {0, 0, off}, {6, 0, on}}, 1},
		{"queue at the threshold", [4]worker{{9, 0, on}, {5, 5, on}, {0, 0, off}, {6, 0, on}}, 3},
		{"all queues at the threshold", [4]worker{{9, 5, on}, {5, 5, on}, {7, 7, off}, {6, 5, on}}, 1},
		{"spills to another worker", [4]worker{{9, 5, on}, {8, 5, on}, {3, 3, off}, {6, 5, on}}, 2},
		{"the worker that has it is down", [4]worker{{-1, 0, on}, {5, 0, off}, {3, 0, off}, {6, 0, off}}, 2},
		{"in host memory does not count", [4]worker{{9, 0, host}, {5, 0, off}, {3, 0, off}, {6, 0, off}}, 2},
		{"on its way counts", [4]worker{{9, 0, loading}, {5, 0, off}, {3, 0, off}, {6, 0, off}}, 0},
		{"wanted there counts", [4]worker{{9, 1, queued}, {5, 0, off}, {3, 0, off}, {6, 0, off}}, 0},
		{"all are down", [4]worker{{-1, 0, on}, {-1, 0, on}, {-1, 0, on}, {-1, 0, on}}, router.None},
	} {
		v := routertest.View(env)
		for i, w := range c.workers {
			v.Workers[i].Up = w.load >= 0
			v.Workers[i].Queued = w.queued
			v.Workers[i].Running = max(w.load-w.queued, 0)
			v.Workers[i].Adapters[1] = w.state
		}
		routertest.Equal(t, routertest.Route(routertest.New(t, "affinity-spill", env).Policy, v, 1, 2),
			[]int{c.want, c.want}, c.name)
	}
}

func TestAffinitySpillBaseModelAndThreshold(t *testing.T) {
	env := routertest.Env(3, 1)
	v := routertest.View(env)
	routertest.SetRunning(v, 3, 2, 1)
	v.Workers[0].Adapters[0].Tier = router.GPU
	v.Workers[0].Queued = 1
	routertest.Equal(t, routertest.Route(routertest.New(t, "affinity-spill", env).Policy, v, -1, 1), []int{2},
		"base model")
	routertest.Equal(t, routertest.Route(routertest.New(t, "affinity-spill:threshold=2", env).Policy, v, 0, 1),
		[]int{0}, "below the threshold")
	routertest.Equal(t, routertest.Route(routertest.New(t, "affinity-spill:threshold=1", env).Policy, v, 0, 1),
		[]int{2}, "at the threshold")
}
