package result

import (
	"testing"

	"pgregory.net/rapid"

	"lorasim/sim/record"
)

// TestScheduledLatencies compares latencies from arrival with distributions of them, for runs whose first requests, or
// all, are sent on time.
func TestScheduledLatencies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.SampledFrom([]int{3, 1000}).Draw(t, "limit")
		c := NewCollector(Options{SampleLimit: limit})
		e2e := distribution{limit: limit, bits: latencyBits}
		ttft := e2e
		onTime := rapid.IntRange(0, 20).Draw(t, "sent on time")
		for i := range rapid.IntRange(0, 20).Draw(t, "requests") {
			eighths := func(lo, hi int, name string) float64 {
				return float64(rapid.IntRange(lo, hi).Draw(t, name)) / 8
			}
			r := record.Request{ID: int64(i), Arrival: float64(i), Sent: float64(i), Output: 2}
			if i >= onTime {
				r.Sent += eighths(0, 3, "queued")
			}
			r.FirstToken = r.Sent + eighths(0, 50, "first token")
			r.Finish = r.FirstToken + eighths(0, 50, "decoding")
			c.Done(&r)
			e2e.add(record.Ticks(r.Finish - r.Arrival))
			ttft.add(record.Ticks(r.FirstToken - r.Arrival))
		}
		x := c.Result(Meta{}, nil).Extra
		if x.ScheduledE2E != e2e.stats() || x.ScheduledTTFT != ttft.stats() {
			t.Fatalf("from arrival %+v and %+v, expected %+v and %+v", x.ScheduledE2E, x.ScheduledTTFT, e2e.stats(),
				ttft.stats())
		}
	})
}
