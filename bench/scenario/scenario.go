// Package scenario is the configuration of a run: a YAML file, flags, or both,
// and what they amount to, namely a request source, workers and a router.
//
// Every setting is a field of [Scenario] with its key, flag, default and help
// text in one place; the YAML reader, the flags of the commands, and parameter
// sweeps are all derived from the struct by reflection (fields.go).
//
//	sc := scenario.Default()
//	err := sc.Set("policy", "affinity-spill")
//	run, err := sc.Build(scenario.Hooks{})
package scenario

import "lorasim/router"

// Scenario describes a run completely: the same scenario gives the same result.
type Scenario struct {
	Name     string   `yaml:"name,omitempty" flag:"-"`
	Seed     uint64   `yaml:"seed" help:"seed of everything random"`
	Workload Workload `yaml:"workload"`
	Cluster  Cluster  `yaml:"cluster"`
	Routing  Routing  `yaml:"routing"`
	Client   Client   `yaml:"client"`
}

// Workload says which requests come when. One of four sources applies: a saved
// workload (File), a trace (UseTrace or any trace key that names one), a
// histogram, or the built-in generator.
type Workload struct {
	File string `yaml:"file" flag:"workload" help:"run a saved workload (.csv, .jsonl, .parquet, .arrow)"`

	NumPrompts  int64   `yaml:"num_prompts" help:"number of requests; 0: all of a file or trace, 2000 generated ones"`
	NumAdapters int     `yaml:"num_adapters" help:"number of LoRA adapters; 0: as a saved workload says, else 32"`
	LoraRanks   string  `yaml:"lora_ranks" help:"ranks of the adapters, in turn (8,16,32,64), or drawn:8=3,64=1; empty: as a saved workload says, else 8,16,32,64"`
	Popularity  string  `yaml:"popularity" help:"share of each adapter: zipf[:S], uniform, powerlaw:ALPHA, maf2, explicit:W,W,..."`
	RequestRate float64 `yaml:"request_rate" help:"generated requests/s, inf: all at once; a trace has its own rate"`
	Arrivals    string  `yaml:"arrivals" help:"gaps of the generator: exponential, gamma:CV, weibull:CV, deterministic, bursty, smooth; total-... for one process"`
	Pattern     string  `yaml:"pattern" help:"rate over time: constant, on-off:ON,OFF,FACTOR, diurnal:PERIOD,AMPLITUDE, flash:AT,DURATION,FACTOR[,ADAPTER]; joined by +"`
	Drift       float64 `yaml:"drift" help:"rotate the adapters' popularity every so many seconds; 0: never"`
	Locality    string  `yaml:"locality" help:"probability that a request repeats a recent adapter: P or P,RECENT"`

	Lengths          string  `yaml:"lengths" help:"token counts: auto (the trace's own, else short chats), sharegpt, azure-conv, azure-code, measured-rate4, measured-stride, random, constant:P,O, lognormal:..., table:FILE, none"`
	RandomInputLen   int     `yaml:"random_input_len" help:"lengths random: longest prompt; 0: 1024"`
	RandomOutputLen  int     `yaml:"random_output_len" help:"lengths random: longest output; 0: 128"`
	RandomRangeRatio float64 `yaml:"random_range_ratio" help:"lengths random: shortest as a share of the longest"`

	UseTrace                 bool      `yaml:"use_trace" help:"replay a trace instead of generating requests"`
	TraceName                string    `yaml:"trace_name" help:"azure_v1, azure_v2, azure_llm, burstgpt, mooncake; empty: azure_v2"`
	TracePath                string    `yaml:"trace_path" help:"file or folder of the trace"`
	Compat                   string    `yaml:"compat" help:"repeat a published generator exactly: dlora (function traces), slora (generated)"`
	TraceReplay              string    `yaml:"trace_replay" help:"function traces: rates (redraw arrivals at the trace's rates) or vanilla (its own times)"`
	TraceStartTime           string    `yaml:"trace_start_time" help:"start of the window, day.hour.minute"`
	TraceEndTime             string    `yaml:"trace_end_time" help:"end of the window, day.hour.minute"`
	TraceIntervalMinutes     int       `yaml:"trace_interval_minutes" help:"interval of constant rates, minutes"`
	TraceArrivalDistribution string    `yaml:"trace_arrival_distribution" help:"gaps: gamma, exponential, pareto, weibull"`
	TraceTotalRate           float64   `yaml:"trace_total_rate" help:"requests/s of all adapters together; 0: the trace's own"`
	TraceCV                  []float64 `yaml:"trace_cv,flow" help:"coefficient of variation of the gaps; a list goes to the adapters in turn"`
	TraceMap                 string    `yaml:"trace_map" help:"functions to adapters: stride, round-robin, stripe"`
	TraceMapStride           int       `yaml:"trace_map_stride" help:"functions per block of trace_map stride"`
	TraceNeedSort            bool      `yaml:"trace_need_sort" help:"busiest functions first"`
	TraceHistogram           string    `yaml:"trace_histogram" help:"invocations per adapter instead of a trace: 111,159,58,291, intervals separated by ;, or a .json file"`
	TraceSort                bool      `yaml:"trace_sort" help:"LLM traces: sort the rows by time (holds them in memory)"`
	RateScale                float64   `yaml:"rate_scale" help:"multiply the trace's rates"`
	CVScale                  float64   `yaml:"cv_scale" help:"multiply the coefficients of variation"`
	TimeScale                float64   `yaml:"time_scale" help:"multiply the trace's times"`
	SkipBadRows              bool      `yaml:"skip_bad_rows" help:"count malformed rows instead of stopping"`
}

// Cluster says what the workers are. Zero and empty values are the profile's.
type Cluster struct {
	NumWorkers int    `yaml:"num_workers" help:"number of workers"`
	Profile    string `yaml:"profile" help:"worker profile: a name (see lorasim profile list) or a file; a list goes to the workers in turn"`

	Scheduler           string  `yaml:"scheduler" help:"scheduler of the engine: sglang or vllm"`
	MaxNumBatchedTokens int     `yaml:"max_num_batched_tokens" help:"scheduler vllm: token budget of a step"`
	MaxRunningRequests  int     `yaml:"max_running_requests" help:"requests a worker runs at a time"`
	MaxLorasPerBatch    int     `yaml:"max_loras_per_batch" help:"GPU adapter slots of a worker"`
	MaxLoadedLoras      int     `yaml:"max_loaded_loras" help:"adapters in a worker's host memory"`
	MaxLoraRank         int     `yaml:"max_lora_rank" help:"rank the slots are allocated for"`
	ChunkedPrefillSize  int     `yaml:"chunked_prefill_size" help:"prompt tokens of one prefill step"`
	MaxPrefillTokens    int     `yaml:"max_prefill_tokens" help:"prompt tokens of one prefill batch"`
	ContextLength       int     `yaml:"context_length" help:"longest prompt + output"`
	KVTokens            int64   `yaml:"kv_tokens" help:"tokens of a worker's KV cache"`
	PageSize            int     `yaml:"page_size" help:"tokens of a KV page"`
	HeadOfLine          string  `yaml:"head_of_line" help:"a waiting request without adapter slot: block those behind it, or skip"`
	StarvationS         float64 `yaml:"starvation_s" help:"head_of_line skip: age at which it is given a slot"`
	AdapterLoading      string  `yaml:"adapter_loading" help:"blocking or overlapped"`
	AdapterEviction     string  `yaml:"adapter_eviction" help:"lru or fifo"`
	LoraBackend         string  `yaml:"lora_backend" help:"none, csgmv, triton, merged (one adapter at a time), dlora (merged or not, by credits)"`
	AdapterHome         string  `yaml:"adapter_home" help:"where adapters lie that a worker does not start with: disk or remote"`

	LoadFailureRate float64 `yaml:"load_failure_rate" help:"probability that an adapter load fails and is tried again"`
	Outages         string  `yaml:"outages" help:"workers that fail: WORKER@FROM-TO in s, joined by +"`
	NoFailover      bool    `yaml:"no_failover" help:"requests on a worker that fails are lost instead of sent elsewhere"`
}

// Routing says which policy sends requests where.
type Routing struct {
	Policy        string  `yaml:"policy" help:"routing policy, NAME[:OPTION=VALUE,...] (see lorasim policies)"`
	ViewStaleness float64 `yaml:"view_staleness" help:"age up to which the router's view of the workers lags, s"`

	InferenceArchitecture string  `yaml:"inference_architecture" help:"as in the reference: sglang (policy static) or dlora (policy by migration_type); empty: policy"`
	MigrationType         string  `yaml:"migration_type" help:"inference_architecture dlora: dispatch_only, dispatch_mig, period_mig"`
	MigrationInterval     float64 `yaml:"migration_interval" help:"s between plans of a policy that makes any; 0: the policy's own"`
	MigrationReqThreshold float64 `yaml:"migration_req_threshold" help:"requests above the mean that trigger dLoRA's plans; 0: its own"`
	RequestMigration      string  `yaml:"request_migration" help:"how plans move requests: none, queued, recompute, copy, precopy"`
	Solver                string  `yaml:"solver" help:"solver of plans: embedded, or highs where it is built in"`
}

// Client says how requests are sent.
type Client struct {
	MaxConcurrency int  `yaml:"max_concurrency" help:"requests in flight at most (closed loop); 0: no limit"`
	NoStream       bool `yaml:"no_stream" help:"clients see all tokens at once, at the end (TTFT = E2E)"`
	NoWarmup       bool `yaml:"no_warmup" help:"do not send a request ahead of the run"`
}

// Default is the run without arguments: a skewed, bursty load on four workers
// that hold a quarter of the adapters each in their GPU slots.
func Default() Scenario {
	return Scenario{
		Seed: 1,
		Workload: Workload{
			Popularity:               "zipf",
			RequestRate:              10,
			Arrivals:                 "exponential",
			Lengths:                  "auto",
			TraceReplay:              "rates",
			TraceStartTime:           "0.0.0",
			TraceEndTime:             "0.0.60",
			TraceIntervalMinutes:     60,
			TraceArrivalDistribution: "gamma",
			TraceTotalRate:           4,
			TraceCV:                  []float64{1},
			TraceMap:                 "stride",
			TraceMapStride:           1,
			RateScale:                1,
			CVScale:                  1,
			TimeScale:                1,
		},
		Cluster: Cluster{
			NumWorkers:  4,
			Profile:     "llama2-7b-24gb",
			AdapterHome: "disk",
		},
		Routing: Routing{Policy: "period_mig", RequestMigration: string(router.MoveRecompute), Solver: "embedded"},
	}
}
