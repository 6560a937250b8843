// Package series records how a run went over time in bounded memory: queue
// length and running requests of each worker, which adapters lie where, the
// plans that were made, and the latencies. Reports draw their pictures from it.
//
//	rec := series.NewRecorder(workers)
//	res, err := sc.Simulate(ctx, scenario.RunOptions{Watch: rec.Watching})
//	run := rec.Series()
//
// A run of any length falls into a fixed number of time buckets: when it
// outgrows them, two become one of twice the width. So long runs are drawn
// coarser, never cut off. Runs of which only records are known (live runs,
// record files) give the same series, as far as records tell: see FromRecords.
package series

import (
	"math"

	"lorasim/bench/result"
	"lorasim/sim"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
)

// Series is a run over time. In JSON it is the workers'.
type Series struct {
	Bucket   float64         `json:"bucket"` // width of a time bucket, s
	End      float64         `json:"end"`    // end of the run, s
	Workers  []Worker        `json:"workers"`
	Adapters []trace.Adapter `json:"-"`
	// Placement tells for each adapter and worker when its weights were there;
	// nil: not known.
	Placement *Placement `json:"-"`
	Plans     []Plan     `json:"-"`
	// PlansLeft counts plans that were left out of Plans, to bound them: empty
	// ones first, then every second one.
	PlansLeft int        `json:"-"`
	Latencies *Latencies `json:"-"`
	// Requests are counted by adapter, base model last.
	Requests []int64 `json:"-"`
}

// Placement tells when the weights of adapters lay on workers.
type Placement struct {
	// Host and GPU hold the stays by worker*adapters + adapter: in host memory
	// or a GPU slot, and in a GPU slot.
	Host, GPU []Stays
	// Resolution is the shortest stay and the shortest absence that were kept
	// apart, s; 0: all were.
	Resolution float64
}

// Stays are times [from, to) in s, in order.
type Stays [][2]float64

// Worker is one worker over time, one value for each bucket.
type Worker struct {
	Queued    []float64 `json:"queued"`  // mean over the bucket
	Running   []float64 `json:"running"` // likewise
	QueuedMax []float64 `json:"queued_max,omitempty"`
	Loads     []float64 `json:"loads,omitempty"` // adapters that came to a GPU slot in the bucket
	// share of the bucket in which it cost GPU time; nil: none ever was off
	On []float64 `json:"on,omitempty"`
}

// Plan is one plan of the run.
type Plan struct {
	Made    float64  `json:"made"` // s
	Applied float64  `json:"applied"`
	Reason  string   `json:"reason"`
	Dropped string   `json:"dropped,omitempty"`
	Loads   []string `json:"loads"` // as adapter@worker
	Unloads []string `json:"unloads"`
	Moves   int      `json:"moves"` // requests that did move
	Solver  string   `json:"solver,omitempty"`
	Solve   float64  `json:"solve"`          // s
	Gain    *float64 `json:"gain,omitempty"` // predicted, s
	Gap     *float64 `json:"gap,omitempty"`  // share; nil: the bound is not known
}

// maxPlans bounds the plans kept.
const maxPlans = 1000

func newPlan(p *sim.PlanRecord, adapters []trace.Adapter) Plan {
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

// Empty says whether the plan changed nothing.
func (p *Plan) Empty() bool { return len(p.Loads) == 0 && len(p.Unloads) == 0 && p.Moves == 0 }

// Quantiles is the number of steps of a latency's quantiles: those for the
// probabilities 0, 1/Quantiles, ..., 1.
const Quantiles = 200

const latencyBits = 8 // bins of the histograms are at most 0.4 % wide

// Latencies gathers the latencies of successful requests in bounded memory.
type Latencies struct {
	E2E, TTFT, TPOT *result.Histogram
}

// NewLatencies returns empty latencies.
func NewLatencies() *Latencies {
	h := func() *result.Histogram { return result.NewHistogram(latencyBits) }
	return &Latencies{E2E: h(), TTFT: h(), TPOT: h()}
}

// Done enters a request. One that failed, and what a request does not have, do
// not count.
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

// QuantilesOf returns the Quantiles+1 quantiles of a histogram in ms, to 0.4 %;
// nil where it is empty.
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
