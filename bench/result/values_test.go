package result

import (
	"testing"
)

// Latencies of a run without one success are left out; where a log does not say
// how many there were, they stay.
func TestValuesWithoutSuccess(t *testing.T) {
	for completed, want := range map[float64]bool{-1: true, 0: false, 1: true} {
		r := &Result{Extra: &Extra{}}
		if completed >= 0 {
			r.Metrics.Set(Completed, completed)
		}
		r.Metrics.Set(MeanTTFT, 5)
		r.Metrics.Set(Duration, 9)
		names := map[string]bool{}
		for _, v := range Values(r) {
			names[v.Name] = true
		}
		if names["mean_ttft_ms"] != want || names["ttft_per_output_token_s"] != want ||
			names["scheduled_ttft.mean_ms"] != want || !names["duration"] {
			t.Errorf("%v completed: %v", completed, names)
		}
	}
}
