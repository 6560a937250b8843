package sweep

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// The example of Holm's paper in most textbooks, done by hand: of four tests
// 0.005 x 4, 0.01 x 3, 0.03 x 2 and 0.04 x 1, which is not below the one before.
func TestHolm(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct{ ps, want []float64 }{
		{[]float64{0.01, 0.04, 0.03, 0.005}, []float64{0.03, 0.06, 0.06, 0.02}},
		{[]float64{0.5, 0.6}, []float64{1, 1}},
		{[]float64{nan, 0.01}, []float64{nan, 0.02}},
		{nil, nil},
	} {
		got := Holm(c.ps)
		for i, want := range c.want {
			if math.Abs(got[i]-want) > 1e-12 && !(math.IsNaN(got[i]) && math.IsNaN(want)) {
				t.Errorf("%v: %v, expected %v", c.ps, got, c.want)
			}
		}
		if len(got) != len(c.want) {
			t.Errorf("%v: %v", c.ps, got)
		}
	}
}

// Student's own data of 1908, the additional hours of sleep of ten patients under
// two drugs: t = 4.0621 with 9 degrees of freedom, p = 0.00283.
var (
	sleepA = []float64{0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0}
	sleepB = []float64{1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4}
)

func TestPairedP(t *testing.T) {
	e := Paired(sleepB, sleepA)
	if p := e.P(); math.Abs(p-0.002833) > 1e-6 {
		t.Error(p)
	}
	if h := e.HalfAt(0.05); math.Abs(e.Mean-h-0.7001) > 1e-4 { // R: 0.7001142 2.4598858
		t.Error(e.Mean - h)
	}
	if p := Paired(sleepA, sleepA).P(); p != 1 {
		t.Error(p)
	}
	if p := Mean([]float64{3, 3}).P(); p != 0 {
		t.Error(p)
	}
	if p := Mean([]float64{3}).P(); !math.IsNaN(p) {
		t.Error(p)
	}
}

func TestJudge(t *testing.T) {
	near := make([]float64, len(sleepA))
	for i, x := range sleepA {
		near[i] = x + 0.1*float64(i%2) - 0.04
	}
	names := []string{"b", "near", "a", "none", "other"}
	values := [][]float64{sleepB, near, sleepA, {math.NaN()}, {-9, -9}}
	v := Judge("duration", names, values, []bool{false, false, false, false, true})
	if v.Best != "a" || v.Seeds != 10 || len(v.Others) != 2 || v.Others[0].Name != "near" || v.Others[0].Worse || !v.Others[1].Worse || len(v.Apart) != 1 {
		t.Fatalf("%+v", v)
	}
	// the smallest of three p-values
	if p := v.Others[1].P; math.Abs(p-3*Paired(sleepB, sleepA).P()) > 1e-12 {
		t.Error(p)
	}
	if s := v.String(); s != "a has the lowest mean; not significantly different: near +1.3 % ±5.0; worse: b +210.7 % ±117.3; not comparable: other" {
		t.Error(s)
	}
	// more is better: the other way round, and with two there is no correction
	v = Judge("output_throughput", names[:3:3], [][]float64{sleepB, nil, sleepA}, make([]bool, 3))
	if v.Best != "b" || !strings.HasPrefix(v.String(), "b is the best; worse: a -67.8 % ±37.8") {
		t.Error(v)
	}
	v = Judge("duration", names[:2], [][]float64{{2}, {3}}, make([]bool, 2))
	if s := v.String(); s != "b has the lowest value, but with one run each there is no statement about chance: near +50.0 %" {
		t.Error(s)
	}
	if Judge("requests", names[:2], values[:2], make([]bool, 2)) != nil || Judge("duration", names[:1], values[:1], make([]bool, 1)) != nil {
		t.Error("there is nothing to judge")
	}
}

// Of 2000 verdicts on six policies that are alike, at most 5 % may call any of
// them worse, to 3 standard errors; comparing with the best alone, whichever it
// is, would be wrong about twice as often.
func TestJudgeErrs(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	names := []string{"a", "b", "c", "d", "e", "f"}
	const n, seeds = 2000, 10
	wrong := 0
	for range n {
		common := make([]float64, seeds)
		for i := range common {
			common[i] = 100 + 10*rng.NormFloat64()
		}
		values := make([][]float64, len(names))
		for k := range values {
			for _, c := range common {
				values[k] = append(values[k], c+rng.NormFloat64())
			}
		}
		v := Judge("duration", names, values, make([]bool, len(names)))
		for _, o := range v.Others {
			if o.Worse {
				wrong++
				break
			}
		}
	}
	if share := float64(wrong) / n; share > Level+0.015 || share < 0.01 {
		t.Errorf("%.3f of the verdicts are wrong", share)
	}
}
