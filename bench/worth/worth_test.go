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
		o := Options{Seeds: c.from, MaxSeeds: c.to}
		if got := o.looks(); !slices.Equal(got, c.want) || o.Check() != nil {
			t.Errorf("%d..%d: %v (%v), expected %v", c.from, c.to, got, o.Check(), c.want)
		}
	}
	if err := (&Options{Seeds: 4, MaxSeeds: 3}).Check(); err == nil || err.Error() != "4 seeds to begin with, but 3 at most" {
		t.Error(err)
	}
}

// answer decides on made-up numbers: by metric the mean of routing alone, and by
// interval the differences of four seeds. Every run loads 40 adapters in 80 s and
// moves 12 requests by 4 plans.
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
		for name, v := range map[string]float64{"plans.loads": 40, "duration": 80, "migrations": 12, "plans.applied": 4} {
			p.Metrics = append(p.Metrics, sweep.Metric{Name: name, Estimate: sweep.Mean([]float64{v})})
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
	quarter := []float64{-25, -25, -25, -25}
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
		"just the gain":         {0.25, 1, map[string][][]float64{"2": {none, quarter}}, true, true, "2", "Moving"},
		"a trade for just the gain": {0.25, 1, map[string][][]float64{"2": {{300, 300, 300, 300}, quarter}}, false, true, "2",
			"Do not move, unless the one is worth the other: "},
		"costs just the gain":        {0.25, 1, map[string][][]float64{"2": {none, {25, 25, 25, 25}}}, false, true, "2", "Do not move: plans cost; "},
		"costs the same in all":      {0.5, 1, map[string][][]float64{"2": {none, {25, 25, 25, 25}}}, false, true, "2", "Do not move: no interval gains 50 %; "},
		"the lesser of two losses":   {0.01, 1, map[string][][]float64{"2": {none, {60, -30, 50, -40}}, "10": {none, noisy}}, false, false, "10", "Do not move: with"},
		"sure before more by chance": {0.01, 1, map[string][][]float64{"2": {none, sure}, "10": {none, {-99, -20, -99, -10}}}, true, true, "2", "Moving"},
		// half of the interval, at 5 % over 2 tests: 4.177 x 1.155 / sqrt(4) = 2.41 of 100
		"a gain may hide":  {0.02, 1, map[string][][]float64{"2": {none, {-1, 1, -1, 1}}}, false, false, "2", "Do not move: with 4 seeds no gain of 2 % is certain; "},
		"no gain can hide": {0.025, 1, map[string][][]float64{"2": {none, {-1, 1, -1, 1}}}, false, true, "2", "Do not move: no interval gains 2.5 %; "},
		// p = 0.0117, twice as there are two tests
		"one look":   {0.01, 1, map[string][][]float64{"2": {none, {-30, -20, -40, -25}}}, true, true, "2", "Moving"},
		"many looks": {0.01, 4, map[string][][]float64{"2": {none, {-30, -20, -40, -25}}}, false, false, "2", "Do not move: with"},
	} {
		a := answer(c.gain, c.looks, base, c.diffs)
		if a.Move != c.move || a.Clear != c.clear || a.Best == nil || a.Best.Seconds != c.best || !strings.HasPrefix(a.verdict(), c.text) ||
			a.Fixed || name != "nothing" && !strings.HasSuffix(a.verdict(), "; 0.5 loads/s, 3 requests moved per plan.") {
			t.Errorf("%s: move %v, clear %v, best %+v: %s", name, a.Move, a.Clear, a.Best, a.verdict())
		}
	}
	again := func(change func(e2e, ttft, plans *sweep.Metric)) *Answer {
		a := answer(0.01, 1, base, map[string][][]float64{"2": {none, sure}})
		m := a.Tables.Points[0].Metrics
		change(&m[0], &m[1], &m[slices.IndexFunc(m, func(m sweep.Metric) bool { return m.Name == "plans.applied" })])
		a = &Answer{Dir: a.Dir, Tables: a.Tables, opt: a.opt, looks: 1}
		a.decide()
		return a
	}
	for name, change := range map[string]func(e2e, ttft, plans *sweep.Metric){
		"other requests": func(_, ttft, _ *sweep.Metric) { ttft.Apart = true },
		"no mean":        func(e2e, ttft, _ *sweep.Metric) { e2e.Apart, e2e.Std, ttft.Std = true, 0, 0 },
		"one seed":       func(_, ttft, _ *sweep.Metric) { ttft.Diff = sweep.Mean([]float64{-30}) },
		"no latency":     func(_, ttft, _ *sweep.Metric) { ttft.Base = 0 },
		"not there":      func(_, ttft, _ *sweep.Metric) { ttft.Name = "" },
	} {
		if a := again(change); a.Best != nil || a.Move || a.Fixed || !strings.HasPrefix(a.verdict(), "No verdict: ") {
			t.Errorf("%s: %+v", name, a)
		}
	}
	if a := again(func(e2e, _, _ *sweep.Metric) { e2e.Std = 0 }); a.Fixed {
		t.Error("the same run with every seed, though the TTFT differs")
	}
	if a := again(func(e2e, ttft, _ *sweep.Metric) { e2e.Std, ttft.Std = 0, 0 }); !a.Fixed {
		t.Error("every seed gives the same run")
	}
	if a := again(func(_, _, plans *sweep.Metric) { plans.Estimate = sweep.Mean(nil) }); !strings.HasSuffix(a.verdict(), ", 0 requests moved per plan.") {
		t.Errorf("without plans: %s", a.verdict())
	}
}

func TestColumns(t *testing.T) {
	a := Answer{Tables: &sweep.Tables{Metrics: []string{"migrations", "mean_ttft_ms"}}, opt: Options{Metrics: []string{"mean_ttft_ms"}}}
	if got := a.columns(); !slices.Equal(got, []string{"mean_ttft_ms", "migrations"}) {
		t.Errorf("%v", got)
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
	left := func(a *Answer) string {
		left := 100 * (1 - a.mean(Alone, "oracle.mean_e2e_latency_ms")/a.mean(Alone, "mean_e2e_latency_ms"))
		return fmt.Sprintf(" %.0f %% of the mean E2E are left.", left)
	}
	if want := left(a); !strings.HasSuffix(a.String(), want) {
		t.Errorf("%s: expected%s", a, want)
	}
	const same = " Every seed gives the same run, so this is about this workload alone. Against"
	if a.Fixed || strings.Contains(a.String(), same) {
		t.Errorf("%s: the seeds differ", a)
	}
	a.Fixed = true
	if !strings.Contains(a.String(), same) {
		t.Errorf("%s: expected %q", a, same)
	}
	a.Fixed = false
	var text, line bytes.Buffer
	var parsed struct {
		Move      *bool
		Best      string `json:"best_interval_s"`
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
	if in := parsed.Intervals; parsed.Move == nil || *parsed.Move || parsed.Best != "2" || parsed.Text != a.String() || len(in) != 1 || in[0].Policy != "period_mig:interval=2" ||
		len(in[0].Changes) != 1 || in[0].Changes[0].Metric != "mean_e2e_latency_ms" {
		t.Errorf("%s", line.String())
	}
	o.MinGain, o.Others, o.Metrics = 1e-12, []string{"random", "static"}, []string{"mean_e2e_latency_ms", "cold_loads"}
	o.Scenario.Cluster.NumWorkers = 4
	o.Scenario.Workload.RequestRate, o.Scenario.Cluster.MaxLorasPerBatch = 12, 8
	if a, err = Study(t.Context(), t.TempDir(), o); err != nil {
		t.Fatal(err)
	}
	if !a.Clear && len(a.Dir.Seeds) != 4 {
		t.Errorf("%d seeds: %s", len(a.Dir.Seeds), a)
	}
	// the adapters of a worker never change under static, which saves loads for certain
	static, _ := a.point("static").Metric("cold_loads")
	if want := left(a) + " But by Cold loads static is better: " + static.Diff.Versus(static.Base) + "."; a.Move || !strings.HasSuffix(a.String(), want) {
		t.Errorf("%s: expected%s", a, want)
	}
	for i := range a.point(Alone).Metrics {
		a.point(Alone).Metrics[i].Mean = 0
	}
	if strings.Contains(a.String(), "perfect knowledge") {
		t.Errorf("%s: nothing is left", a)
	}
	o.Metrics = []string{"requests"}
	if _, err := Study(t.Context(), t.TempDir(), o); err == nil || !strings.Contains(err.Error(), "cannot decide") {
		t.Error(err)
	}
}
