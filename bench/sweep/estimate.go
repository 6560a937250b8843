package sweep

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"lorasim/bench/scenario"
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
// NaN where there is nothing to tell the interval from.
type Estimate struct {
	N         int
	Mean      float64
	Std       float64 // of the values, with n-1
	Low, High float64
	Of        scenario.Sampling
}

// WithinRuns marks a difference of two single runs, with an interval from the
// intervals within them.
const WithinRuns scenario.Sampling = "one run each"

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
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(e.N - 1)}.Quantile(1-miss/2) * e.standardError()
}

// standardError is that of the mean; NaN where it is not known.
func (e Estimate) standardError() float64 {
	n := float64(e.N)
	switch e.Of {
	case scenario.Resampled:
		return e.Std * math.Sqrt(1+1/n)
	case scenario.OneWorkload:
		return math.NaN()
	}
	return e.Std / math.Sqrt(n)
}

// P is the chance of a mean at least so far from 0 if the true one is 0, by a
// two-sided t-test; NaN without an interval.
func (e Estimate) P() float64 {
	switch {
	case e.Of == WithinRuns:
		return 2 * distuv.UnitNormal.CDF(-math.Abs(e.Mean)/(e.Half()/distuv.UnitNormal.Quantile(0.975)))
	case e.N < 2 || e.Of == scenario.OneWorkload:
		return math.NaN()
	case e.Mean == 0:
		return 1
	case e.Std == 0:
		return 0
	}
	return 2 * distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(e.N - 1)}.CDF(-math.Abs(e.Mean)/e.standardError())
}

// Mean estimates a mean from independent values, such as the results of several
// seeds that draw fresh workloads. Values that are NaN do not count.
func Mean(values []float64) Estimate { return MeanOf(scenario.Fresh, values) }

// MeanOf estimates a mean from the results of several seeds that draw what of says.
func MeanOf(of scenario.Sampling, values []float64) Estimate {
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
func Paired(a, b []float64) Estimate { return PairedOf(scenario.Fresh, a, b) }

// PairedOf is Paired for seeds that draw what of says.
func PairedOf(of scenario.Sampling, a, b []float64) Estimate {
	d := make([]float64, len(a))
	for i := range a {
		d[i] = a[i] - b[i]
	}
	return MeanOf(of, d)
}

// IntervalNote says in a few words what the means of n seeds are over, and what
// their intervals tell; resample is the scenario's setting.
func IntervalNote(of scenario.Sampling, n int, resample string) string {
	switch {
	case of == scenario.OneWorkload && n == 1:
		return "one workload: no interval (see --resample)"
	case of == scenario.OneWorkload:
		return fmt.Sprintf("one workload: no interval (see --resample); means over %d seeds, which decide ties alone", n)
	case of == scenario.Resampled && n > 1:
		return fmt.Sprintf("means over %d resamples of one workload (%s); ± half of the 95 %% interval of its mean, from their spread", n, resample)
	case of == scenario.Resampled:
		return fmt.Sprintf("one resample of a workload (%s): no interval", resample)
	case n > 1:
		return fmt.Sprintf("means over %d seeds, ± half of the 95 %% confidence interval", n)
	}
	return "one seed: no interval"
}

// Intervals says what the intervals of the tables tell.
func (t *Tables) Intervals(seeds int) string {
	var notes []string
	for _, p := range t.Points {
		if n := IntervalNote(p.Sampling, seeds, p.Resample); !slices.Contains(notes, n) {
			notes = append(notes, n)
		}
	}
	return strings.Join(notes, ";\n")
}
