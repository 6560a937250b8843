package sweep

import (
	"math"
	"strings"
	"testing"

	"lorasim/bench/stats"
)

func TestText(t *testing.T) {
	d := create(t, smallSpec(t))
	runStateless(t, d)
	tables, err := d.Tables(MergeOptions{Baseline: "least-loaded"})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := d.WriteText(&b, tables, []string{"mean_ttft_ms", "goodput.share"}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	if strings.Join(strings.Fields(lines[0]+" "+lines[1]),
		" ") != "request_ vs rate policy Mean TTFT (ms) least-loaded SLO attainment" {
		t.Errorf("%q", lines[:2])
	}
	if !strings.Contains(lines[2], "%") || strings.Contains(lines[3], "%") || !strings.Contains(lines[3], " - ") ||
		strings.Contains(b.String(), stats.NotComparable) {
		t.Error(b.String())
	}
	if lines[11] != "by Mean TTFT (ms):" || !strings.HasPrefix(lines[12], "request_rate=5: least-loaded ") ||
		!strings.HasPrefix(lines[13], "request_rate=20: least-loaded ") || lines[14] != stats.VerdictNote {
		t.Error(b.String())
	}
	if err := tables.CheckMetrics([]string{"mean_tft_ms"}); err == nil ||
		!strings.Contains(err.Error(), `did you mean "mean_ttft_ms"`) {
		t.Error(err)
	}
	// the difference is that of the paired seeds, computed here once more
	p := tables.Points[0]
	m, _ := p.Metric("mean_ttft_ms")
	sum := 0.0
	for i := range 3 {
		a, _ := d.ReadCell(&d.Cells[i])
		c, _ := d.ReadCell(&d.Cells[3+i])
		sum += a.Value("mean_ttft_ms") - c.Value("mean_ttft_ms")
	}
	if math.Abs(m.Diff.Mean-sum/3) > 1e-9 {
		t.Error(m.Diff.Mean, sum/3)
	}
}

func TestVersusBaseline(t *testing.T) {
	diff := func(n int, mean, half float64) stats.Estimate {
		return stats.Estimate{N: n, Mean: mean, Low: mean - half, High: mean + half}
	}
	for want, m := range map[string]PointValue{
		"-":               {Base: 10},
		"+20.0 %":         {Base: 10, Diff: diff(1, 2, 0)},
		"+20.0 % ±30.0":   {Base: 10, Diff: diff(2, 2, 3)},
		"+20.0 % ±20.0":   {Base: 10, Diff: diff(2, 2, 2)}, // reaches 0
		"+20.0 % ±10.0 *": {Base: 10, Diff: diff(2, 2, 1)},
		"-20.0 % ±10.0 *": {Base: 10, Diff: diff(2, -2, 1)},
		"-20.0 % ±20.0":   {Base: 10, Diff: diff(2, -2, 2)},
		"+20.0 % ±10.0 ≠": {Base: 10, Diff: diff(2, 2, 1), Apart: true},
	} {
		if got := m.versus(); got != want {
			t.Errorf("%q, expected %q", got, want)
		}
	}
	if got := (PointValue{Diff: diff(2, 1, 0)}).versus(); got != "-" {
		t.Errorf("against a baseline of 0: %s", got)
	}
}
