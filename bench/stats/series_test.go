package stats

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/stat"
)

func near(got, want, tolerance float64) bool { return math.Abs(got-want) <= tolerance }

func TestJain(t *testing.T) {
	for _, c := range []struct {
		xs   []float64
		want float64
	}{{nil, 1}, {[]float64{0, 0}, 1}, {[]float64{3, 3, 3}, 1}, {[]float64{5, 0, 0, 0}, 0.25}, {[]float64{1, 3}, 0.8}} {
		if got := Jain(c.xs); !near(got, c.want, 1e-12) {
			t.Errorf("%v: %v, expected %v", c.xs, got, c.want)
		}
	}
}

// Against gonum, on random series.
func TestMeanVariance(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for n := 2; n < 30; n++ {
		xs := make([]float64, n)
		for i := range xs {
			xs[i] = 5 + rng.NormFloat64()
		}
		mean, variance := MeanVariance(xs)
		wantMean, wantVariance := stat.MeanVariance(xs, nil)
		if !near(mean, wantMean, 1e-12) || !near(variance, wantVariance, 1e-12) {
			t.Errorf("%d values: %v, %v; expected %v, %v", n, mean, variance, wantMean, wantVariance)
		}
	}
}

// By hand: deviations -1.5 -0.5 0.5 1.5, squares 5, products 0.75 - 0.25 + 0.75.
func TestLagOne(t *testing.T) {
	for _, c := range []struct {
		xs   []float64
		want float64
	}{{[]float64{1, 2, 3, 4}, 1.25 / 5}, {[]float64{1, -1, 1, -1}, -0.75}, {[]float64{3, 3, 3}, 0}} {
		if got := LagOne(c.xs); !near(got, c.want, 1e-12) {
			t.Errorf("%v: %v, expected %v", c.xs, got, c.want)
		}
	}
}

// R: summary(lm(c(1,3,2,5,4) ~ seq(5)))$coefficients has slope 0.8 and t 2.309401.
func TestTrendT(t *testing.T) {
	for _, c := range []struct {
		xs   []float64
		want float64
	}{
		{[]float64{1, 3, 2, 5, 4}, 2.309401076758503},
		{[]float64{4, 5, 2, 3, 1}, -2.309401076758503},
		{[]float64{2, 2, 2}, 0},
		{[]float64{1, 2, 3}, math.Inf(1)},
		{[]float64{3, 2, 1}, math.Inf(-1)},
	} {
		if got := TrendT(c.xs); got != c.want && !near(got, c.want, 1e-9) {
			t.Errorf("%v: %v, expected %v", c.xs, got, c.want)
		}
	}
}
