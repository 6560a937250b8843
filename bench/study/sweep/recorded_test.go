package sweep

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lorasim/bench/scenario"
	"lorasim/bench/stats"
	"lorasim/trace/columnar"
)

// savedSpec is a sweep over a saved workload of 200 requests.
func savedSpec(t *testing.T, edit func(w *scenario.Workload)) *Spec {
	t.Helper()
	var b strings.Builder
	b.WriteString("id,arrival_s,adapter,prompt_tokens,output_tokens\n")
	for i := range 200 {
		fmt.Fprintf(&b, "%d,%g,%d,%d,%d\n", i, float64(i)/8, i*i%7, 20+i%50, 5+i%30)
	}
	file := filepath.Join(t.TempDir(), "w.csv")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &Spec{Name: "saved", Scenario: scenario.Default(), Grid: Grid{Policies: []string{"p2c", "least-loaded"}}}
	s.Scenario.Files, s.Scenario.Workload.File = columnar.Files(), file
	edit(&s.Scenario.Workload)
	return s
}

func TestTablesOfSavedWorkloads(t *testing.T) {
	for _, c := range []struct {
		name  string
		edit  func(w *scenario.Workload)
		seeds int // asked for; 0: by default
		runs  int
		of    stats.Sampling
		text  []string
	}{
		{"one workload", func(*scenario.Workload) {}, 0, 1, stats.OneWorkload, []string{
			"\none workload: no interval (see --resample)", "one run each cannot show",
		}},
		{"seeds asked for", func(*scenario.Workload) {}, 3, 3, stats.OneWorkload, []string{
			"\none workload: no interval (see --resample); means over 3 seeds", "other workloads may differ",
		}},
		{"resamples", func(w *scenario.Workload) {
			if err := w.Resample.UnmarshalText([]byte("block:3")); err != nil {
				t.Error(err)
			}
		}, 0, 5, stats.Resampled, []string{
			"\nmeans over 5 resamples of one workload (block:3); ± half", "\nworse: ",
		}},
	} {
		spec := savedSpec(t, c.edit)
		spec.SeedCount = c.seeds
		d := create(t, spec)
		runAll(t, d, RunOptions{})
		tables, err := d.Tables(MergeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		m, _ := tables.Points[0].Metric("mean_ttft_ms")
		if m.N != c.runs || m.Of != c.of || m.HasInterval() != (c.of == stats.Resampled) {
			t.Errorf("%s: %+v", c.name, m)
		}
		if of, all := d.Sampling(); of != c.of || !all {
			t.Errorf("%s: %q, %v", c.name, of, all)
		}
		var b strings.Builder
		if err := d.WriteText(&b, tables, []string{"mean_ttft_ms"}); err != nil {
			t.Fatal(err)
		}
		for _, want := range c.text {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%s: no %q in\n%s", c.name, want, b.String())
			}
		}
		if strings.Contains(b.String(), " ±") != (c.of == stats.Resampled) &&
			!strings.Contains(b.String(), "; ± half") {
			t.Errorf("%s:\n%s", c.name, b.String())
		}
	}
}
