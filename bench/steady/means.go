package steady

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"

	"lorasim/bench/stats"
)

// The constants of the intervals. They were chosen on half of the cases of BenchmarkArrivals (bench/scenario), and
// checked on the other half: lab/docs/steady.md has the coverage.
const (
	// fewBatches is the least number of batches of whole periods; see parts.
	fewBatches = 10
	// finely is the number of batches that tell the correlation time of the requests in flight.
	finely = 4 * batches
	// freedom is the number of degrees of freedom of the largest of the standard errors.
	freedom = 15
	// shortRun widens intervals of runs of few relaxation times of the queue, since their batches are not independent:
	// the variance is (1 + shortRun/n) times larger after n of them.
	shortRun = 300
	// leastVariance is the least variance of mean E2E and TTFT: that of the mean queue in theory, as a share of the
	// square of the mean, is 2 C / n for n relaxation times of a queue whose squared coefficient of variation is C.
	leastVariance = 2
	// upward widens the upper part of intervals of TTFT over seeds: few long queues determine the mean, and the runs
	// may have had fewer of them than others.
	upward = 1.25
	// widest is the largest half-width of an interval, as a multiple of the mean's distance from the smallest batch.
	// For TTFT it is also the largest share that an unseen queue may add to the mean; see unseen.
	widest = 1
	// intervalRelaxations is the least number of relaxation times of the queue. leastBursts is the least number of
	// independent bursts: requests divided by the index of dispersion of their arrivals. TTFT needs more: few long
	// queues determine its mean.
	intervalRelaxations          = 200
	leastBursts, leastBurstsTTFT = 70, 300
	// A run needs these effective numbers of independent samples of the requests in flight and of the queue.
	leastInFlight, leastQueue = 28, 60
	// Intervals cover if at least this share of the runs has one; see reach.
	leastPrinted = 0.02
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
// stats.EndsAbove, reach and unseen for the upper end.
func (r *Recorder) means(p *path, warm int, relaxations float64) (
	samples float64, intervals []Interval, short []TooShort, floors []Floor,
) {
	start, k := p.parts(warm, batches)
	slots := r.slots.slots[start:len(p.flight)]
	lacks, lacksTTFT, lacksQueue := p.lacks(slots, start, k, relaxations)
	// Steps may be longer than the relaxation time, which then is that of the batches.
	times := max(relaxations, float64(k)*batchLength(p.queue[start:], k))
	least := math.Sqrt(leastVariance * p.variation(start) / times) // standard error, as a share
	widen, unseen := math.Sqrt(1+shortRun/relaxations), p.unseen(warm)
	ttft := estimateOf(slots, k, sumTTFT, widen, least)
	down := stats.TQuantile(0.975, min(freedom, float64(k-1)))
	// above returns how much higher mean TTFT may be in other runs, if this run is too short by a factor below 1.
	above := func(longer float64) float64 {
		_, high := stats.EndsAbove(ttft.mean, ttft.above, 0, reach(longer, ttft.share())*ttft.share())
		return math.Hypot(high-ttft.mean, unseen)
	}
	for _, m := range []struct {
		metric       string
		lacks, least float64
		sum          func(*slot) (total, n float64)
	}{{meanE2E, lacks, least, sumE2E}, {meanTTFT, lacksTTFT, least, sumTTFT}, {meanTPOT, lacks, 0, sumTPOT}} {
		e := estimateOf(slots, k, m.sum, widen, m.least)
		if math.IsNaN(e.mean) {
			continue
		}
		longer := max(m.lacks, square(down*e.share()/widest))
		if m.metric == meanTTFT {
			samples = independent(slots, e.mean, e.err)
			longer = max(longer, unseen/e.mean/widest)
		}
		if m.metric != meanTPOT { // which is hardly skewed
			floors = append(floors, Floor{m.metric, 1000 * (e.mean - e.above)})
		}
		if longer > 1 {
			short = append(short, r.tooShort(m.metric, longer))
			continue
		}
		up := down
		if m.metric == meanE2E {
			up = reach(lacksQueue, e.share())
		}
		low, high := stats.EndsAbove(e.mean, e.above, down*e.share(), up*e.share())
		switch m.metric {
		case meanTTFT:
			high = e.mean + above(longer)
		case meanE2E:
			high = e.mean + math.Hypot(high-e.mean, above(lacksQueue))
		}
		intervals = append(intervals, Interval{m.metric, 1000 * low, 1000 * high})
	}
	return samples, intervals, short, floors
}

func sumE2E(s *slot) (total, n float64)  { return s.e2e, float64(s.done) }
func sumTTFT(s *slot) (total, n float64) { return s.ttft, float64(s.done) }
func sumTPOT(s *slot) (total, n float64) { return s.tpot, float64(s.decoded) }

// An estimate is a mean with its standard error, and how far it is above its smallest batch.
type estimate struct{ mean, err, above float64 }

// share returns the standard error as a share of the part above the smallest batch.
func (e estimate) share() float64 {
	if !(e.err > 0) {
		return 0
	}
	return e.err / e.above
}

// estimateOf estimates a mean by k batches. widen is a factor of the standard error, least its least share.
func estimateOf(slots []slot, k int, sum func(*slot) (total, n float64), widen, least float64) estimate {
	many := batchSums(slots, k, sum)
	mean, err := many.standardError()
	_, second := batchSums(slots, k/2, sum).standardError()
	above := mean - many.least()
	return estimate{mean, max(max(err, second)*widen, above*least), above}
}

// reach returns the half-width of the upper part of an interval, in standard errors. Runs that are too short have no
// interval, and the queue decides which are: so runs whose queues happened to be short have one more often, and their
// means are too low. longer is how much too short the run is, below 1, and wait the standard error of the wait, as a
// share. The length that is needed grows with the square of the wait. So if the true mean is z standard errors above
// that of the run, the share of runs with an interval is P(t < margin - z). The upper end is the largest mean that has
// so low a run in 2.5 % of the runs with an interval, as long as at least leastPrinted of the runs have one.
//
// Source: J. D. Lee, D. L. Sun, Y. Sun, J. E. Taylor, "Exact post-selection inference, with application to the lasso",
// Annals of Statistics 44(3), 2016: an estimate that is reported only below a limit is truncated there.
func reach(longer, wait float64) float64 {
	t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: freedom}
	low, high := t.Quantile(0.975), t.Quantile(1-0.025*leastPrinted)
	if wait == 0 {
		return low
	}
	margin := -math.Log(min(longer, 1)) / (2 * wait)
	for range 24 {
		if z := (low + high) / 2; t.CDF(-z) > 0.025*t.CDF(margin-z) {
			low = z
		} else {
			high = z
		}
	}
	return low
}

// unseen returns how much one queue that this run did not have would add to the mean latencies, s. Requests in flight
// vary slowly; if they reach a limit, such as the KV cache, requests wait about as long as the level lasts: a
// correlation time. A run may by chance have no such queue, and then nothing in it shows that other runs have some.
// Of a run of n correlation times, one n-th of the requests would wait that long.
func (p *path) unseen(warm int) float64 {
	start, k := p.parts(warm, finely)
	n := float64(k) * batchLength(p.flight[start:], k)
	return float64(len(p.flight)-start) * p.width / (n * n)
}

// parts returns from where on a run is cut into batches, and the number of batches, at most most. Every run has all
// of a rate that repeats, so that is not chance: if the run has enough periods, a batch has whole ones.
func (p *path) parts(warm, most int) (start, k int) {
	const nearly = 0.02 // of a period
	period := p.period / p.width
	periods := int(float64(len(p.flight)-warm)/max(period, 1) + nearly)
	if period < 1 || periods < fewBatches {
		return warm, most
	}
	each := (periods + most - 1) / most
	k = periods / each
	return max(len(p.flight)-int(float64(k*each)*period), warm), k
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

// lacks returns by which factor a run is too short for the intervals of latencies, for that
// of TTFT, and by its queue alone. At most 1: it is long enough. The tests look at the arrivals and at the number
// of requests, not at the latencies: a run whose latencies happen to be low must not pass
// more easily.
func (p *path) lacks(slots []slot, start, k int, relaxations float64) (all, ttft, queue float64) {
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
	from, parts := p.parts(start, 2*batches)
	sent = sent[from-start:]
	counts := batchMeans(sent, parts)
	mean, variance := stats.MeanVariance(counts)
	bursts := math.Inf(1)
	if variance > 0 {
		size := float64(len(sent) / parts)
		bursts = requests * mean / (variance * size)
	}
	queue = max(leastBursts/bursts, intervalRelaxations/relaxations,
		correlationTimes(float64(k)/leastQueue)/batchLength(p.queue[start:], k))
	all = max(queue, correlationTimes(float64(k)/leastInFlight)/batchLength(p.flight[start:], k))
	return all, max(all, leastBurstsTTFT/bursts), queue
}

// batchLength returns the length of k batches of a series in its correlation times, by the
// variance of their means as a share of that of the series; +Inf: the series is constant.
func batchLength(xs []float64, k int) float64 {
	_, variance := stats.MeanVariance(xs)
	_, between := stats.MeanVariance(batchMeans(xs, k))
	if between <= 0 {
		return math.Inf(1)
	}
	return correlationTimes(between / variance)
}

// correlationTimes returns the length of a batch in correlation times, if the variance of the
// mean of a batch is a share of that of a sample. For a correlation that decays exponentially,
// the share of a batch of length b is 2(b-1+exp(-b))/b².
func correlationTimes(share float64) float64 {
	share = min(max(share, 1e-6), 0.98)
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
