package result

import (
	"lorasim/sim/record"
	"lorasim/sim/tick"
)

// Counters is what a driver knows beyond the fate of its requests. Zero fields
// are not printed. Times are in seconds.
type Counters struct {
	Workers       []WorkerCounters `json:"-"`
	Migrations    []MigrationCount `json:"migrations,omitempty"`       // by kind, in the order to print
	MigrationTime float64          `json:"migration_time_s,omitempty"` // lost to migrations, summed over workers
	SolverRuns    int64            `json:"solver_runs,omitempty"`      // plans made
	SolverTime    float64          `json:"solver_time_s,omitempty"`    // spent making them
	Plans         *PlanCounters    `json:"plans,omitempty"`            // nil: none were made
	FailedLoads   int64            `json:"failed_loads,omitempty"`     // adapter loads that failed
	Elastic       *Elastic         `json:"elastic,omitempty"`          // nil: all workers were there all the time
}

// PlanCounters is what plans of placement and migration did.
type PlanCounters struct {
	Applied int64 `json:"applied"` // not empty, and carried out
	Dropped int64 `json:"dropped"` // could not be carried out when their time came
	Loads   int64 `json:"loads"`   // adapters they brought to a worker
	Unloads int64 `json:"unloads"`
	// Gap is the mean relative distance of the plans' objectives to their bounds.
	Gap float64 `json:"mean_gap"`
	// Recomputed counts KV tokens prefilled again after a move, Copied the bytes
	// of KV cache that were sent.
	Recomputed int64   `json:"recomputed_tokens"`
	Copied     float64 `json:"copied_bytes"`
	// Changes counts changes of the placement; Undone is how many of them later
	// changes took back: thrashing.
	Changes int64 `json:"placement_changes"`
	Undone  int64 `json:"placement_changes_undone"`
}

// Elastic is what workers that joined and left cost. One costs GPU time from when
// it begins to start until it has finished its last request.
type Elastic struct {
	GPUHours    float64 `json:"gpu_hours"`
	WorkerHours float64 `json:"worker_hours"`
	Mean        float64 `json:"mean_workers"`
	Min         int     `json:"min_workers"`
	Max         int     `json:"max_workers"`
	Ups         int64   `json:"scale_ups"`   // starts of a worker
	CalledOff   int64   `json:"called_off"`  // starts that were called off
	Downs       int64   `json:"scale_downs"` // workers told to finish and leave
	TakenBack   int64   `json:"taken_back"`  // some of them before they had left
}

// WorkerCounters is what one worker did.
type WorkerCounters struct {
	// Busy is the time with at least one request in the batch, s; in WorkerStats
	// its share of the run's duration.
	Busy float64 `json:"busy_share,omitempty"`
	On   float64 `json:"on_s,omitempty"` // time that it cost, s, where workers join and leave
	LoadCounters
}

// LoadCounters is what one worker, or all, did for want of memory.
type LoadCounters struct {
	ColdLoads   int64   `json:"cold_loads,omitempty"`  // adapters brought to a GPU slot
	Evictions   int64   `json:"evictions,omitempty"`   // adapters dropped from a GPU slot
	Retractions int64   `json:"retractions,omitempty"` // requests taken out of the batch for want of KV memory
	LoadTime    float64 `json:"load_time_s,omitempty"` // s lost to adapter loads
}

// MigrationCount is how often one kind of migration happened.
type MigrationCount struct {
	Kind  string `json:"kind"`
	Count int64  `json:"count"`
}

// Extra is what a result holds beyond the reference's metrics. Latencies are in
// milliseconds, other times in seconds, shares between 0 and 1.
type Extra struct {
	Endings
	// TextlessReplies counts successful requests without a first token; their
	// TTFT is 0 in the metrics, as in the reference.
	TextlessReplies int64 `json:"textless_replies,omitempty"`

	// ScheduledE2E and ScheduledTTFT run from the scheduled arrival instead of
	// the sending, so that a slow client hides no queueing.
	ScheduledE2E  Stats `json:"scheduled_e2e_latency"`
	ScheduledTTFT Stats `json:"scheduled_ttft"`

	// TTFTPerToken is the mean of TTFT / output tokens, s: the normalized
	// queueing delay of dLoRA's figures, prefill included.
	TTFTPerToken float64 `json:"ttft_per_output_token_s"`

	Goodput  *Goodput       `json:"goodput,omitempty"`
	Fairness *Fairness      `json:"fairness,omitempty"`
	Balance  *Balance       `json:"load_balance,omitempty"`
	Adapters []AdapterStats `json:"adapters,omitempty"` // the busiest first
	Workers  []WorkerStats  `json:"workers,omitempty"`

	*Reuse
	ColdStarts    int64   `json:"cold_starts,omitempty"`       // requests that waited for adapter weights
	ColdStartWait float64 `json:"cold_start_wait_s,omitempty"` // the sum of their waits
	Migrated      int64   `json:"migrated_requests,omitempty"` // requests that moved at least once

	LoadCounters
	Counters
	// Oracle is what no policy could have done better, where it was asked for.
	Oracle *Oracle `json:"oracle,omitempty"`
	// Intervals are those of the prediction, where they were asked for.
	Intervals *Intervals `json:"intervals,omitempty"`
}

// Reuse is what prefix caches saved of the prompts of successful requests; nil
// where there are none.
type Reuse struct {
	Cached  int64   `json:"cached_tokens"`   // found in a cache when the request first ran
	HitRate float64 `json:"prefix_hit_rate"` // their share of the prompts' tokens
	prompts int64   // tokens
}

// hitRate is 0 where there are no caches.
func (r *Reuse) hitRate() float64 {
	if r == nil {
		return 0
	}
	return r.HitRate
}

// add counts a request's prompt.
func (r *Reuse) add(q *record.Request) {
	r.Cached += int64(q.Cached)
	r.prompts += int64(q.Prompt)
	r.HitRate = ratio(float64(r.Cached), float64(r.prompts))
}

// Oracle is a lower bound, with perfect knowledge of what is to come, and how
// far a run is from it.
type Oracle struct {
	MeanE2E  float64 `json:"mean_e2e_latency_ms"` // no policy has a lower mean
	Duration float64 `json:"duration"`            // s, likewise
	// E2ERegret and DurationRegret are the run's excess over the bounds, as
	// shares of the bounds.
	E2ERegret      float64 `json:"mean_e2e_regret"`
	DurationRegret float64 `json:"duration_regret"`
}

// Fairness is Jain's index (sum x)^2 / (n sum x^2) over adapters (R. Jain,
// D. Chiu, W. Hawe, DEC-TR-301, 1984): 1 when all fare alike, 1/n when one has
// everything. Requests to the base model count as one adapter more.
type Fairness struct {
	Adapters int `json:"adapters"` // adapters with at least one request
	// NormalizedLatency compares the adapters' means of E2E latency divided by
	// output tokens, over the adapters with a successful request.
	NormalizedLatency float64 `json:"normalized_latency"`
	// Tokens compares the prompt and output tokens of successful requests.
	Tokens float64 `json:"tokens"`
}

// Balance is how evenly the requests were spread over the workers.
type Balance struct {
	Mean float64 `json:"mean"` // requests per worker
	Std  float64 `json:"std"`  // population
	CV   float64 `json:"cv"`   // Std / Mean
	Max  int64   `json:"max"`
	Min  int64   `json:"min"`
}

// AdapterStats is how one adapter's requests fared.
type AdapterStats struct {
	Index     int32   `json:"adapter"` // -1: base model
	Name      string  `json:"name"`
	Requests  int64   `json:"requests"` // all, however they ended
	Completed int64   `json:"completed"`
	Share     float64 `json:"share"`  // of all requests
	Tokens    int64   `json:"tokens"` // prompt and output, of successful requests
	MeanE2E   float64 `json:"mean_e2e_latency_ms"`
	P99E2E    float64 `json:"p99_e2e_latency_ms"`
	MeanTTFT  float64 `json:"mean_ttft_ms"`
	Good      int64   `json:"good_requests,omitempty"` // within the SLO, where there is one
	// NormalizedLatency is the mean of E2E latency / output tokens, ms.
	NormalizedLatency float64 `json:"normalized_latency_ms"`
	*Reuse
}

// WorkerStats is what one worker served: the requests that ended there.
type WorkerStats struct {
	Requests int64   `json:"requests"` // all that ended there, however they did
	Share    float64 `json:"share"`    // of the requests that reached a worker
	Tokens   int64   `json:"tokens"`   // prompt and output, of successful requests
	WorkerCounters
	*Reuse
}

// addCounters enters what the driver counted.
func (e *Extra) addCounters(c *Counters, duration float64) {
	for i, w := range c.Workers {
		if i == len(e.Workers) {
			e.Workers = append(e.Workers, WorkerStats{})
		}
		e.Workers[i].WorkerCounters = w
		e.Workers[i].Busy = ratio(w.Busy, duration)
		e.ColdLoads += w.ColdLoads
		e.Evictions += w.Evictions
		e.Retractions += w.Retractions
		e.LoadTime += w.LoadTime
	}
	e.Counters = *c
	e.Counters.Workers = nil
	if c.SolverRuns == 0 && c.Plans != nil && *c.Plans == (PlanCounters{}) {
		e.Plans = nil
	}
}

// balance summarises the requests per worker, and enters their shares.
func balance(workers []WorkerStats) *Balance {
	if len(workers) == 0 {
		return nil
	}
	var m moments
	for _, w := range workers {
		m.add(tick.Ticks(w.Requests), 1)
	}
	for i := range workers {
		workers[i].Share = ratio(float64(workers[i].Requests), m.total())
	}
	return &Balance{Mean: m.mean(), Std: m.std(), CV: ratio(m.std(), m.mean()), Max: int64(m.max), Min: int64(m.min)}
}

// ratio returns a/b, and 0 instead of dividing by zero.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// Intervals says how far figures of a simulated run may be off a measured one, by
// the runs that its profile was validated with.
type Intervals struct {
	Profile string `json:"profile"`
	// Waiting is the share of their time that requests wait: it says with which
	// runs this one compares.
	Waiting float64 `json:"waiting_share"`
	// Without says why there are none, in whole sentences.
	Without []string `json:"without,omitempty"`
	// Extrapolated says in which ways the run leaves what was validated, so that
	// the ranges are wider; none: it does not.
	Extrapolated []string   `json:"extrapolated,omitempty"`
	Figures      []Interval `json:"figures,omitempty"`
}

// Interval is where a figure would be measured: in half of the cases within Half,
// which is absent where Runs, the number of runs that say so, are too few; in the
// share Level of them within Most.
type Interval struct {
	Metric    string      `json:"metric"`
	Predicted float64     `json:"predicted"`
	Runs      float64     `json:"runs"`
	Half      *[2]float64 `json:"half,omitempty"`
	Most      *[2]float64 `json:"most,omitempty"`
	Level     float64     `json:"level,omitempty"`
}
