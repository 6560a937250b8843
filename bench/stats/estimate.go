package stats

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Estimate is a mean over seeds with its 95 % interval. What the interval is about
// depends on what the seeds draw:
//
//   - Fresh workloads: the mean over all workloads that could be drawn, by Student's
//     t distribution.
//   - Resamples of one recorded workload: the mean over all workloads that the
//     recorded one could have been. The standard deviation of the resampled values is
//     the standard error of the recorded workload's own value (the bootstrap), and
//     more resamples do not make it smaller. With n resamples the half width is
//     t(n-1) x Std x sqrt(1 + 1/n), where 1/n is the error of their mean.
//   - One workload: there is no interval.
//
// Std, Low and High are NaN where they are unknown.
type Estimate struct {
	N         int
	Mean      float64
	Std       float64 // of the values, with n-1
	Low, High float64
	Of        Sampling
}

// Mean estimates a mean from independent values, such as the results of several
// seeds that draw fresh workloads. Values that are NaN do not count.
func Mean(values []float64) Estimate { return MeanOf(Fresh, values) }

// MeanOf estimates a mean from the results of several seeds that draw what of says.
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

// Paired estimates the mean of a[i]-b[i]: of two policies that saw the same
// random numbers, it is far narrower than the difference of their means.
func Paired(a, b []float64) Estimate { return PairedOf(Fresh, a, b) }

// PairedOf is Paired for seeds that draw what of says.
func PairedOf(of Sampling, a, b []float64) Estimate {
	d := make([]float64, len(a))
	for i := range a {
		d[i] = a[i] - b[i]
	}
	return MeanOf(of, d)
}

// HasInterval says whether Low and High are known.
func (e Estimate) HasInterval() bool { return (e.N > 1 || e.Of == WithinRuns) && e.High >= e.Low }

// Half is half the width of the interval.
func (e Estimate) Half() float64 { return (e.High - e.Low) / 2 }

// HalfAt is half the width of the interval that misses the true mean with the
// given chance.
func (e Estimate) HalfAt(miss float64) float64 {
	if e.N < 2 {
		return math.NaN()
	}
	return TQuantile(1-miss/2, float64(e.N-1)) * e.standardError()
}

// standardError is that of the mean; NaN where it is not known.
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

// P is the p-value of a two-sided t-test against a true mean of 0; NaN without an
// interval.
func (e Estimate) P() float64 {
	switch {
	case e.Of == WithinRuns:
		return 2 * distuv.UnitNormal.CDF(-math.Abs(e.Mean)/(e.Half()/distuv.UnitNormal.Quantile(0.975)))
	case e.N < 2 || e.Of == OneWorkload:
		return math.NaN()
	case e.Mean == 0:
		return 1
	case e.Std == 0:
		return 0
	}
	return 2 * distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(e.N - 1)}.CDF(-math.Abs(e.Mean)/e.standardError())
}
