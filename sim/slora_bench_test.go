package sim

import (
	"context"
	"math/rand/v2"
	"testing"

	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/trace"
)

// BenchmarkSLoRA is the cost of a request under S-LoRA's queues with the embedded profile, beyond what the worker can
// serve, so that each decode step looks at the queue.
func BenchmarkSLoRA(b *testing.B) {
	for _, k := range []struct {
		name string
		set  func(e *profile.Engine)
	}{
		{"fcfs", func(*profile.Engine) {}},
		{"lifo", func(e *profile.Engine) { e.SchedulePolicy = profile.OrderLIFO }},
		{"abort", func(e *profile.Engine) { e.EnableAbort = true }},
	} {
		b.Run(k.name, func(b *testing.B) {
			const n = 2_000
			p, err := profile.Load(b.Context(), "llama-7b-a10g-s-lora")
			if err != nil {
				b.Fatal(err)
			}
			k.set(&p.Engine)
			costs := p.Compile()
			b.ReportAllocs()
			var st *Stats
			for range b.N {
				src := &poisson{adapters: trace.Names(200, []int{64, 32, 16, 8}), rng: rand.New(rand.NewPCG(1, 2)),
					n: n, rate: 2}
				if st, err = Run(context.Background(), Config{Source: src, Workers: []*profile.Costs{costs},
					Router: &router.Router{Policy: byID{n: 1}}, Observer: &blind{}, Home: router.Disk}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/request")
			b.ReportMetric(float64(st.Events)/n, "events/request")
		})
	}
}
