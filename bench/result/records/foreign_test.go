package records

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"lorasim/sim/record"
	"lorasim/trace/columnar"
)

// foreign.parquet was written by hyparquet-writer 0.17 (JavaScript): other column
// order, 64-bit ranks, an unknown column, only some of the optional ones.
func TestForeignParquet(t *testing.T) {
	got, _, err := ReadAll(t.Context(), columnar.Files(), "testdata/foreign.parquet")
	if err != nil {
		t.Fatal(err)
	}
	nan := math.NaN()
	want := []record.Request{
		{ID: 1, Adapter: 0, Rank: 8, Sent: 0.25, FirstToken: 0.5, Finish: 1.5, Prompt: 10, Output: 4, WorkerFirst: -1,
			WorkerLast: -1},
		{ID: 2, Adapter: -1, Arrival: 0.5, Sent: nan, FirstToken: nan, Finish: 0.75, Prompt: 20,
			WorkerFirst: -1, WorkerLast: -1, Status: record.Rejected, Error: "full"},
		{ID: 3, Adapter: 1, Rank: 16, Arrival: 1, Sent: 1, FirstToken: 2, Finish: 3, Prompt: 30, Output: 2,
			WorkerFirst: -1, WorkerLast: -1},
	}
	if d := cmp.Diff(want, got, cmpopts.EquateNaNs()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
