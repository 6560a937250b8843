package compare

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/bench/study/sweep"
	"lorasim/internal/shareddata"
	"lorasim/internal/testutil"
	"lorasim/trace/columnar"
	"lorasim/trace/settings"
)

// simulate writes result and records of a small run.
func simulate(t *testing.T, dir, name, policy string, seed uint64) (resultFile, recordsFile string) {
	t.Helper()
	sc := scenario.Default()
	sc.Files = columnar.Files()
	sc.Seed, sc.Workload.NumPrompts = seed, settings.Some[int64](200)
	testutil.Set(t, &sc, "policy", policy)
	recordsFile = filepath.Join(dir, name+".parquet")
	res, err := sc.Simulate(t.Context(), scenario.RunOptions{RecordsFile: recordsFile, TokenTimes: true})
	if err != nil {
		t.Fatal(err)
	}
	resultFile = filepath.Join(dir, name+".json")
	f, err := os.Create(resultFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	res.Steady = nil // the run is too short to be steady, and these tests are about other things
	if err := res.WriteJSON(f); err != nil {
		t.Fatal(err)
	}
	return resultFile, recordsFile
}

func table(t *testing.T, o Options, paths ...string) *Table {
	t.Helper()
	runs, _, err := Load(t.Context(), columnar.Files(), paths, result.SLO{})
	if err != nil {
		t.Fatal(err)
	}
	tab, err := New(runs, o)
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

func (t *Table) row(name string) *Row {
	for i := range t.Rows {
		if t.Rows[i].Metric == name {
			return &t.Rows[i]
		}
	}
	return nil
}

// A run and its own records give the same metrics: the table says so.
func TestRecordsAreTheRun(t *testing.T) {
	res, rec := simulate(t, t.TempDir(), "a", "static", 1)
	tab := table(t, Options{All: true}, res, rec)
	compared := 0
	for _, row := range tab.Rows {
		a, b := row.Cells[0], row.Cells[1]
		if _, known := result.IDOf(row.Metric); !known || b.N == 0 {
			continue
		}
		compared++
		tolerance := 1e-9
		if strings.Contains(row.Metric, "itl") || row.Metric == "max_output_tokens_per_s" {
			tolerance = 0.02 // gaps of records begin at rounded times
		}
		if math.Abs(a.Mean-b.Mean) > tolerance*math.Abs(a.Mean) {
			t.Errorf("%s: %v and %v", row.Metric, a.Mean, b.Mean)
		}
		if row.Better != 0 && a.Mean == b.Mean && (a.Best || b.Best) {
			t.Errorf("%s: a best of equals", row.Metric)
		}
	}
	if compared < 30 {
		t.Errorf("only %d metrics were compared", compared)
	}
}

func TestRatiosAndBest(t *testing.T) {
	dir := t.TempDir()
	a, _ := simulate(t, dir, "a", "static", 1)
	b, _ := simulate(t, dir, "b", "least-loaded", 1)
	tab := table(t, Options{Baseline: "b"}, a, b)
	for _, r := range tab.Runs {
		r.Results[0].Steady = nil // they are too short for a state
	}
	tab, err := New(tab.Runs, Options{Baseline: "b"})
	if err != nil {
		t.Fatal(err)
	}
	row := tab.row("mean_ttft_ms")
	x, y := row.Cells[0], row.Cells[1]
	if !math.IsNaN(y.Ratio) || math.Abs(x.Ratio-x.Mean/y.Mean) > 1e-12 {
		t.Errorf("%+v", row)
	}
	if x.Best != (x.Mean < y.Mean) || y.Best != (y.Mean < x.Mean) {
		t.Errorf("the lesser latency is the best: %+v", row)
	}
	row = tab.row("output_throughput")
	if x, y = row.Cells[0], row.Cells[1]; x.Best != (x.Mean > y.Mean) {
		t.Errorf("the larger throughput is the best: %+v", row)
	}
	if len(tab.Notes) > 0 {
		t.Errorf("notes on a simulation: %q", tab.Notes)
	}
	if first, err := New(tab.Runs, Options{Baseline: "a"}); err != nil || first.Baseline != 0 {
		t.Errorf("baseline a is %+v, %v", first, err)
	}
	if _, err := New(tab.Runs, Options{Baseline: "C"}); err == nil ||
		!strings.Contains(err.Error(), `unknown run "C"`) {
		t.Error(err)
	}
	if _, err := New(tab.Runs, Options{Metrics: []string{"mean_tft_ms"}}); err == nil ||
		!strings.Contains(err.Error(), `did you mean "mean_ttft_ms"`) {
		t.Error(err)
	}
}

// Results that differ in their seed alone are one run, with the intervals that
// a sweep of the same seeds gives.
func TestSeedsAreOneRun(t *testing.T) {
	dir := t.TempDir()
	var paths []string
	for _, policy := range []string{"static", "least-loaded"} {
		for seed := uint64(1); seed <= 3; seed++ {
			p, _ := simulate(t, dir, policy+string(rune('0'+seed)), policy, seed)
			paths = append(paths, p)
		}
	}
	spec := &sweep.Spec{
		Scenario: scenario.Default(), Grid: sweep.Grid{Policies: []string{"static", "least-loaded", "p2c"}},
		SeedCount: 3,
	}
	spec.Scenario.Files, spec.Scenario.Workload.NumPrompts = columnar.Files(), settings.Some[int64](200)
	m, err := spec.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d, err := sweep.Create(filepath.Join(dir, "out"), m)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Run(t.Context(), sweep.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	one, two := table(t, Options{}, paths...), table(t, Options{}, d.Path)
	if len(one.Runs) != 2 || len(two.Runs) != 3 || len(one.Runs[0].Seeds) != 3 {
		t.Fatal(len(one.Runs), len(two.Runs))
	}
	for _, row := range one.Rows {
		other := two.row(row.Metric)
		if other == nil {
			t.Errorf("%s is only in one", row.Metric)
			continue
		}
		for i, c := range row.Cells {
			o := other.Cells[i]
			if math.Abs(c.Mean-o.Mean) > 1e-9*math.Abs(c.Mean) || c.N != o.N ||
				math.Abs(c.Diff.Half()-o.Diff.Half()) > 1e-6*math.Abs(c.Mean) {
				t.Errorf("%s: %+v and %+v", row.Metric, c, o)
			}
		}
	}
	if c := one.row("mean_e2e_latency_ms").Cells[1]; c.Diff.N != 3 || c.N != 3 {
		t.Errorf("%+v", c)
	}
}

// The measured runs at six stated rates beside a simulation: the numbers of the
// log, and what a reader must know of them.
func TestMeasuredRates(t *testing.T) {
	log := shareddata.Path(t, "logs/lora_static_azure_v2_rates.log")
	sim, _ := simulate(t, t.TempDir(), "sim", "static", 1)
	tab := table(t, Options{}, log, sim)
	var b strings.Builder
	if err := tab.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, want := range []string{
		"A  log  lora_static_azure_v2_rates.log:23   sglang, rate 2.0\n",
		"F  log  lora_static_azure_v2_rates.log:", "G  sim  sim.json",
		"note: A, B, C, D, E, F: the client did not stream", "≠ not comparable",
		"note: A, C, D, E", "note: A, B, C, D, E, F: fewer tokens arrived", "3.99 requests/s were sent", "× ratio to A",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	row := tab.row("mean_e2e_latency_ms")
	for i, want := range []float64{1979.33, 2071.52, 2042.26, 1914.21, 1879.18, 1972.36} {
		if row.Cells[i].Mean != want {
			t.Errorf("run %s: %v, the log says %v", tab.Runs[i].Name, row.Cells[i].Mean, want)
		}
	}
	if c := row.Cells[1]; math.Abs(c.Ratio-2071.52/1979.33) > 1e-12 {
		t.Error(c.Ratio)
	}
	for _, line := range strings.Split(text, "\n") {
		if strings.Contains(line, "TTFT (ms)") && strings.Contains(line, "*") {
			t.Errorf("a best among clients that did not stream: %s", line)
		}
	}
}

func TestJSON(t *testing.T) {
	dir := t.TempDir()
	a, _ := simulate(t, dir, "a", "static", 1)
	b, _ := simulate(t, dir, "b", "p2c", 1)
	var out strings.Builder
	if err := table(t, Options{}, a, b).WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Schema  string
		Metrics []struct {
			Metric string
			Runs   map[string]struct {
				N           int
				Mean, Ratio *float64
			}
		}
	}
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil {
		t.Fatal(err)
	}
	m := got.Metrics[0]
	if got.Schema != schema || m.Metric != "completed" || *m.Runs["A"].Mean != 200 || *m.Runs["B"].Ratio != 1 ||
		m.Runs["A"].Ratio != nil {
		t.Error(out.String()[:600])
	}
}

func TestLoadErrors(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.csv")
	if err := os.WriteFile(bad, []byte("a,b\n1,2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(dir, "empty.log")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "absent"): "absent",
		dir:                          "is a folder without a sweep",
		bad:                          "bad.csv",
		empty:                        "empty.log: the file is empty",
	} {
		if _, _, err := Load(t.Context(), columnar.Files(), []string{path}, result.SLO{}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestLetter(t *testing.T) {
	for i, want := range map[int]string{0: "A", 25: "Z", 26: "AA", 51: "AZ", 52: "BA"} {
		if got := letter(i); got != want {
			t.Errorf("%d: %s, want %s", i, got, want)
		}
	}
}
