package sweep

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"lorasim/bench/stats"
)

// Student's own data of 1908, the additional hours of sleep of ten patients under
// two drugs: t = 4.0621 with 9 degrees of freedom, p = 0.00283.
var (
	sleepA = []float64{0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0}
	sleepB = []float64{1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4}
)

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
	if p := v.Others[1].P; math.Abs(p-3*stats.Paired(sleepB, sleepA).P()) > 1e-12 {
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
	if share := float64(wrong) / n; share > stats.Level+0.015 || share < 0.01 {
		t.Errorf("%.3f of the verdicts are wrong", share)
	}
}
