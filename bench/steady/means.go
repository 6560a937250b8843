package steady

import (
	"fmt"
	"math"
	"slices"

	"lorasim/bench/stats"
)

// The constants of the intervals. They were chosen on half of the cases of BenchmarkArrivals (bench/scenario), and
// checked on the other half: lab/docs/steady.md has the coverage.
const (
	// fewBatches is the second number of batches: successive means of few, long batches are less correlated.
	fewBatches = batches / 2
	// freedom is the number of degrees of freedom of the largest of the standard errors.
	freedom = 15
	// shortRun widens intervals of runs of few relaxation times of the queue, since their batches are not independent:
	// the variance is (1 + shortRun/n) times larger after n of them.
	shortRun = 300
	// leastVariance is the least variance of mean E2E and TTFT: that of the mean queue in theory, as a share of the
	// square of the mean, is 2 C / n for n relaxation times of a queue whose squared coefficient of variation is C.
	// It is larger here, since runs whose queues happened to be short also have a low C, and batches that differ
	// little.
	leastVariance = 8
	// upward widens the upper part of intervals of TTFT: few long queues determine the mean, and a run may have had
	// fewer of them than others.
	upward = 1.25
	// widest is the largest half-width of an interval, as a multiple of the mean's distance from the smallest batch.
	widest = 1
	// intervalRelaxations is the least number of relaxation times of the queue. leastBursts is the least number of
	// independent bursts: requests divided by the index of dispersion of their arrivals.
	intervalRelaxations, leastBursts = 200, 70
	// A run needs these effective numbers of independent samples of the requests in flight and of the queue. TTFT
	// needs more: few long queues determine its mean, and a short run may have none of them.
	leastInFlight, leastInFlightTTFT = 28, 80
	leastQueue, leastQueueTTFT       = 60, 80
	// margin is how much longer than needed a suggested run is, as runs of the same length differ.
	margin = 1.6
	// mostLonger bounds a suggested length, as a multiple of the run's: more cannot be estimated.
	mostLonger = 1000
)

// A TooShort is a mean whose confidence interval needs a longer run.
type TooShort struct {
	Metric string `json:"metric"`          // JSON name, such as mean_ttft_ms
	Needed int64  `json:"requests_needed"` // estimated number of requests of a run with an interval
}

// String returns the text that takes the place of the interval.
func (s TooShort) String() string { return fmt.Sprintf("too short: needs about %d requests", s.Needed) }

// A Floor is the smallest mean of a part of a run: the part of the mean above it is that of waiting.
type Floor struct {
	Metric string
	Least  float64 // ms
}

// OverRuns estimates a mean with the given JSON name over the runs of several seeds. floors are those of the runs; NaN
// means unknown. A mean is skewed over seeds, as few of the runs have long queues.
func OverRuns(of stats.Sampling, metric string, values, floors []float64) stats.Estimate {
	wide := 1.0
	if metric == meanTTFT {
		wide = upward
	}
	known := slices.DeleteFunc(slices.Clone(floors), math.IsNaN)
	if len(known) == 0 {
		return stats.MeanOf(of, values)
	}
	return stats.MeanAbove(of, values, slices.Min(known), wide)
}

// Means lists the JSON names of the means that have intervals.
func Means() []string { return []string{meanE2E, meanTTFT, meanTPOT} }

// The means that have intervals.
const meanE2E, meanTTFT, meanTPOT = "mean_e2e_latency_ms", "mean_ttft_ms", "mean_tpot_ms"

// means returns the confidence intervals of the mean latencies after step warm, by batch
// means, and the means for whose interval the run is too short. samples is the number of
// independent requests that give the mean TTFT with the same accuracy.
//
// The standard error is the larger one of those of 20 and of 10 batches, each corrected for
// the autocorrelation of successive batches, as in Skart (A. Tafazzoli, J. R. Wilson, E. K.
// Lada, N. M. Steiger, "Performance of Skart: a skewness- and autoregression-adjusted
// batch-means procedure for simulation analysis", INFORMS Journal on Computing 23(2), 2011).
//
// Mean latencies of queues are skewed: a run without a long queue has a mean that is too low
// and a standard error that is too small. Skart adjusts the interval by the skewness of the
// batch means, which 20 batches tell badly. Here theory says how skewed they are. In heavy
// traffic the mean wait is inverse to the spare rate of the workers, whose estimate is nearly
// normal; so the inverse of the wait has a symmetric interval, and the standard error of the
// wait grows with its square. The wait is the part of the mean above its smallest batch. See
// stats.EndsAbove.
func (r *Recorder) means(p *path, warm int, relaxations float64) (
	samples float64, intervals []Interval, short []TooShort, floors []Floor,
) {
	slots := r.slots.slots[warm:len(p.flight)]
	lacks, lacksTTFT := p.lacks(slots, warm, relaxations)
	// Steps may be longer than the relaxation time, which then is that of the batches.
	times := max(relaxations, batches*batchLength(p.queue[warm:]))
	least := math.Sqrt(leastVariance * p.variation(warm) / times) // standard error, as a share
	for _, m := range []struct {
		metric       string
		lacks, least float64
		upward       float64
		sum          func(*slot) (total, n float64)
	}{
		{meanE2E, lacks, least, 1, func(s *slot) (float64, float64) { return s.e2e, float64(s.done) }},
		{meanTTFT, lacksTTFT, least, upward, func(s *slot) (float64, float64) { return s.ttft, float64(s.done) }},
		{meanTPOT, lacks, 0, 1, func(s *slot) (float64, float64) { return s.tpot, float64(s.decoded) }},
	} {
		many := batchSums(slots, batches, m.sum)
		mean, err := many.standardError()
		if math.IsNaN(mean) {
			continue
		}
		_, second := batchSums(slots, fewBatches, m.sum).standardError()
		err = max(err, second) * math.Sqrt(1+shortRun/relaxations)
		above := mean - many.least()
		err = max(err, above*m.least)
		half := stats.TQuantile(0.975, freedom) * err
		if m.metric == meanTTFT {
			samples = independent(slots, mean, err)
		}
		if m.metric != meanTPOT { // which is hardly skewed
			floors = append(floors, Floor{m.metric, 1000 * many.least()})
		}
		spread := 0.0
		if half > 0 {
			spread = half / above
		}
		if longer := max(m.lacks, square(spread/widest)); longer > 1 {
			short = append(short, r.tooShort(m.metric, longer))
			continue
		}
		low, high := stats.EndsAbove(mean, above, spread, m.upward*spread)
		intervals = append(intervals, Interval{m.metric, 1000 * low, 1000 * high})
	}
	return samples, intervals, short, floors
}

// variation returns the squared coefficient of variation of the queue after step from; 0: there is no queue.
func (p *path) variation(from int) float64 {
	mean, variance := stats.MeanVariance(p.queue[from:])
	if mean <= 0 {
		return 0
	}
	return variance / (mean * mean)
}

// tooShort is the estimate for a metric whose interval needs a run that is longer by a factor.
func (r *Recorder) tooShort(metric string, longer float64) TooShort {
	return TooShort{metric, twoDigits(min(margin*longer, mostLonger) * float64(r.requests))}
}

func square(x float64) float64 { return x * x }

// independent returns the number of independent requests whose mean TTFT has a standard
// error.
func independent(slots []slot, mean, err float64) float64 {
	var all slot
	for i := range slots {
		all.add(&slots[i])
	}
	n := float64(all.done)
	if err <= 0 {
		return n
	}
	return min(n, max(all.ttftSquare/n-mean*mean, 0)/(err*err))
}

// lacks returns by which factor a run is too short for the intervals of latencies, and for
// that of TTFT. At most 1: it is long enough. The tests look at the arrivals and at the number
// of requests, not at the latencies: a run whose latencies happen to be low must not pass
// more easily.
func (p *path) lacks(slots []slot, warm int, relaxations float64) (all, ttft float64) {
	sent := make([]float64, len(slots))
	requests := 0.0
	for i := range slots {
		n := slots[i].arrived
		if p.closed {
			n = slots[i].sent
		}
		sent[i] = float64(n)
		requests += sent[i]
	}
	counts := batchMeans(sent, 2*batches)
	mean, variance := stats.MeanVariance(counts)
	bursts := math.Inf(1)
	if variance > 0 {
		size := float64(len(slots) / (2 * batches))
		bursts = requests * mean / (variance * size)
	}
	both := max(leastBursts/bursts, intervalRelaxations/relaxations)
	flight, queue := batchLength(p.flight[warm:]), batchLength(p.queue[warm:])
	all = max(both, correlationTimes(leastInFlight)/flight, correlationTimes(leastQueue)/queue)
	ttft = max(both, correlationTimes(leastInFlightTTFT)/flight, correlationTimes(leastQueueTTFT)/queue)
	return all, ttft
}

// batchLength returns the length of the batches of a series in its correlation times, by the
// variance of their means as a share of that of the series; +Inf: the series is constant.
func batchLength(xs []float64) float64 {
	_, variance := stats.MeanVariance(xs)
	_, between := stats.MeanVariance(batchMeans(xs, batches))
	if between <= 0 {
		return math.Inf(1)
	}
	return correlationTimes(batches * variance / between)
}

// correlationTimes returns the length of a batch in correlation times, if the mean over all
// batches is as accurate as that of some independent samples. For a correlation that decays
// exponentially, the variance of the mean of a batch of length b is 2(b-1+exp(-b))/b² of that of
// a sample.
func correlationTimes(samples float64) float64 {
	share := min(max(batches/samples, 1e-6), 0.98)
	low, high := 1e-3, 4/share
	for range 50 {
		b := (low + high) / 2
		if 2*(b-1+math.Exp(-b)) > share*b*b {
			low = b
		} else {
			high = b
		}
	}
	return low
}

// A batchSum has the totals of batches, and the numbers of requests.
type batchSum struct{ total, n []float64 }

// batchSums returns the sums of k equal batches. It leaves out slots at the start that do not
// fill a batch.
func batchSums(slots []slot, k int, of func(*slot) (total, n float64)) batchSum {
	size := len(slots) / k
	slots = slots[len(slots)-k*size:]
	b := batchSum{make([]float64, k), make([]float64, k)}
	for i := range b.total {
		for j := range size {
			t, n := of(&slots[i*size+j])
			b.total[i], b.n[i] = b.total[i]+t, b.n[i]+n
		}
	}
	return b
}

// least returns the smallest mean of a batch.
func (b batchSum) least() float64 {
	least := math.Inf(1)
	for i, n := range b.n {
		if n > 0 {
			least = min(least, b.total[i]/n)
		}
	}
	return least
}

// mostAlike is the largest autocorrelation of successive batches that counts.
const mostAlike = 0.9

// standardError returns a mean over batches of unequal numbers of requests, and its standard
// error. The mean is NaN if there are no requests. A positive first-order autocorrelation of
// the residuals makes the standard error larger.
func (b batchSum) standardError() (mean, err float64) {
	k := float64(len(b.n))
	var total, n float64
	for i := range b.n {
		total, n = total+b.total[i], n+b.n[i]
	}
	if n == 0 {
		return math.NaN(), 0
	}
	mean = total / n
	left := make([]float64, len(b.n)) // residuals of the batches, per request
	for i := range left {
		left[i] = (b.total[i] - mean*b.n[i]) / (n / k)
	}
	_, variance := stats.MeanVariance(left)
	alike := min(max(stats.LagOne(left), 0), mostAlike)
	return mean, math.Sqrt(variance / k * (1 + alike) / (1 - alike))
}
