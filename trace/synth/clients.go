package synth

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"

	"lorasim/internal/suggest"
	"lorasim/trace"
	"lorasim/trace/internal/renewal"
	"lorasim/trace/nprand"
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

// Check says what is wrong with p, or nil.
func (p Pace) Check() error {
	// those of which the gamma distribution has a CV that can be drawn
	if err := check("burstiness", p.Burstiness, "", ">=1e-6 <=1e6 inf"); err != nil {
		return err
	}
	switch r := p.Ramp; {
	case r.Strategy == "":
		return check("rate", p.Rate, " requests/s", ">=1e-9 <=1e9 inf")
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
	steady := p.Ramp.Strategy == ""
	if n <= 0 && !(steady && p.FromZero) {
		return nil, errors.New("the pace depends on the number of requests, which is not known")
	}
	if steady && !p.FromZero && !math.IsInf(p.Rate, 1) {
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
	a, rng := &assigned{Source: src}, stream(seed, forPick, 0)
	switch distribution {
	case DistinctAdapters:
		turn := -1
		a.draw = func() int32 { turn = (turn + 1) % k; return int32(turn) }
	case UniformAdapters:
		a.draw = func() int32 { return rng.Int32N(int32(k)) }
	case SkewedAdapters:
		if err := check("alpha", alpha, "", ">1"); err != nil {
			return nil, err
		}
		shares := make([]float64, k)
		for i := range shares {
			shares[i] = math.Pow(alpha, -float64(i))
		}
		table := newAlias(normalize(shares))
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

// SLoRA describes a workload of the generator in S-LoRA's benchmarks
// (benchmarks/trace.py, generate_requests), which NewSLoRA reproduces draw by
// draw from the same seed, token counts included.
type SLoRA struct {
	Adapters int
	Ranks    Ranks
	Alpha    float64  // adapter popularity, as PowerLaw: 1 is uniform
	Rate     float64  // requests/s
	CV       float64  // of the gamma gaps, whose first one precedes the first request
	Duration float64  // s; the number of requests is int(Rate * Duration)
	Input    [2]int32 // prompt tokens, uniform in [low, high)
	Output   [2]int32 // output tokens, uniform in [low, high)
	Seed     uint32
}

// Check says what is wrong with the configuration, or nil.
func (c SLoRA) Check() error {
	if err := cmp.Or(check("number of adapters", float64(c.Adapters), "", ">=1 <=1e7"),
		check("alpha", c.Alpha, "", ">0"), check("cv", c.CV, "", ">0"), check("rate", c.Rate, " requests/s", ">0")); err != nil {
		return err
	}
	const most = 1e9 // requests, whose draws are kept in memory
	if n := c.Rate * c.Duration; !(c.Duration > 0) || !(n >= 1 && n <= most) {
		return fmt.Errorf("rate %v requests/s for %v s is %v requests, expected 1 to %g", c.Rate, c.Duration, n, most)
	}
	for _, r := range []struct {
		what string
		v    [2]int32
	}{{"input", c.Input}, {"output", c.Output}} {
		if r.v[0] < 1 || r.v[1] <= r.v[0] {
			return fmt.Errorf("%s range is [%d, %d), expected 1 <= low < high", r.what, r.v[0], r.v[1])
		}
	}
	return c.Ranks.Check()
}

// NewSLoRA returns the requests of the S-LoRA generator.
// The generator draws all adapters first, then all lengths, then the gaps, from
// one stream; so 12 bytes are kept per request, and the gaps are streamed.
func NewSLoRA(c SLoRA) (trace.Source, error) {
	if err := c.Check(); err != nil {
		return nil, fmt.Errorf("S-LoRA workload: %w", err)
	}
	s := &slora{
		adapters: trace.Names(c.Adapters, c.Ranks.For(c.Adapters, uint64(c.Seed))),
		rng:      nprand.New(c.Seed),
		shape:    1 / (c.CV * c.CV),
		scale:    c.CV * c.CV / c.Rate,
		draws:    make([]sloraDraw, int(c.Rate*c.Duration)),
	}
	for i := range s.draws {
		adapter := int32(s.rng.Power(c.Alpha) * float64(c.Adapters))
		s.draws[i].adapter = min(adapter, int32(c.Adapters-1)) // the draw may round up to 1
	}
	for i := range s.draws {
		s.draws[i].prompt = s.rng.RandInt(c.Input[0], c.Input[1])
	}
	for i := range s.draws {
		s.draws[i].output = s.rng.RandInt(c.Output[0], c.Output[1])
	}
	return s, nil
}

type slora struct {
	adapters     []trace.Adapter
	rng          *nprand.Rand
	shape, scale float64
	draws        []sloraDraw
	next         int
	now          float64 // s
}

type sloraDraw struct{ adapter, prompt, output int32 }

func (s *slora) Adapters() []trace.Adapter { return s.adapters }
func (s *slora) Len() int64                { return int64(len(s.draws) - s.next) }

func (s *slora) Next() (trace.Request, error) {
	if s.next == len(s.draws) {
		return trace.Request{}, io.EOF
	}
	s.now += s.rng.Gamma(s.shape, s.scale)
	d := s.draws[s.next]
	s.next++
	return trace.Request{ID: int64(s.next - 1), Arrival: s.now, Adapter: d.adapter, Prompt: d.prompt, Output: d.output}, nil
}

// SharedPoisson describes the arrivals of the client behind the measured vLLM
// runs with many adapters (GPULLMAdapterOptimization, arXiv 2508.08343), which
// NewSharedPoisson reproduces draw by draw: one Poisson process per adapter, all
// of them fed by one generator of numpy, np.random.exponential(1/rate). First
// each adapter in order draws one gap; then whoever is due, by time and then by
// adapter, arrives and draws its next gap.
type SharedPoisson struct {
	Rates    []float64 // requests/s of each adapter, >= 0
	Ranks    Ranks
	Requests int64   // end after so many; 0: do not
	Duration float64 // s; end before this time; 0: do not
	Seed     uint32
}

// Check says what is wrong with the configuration, or nil.
func (c SharedPoisson) Check() error {
	if err := check("number of adapters", float64(len(c.Rates)), "", ">=1 <=1e7"); err != nil {
		return err
	}
	total := 0.0
	for i, r := range c.Rates {
		if err := check(fmt.Sprintf("rate of adapter %d", i), r, " requests/s", ">=0"); err != nil {
			return err
		}
		total += r
	}
	switch {
	case total == 0:
		return fmt.Errorf("the rates of all %d adapters are 0", len(c.Rates))
	case c.Requests < 0 || !(c.Duration >= 0) || math.IsInf(c.Duration, 0):
		return fmt.Errorf("%d requests in %v s, expected numbers >= 0", c.Requests, c.Duration)
	case c.Requests == 0 && c.Duration == 0:
		return fmt.Errorf("neither a number of requests nor a duration is given: the workload would never end")
	}
	return c.Ranks.Check()
}

// NewSharedPoisson returns the requests, without lengths.
func NewSharedPoisson(c SharedPoisson) (trace.Source, error) {
	if err := c.Check(); err != nil {
		return nil, fmt.Errorf("vllm-lora workload: %w", err)
	}
	s := &sharedPoisson{
		adapters: trace.Names(len(c.Rates), c.Ranks.For(len(c.Rates), uint64(c.Seed))),
		rng:      nprand.New(c.Seed), requests: math.MaxInt64, duration: math.Inf(1),
		scales: make([]float64, len(c.Rates)),
	}
	if c.Requests > 0 {
		s.requests = c.Requests
	}
	if c.Duration > 0 {
		s.duration = c.Duration
	}
	for i, r := range c.Rates {
		s.scales[i] = 1 / r // infinite where it never comes
		s.queue.Push(renewal.Event{At: s.gap(i), Item: int32(i)})
	}
	return s, nil
}

type sharedPoisson struct {
	adapters []trace.Adapter
	rng      *nprand.Rand
	scales   []float64 // mean gaps, s
	queue    renewal.Queue
	id       int64
	requests int64
	duration float64
}

// gap draws a gap of an adapter; one that never comes draws too.
func (s *sharedPoisson) gap(adapter int) float64 {
	x := s.rng.StandardExponential()
	if math.IsInf(s.scales[adapter], 1) {
		return math.Inf(1)
	}
	return s.scales[adapter] * x
}

func (s *sharedPoisson) Adapters() []trace.Adapter { return s.adapters }

func (s *sharedPoisson) Next() (trace.Request, error) {
	e := s.queue[0]
	if s.id >= s.requests || !(e.At < s.duration) {
		return trace.Request{}, io.EOF
	}
	s.queue.Replace(renewal.Event{At: e.At + s.gap(int(e.Item)), Item: e.Item})
	s.id++
	return trace.Request{ID: s.id - 1, Arrival: e.At, Adapter: e.Item}, nil
}

// Len is known where only a number of requests ends the workload.
func (s *sharedPoisson) Len() int64 {
	if !math.IsInf(s.duration, 1) {
		return -1
	}
	return s.requests - s.id
}
