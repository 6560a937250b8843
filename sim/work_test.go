package sim

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"lorasim/internal/testutil"
	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/trace"
)

// TestWork counts the work of simulations: events, looks of plan-and-route at a KV cache (for a price, or since the
// worker has changed), questions to cost models and allocations, each for a request. testdata/work.txt has what they
// were; a count that differs by 5 % or more fails. If that is on purpose, say why in the commit and write it anew:
//
//	go test ./sim -run TestWork -update
func TestWork(t *testing.T) {
	const file = "testdata/work.txt"
	var now strings.Builder
	fmt.Fprintf(&now, "%-24s %9s %9s %9s %9s\n", "a request of", "events", "prices", "costs", "allocs")
	was := readWork(t, file)
	for _, c := range []workCase{
		{"static", "static", 4, 32, 4, nil},
		{"least-loaded", "least-loaded", 4, 32, 4, nil},
		{"affinity-spill", "affinity-spill", 16, 128, 4, nil},
		{"default", "plan-and-route", 4, 32, 4, nil},
		{"default, large", "plan-and-route", 128, 1200, 4, nil},
		{"default, overload", "plan-and-route", 2, 32, 30, nil},
		{"default, few slots", "plan-and-route", 16, 200, 4,
			func(p *profile.Profile) { p.Engine.MaxLorasPerBatch = 4 }},
		{"default, vllm", "plan-and-route", 8, 64, 4, func(p *profile.Profile) { p.Engine.UseVLLM() }},
		{"vllm, many adapters", "static", 2, 1200, 8, func(p *profile.Profile) { p.Engine.UseVLLM() }},
		{"min-cost-flow", "min-cost-flow", 8, 64, 4, nil},
	} {
		got := c.count(t)
		fmt.Fprintf(&now, "%-24s %9.3f %9.3f %9.3f %9.3f\n", c.name, got[0], got[1], got[2], got[3])
		if *testutil.Update {
			continue
		}
		want, ok := was[c.name]
		if !ok {
			t.Errorf("%s: not in %s", c.name, file)
			continue
		}
		for i, what := range []string{"events", "prices", "questions to cost models", "allocations"} {
			if d := got[i] - want[i]; d > 0.05*want[i]+0.02 || d < -0.05*want[i]-0.02 {
				t.Errorf("%s: %.3f %s a request, expected %.3f as in %s", c.name, got[i], what, want[i], file)
			}
		}
	}
	if *testutil.Update {
		testutil.Write(t, file, now.String())
	}
}

// workCase is a run of 4000 requests.
type workCase struct {
	name, policy      string
	workers, adapters int
	rate              float64 // requests/s for each worker
	change            func(*profile.Profile)
}

// work has what a run does for each request: events, prices, questions to cost models, allocations.
type work [4]float64

// readWork reads the counts by case.
func readWork(t *testing.T, file string) map[string]work {
	text, err := os.ReadFile(file)
	if err != nil && !*testutil.Update {
		t.Fatal(err)
	}
	was := map[string]work{}
	for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		fields := strings.Fields(line)
		if i == 0 || len(fields) < 5 {
			continue // the header
		}
		var w work
		for k, f := range fields[len(fields)-4:] {
			if w[k], err = strconv.ParseFloat(f, 64); err != nil {
				t.Fatalf("%s, line %d: %v", file, i+1, err)
			}
		}
		was[strings.Join(fields[:len(fields)-4], " ")] = w
	}
	return was
}

func (c *workCase) count(t *testing.T) work {
	const n = 4000
	p := *speedProfile().Profile()
	p.Engine.MaxLorasPerBatch = 8
	if c.change != nil {
		c.change(&p)
	}
	costs := p.Compile()
	asked := &askedCosts{CostModel: profile.Model{Costs: costs}}
	src := &poisson{adapters: trace.Names(c.adapters, []int{8, 16, 32, 64}), rng: rand.New(rand.NewPCG(1, 2)), n: n,
		rate: c.rate * float64(c.workers)}
	rt, err := router.New(c.policy, router.Env{Adapters: src.adapters, Seed: 1, Moving: router.MoveQueued, Interval: 10,
		Workers: router.Alike(c.workers, router.Spec{MaxRunning: 256, Slots: p.Engine.MaxLorasPerBatch, Cost: asked})})
	if err != nil {
		t.Fatal(err)
	}
	priced := &pricedPolicy{Policy: rt.Policy}
	rt.Policy = priced
	cfg := Config{Source: src, Router: rt, Observer: &blind{}, Home: router.Disk, MoveMode: router.MoveQueued}
	for range c.workers {
		cfg.Workers = append(cfg.Workers, costs)
	}
	s, err := newSim(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err = s.run(t.Context())
	runtime.ReadMemStats(&after)
	if err != nil || s.done != n {
		t.Fatalf("%s: %d requests ended, %v", c.name, s.done, err)
	}
	return work{float64(s.loops) / n, float64(priced.prices) / n, float64(asked.n) / n,
		float64(after.Mallocs-before.Mallocs) / n}
}

// askedCosts counts the questions to a cost model.
type askedCosts struct {
	router.CostModel
	n int
}

func (c *askedCosts) DecodeStep(running, adapters int, kv int64, rank int) float64 {
	c.n++
	return c.CostModel.DecodeStep(running, adapters, kv, rank)
}

func (c *askedCosts) Prefill(tokens int64) float64 {
	c.n++
	return c.CostModel.Prefill(tokens)
}

func (c *askedCosts) AdapterLoad(rank int, from router.Tier) float64 {
	c.n++
	return c.CostModel.AdapterLoad(rank, from)
}

// pricedPolicy counts the looks of a policy at the KV cache of a worker.
type pricedPolicy struct {
	router.Policy
	prices int
	of     *router.View
}

func (p *pricedPolicy) Route(r router.Request, v *router.View) router.Decision {
	if read := v.Read; read != nil && p.of != v {
		p.of, v.Read = v, func(worker int) {
			p.prices++
			read(worker)
		}
	}
	return p.Policy.Route(r, v)
}
