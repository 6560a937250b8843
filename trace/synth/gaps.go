package synth

import (
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/stat/distuv"
)

// gaps draws the gaps of a renewal process with mean 1.
type gaps struct {
	dist  string
	gamma distuv.Gamma // Gamma: a gap

	// Gamma: a length-biased gap. Weibull: the exponential behind one.
	biased distuv.Gamma

	// Weibull: a gap is Y^power / Gamma(1+power) with Y exponential.
	power    float64
	logScale float64
}

// newGaps prepares valid arrivals.
func newGaps(a Arrivals) *gaps {
	g := &gaps{dist: a.Dist}
	switch a.Dist {
	case Gamma:
		shape := 1 / (a.CV * a.CV)
		g.gamma = distuv.Gamma{Alpha: shape, Beta: shape}
		g.biased = distuv.Gamma{Alpha: shape + 1, Beta: shape}
	case Weibull:
		g.power = weibullPower(a.CV)
		g.logScale, _ = math.Lgamma(1 + g.power)
		g.biased = distuv.Gamma{Alpha: 1 + g.power, Beta: 1}
	}
	return g
}

// draw returns a gap.
func (g *gaps) draw(r *rand.Rand) float64 {
	switch g.dist {
	case Gamma:
		return draw(g.gamma, r)
	case Weibull:
		return g.weibull(r.ExpFloat64())
	case Exponential:
		return r.ExpFloat64()
	}
	return 1
}

// first returns the time from a moment that does not depend on the process to
// its next arrival: a uniform part of a gap drawn with probability proportional
// to its length (Cox, Renewal Theory, 1962, section 5). The length-biased gamma
// is a gamma of shape + 1; for Weibull, y e^-y dy becomes y^power e^-y dy.
func (g *gaps) first(r *rand.Rand) float64 {
	switch g.dist {
	case Gamma:
		return r.Float64() * draw(g.biased, r)
	case Weibull:
		return r.Float64() * g.weibull(draw(g.biased, r))
	case Exponential:
		return r.ExpFloat64()
	}
	return r.Float64()
}

// draw draws from d with r.
func draw(d distuv.Gamma, r *rand.Rand) float64 {
	d.Src = r
	return d.Rand()
}

// weibull turns a unit exponential into a Weibull gap with mean 1.
func (g *gaps) weibull(y float64) float64 {
	return math.Exp(math.Log(y)*g.power - g.logScale)
}

// weibullPower returns 1/shape of the Weibull distribution with the given
// coefficient of variation, from 1 + cv^2 = Gamma(1+2p) / Gamma(1+p)^2, whose
// right side grows with p.
func weibullPower(cv float64) float64 {
	want := math.Log1p(cv * cv)
	lo, hi := 0.0, 1e3
	for range 100 {
		p := (lo + hi) / 2
		second, _ := math.Lgamma(1 + 2*p)
		first, _ := math.Lgamma(1 + p)
		if second-2*first < want {
			lo = p
		} else {
			hi = p
		}
	}
	return hi
}
