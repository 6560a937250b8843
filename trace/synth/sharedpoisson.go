package synth

import (
	"fmt"
	"io"
	"math"

	"lorasim/trace"
	"lorasim/trace/internal/renewal"
	"lorasim/trace/nprand"
)

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
	if n := len(c.Rates); n < 1 || n > MaxAdapters {
		return fmt.Errorf("number of adapters is %d, expected 1 to %d", n, MaxAdapters)
	}
	total := 0.0
	for i, r := range c.Rates {
		if !(r >= 0) || math.IsInf(r, 0) {
			return fmt.Errorf("rate of adapter %d is %v requests/s, expected a number >= 0", i, r)
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
