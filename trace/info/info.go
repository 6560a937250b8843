// Package info describes a workload: its rate, burstiness, spread over
// adapters, locality and token lengths, read from a trace.Source in one pass.
//
//	s, err := info.Summarize(src, info.Options{RequestedRate: 8})
//	err = s.WriteText(os.Stdout, info.TextOptions{})
//	err = s.WriteJSON(os.Stdout)
//
// [Plot] draws a workload as PNG or SVG.
//
// Memory grows with the number of adapters and, from 2^20 requests on, not with
// that of the requests.
// Standard deviations and variances are those of the population (ddof 0), and
// percentiles interpolate linearly between order statistics, as numpy does by
// default. What a workload is too short to define is NaN, in JSON null.
package info

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"lorasim/trace"
)

// Options of Summarize.
type Options struct {
	Top           int     // adapters listed one by one; 0: 10
	RequestedRate float64 // requests/s that the workload was made for; 0: unknown
}

// Number is a float64 that JSON writes as null when it is not finite.
type Number float64

// MarshalJSON writes n, or null.
func (n Number) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(n)) || math.IsInf(float64(n), 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// Summary describes a workload.
type Summary struct {
	Requests      int64   `json:"requests"`
	FirstArrival  float64 `json:"first_arrival_s"`
	LastArrival   float64 `json:"last_arrival_s"`
	Rate          Number  `json:"rate_req_s"` // gaps per s between first and last arrival
	RequestedRate float64 `json:"requested_rate_req_s,omitempty"`

	CV         Number       `json:"cv"` // of the gaps between arrivals
	Dispersion []Dispersion `json:"dispersion"`
	// Locality is the part of the requests whose adapter is among the
	// LocalityWindow distinct adapters used last before them.
	Locality Number `json:"locality"`

	Adapters     int       `json:"adapters"`
	AdaptersUsed int       `json:"adapters_used"`
	Skew         Skew      `json:"skew"`
	LRU          []HitRate `json:"lru"`
	Top          []Usage   `json:"top"`  // most used first; the base model is one of them
	Rest         Usage     `json:"rest"` // all others together

	Prompt Tokens `json:"prompt_tokens"`
	Output Tokens `json:"output_tokens"`

	Timeline Timeline `json:"timeline"`
}

// LocalityWindow is the number of distinct adapters that count as recent.
const LocalityWindow = 4

// Dispersion is the index of dispersion of counts: the variance of the number
// of arrivals per window over its mean. Poisson arrivals have 1. Windows lie
// end to end from time 0; one that the last arrival cuts short is left out.
type Dispersion struct {
	Window float64 `json:"window_s"`
	Index  Number  `json:"index"`
}

// Skew says how unevenly the requests with an adapter use the adapters.
type Skew struct {
	Top1  Number `json:"top_1_percent_share"` // share of the most used 1 % of the adapters, rounded up
	Top5  Number `json:"top_5_percent_share"`
	Top10 Number `json:"top_10_percent_share"`
	Gini  Number `json:"gini"` // 0: all alike; near 1: one adapter has all
}

// Usage is the traffic of an adapter, of the base model, or of several together.
type Usage struct {
	Name     string `json:"name"`
	Index    int32  `json:"index"` // trace.BaseModel for the base model; -2 for several
	Rank     int    `json:"rank,omitempty"`
	Requests int64  `json:"requests"`
	Share    Number `json:"share"` // of all requests
	Rate     Number `json:"rate_req_s"`
	CV       Number `json:"cv"` // of the gaps between its arrivals; NaN for several
}

// Several is the Index of a Usage of several adapters.
const Several int32 = -2

// Tokens describes token counts per request. Counts below 65,536 are exact;
// percentiles above are within 0.1 %.
type Tokens struct {
	Total int64  `json:"total"`
	Mean  Number `json:"mean"`
	P50   Number `json:"p50"`
	P90   Number `json:"p90"`
	P95   Number `json:"p95"`
	P99   Number `json:"p99"`
	Max   int64  `json:"max"`
}

// Timeline counts arrivals in bins of equal width from time 0 on, at most
// timelineColumns of them.
type Timeline struct {
	BinWidth float64 `json:"bin_width_s"`
	Counts   []int64 `json:"counts"`
}

const (
	timelineColumns = 60
	timelineBins    = 1024
	defaultTop      = 10
)

// dispersionWindows are the windows of Summary.Dispersion, in s.
var dispersionWindows = [...]float64{1, 10, 60}

// collector gathers what a Summary needs.
type collector struct {
	adapters   []trace.Adapter
	requests   int64
	first      float64
	last       float64
	gaps       moments
	usage      []usage // by adapter; the last one is the base model
	dispersion [len(dispersionWindows)]dispersion
	locality   locality
	reuse      reuse
	prompt     *histogram
	output     *histogram
	timeline   *timeline
}

// usage is what is known of one adapter.
type usage struct {
	requests int64
	last     float64
	gaps     moments
}

func newCollector(adapters []trace.Adapter) *collector {
	c := &collector{
		adapters: adapters,
		usage:    make([]usage, len(adapters)+1),
		reuse:    reuse{lru: newLRU(len(adapters))},
		prompt:   newHistogram(),
		output:   newHistogram(),
		timeline: newTimeline(1, timelineBins),
	}
	for i, w := range dispersionWindows {
		c.dispersion[i].window = w
	}
	return c
}

// Summarize reads src to its end. Requests must be in the order of arrival;
// token counts may be 0, as those of workloads that have only arrivals.
func Summarize(src trace.Source, opt Options) (*Summary, error) {
	c := newCollector(src.Adapters())
	if err := each(src, c.add); err != nil {
		return nil, err
	}
	return c.summary(opt), nil
}

// each calls do with every request of src, after checking it.
func each(src trace.Source, do func(trace.Request)) error {
	adapters, last := len(src.Adapters()), 0.0
	for {
		r, err := src.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := check(r, adapters, last); err != nil {
			return fmt.Errorf("request %d: %w", r.ID, err)
		}
		last = r.Arrival
		do(r)
	}
}

// check says what is wrong with a request that follows an arrival at last.
func check(r trace.Request, adapters int, last float64) error {
	switch {
	case !(r.Arrival >= 0 && r.Arrival <= maxTime):
		return fmt.Errorf("arrival is %v s, expected 0 to %g", r.Arrival, maxTime)
	case r.Arrival < last:
		return fmt.Errorf("arrival is %v s, expected the order of arrival (the one before is %v s)", r.Arrival, last)
	case r.Adapter < trace.BaseModel || int(r.Adapter) >= adapters:
		return fmt.Errorf("adapter is %d, expected -1 (base model) to %d", r.Adapter, adapters-1)
	case r.Prompt < 0 || r.Output < 0:
		return fmt.Errorf("%d prompt and %d output tokens, expected >= 0", r.Prompt, r.Output)
	}
	return nil
}

// add takes in a checked request.
func (c *collector) add(r trace.Request) {
	if c.requests == 0 {
		c.first = r.Arrival
	} else {
		c.gaps.add(r.Arrival - c.last)
	}
	c.requests++
	c.last = r.Arrival

	u := &c.usage[len(c.adapters)]
	if r.Adapter != trace.BaseModel {
		u = &c.usage[r.Adapter]
		c.locality.add(r.Adapter)
		c.reuse.add(r.Adapter)
	}
	if u.requests > 0 {
		u.gaps.add(r.Arrival - u.last)
	}
	u.requests++
	u.last = r.Arrival

	for i := range c.dispersion {
		c.dispersion[i].add(r.Arrival)
	}
	c.prompt.add(r.Prompt)
	c.output.add(r.Output)
	c.timeline.add(0, r.Arrival)
}
