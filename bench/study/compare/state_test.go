package compare

import (
	"strings"
	"testing"
	"unicode/utf8"

	"lorasim/bench/result"
	"lorasim/bench/steady"
	"lorasim/internal/format"
	"lorasim/trace/columnar"
)

// withState is a run with one latency, a throughput and a state.
func withState(name string, ttft, throughput float64, s *steady.Assessment) *Run {
	res := &result.Result{Meta: result.Meta{Source: result.Sim}, Steady: s}
	res.Metrics.Set(result.Completed, 10)
	res.Metrics.Set(result.MeanTTFT, ttft)
	res.Metrics.Set(result.RequestThroughput, throughput)
	return FromResult(name, res)
}

// An overloaded run has no star beside a latency, whatever it is, and no verdict; its
// throughput still compares.
func TestOverloadedRunsGetNoStar(t *testing.T) {
	fast := withState("A", 10, 12, &steady.Assessment{
		State: steady.Overloaded, OfferedRate: 16, SustainableRate: 12.12,
	})
	runs := []*Run{fast, withState("B", 50, 9, &steady.Assessment{State: steady.Steady}), withState("C", 60, 8, nil)}
	tab, err := New(runs, Options{Metrics: []string{"mean_ttft_ms", "request_throughput"}})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{false, true, false} {
		if got := tab.Rows[0].Cells[i].Best; got != want {
			t.Errorf("TTFT of %s: best %v", runs[i].Name, got)
		}
		if got := tab.Rows[1].Cells[i].Best; got != (i == 0) {
			t.Errorf("throughput of %s: best %v", runs[i].Name, got)
		}
	}
	if v := tab.Verdict; v.Best != "B" || len(v.Unsteady) != 1 ||
		v.Unsteady[0] != "A is overloaded (sustains 12.1 of 16 requests/s)" {
		t.Errorf("%+v", v)
	}
	var b, object strings.Builder
	if err := tab.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"State                         OVERLOADED (12.1/s)", "no verdict: A is overloaded",
		"OVERLOADED: requests arrive faster",
	} {
		if !strings.Contains(strings.ReplaceAll(b.String(), "\n  ", " "), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if err := tab.WriteJSON(&object); err != nil || !strings.Contains(object.String(), `"state": "overloaded"`) ||
		!strings.Contains(object.String(), `"sustainable_rate": 12.12`) ||
		strings.Count(object.String(), `"state"`) != 2 {
		t.Errorf("%v: %s", err, object.String())
	}
	if tab, err = New(runs[:1], Options{}); err != nil || tab.Verdict != nil && tab.Verdict.Best != "" {
		t.Errorf("%+v, %v", tab.Verdict, err)
	}
}

// Results of the version before states and the scenario object are read as before.
func TestOlderResults(t *testing.T) {
	runs, _, err := Load(t.Context(), columnar.Files(), []string{"testdata/v1.json", "testdata/v1.jsonl"}, result.SLO{})
	if err != nil || len(runs) != 2 {
		t.Fatalf("%d runs, %v", len(runs), err)
	}
	if runs[0].What != "lorasim, static, 2 workers, rate 10.0" ||
		runs[1].What != "lorasim, p2c, rate 10.0, num_prompts=40 num_adapters=2 num_workers=2" {
		t.Errorf("%q, %q", runs[0].What, runs[1].What)
	}
	if r := runs[0].Results[0]; r.Steady != nil || r.Scenario.Policy != "" || !runs[0].Stationarity().Judge() {
		t.Errorf("%+v", r.Scenario)
	}
	tab, err := New(runs, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := tab.WriteText(&b); err != nil || strings.Contains(b.String(), "State") || tab.Verdict == nil {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// However many runs, a line has at most 100 columns.
func TestWidth(t *testing.T) {
	var runs []*Run
	for i := range 9 {
		var all [][]result.Value
		for k := range 3 {
			all = append(all, []result.Value{
				{Name: "completed", Value: 10}, {Name: "mean_ttft_ms", Value: 1e5 + float64(i*k)},
			})
		}
		r := FromValues(letter(i), []string{"1", "2", "3"}, all)
		r.File, r.What = "a/folder", strings.Repeat("request_rate 4, migration_interval 5, ", 4)
		runs = append(runs, r)
	}
	for _, wide := range []bool{false, true} {
		tab, err := New(runs, Options{Wide: wide})
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := tab.WriteText(&b); err != nil {
			t.Fatal(err)
		}
		widest := 0
		for line := range strings.Lines(b.String()) {
			widest = max(widest, utf8.RuneCountInString(strings.TrimSpace(line)))
		}
		if widest > format.Width != wide {
			t.Errorf("wide %v: %d columns\n%s", wide, widest, b.String())
		}
		if n := strings.Count(b.String(), "Successful requests"); wide != (n == 1) {
			t.Errorf("wide %v: %d tables", wide, n)
		}
	}
}
