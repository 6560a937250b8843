// Package validate holds predictions of the simulator against measured runs:
// it simulates every run of a table of measurements, or of a folder of
// serving-benchmark logs, and says how far off each metric is.
//
//	runs, err := validate.ReadRuns(f, "runs.csv")
//	hist, err := validate.ReadHistograms(g, "histograms.json")
//	ps, err := validate.Simulate(ctx, runs, hist, validate.Options{Profile: p, Seeds: 8})
//	validate.NewReport(ps).WriteText(os.Stdout)
//
// The single lengths of the requests of those runs were not recorded. They are
// drawn, over several seeds, and what is predicted is the mean of the metric
// over the seeds.
package validate

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
)

// Metric is one measured number of a run.
type Metric string

// The metrics that are compared.
const (
	Duration  Metric = "duration"   // s
	MeanE2E   Metric = "mean_e2e"   // ms
	MedianE2E Metric = "median_e2e" // ms
	P99E2E    Metric = "p99_e2e"    // ms
)

// Metrics lists the metrics in the order in which they are printed.
var Metrics = []Metric{Duration, MeanE2E, MedianE2E, P99E2E}

// Values holds metrics; one that is not known is absent.
type Values map[Metric]float64

// Relative is the relative error of predicted against measured, as a fraction,
// and whether both are known.
func Relative(measured, predicted Values, m Metric) (float64, bool) {
	a, okA := measured[m]
	b, okB := predicted[m]
	if !okA || !okB || a == 0 {
		return 0, false
	}
	return (b - a) / a, true
}

// Summary is how large the errors of one metric are, as fractions.
type Summary struct {
	Runs           int     `json:"runs"`
	MedianAbsError float64 `json:"median_abs_error"`
	P90AbsError    float64 `json:"p90_abs_error"`
	MaxAbsError    float64 `json:"max_abs_error"`
	MeanError      float64 `json:"mean_error"` // signed: what is off in the same direction everywhere
}

// Summarize summarizes errors; of none it is the zero Summary.
func Summarize(errors []float64) Summary {
	if len(errors) == 0 {
		return Summary{}
	}
	s := Summary{Runs: len(errors)}
	abs := make([]float64, len(errors))
	for i, e := range errors {
		abs[i] = math.Abs(e)
		s.MeanError += e / float64(len(errors))
	}
	slices.Sort(abs)
	s.MedianAbsError, s.P90AbsError = quantile(abs, 0.5), quantile(abs, 0.9)
	s.MaxAbsError = abs[len(abs)-1]
	return s
}

// quantile interpolates linearly between the closest ranks of sorted values,
// as numpy does by default.
func quantile(sorted []float64, p float64) float64 {
	at := p * float64(len(sorted)-1)
	k := int(at)
	if k+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[k] + (at-float64(k))*(sorted[k+1]-sorted[k])
}

// meanStd returns the mean and the sample standard deviation, 0 of one value.
func meanStd(xs []float64) (mean, std float64) {
	if len(xs) == 1 {
		return xs[0], 0
	}
	return stat.MeanStdDev(xs, nil)
}
