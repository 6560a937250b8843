package result

import (
	"cmp"
	"slices"
	"strings"

	"lorasim/bench/stats"
	"lorasim/internal/format"
	"lorasim/sim/tick"
)

// Goodput describes how well a run met an SLO. Shares lie between 0 and 1.
type Goodput struct {
	SLO   string  `json:"slo"`
	Good  int64   `json:"good_requests"` // successful requests within every limit
	PerS  float64 `json:"good_per_s"`    // good requests per second of the run's duration
	Share float64 `json:"share"`         // share of all requests that are good, failed ones included
	TTFT  float64 `json:"ttft_share"`    // share of the successful requests within the TTFT limit
	TPOT  float64 `json:"tpot_share"`    // likewise for TPOT; 1 if the limit is not set
	E2E   float64 `json:"e2e_share"`     // likewise for E2E

	// Attain is the share of its requests, failed ones included, that an adapter needs
	// within the limits to meet the SLO. The base model counts as one more adapter.
	Attain float64 `json:"attain"`
	AdapterGoodput
	// Others covers the adapters without a flash crowd; nil if no adapter has one.
	Others *Others `json:"others,omitempty"`
}

// AdapterGoodput describes how well adapters met an SLO.
type AdapterGoodput struct {
	Adapters float64 `json:"adapter_share"` // share of the adapters with requests that meet the SLO
	// Fairness is Jain's index of the adapters' shares of good requests; see the type
	// Fairness.
	Fairness float64 `json:"fairness"`
	Worst    *Worst  `json:"worst_adapter"` // nil: no requests
}

// Others describes the requests of the adapters without a flash crowd.
type Others struct {
	Share float64 `json:"share"`       // share of their requests that are good
	TTFT  float64 `json:"p99_ttft_ms"` // P99 of TTFT, ms
	AdapterGoodput
}

// Worst is the adapter with the smallest share of good requests. Ties go to the adapter
// with the most requests, then to the first.
type Worst struct {
	Index    int32   `json:"adapter"` // -1: base model
	Name     string  `json:"name"`
	Requests int64   `json:"requests"`
	Share    float64 `json:"share"` // share of the requests within every limit
}

// count adds a successful request and reports whether it met the SLO. A textless reply
// has no first token and so exceeds any limit on TTFT.
func (g *Goodput) count(s SLO, ttft, tpot, e2e tick.Ticks, textless bool) (good bool) {
	good = true
	within := func(v tick.Ticks, limit float64, share *float64) {
		if limit == 0 || v.Milliseconds() <= limit {
			*share++
		} else {
			good = false
		}
	}
	if textless {
		ttft = tick.Max
	}
	within(ttft, s.TTFT, &g.TTFT)
	within(tpot, s.TPOT, &g.TPOT)
	within(e2e, s.E2E, &g.E2E)
	if good {
		g.Good++
	}
	return good
}

// attained returns the goodput of adapters, which must be sorted by requests, the busiest
// first.
func (s SLO) attained(all []AdapterStats) (g AdapterGoodput) {
	shares, met := make([]float64, len(all)), 0
	for i := range all {
		a := &all[i]
		shares[i] = ratio(float64(a.Good), float64(a.Requests))
		if s.Enough(a.Good, a.Requests) {
			met++
		}
		if g.Worst == nil || shares[i] < g.Worst.Share { // the busiest are first
			g.Worst = &Worst{a.Index, a.Name, a.Requests, shares[i]}
		}
	}
	g.Adapters, g.Fairness = ratio(float64(met), float64(len(all))), stats.Jain(shares)
	return g
}

// addAdapters sets the goodput of all adapters, and of those that are not noisy.
func (g *Goodput) addAdapters(s SLO, all []AdapterStats, noisy []int32) {
	g.Attain, g.AdapterGoodput = cmp.Or(s.Attain, DefaultAttain), s.attained(all)
	others := slices.DeleteFunc(slices.Clone(all), func(a AdapterStats) bool { return slices.Contains(noisy, a.Index) })
	if len(others) == len(all) {
		return
	}
	good, n := 0.0, 0.0
	for i := range others {
		good += float64(others[i].Good)
		n += float64(others[i].Requests)
	}
	g.Others = &Others{Share: ratio(good, n), AdapterGoodput: s.attained(others)}
}

func (p *printer) goodput(g *Goodput, many bool) {
	if g == nil {
		return
	}
	p.title("Goodput")
	p.row("SLO (ms)", g.SLO)
	p.metrics("goodput.good_requests", "goodput.good_per_s", "goodput.share")
	for _, name := range latencyNames {
		if strings.Contains(g.SLO, name) {
			p.metrics("goodput." + name + "_share")
		}
	}
	if g.Worst == nil || !many {
		return
	}
	p.row("Adapters with "+percent(g.Attain)+" attainment", percent(g.Adapters))
	p.worst("Worst adapter", g.Worst)
	p.metrics("goodput.fairness")
	if o := g.Others; o != nil {
		p.metrics("goodput.others.share", "goodput.others.p99_ttft_ms")
		p.row("Others with "+percent(g.Attain)+" attainment", percent(o.Adapters))
		p.worst("Worst of the others", o.Worst)
	}
}

func (p *printer) worst(label string, w *Worst) {
	if w != nil {
		p.rowf(label, "%s of %d, %s", percent(w.Share), w.Requests, format.Clip(w.Name, 18))
	}
}
