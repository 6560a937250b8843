package vllmruns

import (
	"math"
	"reflect"
	"slices"
	"testing"

	"lorasim/bench/accuracy/validate"
	"lorasim/internal/shareddata"
	"lorasim/internal/textfile"
)

func TestLimits(t *testing.T) {
	row := func(adapters, slots int, measured, predicted float64, starvedMeasured, starvedPredicted bool) Row {
		return Row{Setup: Setup{Model: "m", Group: "g", Slots: slots}, Adapters: adapters,
			StarvedMeasured: starvedMeasured, StarvedPredicted: starvedPredicted,
			Comparison: validate.Comparison{
				Measured: validate.Values{Throughput: measured}, Predicted: validate.Values{Throughput: predicted},
			}}
	}
	rows := []Row{
		row(16, 8, 50, 50, false, false),
		row(32, 16, 100, 101, false, false), row(32, 32, 75, 102, false, false), row(32, 8, 80, 95, true, false),
		row(64, 16, 120, 110, true, false), // predicted to be served
		{Setup: Setup{Model: "m", Group: "g", Slots: 64}, Adapters: 128, Skipped: "no memory"},
		{Setup: Setup{Model: "m", Group: "h", Slots: 64}, Adapters: 128, StarvedMeasured: true, StarvedPredicted: true},
	}
	want := []Limit{
		{Model: "m", Group: "g", MeasuredAdapters: 32, PredictedAdapters: 64, MeasuredSlots: 16, PredictedSlots: 32,
			Steps: 1, Lost: 0.25},
		{Model: "m", Group: "h"},
	}
	if got := Limits(rows); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, expected %+v", got, want)
	}
}

// TestMeasuredLimits: of every group of runs that nothing was fitted to, as far as
// the offered load is not far beyond what the server can do. All runs, in 5 CPU
// minutes, give the same limits (lorasim profile check vllm-runs).
func TestMeasuredLimits(t *testing.T) {
	path := shareddata.Path(t, "vllm_lora/runs.csv")
	if testing.Short() {
		t.Skip("hours of simulated load")
	}
	runs, err := textfile.Read(t.Context(), path, Read)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := ReadTables(t.Context(), shareddata.Path(t, "vllm_lora"))
	if err != nil {
		t.Fatal(err)
	}
	runs = slices.DeleteFunc(runs, func(r Run) bool {
		offered := 0.0
		for _, x := range r.Rates {
			offered += x
		}
		return r.Use != validate.Validation || offered > 45
	})
	rows, err := Simulate(t.Context(), runs, tables, Options{})
	if err != nil {
		t.Fatal(err)
	}
	limits := Limits(rows)
	if len(limits) != 12 {
		t.Errorf("%d groups, expected 12", len(limits))
	}
	var off []float64
	for _, l := range limits {
		off = append(off, math.Abs(float64(l.PredictedAdapters)/float64(l.MeasuredAdapters)-1))
		if l.Steps > 1 || l.Lost > 0.02 || l.MeasuredAdapters == 0 {
			t.Errorf("%+v, expected slots within a step of those measured", l)
		}
	}
	slices.Sort(off)
	if median := off[len(off)/2]; median > 0.07 || off[len(off)-1] > 0.25 {
		t.Errorf("the most adapters are off by %.2f, expected 0.07 in the median", off)
	}
}
