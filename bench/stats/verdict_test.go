package stats

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestJudge(t *testing.T) {
	near := make([]float64, len(sleepA))
	for i, x := range sleepA {
		near[i] = x + 0.1*float64(i%2) - 0.04
	}
	b, nearA, a := Candidate{Name: "b", Values: sleepB}, Candidate{Name: "near", Values: near},
		Candidate{Name: "a", Values: sleepA}
	none, other := Candidate{Name: "none", Values: []float64{math.NaN()}},
		Candidate{Name: "other", Values: []float64{-9, -9}, Apart: true}
	v := Judge("duration", Lower, Fresh, []Candidate{b, nearA, a, none, other})
	if v.Best != "a" || v.Seeds != 10 || len(v.Others) != 2 || v.Others[0].Name != "near" || v.Others[0].Worse ||
		!v.Others[1].Worse || len(v.Apart) != 1 {
		t.Fatalf("%+v", v)
	}
	// the smallest of three p-values
	if p := v.Others[1].P; math.Abs(p-3*Paired(sleepB, sleepA).P()) > 1e-12 {
		t.Error(p)
	}
	if s := v.String(); s != "a has the lowest mean; not significantly different: near +1.3 % ±5.3; worse: b +210.7 % (93.3 to 422); not comparable: other" {
		t.Error(s)
	}
	// more is better: the other way round, and with two there is no correction
	v = Judge("output_throughput", Higher, Fresh, []Candidate{b, {Name: "near"}, a})
	if v.Best != "b" || !strings.HasPrefix(v.String(), "b is the best; worse: a -67.8 % (-136 to -30)") {
		t.Error(v)
	}
	v = Judge("duration", Lower, Fresh, []Candidate{
		{Name: "b", Values: []float64{2}}, {Name: "near", Values: []float64{3}},
	})
	if s := v.String(); s != "b has the lowest value; one run each cannot show whether that is chance: near +50.0 %" {
		t.Error(s)
	}
	if Judge("requests", Neither, Fresh, []Candidate{b, a}) != nil ||
		Judge("duration", Lower, Fresh, []Candidate{b}) != nil {
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
		candidates := make([]Candidate, len(names))
		for k := range candidates {
			candidates[k].Name = names[k]
			for _, c := range common {
				candidates[k].Values = append(candidates[k].Values, c+rng.NormFloat64())
			}
		}
		v := Judge("duration", Lower, Fresh, candidates)
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

// One workload has no interval, however many seeds decide its ties.
func TestOneWorkloadHasNoInterval(t *testing.T) {
	e := MeanOf(OneWorkload, []float64{3, 4, 5})
	if e.N != 3 || e.Mean != 4 || e.HasInterval() || !math.IsNaN(e.Low) || !math.IsNaN(e.P()) || e.String() != "4" ||
		e.Versus(8) != "+50.0 %" {
		t.Errorf("%+v, %s, %s", e, e, e.Versus(8))
	}
	v := Judge("duration", Lower, OneWorkload, []Candidate{
		{Name: "a", Values: []float64{1, 1, 1}}, {Name: "b", Values: []float64{2, 2, 2}},
	})
	if v.Others[0].Worse ||
		v.String() != "a has the lowest mean for this workload; other workloads may differ (see --resample): b +100.0 %" {
		t.Error(v)
	}
}

// Candidates that are not steady get no verdict; one that is left is named.
func TestJudgeUnsteady(t *testing.T) {
	fast, slow := []float64{1, 2, 3}, []float64{7, 8, 9.5}
	a, b := Candidate{Name: "a", Values: fast, Unsteady: "overloaded"}, Candidate{Name: "b", Values: slow}
	v := Judge("mean_ttft_ms", Lower, Fresh, []Candidate{a, b})
	if v.Best != "" || v.Left != "b" || v.String() != "no verdict: a is overloaded; only b can be judged" {
		t.Errorf("%+v", v)
	}
	v = Judge("mean_ttft_ms", Lower, Fresh, []Candidate{a, b, {Name: "c", Values: fast}})
	if v.Best != "c" || len(v.Others) != 1 ||
		v.String() != "c is the best; worse: b +308.3 % ±38.2; no verdict: a is overloaded" {
		t.Errorf("%+v: %s", v, v)
	}
}
