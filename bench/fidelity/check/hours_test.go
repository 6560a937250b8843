package check

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"lorasim/bench/fidelity/measured"
	"lorasim/internal/shareddata"
	"lorasim/internal/textfile"
)

func TestHoursLimits(t *testing.T) {
	row := func(adapters, slots int, seen, predicted float64, starvedMeasured,
		starvedPredicted bool) measured.PredictedHour {
		return measured.PredictedHour{HourSetup: measured.HourSetup{Model: "m", Group: "g", Slots: slots},
			Adapters:        adapters,
			StarvedMeasured: starvedMeasured, StarvedPredicted: starvedPredicted,
			Comparison: measured.Comparison{
				Measured:  measured.Values{measured.Throughput: seen},
				Predicted: measured.Values{measured.Throughput: predicted},
			}}
	}
	rows := []measured.PredictedHour{
		row(16, 8, 50, 50, false, false),
		row(32, 16, 100, 101, false, false), row(32, 32, 75, 102, false, false), row(32, 8, 80, 95, true, false),
		row(64, 16, 120, 110, true, false), // predicted to be served
		{HourSetup: measured.HourSetup{Model: "m", Group: "g", Slots: 64}, Adapters: 128, Skipped: "no memory"},
		{HourSetup: measured.HourSetup{Model: "m", Group: "h", Slots: 64}, Adapters: 128, StarvedMeasured: true,
			StarvedPredicted: true},
	}
	want := []HoursLimit{
		{Model: "m", Group: "g", MeasuredAdapters: 32, PredictedAdapters: 64, MeasuredSlots: 16, PredictedSlots: 32,
			Steps: 1, Lost: 0.25},
		{Model: "m", Group: "h"},
	}
	if got := hoursLimits(rows); !reflect.DeepEqual(got, want) {
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
	runs, err := textfile.Read(t.Context(), path, measured.ReadHours)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := measured.ReadHourTables(t.Context(), shareddata.Path(t, "vllm_lora"))
	if err != nil {
		t.Fatal(err)
	}
	runs = slices.DeleteFunc(runs, func(r measured.Hour) bool {
		offered := 0.0
		for _, x := range r.Rates {
			offered += x
		}
		return r.Use != measured.Validation || offered > 45
	})
	rows := fromTheMost(t, runs, func(runs []measured.Hour) []measured.PredictedHour {
		rows, err := measured.PredictHours(t.Context(), runs, tables, measured.HourOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return rows
	})
	limits := hoursLimits(rows)
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

// fromTheMost predicts the runs of each group from the most adapters down, until some adapters are served both as
// measured and as predicted. The limits depend on no run with fewer.
func fromTheMost(t *testing.T, runs []measured.Hour,
	predict func([]measured.Hour) []measured.PredictedHour) (rows []measured.PredictedHour) {
	type served struct{ measured, predicted bool }
	groups := map[string]*served{}
	key := func(s *measured.HourSetup) string { return s.Model + "/" + s.Group }
	for _, r := range runs {
		groups[key(&r.HourSetup)] = &served{}
	}
	for len(runs) > 0 {
		most := map[string]int{}
		for _, r := range runs {
			most[key(&r.HourSetup)] = max(most[key(&r.HourSetup)], len(r.Rates))
		}
		var next, rest []measured.Hour
		for _, r := range runs {
			switch k := key(&r.HourSetup); {
			case groups[k].measured && groups[k].predicted:
			case len(r.Rates) == most[k]:
				next = append(next, r)
			default:
				rest = append(rest, r)
			}
		}
		predicted := predict(next)
		for _, r := range predicted {
			g := groups[key(&r.HourSetup)]
			g.measured = g.measured || r.Skipped == "" && !r.StarvedMeasured
			g.predicted = g.predicted || r.Skipped == "" && !r.StarvedPredicted
		}
		rows, runs = append(rows, predicted...), rest
	}
	t.Logf("%d runs predicted", len(rows))
	return rows
}

func TestHoursReport(t *testing.T) {
	tpot := func(predicted float64) measured.Comparison {
		c := measured.Comparison{Measured: measured.Values{measured.TPOT: 10}}
		c.Predict(measured.Values{measured.TPOT: predicted})
		return c
	}
	rows := []measured.PredictedHour{
		{HourSetup: measured.HourSetup{Line: 2, Use: measured.Calibration, Model: "m", Group: "g", Name: "a"},
			Comparison:      tpot(11),
			StarvedMeasured: true},
		{HourSetup: measured.HourSetup{Line: 3, Use: measured.Validation, Model: "m", Group: "g", Name: "b"},
			Comparison: tpot(7)},
		{HourSetup: measured.HourSetup{Line: 4, Use: measured.Validation, Model: "m", Group: "g", Name: "c"},
			Skipped: "why not"},
	}
	r := NewHoursReport(rows, "")
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(r); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Use     string
		Summary map[string]struct {
			Runs           int
			MedianAbsError float64 `json:"median_abs_error"`
			P90AbsError    float64 `json:"p90_abs_error"`
			Agreement      float64
		}
		Runs []struct{ Predicted, Measured map[string]float64 }
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if s := got.Summary["tpot"]; s.Runs != 2 || math.Abs(s.MedianAbsError-0.2) > 1e-12 ||
		math.Abs(s.P90AbsError-0.28) > 1e-12 {
		t.Errorf("summary of TPOT is %+v", s)
	}
	if s := got.Summary["starved"]; s.Runs != 2 || s.Agreement != 0.5 || got.Use != "all" ||
		got.Summary["running"].Runs != 0 {
		t.Errorf("starved is %+v of %q", s, got.Use)
	}
	if len(got.Runs) != 3 || got.Runs[0].Predicted["tpot"] != 11 || len(r.Groups) != 2 {
		t.Errorf("rows %+v, groups %+v", got.Runs, r.Groups)
	}
	b.Reset()
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	if at, of := strings.Index(text, "-30.0 %"), strings.Index(text, "+10.0 %"); at < 0 || of < at ||
		!strings.Contains(text, "why not") {
		t.Errorf("the furthest run is not first, or the skipped one is missing:\n%s", text)
	}
}

// Runs are summarized by the share of waiting that the prediction has.
func TestHoursReportByLoad(t *testing.T) {
	row := func(waiting, predicted float64) measured.PredictedHour {
		c := measured.Comparison{Measured: measured.Values{measured.TPOT: 10}}
		c.Predict(measured.Values{measured.TPOT: predicted})
		c.Ran.Waiting = waiting
		return measured.PredictedHour{Comparison: c}
	}
	r := NewHoursReport(
		[]measured.PredictedHour{row(0, 11), row(0.049, 13), row(0.05, 14), row(0.9, 20), row(1, 30),
			{Skipped: "no prediction"}}, "")
	var got []string
	for _, l := range r.ByLoad {
		s := l.Summary.metrics[measured.TPOT]
		got = append(got, fmt.Sprintf("%s %d %.2f", l.Load, s.Runs, s.MedianAbsError))
	}
	if want := []string{"keeps up 2 0.20", "edge 1 0.40", "saturated 2 1.50"}; !slices.Equal(got, want) {
		t.Errorf("got %q, expected %q", got, want)
	}
	var b bytes.Buffer
	if err := r.WriteText(&b); err != nil || !strings.Contains(b.String(), "\nkeeps up") ||
		!strings.Contains(b.String(), "20.0 %") {
		t.Errorf("%v\n%s", err, b.String())
	}
}
