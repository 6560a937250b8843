package info

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"lorasim/trace"
)

// summary computes what the collector has gathered.
func (c *collector) summary(opt Options) *Summary {
	s := &Summary{
		Requests:      c.requests,
		FirstArrival:  c.first,
		LastArrival:   c.last,
		Rate:          Number(float64(c.requests-1) / (c.last - c.first)),
		RequestedRate: opt.RequestedRate,
		CV:            c.gaps.cv(),
		Locality:      c.locality.share(),
		Adapters:      len(c.adapters),
		Prompt:        c.prompt.tokens(),
		Output:        c.output.tokens(),
	}
	c.timeline.round(timelineColumns)
	s.Timeline = Timeline{BinWidth: c.timeline.seconds(), Counts: c.timeline.row(0)}
	if c.requests < 2 {
		s.Rate = Number(math.NaN())
	}
	for i := range c.dispersion {
		d := &c.dispersion[i]
		s.Dispersion = append(s.Dispersion, Dispersion{Window: d.window, Index: d.index()})
	}
	c.spread(s, cmp.Or(opt.Top, defaultTop))
	return s
}

// spread fills in how requests use the adapters.
func (c *collector) spread(s *Summary, top int) {
	k := len(c.adapters)
	order := make([]int32, 0, k+1) // most used first; k is the base model
	for i := range c.usage {
		if c.usage[i].requests > 0 {
			order = append(order, int32(i))
		}
	}
	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(c.usage[b].requests, c.usage[a].requests), cmp.Compare(a, b))
	})
	counts := make([]int64, 0, k)
	s.Top = []Usage{} // not null in JSON
	for i, a := range order {
		u := c.describe(a, s)
		if int(a) < k {
			counts = append(counts, u.Requests)
		}
		if i < top {
			s.Top = append(s.Top, u)
		} else {
			s.Rest.Requests += u.Requests
		}
	}
	s.AdaptersUsed = len(counts)
	counts = append(counts, make([]int64, k-len(counts))...)
	s.Skew = skew(counts)
	s.LRU = c.reuse.curve(k, s.AdaptersUsed)

	s.Rest.Name, s.Rest.Index = others(len(order)-len(s.Top)), Several
	s.Rest.Share = Number(float64(s.Rest.Requests) / float64(s.Requests))
	s.Rest.Rate = s.Rest.Share * s.Rate
	s.Rest.CV = Number(math.NaN())
}

// others names n adapters together.
func others(n int) string {
	if n == 1 {
		return "1 other"
	}
	return fmt.Sprintf("%d others", n)
}

// describe returns the usage of an adapter, or of the base model.
func (c *collector) describe(a int32, s *Summary) Usage {
	u := &c.usage[a]
	out := Usage{
		Name:     "base model",
		Index:    trace.BaseModel,
		Requests: u.requests,
		Share:    Number(float64(u.requests) / float64(c.requests)),
		CV:       u.gaps.cv(),
	}
	out.Rate = out.Share * s.Rate
	if int(a) < len(c.adapters) {
		out.Name, out.Index, out.Rank = c.adapters[a].Name, a, c.adapters[a].Rank
	}
	return out
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
