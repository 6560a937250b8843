package sim

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"testing"

	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
)

// blind is an observer that looks away.
type blind struct{ n int64 }

func (b *blind) Done(*record.Request)     { b.n++ }
func (b *blind) Tokens(tick.Ticks, int64) {}
func (b *blind) Steps(record.Steps)       {}
func (b *blind) Gap(tick.Ticks, int64)    {}

// poisson yields n requests at the given rate: log-normal lengths of mean 1366
// and 184 tokens, adapters drawn evenly.
type poisson struct {
	adapters []trace.Adapter
	rng      *rand.Rand
	n, i     int64
	rate, at float64
}

func (p *poisson) Adapters() []trace.Adapter { return p.adapters }
func (p *poisson) Len() int64                { return p.n - p.i }

func (p *poisson) Next() (trace.Request, error) {
	if p.i == p.n {
		return trace.Request{}, io.EOF
	}
	p.at += p.rng.ExpFloat64() / p.rate
	length := func(mean, sigma, limit float64) int32 {
		return int32(max(1, min(limit, math.Exp(math.Log(mean)-sigma*sigma/2+sigma*p.rng.NormFloat64()))))
	}
	p.i++
	return trace.Request{ID: p.i - 1, Arrival: p.at, Adapter: int32(p.rng.IntN(len(p.adapters))),
		Prompt: length(1366, 1, 8000), Output: length(184, 1, 2000)}, nil
}

// speedProfile is an 80 GB card, so that 4 requests/s leave it well below saturation.
func speedProfile() *profile.Costs {
	p := profile.Default()
	p.Latency.Decode = profile.Decode{BaseMs: 12, PerRequestMs: 0.03, PerKVTokenUs: 0.1}
	p.Latency.Prefill = profile.Prefill{BaseMs: 8, PerTokenUs: 40}
	p.Latency.LoRA = profile.LoRA{Backend: profile.BackendCSGMV, CSGMVUs: 7}
	p.Memory.KVTokens = 100_000
	p.Engine.ContextLength = 16384
	p.Engine.MaxLorasPerBatch = 32
	return p.Compile()
}

// BenchmarkRun is the speed target of the project: requests of mean 1366 prompt
// and 184 output tokens, 4 requests/s for each worker. The workload's own cost
// is included.
func BenchmarkRun(b *testing.B) {
	for _, workers := range []int{2, 16, 256} {
		for _, policy := range []string{"static", "least-loaded"} {
			b.Run(fmt.Sprintf("workers=%d/%s", workers, policy), func(b *testing.B) {
				const n = 100_000
				costs := speedProfile()
				b.ReportAllocs()
				var events int64
				for range b.N {
					src := &poisson{adapters: trace.Names(32, []int{8, 16, 32, 64}), rng: rand.New(rand.NewPCG(1, 2)),
						n: n, rate: 4 * float64(workers)}
					rt, err := router.New(policy,
						router.Env{Workers: router.Alike(workers, router.Spec{MaxRunning: 256, Slots: 8}),
							Adapters: src.adapters, Seed: 1})
					if err != nil {
						b.Fatal(err)
					}
					cfg := Config{Source: src, Router: rt, Observer: &blind{}, Home: router.Disk}
					for range workers {
						cfg.Workers = append(cfg.Workers, costs)
					}
					st, err := Run(context.Background(), cfg)
					if err != nil {
						b.Fatal(err)
					}
					events = st.Events
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/request")
				b.ReportMetric(float64(events)/n, "events/request")
			})
		}
	}
}

// BenchmarkOverload is what a request costs with plan-and-route far beyond what two workers
// can serve: it must not grow with the queues.
func BenchmarkOverload(b *testing.B) {
	for _, n := range []int64{10_000, 40_000, 160_000} {
		b.Run(fmt.Sprintf("requests=%d", n), func(b *testing.B) {
			costs := speedProfile()
			spec := router.Spec{MaxRunning: 256, Slots: 32, Cost: profile.Model{Costs: costs}}
			b.ReportAllocs()
			for range b.N {
				src := &poisson{adapters: trace.Names(32, []int{8, 16, 32, 64}), rng: rand.New(rand.NewPCG(1, 2)), n: n,
					rate: 80}
				rt, err := router.New("plan-and-route", router.Env{Workers: router.Alike(2, spec),
					Adapters: src.adapters, Seed: 1, Moving: router.MoveQueued, Interval: 10})
				if err != nil {
					b.Fatal(err)
				}
				cfg := Config{Source: src, Workers: []*profile.Costs{costs, costs}, Router: rt, Observer: &blind{},
					Home: router.Disk, MoveMode: router.MoveQueued}
				if _, err := Run(context.Background(), cfg); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/request")
		})
	}
}

// BenchmarkVLLM is BenchmarkRun under vLLM's scheduler on two workers: below
// saturation, and with a KV cache so small that requests are preempted.
func BenchmarkVLLM(b *testing.B) {
	for name, kv := range map[string]int64{"wide": 100_000, "tight": 20_000} {
		b.Run(name, func(b *testing.B) {
			const n = 20_000
			p := *speedProfile().Profile()
			p.Engine.UseVLLM()
			p.Memory.KVTokens = kv
			costs := p.Compile()
			b.ReportAllocs()
			var st *Stats
			for range b.N {
				src := &poisson{adapters: trace.Names(32, []int{8, 16, 32, 64}), rng: rand.New(rand.NewPCG(1, 2)), n: n,
					rate: 8}
				rt, err := router.New("static",
					router.Env{Workers: router.Alike(2, router.Spec{MaxRunning: 256, Slots: 8}), Adapters: src.adapters,
						Seed: 1})
				if err != nil {
					b.Fatal(err)
				}
				if st, err = Run(context.Background(), Config{Source: src, Workers: []*profile.Costs{costs, costs},
					Router: rt, Observer: &blind{}, Home: router.Disk}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/request")
			b.ReportMetric(float64(st.Events)/n, "events/request")
			b.ReportMetric(float64(st.Workers[0].Preemptions+st.Workers[1].Preemptions)/n, "preemptions/request")
		})
	}
}
