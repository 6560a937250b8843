package steady

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"

	"lorasim/bench/stats"
)

const (
	// fewBatches is the least number of batches of whole periods; see parts.
	fewBatches = 10
	// freedom is the number of degrees of freedom of the larger one of the standard errors.
	freedom = 15
	// upward widens the upper part of intervals of TTFT over seeds: few long queues determine the mean, and the runs
	// may have had fewer of them than others.
	upward = 1.25
	// A run with intervals has a standard error of the mean queue of at most mostError in theory, as a share of the
	// mean: 200 relaxation times of a queue with C = 1. See queueError.
	mostError = 0.1
	// A run with intervals has at least this many lifetimes of its requests, and independent bursts: three in each of
	// 20 batches.
	leastLifetimes, leastBursts = 60, 60
	// A run with a P99 TTFT has this many lifetimes: 10 among the highest 1 %. With fewer, most runs have no long queue
	// in it, and some have one that is all of it.
	tailLifetimes = 1000
	// Intervals cover if at least this share of the runs has one; see reach.
	leastPrinted = 0.02
	// Of the time, the level is rarely (2.5 %) more than rareLevel standard deviations above its mean.
	rareLevel = 1.96
	// margin is how much longer than needed a suggested run is, as runs of the same length differ. What the queue needs
	// is less certain: it gets queueMargin standard errors more, so that the run is long enough in 90 %.
	margin, queueMargin = 1.6, 1.28
	// mostLonger bounds a suggested length, as a multiple of the run's: more cannot be estimated.
	mostLonger = 1000
)

// student is the distribution of a mean, in standard errors.
var student = distuv.StudentsT{Mu: 0, Sigma: 1, Nu: freedom}

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

// P99TTFT is the JSON name of the percentile that has [Assessment.Tail].
const P99TTFT = "p99_ttft_ms"

// The means that have intervals.
const meanE2E, meanTTFT, meanTPOT = "mean_e2e_latency_ms", "mean_ttft_ms", "mean_tpot_ms"

// means returns the confidence intervals of the mean latencies after step warm, by batch means, and the means for whose
// interval the run is too short. samples is the number of independent requests that give the mean TTFT with the same
// accuracy.
//
// TPOT has Student's interval; its upper part is longer in runs that are hardly long enough (see reach). TTFT includes
// the wait, which is skewed: a run without a long queue has a mean that is too low and a standard error that is too
// small. So the standard error is at least that of theory, and the ends are those of stats.EndsAbove, farther up by
// unseen. The wait is the part of the mean above its smallest batch. E2E includes TTFT: its upper part is Student's or
// that of TTFT, whichever is longer.
func (r *Recorder) means(p *path, warm int) (
	samples float64, intervals []Interval, short []TooShort, floors []Floor,
) {
	start, k := p.parts(warm, batches)
	slots := r.slots.slots[start:len(p.flight)]
	ttft := estimateOf(slots, k, sumTTFT)
	if math.IsNaN(ttft.mean) {
		return 0, nil, nil, nil
	}
	requests, dispersion := p.arrivals(slots, start)
	theory := p.queueError(start, requests*(1+dispersion))
	wait := max(ttft.share(), theory) // standard error, as a share
	samples = independent(slots, ttft.mean, max(ttft.err, theory*ttft.above))
	lives, life := p.lifetimes(slots)
	// The tests look at the queue, the arrivals and the lifetimes of requests, not at how precise the means are: a run
	// without a long queue looks precise, and must not pass more easily. At most 1: the run is long enough.
	few, queue := max(leastBursts*dispersion/requests, leastLifetimes/lives), theory*theory/(mostError*mostError)
	lacks := max(few, queue)
	queue *= math.Exp(2 * queueMargin * min(wait, 1)) // the length that is needed grows with the square of the wait
	down, up := stats.TQuantile(0.975, min(freedom, float64(k-1))), reach(lacks, wait)
	low, high := stats.EndsAbove(ttft.mean, ttft.above, down*wait, up*wait)
	rise := math.Hypot(high-ttft.mean, unseenQueues(up)*p.unseen(start, k, life, requests))
	for _, m := range []struct {
		metric string
		lacks  float64
		sum    func(*slot) (total, n float64)
	}{{meanE2E, lacks, sumE2E}, {meanTTFT, max(lacks, life/lives/ttft.mean), sumTTFT}, {meanTPOT, lacks, sumTPOT}} {
		e := estimateOf(slots, k, m.sum)
		if math.IsNaN(e.mean) {
			continue
		}
		if m.metric != meanTPOT { // which is hardly skewed
			floors = append(floors, Floor{m.metric, 1000 * (e.mean - e.above)})
		}
		if m.lacks > 1 {
			if m.lacks > lacks { // the lifetimes of mean TTFT
				few = m.lacks
			}
			short = append(short, r.tooShort(m.metric, max(margin*few, queue)))
			continue
		}
		in := Interval{m.metric, e.mean - down*e.err, e.mean + up*e.err}
		switch m.metric {
		case meanTTFT:
			in.Low, in.High = low, e.mean+rise
		case meanE2E:
			in.High = max(in.High, e.mean+rise)
		}
		in.Low, in.High = 1000*in.Low, 1000*in.High
		intervals = append(intervals, in)
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

// estimateOf estimates a mean. Its standard error is the larger one of those of k and of k/2 batches.
func estimateOf(slots []slot, k int, sum func(*slot) (total, n float64)) estimate {
	many := batchSums(slots, k, sum)
	mean, err := many.standardError()
	_, second := batchSums(slots, k/2, sum).standardError()
	return estimate{mean, max(err, second), mean - many.least()}
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
	low, high := student.Quantile(0.975), student.Quantile(1-0.025*leastPrinted)
	if wait == 0 {
		return low
	}
	margin := -math.Log(min(longer, 1)) / (2 * wait)
	for range 24 {
		if z := (low + high) / 2; student.CDF(-z) > 0.025*student.CDF(margin-z) {
			low = z
		} else {
			high = z
		}
	}
	return low
}

// lifetimes returns the length of the run in lifetimes of its requests, and a lifetime, s: the mean remaining time of
// the requests in flight. With Poisson arrivals, their number is uncorrelated after about that time. If that number
// reaches a limit, such as the KV cache, requests wait about as long as the level lasts: a lifetime.
//
// The mean remaining time of a service S is E[S²]/2E[S], and the correlation of the number of requests in flight is the
// share of them that remains (W. Whitt, "The efficiency of one long run versus independent replications in steady-state
// simulation", Management Science 37(6), 1991, for M/G/infinity).
func (p *path) lifetimes(slots []slot) (n, life float64) {
	var all slot
	for i := range slots {
		all.add(&slots[i])
	}
	if all.e2e == 0 {
		return math.Inf(1), 0
	}
	life = all.e2eSquare / (2 * all.e2e)
	return float64(len(slots)) * p.width / life, life
}

// unseenQueues returns how many queues other runs may have on average if this run has none: of runs with n queues on
// average, exp(-n) have none. That share is the probability that a value is more than up standard errors too low.
func unseenQueues(up float64) float64 { return -math.Log(student.CDF(-up)) }

// unseen returns how much one queue that this run did not have would add to the mean latencies, s. A run may by chance
// have no queue at the limit of requests in flight, and then nothing in it shows that other runs have some. In a queue,
// as many requests wait as their number rarely exceeds its mean by, for as long as it does: a lifetime, or longer if
// arrivals come in bursts (the integral of the autocorrelation, from the variance of the means of batches).
func (p *path) unseen(start, k int, life, requests float64) float64 {
	level := p.flight[start:]
	_, variance := stats.MeanVariance(level)
	if !(variance > 0) {
		return 0
	}
	memory := 0.0
	for _, k := range []int{k, k / 2} {
		_, err := batchSum{batchMeans(level, k), slices.Repeat([]float64{1}, k)}.standardError()
		memory = max(memory, float64(len(level))*p.width*err*err/(2*variance))
	}
	return rareLevel * math.Sqrt(variance) * max(life, memory) / requests
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

// tooShort is the estimate for a metric whose interval needs a run that is longer by a factor.
func (r *Recorder) tooShort(metric string, longer float64) TooShort {
	return TooShort{metric, twoDigits(max(min(longer, mostLonger)*float64(r.requests), leastNeeded))}
}

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

// arrivals returns the number of requests after step from, and the index of dispersion of their counts: their
// variance, as a multiple of their mean.
func (p *path) arrivals(slots []slot, from int) (n, dispersion float64) {
	sent := make([]float64, len(slots))
	for i := range slots {
		sent[i] = float64(slots[i].arrived)
		if p.closed {
			sent[i] = float64(slots[i].sent)
		}
		n += sent[i]
	}
	start, parts := p.parts(from, 2*batches)
	sent = sent[start-from:]
	mean, variance := stats.MeanVariance(batchMeans(sent, parts))
	n = max(n, 1)
	if mean == 0 {
		return n, 0
	}
	return n, variance * float64(len(sent)/parts) / mean
}

// queueError returns the standard error of the mean queue after step from that theory gives, as a share of the mean.
// In heavy traffic a queue is a reflected Brownian motion (see relaxations): the mean over n relaxation times has the
// variance 2 C / n, as a share of the square of the mean, where C is the squared coefficient of variation of the queue.
// moves is the variance of arrivals less departures over the whole run: that of the arrivals, and one a departure.
func (p *path) queueError(from int, moves float64) float64 {
	mean, variance := stats.MeanVariance(p.queue[from:])
	if mean <= 0 || variance == 0 || p.closed { // a closed loop bounds the queue
		return 0
	}
	relaxations := moves / (4 * variance)
	return math.Sqrt(2 * variance / (mean * mean) / relaxations)
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
