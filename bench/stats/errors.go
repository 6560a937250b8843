package stats

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"lorasim/internal/format"
)

// An ErrorSummary summarises relative errors, predicted / measured - 1.
type ErrorSummary struct {
	Runs           int     `json:"runs"` // number of errors
	MedianAbsError float64 `json:"median_abs_error"`
	P90AbsError    float64 `json:"p90_abs_error"`
	MaxAbsError    float64 `json:"max_abs_error"`
	MeanError      float64 `json:"mean_error"` // signed; the common bias of all runs
}

// SummarizeErrors summarises errors. Without errors it returns the zero ErrorSummary.
func SummarizeErrors(errors []float64) ErrorSummary {
	if len(errors) == 0 {
		return ErrorSummary{}
	}
	s := ErrorSummary{Runs: len(errors)}
	abs := make([]float64, len(errors))
	for i, e := range errors {
		abs[i] = math.Abs(e)
		s.MeanError += e / float64(len(errors))
	}
	slices.Sort(abs)
	s.MedianAbsError, s.P90AbsError, s.MaxAbsError = Quantile(abs, 0.5), Quantile(abs, 0.9), abs[len(abs)-1]
	return s
}

// Cells returns table cells with the number of runs and the errors in percent.
func (s ErrorSummary) Cells() []string {
	return []string{strconv.Itoa(s.Runs), format.Percent(s.MedianAbsError, 1), format.Percent(s.P90AbsError, 1),
		format.Percent(s.MaxAbsError, 1), fmt.Sprintf("%+.1f %%", 100*s.MeanError)}
}

// SummarizeErrorsBy summarises errors by key, such as the name of a metric.
func SummarizeErrorsBy[Key comparable](errors map[Key][]float64) map[Key]ErrorSummary {
	out := map[Key]ErrorSummary{}
	for m, es := range errors {
		out[m] = SummarizeErrors(es)
	}
	return out
}
