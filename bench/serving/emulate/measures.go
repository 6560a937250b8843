package emulate

import (
	"math"
	"slices"

	"lorasim/sim/record"
	"lorasim/sim/tick"
)

// histogram counts values by upper bounds, as prometheus_client does.
type histogram struct {
	bounds []float64 // ascending
	counts []int64   // values up to each bound, without those up to the bound before; the last: all larger ones
	sum    float64
}

func newHistogram(bounds []float64) histogram {
	return histogram{bounds: bounds, counts: make([]int64, len(bounds)+1)}
}

func (h *histogram) observe(v float64) {
	i, _ := slices.BinarySearch(h.bounds, v)
	h.counts[i]++
	h.sum += v
}

func (h *histogram) clone() histogram {
	return histogram{h.bounds, slices.Clone(h.counts), h.sum}
}

// bounds are the upper bounds of the histograms of an engine: of times in s, and of numbers of tokens.
type bounds struct{ firstToken, interToken, e2e, tokens, loads []float64 }

// loadBounds are those of vllm:lora_adapter_load_seconds.
var loadBounds = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}

// boundsVLLM returns those of vLLM 0.32 and 0.33 (PrometheusStatLogger in vllm/v1/metrics/loggers.py) for a context
// length in tokens.
func boundsVLLM(context int) bounds {
	return bounds{
		firstToken: []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20,
			40, 80, 160, 640, 2560},
		interToken: []float64{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40,
			80},
		e2e:    []float64{0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680},
		tokens: oneTwoFive(context), loads: loadBounds,
	}
}

// oneTwoFive returns 1, 2, 5, 10, ... up to a number (build_1_2_5_buckets).
func oneTwoFive(most int) (b []float64) {
	for unit := 1; unit <= most; unit *= 10 {
		for _, m := range []int{1, 2, 5} {
			if m*unit <= most {
				b = append(b, float64(m*unit))
			}
		}
	}
	return b
}

// boundsSGLang returns those of sglang 0.5.23 (TokenizerMetricsCollector in
// sglang/srt/observability/metrics_collector.py).
func boundsSGLang() bounds {
	return bounds{
		firstToken: []float64{0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400},
		interToken: []float64{0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1,
			0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8},
		e2e: []float64{0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400, 600, 1200,
			1800, 2400},
		tokens: []float64{100, 300, 500, 700, 1000, 1500, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000, 10000, 12500,
			15000, 17500, 20000, 22500, 25000, 27500, 30000, 35000, 40000, 60000, 80000, 100000, 200000, 300000, 400000,
			600000, 800000, 1000000, 1100000},
	}
}

// measures are what the metrics say of the requests so far. Times are the worker's.
type measures struct {
	flows       [2]flow // whole and streamed replies; under vLLM all count as whole
	cached      int64   // prompt tokens found in the prefix cache
	interToken  histogram
	prompt      histogram // of requests that have ended
	output      histogram // the same
	ended       ends
	loads       histogram // of adapters into host memory
	activates   histogram // of adapters into a GPU slot
	seenLoads   int64
	seenStalled float64
}

// Requests by their flow.
const (
	whole    = 0
	streamed = 1
)

// flow is a part of the requests.
type flow struct {
	prompts, generated int64 // prompt tokens of requests that have begun, and generated tokens
	requests           int64 // that have ended
	firstToken, e2e    histogram
}

// ends counts requests by how they ended.
type ends struct{ stop, length, aborted, failed int64 }

func newMeasures(b bounds) measures {
	m := measures{interToken: newHistogram(b.interToken), prompt: newHistogram(b.tokens),
		output: newHistogram(b.tokens), loads: newHistogram(b.loads), activates: newHistogram(b.loads)}
	for i := range m.flows {
		m.flows[i].firstToken, m.flows[i].e2e = newHistogram(b.firstToken), newHistogram(b.e2e)
	}
	return m
}

func (m *measures) clone() measures {
	c := *m
	c.interToken, c.prompt, c.output = m.interToken.clone(), m.prompt.clone(), m.output.clone()
	c.loads, c.activates = m.loads.clone(), m.activates.clone()
	for i := range c.flows {
		f := &c.flows[i]
		f.firstToken, f.e2e = f.firstToken.clone(), f.e2e.clone()
	}
	return c
}

// prompts returns the prompt tokens of all requests that have begun.
func (m *measures) prompts() int64 { return m.flows[whole].prompts + m.flows[streamed].prompts }

// token notes a token of a stream, which has come at a time.
func (m *measures) token(s *stream, at tick.Ticks) {
	f := &m.flows[s.flow]
	if f.generated++; s.made.tokens == 1 {
		f.prompts += int64(s.prompt)
		m.cached += int64(s.made.cached)
		f.firstToken.observe(math.Max(0, (at - s.came).Seconds()))
	} else {
		m.interToken.observe((at - s.last).Seconds())
	}
	s.last = at
}

// end notes the end of a stream.
func (m *measures) end(s *stream, at tick.Ticks) {
	switch s.made.status {
	case record.OK:
		f := &m.flows[s.flow]
		f.requests++
		f.e2e.observe((at - s.came).Seconds())
		m.prompt.observe(float64(s.prompt))
		m.output.observe(float64(s.made.tokens))
		if s.stops {
			m.ended.stop++
		} else {
			m.ended.length++
		}
	case record.Aborted:
		m.ended.aborted++
	default:
		m.ended.failed++
	}
}

// activated notes the loads of adapters to GPU slots since the last call, each with their mean time: how many there
// have been, and the time in s that steps have waited for them.
func (m *measures) activated(loads int64, stalled float64) {
	n := loads - m.seenLoads
	for range n {
		m.activates.observe((stalled - m.seenStalled) / float64(n))
	}
	m.seenLoads, m.seenStalled = loads, stalled
}
