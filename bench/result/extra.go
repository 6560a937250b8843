package result

import (
	"slices"

	"lorasim/internal/tick"
)

// Counters is what a driver knows beyond the fate of its requests. Zero fields
// are not printed. Times are in seconds.
type Counters struct {
	Workers       []WorkerCounters
	Migrations    []MigrationCount // by kind, in the order to print
	MigrationTime float64          // lost to migrations, summed over workers
	SolverRuns    int64            // plans made
	SolverTime    float64          // spent making them
	Plans         PlanCounters
	FailedLoads   int64 // adapter loads that failed
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

// WorkerCounters is what one worker did.
type WorkerCounters struct {
	Busy        float64 // s with at least one request in the batch
	ColdLoads   int64   // adapters brought to a GPU slot
	Evictions   int64   // adapters dropped from a GPU slot
	Retractions int64   // requests taken out of the batch for want of KV memory
	LoadTime    float64 // s lost to adapter loads
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

	ColdStarts    int64   `json:"cold_starts,omitempty"`       // requests that waited for adapter weights
	ColdStartWait float64 `json:"cold_start_wait_s,omitempty"` // the sum of their waits
	Migrated      int64   `json:"migrated_requests,omitempty"` // requests that moved at least once

	ColdLoads     int64            `json:"cold_loads,omitempty"`
	Evictions     int64            `json:"evictions,omitempty"`
	Retractions   int64            `json:"retractions,omitempty"`
	LoadTime      float64          `json:"load_time_s,omitempty"`
	Migrations    []MigrationCount `json:"migrations,omitempty"`
	MigrationTime float64          `json:"migration_time_s,omitempty"`
	SolverRuns    int64            `json:"solver_runs,omitempty"`
	SolverTime    float64          `json:"solver_time_s,omitempty"`
	Plans         *PlanCounters    `json:"plans,omitempty"` // nil: none were made
	FailedLoads   int64            `json:"failed_loads,omitempty"`
	// Oracle is what no policy could have done better, where it was asked for.
	Oracle *Oracle `json:"oracle,omitempty"`
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

// Goodput is how well a run met an SLO.
type Goodput struct {
	SLO   string  `json:"slo"`
	Good  int64   `json:"good_requests"` // successful and within every limit
	PerS  float64 `json:"good_per_s"`    // over the run's duration
	Share float64 `json:"share"`         // of all requests, failed ones included
	TTFT  float64 `json:"ttft_share"`    // of the successful requests, within this limit
	TPOT  float64 `json:"tpot_share"`    // 1 where the limit is not set
	E2E   float64 `json:"e2e_share"`
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
	// NormalizedLatency is the mean of E2E latency / output tokens, ms.
	NormalizedLatency float64 `json:"normalized_latency_ms"`
}

// WorkerStats is what one worker served: the requests that ended there.
type WorkerStats struct {
	Requests    int64   `json:"requests"`             // all that ended there, however they did
	Share       float64 `json:"share"`                // of the requests that reached a worker
	Tokens      int64   `json:"tokens"`               // prompt and output, of successful requests
	Busy        float64 `json:"busy_share,omitempty"` // of the run's duration
	ColdLoads   int64   `json:"cold_loads,omitempty"`
	Evictions   int64   `json:"evictions,omitempty"`
	Retractions int64   `json:"retractions,omitempty"`
	LoadTime    float64 `json:"load_time_s,omitempty"`
}

// addCounters enters what the driver counted.
func (e *Extra) addCounters(c *Counters, duration float64) {
	for i, w := range c.Workers {
		if i == len(e.Workers) {
			e.Workers = append(e.Workers, WorkerStats{})
		}
		s := &e.Workers[i]
		s.Busy = ratio(w.Busy, duration)
		s.ColdLoads, s.Evictions, s.Retractions, s.LoadTime = w.ColdLoads, w.Evictions, w.Retractions, w.LoadTime
		e.ColdLoads += w.ColdLoads
		e.Evictions += w.Evictions
		e.Retractions += w.Retractions
		e.LoadTime += w.LoadTime
	}
	e.Migrations = slices.Clone(c.Migrations)
	e.MigrationTime, e.SolverRuns, e.SolverTime = c.MigrationTime, c.SolverRuns, c.SolverTime
	e.FailedLoads = c.FailedLoads
	if c.SolverRuns > 0 || c.Plans != (PlanCounters{}) {
		plans := c.Plans
		e.Plans = &plans
	}
}

// jain returns Jain's index of xs; 1 if there is nothing to compare.
func jain(xs []float64) float64 {
	var sum, squares float64
	for _, x := range xs {
		sum += x
		squares += x * x
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(len(xs)) * squares)
}

// balance summarises the requests per worker.
func balance(workers []WorkerStats) *Balance {
	if len(workers) == 0 {
		return nil
	}
	var m moments
	for _, w := range workers {
		m.add(tick.Ticks(w.Requests), 1)
	}
	return &Balance{
		Mean: m.mean(), Std: m.std(), CV: ratio(m.std(), m.mean()),
		Max: int64(m.max), Min: int64(m.min),
	}
}

// ratio returns a/b, and 0 instead of dividing by zero.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
