package replay

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"
)

// distribution is what gonum knows of one.
type distribution interface {
	CDF(float64) float64
	Mean() float64
	StdDev() float64
}

// ofGonum returns the distribution with the parameters of g.
func ofGonum(g gaps) distribution {
	switch g.dist {
	case Gamma:
		return distuv.Gamma{Alpha: 1 / g.scale, Beta: 1 / g.scale}
	case Pareto:
		return distuv.Pareto{Xm: g.scale, Alpha: 1 / g.power}
	case Weibull:
		return distuv.Weibull{K: 1 / g.power, Lambda: g.scale}
	}
	return distuv.Exponential{Rate: 1}
}

func forEachDistribution(t *testing.T, f func(t *testing.T, g gaps, cv float64)) {
	for _, d := range []Distribution{Exponential, Gamma, Pareto, Weibull} {
		for _, cv := range []float64{0.3, 1, 4} {
			if d == Exponential && cv != 1 {
				continue
			}
			t.Run(fmt.Sprint(d, " cv ", cv), func(t *testing.T) { f(t, newGaps(d, cv), cv) })
		}
	}
}

// distance returns the largest distance between the distribution function of a
// sample and cdf (Kolmogorov-Smirnov).
func distance(sample []float64, cdf func(float64) float64) float64 {
	slices.Sort(sample)
	n := float64(len(sample))
	worst := 0.0
	for i, x := range sample {
		f := cdf(x)
		worst = max(worst, f-float64(i)/n, float64(i+1)/n-f)
	}
	return worst
}

// At 20,000 draws the distance is above 0.0138 once in 1000 samples.
const (
	draws       = 20_000
	maxDistance = 0.0138
)

func TestGaps(t *testing.T) {
	forEachDistribution(t, func(t *testing.T, g gaps, cv float64) {
		want := ofGonum(g)
		if math.Abs(want.Mean()-1) > 1e-9 || math.Abs(want.StdDev()-cv) > 1e-6*cv {
			t.Fatalf("gaps with mean %v and CV %v, expected 1 and %v", want.Mean(), want.StdDev(), cv)
		}
		r := rand.New(rand.NewPCG(1, 2))
		sample := make([]float64, draws)
		for i := range sample {
			sample[i] = g.next(r)
		}
		if d := distance(sample, want.CDF); d > maxDistance {
			t.Errorf("distance to the distribution of gonum is %v, expected at most %v", d, maxDistance)
		}
	})
}

// TestFirstGap compares the first gap with the distribution of the residual
// life, the integral of 1-CDF(x) over x (renewal theory), taken numerically.
func TestFirstGap(t *testing.T) {
	forEachDistribution(t, func(t *testing.T, g gaps, cv float64) {
		cdf := ofGonum(g).CDF
		r := rand.New(rand.NewPCG(3, 4))
		sample := make([]float64, draws)
		for i := range sample {
			sample[i] = g.first(r)
		}
		// Trapezoids from one point of the sample to the next, refined where
		// those lie far apart.
		slices.Sort(sample)
		integral, at := 0.0, 0.0
		residual := func(x float64) float64 {
			for at < x {
				to := min(x, at+max(1e-4, at/50))
				integral += (to - at) * (1 - (cdf(at)+cdf(to))/2)
				at = to
			}
			return integral
		}
		if d := distance(sample, residual); d > maxDistance {
			t.Errorf("distance to the residual life is %v, expected at most %v", d, maxDistance)
		}
	})
}

// TestStationary counts arrivals in a short time from the start. Their mean is
// the length of that time in units of the mean gap, however irregular they are.
func TestStationary(t *testing.T) {
	forEachDistribution(t, func(t *testing.T, g gaps, cv float64) {
		const length, runs = 1.5, 40_000
		r := rand.New(rand.NewPCG(5, 6))
		var sum, squares float64
		for range runs {
			n := 0.0
			for at := g.first(r); at < length; at += g.next(r) {
				n++
			}
			sum += n
			squares += n * n
		}
		mean := sum / runs
		sigma := math.Sqrt((squares/runs - mean*mean) / runs)
		if math.Abs(mean-length) > 4*sigma {
			t.Errorf("%v arrivals on average, expected %v within 4 * %v", mean, length, sigma)
		}
	})
}

func TestParseDistribution(t *testing.T) {
	if d, err := ParseDistribution("weibull"); d != Weibull || err != nil {
		t.Errorf("ParseDistribution(weibull) = %v, %v", d, err)
	}
	_, err := ParseDistribution("cauchy")
	expectError(t, err, `"cauchy"`, "exponential, gamma, pareto or weibull")
}
