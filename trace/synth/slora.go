package synth

import (
	"fmt"
	"io"
	"math"

	"lorasim/trace"
	"lorasim/trace/nprand"
)

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
	const most = 1e9 // requests, whose draws are kept in memory
	switch n := c.Rate * c.Duration; {
	case c.Adapters < 1 || c.Adapters > MaxAdapters:
		return fmt.Errorf("number of adapters is %d, expected 1 to %d", c.Adapters, MaxAdapters)
	case !(c.Alpha > 0) || math.IsInf(c.Alpha, 0):
		return fmt.Errorf("alpha is %v, expected > 0", c.Alpha)
	case !(c.CV > 0) || math.IsInf(c.CV, 0):
		return fmt.Errorf("cv is %v, expected > 0", c.CV)
	case !(c.Rate > 0) || !(c.Duration > 0) || !(n >= 1 && n <= most):
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
