// Package info describes a workload: its rate, burstiness, distribution over adapters, locality and token lengths.
// [Summarize] reads a trace.Source in one pass and returns a [Summary]; [Plot] draws a workload as PNG or SVG.
//
//	s, err := info.Summarize(src, 10)
//	err = s.WriteText(os.Stdout, false)
//	err = s.WriteJSON(os.Stdout)
//
// Memory grows with the number of adapters, of distinct token counts and of texts that prompts repeat. It does not
// grow with the number of requests beyond 2^20. Standard deviations and variances are those of the population (ddof
// 0). Percentiles interpolate linearly between order statistics, as numpy does by default. A value that a workload
// is too short to define is NaN, in JSON null.
package info

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"lorasim/internal/format"
	"lorasim/trace"
)

// Number is a float64 that JSON writes as null when it is not finite.
type Number float64

// MarshalJSON implements json.Marshaler.
func (n Number) MarshalJSON() ([]byte, error) { return format.Number(n).MarshalJSON() }

var undefined = Number(math.NaN())

// A Summary describes a workload.
type Summary struct {
	Requests     int64   `json:"requests"`
	FirstArrival float64 `json:"first_arrival_s"`
	LastArrival  float64 `json:"last_arrival_s"`
	Rate         Number  `json:"rate_req_s"` // number of gaps / time between the first and the last arrival

	CV         Number       `json:"cv"` // coefficient of variation of the gaps between arrivals
	Dispersion []Dispersion `json:"dispersion"`
	// Locality is the share of the requests whose adapter is among the localityWindow distinct adapters used
	// last before them.
	Locality Number `json:"locality"`

	Adapters     int       `json:"adapters"`
	AdaptersUsed int       `json:"adapters_used"`
	Skew         Skew      `json:"skew"`
	LRU          []HitRate `json:"lru"`
	Top          []Usage   `json:"top"`  // most used adapters first, including the base model
	Rest         Usage     `json:"rest"` // all other adapters together

	Prompt Tokens `json:"prompt_tokens"`
	Output Tokens `json:"output_tokens"`
	Reuse  *Reuse `json:"reuse,omitempty"` // nil: unknown

	Timeline Timeline `json:"timeline"`
}

// localityWindow is the number of distinct adapters that count as recent.
const localityWindow = 4

// Dispersion is the index of dispersion of counts: the variance of the number of arrivals per window, divided by the
// mean. For Poisson arrivals it is 1. Windows lie end to end from time 0; an incomplete last window is left out.
type Dispersion struct {
	Window float64 `json:"window_s"`
	Index  Number  `json:"index"`
}

// Skew describes how unequally requests are distributed over adapters. It ignores requests to the base model.
type Skew struct {
	Top1  Number `json:"top_1_percent_share"` // share of the most used 1 % of the adapters, rounded up
	Top5  Number `json:"top_5_percent_share"`
	Top10 Number `json:"top_10_percent_share"`
	Gini  Number `json:"gini"` // Gini coefficient; 0: equal shares, near 1: one adapter has all requests
}

// Usage is the traffic of an adapter, of the base model, or of several adapters together.
type Usage struct {
	Name     string `json:"name"`
	Index    int32  `json:"index"` // trace.BaseModel for the base model; -2 for several
	Rank     int    `json:"rank,omitempty"`
	Requests int64  `json:"requests"`
	Share    Number `json:"share"` // share of all requests
	Rate     Number `json:"rate_req_s"`
	CV       Number `json:"cv"` // coefficient of variation of the gaps between its arrivals; NaN for several
	Reuse    *Reuse `json:"reuse,omitempty"`
}

// several is the Index of a Usage of several adapters.
const several int32 = -2

// Tokens describes token counts per request.
type Tokens struct {
	Total int64  `json:"total"`
	Mean  Number `json:"mean"`
	P50   Number `json:"p50"`
	P90   Number `json:"p90"`
	P95   Number `json:"p95"`
	P99   Number `json:"p99"`
	Max   int64  `json:"max"`
}

// A Timeline counts arrivals in bins of equal width from time 0, at most timelineColumns bins.
type Timeline struct {
	BinWidth float64 `json:"bin_width_s"`
	Counts   []int64 `json:"counts"`
}

const (
	timelineColumns = 60
	timelineBins    = 1024
)

// dispersionWindows are the windows of Summary.Dispersion, in s.
var dispersionWindows = [...]float64{1, 10, 60}

// collector collects the data of a Summary or a plot.
type collector struct {
	adapters   []trace.Adapter
	first      float64
	all        usage
	usage      []usage // by adapter; the last one is the base model
	dispersion [len(dispersionWindows)]dispersion
	lru        *lru
	refs       []int32 // the first requests with an adapter, to be shuffled
	prompt     *histogram
	output     *histogram
	timeline   *timeline // of all requests or, for a plot, a row for each usage
	reuse      reuse
}

// usage holds the statistics of the requests of one adapter.
type usage struct {
	requests int64
	last     float64
	gaps     moments
}

func (u *usage) add(t float64) {
	if u.requests > 0 {
		u.gaps.add(t - u.last)
	}
	u.requests++
	u.last = t
}

func newCollector(adapters []trace.Adapter, tl *timeline) *collector {
	c := &collector{adapters: adapters, usage: make([]usage, len(adapters)+1), lru: newLRU(len(adapters)),
		prompt: newHistogram(), output: newHistogram(), timeline: tl}
	c.reuse.by = make([]struct{ found, prompt int64 }, len(adapters)+1)
	for i, w := range dispersionWindows {
		c.dispersion[i].window = w
	}
	return c
}

// Summarize reads src to its end and describes it. Requests must be in the order of arrival. Token counts may be 0,
// as in workloads that have only arrivals. top is the number of adapters that are listed one by one; 0 means 10.
func Summarize(src trace.Source, top int) (*Summary, error) {
	c := newCollector(src.Adapters(), newTimeline(1, timelineBins))
	if err := c.read(src); err != nil {
		return nil, err
	}
	return c.summary(top), nil
}

// read reads src to its end.
func (c *collector) read(src trace.Source) error {
	for r, err := range trace.All(src) {
		switch {
		case err != nil:
			return err
		case !(r.Arrival >= 0 && r.Arrival <= maxTime):
			return fmt.Errorf("request %d: arrival is %v s, expected 0 to %g", r.ID, r.Arrival, maxTime)
		case r.Arrival < c.all.last:
			return fmt.Errorf("request %d: arrival is %v s, expected the order of arrival (the previous one is %v s)",
				r.ID, r.Arrival, c.all.last)
		}
		c.add(r)
	}
	return nil
}

func (c *collector) add(r trace.Request) {
	if c.all.requests == 0 {
		c.first = r.Arrival
	}
	c.all.add(r.Arrival)
	row := int(r.Adapter)
	if r.Adapter == trace.BaseModel {
		row = len(c.adapters)
	} else {
		c.lru.add(r.Adapter)
		if len(c.refs) < maxShuffled {
			c.refs = append(c.refs, r.Adapter)
		}
	}
	c.usage[row].add(r.Arrival)
	c.reuse.add(&r, row)
	for i := range c.dispersion {
		c.dispersion[i].add(r.Arrival)
	}
	c.prompt.add(r.Prompt)
	c.output.add(r.Output)
	c.timeline.add(min(row, len(c.timeline.rows)-1), r.Arrival)
}

// summary returns the Summary of the collected data.
func (c *collector) summary(top int) *Summary {
	s := &Summary{
		Requests:     c.all.requests,
		FirstArrival: c.first,
		LastArrival:  c.all.last,
		Rate:         undefined,
		CV:           c.all.gaps.cv(),
		Locality:     c.lru.locality(),
		Adapters:     len(c.adapters),
		Prompt:       c.prompt.tokens(),
		Output:       c.output.tokens(),
	}
	c.timeline.round(timelineColumns)
	s.Timeline = Timeline{BinWidth: c.timeline.seconds(), Counts: c.timeline.row(0)}
	if s.Requests > 1 {
		s.Rate = Number(float64(s.Requests-1) / (s.LastArrival - s.FirstArrival))
	}
	for i := range c.dispersion {
		d := &c.dispersion[i]
		s.Dispersion = append(s.Dispersion, Dispersion{Window: d.window, Index: d.index()})
	}
	if s.Reuse = c.reuse.of(0, len(c.usage)); s.Reuse != nil && c.reuse.conversations > 0 {
		s.Reuse.Conversations = c.reuse.conversations
		s.Reuse.Turns = Number(float64(c.reuse.turns) / float64(c.reuse.conversations))
	}
	c.spread(s, cmp.Or(top, 10))
	return s
}

// spread fills in how requests use the adapters.
func (c *collector) spread(s *Summary, top int) {
	k := len(c.adapters)
	order := c.mostUsed()
	counts := make([]int64, 0, k)
	s.Top = []Usage{} // not null in JSON
	for i, a := range order {
		u := &c.usage[a]
		if a < k {
			counts = append(counts, u.requests)
		}
		if i >= top {
			s.Rest.Requests += u.requests
			continue
		}
		out := Usage{Name: c.name(a), Index: trace.BaseModel, Requests: u.requests, CV: u.gaps.cv()}
		if a < k {
			out.Index, out.Rank = int32(a), c.adapters[a].Rank
		}
		out.of(s)
		out.Reuse = c.reuse.of(a, a+1)
		s.Top = append(s.Top, out)
	}
	s.AdaptersUsed = len(counts)
	s.Skew = skew(counts[:k]) // what was not used has 0
	s.LRU = c.lruCurve(s.AdaptersUsed)
	s.Rest.Name, s.Rest.Index, s.Rest.CV = others(len(order)-len(s.Top)), several, undefined
	s.Rest.of(s)
}

// of fills in share and rate.
func (u *Usage) of(s *Summary) {
	u.Share = Number(float64(u.Requests) / float64(s.Requests))
	u.Rate = u.Share * s.Rate
}

// mostUsed returns the indices of the usages with requests, in descending order of them.
func (c *collector) mostUsed() (order []int) {
	for i, u := range c.usage {
		if u.requests > 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(c.usage[b].requests, c.usage[a].requests) })
	return order
}

// name is that of a usage.
func (c *collector) name(i int) string {
	if i == len(c.adapters) {
		return "base model"
	}
	return c.adapters[i].Name
}

// others names n adapters together.
func others(n int) string {
	if n == 1 {
		return "1 other"
	}
	return fmt.Sprintf("%d others", n)
}

// skew describes counts in descending order.
func skew(counts []int64) Skew {
	k, total, weighted := float64(len(counts)), 0.0, 0.0
	for i, n := range counts {
		total += float64(n)
		weighted += float64(i+1) * float64(n)
	}
	top := func(percent int) Number {
		sum := int64(0)
		for _, n := range counts[:(len(counts)*percent+99)/100] {
			sum += n
		}
		return Number(float64(sum) / total)
	}
	return Skew{
		Top1:  top(1),
		Top5:  top(5),
		Top10: top(10),
		Gini:  Number((k + 1 - 2*weighted/total) / k),
	}
}
