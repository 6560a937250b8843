package policies

import (
	"testing"

	"lorasim/router"
	"lorasim/router/routertest"
)

func TestRoundRobin(t *testing.T) {
	env := routertest.Env(4, 1)
	v := routertest.View(env)
	p := routertest.New(t, "round-robin", env).Policy
	routertest.Equal(t, routertest.Route(p, v, 0, 6), []int{0, 1, 2, 3, 0, 1}, "all usable")
	v.Workers[3].Draining = true
	routertest.Equal(t, routertest.Route(p, v, -1, 4), []int{2, 0, 1, 2}, "worker 3 draining")
	routertest.SetRunning(v, -1, -1, -1, 0)
	routertest.Equal(t, routertest.Route(p, v, 0, 2), []int{router.None, router.None}, "none usable")
	v.Workers[3].Draining = false
	routertest.Equal(t, routertest.Route(p, v, 0, 2), []int{3, 3}, "only worker 3")
}
