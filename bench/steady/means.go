package steady

import (
	"math"

	"lorasim/bench/stats"
)

// shortBatch is the length below which a batch is short, in relaxation times of the queue.
const shortBatch = 10

// means returns the confidence intervals of the mean latencies after step warm, by batch
// means. samples is the number of independent requests that give the mean TTFT with the same
// accuracy. Batches of few relaxation times of the queue make an interval too narrow. So
// theory sets a smallest width: over n relaxation times, the variance of the mean length of
// a queue in heavy traffic is 2/n of the variance of the length.
func (r *Recorder) means(p *path, warm int, relaxations float64) (samples float64, intervals []Interval) {
	slots := r.slots.slots[warm:len(p.flight)]
	size := len(slots) / batches
	slots = slots[len(slots)-batches*size:]
	sums := make([]slot, batches)
	_, variance := stats.MeanVariance(p.queue[warm:])
	// the standard error of the mean wait, s, if batches are short
	waiting := math.Sqrt(variance*2/relaxations*min(1, shortBatch*batches/relaxations)) / p.rate
	var all slot
	for k := range sums {
		for i := range size {
			sums[k].add(&slots[k*size+i])
		}
		all.add(&sums[k])
	}
	for _, m := range []struct {
		metric string
		waits  bool // the latency includes the time in the queue
		sum    func(*slot) (total, n float64)
	}{
		{"mean_e2e_latency_ms", true, func(s *slot) (float64, float64) { return s.e2e, float64(s.done) }},
		{"mean_ttft_ms", true, func(s *slot) (float64, float64) { return s.ttft, float64(s.done) }},
		{"mean_tpot_ms", false, func(s *slot) (float64, float64) { return s.tpot, float64(s.decoded) }},
	} {
		mean, err, freedom := ratio(sums, m.sum)
		if math.IsNaN(mean) {
			continue
		}
		if m.waits {
			err = max(err, waiting)
		}
		half := stats.TQuantile(0.975, freedom) * err
		intervals = append(intervals, Interval{m.metric, 1000 * (mean - half), 1000 * (mean + half)})
		if n := float64(all.done); m.metric == "mean_ttft_ms" {
			samples = n
			if variance := all.ttftSquare/n - mean*mean; err > 0 {
				samples = min(n, max(variance, 0)/(err*err))
			}
		}
	}
	return samples, intervals
}

// ratio returns a mean over batches of unequal numbers of requests, its standard error, and
// the degrees of freedom of the standard error. The mean is NaN if a batch has no request.
// A positive first-order autocorrelation of the residuals reduces the effective number of
// batches.
func ratio(batch []slot, of func(*slot) (total, n float64)) (mean, err, freedom float64) {
	k := float64(len(batch))
	var total, n float64
	for i := range batch {
		t, m := of(&batch[i])
		if m == 0 {
			return math.NaN(), 0, 0
		}
		total, n = total+t, n+m
	}
	mean = total / n
	left := make([]float64, len(batch)) // residuals of the batches, per request
	for i := range batch {
		t, m := of(&batch[i])
		left[i] = (t - mean*m) / (n / k)
	}
	_, variance := stats.MeanVariance(left)
	alike := max(stats.LagOne(left), 0)
	fewer := (1 - alike) / (1 + alike)
	return mean, math.Sqrt(variance / (k * fewer)), k*fewer - 1
}
