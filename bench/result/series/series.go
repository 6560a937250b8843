// Package series records a run over time in bounded memory: the queue length and running
// requests of each worker, the placement of adapters, the plans, and the latencies.
// Reports draw their charts from it.
//
//	rec := series.NewRecorder(workers)
//	res, err := sc.Simulate(ctx, scenario.RunOptions{Watch: rec.Watching})
//	run := rec.Series()
//
// A run of any length has at most Buckets time buckets. When the run outgrows them, each
// two become one of twice the width. So the series of a long run is coarser, but complete.
// For live runs and record files, which have only records, FromRecords returns a series
// without placement and plans.
package series

import (
	"math"

	"lorasim/bench/result"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
)

// A Series describes a run over time. Its JSON form has only the workers.
type Series struct {
	Bucket   float64         `json:"bucket"` // width of a time bucket, s
	End      float64         `json:"end"`    // end of the run, s
	Workers  []Worker        `json:"workers"`
	Adapters []trace.Adapter `json:"-"`
	// Placement holds the times that adapters spent on workers; nil if unknown.
	Placement *Placement `json:"-"`
	Plans     []Plan     `json:"-"`
	// PlansLeft is the number of plans dropped from Plans to limit its length: empty plans
	// first, then every second one.
	PlansLeft int        `json:"-"`
	Latencies *Latencies `json:"-"`
	// Requests are the numbers of requests by adapter; the base model is last.
	Requests []int64 `json:"-"`
}

// A Placement holds the times at which the weights of adapters were on workers.
type Placement struct {
	// Host holds the stays in host memory or a GPU slot, GPU those in a GPU slot. The index
	// is worker*adapters + adapter.
	Host, GPU []Stays
	// Resolution is the longest absence between two stays that may be merged into one, s.
	// 0 means that no stays were merged.
	Resolution float64
}

// Stays are time intervals [from, to), s, in order.
type Stays [][2]float64

// A Worker describes one worker over time. Each slice has one value per bucket.
type Worker struct {
	Queued    []float64 `json:"queued"`               // mean number of waiting requests
	Running   []float64 `json:"running"`              // mean number of running requests
	QueuedMax []float64 `json:"queued_max,omitempty"` // largest number of waiting requests
	Loads     []float64 `json:"loads,omitempty"`      // number of adapters loaded to a GPU slot
	// On is the share of the bucket in which the worker cost GPU time. It is nil if no worker
	// was ever off.
	On []float64 `json:"on,omitempty"`
}

// A Plan is one plan of a run.
type Plan struct {
	Made    float64  `json:"made"`    // time at which it was made, s
	Applied float64  `json:"applied"` // time at which it was applied, s
	Reason  string   `json:"reason"`
	Dropped string   `json:"dropped,omitempty"` // why it was dropped; "": it was not
	Loads   []string `json:"loads"`             // adapters loaded, as adapter@worker
	Unloads []string `json:"unloads"`           // adapters unloaded, likewise
	Moves   int      `json:"moves"`             // number of requests that moved
	Solver  string   `json:"solver,omitempty"`
	Solve   float64  `json:"solve"`          // time to make it, s
	Gain    *float64 `json:"gain,omitempty"` // predicted gain over no change, s; nil: unknown
	Gap     *float64 `json:"gap,omitempty"`  // optimality gap, a share; nil: the bound is unknown
}

// maxPlans is the largest number of plans kept.
const maxPlans = 1000

func newPlan(p *record.Plan, adapters []trace.Adapter) Plan {
	out := Plan{
		Made: p.Made, Applied: p.Applied, Reason: p.Plan.Reason, Dropped: p.Dropped, Moves: p.Moved,
		Solver: p.Plan.Solver, Solve: p.Plan.SolveTime, Loads: []string{}, Unloads: []string{},
	}
	if p.Dropped == "" {
		for _, l := range p.Plan.Load {
			out.Loads = append(out.Loads, l.Name(adapters))
		}
		for _, l := range p.Plan.Unload {
			out.Unloads = append(out.Unloads, l.Name(adapters))
		}
	}
	if p.Plan.Stay > 0 {
		out.Gain = new(p.Plan.Stay - p.Plan.Objective)
	}
	if p.Plan.Bound > 0 {
		out.Gap = new(p.Plan.Gap())
	}
	return out
}

// Empty reports whether the plan changed nothing.
func (p *Plan) Empty() bool { return len(p.Loads) == 0 && len(p.Unloads) == 0 && p.Moves == 0 }

// Quantiles is the number of steps between the quantiles of a latency, which are for the
// probabilities 0, 1/Quantiles, ..., 1.
const Quantiles = 200

const latencyBits = 8 // bins of the histograms are at most 0.4 % wide

// Latencies holds the latencies of successful requests in bounded memory.
type Latencies struct {
	E2E, TTFT, TPOT *result.Histogram
}

// NewLatencies returns empty latencies.
func NewLatencies() *Latencies {
	h := func() *result.Histogram { return result.NewHistogram(latencyBits) }
	return &Latencies{E2E: h(), TTFT: h(), TPOT: h()}
}

// Done adds the latencies of a request. It ignores requests that did not succeed, and
// latencies that are unknown.
func (l *Latencies) Done(r *record.Request) {
	if r.Status != record.OK {
		return
	}
	add := func(h *result.Histogram, s float64) {
		if s >= 0 && s < tick.Max.Seconds() {
			h.Add(tick.FromSeconds(s), 1)
		}
	}
	e2e, ttft := r.E2E(), r.TTFT()
	add(l.E2E, e2e)
	add(l.TTFT, ttft)
	if r.Output > 1 {
		add(l.TPOT, (e2e-ttft)/float64(r.Output-1))
	}
}

// QuantilesOf returns the Quantiles+1 quantiles of a histogram, in ms, accurate to 0.4 %.
// It returns nil if the histogram is empty.
func QuantilesOf(h *result.Histogram) []float64 {
	if h.Count() == 0 {
		return nil
	}
	qs := make([]float64, Quantiles+1)
	for i := range qs {
		rank := math.Round(float64(h.Count()-1) * float64(i) / Quantiles)
		qs[i] = h.At(int64(rank)) / float64(tick.Millisecond)
	}
	return qs
}
