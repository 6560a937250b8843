package router

import "testing"

// A front end takes 1 s for a request and 30 s more for the first one of an adapter. Prefill takes 1 s.
func TestFrontEndByHand(t *testing.T) {
	env := handEnv(2, 3)
	for j := range env.Workers {
		env.Workers[j].FrontEnd, env.Workers[j].FirstUse = 1, 30
	}
	p := mustNew(t, "period_mig:spill=0", env).Policy.(*planAndRoute)
	v := testView(env)
	for j := range v.Workers {
		for k := range v.Workers[j].Adapters {
			v.Workers[j].Adapters[k].Tier = GPU
		}
	}
	first := func(what string, k int32, j int, want float64) {
		t.Helper()
		_, got := p.price(Request{Adapter: k, Prompt: 100, Expected: 50}, j, v)
		close2(t, what, got, want)
	}
	v.Now = 10
	first("the first use", 0, 0, 31+1)
	first("the base model", -1, 0, 1+1)
	if w := p.Route(Request{Adapter: 0, Prompt: 100, Expected: 50}, v); w != 0 {
		t.Fatalf("worker %d, expected 0", w)
	}
	first("the second use, behind the first one and its prompt", 0, 0, 32+1)
	first("another adapter behind it", 1, 0, 31+31+1)
	first("on the other worker", 0, 1, 31+1)
	v.Now = 100
	first("later", 0, 0, 1+1)
	// Requests come 45 s apart on each worker. Who comes within 30 s waits 15 s longer on average; two requests of
	// the adapter share that.
	p.gap = mean{value: 22.5, n: 1}
	close2(t, "what it delays", p.firstUseDelay(0, 1, v.Now), 30./45*15/2)
	if w := p.Route(Request{Adapter: 0, Prompt: 100, Expected: 50}, v); w != 0 {
		t.Errorf("worker %d, expected 0, where the adapter was used", w)
	}
	v.Workers[0].Up = false
	p.Route(Request{Adapter: 0, Prompt: 100, Expected: 50}, v)
	v.Now = 200
	first("after a restart", 0, 0, 31+1)
}
