package synth

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"lorasim/internal/suggest"
	"lorasim/trace"
	"lorasim/trace/internal/renewal"
)

// What follows is how the serving benchmarks' own clients time their requests
// and choose their adapters.

// Pace is the arrivals of one client that sends all requests: vLLM's (get_request
// in vllm/benchmarks/serve.py, 0.32), or, with FromZero, sglang's (get_request in
// sglang/benchmark/serving.py, 0.5.23).
//
// The gap before request i has the mean 1/r_i, r_i being the rate. Without a ramp
// vLLM's client scales all gaps so that the last request comes at n/rate exactly;
// sglang's does not, and sends the first one at once.
type Pace struct {
	Rate       float64 // requests/s; +Inf: all at time 0
	Burstiness float64 // shape of the gamma distribution of the gaps: 1 exponential, less: in bursts; +Inf: equal gaps
	Ramp       Ramp
	FromZero   bool
}

// Ramp raises the rate from request to request, from Start to End. The zero Ramp
// leaves it as it is.
type Ramp struct {
	Strategy   string  // LinearRamp, ExponentialRamp, "": none
	Start, End float64 // requests/s
}

// The strategies of Ramp: the rate grows by the same amount, or by the same
// factor, with each request.
const (
	LinearRamp      = "linear"
	ExponentialRamp = "exponential"
)

// Bounds of Burstiness.
const (
	minBurstiness = 1 / (renewal.MaxCV * renewal.MaxCV)
	maxBurstiness = 1 / (renewal.MinCV * renewal.MinCV)
)

// Check says what is wrong with p, or nil.
func (p Pace) Check() error {
	switch r := p.Ramp; {
	case !(p.Burstiness >= minBurstiness && p.Burstiness <= maxBurstiness) && !math.IsInf(p.Burstiness, 1):
		return fmt.Errorf("burstiness is %v, expected %g to %g, or inf", p.Burstiness, minBurstiness, maxBurstiness)
	case r.Strategy == "":
		if !(p.Rate >= minRate && p.Rate <= maxRate) && !math.IsInf(p.Rate, 1) {
			return fmt.Errorf("rate is %v requests/s, expected %g to %g, or inf", p.Rate, minRate, maxRate)
		}
	case r.Strategy != LinearRamp && r.Strategy != ExponentialRamp:
		return suggest.Unknown("ramp-up strategy", r.Strategy, []string{LinearRamp, ExponentialRamp})
	case !(r.Start >= minRate && r.Start <= r.End && r.End <= maxRate):
		return fmt.Errorf("a ramp-up from %v to %v requests/s, expected it to rise, from at least %g to at most %g", r.Start, r.End, minRate, maxRate)
	}
	return nil
}

// Paced gives the requests of a source, which are n, the arrival times of a pace.
// n does not matter to sglang's without a ramp.
func Paced(src trace.Source, p Pace, n int64, seed uint64) (trace.Source, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	d := &paced{Source: src, pace: p, n: n, scale: 1, rng: stream(seed, forPace, 0), gaps: renewal.New(Deterministic, 0)}
	if !math.IsInf(p.Burstiness, 1) {
		d.gaps = renewal.New(Gamma, 1/math.Sqrt(p.Burstiness))
	}
	if p.Ramp.Strategy != "" || !p.FromZero {
		if n <= 0 {
			return nil, errors.New("the pace depends on the number of requests, which is not known")
		}
	}
	if p.Ramp.Strategy == "" && !p.FromZero && !math.IsInf(p.Rate, 1) {
		ahead := *d
		ahead.rng = stream(seed, forPace, 0)
		for range n {
			ahead.advance()
		}
		d.scale = float64(n) / p.Rate / ahead.at
	}
	return d, nil
}

type paced struct {
	trace.Source
	pace  Pace
	n     int64
	scale float64 // of the times
	gaps  renewal.Gaps
	rng   *rand.Rand

	sent int64
	at   float64 // s, unscaled, of the latest request
}

// Next returns the next request with its new time.
func (d *paced) Next() (trace.Request, error) {
	r, err := d.Source.Next()
	if err == nil {
		d.advance()
		r.Arrival = d.at * d.scale
	}
	return r, err
}

// advance moves on to the time of the next request.
func (d *paced) advance() {
	if rate := d.rate(); !math.IsInf(rate, 1) && (d.sent > 0 || !d.pace.FromZero) {
		d.at += d.gaps.Next(d.rng) / rate
	}
	d.sent++
}

// rate is that of the next request.
func (d *paced) rate() float64 {
	r := d.pace.Ramp
	progress := min(float64(d.sent)/float64(max(d.n-1, 1)), 1)
	switch r.Strategy {
	case LinearRamp:
		return r.Start + (r.End-r.Start)*progress
	case ExponentialRamp:
		return r.Start * math.Pow(r.End/r.Start, progress)
	}
	return d.pace.Rate
}

// The ways in which sglang's client spreads requests over adapters
// (lora_request_distribution in sglang/benchmark/serving.py, 0.5.23).
const (
	UniformAdapters  = "uniform"  // each request draws one
	DistinctAdapters = "distinct" // one after the other, in turn
	SkewedAdapters   = "skewed"   // drawn; adapter i has a share proportional to alpha^-i
)

// Assigned gives the requests of a source the adapters that sglang's client would
// give them. Alpha, above 1, is of SkewedAdapters.
func Assigned(src trace.Source, distribution string, alpha float64, seed uint64) (trace.Source, error) {
	k := len(src.Adapters())
	if k < 1 {
		return nil, errors.New("there are no adapters to choose from")
	}
	a := &assigned{Source: src}
	switch distribution {
	case DistinctAdapters:
		turn := -1
		a.draw = func() int32 { turn = (turn + 1) % k; return int32(turn) }
	case UniformAdapters:
		rng := stream(seed, forPick, 0)
		a.draw = func() int32 { return rng.Int32N(int32(k)) }
	case SkewedAdapters:
		if !(alpha > 1) || math.IsInf(alpha, 1) {
			return nil, fmt.Errorf("alpha is %v, expected a number above 1", alpha)
		}
		shares := make([]float64, k)
		sum := 0.0
		for i := range shares {
			shares[i] = math.Pow(alpha, -float64(i))
			sum += shares[i]
		}
		for i := range shares {
			shares[i] /= sum
		}
		table, rng := newAlias(shares), stream(seed, forPick, 0)
		a.draw = func() int32 { return table.draw(rng) }
	default:
		return nil, suggest.Unknown("distribution", distribution, []string{UniformAdapters, DistinctAdapters, SkewedAdapters})
	}
	return a, nil
}

type assigned struct {
	trace.Source
	draw func() int32
}

// Next returns the next request with its new adapter.
func (a *assigned) Next() (trace.Request, error) {
	r, err := a.Source.Next()
	if err == nil {
		r.Adapter = a.draw()
	}
	return r, err
}
