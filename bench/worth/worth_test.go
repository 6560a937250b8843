package worth

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"lorasim/bench/scenario"
	"lorasim/bench/sweep"
)

func TestLooks(t *testing.T) {
	for _, c := range []struct {
		from, to int
		want     []int
	}{{5, 20, []int{5, 10, 20}}, {4, 30, []int{4, 8, 16, 30}}, {3, 3, []int{3}}} {
		if got := (&Options{Seeds: c.from, MaxSeeds: c.to}).looks(); !slices.Equal(got, c.want) {
			t.Errorf("%d..%d: %v, expected %v", c.from, c.to, got, c.want)
		}
	}
}

// answer decides on made-up numbers: by metric the mean of routing alone, and by
// interval the differences of four seeds.
func answer(gain float64, looks int, base []float64, diffs map[string][][]float64) *Answer {
	o := Options{Metrics: []string{"mean_e2e_latency_ms", "p99_ttft_ms"}, MinGain: gain}
	t := &sweep.Tables{}
	for _, s := range []string{"2", "10"} {
		if diffs[s] == nil {
			continue
		}
		o.Intervals = append(o.Intervals, s)
		p := sweep.Point{Policy: every(s)}
		for i, name := range o.Metrics {
			own := make([]float64, len(diffs[s][i]))
			for k, d := range diffs[s][i] {
				own[k] = base[i] + d + float64(k)
			}
			p.Metrics = append(p.Metrics, sweep.Metric{Name: name, Estimate: sweep.Mean(own), Diff: sweep.Mean(diffs[s][i]), Base: base[i]})
		}
		t.Points = append(t.Points, p)
	}
	a := &Answer{Dir: &sweep.Dir{Manifest: &sweep.Manifest{Grid: sweep.Grid{Seeds: make([]uint64, 4)}}}, Tables: t, opt: o, looks: looks}
	a.decide()
	return a
}

func TestDecide(t *testing.T) {
	base := []float64{1000, 100}
	none := []float64{0, 0, 0, 0}
	sure := []float64{-30, -30.1, -29.9, -30} // of 100
	noisy := []float64{-60, 30, -50, 40}
	for name, c := range map[string]struct {
		gain        float64
		looks       int
		diffs       map[string][][]float64
		move, clear bool
		best, text  string
	}{
		"pays": {0.01, 1, map[string][][]float64{"2": {none, noisy}, "10": {none, sure}}, true, true, "10",
			"Moving adapters every 10 s pays: P99 TTFT -30.0 % ±0.1, Mean E2E +0.0 % ±0.0 (may be chance); "},
		"the gain is too small": {0.5, 1, map[string][][]float64{"10": {none, sure}}, false, true, "10", "Do not move: no interval gains 50 %; the best"},
		"noise":                 {0.01, 1, map[string][][]float64{"2": {none, noisy}}, false, false, "2", "Do not move: with 4 seeds no gain of 1 % is certain; "},
		"nothing":               {0.01, 1, map[string][][]float64{"2": {none, none}, "10": {none, none}}, false, true, "2", "Do not move: plans change nothing at any interval."},
		"a trade":               {0.01, 1, map[string][][]float64{"2": {{30, 30.1, 29.9, 30}, sure}}, false, true, "2", "Do not move, unless the one is worth the other: "},
		"costs":                 {0.01, 1, map[string][][]float64{"2": {{30, 30.1, 29.9, 30}, none}}, false, true, "2", "Do not move: plans cost; "},
		// p = 0.0117, twice as there are two tests
		"one look":   {0.01, 1, map[string][][]float64{"2": {none, {-30, -20, -40, -25}}}, true, true, "2", "Moving"},
		"many looks": {0.01, 4, map[string][][]float64{"2": {none, {-30, -20, -40, -25}}}, false, false, "2", "Do not move: with"},
	} {
		a := answer(c.gain, c.looks, base, c.diffs)
		if a.Move != c.move || a.Clear != c.clear || a.Best == nil || a.Best.Seconds != c.best || !strings.HasPrefix(a.verdict(), c.text) {
			t.Errorf("%s: move %v, clear %v, best %+v: %s", name, a.Move, a.Clear, a.Best, a.verdict())
		}
	}
	other := answer(0.01, 1, base, map[string][][]float64{"2": {none, sure}})
	other.Tables.Points[0].Metrics[1].Apart = true
	*other = Answer{Dir: other.Dir, Tables: other.Tables, opt: other.opt, looks: 1}
	if other.decide(); other.Best != nil || other.Move || !strings.HasPrefix(other.verdict(), "No verdict: ") {
		t.Errorf("%+v", other)
	}
}

// A study of a workload that no plan can help ends with the first seeds; one
// whose answer is not clear goes on to the last.
func TestStudy(t *testing.T) {
	sc := scenario.Default()
	sc.Workload.NumPrompts, sc.Cluster.NumWorkers = 100, 2
	o := Options{
		Scenario: sc, Intervals: []string{"2"}, Others: []string{"static"}, Metrics: []string{"mean_e2e_latency_ms"}, MinGain: 0.01, Seeds: 2, MaxSeeds: 4,
		Run: func(d *sweep.Dir) error {
			_, err := d.Run(t.Context(), sweep.RunOptions{Jobs: 1})
			return err
		},
	}
	o.Scenario.Workload.RequestRate = 0.5 // nothing ever waits
	a, err := Study(t.Context(), t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	if a.Move || !a.Clear || len(a.Dir.Seeds) != 2 || a.Chosen() != Alone || !strings.Contains(a.String(), "perfect knowledge") {
		t.Errorf("%s", a)
	}
	// by the means over the seeds: of the mean the part that lies above the bound
	left := 100 * (1 - a.mean(Alone, "oracle.mean_e2e_latency_ms")/a.mean(Alone, "mean_e2e_latency_ms"))
	if want := fmt.Sprintf(" %.0f %% of the mean E2E are left.", left); !(left > 1) || !strings.HasSuffix(a.String(), want) {
		t.Errorf("%s: expected%s", a, want)
	}
	var text, line bytes.Buffer
	var parsed struct {
		Move      *bool
		Text      string
		Intervals []struct {
			Policy  string
			Changes []struct{ Metric string }
		}
		Sweep struct{ Policies []string }
	}
	if err := errors.Join(a.WriteText(&text), a.WriteJSON(&line), json.Unmarshal(line.Bytes(), &parsed)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{a.String() + "\n\n", "static", "moving or not: 1 intervals x 1 metrics by paired t-tests, with Holm's correction, at 5 % over 2 looks\n"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("expected %q in\n%s", want, text.String())
		}
	}
	if in := parsed.Intervals; parsed.Move == nil || *parsed.Move || parsed.Text != a.String() || len(in) != 1 || in[0].Policy != "period_mig:interval=2" ||
		len(in[0].Changes) != 1 || in[0].Changes[0].Metric != "mean_e2e_latency_ms" {
		t.Errorf("%s", line.String())
	}
	o.MinGain = 1e-12
	o.Scenario.Workload.RequestRate, o.Scenario.Cluster.MaxLorasPerBatch = 12, 2
	if a, err = Study(t.Context(), t.TempDir(), o); err != nil {
		t.Fatal(err)
	}
	if !a.Clear && len(a.Dir.Seeds) != 4 {
		t.Errorf("%d seeds: %s", len(a.Dir.Seeds), a)
	}
	o.Metrics = []string{"requests"}
	if _, err := Study(t.Context(), t.TempDir(), o); err == nil || !strings.Contains(err.Error(), "cannot decide") {
		t.Error(err)
	}
}
