package sweep

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// Student's t for 95 % from printed tables: 12.706 (1 degree of freedom),
// 2.776 (4), 2.262 (9).
func TestMean(t *testing.T) {
	for _, c := range []struct {
		values           []float64
		mean, std, width float64
	}{
		{[]float64{1, 3}, 2, math.Sqrt2, 12.706 * math.Sqrt2 / math.Sqrt(2)},
		{[]float64{2, 4, 4, 4, 6}, 4, math.Sqrt2, 2.776 * math.Sqrt2 / math.Sqrt(5)},
		{[]float64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 4.5, 3.02765, 2.262 * 3.02765 / math.Sqrt(10)},
		{[]float64{5, 5, 5}, 5, 0, 0},
	} {
		e := Mean(c.values)
		if e.N != len(c.values) || math.Abs(e.Mean-c.mean) > 1e-12 || math.Abs(e.Std-c.std) > 1e-5 || math.Abs(e.Half()-c.width) > 1e-3 {
			t.Errorf("%v: %+v", c.values, e)
		}
	}
	if e := Mean([]float64{7, math.NaN()}); e.N != 1 || e.Mean != 7 || !math.IsNaN(e.Low) || e.String() != "7" {
		t.Errorf("%+v", e)
	}
	if e := Mean(nil); e.N != 0 || !math.IsNaN(e.Mean) || e.String() != "-" {
		t.Errorf("%+v", e)
	}
}

// Of 2000 intervals from 5 normal values each, 95 % hold the true mean, to 3
// standard errors of that share (1.5 %).
func TestMeanCovers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	inside, paired := 0, 0
	const n = 2000
	for range n {
		xs, ys := make([]float64, 5), make([]float64, 5)
		for i := range xs {
			common := 100 * rng.NormFloat64()
			xs[i], ys[i] = common+3+rng.NormFloat64(), common+2+rng.NormFloat64()
		}
		if e := Mean(xs); e.Low <= 3 && 3 <= e.High {
			inside++
		}
		d := Paired(xs, ys)
		if d.Low <= 1 && 1 <= d.High {
			paired++
		}
		if d.Half() > Mean(xs).Half() {
			t.Fatal("the paired interval is not the narrower one")
		}
	}
	for what, k := range map[string]int{"mean": inside, "paired difference": paired} {
		if share := float64(k) / n; math.Abs(share-0.95) > 0.015 {
			t.Errorf("%s: %.3f of the intervals hold the true value", what, share)
		}
	}
}

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
	if strings.Join(strings.Fields(lines[0]+" "+lines[1]), " ") != "request_ vs Good share of rate policy Mean TTFT (ms) least-loaded all requests" {
		t.Errorf("%q", lines[:2])
	}
	if !strings.Contains(lines[2], "%") || strings.Contains(lines[3], "%") || !strings.Contains(lines[3], " - ") || strings.Contains(b.String(), NotComparable) {
		t.Error(b.String())
	}
	if lines[11] != "by Mean TTFT (ms):" || !strings.HasPrefix(lines[12], "request_rate=5: least-loaded ") || !strings.HasPrefix(lines[13], "request_rate=20: least-loaded ") || lines[14] != VerdictNote {
		t.Error(b.String())
	}
	if err := tables.CheckMetrics([]string{"mean_tft_ms"}); err == nil || !strings.Contains(err.Error(), `did you mean "mean_ttft_ms"`) {
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
