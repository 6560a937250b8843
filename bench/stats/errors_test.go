package stats

import (
	"math"
	"testing"
)

func TestSummary(t *testing.T) {
	s := SummarizeErrors([]float64{0.1, -0.3, 0.2, 0, -0.05})
	want := ErrorSummary{Runs: 5, MedianAbsError: 0.1, P90AbsError: 0.26, MaxAbsError: 0.3, MeanError: -0.01}
	for i, got := range []float64{
		s.MedianAbsError - want.MedianAbsError, s.P90AbsError - want.P90AbsError, s.MaxAbsError - want.MaxAbsError,
		s.MeanError - want.MeanError,
	} {
		if math.Abs(got) > 1e-12 {
			t.Errorf("%+v, expected %+v (%d)", s, want, i)
		}
	}
	if s := SummarizeErrors(nil); s != (ErrorSummary{}) {
		t.Errorf("of nothing: %+v", s)
	}
}
