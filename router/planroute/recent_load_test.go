package planroute

import (
	"math"
	"testing"

	"lorasim/router"
	"lorasim/router/routertest"
)

// keeping has all workers keep prefixes.
func keeping(env router.Env) router.Env {
	for j := range env.Workers {
		env.Workers[j].PrefixCache = true
	}
	return env
}

// By hand: 5 s of work within the last moment are half of the 10 s that count, so that decoding and the delay of others
// count twice; 10 s later they are 5/e s.
func TestRecentLoadByHand(t *testing.T) {
	env := keeping(routertest.Unequal(1))
	p := routertest.New(t, "route-only:spill=0,replica=0", env).Policy.(*planAndRoute)
	v := routertest.View(env)
	v.Now = 100
	r := router.Request{Adapter: 0, Prompt: 300, MaxNew: 100}
	for j := range v.Workers {
		v.Workers[j].Running, v.Workers[j].ActiveLoras = 3, 1
		v.Workers[j].Adapters[0] = router.AdapterState{Tier: router.GPU, Running: 3}
		total, first := p.price(r, j, v)
		rest := total - p.firstWeight()*first
		p.backlogs[j].recent.add(5, v.Now, loadMemory)
		if busy, same := p.price(r, j, v); same != first || math.Abs(busy-total-rest) > 1e-9 || rest <= 0 {
			t.Errorf("worker %d: price %v, half busy %v (first token %v, then %v), expected %v more",
				j, total, busy, first, same, rest)
		}
		if got := p.backlogs[j].recent.share(v.Now+10, loadMemory); math.Abs(got-0.5/math.E) > 1e-12 {
			t.Errorf("worker %d: share %v after 10 s, expected %v", j, got, 0.5/math.E)
		}
		p.backlogs[j].recent.add(1000, v.Now, loadMemory)
		if got := p.backlogs[j].recent.share(v.Now, loadMemory); got != mostLoad {
			t.Errorf("worker %d: share %v of an overloaded worker, expected %v", j, got, mostLoad)
		}
	}
}

// A request adds its work to the worker that it goes to: its prefill and what it adds to decode steps. In a cluster of
// one kind nothing counts.
func TestRecentLoadOfRequests(t *testing.T) {
	env := keeping(routertest.Unequal(1))
	p := routertest.New(t, "route-only", env).Policy.(*planAndRoute)
	v := routertest.View(env)
	r := router.Request{Adapter: 0, Prompt: 300, MaxNew: 100}
	c := env.Workers[0].Cost
	want := c.Prefill(300) + r.ExpectedOutput()*(c.DecodeStep(1, 1, 300, 0)-c.DecodeStep(1, 0, 0, 0))
	if j := p.Route(r, v).Worker; j != 0 || math.Abs(p.backlogs[0].recent.seconds-want) > 1e-9 || p.later(0, 0) <= 1 {
		t.Errorf("worker %d has %v s of work (factor %v), expected worker 0 with %v s",
			j, p.backlogs[0].recent.seconds, p.later(0, 0), want)
	}
	env.Workers[0].PrefixCache, env.Workers[1].PrefixCache = false, false
	if p = routertest.New(t, "route-only", env).Policy.(*planAndRoute); p.unequal() {
		t.Error("what comes later counts without prefix caches")
	}
	env = keeping(env)
	env.Workers[1] = env.Workers[0]
	p = routertest.New(t, "route-only", env).Policy.(*planAndRoute)
	j := p.Route(r, routertest.View(env)).Worker
	if p.backlogs[j].recent != (recentLoad{}) || p.later(j, 0) != 1 {
		t.Errorf("workers of one kind: work %+v, factor %v, expected none and 1", p.backlogs[j].recent, p.later(j, 0))
	}
}

// A prompt delays the requests that wait behind it. Their number is the mean queue of the workers. They do not count if
// a prompt takes the same time on all workers.
func TestPromptsDelayThoseBehind(t *testing.T) {
	for _, c := range []struct {
		name   string
		env    router.Env
		behind float64
	}{
		{"two kinds", routertest.Unequal(1), 4},
		{"prefix caches", keeping(routertest.Env(2, 4)), 4},
		{"one kind without prefix caches", routertest.Env(2, 4), 0},
	} {
		p := routertest.New(t, "route-only:spill=0,replica=0", c.env).Policy.(*planAndRoute)
		v := routertest.View(c.env)
		r := router.Request{Adapter: 0, Prompt: 300, MaxNew: 100}
		v.Workers[0].Running, v.Workers[1].Running = 3, 3
		v.Workers[0].Queued, v.Workers[1].Queued = 6, 2
		for j := range v.Workers {
			p.behind = 0
			without, _ := p.price(r, j, v)
			p.beginBehind(v)
			with, _ := p.price(r, j, v)
			routertest.Close(t, c.name, with-without, c.behind*c.env.Workers[j].Cost.Prefill(300))
		}
	}
}
