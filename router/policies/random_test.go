package policies

import (
	"testing"

	"lorasim/router"
	"lorasim/router/routertest"
)

func TestRandomIsUniformOverUsable(t *testing.T) {
	env := routertest.Env(6, 1)
	for _, c := range []struct {
		name    string
		running []int // -1: down
		usable  []int
	}{
		{"all", []int{0, 0, 0, 0, 0, 0}, []int{0, 1, 2, 3, 4, 5}},
		{"some", []int{-1, 9, -1, 0, 5, -1}, []int{1, 3, 4}},
		{"one", []int{-1, -1, -1, -1, 5, -1}, []int{4}},
	} {
		v := routertest.View(env)
		routertest.SetRunning(v, c.running...)
		counts := routertest.Count(routertest.Route(routertest.New(t, "random", env).Policy, v, 0, 60000), 6)
		sum := 0
		used := make([]int, len(c.usable))
		for i, w := range c.usable {
			used[i] = counts[w]
			sum += counts[w]
		}
		if sum != 60000 {
			t.Errorf("%s: %d of 60000 requests went to usable workers", c.name, sum)
		}
		routertest.Uniform(t, used)
	}
}

// With two different choices of n workers, the i-th least loaded gets
// (n-i)/C(n,2) of the requests: it wins against each worker after it.
func TestP2CShares(t *testing.T) {
	const n, requests = 5, 100000
	env := routertest.Env(n, 1)
	v := routertest.View(env)
	routertest.SetRunning(v, 4, 0, 3, 1, 2) // all different
	counts := routertest.Count(routertest.Route(routertest.New(t, "p2c", env).Policy, v, 0, requests), n)
	for w, c := range counts {
		place := v.Workers[w].Running + 1
		want := requests * float64(n-place) / 10
		if d := float64(c) - want; d > 600 || d < -600 { // 4 standard deviations of 40000
			t.Errorf("worker %d got %d requests, expected about %g", w, c, want)
		}
	}
}

func TestP2CTiesAndOutages(t *testing.T) {
	env := routertest.Env(4, 1)
	v := routertest.View(env)
	p := routertest.New(t, "p2c", env).Policy
	routertest.Uniform(t, routertest.Count(routertest.Route(p, v, 0, 40000), 4))
	routertest.SetRunning(v, -1, 5, -1, -1)
	routertest.Equal(t, routertest.Route(p, v, 0, 3), []int{1, 1, 1}, "one usable worker")
	routertest.SetRunning(v, -1, 5, -1, 4)
	routertest.Equal(t, routertest.Route(p, v, 0, 4), []int{3, 3, 3, 3}, "two usable workers are both drawn")
	routertest.SetRunning(v, -1, -1, -1, -1)
	routertest.Equal(t, routertest.Route(p, v, 0, 1), []int{router.None}, "none")
}

// On a view that stays as it is, least-loaded sends everything to one worker,
// p2c at most 2/n to any.
func TestHerding(t *testing.T) {
	const n, requests = 8, 10000
	env := routertest.Env(n, 1)
	live := routertest.View(env)
	routertest.SetRunning(live, 3, 1, 2, 5, 4, 7, 6, 8)
	seen := router.NewStale(1).Update(live)
	largest := func(spec string) int {
		most := 0
		for _, c := range routertest.Count(routertest.Route(routertest.New(t, spec, env).Policy, seen, 0, requests),
			n) {
			most = max(most, c)
		}
		return most
	}
	if got := largest("least-loaded"); got != requests {
		t.Errorf("least-loaded sent at most %d requests to a worker, expected all", got)
	}
	if got := largest("p2c"); got > requests*2/n+200 { // 4.6 standard deviations
		t.Errorf("p2c sent %d of %d requests to one worker", got, requests)
	}
}
