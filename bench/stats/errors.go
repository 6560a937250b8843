package stats

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"lorasim/internal/format"
)

// ErrorSummary is how large relative errors are: predicted / measured - 1.
type ErrorSummary struct {
	Runs           int     `json:"runs"`
	MedianAbsError float64 `json:"median_abs_error"`
	P90AbsError    float64 `json:"p90_abs_error"`
	MaxAbsError    float64 `json:"max_abs_error"`
	MeanError      float64 `json:"mean_error"` // signed: what is off in the same direction everywhere
}

// SummarizeErrors summarizes errors; of none it is the zero ErrorSummary.
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

// Cells words the number of runs and the errors, in percent, for a table.
func (s ErrorSummary) Cells() []string {
	return []string{strconv.Itoa(s.Runs), format.Percent(s.MedianAbsError, 1), format.Percent(s.P90AbsError, 1),
		format.Percent(s.MaxAbsError, 1), fmt.Sprintf("%+.1f %%", 100*s.MeanError)}
}

// SummarizeErrorsBy summarizes errors by key, such as the name of a metric.
func SummarizeErrorsBy[Key comparable](errors map[Key][]float64) map[Key]ErrorSummary {
	out := map[Key]ErrorSummary{}
	for m, es := range errors {
		out[m] = SummarizeErrors(es)
	}
	return out
}
