package decisions

import (
	"context"
	"testing"

	"lorasim/internal/format"
	"lorasim/internal/shareddata"
)

// TestPickers holds the scheduler against all recorded decisions.
func TestPickers(t *testing.T) {
	r, err := Pickers(context.Background(), shareddata.Path(t, "epp_cases"))
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, c := range r.Cases {
		if d := c.FirstDifference; d != nil && shown < 20 {
			shown++
			t.Errorf("%s: step %d, %s: expected %s, got %s", c.Name, d.Step, d.What, format.Compact(d.Expected),
				format.Compact(d.Got))
		}
	}
	if r.Summary.Cases != 690 || *r.Summary.Skipped != 0 {
		t.Errorf("%+v, expected 690 cases, none of them skipped", r.Summary)
	}
}
