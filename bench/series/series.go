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
	"lorasim/internal/tick"
	"lorasim/sim"
	"lorasim/trace"
)

// Series is a run over time.
type Series struct {
	Bucket   float64 // width of a time bucket, s
	End      float64 // end of the run, s
	Workers  []Worker
	Adapters []trace.Adapter
	// Placement tells for each adapter and worker when its weights were there;
	// nil: not known.
	Placement *Placement
	Plans     []Plan
	// PlansLeft counts plans that were left out of Plans, to bound them: empty
	// ones first, then every second one.
	PlansLeft int
	Latencies *Latencies
	// ByAdapter are the requests by adapter, base model last.
	ByAdapter []AdapterLoad
}

// Worker is one worker over time, one value for each bucket.
type Worker struct {
	Queued, Running []float64 // mean over the bucket
	QueuedMax       []float64
	Loads           []float64 // adapters that came to a GPU slot in the bucket
}

// AdapterLoad is what an adapter's requests came to.
type AdapterLoad struct {
	Requests  int64
	Completed int64
	E2E, TTFT float64 // s, summed over the completed
}

// Plan is one plan of the run.
type Plan struct {
	Made, Applied float64 // s
	Reason        string
	Dropped       string
	Loads         [][2]int32 // worker, adapter
	Unloads       [][2]int32
	Moves         int // requests that did move
	Solver        string
	SolveTime     float64
	Objective     float64
	Stay          float64
	Gap           float64
	HasBound      bool
}

// maxPlans bounds the plans kept.
const maxPlans = 1000

func newPlan(p *sim.PlanRecord) Plan {
	out := Plan{
		Made: p.Made, Applied: p.Applied, Reason: p.Plan.Reason, Dropped: p.Dropped, Moves: p.Moved,
		Solver: p.Plan.Solver, SolveTime: p.Plan.SolveTime, Objective: p.Plan.Objective, Stay: p.Plan.Stay,
		Gap: p.Plan.Gap(), HasBound: p.Plan.Bound > 0,
	}
	if p.Dropped == "" {
		for _, l := range p.Plan.Load {
			out.Loads = append(out.Loads, [2]int32{l.Worker, l.Adapter})
		}
		for _, l := range p.Plan.Unload {
			out.Unloads = append(out.Unloads, [2]int32{l.Worker, l.Adapter})
		}
	}
	return out
}

// Empty says whether the plan changed nothing.
func (p *Plan) Empty() bool { return len(p.Loads) == 0 && len(p.Unloads) == 0 && p.Moves == 0 }

// thin makes room among too many plans: first it drops those that changed
// nothing, then every second one.
func (s *Series) thin() {
	if len(s.Plans) < maxPlans {
		return
	}
	before := len(s.Plans)
	kept := s.Plans[:0]
	for _, p := range s.Plans {
		if !p.Empty() {
			kept = append(kept, p)
		}
	}
	if len(kept) > maxPlans/2 {
		half := kept[:0]
		for i := 0; i < len(kept); i += 2 {
			half = append(half, kept[i])
		}
		kept = half
	}
	s.PlansLeft += before - len(kept)
	s.Plans = kept
}

// firstWidth is the width of a bucket before a run outgrows the buckets.
const firstWidth = tick.Second / 64
