package result

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"lorasim/internal/format"
	"lorasim/internal/record"
	"lorasim/internal/tick"
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
	TakenBack   int64   `json:"taken_back"`  // of these, before they had left
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
	if r != nil {
		r.Cached += int64(q.Cached)
		r.prompts += int64(q.Prompt)
		r.HitRate = ratio(float64(r.Cached), float64(r.prompts))
	}
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

	// An adapter meets the SLO where a share Attain of its requests does, failed
	// ones included; requests to the base model count as one adapter more.
	Attain float64 `json:"attain"`
	AdapterGoodput
	// Others are those without a flash crowd of their own, where one has it.
	Others *Others `json:"others,omitempty"`
}

// AdapterGoodput is how well adapters met an SLO.
type AdapterGoodput struct {
	Adapters float64 `json:"adapter_share"` // of the adapters with requests: those that meet it
	// Fairness is Jain's index of the adapters' shares of good requests; see Fairness.
	Fairness float64 `json:"fairness"`
	Worst    *Worst  `json:"worst_adapter"` // nil: no requests
}

// Others are the neighbours of noisy adapters.
type Others struct {
	Share float64 `json:"share"` // of their requests
	TTFT  float64 `json:"p99_ttft_ms"`
	AdapterGoodput
}

// Worst is the adapter with the smallest share of good requests; of several the
// one with the most requests, then the first.
type Worst struct {
	Index    int32   `json:"adapter"` // -1: base model
	Name     string  `json:"name"`
	Requests int64   `json:"requests"`
	Share    float64 `json:"share"` // of them, within every limit
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

// SLO is a service-level objective: upper limits in milliseconds on the
// latencies of a request. A limit of 0 is not set.
type SLO struct {
	TTFT, TPOT, E2E float64
	// Attain is the share of an adapter's requests that must be within the
	// limits; 0: DefaultAttain.
	Attain float64
}

// DefaultAttain is the share of requests that must be within an SLO.
const DefaultAttain = 0.99

// Enough says whether an SLO is met that so many of the requests of an adapter met.
func (s SLO) Enough(good, requests int64) bool {
	return float64(good) >= (cmp.Or(s.Attain, DefaultAttain)-1e-9)*float64(requests)
}

var latencyNames = [...]string{"ttft", "tpot", "e2e"}

func (s *SLO) limits() [3]*float64 { return [...]*float64{&s.TTFT, &s.TPOT, &s.E2E} }

// ParseSLO reads an SLO such as "ttft:500 tpot:50 e2e:5000" (ms), which may have
// "attain:99%" beside it; spaces or commas separate the limits, and "" is the empty SLO.
func ParseSLO(spec string) (SLO, error) {
	var s SLO
	for _, part := range strings.FieldsFunc(spec, func(r rune) bool { return r == ' ' || r == ',' }) {
		if why := s.parse(part); why != "" {
			return SLO{}, fmt.Errorf("SLO %q: %q: %s", spec, part, why)
		}
	}
	if s.Empty() && s.Attain > 0 {
		return SLO{}, fmt.Errorf("SLO %q: expected a latency beside attain, as in ttft:500", spec)
	}
	return s, nil
}

// parse enters a limit, or says what is wrong with it.
func (s *SLO) parse(part string) (why string) {
	name, value, ok := strings.Cut(part, ":")
	if !ok {
		return "expected NAME:MILLISECONDS, as in ttft:500"
	}
	if name == "attain" {
		if s.Attain != 0 {
			return "given twice"
		}
		var err error
		if s.Attain, err = ParseShare(value); err != nil {
			return err.Error()
		}
		return ""
	}
	i := slices.Index(latencyNames[:], name)
	if i < 0 {
		return "unknown latency: expected ttft, tpot or e2e"
	}
	limit := s.limits()[i]
	if *limit != 0 {
		return "given twice"
	}
	v, err := strconv.ParseFloat(value, 64)
	if err != nil || !(v > 0) || math.IsInf(v, 0) {
		return "expected a number of milliseconds above 0"
	}
	*limit = v
	return ""
}

// String is the inverse of ParseSLO.
func (s SLO) String() string {
	var parts []string
	for i, limit := range s.limits() {
		if *limit > 0 {
			parts = append(parts, latencyNames[i]+":"+strconv.FormatFloat(*limit, 'f', -1, 64))
		}
	}
	if s.Attain > 0 {
		parts = append(parts, "attain:"+strconv.FormatFloat(s.Attain, 'f', -1, 64))
	}
	return strings.Join(parts, " ")
}

// Empty says whether no limit is set.
func (s SLO) Empty() bool { return s.TTFT == 0 && s.TPOT == 0 && s.E2E == 0 }

// ParseShare reads a share such as "99%" or "0.99".
func ParseShare(text string) (float64, error) {
	number, percent := strings.CutSuffix(strings.TrimSpace(text), "%")
	x, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if percent {
		x /= 100
	}
	if err != nil || !(x > 0 && x <= 1) {
		return 0, fmt.Errorf("%q, expected a share above 0 and up to 100%%, as in 99%% or 0.99", text)
	}
	return x, nil
}

// Met says whether a request succeeded within all limits.
func (s SLO) Met(r *record.Request) bool {
	if r.Status != record.OK {
		return false
	}
	var g Goodput
	e2e, ttft, tpot, textless := latencies(r, r.Streamed == record.NotStreamed)
	return g.count(s, ttft, tpot, e2e, textless)
}

// count adds a successful request, and says whether it met the SLO. One without
// text never had a first token and so misses a limit on TTFT.
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

// attained is how adapters fared, the busiest first.
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
	g.Adapters, g.Fairness = ratio(float64(met), float64(len(all))), jain(shares)
	return g
}

// addAdapters enters how the adapters fared, and those that are not noisy.
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

// Endings says how the requests of a run ended.
type Endings struct {
	Requests int64 `json:"requests"` // all, however they ended
	Failed   int64 `json:"failed"`
	Rejected int64 `json:"rejected"`
	Aborted  int64 `json:"aborted"`
	// Unfinished counts requests cut off at the end of the run's window.
	Unfinished int64 `json:"unfinished,omitempty"`
	// Unsent counts requests of the workload that a run that was stopped never
	// sent; they are not among Requests.
	Unsent int64 `json:"unsent,omitempty"`
	// Reasons lists why requests did not succeed, the most frequent first.
	Reasons []Reason `json:"reasons,omitempty"`
	// CompletedSet is a fingerprint of the set of requests that succeeded: two
	// runs of one workload with the same fingerprint completed the same
	// requests. 0: not known, or none did.
	CompletedSet int64 `json:"completed_set,omitempty"`
}

// Reason is one reason why requests did not succeed.
type Reason struct {
	Status string `json:"status"`
	Reason string `json:"reason"`
	Count  int64  `json:"count"`
}

// Of is the number of requests that ended in a way other than record.OK.
func (e *Endings) Of(s record.Status) *int64 {
	switch s {
	case record.Failed:
		return &e.Failed
	case record.Rejected:
		return &e.Rejected
	case record.Aborted:
		return &e.Aborted
	case record.Unfinished:
		return &e.Unfinished
	}
	return new(int64)
}

// Endings returns how the requests of the run ended; nil where that is not
// known.
func (r *Result) Endings() *Endings {
	if r.Extra != nil {
		return &r.Extra.Endings
	}
	return r.Ended
}

// Unsuccessful is the number of requests that did not succeed.
func (e *Endings) Unsuccessful() int64 { return e.Failed + e.Rejected + e.Aborted + e.Unfinished }

// shownReasons is how many reasons the lines below a block give.
const shownReasons = 5

// Shortfall says in lines such as "1241 of 8819 rejected: prompt over the
// context length 4096" which requests did not succeed, and why; none where all
// did, or where that is not known.
func (r *Result) Shortfall() []string {
	e := r.Endings()
	if e == nil || e.Unsuccessful()+e.Unsent == 0 {
		return nil
	}
	var lines []string
	rest := e.Unsuccessful()
	line := func(n int64, status, reason string) {
		lines = append(lines, fmt.Sprintf("%d of %d %s: %s", n, e.Requests, status, reason))
		rest -= n
	}
	for _, q := range e.Reasons[:min(len(e.Reasons), shownReasons)] {
		line(q.Count, q.Status, format.Clip(q.Reason, maxReasonLen))
	}
	if len(lines) == 0 {
		for status := record.Failed; status < record.NumStatus; status++ {
			if n := *e.Of(status); n > 0 {
				line(n, status.String(), "no reason known")
			}
		}
	} else if rest > 0 {
		line(rest, "not completed", "other reasons")
	}
	if e.Unsent > 0 {
		lines = append(lines, fmt.Sprintf("%d of %d not sent: the run was stopped", e.Unsent, e.Requests+e.Unsent))
	}
	return lines
}

// NoSuccess is an error where requests were sent and not one succeeded.
func (r *Result) NoSuccess() error {
	e := r.Endings()
	if n, _ := r.Metrics.Get(Completed); e == nil || n > 0 || e.Requests == 0 {
		return nil
	}
	why := ""
	if lines := r.Shortfall(); len(lines) > 0 {
		why = ": " + lines[0]
	}
	return fmt.Errorf("no request succeeded%s", why)
}

// setBits is the width of a fingerprint: a float64 holds it exactly, as tables
// of numbers have it.
const setBits = 52

// completedSet adds a request to a fingerprint, in any order: the sum of the
// ids, each mixed as in SplitMix64 (G. Steele, D. Lea, C. Flood, OOPSLA 2014).
func completedSet(sum int64, r *record.Request) int64 {
	z := uint64(r.ID) + 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return int64((uint64(sum) + (z ^ z>>31)) & (1<<setBits - 1))
}

// InferStreaming tells from a run's numbers whether its client streamed, where
// nothing says so: gaps between tokens are seen by those alone that do. A run
// that generated more tokens than replies and saw no gap did not stream.
func (r *Result) InferStreaming() {
	if disabled, ok := r.Config["disable_stream"].(bool); ok && r.Streamed == record.StreamingUnknown {
		r.Streamed = record.StreamingIf(!disabled)
	}
	mean, ok := r.Metrics.Get(MeanITL)
	if !ok || r.Streamed != record.StreamingUnknown {
		return
	}
	p99, ok := r.Metrics.Get(P99ITL)
	tokens, _ := r.Metrics.Get(TotalOutputTokens)
	completed, _ := r.Metrics.Get(Completed)
	switch {
	case mean > 0:
		r.Streamed = record.Streamed
	case ok && p99 == 0 && tokens > completed && completed > 0:
		r.Streamed = record.NotStreamed
	}
}
