package renewal

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// distribution is what gonum knows of one.
type distribution interface {
	CDF(float64) float64
	Mean() float64
	StdDev() float64
}

// ofGonum returns the distribution with the parameters of g.
func ofGonum(g Gaps) distribution {
	switch g.dist {
	case Gamma:
		return distuv.Gamma{Alpha: 1 / g.scale, Beta: 1 / g.scale}
	case Pareto:
		return distuv.Pareto{Xm: g.scale, Alpha: 1 / g.power}
	case Weibull:
		return distuv.Weibull{K: 1 / g.power, Lambda: math.Exp(-g.log)}
	}
	return distuv.Exponential{Rate: 1}
}

// forEach runs f for the distributions and some CVs. Among those are the ones of
// the Weibull shapes 1/2 and 2.
func forEach(t *testing.T, f func(t *testing.T, g Gaps, cv float64)) {
	run := func(dist string, cv float64) {
		t.Run(fmt.Sprintf("%s cv %.2g", dist, cv), func(t *testing.T) { f(t, New(dist, cv), cv) })
	}
	run(Exponential, 1)
	for _, dist := range []string{Gamma, Pareto, Weibull} {
		for _, cv := range []float64{0.3, math.Sqrt(4/math.Pi - 1), 1, math.Sqrt(5), 4} {
			run(dist, cv)
		}
	}
}

func sample(n int, draw func() float64) []float64 {
	xs := make([]float64, n)
	for i := range xs {
		xs[i] = draw()
	}
	return xs
}

// distance returns the largest distance between the distribution function of a
// sample and cdf (Kolmogorov-Smirnov), which is called in ascending order.
func distance(xs []float64, cdf func(float64) float64) float64 {
	slices.Sort(xs)
	n := float64(len(xs))
	worst := 0.0
	for i, x := range xs {
		f := cdf(x)
		worst = max(worst, f-float64(i)/n, float64(i+1)/n-f)
	}
	return worst
}

// The distance is above 1.95/sqrt(draws) once in 1000 samples.
const (
	draws       = 40_000
	maxDistance = 1.95 / 200
)

func TestNext(t *testing.T) {
	forEach(t, func(t *testing.T, g Gaps, cv float64) {
		want := ofGonum(g)
		if math.Abs(want.Mean()-1) > 1e-9 || math.Abs(want.StdDev()-cv) > 1e-6*cv {
			t.Fatalf("gaps with mean %v and CV %v, expected 1 and %v", want.Mean(), want.StdDev(), cv)
		}
		r := rand.New(rand.NewPCG(1, 2))
		if d := distance(sample(draws, func() float64 { return g.Next(r) }), want.CDF); d > maxDistance {
			t.Errorf("distance to the distribution of gonum is %v, expected at most %v", d, maxDistance)
		}
	})
}

// The shapes that belong to some CVs are known.
func TestShapes(t *testing.T) {
	for _, c := range []struct {
		dist      string
		cv, shape float64
	}{
		{Gamma, 1, 1}, {Gamma, 4, 1.0 / 16}, {Gamma, 0.5, 4},
		{Weibull, 1, 1}, {Weibull, math.Sqrt(5), 0.5}, {Weibull, math.Sqrt(4/math.Pi - 1), 2},
		{Pareto, 1 / math.Sqrt(3), 3}, {Pareto, 1 / math.Sqrt(8), 4},
	} {
		g := New(c.dist, c.cv)
		got := 1 / g.power
		if c.dist == Gamma {
			got = 1 / g.scale
		}
		if math.Abs(got-c.shape) > 1e-9*c.shape {
			t.Errorf("%s with CV %v has shape %v, expected %v", c.dist, c.cv, got, c.shape)
		}
	}
}

// TestFirst compares the first gap with the distribution of the residual life,
// the integral of 1-CDF(x) over x (renewal theory), taken numerically.
func TestFirst(t *testing.T) {
	forEach(t, func(t *testing.T, g Gaps, cv float64) {
		cdf := ofGonum(g).CDF
		// Trapezoids from one point of the sample to the next, refined where
		// those lie far apart.
		integral, at := 0.0, 0.0
		residual := func(x float64) float64 {
			for at < x {
				to := min(x, at+max(1e-4, at/50))
				integral += (to - at) * (1 - (cdf(at)+cdf(to))/2)
				at = to
			}
			return integral
		}
		r := rand.New(rand.NewPCG(3, 4))
		if d := distance(sample(draws, func() float64 { return g.First(r) }), residual); d > maxDistance {
			t.Errorf("distance to the residual life is %v, expected at most %v", d, maxDistance)
		}
	})
}

// TestStationary counts arrivals in a short time from the start. Their mean is
// the length of that time in units of the mean gap, however irregular they are.
func TestStationary(t *testing.T) {
	forEach(t, func(t *testing.T, g Gaps, cv float64) {
		const length, runs = 1.5, 40_000
		r := rand.New(rand.NewPCG(5, 6))
		counts := sample(runs, func() float64 {
			n := 0.0
			for at := g.First(r); at < length; at += g.Next(r) {
				n++
			}
			return n
		})
		mean, std := stat.MeanStdDev(counts, nil)
		if sigma := std / math.Sqrt(runs); math.Abs(mean-length) > 4*sigma {
			t.Errorf("%v arrivals on average, expected %v within 4 * %v", mean, length, sigma)
		}
	})
}

// Mean 1 and the CV asked for, at the ends of the range as well. The tolerance
// is five standard errors of the mean where the CV says them.
func TestMoments(t *testing.T) {
	const n = 400_000
	for _, c := range []struct {
		dist string
		cv   float64
	}{
		{Gamma, MinCV}, {Gamma, 0.2}, {Gamma, 3}, {Gamma, 10},
		{Weibull, MinCV}, {Weibull, 0.2}, {Weibull, 3},
		{Pareto, MinCV}, {Pareto, 0.2},
		{Exponential, 1}, {Deterministic, 0},
	} {
		g, r := New(c.dist, c.cv), rand.New(rand.NewPCG(7, 8))
		mean, std := stat.PopMeanStdDev(sample(n, func() float64 { return g.Next(r) }), nil)
		if math.Abs(mean-1) > 5*c.cv/math.Sqrt(n) || math.Abs(std/mean-c.cv) > 0.05*c.cv {
			t.Errorf("%s with CV %v: mean %v, expected 1 within %v; CV %v, expected it within 5 %%",
				c.dist, c.cv, mean, 5*c.cv/math.Sqrt(n), std/mean)
		}
	}
}

func TestDeterministic(t *testing.T) {
	g, r := New(Deterministic, 0), rand.New(rand.NewPCG(9, 10))
	if gap := g.Next(r); gap != 1 {
		t.Errorf("gap %v", gap)
	}
	// Its residual life is even between 0 and 1.
	if d := distance(sample(draws, func() float64 { return g.First(r) }), distuv.UnitUniform.CDF); d > maxDistance {
		t.Errorf("distance to the even distribution is %v, expected at most %v", d, maxDistance)
	}
}

// Extreme CVs give finite gaps.
func TestFinite(t *testing.T) {
	for _, dist := range []string{Gamma, Weibull, Pareto} {
		for _, cv := range []float64{MinCV, MaxCV} {
			g, r := New(dist, cv), rand.New(rand.NewPCG(11, 12))
			for range 100_000 {
				if x := g.Next(r) + g.First(r); !(x >= 0) || math.IsInf(x, 0) {
					t.Fatalf("%s with CV %v: gap %v", dist, cv, x)
				}
			}
		}
	}
}

func TestUnknownDistribution(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	New("cauchy", 1)
}

func BenchmarkNext(b *testing.B) {
	for _, dist := range []string{Exponential, Gamma, Pareto, Weibull, Deterministic} {
		for _, cv := range []float64{0.5, 4} {
			if cv > 1 && (dist == Exponential || dist == Deterministic) {
				continue
			}
			b.Run(fmt.Sprintf("%s/cv=%v", dist, cv), func(b *testing.B) {
				g, r := New(dist, cv), rand.New(rand.NewPCG(1, 2))
				b.ReportAllocs()
				for b.Loop() {
					g.Next(r)
				}
			})
		}
	}
}
