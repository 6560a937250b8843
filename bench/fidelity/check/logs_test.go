package check

import (
	"context"
	"math"
	"path/filepath"
	"testing"

	"lorasim/bench/fidelity/measured"
	"lorasim/internal/shareddata"
)

// Closed loops: fitted to concurrency 32, the runs with concurrency 16 were not
// seen.
func TestMeasuredBlocks(t *testing.T) {
	blocks, err := measured.ReadLogs(t.Context(), filepath.Dir(shareddata.Path(t,
		"logs/deepseek_v3_flashinfer_vs_triton.log")))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Logs(context.Background(), blocks, nil)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for i := range r.Runs {
		row := &r.Runs[i]
		if row.Predicted == nil {
			continue
		}
		seen++
		for m, limit := range map[measured.Metric]float64{
			measured.MeanE2E: 0.05, measured.MedianE2E: 0.05, measured.MeanITL: 0.05, measured.MedianITL: 0.05,
			measured.MeanTTFT: 0.2,
		} {
			if e, ok := row.Error[m]; !ok || math.Abs(e) > limit {
				t.Errorf("%s:%d %s: %s is off by %.1f %%, expected at most %.0f %%",
					row.Group, row.Line, row.ID, m, 100*e, 100*limit)
			}
		}
	}
	if seen != 4 {
		t.Errorf("%d blocks predicted, expected 4", seen)
	}
	for _, s := range r.Servers {
		if math.Abs(s.Error) > 0.02 {
			t.Errorf("%s at concurrency %d: ratio %.4f, measured %.4f",
				s.Servers, s.Concurrency, s.Predicted, s.Measured)
		}
	}
	if len(r.Servers) != 2 {
		t.Errorf("%d ratios of servers, expected 2", len(r.Servers))
	}
}
