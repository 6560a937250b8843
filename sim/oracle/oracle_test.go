package oracle

import (
	"context"
	"math"
	"testing"

	"lorasim/router"
	_ "lorasim/router/builtin"
	"lorasim/sim"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
	"pgregory.net/rapid"
)

// finished collects the requests that ended well.
type finished struct {
	requests []Request
	latency  float64
	end      float64
}

func (f *finished) Done(r *record.Request) {
	f.end = max(f.end, r.Finish)
	if r.Status == record.OK {
		f.requests = append(f.requests, Request{Release: r.Sent, Prompt: r.Prompt, Output: r.Output})
		f.latency += r.Finish - r.Sent
	}
}
func (f *finished) Tokens(tick.Ticks, int64) {}
func (f *finished) Steps(record.Steps)       {}
func (f *finished) Gap(tick.Ticks, int64)    {}

func simulate(t rapid.TB, wl *trace.Workload, p *profile.Profile, workers int, policy string) *finished {
	costs := p.Compile()
	rt, err := router.New(policy, router.Env{Adapters: wl.Adapters, Seed: 1, Workers: router.Alike(workers, router.Spec{
		MaxRunning: p.Engine.MaxRunningRequests, Slots: p.Engine.MaxLorasPerBatch, Cost: profile.Model{Costs: costs}})})
	if err != nil {
		t.Fatal(err)
	}
	f := &finished{}
	cfg := sim.Config{Source: wl.Source(), Router: rt, Observer: f, Home: router.Disk}
	for range workers {
		cfg.Workers = append(cfg.Workers, costs)
	}
	if _, err := sim.Run(context.Background(), cfg); err != nil {
		t.Fatal(err)
	}
	return f
}

// No run under any policy is better than the bounds.
func TestNoRunBeatsTheBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, err := profile.Load(t.Context(), rapid.SampledFrom(profile.Names()).Draw(t, "profile"))
		if err != nil {
			t.Fatal(err)
		}
		if l := &p.Latency; l.Law == "" && rapid.Bool().Draw(t, "roofline") {
			l.Law = profile.LawRoofline
			l.Prefill.BaseMs, l.Prefill.FirstExtendMs, l.Prefill.FirstWaveFactor = 0, 0, 0
			if rapid.Bool().Draw(t, "vllm") && l.LoRA.Backend != profile.BackendDLoRA {
				p.Engine.UseVLLM()
			}
		}
		wl := &trace.Workload{Adapters: trace.Names(3, []int{8, 64})}
		at := 0.0
		for i := range rapid.IntRange(1, 60).Draw(t, "requests") {
			at += rapid.SampledFrom([]float64{0, 0, 0.01, 0.3, 5}).Draw(t, "gap")
			wl.Requests = append(wl.Requests, trace.Request{
				ID: int64(i), Arrival: at, Adapter: int32(rapid.IntRange(-1, 2).Draw(t, "adapter")),
				Prompt: int32(rapid.IntRange(1, 1500).Draw(t, "prompt")),
				Output: int32(rapid.IntRange(1, 300).Draw(t, "output")),
			})
		}
		workers := rapid.IntRange(1, 3).Draw(t, "workers")
		f := simulate(t, wl, p, workers, rapid.SampledFrom([]string{"static", "least-loaded", "plan-and-route"}).Draw(t,
			"policy"))
		costs := make([]*profile.Costs, workers)
		for i := range costs {
			costs[i] = p.Compile()
		}
		b := Of(f.requests, costs)
		if mean := f.latency / float64(len(f.requests)); mean < b.MeanE2E {
			t.Fatalf("mean E2E latency %v below its bound %v", mean, b.MeanE2E)
		}
		if f.end < b.Duration {
			t.Fatalf("duration %v below its bound %v", f.end, b.Duration)
		}
	})
}

// A single request alone has nothing to lose: the bound is its latency.
func TestAloneIsExact(t *testing.T) {
	p, err := profile.Embedded("llama-2-7b-rtx-4090-sglang-0.5")
	if err != nil {
		t.Fatal(err)
	}
	wl := &trace.Workload{Requests: []trace.Request{{Adapter: trace.BaseModel, Prompt: 500, Output: 100}}}
	f := simulate(t, wl, p, 1, "static")
	if b := Of(f.requests, []*profile.Costs{p.Compile()}); math.Abs(b.MeanE2E-f.latency) > 1e-6*f.latency {
		t.Errorf("bound %v of a lone request, its latency %v", b.MeanE2E, f.latency)
	}
}

// Worked by hand: work 3 and 1 released at 0 and 1 on one machine. Shortest
// first ends the second at 2 and the first at 4: latencies 1 and 4.
func TestShortestFirst(t *testing.T) {
	rs := []Request{{Release: 0}, {Release: 1}}
	if got := shortestFirst(rs, []float64{3, 1}); got != 5 {
		t.Errorf("sum of latencies %v, expected 5", got)
	}
	if got := drained(rs, []float64{3, 1}); got != 4 {
		t.Errorf("done at %v, expected 4", got)
	}
}

func BenchmarkOf(b *testing.B) {
	p, err := profile.Embedded("llama-2-7b-rtx-4090-sglang-0.5")
	if err != nil {
		b.Fatal(err)
	}
	rs := make([]Request, 100_000)
	for i := range rs {
		rs[i] = Request{Release: float64(i) / 20, Prompt: int32(50 + i*7%900), Output: int32(1 + i*13%400)}
	}
	cs := []*profile.Costs{p.Compile(), p.Compile()}
	b.ReportAllocs()
	for b.Loop() {
		Of(rs, cs)
	}
}
