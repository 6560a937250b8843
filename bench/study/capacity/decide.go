package capacity

import (
	"slices"

	"lorasim/bench/stats"

	"gonum.org/v1/gonum/stat"
)

const (
	// errorLevel is the probability with which a candidate that fails is accepted,
	// and that with which one that holds is rejected.
	errorLevel = 0.025
	// maxLooks is the number of looks at the runs of one candidate, see lookLevel. lengthLooks is that number where
	// runs get longer instead of more, with the default budget.
	maxLooks, lengthLooks = 8, 6
	// trendLevel is the error level of the test for a trend within runs. A false
	// alarm costs longer runs, never a wrong answer.
	trendLevel = 0.025
	// growthLimit: queues grow if they take more than this share of the arrivals.
	growthLimit = 0.005
	// growthMargin: queues certainly do not grow if they take less than this share.
	growthMargin = 0.01
)

// lookLevel is the error level of a look, from 0. The levels of all looks, and of the
// test hopeless, add up to errorLevel: by the union bound the decision is wrong with that probability at
// most, however dependent the looks are, and whichever of them is the last. Each
// look has twice the level of the one before, as it has twice the runs (Lan and
// DeMets, Biometrika 70, 1983): early looks decide only what is clear.
func lookLevel(look, looks int) float64 {
	return (errorLevel - quickLevel) * float64(int(1)<<look) / float64(int(1)<<looks-1)
}

// sample is the outcome of one run.
type sample struct {
	value  float64 // attainment, or 1 and 0 for a run that holds and one that fails
	trend  float64 // attainment in the second half of the part that counts less that in its first half
	growth float64 // of the queues, requests per arrival
}

// A Decision is the outcome of a candidate's runs.
type Decision string

// The values of Decision.
const (
	Holds      Decision = "holds"
	Fails      Decision = "fails"
	Overloaded Decision = "overloaded" // fails, because queues grow without bound
	Undecided  Decision = "undecided"  // too close to the target for the budget
	// Likely: the budget ended before the test did, but the plain interval of the mean is above the target.
	Likely Decision = "likely"
)

// rule decides whether a candidate meets its target.
type rule struct {
	target float64 // of the mean value
	binary bool    // values are 0 and 1
	closed bool    // queues cannot grow, or are meant to: they are not tested
	spread bool    // values are of resamples: their spread is the error of one workload's mean
	level  float64 // one-sided error level of a look
	// unseen is what one more run would miss in a bad time. A candidate is accepted
	// only if it holds with that run: bad times may be so rare that the first few runs
	// show none, which is why their spread would say too little.
	unseen float64
}

// badTime is what a run of some requests misses in a bad time: three times what may
// be missed of shortest/2 requests, or a tenth of the requests more than that.
func badTime(target float64, requests int64) float64 {
	miss := min(3*(1-target), 1-target+0.1)
	if requests > shortest/2 {
		miss *= float64(shortest/2) / float64(requests)
	}
	return miss
}

// look returns a decision, or Undecided. transient means that the runs are too short: their means still change with
// the length.
func (r *rule) look(samples []sample) (d Decision, transient bool) {
	values, trends, growths := columns(samples)
	worse, better := trend(trends)
	growing, grows := r.growth(growths, r.level)
	// A trend is extrapolated: what the mean lost or gained within the run, it may lose
	// or gain again, twice if the trend is significant.
	low, high := slices.Clone(values), slices.Clone(values)
	drift := stat.Mean(trends, nil)
	for i := range values {
		low[i] += min(drift, 0)
		high[i] += max(drift, 0)
		if worse {
			low[i] = max(values[i]+2*trends[i], 0)
		}
		if better {
			high[i] = min(values[i]+2*trends[i], 1)
		}
	}
	if r.unseen > 0 && !r.spread {
		low = append(low, max(stat.Mean(low, nil)-r.unseen, 0))
	}
	switch lower, upper := r.lower(low, r.level), r.upper(high, r.level); {
	case grows:
		return Overloaded, false
	case lower >= r.target-rounding && !growing:
		return Holds, false
	case upper < r.target-rounding:
		return Fails, false
	}
	return Undecided, worse || better || growing
}

// growth tests the growth of the queues: growing, if it cannot be excluded; grows,
// if it is certain.
func (r *rule) growth(growths []float64, level float64) (growing, grows bool) {
	if r.closed {
		return false, false
	}
	low, _ := stats.MeanInterval(growths, level)
	_, high := stats.MeanInterval(growths, level)
	return high > growthMargin, low > growthLimit
}

// trend reports whether the attainment is getting worse, or better.
func trend(trends []float64) (worse, better bool) {
	low, high := stats.MeanInterval(trends, trendLevel)
	return high < 0, low > 0
}

func (r *rule) lower(values []float64, level float64) float64 {
	low, _ := r.interval(values, level)
	return low
}

func (r *rule) upper(values []float64, level float64) float64 {
	_, high := r.interval(values, level)
	return high
}

// interval is the confidence interval of the mean value; each end is wrong with
// probability level.
func (r *rule) interval(values []float64, level float64) (low, high float64) {
	switch {
	case r.binary:
		return stats.ProportionInterval(values, level)
	case r.spread:
		low, high = stats.ResampledMeanInterval(values, level)
		return max(low, 0), min(high, 1)
	}
	low, high = stats.SkewedMeanInterval(values, level)
	return max(low, 0), min(high, 1)
}

func columns(samples []sample) (values, trends, growths []float64) {
	for _, s := range samples {
		values, trends, growths = append(values, s.value), append(trends, s.trend), append(growths, s.growth)
	}
	return values, trends, growths
}
