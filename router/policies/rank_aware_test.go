package policies

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"lorasim/router"
	"lorasim/router/routertest"
)

// Requests of rank r in batches of rank m: a worker that has large ranks
// already is cheaper for a large rank, however loaded.
func TestRankAware(t *testing.T) {
	env := routertest.Env(3, 4) // ranks 8, 16, 32, 64
	for _, c := range []struct {
		name    string
		spec    string
		adapter int32
		workers [3]router.Worker
		want    int
	}{
		// lora term: 0.1 ms x sqrt(batch x rank).
		{"rank 64 joins rank 64", "rank-aware:slo=none", 3,
			[3]router.Worker{{Running: 5, MaxRank: 8}, {Running: 5, MaxRank: 64}, {Running: 4, MaxRank: 8}}, 1},
		{"rank 8 joins rank 8", "rank-aware:slo=none", 0,
			[3]router.Worker{{Running: 5, MaxRank: 64}, {Running: 5, MaxRank: 8}, {Running: 5, MaxRank: 32}}, 1},
		{"base model joins no rank", "rank-aware:slo=none", -1,
			[3]router.Worker{{Running: 5, MaxRank: 64}, {Running: 5, MaxRank: 8}, {Running: 5}}, 2},
		{"first of equals", "rank-aware:slo=none", 0,
			[3]router.Worker{{Running: 5, MaxRank: 64}, {Running: 5, MaxRank: 8}, {Running: 5, MaxRank: 8}}, 1},
		// 15 ms + 0.1 x 41 + 0.1 ms x sqrt(41 x 64) = 24.2 ms.
		{"within the SLO", "rank-aware:slo=24.4", 3,
			[3]router.Worker{{Running: 5, MaxRank: 8}, {Running: 40, MaxRank: 64}, {Running: 4, MaxRank: 8}}, 1},
		{"beyond the SLO", "rank-aware:slo=24.2", 3,
			[3]router.Worker{{Running: 5, MaxRank: 8}, {Running: 40, MaxRank: 64}, {Running: 4, MaxRank: 64}}, 2},
		{"all beyond the SLO: least loaded", "rank-aware:slo=1", 3,
			[3]router.Worker{{Running: 5, MaxRank: 8}, {Running: 40, MaxRank: 64}, {Running: 4, MaxRank: 8}}, 2},
		// One more chunk starts on workers 0 and 1: 10 ms, over 2 output tokens.
		{"prefill opens a chunk", "rank-aware:slo=none,avg-output=2", 0,
			[3]router.Worker{{QueuedToks: 4096}, {QueuedToks: 2048}, {QueuedToks: 3000}}, 2},
		{"long outputs make prefill cheap", "rank-aware:slo=none,avg-output=1000000", 0,
			[3]router.Worker{{QueuedToks: 4096, MaxRank: 8, Running: 1}, {QueuedToks: 2048}, {QueuedToks: 3000}}, 0},
	} {
		p := routertest.New(t, c.spec, env).Policy
		v := &router.View{Workers: c.workers[:], Adapters: env.Adapters}
		for i := range v.Workers {
			v.Workers[i].Up = true
		}
		routertest.Equal(t, routertest.Route(p, v, c.adapter, 2), []int{c.want, c.want}, c.name)
		v.Workers[c.want].Draining = true
		if got := routertest.Route(p, v, c.adapter, 1)[0]; got == c.want || got == router.None {
			t.Errorf("%s: got %d while worker %d drains", c.name, got, c.want)
		}
	}
}

func TestRankAwareDefaults(t *testing.T) {
	env := routertest.Env(2, 4)
	p := routertest.New(t, "rank-aware", env).Policy.(*rankAware)
	if want := 1.5 * (0.015 + 0.0001 + 0.0001*8); math.Abs(p.slo-want) > 1e-12 { // one request of rank 64
		t.Errorf("default SLO %g s, want %g", p.slo, want)
	}
	if got := routertest.New(t, "rank-aware:slo=30", env).Policy.(*rankAware).slo; got != 0.03 {
		t.Errorf("slo=30 is %g s", got)
	}
	if got := p.output(router.Request{MaxNew: 2048, Expected: 130}); got != 130 {
		t.Errorf("output estimate %g, want what is expected, 130", got)
	}
	p.avgOutput = 50
	if got := p.output(router.Request{MaxNew: 2048, Expected: 130}); got != 50 {
		t.Errorf("output estimate %g, want avg-output, 50", got)
	}
}

// The policy against the formula of its comment, computed for every worker.
func TestRankAwareAgainstFormula(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		env := routertest.Env(rapid.IntRange(1, 6).Draw(t, "workers"), 4)
		v := routertest.View(env)
		routertest.DrawWorkers(t, v)
		p := routertest.New(t, "rank-aware:slo=24,avg-output=50", env).Policy
		r := router.Request{Adapter: rapid.Int32Range(-1, 3).Draw(t, "adapter"), Prompt: 700}
		rank := 0
		if r.Adapter >= 0 {
			rank = env.Adapters[r.Adapter].Rank
		}
		want, cheapest := router.None, math.Inf(1)
		emptiest, load := router.None, math.MaxInt
		for i, w := range v.Workers {
			if !w.Usable() {
				continue
			}
			if n := w.Running + w.Queued; n < load {
				emptiest, load = i, n
			}
			ctx := w.KVUsed + w.QueuedToks
			after := routertest.Cost{}.DecodeStep(w.Running+w.Queued+1, 0, ctx+700, max(rank, w.MaxRank))
			cost := (routertest.Cost{}.Prefill(w.QueuedToks+700)-routertest.Cost{}.Prefill(w.QueuedToks))/50 +
				(after - routertest.Cost{}.DecodeStep(w.Running+w.Queued, 0, ctx, w.MaxRank))
			if after > 0.024 {
				cost = math.Inf(1)
			}
			if cost < cheapest {
				want, cheapest = i, cost
			}
		}
		if want == router.None {
			want = emptiest
		}
		if got := p.Route(r, v).Worker; got != want {
			t.Fatalf("got %d, want %d", got, want)
		}
	})
}
