package sweep

import (
	"bytes"
	"encoding/json"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lorasim/bench/stats"
	"lorasim/internal/testutil"
)

func TestPercentLeft(t *testing.T) {
	for share, want := range map[float64]string{
		math.NaN(): "-", 0: "0.0 %", 0.0001: "<0.1 %", 0.001: "0.1 %", 0.66: "66.0 %",
	} {
		if got := percentLeft(share); got != want {
			t.Errorf("%v: %s", share, got)
		}
	}
}

func sweepText(t *testing.T, d *Dir, baseline string) (*Tables, []string) {
	t.Helper()
	runStateless(t, d)
	tables, err := d.Tables(MergeOptions{Baseline: baseline})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := d.WriteText(&b, tables, []string{"mean_e2e_latency_ms", "rejected"}); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	return tables, strings.Split(text[strings.Index(text, "\n5 ")+1:], "\n") // without the head
}

// Where a setting makes requests rejected, every policy rejects the same ones:
// the policies compare, the settings do not.
func TestRejectionsOfASetting(t *testing.T) {
	s := smallSpec(t, "context_length=300,4096")
	testutil.Set(t, &s.Scenario, "lengths", "random:500,20,0")
	d := create(t, s)
	tables, lines := sweepText(t, d, "static")
	for i, p := range tables.Points {
		short := p.Values[1] == "300"
		rejected, _ := p.Metric("rejected")
		if want := rejected.Mean / 150; short != (p.Left > 0.2) || math.Abs(p.Left-want) > 1e-9 || p.Apart != short {
			t.Errorf("%v %s: %v left, want %v, apart %v", p.Values, p.Policy, p.Left, want, p.Apart)
		}
		line := lines[i]
		if !strings.Contains(line, " %") || strings.Count(line, stats.NotComparable) != map[bool]int{true: 1}[short] {
			t.Error(line)
		}
		if m, _ := p.Metric("mean_e2e_latency_ms"); m.Apart {
			t.Errorf("%v %s: not comparable with a baseline that completed the same requests", p.Values, p.Policy)
		}
	}
}

// Where the policy decides which requests fail, the policies do not compare.
func TestFailuresOfAPolicy(t *testing.T) {
	s := smallSpec(t)
	s.Scenario.Cluster.NoFailover = true
	testutil.Set(t, &s.Scenario, "outages", "0@1-4")
	d := create(t, s)
	tables, lines := sweepText(t, d, "static")
	apart := 0
	for i, p := range tables.Points {
		m, ok := p.Metric("mean_e2e_latency_ms")
		if !ok || !p.Apart || !(p.Left > 0) {
			t.Fatalf("%v %s: %+v", p.Values, p.Policy, p)
		}
		if p.Policy == "static" {
			if m.Apart {
				t.Error("the baseline is not comparable with itself")
			}
			continue
		}
		apart++
		if last := lines[i]; !m.Apart || strings.Count(last, stats.NotComparable) != 2 || strings.Contains(last, "*") {
			t.Errorf("%q", last)
		}
		if f, _ := p.Metric("failed"); f.Apart {
			t.Error("numbers of failures compare whichever requests failed")
		}
	}
	if apart != 2 || !strings.Contains(strings.Join(lines, "\n"), "≠ not comparable") {
		t.Error(strings.Join(lines, "\n"))
	}
	if _, err := d.Merge(MergeOptions{}); err != nil {
		t.Fatal(err)
	}
	column := readColumn[string](t, filepath.Join(d.Path, "table.parquet"), "comparable")
	if column[0] != "yes" || !slices.Contains(column, "no") {
		t.Errorf("comparable: %v", column)
	}
	var b bytes.Buffer
	if err := d.WriteJSON(&b, tables, nil, JSONOptions{}); err != nil {
		t.Fatal(err)
	}
	var out struct {
		Points []struct {
			Left    float64 `json:"not_completed_share"`
			Metrics map[string]struct {
				Diff *struct {
					Comparable bool `json:"comparable"`
				} `json:"diff"`
			} `json:"metrics"`
		} `json:"points"`
	}
	if err := json.Unmarshal(b.Bytes(), &out); err != nil {
		t.Fatal(err)
	}
	second := out.Points[1].Metrics
	if out.Points[1].Left == 0 || second["mean_e2e_latency_ms"].Diff.Comparable || !second["failed"].Diff.Comparable {
		t.Errorf("%+v", out.Points[1])
	}
}
