// Package scenario reads the configuration of a run from a YAML file, flags, or both. From it, the package builds the
// request source, the workers and the router, and runs them in the simulator.
//
// # From a key to a run
//
// Every setting is a field of [Scenario]. The tags of the field are the one table of its key, flag, default, allowed
// values, unit and help: flags, YAML, JSON Schema, completion, sweeps and the reference page are made from them.
//
//  1. [Fields] reads the tags once, when the program starts, and [Default] sets the defaults.
//
//  2. [ParseNode] walks through a YAML file and finds the [Field] of each key; a flag names its Field.
//
//  3. [Field.Text] turns a YAML value into the text that the flag takes.
//
//  4. [Field.Set] parses the text and checks the result. A wrong text is an error there; the scenario stays as it was.
//
//  5. The field then holds the typed value: a number, a word, a settings.Optional (a number that may be left out), or a
//     settings.Parsed (a text with a syntax of its own, see syntax.go, and what it means).
//
//  6. Nothing parses the text again.
//     [Scenario.OpenWorkload] builds the requests, [Scenario.Profiles] the workers and [Scenario.Router] the policy,
//     after a check that settings do not contradict each other.
//
//  7. [Scenario.Simulate] runs them. [Scenario.Meta] writes every setting into the result, by [Field.Get].
//
//     sc := scenario.Default()
//     err := sc.Set("policy", "affinity-spill")
//     res, err := sc.Simulate(ctx, scenario.RunOptions{})
package scenario

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"lorasim/internal/suggest"
	"lorasim/internal/textfile"
	"lorasim/internal/yamlerr"
	"lorasim/internal/yamlfile"
	"lorasim/sim/profile"
	"lorasim/trace"
	"lorasim/trace/requestlog"
	"lorasim/trace/settings"
)

// A Scenario describes a run completely. The same scenario and the same files give the same result.
type Scenario struct {
	// Files are the files that the settings may name. This is not a setting. The zero value has text formats only;
	// package lorasim/trace/columnar adds Parquet and Arrow.
	Files trace.Files `yaml:"-"`
	// LogRead, if not nil, is called with the report of a log that is read as the workload. This is not a setting.
	LogRead func(path string, report *requestlog.Report) `yaml:"-"`
	// Described states that the workload is described, not run: a log need not name adapters. This is not a setting.
	Described bool `yaml:"-"`
	// Written says where the file sets a setting, by its key: "s.yaml:7: workload.drift". This is not a setting.
	Written map[string]string `yaml:"-"`

	Name     string   `yaml:"name,omitempty" check:"any" flag:"-"`
	Seed     uint64   `yaml:"seed" default:"1" check:">=0" unit:"-" help:"Seed of all random numbers"`
	Workload Workload `yaml:"workload"`
	Cluster  Cluster  `yaml:"cluster"`
	Routing  Routing  `yaml:"routing"`
	Client   Client   `yaml:"client"`
}

// Workload describes the requests. Exactly one source applies: a saved workload (File), a trace (UseTrace or any trace
// key that names one), a histogram, or the built-in generator.
type Workload struct {
	File string `yaml:"file" check:"any" path:"yes" flag:"workload" help:"Saved workload to run (.csv, .jsonl, .parquet, .arrow)" group:"Workload"`

	PrefixBlock int `yaml:"prefix_block" default:"512" check:">=1 <=1e6" unit:"tokens" help:"Tokens per id of hash_ids in a saved workload"`

	Resample resampleText `yaml:"resample" help:"Bootstrap of a saved workload or LLM trace, a new draw per seed: block:SECONDS, sessions, sessions:PAUSE or adapters" more:"Draws are with replacement: blocks of time, whole sessions (a pause of PAUSE seconds ends a session), or the adapters' streams of requests. Empty: the workload as it is. See docs/scenarios.md"`

	NumPrompts  settings.Optional[int64] `yaml:"num_prompts,omitempty" check:">=1 <=1e12" unit:"requests" help:"Number of requests (default: the whole file or trace, or 2000 generated ones)" more:"With window and a generator: the requests that arrive within the window"`
	Window      float64                  `yaml:"window" check:">=0 <=1e7" unit:"s" help:"Length of the run, s; requests that are unfinished then are cut off (0: until all have ended)" more:"All figures but the inter-token latency count completed requests only; the inter-token latency counts every token"`
	NumAdapters settings.Optional[int]   `yaml:"num_adapters,omitempty" check:">=0 <=1e6" unit:"adapters" help:"Number of LoRA adapters; 0: a file of the base model alone (default: those of a saved workload, else 32)" group:"Adapters"`
	LoraNames   namesText                `yaml:"lora_names" help:"Adapter names, comma-separated; sets the number of adapters" more:"Default: the names in a saved workload, else lora0, lora1, ..."`
	LoraRanks   ranksText                `yaml:"lora_ranks" help:"Adapter ranks, used in turn (8,16,32,64), or drawn at random: drawn:RANK=WEIGHT,..." more:"Default: the ranks in a saved workload, else those of 8, 16, 32 and 64 that every worker can load"`
	Priorities  prioritiesText           `yaml:"priorities" help:"Adapter priorities, used in turn (1,0,0,0), for schedule_policy priority" more:"Default: the priorities in a saved workload, else 0. Requests without an adapter have priority 0"`
	Popularity  popularityText           `yaml:"popularity" default:"zipf" help:"Share of requests per adapter: zipf[:S], uniform, powerlaw:ALPHA, maf2, explicit:W,W,..."`
	RequestRate float64                  `yaml:"request_rate" default:"10" check:">=1e-9 <=1e9 inf" unit:"req/s" help:"Rate of generated requests, requests/s; inf sends all at once" more:"A trace has its own rate" group:"Arrivals"`
	Arrivals    arrivalsText             `yaml:"arrivals" default:"exponential" help:"Burstiness, by the gaps: exponential, gamma:CV, weibull:CV, pareto:CV, deterministic or vllm:SHAPE" more:"Of generated requests, and of function traces whose rates are replayed. CV is the coefficient of variation, standard deviation / mean; CV,CV,... are those of the adapters in turn. Each adapter has an arrival process of its own. With the prefix total-, as in total-gamma:2, one process serves all adapters. vllm:SHAPE are the arrivals of vLLM's client with --burstiness SHAPE, of generated requests and of LLM traces without their times"`
	Pattern     patternText              `yaml:"pattern" help:"Rate over time: constant, on-off:ON,OFF,FACTOR, diurnal:PERIOD,AMPLITUDE, flash:AT,DURATION,FACTOR" more:"Patterns joined by + are multiplied. flash takes an adapter as a fourth value, to raise the rate of that adapter alone"`

	RampUpStrategy  string  `yaml:"ramp_up_strategy" check:"oneof linear exponential" help:"Rate that grows during the run, as in vLLM's client: linear or exponential" more:"Empty: a constant rate"`
	RampUpStartRPS  float64 `yaml:"ramp_up_start_rps" check:">=1e-9 <=1e9 0" unit:"req/s" help:"Rate at the start of the ramp, requests/s"`
	RampUpEndRPS    float64 `yaml:"ramp_up_end_rps" check:">=1e-9 <=1e9 0" unit:"req/s" help:"Rate at the end of the ramp, requests/s"`
	LoraRequestDist string  `yaml:"lora_request_distribution" check:"oneof uniform distinct skewed random round-robin" help:"Adapter choice as in sglang's client (uniform, distinct, skewed) or vLLM's (random, round-robin)" more:"distinct and round-robin take the adapters in turn; skewed gives adapter i a share proportional to ALPHA^-i; uniform and random give all the same share. Empty: use popularity" group:"Adapters"`
	LoraZipfAlpha   float64 `yaml:"lora_zipf_alpha" default:"1.5" check:">1 <=1e6" unit:"-" help:"ALPHA of lora_request_distribution skewed"`

	Drift    float64      `yaml:"drift" check:">=0 <=1e9" unit:"s" help:"Interval between popularity changes, s (0 disables)" more:"The adapters' shares rotate by one adapter"`
	Locality localityText `yaml:"locality" help:"Probability that a request repeats one of the RECENT last adapters: P or P,RECENT"`

	Sessions sessionsText `yaml:"sessions" help:"Requests in sessions of one adapter: zipf:m=M[,nbar=N,s=S] or copy:m=M[,nbar=N,p_new=P,gamma=G,j0=J]" more:"M sessions are in progress at a time. Sessions replace popularity and arrivals" group:"Sessions and conversations"`

	Conversations conversationsText `yaml:"conversations" help:"Turns that repeat the previous text: chat, documents or agents[:turns=N,think=S,system=N,new=N,...]" more:"For prefix caches; see docs/scenarios.md. request_rate counts turns"`

	Lengths          lengthsText `yaml:"lengths" default:"auto" help:"Token counts: auto, sharegpt, azure-conv, azure-code, random, constant:P,O, table:FILE, ..." more:"lognormal:... and copula:FILE,... draw lengths. auto: the trace's own, else short chats. Also sharegpt-llama3, sharegpt-qwen2, measured-rate4, measured-stride, copula:FILE,... and none" group:"Token lengths"`
	RandomInputLen   int         `yaml:"random_input_len" check:">=0 <=1e8" unit:"tokens" help:"lengths random: longest prompt, tokens (default: 1024)"`
	RandomOutputLen  int         `yaml:"random_output_len" check:">=0 <=1e8" unit:"tokens" help:"lengths random: longest output, tokens (default: 128)"`
	RandomRangeRatio float64     `yaml:"random_range_ratio" check:">=0 <=1" unit:"share of the longest" help:"lengths random: shortest length / longest length"`

	MaxNewTokens budgetText `yaml:"max_new_tokens" default:"auto" help:"Limit that clients set on outputs: auto, N, xFACTOR, exact, trace, uniform:..., mix:..." more:"Also lognormal:mean=M,sigma=S[,cap=C]. A longer output ends at the limit. exact: the length of the output. trace: the limit in a saved workload. auto: trace, or exact for benchmark clients (random or measured lengths, compat), else 1024, and no output ends earlier"`

	UseTrace             bool          `yaml:"use_trace" help:"Replay a trace instead of generating requests" group:"Traces"`
	TraceName            string        `yaml:"trace_name" check:"oneof azure_v1 azure_v2 azure_llm burstgpt mooncake qwen_bailian alibaba_genai" help:"azure_v1, azure_v2 (the default), azure_llm, burstgpt, mooncake, qwen_bailian, alibaba_genai"`
	TracePath            string        `yaml:"trace_path" check:"any" path:"yes" help:"File or folder of the trace"`
	Compat               string        `yaml:"compat" check:"oneof dlora slora vllm-lora" help:"Published generator to repeat exactly: dlora, slora or vllm-lora" more:"dlora replays function traces; slora and vllm-lora generate requests, vllm-lora by one Poisson process per adapter"`
	TraceReplay          string        `yaml:"trace_replay" default:"rates" check:"oneof rates vanilla" help:"Function traces: rates (draw arrivals at its rates) or vanilla (keep times)"`
	TraceStartTime       instantText   `yaml:"trace_start_time" default:"0.0.0" help:"Start of the window, day.hour.minute"`
	TraceEndTime         instantText   `yaml:"trace_end_time" default:"0.0.60" help:"End of the window, day.hour.minute"`
	TraceIntervalMinutes int           `yaml:"trace_interval_minutes" default:"60" check:">=1 <=1e6" unit:"min" help:"Length of an interval of constant rate, minutes"`
	TraceTotalRate       float64       `yaml:"trace_total_rate" default:"4" check:">=0 <=1e9" unit:"req/s" help:"Rate of all adapters together, requests/s (0: the trace's own)"`
	TraceMap             string        `yaml:"trace_map" default:"stride" check:"oneof stride round-robin stripe" help:"Mapping of functions to adapters: stride, round-robin or stripe"`
	TraceMapStride       int           `yaml:"trace_map_stride" default:"1" check:">=1 <=1e9" unit:"functions" help:"trace_map stride: functions per block"`
	TraceNeedSort        bool          `yaml:"trace_need_sort" help:"Map the busiest functions first"`
	TraceHistogram       histogramText `yaml:"trace_histogram" help:"Requests per adapter in place of a trace: 111,159,58 (intervals: ;) or a .json file"`
	UseTraceTimestamps   bool          `yaml:"use_trace_timestamps" default:"true" help:"LLM traces: keep the trace's times; false: use request_rate, arrivals vllm or ramp_up_*" more:"false is how sglang's benchmark client replays a trace"`
	TraceSort            bool          `yaml:"trace_sort" help:"LLM traces: sort the rows by time (reads the whole trace into memory)"`
	RateScale            float64       `yaml:"rate_scale" default:"1" check:">=1e-9 <=1e9" unit:"×" help:"Factor on the rate of a trace or saved workload; recorded requests come in 1/factor of the time" more:"Function traces whose rates are replayed have more requests in the same time"`
	CVScale              float64       `yaml:"cv_scale" default:"1" check:">=1e-9 <=1e3" unit:"×" help:"Factor on the coefficient of variation of recorded gaps; the mean rate stays" more:"For saved workloads and traces that keep their times; arrivals sets the gaps of other requests"`
	TraceSpeed           float64       `yaml:"trace_speed" default:"1" check:">=1e-9 <=1e9" unit:"×" help:"Function traces: 24 replays a day in an hour, with the trace's number of requests" more:"With trace_total_rate, the rate stays and the intervals of the trace become shorter. rate_scale is the factor for traces that keep their times"`
	SkipBadRows          bool          `yaml:"skip_bad_rows" help:"Count malformed rows instead of stopping at the first"`
}

// Cluster describes the workers. A zero or empty value selects the profile's value.
type Cluster struct {
	NumWorkers settings.Optional[int] `yaml:"num_workers,omitempty" check:">=1 <=100000" unit:"workers" help:"Number of workers (default: the number of profiles given, else 4)" group:"Workers"`
	Profile    profilesText           `yaml:"profile" default:"llama-2-7b-rtx-4090-sglang-0.5" help:"Name, file or analytic:MODEL,GPU" more:"lorasim profile list prints the names. A*2,B*6: two workers of one profile and six of another. A list without counts is used by the workers in turn"`

	AdapterHome string `yaml:"adapter_home" default:"disk" check:"oneof disk remote" help:"Storage of adapters that a worker does not hold at the start: disk or remote" group:"Adapters on workers"`

	LoadFailureRate float64     `yaml:"load_failure_rate" check:">=0 <1" unit:"probability" help:"Probability that an adapter load fails; it is retried"`
	Outages         outagesText `yaml:"outages" help:"Worker failures: WORKER@FROM-TO, s, joined by +" group:"Outages and scaling"`
	Elastic         elasticText `yaml:"elastic" help:"Autoscaling: min=N,max=N,rule=reactive|forecast|known|schedule,... (docs/elastic.md)" more:"rule=reactive,target=REQUESTS is Kubernetes' rule; rule=schedule,times=SECONDS=WORKERS+... follows a schedule. The cluster starts with num_workers, else min. Empty: a fixed number of workers"`
	NoFailover      bool        `yaml:"no_failover" help:"Requests on a failed worker are lost, not sent to another worker"`

	PushInterval float64                `yaml:"push_interval" check:">=0 <=1e7" unit:"s" help:"Interval between new versions of each adapter, s (0 disables)" more:"As in reinforcement learning and continuous fine-tuning; see docs/versions.md" group:"Versions of adapters"`
	Push         pushText               `yaml:"push" help:"How new versions come to workers: loads=holders|demand,requests=keep|cut-over,workers=N,..." more:"Default: the workers that hold the adapter load a new version one after the other, and requests keep the version that they began with"`
	MaxStaleness settings.Optional[int] `yaml:"max_staleness,omitempty" check:">=0 <=1e6" unit:"versions" help:"Most versions that a request may be behind the newest; else it waits (default: no limit)"`

	Engine Engine `yaml:"engine"`
}

// Engine describes the engine of the workers. A zero or empty value selects the profile's value. The tag of says which
// engine alone has a key; vllm and sglang are the engines' own names of a key.
type Engine struct {
	Version             servingText `yaml:"version" flag:"engine" help:"Engine with its defaults for the GPU, as started without flags: vllm-0.33, vllm-0.32, vllm-0.23, vllm-0.11, sglang-0.5.23" more:"vllm-0.33:llm is vLLM's class LLM in place of vllm serve. Sets scheduler, version and limits; keys that are given win. Needs a profile whose GPU is known. Empty: as the profile says" group:"Engine"`
	Scheduler           string      `yaml:"scheduler" flag:"scheduler" check:"oneof sglang vllm slora" help:"Engine whose scheduler is simulated: sglang, vllm or slora" group:"Engine"`
	MaxNumBatchedTokens int         `yaml:"max_num_batched_tokens" of:"vllm" check:">=0 <=1e9" unit:"tokens" help:"vllm: token budget of a step"`
	MaxRunningRequests  int         `yaml:"max_running_requests" vllm:"max_num_seqs" check:">=0 <=1e6" unit:"requests" help:"Limit of running requests per worker"`
	MaxLorasPerBatch    int         `yaml:"max_loras_per_batch" vllm:"max_loras" check:">=0 <=1e6" unit:"adapters" help:"GPU adapter slots per worker" group:"Adapters on workers"`
	MaxLoadedLoras      int         `yaml:"max_loaded_loras" vllm:"max_cpu_loras" check:">=0 <=1e6" unit:"adapters" help:"Limit of adapters in a worker's host memory"`
	MaxLoraRank         int         `yaml:"max_lora_rank" check:">=0 <=1e6" unit:"rank" help:"Rank for which adapter slots are allocated"`
	ChunkedPrefillSize  int         `yaml:"chunked_prefill_size" check:">=-1 <=1e9" unit:"tokens" help:"Limit of prompt tokens per prefill step (-1: prompts are not split)" group:"Engine"`
	MaxPrefillTokens    int         `yaml:"max_prefill_tokens" check:">=0 <=1e9" unit:"tokens" help:"Limit of prompt tokens per prefill batch"`
	ContextLength       int         `yaml:"context_length" vllm:"max_model_len" check:">=0 <=1e9" unit:"tokens" help:"Limit of prompt + output, tokens"`
	KVTokens            int64       `yaml:"kv_tokens" sglang:"max_total_tokens" check:">=0 <=1e12" unit:"tokens" help:"Size of a worker's KV cache, tokens"`
	GPUMemory           float64     `yaml:"gpu_memory_utilization" of:"vllm" check:">=0 <=1" unit:"share" help:"vllm, computed profiles: share of the GPU memory; sets the size of the KV cache"`
	PageSize            int         `yaml:"page_size" vllm:"block_size" check:">=0 <=1e6" unit:"tokens" help:"Tokens per page (block) of the KV cache"`
	HeadOfLine          string      `yaml:"head_of_line" check:"oneof skip block" help:"Waiting request without a free adapter slot: skip it, or block the requests behind it" more:"Old versions of sglang block" group:"Adapters on workers"`
	LoraDrainWait       float64     `yaml:"lora_drain_wait_threshold" check:">=0 <=1e7" unit:"s" help:"Waiting time after which a request may evict a running adapter, s (0 disables)"`
	SchedulePolicy      string      `yaml:"schedule_policy" vllm:"scheduling_policy" check:"oneof fcfs priority vtc lifo" help:"Order of the queue: fcfs, priority, vtc (least-served adapter first) or lifo" more:"lifo: scheduler slora. priority is that of the adapter: sglang takes large values first, vllm small ones. vtc: docs/admission.md" group:"Queue"`
	EnableAbort         bool        `yaml:"enable_abort" of:"slora" help:"slora: early abort of requests that would miss a TTFT of 6 s" more:"Serves the latest requests first while the queue grows, else the earliest. An aborted request counts as rejected"`
	LowPriorityFirst    bool        `yaml:"schedule_low_priority_values_first" of:"sglang" help:"sglang, schedule_policy priority: small values first"`
	PreemptionThreshold int         `yaml:"priority_scheduling_preemption_threshold" of:"sglang" check:">=-1 <=1e9" unit:"-" help:"sglang, schedule_policy priority: difference that preempts" more:"A running request is preempted if its priority is worse by more than this. 0: the profile's value, else 10. -1: a difference of 0"`
	NoPriorityPreempt   bool        `yaml:"disable_priority_preemption" of:"sglang" help:"sglang, schedule_policy priority: never preempt running requests"`
	MaxQueuedRequests   int         `yaml:"max_queued_requests" of:"sglang" check:">=0 <=1e9" unit:"requests" help:"sglang: limit of waiting requests per worker; more are rejected (0: no limit)"`
	MaxNumQueuedReqs    int         `yaml:"max_num_queued_reqs" of:"vllm" check:">=0 <=1e9" unit:"requests" help:"vllm: limit of waiting and running requests per worker (0: no limit)" more:"A worker rejects requests beyond the limit"`
	MaxNumQueuedTokens  int64       `yaml:"max_num_queued_tokens" of:"vllm" check:">=0 <=1e12" unit:"tokens" help:"vllm: limit of prompt tokens without first token per worker (0: no limit)" more:"A worker rejects requests beyond the limit"`
	EnableMixedChunk    bool        `yaml:"enable_mixed_chunk" of:"sglang" help:"sglang: run decode steps of running requests together with prefill steps" group:"Engine"`
	AsyncScheduling     bool        `yaml:"async_scheduling" of:"vllm" help:"vllm: form a step while the one before it runs, as vLLM 0.14 and later do by default"`
	NoAsyncScheduling   bool        `yaml:"no_async_scheduling" of:"vllm" help:"vllm: form a step when the one before it has ended"`
	SpecializeActive    bool        `yaml:"specialize_active_lora" of:"vllm" help:"vllm: LoRA kernels run over the adapters of a step, not over all slots" more:"Needs vLLM 0.16 or later. Matters for profiles with a cost per slot (backend punica)"`
	OverlapSchedule     bool        `yaml:"overlap_schedule" of:"sglang" help:"sglang: form a step while the one before it runs, as sglang does by default" more:"On with engine sglang-VERSION; the profiles in lorasim were measured without it"`
	NoOverlapSchedule   bool        `yaml:"disable_overlap_schedule" of:"sglang" help:"sglang: form a step when the one before it has ended"`
	IgnoreEOS           bool        `yaml:"ignore_eos" of:"sglang" help:"sglang: requests run to max_new_tokens, and the scheduler knows"`
	DisableRadixCache   bool        `yaml:"disable_radix_cache" help:"With ignore_eos: reserve memory as sglang does without its radix cache"`
	PrefixCache         bool        `yaml:"prefix_cache" vllm:"enable_prefix_caching" help:"Workers cache prompt prefixes, per adapter" group:"Prefix cache"`
	PrefixEviction      string      `yaml:"prefix_eviction" check:"oneof pages nodes" help:"Eviction unit of the prefix cache: pages, or nodes as in sglang"`
	AdapterLoading      string      `yaml:"adapter_loading" check:"oneof blocking overlapped" help:"Adapter loads: blocking (no step runs meanwhile) or overlapped (the adapter's requests wait)" group:"Adapters on workers"`
	AdapterEviction     string      `yaml:"adapter_eviction" sglang:"lora_eviction_policy" check:"oneof lru fifo" help:"Eviction of adapters from GPU slots: lru or fifo"`
	LoraBackend         string      `yaml:"lora_backend" check:"oneof none csgmv triton merged dlora mbgmv" help:"Cost of LoRA in a step: none, csgmv, triton, merged, dlora or mbgmv" more:"merged: one adapter at a time, merged into the weights. dlora: merged or not, by credits. csgmv and triton: sglang's kernels. mbgmv: S-LoRA's kernels, by the ranks of distinct adapters"`

	// Spelled is an engine whose own name set a key; "": none. This is not a setting.
	Spelled string `yaml:"-"`
}

// Routing describes the router: its policy and its options.
type Routing struct {
	Policy        policyText `yaml:"policy" default:"plan-and-route" help:"Routing policy, NAME[:OPTION=VALUE,...] (see lorasim policies)" group:"Routing"`
	ViewStaleness float64    `yaml:"view_staleness" check:">=0 <=1e7" unit:"s" help:"Maximum age of worker metrics seen by the router, s" more:"Metrics are health, KV cache use and adapters held. The router always knows its own requests and the adapters that they bring"`

	Shed      shedText      `yaml:"shed" help:"Load shedding: ttft:MS (predicted TTFT above MS on every worker), queue:N (N waiting on every worker)" more:"Both joined by +. Empty: no shedding"`
	RateLimit rateLimitText `yaml:"rate_limit" help:"Rate limit per adapter, requests/s: R or R,burst=B (token bucket of B requests)" more:"B is R, at least 1, by default. Empty: no limit"`

	KnownOutputs bool `yaml:"known_outputs" help:"Routers know every output length in advance; bounds the gain of better estimates"`

	InferenceArchitecture string  `yaml:"inference_architecture" check:"oneof sglang dlora" help:"The reference's flag: sglang (policy static) or dlora (policy by migration_type)" group:"Migration"`
	MigrationType         string  `yaml:"migration_type" check:"oneof dispatch_only dispatch_mig period_mig" help:"inference_architecture dlora: dispatch_only, dispatch_mig or period_mig"`
	MigrationInterval     float64 `yaml:"migration_interval" check:">=0.001 <=1e7 0" unit:"s" help:"Time between plans, s (0: the policy's own interval)"`
	MigrationReqThreshold float64 `yaml:"migration_req_threshold" check:">=0 <=1e9" unit:"requests" help:"dLoRA: requests above the mean that trigger a plan (0: dLoRA's own value)"`
	RequestMigration      string  `yaml:"request_migration" default:"recompute" check:"oneof none queued recompute copy precopy" help:"How a plan moves requests: none, queued, recompute, copy or precopy"`
	Solver                string  `yaml:"solver" default:"embedded" check:"oneof embedded highs" help:"Solver of plans: embedded, or highs where it is built in"`
}

// Client describes how clients send requests.
type Client struct {
	MaxConcurrency  int  `yaml:"max_concurrency" check:">=0 <=1e9" unit:"requests" help:"Limit of requests in flight (closed loop; 0: no limit)" group:"Client"`
	MaxInFlightFail int  `yaml:"max_in_flight_fail" check:">=0 <=1e9" unit:"requests" help:"Requests in flight beyond which a request fails at once, as when a client has no port (0: no limit)"`
	NoStream        bool `yaml:"no_stream" help:"Clients receive all tokens at the end (TTFT = E2E)"`
	NoWarmup        bool `yaml:"no_warmup" help:"Send no warm-up request before the run"`

	Warmup warmupText `yaml:"warmup" default:"0" help:"Warm-up that all figures leave out, s; auto: until the steady state" more:"0: none"`
}

// Load reads a scenario file on top of the defaults. Relative paths in the file are resolved against its folder.
func Load(ctx context.Context, file string) (Scenario, error) {
	data, err := textfile.ReadFile(ctx, file, textfile.MaxSettings)
	if err != nil {
		return Scenario{}, err
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return Scenario{}, fault(fmt.Errorf("%s: is empty, expected keys such as workload, cluster and routing", file))
	}
	sc, err := Parse(data, file)
	if err == nil {
		err = sc.MapPaths(In(filepath.Dir(file)))
	}
	return sc, fault(err)
}

// Parse reads a scenario from YAML on top of the defaults. Errors state the name file, the line and the key. For an
// unknown key, the error suggests the nearest known one. From a sweep file, Parse reads the scenario that the sweep
// varies.
func Parse(data []byte, file string) (Scenario, error) {
	root, err := yamlfile.Parse(data, file)
	if err != nil || root == nil {
		return Default(), err
	}
	pairs, _ := yamlerr.Pairs(root)
	if i := slices.IndexFunc(pairs, func(p *ast.MappingValueNode) bool {
		return p.Key.String() == "scenario"
	}); i >= 0 {
		root = pairs[i].Value
	}
	return ParseNode(root, file)
}

// mostErrors is the largest number of errors that Parse returns one by one. It counts further errors.
const mostErrors = 8

// ParseNode reads a scenario that is part of a YAML file, as Parse does.
func ParseNode(node ast.Node, file string) (Scenario, error) {
	r := nodeReader{scenario: Default(), file: file}
	r.scenario.Written = map[string]string{}
	r.note(r.section(node, ""))
	for i, err := range r.errs {
		if r.errs[i] = fmt.Errorf("%s:%w", file, err); i == mostErrors {
			r.errs[i] = fmt.Errorf("%s: %d more errors", file, len(r.errs)-i)
			r.errs = r.errs[:i+1]
			break
		}
	}
	return r.scenario, errors.Join(r.errs...)
}

// YAML returns the whole scenario as a file that [Parse] accepts. It leaves out numbers that are not given.
func (s *Scenario) YAML() ([]byte, error) {
	return yaml.MarshalWithOptions(s, yaml.Indent(2))
}

// nodeReader sets settings from the nodes of a file. Its errors begin with the line.
type nodeReader struct {
	file     string
	scenario Scenario
	anchors  settings.Anchors
	errs     []error // of keys; the reader goes on after each
}

func (r *nodeReader) note(err error) {
	if err != nil {
		r.errs = append(r.errs, err)
	}
}

// section reads the keys of a section, "" or with a dot at its end.
func (r *nodeReader) section(node ast.Node, prefix string) error {
	node, err := r.anchors.Resolve(node)
	if err != nil || node.Type() == ast.NullType {
		return err
	}
	pairs, ok := yamlerr.Pairs(node)
	if !ok {
		where := ""
		if prefix != "" {
			where = strings.TrimSuffix(prefix, ".") + ": "
		}
		return fmt.Errorf("%d: %sexpected keys and values", node.GetToken().Position.Line, where)
	}
	for _, p := range pairs { // the parser refuses keys that are given twice
		key, line := prefix+p.Key.String(), p.Key.GetToken().Position.Line
		isSection := func(f Field) bool { return f.Section == key }
		if !strings.Contains(p.Key.String(), ".") && slices.ContainsFunc(fields, isSection) {
			r.note(r.section(p.Value, key+"."))
			continue
		}
		f, err := findKey(key, prefix)
		set := func(text string) error { return f.Set(&r.scenario, text) }
		if prefix == EngineSection+"." {
			name := strings.TrimPrefix(key, prefix)
			if f, _, err = findEngineKey(name); err == nil {
				set = func(text string) error {
					if err := r.scenario.setEngine(name, text); err != nil {
						return fmt.Errorf("%s%w", prefix, err)
					}
					return nil
				}
			}
		}
		if err != nil {
			r.note(fmt.Errorf("%d: %w", line, err))
			continue
		}
		text, given, err := f.Text(p.Value, &r.anchors)
		if err != nil {
			r.note(settings.At(line, key, err))
			continue
		}
		if given {
			if err := set(text); err != nil {
				r.note(fmt.Errorf("%d: %w", line, err))
			}
			r.scenario.Written[f.Key] = fmt.Sprintf("%s:%d: %s", r.file, line, key)
		}
	}
	return nil
}

// findKey returns the setting of a key of the section with the prefix.
func findKey(key, prefix string) (Field, error) {
	var known []string
	for _, f := range fields {
		if f.Key == key {
			return f, nil
		}
		if rest, ok := strings.CutPrefix(f.Key, prefix); ok {
			name, _, _ := strings.Cut(rest, ".")
			known = append(known, name)
		}
	}
	name := strings.TrimPrefix(key, prefix)
	if now := Renamed(name); now != "" {
		return Field{}, fmt.Errorf("unknown key %q: %s", key, now)
	}
	if f, err := Find(name); err == nil {
		return f, fmt.Errorf("unknown key %q, did you mean %q?", key, f.Key)
	}
	return Field{}, suggest.Unknown("key", name, slices.Compact(known))
}

// mapProfilePaths replaces the names of files in a list of profiles.
func mapProfilePaths(list string, to func(string) string) string {
	entries, err := parseProfiles(list)
	if err != nil {
		return list // the error is told where the setting is read
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		if isProfileFile(e.name, to) {
			e.name = to(e.name)
		}
		names[i] = e.String()
	}
	return strings.Join(names, ",")
}

// isProfileFile reports whether a profile is a file. Built-in names are not, nor are unknown names, which stay as they
// are for the error message.
func isProfileFile(name string, f func(string) string) bool {
	if name == "" || profile.IsEmbedded(name) || strings.HasPrefix(name, profile.AnalyticPrefix) {
		return false
	}
	if strings.ContainsAny(name, `./\`) {
		return true
	}
	_, err := os.Stat(f(name))
	return err == nil
}

// MapPaths replaces the name of every file that the scenario reads by f(name).
func (s *Scenario) MapPaths(f func(path string) string) error {
	for _, field := range fields {
		was := field.Get(s)
		if text := field.MapPaths(was, f); text != was {
			if err := field.Set(s, text); err != nil {
				return err
			}
		}
	}
	return nil
}

// MapPaths replaces each file name within a value of the setting by path(name). It returns the value unchanged if the
// setting names no files.
func (f Field) MapPaths(value string, path func(string) string) string {
	switch {
	case value == "":
		return ""
	case f.option.Path:
		return path(value)
	case f.option.Grammar != nil:
		return f.option.Grammar.MapPaths(value, path)
	}
	return value
}

// In returns a function for MapPaths that resolves relative paths against a
// folder.
func In(folder string) func(string) string {
	return func(path string) string {
		if path == "" || filepath.IsAbs(path) {
			return path
		}
		return filepath.Join(folder, path)
	}
}

// AbsolutePaths makes all paths absolute, so that the scenario does not depend on the working directory.
func (s *Scenario) AbsolutePaths() error {
	folder, err := os.Getwd()
	if err != nil {
		return err
	}
	return s.MapPaths(In(folder))
}
