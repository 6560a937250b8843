package synth

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"

	"lorasim/trace"
	"lorasim/trace/internal/renewal"
	"lorasim/trace/nprand"
)

// This file reproduces how the clients of serving benchmarks time their requests and choose adapters.

// Pace describes the arrivals of one client that sends all requests: vLLM's (get_request in
// vllm/benchmarks/serve.py, 0.32) or, with FromZero, sglang's (get_request in sglang/benchmark/serving.py, 0.5.23).
//
// The gap before request i has the mean 1/r_i, where r_i is the rate at request i. Without a ramp vLLM's client
// scales all gaps so that the last request arrives at exactly n/rate. sglang's client does not scale, and sends the
// first request at once.
type Pace struct {
	Rate       float64 // requests/s; +Inf: all at time 0
	Burstiness float64 // shape of the gamma distribution of the gaps; 1: exponential, < 1: burstier, +Inf: equal gaps
	Ramp       Ramp
	FromZero   bool
}

// A Ramp changes the rate from request to request, from Start to End. The zero Ramp keeps the rate of the Pace.
type Ramp struct {
	Strategy   string  // LinearRamp, ExponentialRamp, "": none
	Start, End float64 // requests/s
}

// The strategies of a Ramp. With each request the rate changes by the same amount, or by the same factor.
const (
	LinearRamp      = "linear"
	ExponentialRamp = "exponential"
)

// Paced returns the n requests of a source with the arrival times of a pace. sglang's client without a ramp ignores
// n.
func Paced(src trace.Source, p Pace, n int64, seed uint64) (trace.Source, error) {
	d := paced{Source: src, pace: p, n: n, scale: 1, rng: stream(seed, forPace, 0), gaps: renewal.New(Deterministic, 0)}
	if !math.IsInf(p.Burstiness, 1) {
		d.gaps = renewal.New(Gamma, 1/math.Sqrt(p.Burstiness))
	}
	steady := p.Ramp.Strategy == ""
	if n <= 0 && !(steady && p.FromZero) {
		return nil, errors.New("the pace depends on the number of requests, which is not known")
	}
	if steady && !p.FromZero && !math.IsInf(p.Rate, 1) {
		ahead := d
		ahead.rng = stream(seed, forPace, 0)
		for range n {
			ahead.advance()
		}
		d.scale = float64(n) / p.Rate / ahead.at
	}
	return &d, nil
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

// Adapter distributions of sglang's client (lora_request_distribution in sglang/benchmark/serving.py, 0.5.23).
const (
	UniformAdapters  = "uniform"  // each request draws one
	DistinctAdapters = "distinct" // each adapter in turn
	SkewedAdapters   = "skewed"   // each request draws one; the share of adapter i is proportional to alpha^-i
)

// Adapter distributions of vLLM's client (lora_assignment in vllm/benchmarks/serve.py, 0.32.0).
const (
	RandomAdapters     = "random"      // each request draws one
	RoundRobinAdapters = "round-robin" // request i has adapter i modulo their number
)

// Assigned returns the requests of a source with the adapters that sglang's or vLLM's client assigns. alpha, > 1,
// applies to SkewedAdapters only.
func Assigned(src trace.Source, distribution string, alpha float64, seed uint64) trace.Source {
	k, rng := len(src.Adapters()), stream(seed, forPick, 0)
	draw := func() int32 { return rng.Int32N(int32(k)) }
	switch distribution {
	case DistinctAdapters, RoundRobinAdapters:
		turn := -1
		draw = func() int32 { turn = (turn + 1) % k; return int32(turn) }
	case SkewedAdapters:
		shares := make([]float64, k)
		for i := range shares {
			shares[i] = math.Pow(alpha, -float64(i))
		}
		table := newAlias(normalize(shares))
		draw = func() int32 { return table.draw(rng) }
	}
	return &assigned{src, draw}
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

// SLoRA describes a workload of the generator in S-LoRA's benchmarks (benchmarks/trace.py, generate_requests).
// NewSLoRA reproduces it draw by draw from the same seed, token counts included.
type SLoRA struct {
	Adapters int
	Ranks    Ranks
	Alpha    float64  // exponent of adapter popularity, as for PowerLaw; 1: uniform
	Rate     float64  // requests/s
	CV       float64  // coefficient of variation of the gamma gaps; a gap precedes the first request
	Duration float64  // s; the number of requests is int(Rate * Duration)
	Input    [2]int32 // prompt tokens, uniform in [low, high)
	Output   [2]int32 // output tokens, uniform in [low, high)
	Seed     uint32
}

// NewSLoRA returns the requests of the S-LoRA generator. The generator draws all adapters first, then all lengths,
// then the gaps, from one stream. So the source keeps 12 bytes per request and draws the gaps as it goes.
func NewSLoRA(c SLoRA) (trace.Source, error) {
	const most = 1e9
	if n := c.Rate * c.Duration; !(n >= 1 && n <= most) {
		return nil, fmt.Errorf("S-LoRA workload: rate %v requests/s for %v s is %v requests, expected 1 to %g", c.Rate,
			c.Duration, n, most)
	}
	rng, draws, now := nprand.New(c.Seed), make([]struct{ adapter, prompt, output int32 }, int(c.Rate*c.Duration)), 0.0
	for i := range draws {
		adapter := int32(rng.Power(c.Alpha) * float64(c.Adapters))
		draws[i].adapter = min(adapter, int32(c.Adapters-1)) // the draw may round up to 1
	}
	for i := range draws {
		draws[i].prompt = rng.RandInt(c.Input[0], c.Input[1])
	}
	for i := range draws {
		draws[i].output = rng.RandInt(c.Output[0], c.Output[1])
	}
	adapters := trace.Names(c.Adapters, c.Ranks.For(c.Adapters, uint64(c.Seed)))
	return trace.Generate(adapters, int64(len(draws)), func() (trace.Request, error) {
		now += rng.Gamma(1/(c.CV*c.CV), c.CV*c.CV/c.Rate)
		d := draws[0]
		draws = draws[1:]
		return trace.Request{Arrival: now, Adapter: d.adapter, Prompt: d.prompt, Output: d.output}, nil
	}), nil
}

// SharedPoisson describes the arrivals of the client behind the measured vLLM runs with many adapters
// (GPULLMAdapterOptimization, arXiv 2508.08343). NewSharedPoisson reproduces it draw by draw. Each adapter has a
// Poisson process, and all processes draw from one numpy generator, np.random.exponential(1/rate). First each
// adapter in order draws one gap. Then the adapter with the earliest time (ties: the lowest index) arrives and draws
// its next gap.
type SharedPoisson struct {
	Rates    []float64 // requests/s of each adapter, >= 0
	Ranks    Ranks
	Requests int64   // most requests; 0: no limit
	Duration float64 // length of the workload, s; 0: no limit
	Seed     uint32
}

// NewSharedPoisson returns the requests, with Prompt and Output 0.
func NewSharedPoisson(c SharedPoisson) (trace.Source, error) {
	rng := nprand.New(c.Seed)
	gap := func(adapter int32) float64 { // one that never comes draws, too
		mean, x := 1/c.Rates[adapter], rng.StandardExponential()
		if math.IsInf(mean, 1) {
			return mean
		}
		return mean * x
	}
	var queue renewal.Queue
	for i, r := range c.Rates {
		if !(r >= 0) || math.IsInf(r, 1) {
			return nil, fmt.Errorf("vllm-lora workload: rate of adapter %d is %v requests/s, expected a finite number >= 0", i, r)
		}
		queue.Push(renewal.Event{At: gap(int32(i)), Item: int32(i)})
	}
	adapters := trace.Names(len(c.Rates), c.Ranks.For(len(c.Rates), uint64(c.Seed)))
	return ending(adapters, c.Requests, c.Duration, func() (trace.Request, error) {
		e := queue[0]
		if math.IsInf(e.At, 1) {
			return trace.Request{}, io.EOF
		}
		queue.Replace(renewal.Event{At: e.At + gap(e.Item), Item: e.Item})
		return trace.Request{Arrival: e.At, Adapter: e.Item}, nil
	}), nil
}

// Durations returns a function that draws exponential execution times with the given mean, s, for traces of
// functions.
func Durations(mean float64, seed uint64) func() float64 {
	rng := stream(seed, forExport, 0)
	return func() float64 { return rng.ExpFloat64() * mean }
}
