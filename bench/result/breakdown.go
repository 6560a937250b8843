package result

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"lorasim/internal/record"
	"lorasim/internal/tick"
)

// adapterState gathers the requests of one adapter.
type adapterState struct {
	requests, tokens int64
	e2e              distribution
	ttft             float64 // ticks, summed
	normalized       float64 // ticks per output token, summed
}

// success enters a successful request. fold says that the run went beyond its
// sample limit, from where on single latencies are no longer kept.
func (a *adapterState) success(e2e, ttft tick.Ticks, output int32, fold bool) {
	if fold && a.e2e.hist == nil {
		a.e2e.fold()
	}
	a.e2e.add(e2e)
	a.ttft += float64(ttft)
	a.normalized += float64(e2e) / float64(max(output, 1))
}

func (c *Collector) adapter(index int32) *adapterState {
	for int(index)+1 >= len(c.adapters) {
		c.adapters = append(c.adapters, adapterState{
			e2e: distribution{limit: math.MaxInt, bits: adapterBits},
		})
	}
	return &c.adapters[index+1]
}

// adapterName names an adapter by its index.
func (c *Collector) adapterName(index int32) string {
	switch {
	case index < 0:
		return "base model"
	case int(index) < len(c.opt.Adapters):
		return c.opt.Adapters[index].Name
	}
	return fmt.Sprintf("adapter %d", index)
}

// adapterStats lists the adapters that had requests, the busiest first, and
// compares them.
func (c *Collector) adapterStats() ([]AdapterStats, *Fairness) {
	var all []AdapterStats
	var latencies, tokens []float64
	for i := range c.adapters {
		a := &c.adapters[i]
		if a.requests == 0 {
			continue
		}
		n := float64(a.e2e.n)
		s := AdapterStats{
			Index: int32(i - 1), Name: c.adapterName(int32(i - 1)),
			Requests: a.requests, Completed: a.e2e.n, Tokens: a.tokens,
			Share:             ratio(float64(a.requests), float64(c.requests)),
			MeanE2E:           ms(a.e2e.mean()),
			P99E2E:            ms(a.e2e.percentiles(99)[0]),
			MeanTTFT:          ms(ratio(a.ttft, n)),
			NormalizedLatency: ms(ratio(a.normalized, n)),
		}
		all = append(all, s)
		tokens = append(tokens, float64(a.tokens))
		if a.e2e.n > 0 {
			latencies = append(latencies, s.NormalizedLatency)
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	slices.SortStableFunc(all, func(a, b AdapterStats) int { return cmp.Compare(b.Requests, a.Requests) })
	return all, &Fairness{Adapters: len(all), NormalizedLatency: jain(latencies), Tokens: jain(tokens)}
}

// failures counts requests that did not succeed.
type failures struct {
	byStatus [record.NumStatus]int64
	byReason map[failure]int64
}

type failure struct {
	status record.Status
	reason string
}

// Limits on what is kept of the reasons, which may come from outside.
const (
	maxReasons   = 64
	maxReasonLen = 120
	otherReasons = "(other reasons)"
)

func (f *failures) add(s record.Status, reason string) {
	if s < record.NumStatus {
		f.byStatus[s]++
	}
	reason = strings.ToValidUTF8(strings.TrimSpace(reason), "\uFFFD")
	reason, _, _ = strings.Cut(reason, "\n")
	if len(reason) > maxReasonLen {
		if runes := []rune(reason); len(runes) > maxReasonLen {
			reason = string(runes[:maxReasonLen-1]) + "…"
		}
	}
	if reason == "" {
		reason = "no reason given"
	}
	key := failure{s, reason}
	if f.byReason == nil {
		f.byReason = map[failure]int64{}
	}
	if _, ok := f.byReason[key]; !ok && len(f.byReason) >= maxReasons {
		key.reason = otherReasons
	}
	f.byReason[key]++
}

func (f *failures) reasons() []Reason {
	var all []Reason
	for k, n := range f.byReason {
		all = append(all, Reason{k.status.String(), k.reason, n})
	}
	slices.SortFunc(all, byCount)
	return all
}
