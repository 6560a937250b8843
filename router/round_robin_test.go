package router

import "testing"

func TestRoundRobin(t *testing.T) {
	env := testEnv(4, 1)
	v := testView(env)
	p := mustNew(t, "round-robin", env).Policy
	equal(t, route(p, v, 0, 6), []int{0, 1, 2, 3, 0, 1}, "all usable")
	v.Workers[3].Draining = true
	equal(t, route(p, v, -1, 4), []int{2, 0, 1, 2}, "worker 3 draining")
	setRunning(v, -1, -1, -1, 0)
	equal(t, route(p, v, 0, 2), []int{None, None}, "none usable")
	v.Workers[3].Draining = false
	equal(t, route(p, v, 0, 2), []int{3, 3}, "only worker 3")
}
