package series

import (
	"math"

	"lorasim/bench/result"
	"lorasim/internal/record"
	"lorasim/internal/tick"
)

// Quantiles is the number of steps of a latency's quantiles: those for the
// probabilities 0, 1/Quantiles, ..., 1.
const Quantiles = 200

const latencyBits = 8 // bins of the histograms are at most 0.4 % wide

// Latencies gathers the latencies of successful requests in bounded memory.
type Latencies struct {
	E2E, TTFT, TPOT *result.Histogram
}

// NewLatencies returns empty latencies.
func NewLatencies() *Latencies {
	h := func() *result.Histogram { return result.NewHistogram(latencyBits) }
	return &Latencies{E2E: h(), TTFT: h(), TPOT: h()}
}

// Done enters a request. One that failed, and what a request does not have, do
// not count.
func (l *Latencies) Done(r *record.Request) {
	if r.Status != record.OK {
		return
	}
	add := func(h *result.Histogram, s float64) {
		if s >= 0 && s < tick.Max.Seconds() {
			h.Add(tick.FromSeconds(s), 1)
		}
	}
	e2e, ttft := r.E2E(), r.TTFT()
	add(l.E2E, e2e)
	add(l.TTFT, ttft)
	if r.Output > 1 {
		add(l.TPOT, (e2e-ttft)/float64(r.Output-1))
	}
}

// QuantilesOf returns the Quantiles+1 quantiles of a histogram in ms, to 0.4 %;
// nil where it is empty.
func QuantilesOf(h *result.Histogram) []float64 {
	if h.Count() == 0 {
		return nil
	}
	qs := make([]float64, Quantiles+1)
	for i := range qs {
		rank := math.Round(float64(h.Count()-1) * float64(i) / Quantiles)
		qs[i] = h.At(int64(rank)) / float64(tick.Millisecond)
	}
	return qs
}
