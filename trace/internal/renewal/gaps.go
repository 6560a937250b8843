// Package renewal draws the arrivals of many renewal processes, one for each
// adapter: [Gaps] draws the gaps of a process, and a [Queue] merges processes.
//
//	g, r := renewal.New(renewal.Gamma, 4), rand.New(rand.NewPCG(seed, adapter))
//	var q renewal.Queue
//	q.Push(renewal.Event{At: meanGap * g.First(r), Item: adapter})
//	for e := q[0]; e.At < end; e = q[0] {
//		// an arrival of e.Item at e.At
//		q.Replace(renewal.Event{At: e.At + meanGap*g.Next(r), Item: e.Item})
//	}
package renewal

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// The distributions of gaps. All are scaled to a mean of 1 and, where a CV can
// be chosen, to that coefficient of variation.
const (
	Exponential   = "exponential"   // Poisson arrivals; CV 1
	Gamma         = "gamma"         //
	Pareto        = "pareto"        // type I: x^-(shape+1) above a smallest gap; the heaviest tail
	Weibull       = "weibull"       // for CV > 1 a heavier tail than gamma
	Deterministic = "deterministic" // equal gaps; CV 0
)

// Range of the coefficient of variation, where it can be chosen.
const (
	MinCV = 1e-3
	MaxCV = 1e3
)

// Gaps draws the gaps of a renewal process with mean gap 1.
type Gaps struct {
	dist   string
	scale  float64      // Gamma, Pareto: multiplies the standard draw
	power  float64      // Pareto, Weibull: 1/shape
	tail   float64      // Pareto: 1/(shape-1)
	log    float64      // Weibull: logarithm of the mean of the standard draw
	gamma  gammaSampler // Gamma
	biased gammaSampler // Gamma, Weibull: for the length-biased gap
}

// New returns the gaps of a distribution, one of the constants, with a
// coefficient of variation from MinCV to MaxCV; Exponential and Deterministic
// have one of their own. It panics if there is no such distribution.
func New(dist string, cv float64) Gaps {
	g := Gaps{dist: dist}
	switch dist {
	case Exponential, Deterministic:
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
		g.log, _ = math.Lgamma(1 + g.power)
		g.biased = newGammaSampler(1 + g.power)
	default:
		panic(fmt.Sprintf("renewal: unknown distribution %q", dist))
	}
	return g
}

// Next returns a gap.
func (g *Gaps) Next(r *rand.Rand) float64 {
	switch g.dist {
	case Gamma:
		return g.scale * g.gamma.draw(r)
	case Pareto:
		return g.scale * math.Exp(g.power*r.ExpFloat64())
	case Weibull:
		return g.weibull(r.ExpFloat64())
	case Deterministic:
		return 1
	}
	return r.ExpFloat64()
}

// First returns the time from an arbitrary moment to the next arrival. An
// arbitrary moment falls into a gap with a probability proportional to its
// length, anywhere in it: so this is a uniform part of a length-biased gap (D.
// R. Cox, Renewal Theory, 1962, section 5). Starting so, the expected number of
// arrivals in any time t is t, for every distribution; starting with an
// ordinary gap it is too small for CV < 1 and too large for CV > 1.
//
// The length-biased density x*f(x) is that of a gamma with shape+1 for the
// gamma; of a Pareto with shape-1; and for the Weibull, x = y^power with y
// exponential, that of y^power with y from a gamma with shape 1+power.
func (g *Gaps) First(r *rand.Rand) float64 {
	switch g.dist {
	case Gamma:
		return r.Float64() * g.scale * g.biased.draw(r)
	case Pareto:
		return r.Float64() * g.scale * math.Exp(g.tail*r.ExpFloat64())
	case Weibull:
		return r.Float64() * g.weibull(g.biased.draw(r))
	case Deterministic:
		return r.Float64()
	}
	return r.ExpFloat64()
}

// weibull returns y^power, scaled. (The power function of the library takes
// twice as long.)
func (g *Gaps) weibull(y float64) float64 { return math.Exp(g.power*math.Log(y) - g.log) }

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
// U^(1/shape). (The sampler of gonum takes half as long again, and twice as long
// for shapes below 1.)
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
