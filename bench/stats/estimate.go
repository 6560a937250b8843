package stats

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// An Estimate is a mean over seeds with its 95 % confidence interval. The meaning of the
// interval depends on the Sampling:
//
//   - Fresh: it covers the mean over all workloads that could be drawn, by Student's t
//     distribution. That of MeanAbove is longer upward, that of PairedOf away from 0.
//   - Resampled: it covers the mean of the population of the recorded workload. The
//     standard deviation of the resampled values is the standard error of the recorded
//     workload's own value (the bootstrap), and more resamples do not make it smaller. With
//     n resamples the half width is t(n-1) x Std x sqrt(1 + 1/n), where 1/n is the error of
//     their mean.
//   - OneWorkload: there is no interval.
//   - WithinRuns: it comes from the intervals within two single runs.
//
// Std, Low and High are NaN if unknown.
type Estimate struct {
	N         int      // number of values
	Mean      float64  // NaN if N is 0
	Std       float64  // sample standard deviation of the values, with n-1
	Low, High float64  // ends of the interval
	Of        Sampling // what the seeds draw
}

// Mean estimates a mean from independent values, such as the results of several seeds that
// draw fresh workloads. It ignores values that are NaN.
func Mean(values []float64) Estimate { return MeanOf(Fresh, values) }

// MeanOf estimates a mean from the results of several seeds with sampling of. It ignores
// values that are NaN.
func MeanOf(of Sampling, values []float64) Estimate {
	xs := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	e := Estimate{N: len(xs), Mean: math.NaN(), Std: math.NaN(), Low: math.NaN(), High: math.NaN(), Of: of}
	switch {
	case e.N == 1:
		e.Mean = xs[0]
	case e.N > 1:
		e.Mean, e.Std = stat.MeanStdDev(xs, nil)
		half := e.HalfAt(0.05)
		e.Low, e.High = e.Mean-half, e.Mean+half
	}
	return e
}

// MeanAbove is MeanOf for values whose part above a floor is skewed, as the waiting part of mean latencies is: the ends
// of the interval are those of EndsAbove. upward widens its upper part. Without a floor (NaN) it is Student's.
func MeanAbove(of Sampling, values []float64, floor, upward float64) Estimate {
	e := MeanOf(of, values)
	if above := e.Mean - floor; of == Fresh && e.HasInterval() && above > 0 {
		share := e.Half() / above
		e.Low, e.High = EndsAbove(e.Mean, above, share, upward*share)
	}
	return e
}

// EndsAbove returns the ends of an interval of a mean, of which the part above varies. down and up are half the width
// of Student's interval of it, as a share. In heavy traffic a mean wait is inverse to the spare rate of the workers,
// whose estimate is nearly normal. So the upper end is that of the inverse, 1/(1-up), to the third order of its
// logarithm, and stays finite; from up = 1 on it grows like Student's. The lower end is between that of the inverse
// and Student's.
func EndsAbove(mean, above, down, up float64) (low, high float64) {
	rest, x := mean-above, min(up, 1)
	return rest + above*math.Exp(-down), rest + above*max(math.Exp(x+x*x/2+x*x*x/3), 1+up)
}

// Paired estimates the mean of a[i]-b[i]. For two policies with the same random numbers its
// interval is far narrower than that of the difference of their means.
func Paired(a, b []float64) Estimate { return PairedOf(Fresh, a, b) }

// steepest is the largest half-width of a difference's interval, as a share of the difference, whose skewness counts.
const steepest = 0.5

// PairedOf is like Paired, for seeds with sampling of. Differences between latencies are a share of the waits, and as
// skewed: away from 0, as few seeds have long queues (lab/docs/steady.md). So the end of the interval away from 0 is
// that of EndsAbove. The end towards 0 is Student's, as is P.
func PairedOf(of Sampling, a, b []float64) Estimate {
	d := make([]float64, len(a))
	for i := range a {
		d[i] = a[i] - b[i]
	}
	e := MeanOf(of, d)
	if of == Fresh && e.HasInterval() && e.Mean != 0 {
		size := math.Abs(e.Mean)
		share := min(e.Half()/size, steepest)
		_, high := EndsAbove(size, size, 0, share)
		farther := high - size*(1+share)
		if e.Mean > 0 {
			e.High += farther
		} else {
			e.Low -= farther
		}
	}
	return e
}

// HasInterval reports whether Low and High are known.
func (e Estimate) HasInterval() bool { return (e.N > 1 || e.Of == WithinRuns) && e.High >= e.Low }

// Half returns half the width of the interval.
func (e Estimate) Half() float64 { return (e.High - e.Low) / 2 }

// HalfAt returns half the width of the interval that misses the true mean with probability
// miss; NaN for fewer than two values.
func (e Estimate) HalfAt(miss float64) float64 {
	if e.N < 2 {
		return math.NaN()
	}
	return TQuantile(1-miss/2, float64(e.N-1)) * e.standardError()
}

// standardError returns the standard error of the mean; NaN if unknown.
func (e Estimate) standardError() float64 {
	n := float64(e.N)
	switch e.Of {
	case Resampled:
		return e.Std * math.Sqrt(1+1/n)
	case OneWorkload:
		return math.NaN()
	}
	return e.Std / math.Sqrt(n)
}

// P returns the p-value of a two-sided t-test against a true mean of 0; NaN without an
// interval. For WithinRuns the test uses the normal distribution.
func (e Estimate) P() float64 {
	switch {
	case e.Of == WithinRuns:
		half := e.Mean - e.Low // the side that faces 0
		if e.Mean < 0 {
			half = e.High - e.Mean
		}
		return 2 * distuv.UnitNormal.CDF(-math.Abs(e.Mean)/(half/distuv.UnitNormal.Quantile(0.975)))
	case e.N < 2 || e.Of == OneWorkload:
		return math.NaN()
	case e.Mean == 0:
		return 1
	case e.Std == 0:
		return 0
	}
	return 2 * distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(e.N - 1)}.CDF(-math.Abs(e.Mean)/e.standardError())
}
