// Package renewal draws the arrivals of many renewal processes, one for each adapter. [Gaps] draws the gaps between
// the arrivals of a process, and a [Queue] merges several processes.
//
//	g, r := renewal.New(renewal.Gamma, 4), rand.New(rand.NewPCG(seed, adapter))
//	var q renewal.Queue
//	q.Push(renewal.Event{At: meanGap * g.First(r), Item: adapter})
//	for e := q[0]; e.At < end; e = q[0] {
//		// an arrival of e.Item at e.At
//		q.Replace(renewal.Event{At: e.At + meanGap*g.Next(r), Item: e.Item})
//	}
//
// [Drift] and [Recent] make the adapter of a request depend on time and on the requests before it.
package renewal

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// The distributions of gaps. All have mean 1. New sets the coefficient of variation (CV) of Gamma, Pareto and
// Weibull.
const (
	Exponential   = "exponential"   // Poisson arrivals; CV 1
	Gamma         = "gamma"         //
	Pareto        = "pareto"        // type I: x^-(shape+1) above a smallest gap; the heaviest tail
	Weibull       = "weibull"       // for CV > 1 a heavier tail than gamma
	Deterministic = "deterministic" // equal gaps; CV 0
)

// The range of coefficients of variation that New accepts.
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

// New returns the gaps of a distribution, one of the constants, with a coefficient of variation from MinCV to MaxCV.
// Exponential and Deterministic ignore cv: theirs is 1 and 0. New panics if dist is unknown.
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

// Next draws a gap.
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

// First draws the time from an arbitrary moment to the next arrival. An arbitrary moment falls into a gap with a
// probability proportional to its length, anywhere in it. So the time is a uniform part of a length-biased gap (D.
// R. Cox, Renewal Theory, 1962, section 5). With it, the expected number of arrivals in any time t is t, for every
// distribution. With an ordinary first gap, it would be too small for CV < 1 and too large for CV > 1.
//
// The length-biased density x*f(x) is that of a gamma with shape+1 for the gamma; of a Pareto with shape-1; and for
// the Weibull, x = y^power with y exponential, that of y^power with y from a gamma with shape 1+power.
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

// weibull returns y^power, scaled. (math.Pow takes twice as long.)
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

// An Event is an event of an item, such as the next arrival of a process. Events are ordered by At, then by Seq,
// then by Item.
type Event struct {
	At   float64 // time
	Seq  int64   // 0 where items have one event at a time
	Item int32
}

func (e Event) before(f Event) bool {
	return e.At < f.At || e.At == f.At && (e.Seq < f.Seq || e.Seq == f.Seq && e.Item < f.Item)
}

// A Queue is a binary heap of events with the first event at index 0. It does not use container/heap, whose
// interface calls cost several times as much.
type Queue []Event

// Push adds an event to the queue.
func (q *Queue) Push(e Event) {
	*q = append(*q, e)
	h := *q
	i := len(h) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !e.before(h[parent]) {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i] = e
}

// Pop removes the first event. The queue must not be empty.
func (q *Queue) Pop() {
	last := len(*q) - 1
	e := (*q)[last]
	*q = (*q)[:last]
	if last > 0 {
		q.Replace(e)
	}
}

// Replace replaces the first event by e. The queue must not be empty.
func (q Queue) Replace(e Event) {
	i := 0
	for {
		child := 2*i + 1
		if child >= len(q) {
			break
		}
		if child+1 < len(q) && q[child+1].before(q[child]) {
			child++
		}
		if !q[child].before(e) {
			break
		}
		q[i] = q[child]
		i = child
	}
	q[i] = e
}

// Drift returns the rank at time t (s) of what had the given rank at time 0. Every period (s) all ranks from 0 to
// n-1 move to the next rank, and the last rank moves to the first.
func Drift(rank, n int, t, period float64) int {
	steps := int(math.Mod(math.Floor(t/period), float64(n)))
	return (rank + steps) % n
}

// Recent draws adapters that repeat recent ones.
type Recent struct {
	p    float64
	rng  *rand.Rand
	last []int32 // distinct adapters, the latest first; its capacity is the window
}

// NewRecent returns a Recent that repeats, with probability p, one of the last window distinct adapters, all equally
// likely. Each call of Choose takes time proportional to window.
func NewRecent(p float64, window int, rng *rand.Rand) *Recent {
	return &Recent{p: p, rng: rng, last: make([]int32, 0, window)}
}

// Choose returns own or a recent adapter and remembers the adapter that it returns.
func (r *Recent) Choose(own int32) int32 {
	if len(r.last) > 0 && r.rng.Float64() < r.p {
		own = r.last[r.rng.IntN(len(r.last))]
	}
	r.touch(own)
	return own
}

// touch moves an adapter to the front.
func (r *Recent) touch(adapter int32) {
	at := slices.Index(r.last, adapter)
	if at < 0 {
		if len(r.last) < cap(r.last) {
			r.last = append(r.last, adapter)
		}
		at = len(r.last) - 1
	}
	copy(r.last[1:at+1], r.last[:at])
	r.last[0] = adapter
}

// Mix returns a hash of x to seed random streams with, so that the streams of neighbouring seeds and items are
// unrelated. It is the output function of SplitMix64 (G. L. Steele et al., "Fast splittable pseudorandom number
// generators", OOPSLA 2014), a bijection.
func Mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
