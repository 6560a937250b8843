package result

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"lorasim/bench/stats"
)

const (
	workersPrefix  = "workers."
	adaptersPrefix = "adapters."
)

// table is the table of all metrics: see Metric. To add a metric, add a field to a struct
// of the result (for a counter of a worker: record.Counters) and an entry here. The order
// is that of rows, columns and the docs.
var table = []group{
	{"Requests", []Metric{
		reference(Completed, Metric{Name: "completed", Title: "Successful requests", Int: true, AllRequests: true,
			Compare: true, Help: "requests that succeeded"}),
		{Name: "requests", Title: "Requests", AllRequests: true, Print: whole, Zero: true,
			Help: "requests that were sent, however they ended"},
		{Name: "failed", Title: "Failed", Better: stats.Lower, AllRequests: true, Compare: true,
			Print: whole, Label: "Failed requests", Zero: true,
			Help: "requests accepted by a worker that ended in an error"},
		{Name: "rejected", Title: "Rejected", Better: stats.Lower, AllRequests: true, Compare: true,
			Print: whole, Label: "Rejected requests", Zero: true, Help: "requests refused by a worker or the router"},
		{Name: "aborted", Title: "Aborted", Better: stats.Lower, AllRequests: true, Compare: true,
			Print: whole, Label: "Aborted requests", Zero: true, Help: "requests cancelled by the client"},
		{Name: "unfinished", Title: "Unfinished", Better: stats.Lower, AllRequests: true, Compare: true,
			Print: whole, Label: "Unfinished requests", Help: "requests in flight at the end of the run's window"},
		{Name: "unsent", Title: "Unsent", Better: stats.Lower, AllRequests: true, Compare: true,
			Help: "requests that were never sent because the run was stopped; requests does not include them"},
		{Name: "textless_replies", Title: "Replies without text (TTFT 0)", Print: whole,
			Help: "successful requests without a first token; their TTFT is 0"},
		{Name: "completed_set", Title: "Completed set", Hidden: true,
			Help: "fingerprint of the requests that succeeded; runs with the same number completed the same requests"},
	}},
	{"Duration and Throughput", []Metric{
		reference(Duration, Metric{Name: "duration", Title: "Benchmark duration (s)", Unit: "s", Better: stats.Lower,
			Compare: true, Help: "time from the first arrival to the last finish"}),
		reference(TotalInputTokens, Metric{Name: "total_input_tokens", Title: "Total input tokens", Unit: "tokens",
			Int: true, Help: "prompt tokens of successful requests"}),
		reference(TotalInputTextTokens, Metric{Name: "total_input_text_tokens", Title: "Total input text tokens",
			Unit: "tokens", Int: true, Help: "those that are text"}),
		reference(TotalInputVisionTokens, Metric{Name: "total_input_vision_tokens",
			Title: "Total input vision tokens", Unit: "tokens", Int: true, Help: "those that are images"}),
		reference(TotalOutputTokens, Metric{Name: "total_output_tokens", Title: "Total generated tokens",
			Unit: "tokens", Int: true, Help: "output tokens of successful requests"}),
		reference(TotalOutputTokensRetokenized, Metric{Name: "total_output_tokens_retokenized",
			Title: "Total generated tokens (retokenized)", Unit: "tokens", Int: true,
			Help: "output tokens, counted again from the text of the replies"}),
		reference(RequestThroughput, Metric{Name: "request_throughput", Title: "Request throughput (req/s)",
			Unit: "req/s", Better: stats.Higher, Compare: true, Help: "successful requests per second"}),
		reference(InputThroughput, Metric{Name: "input_throughput", Title: "Input token throughput (tok/s)",
			Unit: "tok/s", Better: stats.Higher, Help: "prompt tokens of successful requests per second"}),
		reference(OutputThroughput, Metric{Name: "output_throughput", Title: "Output token throughput (tok/s)",
			Unit: "tok/s", Better: stats.Higher, Compare: true, Sweep: 5,
			Help: "output tokens of successful requests per second"}),
		reference(MaxOutputTokensPerS, Metric{Name: "max_output_tokens_per_s",
			Title: "Peak output token throughput (tok/s)", Unit: "tok/s",
			Help: "most output tokens in a second of the run"}),
		reference(MaxConcurrentRequests, Metric{Name: "max_concurrent_requests", Title: "Peak concurrent requests",
			Int: true, Help: "most requests in flight in a second of the run"}),
		reference(TotalThroughput, Metric{Name: "total_throughput", Title: "Total token throughput (tok/s)",
			Unit: "tok/s", Better: stats.Higher, Compare: true,
			Help: "prompt and output tokens of successful requests per second"}),
		reference(Concurrency, Metric{Name: "concurrency", Title: "Concurrency", NeedsSteady: true, Compare: true,
			Help: "mean number of successful requests in flight"}),
		reference(AcceptLength, Metric{Name: "accept_length", Title: "Accept length", Unit: "tokens",
			Help: "tokens per step of speculative decoding"}),
	}},
	{"Latency", latencyMetrics()},
	{"Latency from the Scheduled Arrival", slices.Concat(
		scheduled(MeanE2E, "scheduled_e2e_latency"), scheduled(MeanTTFT, "scheduled_ttft"), []Metric{
			{Name: "ttft_per_output_token_s", Title: "TTFT per output token (s)", Unit: "s/token", NeedsSteady: true,
				Help: "mean of TTFT / output tokens; dLoRA's normalized queueing delay, with prefill"},
		})},
	{"Steady State", []Metric{
		{Name: SteadyStateName, Title: "Steady state", Hidden: true,
			Help: "state of the run: 0 steady, 1 transient, 2 overloaded; in JSON the word"},
		{Name: offeredName, Title: "Offered rate (req/s)", Unit: "req/s", Print: fixed(2),
			Help: "rate at which the requests arrived"},
		{Name: sustainsName, Title: "Sustainable rate (req/s)", Unit: "req/s", Better: stats.Higher, Print: fixed(2),
			Help: "highest rate at which queues do not grow; unknown unless the run was overloaded or saturated"},
		{Name: warmupName, Title: "Warm-up (s)", Unit: "s", Print: fixed(2), Zero: true,
			Label: "Warm-up, not left out (s)", Help: "time until the steady state"},
		{Name: samplesName, Title: "Effective samples", Print: fixed(0), Label: "Effective samples of TTFT", Zero: true,
			Help: "number of independent samples of TTFT with the same information as all samples"},
		{Name: neededName, Title: "Requests needed", Print: whole,
			Help: "estimated length of a run that would not be transient; of transient runs alone"},
	}},
	{"Goodput", []Metric{
		goodput("good_requests", Metric{Title: "Requests within the SLO", Better: stats.Higher, Print: whole,
			AllRequests: true, Help: "successful requests within every limit"}),
		goodput("good_per_s", Metric{Title: "Goodput (req/s)", Unit: "req/s", Better: stats.Higher, Print: fixed(2),
			AllRequests: true, Help: "requests within every limit per second"}),
		goodput("share", Metric{Title: "SLO attainment", Unit: "share", Better: stats.Higher, Print: percent,
			AllRequests: true, Curve: true, Compare: true, Help: "share of all requests within every limit"}),
		goodput("ttft_share", Metric{Title: "Within the limit of ttft", Unit: "share", Better: stats.Higher,
			Print: percent, Help: "share of the successful requests within the limit of TTFT"}),
		goodput("tpot_share", Metric{Title: "Within the limit of tpot", Unit: "share", Better: stats.Higher,
			Print: percent, Help: "share of the successful requests within the limit of TPOT"}),
		goodput("e2e_share", Metric{Title: "Within the limit of e2e", Unit: "share", Better: stats.Higher,
			Print: percent, Help: "share of the successful requests within the limit of E2E"}),
		goodput("attain", Metric{Title: "Goodput attain", Unit: "share", AllRequests: true, Hidden: true,
			Help: "share of its requests that an adapter needs within the limits to meet the SLO (setting)"}),
		goodput("adapter_share", Metric{Title: "Share of adapters within the SLO", Unit: "share", Better: stats.Higher,
			AllRequests: true, Curve: true, Compare: true,
			Help: "share of the adapters with requests that meet the SLO"}),
		goodput("worst_adapter.adapter", Metric{Title: "Goodput worst adapter adapter", AllRequests: true,
			Hidden: true, Help: "index of the adapter with the smallest attainment; -1: base model"}),
		goodput("worst_adapter.requests", Metric{Title: "Requests of the worst adapter", AllRequests: true,
			Help: "its requests"}),
		goodput("worst_adapter.share", Metric{Title: "Attainment of the worst adapter", Unit: "share",
			Better: stats.Higher, AllRequests: true, Curve: true, Compare: true,
			Help: "its share of requests within every limit"}),
		goodput("fairness", Metric{Title: "Jain fairness of attainment", Unit: "index", Better: stats.Higher,
			AllRequests: true, Print: fixed(4), Help: "Jain's index of the adapters' attainments; 1 if all are equal"}),
		goodput("others.share", Metric{Title: "Attainment of the other adapters", Unit: "share", Better: stats.Higher,
			AllRequests: true, Curve: true, Print: percent,
			Help: "SLO attainment of the adapters without a flash crowd, if some have one"}),
		goodput("others.p99_ttft_ms", Metric{Title: "P99 TTFT of the other adapters (ms)", Unit: "ms",
			Better: stats.Lower, Print: fixed(2), Help: "P99 of their TTFT"}),
		goodput("others.adapter_share", Metric{Title: "Share of the other adapters within the SLO", Unit: "share",
			Better: stats.Higher, AllRequests: true, Help: "share of them that meet the SLO"}),
		goodput("others.worst_adapter.adapter", Metric{Title: "Goodput others worst adapter adapter",
			AllRequests: true, Hidden: true, Help: "index of the one with the smallest attainment; -1: base model"}),
		goodput("others.worst_adapter.requests", Metric{Title: "Requests of the worst of the others",
			AllRequests: true, Help: "requests of that adapter"}),
		goodput("others.worst_adapter.share", Metric{Title: "Attainment of the worst of the others", Unit: "share",
			Better: stats.Higher, AllRequests: true, Curve: true, Help: "attainment of that adapter"}),
		goodput("others.fairness", Metric{Title: "Jain fairness of the others' attainment", Unit: "index",
			Better: stats.Higher, AllRequests: true, Help: "Jain's index of their attainments"}),
	}},
	{"Workers", []Metric{
		{Name: "load_balance.mean", Title: "Requests per worker, mean", Print: fixed(2), Zero: true,
			Help: "mean number of requests that ended on a worker"},
		{Name: "load_balance.std", Title: "Requests per worker, std", Print: fixed(2), Zero: true,
			Label: "Requests per worker, std (CV)", Help: "their population standard deviation"},
		{Name: "load_balance.cv", Title: "Requests per worker, std / mean", Better: stats.Lower, Compare: true,
			Print: in(" (", fixed(4), ")"), Zero: true, Label: "Requests per worker, std (CV)",
			Help: "their coefficient of variation"},
		{Name: "load_balance.max", Title: "Requests per worker, max", Print: whole, Zero: true,
			Label: "Requests per worker, max / min", Help: "most requests of a worker"},
		{Name: "load_balance.min", Title: "Requests per worker, min", Print: in(" / ", whole, ""), Zero: true,
			Label: "Requests per worker, max / min", Help: "fewest requests of a worker"},
		{Name: "workers.requests", Title: "Requests", Column: &Column{Head: "Requests", Width: 9, Format: whole},
			Help: "requests that ended on the worker, however they ended"},
		{Name: "workers.share", Title: "Share", Unit: "share",
			Column: &Column{Head: "Share", Width: 8, Format: percent},
			Help:   "share of the requests that reached a worker"},
		{Name: "workers.tokens", Title: "Tokens", Unit: "tokens",
			Column: &Column{Head: "Tokens", Width: 11, Format: whole},
			Help:   "prompt and output tokens of successful requests"},
		{Name: "workers.on_s", Title: "On (s)", Unit: "s", Column: optional("On s", 9, fixed(1)),
			Help: "time that the worker cost; elastic clusters only"},
		{Name: "workers.busy_share", Title: "Busy", Unit: "share", Column: optional("Busy", 8, percent),
			Help: "share of the run with at least one request in the batch; simulated runs only"},
	}},
	{"Adapters", []Metric{
		{Name: "fairness.adapters", Title: "Adapters with requests", Print: whole, Zero: true,
			Help: "adapters with at least one request; the base model counts as one"},
		{Name: "fairness.normalized_latency", Title: "Fairness normalized latency", Unit: "index",
			Better: stats.Higher, NeedsSteady: true, Compare: true, Print: fixed(4), Zero: true,
			Label: "Jain fairness of normalized latency",
			Help:  "Jain's index of the adapters' means of E2E latency / output tokens; 1 if all are equal"},
		{Name: "fairness.tokens", Title: "Jain fairness of tokens served", Unit: "index", Better: stats.Higher,
			Print: fixed(4),
			Zero:  true,
			Help:  "Jain's index of the adapters' prompt and output tokens"},
		{Name: "adapters.adapter", Title: "Adapter", Help: "index of the adapter; -1: base model"},
		{Name: "adapters.requests", Title: "Requests", Help: "requests, however they ended"},
		{Name: "adapters.completed", Title: "Completed", Help: "successful requests"},
		{Name: "adapters.share", Title: "Share", Unit: "share", Help: "share of all requests"},
		{Name: "adapters.tokens", Title: "Tokens", Unit: "tokens",
			Help: "prompt and output tokens of successful requests"},
		{Name: "adapters.mean_e2e_latency_ms", Title: "Mean E2E", Unit: "ms", Help: "mean E2E latency"},
		{Name: "adapters.p99_e2e_latency_ms", Title: "P99 E2E", Unit: "ms", Help: "P99 of E2E latency"},
		{Name: "adapters.mean_ttft_ms", Title: "Mean TTFT", Unit: "ms", Help: "mean TTFT"},
		{Name: "adapters.good_requests", Title: "Good", Help: "requests within the SLO"},
		{Name: "adapters.normalized_latency_ms", Title: "Normalized latency", Unit: "ms",
			Help: "mean of E2E latency / output tokens"},
		{Name: "adapters.cached_tokens", Title: "Cached tokens", Unit: "tokens",
			Help: "prompt tokens found in prefix caches"},
		{Name: "adapters.prefix_hit_rate", Title: "Prefix hit rate", Unit: "share",
			Help: "cached tokens / prompt tokens"},
	}},
	{"Loads and Migrations", []Metric{
		{Name: "cold_loads", Title: "Cold loads", Better: stats.Lower, Compare: true, Print: whole,
			Column: optional("Loads", 7, whole), Help: "adapters loaded to a GPU slot"},
		{Name: "evictions", Title: "Evictions", Better: stats.Lower, Compare: true, Print: whole,
			Column: optional("Evicted", 7, whole), Help: "adapters evicted from a GPU slot"},
		{Name: "retractions", Title: "Preemptions", Better: stats.Lower, Print: whole,
			Column: optional("Preempt", 7, whole),
			Help:   "running requests preempted, mostly because the KV cache was full"},
		{Name: "cached_tokens", Title: "Prompt tokens from prefix caches", Unit: "tokens", Better: stats.Higher,
			Print: whole,
			Help:  "prompt tokens of successful requests found in a prefix cache when the request first ran"},
		{Name: "prefix_hit_rate", Title: "Prefix hit rate", Unit: "share", Better: stats.Higher, Print: percent,
			Zero: true, Column: &Column{Head: "Cached", Width: 8, Format: percent, Optional: true, Last: true},
			Help: "cached tokens / prompt tokens of successful requests"},
		{Name: "load_time_s", Title: "Time spent loading adapters (s)", Unit: "s", Better: stats.Lower,
			Print: seconds, Column: optional("Load s", 8, fixed(2)),
			Help: "time in which workers waited for adapter loads"},
		{Name: "repeated_tokens", Title: "Repeated tokens", Unit: "tokens", Better: stats.Lower, Print: whole,
			Column: optional("Repeated", 9, whole),
			Help:   "KV tokens computed again after a preemption (simulated runs), a failure of the worker or a move"},
		{Name: "cold_starts", Title: "Requests that waited for an adapter", Better: stats.Lower, Print: whole,
			Help: "requests that waited for the load of their adapter"},
		{Name: "cold_start_wait_s", Title: "Total wait for adapters (s)", Unit: "s", Better: stats.Lower,
			Print: seconds, Help: "sum of their waits"},
		{Name: "migrated_requests", Title: "Migrated requests", Compare: true, Print: whole,
			Help: "requests that moved to another worker at least once"},
		{Name: migrationsName, Title: "Migrations",
			Help: "moves of requests; in JSON a list by kind: queued, or the way in which a running request moved"},
		{Name: "migration_time_s", Title: "Time spent on migrations (s)", Unit: "s", Better: stats.Lower,
			Print: seconds,
			Help:  "time in which moved requests neither waited nor ran, summed"},
		{Name: "failed_loads", Title: "Failed adapter loads", Print: whole,
			Help: "adapter loads that failed"},
	}},
	{"Plans", []Metric{
		{Name: "solver_runs", Title: "Plans made", Print: whole, Help: "plans made"},
		{Name: "plans.applied", Title: "Plans applied", Print: whole, Zero: true, Label: "Plans applied / dropped",
			Help: "plans that were not empty and were carried out"},
		{Name: "plans.dropped", Title: "Plans dropped", Print: in(" / ", whole, ""), Zero: true,
			Label: "Plans applied / dropped", Help: "plans that could no longer be carried out when they were due"},
		{Name: "solver_time_s", Title: "Solver time (s)", Unit: "s", Better: stats.Lower, Print: seconds,
			Help: "time spent making plans"},
		{Name: "plans.mean_gap", Title: "Optimality gap of plans, mean", Unit: "share", Print: percent,
			Help: "mean relative distance of the plans' objectives to their bounds"},
		{Name: "plans.loads", Title: "Plans loads", Print: whole, Zero: true,
			Label: "Adapters loaded / unloaded by plans", Help: "adapters loaded by plans"},
		{Name: "plans.unloads", Title: "Plans unloads", Print: in(" / ", whole, ""), Zero: true,
			Label: "Adapters loaded / unloaded by plans", Help: "adapters unloaded by plans"},
		{Name: "plans.placement_changes", Title: "Plans placement changes", Print: whole, Zero: true,
			Label: "Placement changes / reverted", Help: "changes of the placement by plans"},
		{Name: "plans.placement_changes_undone", Title: "Plans placement changes undone",
			Print: in(" / ", whole, ""), Zero: true, Label: "Placement changes / reverted",
			Help: "changes that a later change reverted"},
		{Name: "plans.recomputed_tokens", Title: "KV tokens recomputed", Unit: "tokens", Print: whole,
			Help: "KV tokens that moved requests left on their old workers and that must be computed again"},
		{Name: "plans.copied_bytes", Title: "Plans copied (bytes)", Unit: "bytes", Label: "KV cache copied (MB)",
			Print: func(v float64) string { return fixed(1)(v / 1e6) }, Help: "bytes of KV cache sent between workers"},
	}},
	{"Elastic Workers", []Metric{
		{Name: "elastic.gpu_hours", Title: "GPU-hours", Unit: "h", Better: stats.Lower, Print: fixed(3), Zero: true,
			Help: "GPU time of the workers, from the start of each to the end of its last request"},
		{Name: workerHoursName, Title: "Worker-hours", Unit: "h", Better: stats.Lower, Print: fixed(3), Zero: true,
			Help: "the same in workers, which may have several GPUs"},
		{Name: "elastic.mean_workers", Title: "Workers, mean", Better: stats.Lower, Print: fixed(2), Zero: true,
			Help: "mean number of workers that cost GPU time"},
		{Name: "elastic.min_workers", Title: "Workers, min", Print: whole, Zero: true, Label: "Workers, min / max",
			Help: "smallest number of them"},
		{Name: "elastic.max_workers", Title: "Workers, max", Print: in(" / ", whole, ""), Zero: true,
			Label: "Workers, min / max", Help: "largest number of them"},
		{Name: "elastic.scale_ups", Title: "Elastic scale ups", Print: whole, Zero: true,
			Label: "Scale-ups (cancelled)", Help: "workers started"},
		{Name: "elastic.called_off", Title: "Elastic called off", Print: in(" (", whole, ")"), Zero: true,
			Label: "Scale-ups (cancelled)", Help: "starts that were cancelled"},
		{Name: "elastic.scale_downs", Title: "Elastic scale downs", Print: whole, Zero: true,
			Label: "Scale-downs (cancelled)", Help: "workers set to drain"},
		{Name: "elastic.taken_back", Title: "Elastic taken back", Print: in(" (", whole, ")"), Zero: true,
			Label: "Scale-downs (cancelled)", Help: "draining workers that were put back into service"},
	}},
	{"Versions of Adapters", []Metric{
		{Name: "pushes.published", Title: "New versions", Print: whole, Zero: true,
			Help: "new versions of adapters that were published (`push_interval`)"},
		{Name: "pushes.loads", Title: "Loads of new versions", Print: whole, Zero: true,
			Help: "new versions that workers loaded before a request asked for them"},
		{Name: "pushes.failed_loads", Title: "Failed loads of new versions", Better: stats.Lower, Print: whole,
			Help: "loads of new versions that failed; they are repeated"},
		{Name: "pushes.mean_time_s", Title: "Time until all holders have a version (s)", Unit: "s",
			Better: stats.Lower, Print: fixed(2), Zero: true,
			Help: "mean time from the publication of a version until all workers that hold the adapter have it"},
		{Name: "pushes.cut_over", Title: "Requests cut over", Print: whole,
			Help: "running requests that continued with another version than they began with"},
		{Name: "pushes.requests", Title: "Requests with a version", AllRequests: true, Print: whole, Zero: true,
			Help: "admitted requests for adapters with new versions"},
		{Name: "pushes.mean_staleness", Title: "Mean staleness (versions)", Unit: "versions", Better: stats.Lower,
			Compare: true, Print: fixed(2), Zero: true,
			Help: "mean number of newer versions that were published when a request came"},
		{Name: "pushes.p99_staleness", Title: "P99 staleness (versions)", Unit: "versions", Better: stats.Lower,
			Print: whole, Zero: true, Label: "P99 / max staleness (versions)", Help: "99th percentile of it"},
		{Name: "pushes.max_staleness", Title: "Max staleness (versions)", Unit: "versions", Better: stats.Lower,
			Print: in(" / ", whole, ""), Zero: true, Label: "P99 / max staleness (versions)",
			Help: "its largest value"},
		{Name: "pushes.mean_age_s", Title: "Mean age of versions (s)", Unit: "s", Better: stats.Lower, Compare: true,
			Print: fixed(2), Zero: true,
			Help: "mean time from the publication of a version to the admission of a request that it served"},
		{Name: "pushes.p99_age_s", Title: "P99 age of versions (s)", Unit: "s", Better: stats.Lower, Print: fixed(2),
			Zero: true, Help: "99th percentile of it"},
		{Name: "pushes.waited", Title: "Requests that waited for a version", Better: stats.Lower, Print: whole,
			Help: "requests that waited because their worker's version was too old, or was being replaced"},
		{Name: "pushes.wait_s", Title: "Total wait for versions (s)", Unit: "s", Better: stats.Lower, Print: seconds,
			Help: "sum of their waits"},
		{Name: "pushes.lost.throughput", Title: "Output throughput lost to pushes", Unit: "share",
			Better: stats.Lower, Print: percent, Zero: true,
			Help: "lost share of the output throughput of the same run without new versions (`lorasim sim`)"},
		{Name: "pushes.lost.mean_e2e", Title: "Mean E2E latency added by pushes", Unit: "share", Better: stats.Lower,
			Print: percent, Zero: true,
			Help: "mean E2E latency added, as a share of the same run without new versions"},
		{Name: "pushes.lost.mean_ttft", Title: "Mean TTFT added by pushes", Unit: "share", Better: stats.Lower,
			Print: percent, Zero: true, Help: "mean TTFT added, as a share of the same run without new versions"},
	}},
	{"Lower Bound with Perfect Knowledge", []Metric{
		{Name: "oracle.mean_e2e_latency_ms", Title: "Mean E2E latency, lower bound (ms)", Unit: "ms",
			Better:      stats.Lower,
			NeedsSteady: true, Print: fixed(2), Zero: true,
			Help: "lower bound of the mean E2E latency (`--oracle`)"},
		{Name: "oracle.mean_e2e_regret", Title: "Mean E2E latency above the bound", Unit: "share", NeedsSteady: true,
			Print: percent, Zero: true,
			Help: "excess of the mean E2E latency over its bound, as a share of the bound"},
		{Name: "oracle.duration", Title: "Benchmark duration, lower bound (s)", Unit: "s", Print: fixed(2), Zero: true,
			Help: "lower bound of the duration"},
		{Name: "oracle.duration_regret", Title: "Benchmark duration above the bound", Unit: "share", Print: percent,
			Zero: true,
			Help: "excess of the duration over its bound, as a share of the bound"},
	}},
	{"Prediction Intervals", []Metric{
		{Name: "intervals.waiting_share", Title: "Share of request time spent waiting", Unit: "share", Print: percent,
			Zero: true,
			Help: "share of the requests' time spent waiting, which selects the comparable validation runs"},
	}},
}

const (
	migrationsName  = "migrations"
	workerHoursName = "elastic.worker_hours"
)

// reference marks a metric of the reference benchmark.
func reference(id ID, m Metric) Metric {
	m.id = id + 1
	return m
}

// goodput completes a metric of goodput.
func goodput(name string, m Metric) Metric {
	m.Name, m.NeedsSteady, m.Zero = "goodput."+name, true, true
	return m
}

// latencyMetrics returns the metrics of the latency families.
func latencyMetrics() (ms []Metric) {
	compared := "mean_e2e_latency_ms median_e2e_latency_ms p99_e2e_latency_ms " +
		"mean_ttft_ms median_ttft_ms p99_ttft_ms mean_tpot_ms median_tpot_ms p99_tpot_ms mean_itl_ms p99_itl_ms"
	swept := []string{"mean_e2e_latency_ms", "p99_e2e_latency_ms", "mean_ttft_ms", "p99_ttft_ms"}
	mapped := []string{"mean_e2e_latency_ms", "mean_ttft_ms", "p99_ttft_ms"}
	add := func(id ID, name, title, help string) {
		ms = append(ms, reference(id, Metric{Name: name, Title: title, Unit: "ms", Better: stats.Lower,
			NeedsSteady: true, Help: help, Compare: slices.Contains(strings.Fields(compared), name),
			Sweep: slices.Index(swept, name) + 1, Map: slices.Contains(mapped, name)}))
	}
	for _, f := range families {
		for s := Mean; s < numStats; s++ {
			add(f.first+ID(s), strings.ToLower(statNames[s])+"_"+f.key+"_ms", statNames[s]+" "+f.label+" (ms)",
				statHelp[s]+" of "+f.help)
		}
	}
	add(MaxITL, "max_itl_ms", "Max ITL (ms)", "largest time between two tokens of a request")
	return ms
}

// scheduled returns the metrics of a latency that starts at the scheduled arrival. The
// extra section has rows for some.
func scheduled(of ID, name string) (ms []Metric) {
	f := families[(of-MeanE2E)/ID(numStats)]
	for s, stat := range append(statNames[:], "Max") {
		m := Metric{Name: name + "." + strings.ToLower(stat) + "_ms", Unit: "ms", Better: stats.Lower,
			NeedsSteady: true}
		m.Title = titleOf(m.Name)
		if m.Name == "scheduled_ttft.mean_ms" {
			m.Title = "Scheduled TTFT mean (ms)"
		}
		m.Help = "the same, from the scheduled arrival instead of the time of sending"
		if s == int(Mean) {
			m.Help = statHelp[Mean] + " of " + f.help + ", from the scheduled arrival instead of the time of sending"
		}
		if slices.Contains([]Stat{Mean, Median, P99}, Stat(s)) {
			m.Print, m.Zero, m.Label = fixed(2), true, stat+" "+f.label+" (ms)"
		}
		ms = append(ms, m)
	}
	return ms
}

func optional(head string, width int, format func(float64) string) *Column {
	return &Column{Head: head, Width: width, Format: format, Optional: true}
}

// fixed formats a value with a number of decimals.
func fixed(decimals int) func(float64) string {
	return func(v float64) string { return strconv.FormatFloat(v, 'f', decimals, 64) }
}

// whole formats a count.
func whole(v float64) string { return strconv.FormatFloat(v, 'f', 0, 64) }

// seconds formats a time. One below a second, such as a solver's, gets more decimals.
func seconds(v float64) string {
	if v < 1 {
		return fixed(6)(v)
	}
	return fixed(2)(v)
}

// in formats a value after another one in the same row.
func in(before string, format func(float64) string, after string) func(float64) string {
	return func(v float64) string { return fmt.Sprint(before, format(v), after) }
}
