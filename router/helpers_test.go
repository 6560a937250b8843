package router

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"lorasim/trace"
)

// options are specs with options away from their defaults, that work for any number of workers and at least one
// adapter. Policies that need an option are here only.
var options = []string{
	"explicit:map=rest@all", "explicit:map=0@0,rest@all,base@0",
	"bounded-hash:c=1", "least-loaded:ties=first", "least-tokens:ties=first", "weighted-queue:weight=2,ties=first",
	"affinity:variant=residency,ties=first", "affinity:lora=2,queue=0.5,kv=0",
	"affinity:variant=distinct,holders=true", "affinity:variant=active", "affinity:variant=load-state,ties=first",
	"route-to-holder:ties=first", "affinity-spill:threshold=1,ties=first",
	"cache-aware:index=reported,cold=smallest-tree,lora=true,abs=0,capacity=500",
	"prefix-scorer:index=reported,lora=1,ties=first,capacity=640",
	"epp:file=testdata/kserve-lora.yaml", "epp:file=testdata/kserve-lora.yaml,dialect=llm-d,metrics=sglang,refresh=2s",
	"kv-router:index=sent,block=1,ties=first", "prefix-hash:tokens=10,c=1",
	"k-shard:high=0.1,low=0.05,grow-every=0,shrink-every=0", "any-worker:ties=first",
	"rank-aware:slo=20,avg-output=100", "rank-aware:slo=none",
	"plan-and-route:spill=0,horizon=30", "plan-and-route:move=running,place=off", "route-only:spill=0",
}

// specs are specs of every policy, by its defaults and with the options above.
func specs() (list []string) {
	for _, d := range List() {
		if CheckSpec(d.Name) == nil {
			list = append(list, d.Name)
		}
	}
	return append(list, options...)
}

func testEnv(workers, adapters int) Env {
	return Env{
		Workers:  Alike(workers, Spec{MaxRunning: 8, Slots: 2, Cost: testCost{}}),
		Adapters: trace.Names(adapters, []int{8, 16, 32, 64}),
		Seed:     1,
	}
}

// testCost is a worker with round numbers, in seconds.
type testCost struct{}

func (testCost) DecodeStep(running, _ int, kvTokens int64, maxRank int) float64 {
	lora := 0.0001 * math.Sqrt(float64(running*maxRank))
	return 0.015 + 0.0001*float64(running) + 0.000001*float64(kvTokens) + lora
}

func (testCost) Prefill(tokens int64) float64 {
	chunks := (tokens + 2047) / 2048
	return 0.01*float64(chunks) + 0.0001*float64(tokens)
}

func (testCost) AdapterLoad(rank int, from Tier) float64 { return 0.01 * float64(rank) }

func (testCost) Copy(bytes float64) float64 { return bytes / 1e10 }

// slower is a worker that takes so many times as long for everything.
type slower float64

func (s slower) DecodeStep(running, adapters int, kvTokens int64, maxRank int) float64 {
	return float64(s) * testCost{}.DecodeStep(running, adapters, kvTokens, maxRank)
}

func (s slower) Prefill(tokens int64) float64 { return float64(s) * testCost{}.Prefill(tokens) }

func (s slower) AdapterLoad(rank int, from Tier) float64 {
	return float64(s) * testCost{}.AdapterLoad(rank, from)
}

func (s slower) Copy(bytes float64) float64 { return float64(s) * testCost{}.Copy(bytes) }

// testView returns idle workers.
func testView(env Env) *View {
	v := &View{Adapters: env.Adapters, Workers: make([]Worker, len(env.Workers))}
	for i := range v.Workers {
		v.Workers[i] = Worker{
			Up:         true,
			MaxRunning: env.Workers[i].MaxRunning,
			KVCapacity: 10000,
			Slots:      env.Workers[i].Slots,
			Adapters:   make([]AdapterState, len(env.Adapters)),
		}
	}
	return v
}

// setRunning gives workers running requests; -1 takes a worker down.
func setRunning(v *View, running ...int) {
	for i, n := range running {
		v.Workers[i].Up = n >= 0
		v.Workers[i].Running = max(n, 0)
	}
}

func mustNew(tb rapid.TB, spec string, env Env) *Router {
	tb.Helper()
	rt, err := New(spec, env)
	if err != nil {
		tb.Fatal(err)
	}
	return rt
}

// route sends requests of one adapter and returns the workers they went to.
func route(p Policy, v *View, adapter int32, n int) []int {
	workers := make([]int, n)
	for i := range workers {
		workers[i] = p.Route(Request{ID: int64(i), Adapter: adapter, Prompt: 100, MaxNew: 100}, v).Worker
	}
	return workers
}

// count counts the requests of each worker.
func count(workers []int, n int) []int {
	counts := make([]int, n)
	for _, w := range workers {
		counts[w]++
	}
	return counts
}

// checkUniform is a chi-squared test that counts come from equal chances. The
// seeds are fixed, so it fails always or never; the bound of 4.5 standard
// deviations leaves a fair generator a chance below 1e-4 of failing.
func checkUniform(t *testing.T, counts []int) {
	t.Helper()
	total := 0
	for _, c := range counts {
		total += c
	}
	expected := float64(total) / float64(len(counts))
	chi2 := 0.0
	for _, c := range counts {
		chi2 += (float64(c) - expected) * (float64(c) - expected) / expected
	}
	df := float64(len(counts) - 1)
	if chi2 > df+4.5*math.Sqrt(2*df) {
		t.Errorf("counts %v are not uniform: chi2 %.1f with %g degrees of freedom", counts, chi2, df)
	}
}

func equal[T comparable](t rapid.TB, got, want []T, what string) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
