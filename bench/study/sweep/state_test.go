package sweep

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"lorasim/bench/result"
	"lorasim/bench/steady"
	"lorasim/internal/format"
)

// withStates runs a sweep and enters how its runs would have been judged: static is
// overloaded at 20 requests/s in two of three runs, least-loaded too if both.
func withStates(t *testing.T, both bool) (*Dir, *Tables) {
	t.Helper()
	d := create(t, smallSpec(t))
	for i := range d.Cells {
		c := &d.Cells[i]
		res, lat, err := d.simulate(t.Context(), &job{cell: c})
		if err != nil {
			t.Fatal(err)
		}
		res.Steady = &steady.Assessment{State: steady.Steady, Warmup: 3, EffectiveSamples: 40, OfferedRate: 20}
		if c.Values[0] == "20" && c.Seed != d.Seeds[0] && (both || c.Policy == "static") {
			res.Steady.State, res.Steady.SustainableRate = steady.Overloaded, 7.5
		}
		if err := d.writeCell(c, res, lat); err != nil {
			t.Fatal(err)
		}
	}
	tables, err := d.Merge(MergeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return d, tables
}

func TestOverloadIsLoud(t *testing.T) {
	d, tables := withStates(t, false)
	var b strings.Builder
	if err := d.WriteText(&b, tables, result.SweepDefaults()); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	if !strings.Contains(text, "static        OVERLOADED (7.5/s)") || !strings.Contains(text, "least-loaded  steady") ||
		!strings.Contains(text, "OVERLOADED: requests arrive faster") {
		t.Error(text)
	}
	const none = "no verdict: static is overloaded (sustains 7.5 of 20 requests/s), 2 of 3 runs; only\n" +
		"  least-loaded can be judged"
	if !strings.Contains(text, none) {
		t.Error(text)
	}
	for line := range strings.Lines(text) {
		if n := utf8.RuneCountInString(strings.TrimSpace(line)); n > format.Width {
			t.Errorf("%d columns: %s", n, line)
		}
		if strings.HasPrefix(line, "20 ") && strings.Contains(line, "*") {
			t.Errorf("a star beside an overloaded run: %s", line)
		}
	}
	for _, p := range tables.Points {
		ttft, _ := p.Metric("mean_ttft_ms")
		rate, _ := p.Metric("request_throughput")
		if ttft.Unsteady != (p.Values[0] == "20") || rate.Unsteady {
			t.Errorf("%v %s: %v, %v", p.Values, p.Policy, ttft.Unsteady, rate.Unsteady)
		}
	}
	// throughputs of overloaded runs compare
	if v := d.Verdicts(tables, "output_throughput"); v[1] == nil || v[1].Best == "" || v[1].Unsteady != nil {
		t.Errorf("%+v", v[1])
	}
	states := readColumn[string](t, filepath.Join(d.Path, "cells.csv"), "state")
	if got := strings.Join(states[6:9], " "); got != "steady overloaded overloaded" {
		t.Error(got)
	}
	if w := readColumn[float64](t, filepath.Join(d.Path, "cells.parquet"), "steady.sustainable_rate"); w[7] != 7.5 ||
		!math.IsNaN(w[0]) {
		t.Error(w)
	}
	if s := readColumn[string](t, filepath.Join(d.Path, "table.csv"), "state"); s[0] != "steady" ||
		s[len(s)/2] != "overloaded" {
		t.Error(s[0], s[len(s)/2])
	}
}

func TestStatesInJSON(t *testing.T) {
	d, tables := withStates(t, true)
	var b strings.Builder
	if err := d.WriteJSON(&b, tables, []string{"mean_ttft_ms"}, JSONOptions{}); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Points []struct {
			State  string
			States map[string]int
			Rate   float64 `json:"sustainable_rate"`
		}
		Verdicts []struct {
			Verdict struct {
				Best      string
				NotSteady []string `json:"not_steady"`
			}
		}
	}
	if err := json.Unmarshal([]byte(b.String()), &got); err != nil {
		t.Fatal(err)
	}
	p := got.Points[3]
	if p.State != "overloaded" || p.Rate != 7.5 || p.States["steady"] != 1 || p.States["overloaded"] != 2 ||
		got.Points[0].State != "steady" {
		t.Errorf("%+v", got.Points)
	}
	if v := got.Verdicts[1].Verdict; v.Best != "" || len(v.NotSteady) != 2 || got.Verdicts[0].Verdict.Best == "" {
		t.Errorf("%+v", got.Verdicts)
	}
	const both = "no verdict: static is overloaded (sustains 7.5 of 20 requests/s), 2 of 3 runs, " +
		"least-loaded is overloaded (sustains 7.5 of 20 requests/s), 2 of 3 runs"
	if v := d.Verdicts(tables, "mean_ttft_ms")[1].String(); v != both {
		t.Error(v)
	}
}

// runStateless runs the cells as a version did that knew no states.
func runStateless(t *testing.T, d *Dir) {
	t.Helper()
	for i := range d.Cells {
		res, lat, err := d.simulate(t.Context(), &job{cell: &d.Cells[i]})
		if err != nil {
			t.Fatal(err)
		}
		res.Steady = nil
		if err := d.writeCell(&d.Cells[i], res, lat); err != nil {
			t.Fatal(err)
		}
	}
}

// Cells of a version that knew no states have none.
func TestSweepsWithoutStates(t *testing.T) {
	d := create(t, smallSpec(t))
	runStateless(t, d)
	tables, err := d.Merge(MergeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := d.WriteText(&b, tables, result.SweepDefaults()); err != nil {
		t.Fatal(err)
	}
	if tables.Points[0].State != "" || strings.Contains(b.String(), "state") ||
		d.Verdicts(tables, "mean_ttft_ms")[0].Best == "" {
		t.Error(b.String())
	}
	if data, err := os.ReadFile(filepath.Join(d.Path, "table.csv")); err != nil ||
		!strings.Contains(string(data), ",yes") {
		t.Error(err)
	}
}
