package result

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"lorasim/bench/stats"
)

// adapterState accumulates the requests of one adapter.
type adapterState struct {
	AdapterStats     // counts alone
	e2e              distribution
	ttft, normalized float64 // ticks, and ticks per output token, summed
}

func (c *Collector) adapter(index int32) *adapterState {
	for i := int32(len(c.adapters)) - 1; i <= index; i++ {
		a := adapterState{
			AdapterStats: AdapterStats{Index: i, Name: "base model"},
			e2e:          distribution{limit: math.MaxInt, bits: adapterBits},
		}
		if int(i) >= len(c.opt.Adapters) {
			a.Name = fmt.Sprintf("adapter %d", i)
		} else if i >= 0 {
			a.Name = c.opt.Adapters[i].Name
		}
		c.adapters = append(c.adapters, a)
	}
	return &c.adapters[index+1]
}

// adapterStats returns the statistics of the adapters with requests, the busiest first,
// and their fairness. Both are nil if there were no requests.
func (c *Collector) adapterStats() ([]AdapterStats, *Fairness) {
	var all []AdapterStats
	var latencies, tokens []float64
	for i := range c.adapters {
		a := &c.adapters[i]
		if a.Requests == 0 {
			continue
		}
		n, s := float64(a.e2e.n), a.AdapterStats
		s.Completed = a.e2e.n
		s.Share = ratio(float64(s.Requests), float64(c.counts.Requests))
		s.MeanE2E, s.P99E2E = ms(a.e2e.mean()), ms(a.e2e.percentiles(99)[0])
		s.MeanTTFT, s.NormalizedLatency = ms(ratio(a.ttft, n)), ms(ratio(a.normalized, n))
		all = append(all, s)
		tokens = append(tokens, float64(s.Tokens))
		if s.Completed > 0 {
			latencies = append(latencies, s.NormalizedLatency)
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	slices.SortStableFunc(all, func(a, b AdapterStats) int { return cmp.Compare(b.Requests, a.Requests) })
	return all, &Fairness{Adapters: len(all), NormalizedLatency: stats.Jain(latencies), Tokens: stats.Jain(tokens)}
}
