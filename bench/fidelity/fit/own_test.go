package fit

import (
	"context"
	"math"
	"strings"
	"testing"

	"lorasim/bench/stats"
	"lorasim/internal/testutil"
	"lorasim/sim/profile"
)

// A fit of the caller's own runs finds their coefficient, in spite of one run that contradicts the others.
func TestOwn(t *testing.T) {
	start, err := profile.Embedded("llama-2-7b-rtx-4090-sglang-0.5")
	if err != nil {
		t.Fatal(err)
	}
	want := 1.3 * start.Latency.Decode.BaseMs
	errors := func(p *profile.Profile) []float64 {
		e := math.Log(p.Latency.Decode.BaseMs / want)
		return []float64{e, e, e, e, e - 0.7}
	}
	own := Own{
		Coefficients: []string{"decode.base_ms"}, Data: "5 runs of a test",
		Deviations: func(_ context.Context, p *profile.Profile) ([]float64, error) {
			ds := errors(p)
			for i := range ds {
				ds[i] /= 0.01
			}
			return ds, nil
		},
		Errors: func(_ context.Context, p *profile.Profile) (stats.ErrorSummary, error) {
			return stats.SummarizeErrors(errors(p)), nil
		},
	}
	found, err := own.Fit(t.Context(), Options{Start: start})
	if err != nil {
		t.Fatal(err)
	}
	testutil.Near(t, "decode.base_ms", found.Profile.Latency.Decode.BaseMs, want, 0.01*want)
	if !strings.HasPrefix(found.Profile.Source, "Fitted to 5 runs of a test, starting from ") {
		t.Errorf("source %q", found.Profile.Source)
	}
	if e := found.Errors; e.Runs != 5 || e.MedianAbsError > 0.02 || e.MaxAbsError < 0.6 {
		t.Errorf("errors %+v, expected 5, one of them large", e)
	}
}
