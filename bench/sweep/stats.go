package sweep

import (
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Confidence of the intervals.
const Confidence = 0.95

// Estimate is a mean with its confidence interval. NaN where there is nothing
// to tell it from: the interval of fewer than two values.
type Estimate struct {
	N         int
	Mean      float64
	Std       float64 // of the values, with n-1
	Low, High float64
}

// Half is half the width of the interval.
func (e Estimate) Half() float64 { return (e.High - e.Low) / 2 }

// Mean estimates a mean from independent values, such as the results of several
// seeds, by Student's t distribution with n-1 degrees of freedom. Values that
// are NaN do not count.
func Mean(values []float64) Estimate {
	var xs []float64
	for _, v := range values {
		if !math.IsNaN(v) {
			xs = append(xs, v)
		}
	}
	e := Estimate{N: len(xs), Mean: math.NaN(), Std: math.NaN(), Low: math.NaN(), High: math.NaN()}
	switch e.N {
	case 0:
		return e
	case 1:
		e.Mean = xs[0]
		return e
	}
	e.Mean, e.Std = stat.MeanStdDev(xs, nil)
	t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(e.N - 1)}.Quantile((1 + Confidence) / 2)
	half := t * e.Std / math.Sqrt(float64(e.N))
	e.Low, e.High = e.Mean-half, e.Mean+half
	return e
}

// Paired estimates the mean of a[i]-b[i]: of two policies that saw the same
// random numbers, it is far narrower than the difference of their means.
func Paired(a, b []float64) Estimate {
	d := make([]float64, 0, len(a))
	for i := range a {
		if i < len(b) {
			d = append(d, a[i]-b[i])
		}
	}
	return Mean(d)
}
