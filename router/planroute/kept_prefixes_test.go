package planroute

import (
	"fmt"
	"math"
	"testing"

	"lorasim/router"
	"lorasim/router/routertest"
	"lorasim/trace"
)

// A prompt token takes 10 ms. A worker that was sent the first 80 of 100 tokens computes 20 of them.
func TestKeptPrefixesByHand(t *testing.T) {
	env := routertest.HandEnv(2, 2)
	for j := range env.Workers {
		env.Workers[j].PrefixCache = true
	}
	rt := routertest.New(t, "period_mig:spill=0", env)
	if !rt.ReadsPrefixes {
		t.Error("it does not ask for prefixes")
	}
	p, v := rt.Policy.(*planAndRoute), routertest.View(env)
	for j := range v.Workers {
		for k := range v.Workers[j].Adapters {
			v.Workers[j].Adapters[k].Tier = router.GPU
		}
	}
	system := &trace.Text{ID: 1}
	text := &trace.Text{ID: 2, Parent: system, Start: 80}
	ask := func(k int32) router.Request {
		return router.Request{Adapter: k, Prompt: 100, Expected: 50, Text: text, Known: 100}
	}
	first := func(what string, r router.Request, j int, want float64) {
		t.Helper()
		total, got := p.price(r, j, v)
		routertest.Close(t, what, got, want)
		p.bounds.begin(p, &r, v)
		if low := p.bounds.price(p, &r, j, v, math.Inf(1)); low > total {
			t.Errorf("%s: the bound %v is above the price %v", what, low, total)
		}
	}
	first("before", ask(0), 0, 1)
	v.Now = 10
	if w := p.Route(router.Request{Adapter: 0, Prompt: 80, Expected: 50, Text: system, Known: 80}, v).Worker; w != 0 {
		t.Fatalf("worker %d, expected 0", w)
	}
	v.Now = 20
	first("where its beginning was", ask(0), 0, 0.2)
	first("on the other worker", ask(0), 1, 1)
	first("of another adapter", ask(1), 0, 1)
	first("of which nothing is known", router.Request{Adapter: 0, Prompt: 100, Expected: 50}, 0, 1)
	if w := p.Route(ask(0), v).Worker; w != 0 {
		t.Errorf("worker %d, expected 0", w)
	}
	routertest.Close(t, "when its prompt will have been computed", p.backlogs[0].prefilled, 20.2)
	first("all but the last token", ask(0), 0, 0.01)
	v.Workers[0].Up = false
	p.Route(ask(0), v)
	v.Workers[0].Up = true
	first("after a restart", ask(0), 0, 1)
	if rt := routertest.New(t, "period_mig", routertest.HandEnv(2, 2)); rt.ReadsPrefixes {
		t.Error("it asks for prefixes that no worker keeps")
	}
}

// Two prompts of 100 tokens fit into a KV cache of 200 tokens. A third one takes the place of the one sent first.
func TestKeptPrefixesFit(t *testing.T) {
	env := routertest.HandEnv(1, 1)
	env.Workers[0].PrefixCache = true
	for capacity, want := range map[int64][]int32{0: {1, 1, 1}, 200: {100, 1, 1}, 150: {100, 50, 1}} {
		p, v := routertest.New(t, "plan-and-route", env).Policy.(*planAndRoute), routertest.View(env)
		v.Workers[0].KVCapacity = capacity
		var prompts []router.Request
		for i := range int64(3) {
			prompts = append(prompts, router.Request{ID: i, Prompt: 100, Text: &trace.Text{ID: i}, Known: 100})
			p.Route(prompts[i], v)
		}
		var uncached []int32
		for i := range prompts {
			uncached = append(uncached, p.uncached(&prompts[i], 0, v))
		}
		routertest.Equal(t, uncached, want, fmt.Sprintf("tokens to compute with a KV cache of %d", capacity))
	}
}

// A token takes 10 ms to compute. A request that needs 100 tokens takes the place of as many as do not fit, and half of
// what prompts ask for is found.
func TestDisplacesKeptPrefixes(t *testing.T) {
	env := routertest.HandEnv(1, 1)
	env.Workers[0].PrefixCache = true
	for _, c := range []struct {
		name           string
		capacity, kept int64
		want           float64
	}{
		{"size not known", 0, 500, 0},
		{"room for all", 600, 500, 0},
		{"room for a part", 560, 500, 0.5 * 0.4},
		{"full", 500, 500, 0.5 * 1},
		{"more than full", 400, 500, 0.5 * 1},
	} {
		p, v := routertest.New(t, "plan-and-route", env).Policy.(*planAndRoute), routertest.View(env)
		p.keep(&router.Request{Prompt: int32(c.kept), Text: &trace.Text{ID: 1}, Known: int32(c.kept)}, 0, v)
		v.Workers[0].KVCapacity = c.capacity
		p.found.Add(0.5)
		routertest.Close(t, c.name, p.displaces(70, 30, 0, &v.Workers[0]), c.want)
	}
}
