package planroute

import (
	"math"
	"testing"

	"lorasim/router"
	"lorasim/router/average"
	"lorasim/router/place"
	"lorasim/router/routertest"
)

// A front end takes 1 s for a request and 30 s more for the first one of an adapter. Prefill takes 1 s.
func TestFrontEndByHand(t *testing.T) {
	env := routertest.HandEnv(2, 3)
	for j := range env.Workers {
		env.Workers[j].FrontEnd, env.Workers[j].FirstUse = 1, 30
	}
	p := routertest.New(t, "period_mig:spill=0", env).Policy.(*planAndRoute)
	v := routertest.View(env)
	for j := range v.Workers {
		for k := range v.Workers[j].Adapters {
			v.Workers[j].Adapters[k].Tier = router.GPU
		}
	}
	first := func(what string, k int32, j int, want float64) {
		t.Helper()
		_, got := p.price(router.Request{Adapter: k, Prompt: 100, Expected: 50}, j, v)
		routertest.Close(t, what, got, want)
	}
	v.Now = 10
	first("the first use", 0, 0, 31+1)
	first("the base model", -1, 0, 1+1)
	if w := p.Route(router.Request{Adapter: 0, Prompt: 100, Expected: 50}, v).Worker; w != 0 {
		t.Fatalf("worker %d, expected 0", w)
	}
	first("the second use, behind the first one and its prompt", 0, 0, 32+1)
	first("another adapter behind it", 1, 0, 31+31+1)
	first("on the other worker", 0, 1, 31+1)
	v.Now = 100
	first("later", 0, 0, 1+1)
	// Requests come 45 s apart on each worker. One that comes within 30 s waits 15 s longer on average. One request of
	// the adapter came, and half of it counts here, since the other worker knows the adapter.
	p.gap = average.Mean{Value: 22.5, N: 1}
	routertest.Close(t, "what it delays", p.firstUseDelay(0, 1, v.Now), 30./45*15/1.5)
	p.backlogs[1].frontEnd.add(24, v.Now, loaderMemory) // of 60 s
	routertest.Close(t, "what it delays at a load of 0.4", p.firstUseDelay(0, 1, v.Now), 30./45*15/1.5/0.6)
	if w := p.Route(router.Request{Adapter: 0, Prompt: 100, Expected: 50}, v).Worker; w != 0 {
		t.Errorf("worker %d, expected 0, where the adapter was used", w)
	}
	v.Workers[0].Up = false
	p.Route(router.Request{Adapter: 0, Prompt: 100, Expected: 50}, v)
	v.Now = 200
	first("after a restart", 0, 0, 31+1)
	if n := p.uses.known[0]; n != 1 {
		t.Errorf("after a restart %d workers know the adapter, expected the other one", n)
	}
}

// An adapter whose requests come often is worth a first use on an idle worker: they share its delay. With a request now
// and then it stays where it is.
func TestFirstUseIsShared(t *testing.T) {
	env := routertest.HandEnv(4, 3)
	for j := range env.Workers {
		env.Workers[j].FrontEnd, env.Workers[j].FirstUse = 1, 30
	}
	p := routertest.New(t, "period_mig:spill=0,replica=0", env).Policy.(*planAndRoute)
	v := routertest.View(env)
	for j := range v.Workers {
		v.Workers[j].Adapters[0].Tier = router.GPU
	}
	r := router.Request{Adapter: 0, Prompt: 100, Expected: 50}
	if w := p.Route(r, v).Worker; w != 0 {
		t.Fatalf("worker %d, expected 0", w)
	}
	v.Now, p.first = 100, average.Mean{} // a second until the first token is worth 30
	v.Workers[0].Running, v.Workers[0].Adapters[0].Running = 1, 1
	for _, c := range []struct {
		arrived, shared float64 // requests within the horizon, on two of four workers; s of 30
		want            int
	}{{0, 0, 0}, {18, 27, 1}} {
		p.Demand()[0] = place.Demand{Arrived: c.arrived}
		p.bounds.begin(p, &r, v)
		for j := range v.Workers {
			if price, _ := p.price(r, j, v); p.bounds.price(p, &r, j, v, math.Inf(1)) > price {
				t.Errorf("%g requests: the bound of worker %d is above its price", c.arrived, j)
			}
		}
		routertest.Close(t, "what is shared", p.firstUseShared(0, 1, 0, 31), c.shared)
		routertest.Close(t, "what is shared of a delay of 5 s", p.firstUseShared(0, 1, 26, 31), c.shared/6)
		if w := p.Preview(r, v); w != c.want {
			t.Errorf("%g requests: worker %d, expected %d", c.arrived, w, c.want)
		}
	}
}

// Workers of two kinds: a first use gains a better worker for good, so all requests since the start share its delay.
func TestFirstUseAmongKinds(t *testing.T) {
	for kinds, want := range []float64{0, 9. / 10} {
		env := routertest.HandEnv(2, 1)
		for j := range env.Workers {
			env.Workers[j].FirstUse = 30
			env.Workers[j].Mixes = kinds > 0 && j > 0
		}
		p := routertest.New(t, "route-only", env).Policy.(*planAndRoute)
		for i := range 10 {
			p.arrives(0, float64(i))
		}
		routertest.Close(t, "what later requests bear", p.share(0), want)
	}
}
