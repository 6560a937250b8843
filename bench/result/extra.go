package result

import (
	"maps"
	"slices"

	"lorasim/sim/record"
	"lorasim/sim/tick"
)

// RunCounters are the counts of a driver beyond its requests' records. Zero fields are not
// printed. Times are in seconds.
type RunCounters struct {
	Workers       []WorkerCounters `json:"-"`
	Migrations    []MigrationCount `json:"migrations,omitempty"`       // by kind, in the order to print
	MigrationTime float64          `json:"migration_time_s,omitempty"` // time lost to migrations, summed over workers
	SolverRuns    int64            `json:"solver_runs,omitempty"`      // plans made
	SolverTime    float64          `json:"solver_time_s,omitempty"`    // time spent making plans

	Plans       *record.PlanCounters `json:"plans,omitempty"`        // nil: no plans were made
	FailedLoads int64                `json:"failed_loads,omitempty"` // failed adapter loads beside those of Workers
	Elastic     *Elastic             `json:"elastic,omitempty"`      // nil: the number of workers was fixed
	Pushes      *Pushes              `json:"pushes,omitempty"`       // nil: adapters had one version
}

// SetPlans sets all counts of plans.
func (c *RunCounters) SetPlans(p *record.PlanCounters) {
	c.Plans = p
	c.SolverRuns, c.SolverTime, c.MigrationTime = p.Made, p.SolveTime, p.Lost.Seconds()
	c.Migrations = nil
	for _, kind := range slices.Sorted(maps.Keys(p.Moves)) {
		c.Migrations = append(c.Migrations, MigrationCount{kind, p.Moves[kind]})
	}
}

// Elastic is the cost of an elastic cluster. A worker costs GPU time from the beginning
// of its start until it has finished its last request.
type Elastic struct {
	GPUHours    float64 `json:"gpu_hours"`
	WorkerHours float64 `json:"worker_hours"`
	Mean        float64 `json:"mean_workers"` // mean number of workers that cost GPU time
	Min         int     `json:"min_workers"`
	Max         int     `json:"max_workers"`
	Ups         int64   `json:"scale_ups"`   // workers started
	CalledOff   int64   `json:"called_off"`  // starts that were cancelled
	Downs       int64   `json:"scale_downs"` // workers set to drain
	TakenBack   int64   `json:"taken_back"`  // draining workers that were put back into service
}

// WorkerCounters are the counts of one worker.
type WorkerCounters struct {
	// Busy is the time with at least one request in the batch, s. In WorkerStats it is the
	// share of the run's duration.
	Busy float64 `json:"busy_share,omitempty"`
	On   float64 `json:"on_s,omitempty"` // time that the worker cost, s; elastic clusters only
	record.Counters
}

// MigrationCount is the number of migrations of one kind.
type MigrationCount struct {
	Kind  string `json:"kind"`
	Count int64  `json:"count"`
}

// Extra holds the parts of a result beyond the reference benchmark's metrics. Latencies
// are in milliseconds, other times in seconds; shares lie between 0 and 1.
type Extra struct {
	Endings
	// TextlessReplies counts successful requests without a first token. Their TTFT is 0 in
	// the metrics, as in the reference benchmark.
	TextlessReplies int64 `json:"textless_replies,omitempty"`

	// ScheduledE2E and ScheduledTTFT start at the scheduled arrival, not when the request
	// was sent. So a slow client does not hide queueing.
	ScheduledE2E  Stats `json:"scheduled_e2e_latency"`
	ScheduledTTFT Stats `json:"scheduled_ttft"`

	// TTFTPerToken is the mean of TTFT / output tokens, s. It is the normalized queueing
	// delay in dLoRA's figures, with prefill included.
	TTFTPerToken float64 `json:"ttft_per_output_token_s"`

	Goodput  *Goodput       `json:"goodput,omitempty"`
	Fairness *Fairness      `json:"fairness,omitempty"`
	Balance  *Balance       `json:"load_balance,omitempty"`
	Adapters []AdapterStats `json:"adapters,omitempty"` // the busiest first
	Workers  []WorkerStats  `json:"workers,omitempty"`

	*Reuse
	ColdStarts    int64   `json:"cold_starts,omitempty"`       // requests that waited for an adapter load
	ColdStartWait float64 `json:"cold_start_wait_s,omitempty"` // the sum of their waits
	Migrated      int64   `json:"migrated_requests,omitempty"` // requests that moved at least once

	record.Counters // the sums over the workers
	RunCounters
	// Oracle is the lower bound with perfect knowledge; nil unless it was requested.
	Oracle *Oracle `json:"oracle,omitempty"`
	// Intervals are the prediction intervals; nil unless they were requested.
	Intervals *Intervals `json:"intervals,omitempty"`
}

// Reuse counts the prompt tokens of successful requests found in prefix caches. A nil
// pointer means that there are no prefix caches.
type Reuse struct {
	Cached  int64   `json:"cached_tokens"`   // prompt tokens in a cache when the request first ran
	HitRate float64 `json:"prefix_hit_rate"` // Cached / prompt tokens
	prompts int64   // tokens
}

// add counts a request's prompt.
func (r *Reuse) add(q *record.Request) {
	r.Cached += int64(q.Cached)
	r.prompts += int64(q.Prompt)
	r.HitRate = ratio(float64(r.Cached), float64(r.prompts))
}

// Oracle is a lower bound with perfect knowledge of the future, and the distance of a run
// from the bound.
type Oracle struct {
	MeanE2E  float64 `json:"mean_e2e_latency_ms"` // lower bound of the mean E2E latency, ms
	Duration float64 `json:"duration"`            // lower bound of the duration, s
	// E2ERegret and DurationRegret are the run's excess over the bounds, as shares of the
	// bounds.
	E2ERegret      float64 `json:"mean_e2e_regret"`
	DurationRegret float64 `json:"duration_regret"`
}

// Fairness is Jain's index (sum x)^2 / (n sum x^2) over adapters (R. Jain, D. Chiu,
// W. Hawe, DEC-TR-301, 1984). It is 1 if all adapters have the same value, and 1/n if one
// adapter has everything. The base model counts as one more adapter.
type Fairness struct {
	Adapters int `json:"adapters"` // adapters with at least one request
	// NormalizedLatency is the index of the adapters' means of E2E latency / output tokens,
	// over the adapters with a successful request.
	NormalizedLatency float64 `json:"normalized_latency"`
	// Tokens is the index of the adapters' prompt and output tokens of successful requests.
	Tokens float64 `json:"tokens"`
}

// Balance describes the distribution of requests over workers.
type Balance struct {
	Mean float64 `json:"mean"` // requests per worker
	Std  float64 `json:"std"`  // population standard deviation
	CV   float64 `json:"cv"`   // Std / Mean
	Max  int64   `json:"max"`  // most requests of a worker
	Min  int64   `json:"min"`  // fewest requests of a worker
}

// AdapterStats are the metrics of one adapter's requests.
type AdapterStats struct {
	Index     int32   `json:"adapter"` // -1: base model
	Name      string  `json:"name"`
	Requests  int64   `json:"requests"` // all requests, however they ended
	Completed int64   `json:"completed"`
	Share     float64 `json:"share"`  // share of all requests
	Tokens    int64   `json:"tokens"` // prompt and output, of successful requests
	MeanE2E   float64 `json:"mean_e2e_latency_ms"`
	P99E2E    float64 `json:"p99_e2e_latency_ms"`
	MeanTTFT  float64 `json:"mean_ttft_ms"`
	Good      int64   `json:"good_requests,omitempty"` // requests within the SLO; 0 without an SLO
	// NormalizedLatency is the mean of E2E latency / output tokens, ms.
	NormalizedLatency float64 `json:"normalized_latency_ms"`
	*Reuse
}

// WorkerStats are the metrics of the requests that ended on one worker.
type WorkerStats struct {
	Requests int64   `json:"requests"` // requests that ended on the worker, however they ended
	Share    float64 `json:"share"`    // share of the requests that reached a worker
	Tokens   int64   `json:"tokens"`   // prompt and output, of successful requests
	WorkerCounters
	*Reuse
}

// addCounters adds the driver's counters.
func (e *Extra) addCounters(c *RunCounters, duration float64) {
	e.RunCounters = *c
	e.RunCounters.Workers = nil
	for i, w := range c.Workers {
		if i == len(e.Workers) {
			e.Workers = append(e.Workers, WorkerStats{})
		}
		e.Workers[i].WorkerCounters = w
		e.Workers[i].Busy = ratio(w.Busy, duration)
		e.Counters.Add(&w.Counters)
	}
	e.RunCounters.FailedLoads += e.Counters.FailedLoads
	if p := c.Plans; p != nil && c.SolverRuns == 0 && p.Applied == 0 && p.Dropped == 0 && p.Idle == nil {
		e.Plans = nil
	}
}

// balance summarises the requests per worker, and sets the workers' shares.
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

// ratio returns a/b, or 0 if b is 0.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// Intervals are prediction intervals of a simulated run's metrics. They come from the
// errors of the runs with which the profile was validated.
type Intervals struct {
	Profile string `json:"profile"`
	// Waiting is the share of the requests' time spent waiting. It selects the comparable
	// validation runs.
	Waiting float64 `json:"waiting_share"`
	// Without lists the reasons why there are no intervals, in whole sentences.
	Without []string `json:"without,omitempty"`
	// Extrapolated lists how the run differs from the validated range; the intervals are
	// then wider. Empty means that it lies within the range.
	Extrapolated []string   `json:"extrapolated,omitempty"`
	Figures      []Interval `json:"figures,omitempty"`
}

// An Interval is the range in which a measured run would have a metric. In half of the
// cases it lies within Half, in a share Level of the cases within Most. Half is nil if
// Runs, the number of validation runs, is too small.
type Interval struct {
	Metric    string      `json:"metric"`    // JSON name
	Predicted float64     `json:"predicted"` // value of the simulated run
	Runs      float64     `json:"runs"`      // number of validation runs
	Half      *[2]float64 `json:"half,omitempty"`
	Most      *[2]float64 `json:"most,omitempty"`
	Level     float64     `json:"level,omitempty"`
}
