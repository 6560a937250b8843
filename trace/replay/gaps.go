package replay

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// Distribution names a distribution of the gaps between the requests of one
// adapter. All are scaled to mean 1/rate and a coefficient of variation CV.
type Distribution string

// The distributions.
const (
	Exponential Distribution = "exponential" // Poisson arrivals; CV 1, whatever is asked for
	Gamma       Distribution = "gamma"
	Pareto      Distribution = "pareto"  // type I: x^-(shape+1) above a smallest gap; the heaviest tail
	Weibull     Distribution = "weibull" // for CV > 1 a heavier tail than gamma
)

// Range of the coefficient of variation.
const (
	minCV = 1e-3
	maxCV = 1e3
)

// ParseDistribution reads the name of a distribution.
func ParseDistribution(s string) (Distribution, error) {
	switch d := Distribution(s); d {
	case Exponential, Gamma, Pareto, Weibull:
		return d, nil
	}
	return "", fmt.Errorf("unknown arrival distribution %q: expected %s, %s, %s or %s", s, Exponential, Gamma, Pareto, Weibull)
}

// gaps draws the gaps of a stationary renewal process with mean gap 1.
type gaps struct {
	dist   Distribution
	scale  float64 // multiplies the standard draw of the distribution
	power  float64 // 1/shape: Pareto, Weibull
	gamma  gammaSampler
	biased gammaSampler // for the length-biased gap: Gamma, Weibull
	tail   float64      // 1/(shape-1): Pareto
}

func newGaps(d Distribution, cv float64) gaps {
	g := gaps{dist: d, scale: 1}
	switch d {
	case Gamma:
		shape := 1 / (cv * cv)
		g.scale = cv * cv
		g.gamma, g.biased = newGammaSampler(shape), newGammaSampler(shape+1)
	case Pareto:
		// CV^2 = 1/(shape*(shape-2)), mean = smallest*shape/(shape-1).
		shape := 1 + math.Sqrt(1+1/(cv*cv))
		g.scale = (shape - 1) / shape
		g.power, g.tail = 1/shape, 1/(shape-1)
	case Weibull:
		g.power = weibullPower(cv)
		g.scale = 1 / math.Gamma(1+g.power)
		g.biased = newGammaSampler(1 + g.power)
	}
	return g
}

// next returns a gap.
func (g *gaps) next(r *rand.Rand) float64 {
	switch g.dist {
	case Gamma:
		return g.scale * g.gamma.draw(r)
	case Pareto:
		return g.scale * math.Exp(g.power*r.ExpFloat64())
	case Weibull:
		return g.scale * math.Pow(r.ExpFloat64(), g.power)
	}
	return r.ExpFloat64()
}

// first returns the time from an arbitrary moment to the next arrival. An
// arbitrary moment falls into a gap with a probability proportional to its
// length, anywhere in it: so this is a uniform part of a length-biased gap (D.
// R. Cox, Renewal Theory, 1962, section 5). Starting so, the expected number of
// arrivals in any time t is t, for every distribution; starting with an
// ordinary gap it is too small for CV < 1 and too large for CV > 1.
//
// The length-biased density x*f(x) is that of a gamma with shape+1 for the
// gamma; of a Pareto with shape-1; and for the Weibull, x = y^power with y
// exponential, that of y^power with y from a gamma with shape 1+power.
func (g *gaps) first(r *rand.Rand) float64 {
	switch g.dist {
	case Gamma:
		return r.Float64() * g.scale * g.biased.draw(r)
	case Pareto:
		return r.Float64() * g.scale * math.Exp(g.tail*r.ExpFloat64())
	case Weibull:
		return r.Float64() * g.scale * math.Pow(g.biased.draw(r), g.power)
	}
	return r.ExpFloat64()
}

// weibullPower returns 1/shape of the Weibull distribution with the given
// coefficient of variation: 1 + CV^2 = Gamma(1+2p) / Gamma(1+p)^2, which grows
// with p.
func weibullPower(cv float64) float64 {
	want := math.Log1p(cv * cv)
	low, high := 0.0, 100.0
	for range 100 {
		p := (low + high) / 2
		second, _ := math.Lgamma(1 + 2*p)
		first, _ := math.Lgamma(1 + p)
		if second-2*first < want {
			low = p
		} else {
			high = p
		}
	}
	return high
}

// gammaSampler draws from a gamma distribution with scale 1 by the method of G.
// Marsaglia and W. W. Tsang, "A simple method for generating gamma variables",
// ACM TOMS 26(3), 2000. A shape below 1 takes a draw of shape+1 times
// U^(1/shape). (The one of gonum allocates at each draw.)
type gammaSampler struct {
	d, c  float64
	power float64 // 1/shape if shape < 1, else 0
}

func newGammaSampler(shape float64) gammaSampler {
	var g gammaSampler
	if shape < 1 {
		g.power = 1 / shape
		shape++
	}
	g.d = shape - 1.0/3
	g.c = 1 / math.Sqrt(9*g.d)
	return g
}

func (g *gammaSampler) draw(r *rand.Rand) float64 {
	boost := 1.0
	if g.power > 0 {
		boost = math.Exp(-g.power * r.ExpFloat64())
	}
	for {
		x := r.NormFloat64()
		v := 1 + g.c*x
		if v <= 0 {
			continue
		}
		v = v * v * v
		u := r.Float64()
		if u < 1-0.0331*(x*x)*(x*x) || math.Log(u) < x*x/2+g.d*(1-v+math.Log(v)) {
			return boost * g.d * v
		}
	}
}
