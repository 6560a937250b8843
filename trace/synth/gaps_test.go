package synth

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// kolmogorov is the largest distance between the distribution of xs and cdf.
func kolmogorov(xs []float64, cdf func(float64) float64) float64 {
	slices.Sort(xs)
	d, n := 0.0, float64(len(xs))
	for i, x := range xs {
		f := cdf(x)
		d = max(d, f-float64(i)/n, float64(i+1)/n-f)
	}
	return d
}

// weibullCDF is the Weibull distribution with mean 1 and shape k.
func weibullCDF(k float64) func(float64) float64 {
	return distuv.Weibull{K: k, Lambda: 1 / math.Gamma(1+1/k)}.CDF
}

var gapTests = []struct {
	a   Arrivals
	cdf func(float64) float64
}{
	{Arrivals{Dist: Exponential}, func(x float64) float64 { return -math.Expm1(-x) }},
	{Arrivals{Dist: Gamma, CV: 1}, func(x float64) float64 { return -math.Expm1(-x) }},
	{Arrivals{Dist: Gamma, CV: 4}, distuv.Gamma{Alpha: 1.0 / 16, Beta: 1.0 / 16}.CDF},
	{Arrivals{Dist: Gamma, CV: 0.5}, distuv.Gamma{Alpha: 4, Beta: 4}.CDF},
	{Arrivals{Dist: Weibull, CV: 1}, weibullCDF(1)},
	// Shapes 1/2 and 2 have CV sqrt(5) and sqrt(4/pi-1).
	{Arrivals{Dist: Weibull, CV: math.Sqrt(5)}, weibullCDF(0.5)},
	{Arrivals{Dist: Weibull, CV: math.Sqrt(4/math.Pi - 1)}, weibullCDF(2)},
}

// Kolmogorov-Smirnov at the 0.1 % level: 1.95/sqrt(n).
const (
	ksDraws = 40_000
	ksBound = 1.95 / 200
)

func TestGapDistribution(t *testing.T) {
	for _, test := range gapTests {
		g, r := newGaps(test.a), stream(3, forGaps, 0)
		xs := make([]float64, ksDraws)
		for i := range xs {
			xs[i] = g.draw(r)
		}
		if d := kolmogorov(xs, test.cdf); d > ksBound {
			t.Errorf("%v: distance to the distribution %v, expected < %v", test.a, d, ksBound)
		}
	}
}

// The first gap has the residual-life distribution, whose density is 1-F.
func TestFirstGapDistribution(t *testing.T) {
	for _, test := range gapTests {
		g, r := newGaps(test.a), stream(4, forGaps, 0)
		xs := make([]float64, ksDraws)
		for i := range xs {
			xs[i] = g.first(r)
		}
		slices.Sort(xs)
		at, integral := 0.0, 0.0
		residual := func(x float64) float64 { // called in ascending order
			const parts = 4
			for i := range parts {
				mid := at + (float64(i)+0.5)/parts*(x-at)
				integral += (x - at) / parts * (1 - test.cdf(mid))
			}
			at = x
			return integral
		}
		if d := kolmogorov(xs, residual); d > ksBound {
			t.Errorf("%v: distance to the residual life %v, expected < %v", test.a, d, ksBound)
		}
	}
}

// Mean 1 and the CV asked for, at the ends of the range as well. The tolerance
// is five standard errors of the mean where the CV says them.
func TestGapMoments(t *testing.T) {
	const n = 400_000
	for _, a := range []Arrivals{
		{Dist: Gamma, CV: 1e-3}, {Dist: Gamma, CV: 0.2}, {Dist: Gamma, CV: 3}, {Dist: Gamma, CV: 10},
		{Dist: Weibull, CV: 1e-3}, {Dist: Weibull, CV: 0.2}, {Dist: Weibull, CV: 3},
		{Dist: Exponential, CV: 1}, {Dist: Deterministic},
	} {
		t.Run(fmt.Sprintf("%v/cv=%v", a.Dist, a.CV), func(t *testing.T) {
			g, r := newGaps(a), stream(5, forGaps, 0)
			xs := make([]float64, n)
			for i := range xs {
				xs[i] = g.draw(r)
			}
			mean, std := stat.PopMeanStdDev(xs, nil)
			near(t, "mean", mean, 1, 5*a.CV/math.Sqrt(n))
			near(t, "cv", std/mean, a.CV, 0.05*a.CV)
		})
	}
}

// Extreme CVs give finite gaps.
func TestGapsFinite(t *testing.T) {
	for _, a := range []Arrivals{{Dist: Gamma, CV: 1e3}, {Dist: Weibull, CV: 1e3}} {
		g, r := newGaps(a), stream(6, forGaps, 0)
		for range 100_000 {
			if x := g.draw(r) + g.first(r); !(x >= 0) || math.IsInf(x, 0) {
				t.Fatalf("%v: gap %v", a, x)
			}
		}
	}
}
