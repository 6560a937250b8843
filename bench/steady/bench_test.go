package steady

import (
	"math/rand/v2"
	"testing"

	"lorasim/sim/record"
)

// BenchmarkDone is the cost of the recorder for each request of a run with four
// workers.
func BenchmarkDone(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	qs := make([]record.Request, 1<<16)
	t := 0.0
	for i := range qs {
		t += rng.ExpFloat64() / 10
		ttft, e2e := rng.ExpFloat64()/20, 3*rng.ExpFloat64()
		qs[i] = record.Request{
			Arrival: t, Sent: t, FirstToken: t + ttft, Finish: t + ttft + e2e, Output: 100, WorkerLast: int32(i % 4),
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		r := NewRecorder(false)
		for i := range qs {
			r.Done(&qs[i])
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(qs)), "ns/request")
}
