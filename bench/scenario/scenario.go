// Package scenario is the configuration of a run: a YAML file, flags, or both,
// and what they amount to, namely a request source, workers and a router.
//
// Every setting is a field of [Scenario] with its key, flag, default and help
// text in one place; the YAML reader, the flags of the commands, and parameter
// sweeps are all derived from the struct by reflection (fields.go). The tag check
// says which values a setting takes, unit what they are counted in ("-": nothing).
// Without a default it is zero, which is empty or off.
//
//	sc := scenario.Default()
//	err := sc.Set("policy", "affinity-spill")
//	res, err := sc.Simulate(ctx, scenario.RunOptions{})
package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"lorasim/internal/suggest"
	"lorasim/internal/textfile"
	"lorasim/internal/yamlerr"
	"lorasim/internal/yamlfile"
	"lorasim/sim/profile"
	"lorasim/trace/settings"
)

// Scenario describes a run completely: the same scenario gives the same result.
type Scenario struct {
	Name     string   `yaml:"name,omitempty" check:"any" flag:"-"`
	Seed     uint64   `yaml:"seed" default:"1" check:">=0" unit:"-" help:"seed of everything random"`
	Workload Workload `yaml:"workload"`
	Cluster  Cluster  `yaml:"cluster"`
	Routing  Routing  `yaml:"routing"`
	Client   Client   `yaml:"client"`
}

// Workload says which requests come when. One of four sources applies: a saved
// workload (File), a trace (UseTrace or any trace key that names one), a
// histogram, or the built-in generator.
type Workload struct {
	File string `yaml:"file" check:"any" flag:"workload" help:"run a saved workload (.csv, .jsonl, .parquet, .arrow)"`

	PrefixBlock int `yaml:"prefix_block" default:"512" check:">=1 <=1e6" unit:"tokens" help:"tokens that an id of hash_ids in a saved workload stands for"`

	Resample string `yaml:"resample" check:"parse" help:"draw another workload for each seed from the saved one (or from an LLM trace): block:SECONDS (blocks of time), sessions, sessions:PAUSE, adapters; all with replacement; empty: none (docs/scenarios.md)"`

	NumPrompts  int64   `yaml:"num_prompts" check:">=0 <=1e12" unit:"requests" help:"number of requests; 0: all of a file or trace, 2000 generated ones, or as many as the window takes"`
	Window      float64 `yaml:"window" check:">=0 <=1e7" unit:"s" help:"end the run after so many seconds and cut off what is unfinished; all figures but ITL, which has every token, count completed requests only; 0: run until all is done"`
	NumAdapters int     `yaml:"num_adapters" check:">=0 <=1e6" unit:"adapters" help:"number of LoRA adapters; 0: as a saved workload says, else 32"`
	LoraNames   string  `yaml:"lora_names" check:"parse" help:"names of the adapters, NAME,NAME,...: so many are there; empty: as a saved workload says, else lora0, lora1, ..."`
	LoraRanks   string  `yaml:"lora_ranks" check:"parse" help:"ranks of the adapters, in turn (8,16,32,64), or drawn:8=3,64=1; empty: as a saved workload says, else those of 8,16,32,64 that every worker can load"`
	Priorities  string  `yaml:"priorities" check:"parse" help:"priorities of the adapters, in turn (1,0,0,0), for schedule_policy priority; empty: as a saved workload says, else 0, as for requests without adapter"`
	Popularity  string  `yaml:"popularity" default:"zipf" check:"parse" help:"share of each adapter: zipf[:S], uniform, powerlaw:ALPHA, maf2, explicit:W,W,..."`
	RequestRate float64 `yaml:"request_rate" default:"10" check:">=1e-9 <=1e9 inf" unit:"req/s" help:"generated requests/s, inf: all at once; a trace has its own rate"`
	Arrivals    string  `yaml:"arrivals" default:"exponential" check:"parse" help:"gaps of the generator: exponential, gamma:CV, weibull:CV, deterministic, bursty, smooth; total-... for one process"`
	Pattern     string  `yaml:"pattern" check:"parse" help:"rate over time: constant, on-off:ON,OFF,FACTOR, diurnal:PERIOD,AMPLITUDE, flash:AT,DURATION,FACTOR[,ADAPTER]; joined by +"`

	Burstiness      float64 `yaml:"burstiness" check:">=1e-6 <=1e6 inf 0" unit:"shape" help:"arrivals as vLLM's client makes them, of one process: the shape of the gamma distribution of the gaps, 1: exponential, less: in bursts, inf: equal gaps; 0: as arrivals says"`
	RampUpStrategy  string  `yaml:"ramp_up_strategy" check:"oneof linear exponential" help:"the rate grows from request to request, as with vLLM's client: linear, exponential; empty: not"`
	RampUpStartRPS  float64 `yaml:"ramp_up_start_rps" check:">=1e-9 <=1e9 0" unit:"req/s" help:"requests/s of the first request"`
	RampUpEndRPS    float64 `yaml:"ramp_up_end_rps" check:">=1e-9 <=1e9 0" unit:"req/s" help:"requests/s of the last one"`
	LoraRequestDist string  `yaml:"lora_request_distribution" check:"oneof uniform distinct skewed random round-robin" help:"adapters as sglang's client chooses them: uniform, distinct (in turn), skewed (adapter i has a share as ALPHA^-i), or as vLLM's does: random (alike), round-robin (in turn); empty: as popularity says"`
	LoraZipfAlpha   float64 `yaml:"lora_zipf_alpha" default:"1.5" check:">1 <=1e6" unit:"-" help:"ALPHA of the distribution skewed"`

	Drift    float64 `yaml:"drift" check:">=0 <=1e9" unit:"s" help:"rotate the adapters' popularity every so many seconds; 0: never"`
	Locality string  `yaml:"locality" check:"parse" help:"probability that a request repeats a recent adapter: P or P,RECENT"`

	Sessions string `yaml:"sessions" check:"parse" help:"requests in runs to one adapter, which replaces popularity and arrivals: zipf:m=M[,nbar=N,s=S], copy:m=M[,nbar=N,p_new=P,gamma=G,j0=J]; m: sessions in progress"`

	Conversations string `yaml:"conversations" check:"parse" help:"turns that repeat what was said before, for prefix caches: chat, documents or agents, each with :turns=N,think=S,system=N,new=N,... (docs/scenarios.md); request_rate counts turns"`

	Lengths          string  `yaml:"lengths" default:"auto" check:"parse" help:"token counts: auto (the trace's own, else short chats), sharegpt, azure-conv, azure-code, sharegpt-llama3, sharegpt-qwen2, measured-rate4, measured-stride, random, constant:P,O, lognormal:..., copula:FILE,..., table:FILE, none"`
	RandomInputLen   int     `yaml:"random_input_len" check:">=0 <=1e8" unit:"tokens" help:"lengths random: longest prompt; 0: 1024"`
	RandomOutputLen  int     `yaml:"random_output_len" check:">=0 <=1e8" unit:"tokens" help:"lengths random: longest output; 0: 128"`
	RandomRangeRatio float64 `yaml:"random_range_ratio" check:">=0 <=1" unit:"share of the longest" help:"lengths random: shortest as a share of the longest"`

	MaxNewTokens string `yaml:"max_new_tokens" default:"auto" check:"parse" help:"what clients ask for at most, which ends longer outputs: N, xFACTOR, exact (the output), uniform:LOW,HIGH, lognormal:mean=M,sigma=S[,cap=C], mix:N=WEIGHT[,N=WEIGHT], trace (as a saved workload says); auto: trace, or exact for benchmark clients (random or measured lengths, compat), else 1024 and no output ends earlier"`

	UseTrace                 bool      `yaml:"use_trace" help:"replay a trace instead of generating requests"`
	TraceName                string    `yaml:"trace_name" check:"oneof azure_v1 azure_v2 azure_llm burstgpt mooncake qwen_bailian alibaba_genai" help:"azure_v1, azure_v2, azure_llm, burstgpt, mooncake, qwen_bailian, alibaba_genai; empty: azure_v2"`
	TracePath                string    `yaml:"trace_path" check:"any" help:"file or folder of the trace"`
	Compat                   string    `yaml:"compat" check:"oneof dlora slora vllm-lora" help:"repeat a published generator exactly: dlora (function traces), slora (generated), vllm-lora (generated: one Poisson process per adapter)"`
	TraceReplay              string    `yaml:"trace_replay" default:"rates" check:"oneof rates vanilla" help:"function traces: rates (redraw arrivals at the trace's rates) or vanilla (its own times)"`
	TraceStartTime           string    `yaml:"trace_start_time" default:"0.0.0" check:"parse" help:"start of the window, day.hour.minute"`
	TraceEndTime             string    `yaml:"trace_end_time" default:"0.0.60" check:"parse" help:"end of the window, day.hour.minute"`
	TraceIntervalMinutes     int       `yaml:"trace_interval_minutes" default:"60" check:">=1 <=1e6" unit:"min" help:"interval of constant rates, minutes"`
	TraceArrivalDistribution string    `yaml:"trace_arrival_distribution" default:"gamma" check:"oneof gamma exponential pareto weibull" help:"gaps: gamma, exponential, pareto, weibull"`
	TraceTotalRate           float64   `yaml:"trace_total_rate" default:"4" check:">=0 <=1e9" unit:"req/s" help:"requests/s of all adapters together; 0: the trace's own"`
	TraceCV                  []float64 `yaml:"trace_cv,flow" default:"1" check:">0 <=1e3" unit:"std / mean" help:"coefficient of variation of the gaps; a list goes to the adapters in turn"`
	TraceMap                 string    `yaml:"trace_map" default:"stride" check:"oneof stride round-robin stripe" help:"functions to adapters: stride, round-robin, stripe"`
	TraceMapStride           int       `yaml:"trace_map_stride" default:"1" check:">=1 <=1e9" unit:"functions" help:"functions per block of trace_map stride"`
	TraceNeedSort            bool      `yaml:"trace_need_sort" help:"busiest functions first"`
	TraceHistogram           string    `yaml:"trace_histogram" check:"parse" help:"invocations per adapter instead of a trace: 111,159,58,291, intervals separated by ;, or a .json file"`
	UseTraceTimestamps       bool      `yaml:"use_trace_timestamps" default:"true" help:"LLM traces: at the trace's own times; false: at request_rate (as sglang's client does it), burstiness or ramp_up"`
	TraceSort                bool      `yaml:"trace_sort" help:"LLM traces: sort the rows by time (holds them in memory)"`
	RateScale                float64   `yaml:"rate_scale" default:"1" check:">=1e-9 <=1e9" unit:"×" help:"multiply the rate of a trace or a saved workload: recorded requests arrive in 1/FACTOR of the time"`
	CVScale                  float64   `yaml:"cv_scale" default:"1" check:">=1e-9 <=1e3" unit:"×" help:"multiply the coefficient of variation of the gaps, of a trace or a saved workload, at the same mean rate"`
	TimeScale                float64   `yaml:"time_scale" default:"1" check:">=1e-9 <=1e9" unit:"×" help:"multiply the times of a trace or a saved workload"`
	SkipBadRows              bool      `yaml:"skip_bad_rows" help:"count malformed rows instead of stopping"`
}

// Cluster says what the workers are. Zero and empty values are the profile's.
type Cluster struct {
	NumWorkers int    `yaml:"num_workers" check:">=0 <=100000" unit:"workers" help:"number of workers; 0: as many as profile counts, else 4"`
	Profile    string `yaml:"profile" default:"llama2-7b-24gb" check:"any" help:"worker profile: a name (see lorasim profile list), a file, or analytic:MODEL,GPU; a list goes to the workers in turn, one with counts, NAME*2,OTHER*6, one after the other"`

	Scheduler           string  `yaml:"scheduler" check:"oneof sglang vllm" help:"scheduler of the engine: sglang or vllm"`
	MaxNumBatchedTokens int     `yaml:"max_num_batched_tokens" check:">=0 <=1e9" unit:"tokens" help:"scheduler vllm: token budget of a step"`
	MaxRunningRequests  int     `yaml:"max_running_requests" check:">=0 <=1e6" unit:"requests" help:"requests a worker runs at a time"`
	MaxLorasPerBatch    int     `yaml:"max_loras_per_batch" check:">=0 <=1e6" unit:"adapters" help:"GPU adapter slots of a worker"`
	MaxLoadedLoras      int     `yaml:"max_loaded_loras" check:">=0 <=1e6" unit:"adapters" help:"adapters in a worker's host memory"`
	MaxLoraRank         int     `yaml:"max_lora_rank" check:">=0 <=1e6" unit:"rank" help:"rank the slots are allocated for"`
	ChunkedPrefillSize  int     `yaml:"chunked_prefill_size" check:">=-1 <=1e9" unit:"tokens" help:"prompt tokens of one prefill step; -1: no limit, prompts are not cut"`
	MaxPrefillTokens    int     `yaml:"max_prefill_tokens" check:">=0 <=1e9" unit:"tokens" help:"prompt tokens of one prefill batch"`
	ContextLength       int     `yaml:"context_length" check:">=0 <=1e9" unit:"tokens" help:"longest prompt + output"`
	KVTokens            int64   `yaml:"kv_tokens" check:">=0 <=1e12" unit:"tokens" help:"tokens of a worker's KV cache"`
	PageSize            int     `yaml:"page_size" check:">=0 <=1e6" unit:"tokens" help:"tokens of a KV page"`
	HeadOfLine          string  `yaml:"head_of_line" check:"oneof skip block" help:"a waiting request without adapter slot: skip it, or block those behind it as old versions of sglang do"`
	LoraDrainWait       float64 `yaml:"lora_drain_wait_threshold" check:">=0 <=1e7" unit:"s" help:"age at which such a request has a running adapter make way, s; 0: never"`
	SchedulePolicy      string  `yaml:"schedule_policy" check:"oneof fcfs priority vtc" help:"order of the waiting requests: fcfs (as they came), priority (of the adapter; sglang: large values first, vllm: small ones), vtc (of the adapter that was served least; docs/admission.md)"`
	LowPriorityFirst    bool    `yaml:"schedule_low_priority_values_first" help:"schedule_policy priority (sglang): small values first"`
	PreemptionThreshold int     `yaml:"priority_scheduling_preemption_threshold" check:">=-1 <=1e9" unit:"-" help:"schedule_policy priority (sglang): by more than this must a priority be better for running requests to make way; 0: the profile's, 10; -1: 0"`
	NoPriorityPreempt   bool    `yaml:"disable_priority_preemption" help:"schedule_policy priority (sglang): running requests never make way"`
	MaxQueuedRequests   int     `yaml:"max_queued_requests" check:">=0 <=1e9" unit:"requests" help:"waiting requests from which a worker refuses more (sglang); 0: no limit"`
	MaxNumQueuedReqs    int     `yaml:"max_num_queued_reqs" check:">=0 <=1e9" unit:"requests" help:"requests on a worker, running ones too, from which it refuses more (vllm); 0: no limit"`
	MaxNumQueuedTokens  int64   `yaml:"max_num_queued_tokens" check:">=0 <=1e12" unit:"tokens" help:"prompt tokens of requests without first token from which a worker refuses more (vllm); 0: no limit"`
	EnableMixedChunk    bool    `yaml:"enable_mixed_chunk" help:"prefill steps take the running requests along (sglang)"`
	IgnoreEOS           bool    `yaml:"ignore_eos" help:"requests run to their max_new_tokens, and the scheduler knows it (sglang)"`
	DisableRadixCache   bool    `yaml:"disable_radix_cache" help:"with ignore_eos: reserve memory as sglang does without radix cache"`
	PrefixCache         bool    `yaml:"prefix_cache" help:"workers keep what they have computed of prompts, for prompts of the same adapter that begin alike"`
	PrefixEviction      string  `yaml:"prefix_eviction" check:"oneof pages nodes" help:"a full prefix cache gives up as many pages as it must, or whole nodes as sglang does"`
	AdapterLoading      string  `yaml:"adapter_loading" check:"oneof blocking overlapped" help:"blocking: no step runs while an adapter is copied to the GPU; overlapped: its requests are skipped meanwhile"`
	AdapterEviction     string  `yaml:"adapter_eviction" check:"oneof lru fifo" help:"lru or fifo"`
	LoraBackend         string  `yaml:"lora_backend" check:"oneof none csgmv triton merged dlora roofline" help:"none, csgmv, triton, merged (one adapter at a time), dlora (merged or not, by credits), roofline (computed profiles)"`
	AdapterHome         string  `yaml:"adapter_home" default:"disk" check:"oneof disk remote" help:"where adapters lie that a worker does not start with: disk or remote"`

	LoadFailureRate float64 `yaml:"load_failure_rate" check:">=0 <1" unit:"probability" help:"probability that an adapter load fails and is tried again"`
	Outages         string  `yaml:"outages" check:"parse" help:"workers that fail: WORKER@FROM-TO in s, joined by +"`
	Elastic         string  `yaml:"elastic" check:"parse" help:"workers that join and leave: min=N,max=N, with rule=reactive,target=REQUESTS (as Kubernetes does), forecast, known or schedule,times=SECONDS=WORKERS+... and cold_start=S,... (docs/elastic.md); num_workers are there at the start, else min; empty: all are there all the time"`
	NoFailover      bool    `yaml:"no_failover" help:"requests on a worker that fails are lost instead of sent elsewhere"`
}

// Routing says which policy sends requests where.
type Routing struct {
	Policy        string  `yaml:"policy" default:"plan-and-route" check:"parse" help:"routing policy, NAME[:OPTION=VALUE,...] (see lorasim policies)"`
	ViewStaleness float64 `yaml:"view_staleness" check:">=0 <=1e7" unit:"s" help:"age up to which what workers report to the router lags (health, KV cache, adapters held), s; it knows its own requests at once"`

	Shed      string `yaml:"shed" check:"parse" help:"requests that the router refuses: ttft:MS (the first token would come later on every worker, as predicted), queue:N (so many wait on every worker), or both joined by +; empty: none"`
	RateLimit string `yaml:"rate_limit" check:"parse" help:"requests/s that the router takes of each adapter: R or R,burst=B (a token bucket of B requests; R, at least 1, if not given); empty: all"`

	KnownOutputs bool `yaml:"known_outputs" help:"routers know every output in advance: a bound on what better estimates could gain"`

	InferenceArchitecture string  `yaml:"inference_architecture" check:"oneof sglang dlora" help:"as in the reference: sglang (policy static) or dlora (policy by migration_type); empty: policy"`
	MigrationType         string  `yaml:"migration_type" check:"oneof dispatch_only dispatch_mig period_mig" help:"inference_architecture dlora: dispatch_only, dispatch_mig, period_mig"`
	MigrationInterval     float64 `yaml:"migration_interval" check:">=0.001 <=1e7 0" unit:"s" help:"s between plans of a policy that makes any; 0: the policy's own"`
	MigrationReqThreshold float64 `yaml:"migration_req_threshold" check:">=0 <=1e9" unit:"requests" help:"requests above the mean that trigger dLoRA's plans; 0: its own"`
	RequestMigration      string  `yaml:"request_migration" default:"recompute" check:"oneof none queued recompute copy precopy" help:"how plans move requests: none, queued, recompute, copy, precopy"`
	Solver                string  `yaml:"solver" default:"embedded" check:"oneof embedded highs" help:"solver of plans: embedded, or highs where it is built in"`
}

// Client says how requests are sent.
type Client struct {
	MaxConcurrency  int  `yaml:"max_concurrency" check:">=0 <=1e9" unit:"requests" help:"requests in flight at most (closed loop); 0: no limit"`
	MaxInFlightFail int  `yaml:"max_in_flight_fail" check:">=0 <=1e9" unit:"requests" help:"a request that finds so many in flight fails at once, as where a client is out of ports; 0: no limit"`
	NoStream        bool `yaml:"no_stream" help:"clients see all tokens at once, at the end (TTFT = E2E)"`
	NoWarmup        bool `yaml:"no_warmup" help:"do not send a request ahead of the run"`

	Warmup string `yaml:"warmup" default:"0" check:"parse" help:"time at the start that all figures leave out, s; auto: until the steady state; 0: none"`
}

// Load reads a scenario file on top of the defaults. Relative paths in it are
// those from the file's folder.
func Load(file string) (Scenario, error) {
	data, err := textfile.ReadFile(file, textfile.MaxSettings)
	if err != nil {
		return Scenario{}, err
	}
	sc, err := Parse(data, file)
	sc.MapPaths(In(filepath.Dir(file)))
	return sc, err
}

// Parse reads a scenario from YAML on top of the defaults; file names it in
// errors, which say line and key. Unknown keys are errors that name the nearest
// known one. Of a sweep it takes the scenario that the sweep varies.
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

// ParseNode reads a scenario that is part of a YAML file, as Parse does.
func ParseNode(node ast.Node, file string) (Scenario, error) {
	r := nodeReader{scenario: Default()}
	if err := r.section(node, ""); err != nil {
		return r.scenario, fmt.Errorf("%s:%w", file, err)
	}
	return r.scenario, nil
}

// YAML returns the whole scenario as a file that Parse reads back.
func (s *Scenario) YAML() ([]byte, error) { return yaml.MarshalWithOptions(s, yaml.Indent(2)) }

// nodeReader sets what the nodes of a file say. Its errors begin with the line.
type nodeReader struct {
	scenario Scenario
	anchors  settings.Anchors
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
		if slices.ContainsFunc(fields, func(f Field) bool { return f.Section == key }) {
			if err := r.section(p.Value, key+"."); err != nil {
				return err
			}
			continue
		}
		f, err := findKey(key, prefix)
		if err != nil {
			return fmt.Errorf("%d: %w", line, err)
		}
		text, given, err := f.Text(p.Value, &r.anchors)
		if err != nil {
			return settings.At(line, key, err)
		}
		if given {
			if err := f.Set(&r.scenario, text); err != nil {
				return fmt.Errorf("%d: %w", line, err)
			}
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
	if name == "starvation_s" {
		return Field{}, fmt.Errorf("unknown key %q: it is lora_drain_wait_threshold now, off by default as in sglang",
			key)
	}
	if f, err := Find(name); err == nil {
		return f, fmt.Errorf("unknown key %q, did you mean %q?", key, f.Key)
	}
	return Field{}, suggest.Unknown("key", name, slices.Compact(known))
}

// pathsIn replaces the names of files within the values of those settings that have any and no grammar with forms,
// whose tags say so.
var pathsIn = map[string]func(value string, f func(string) string) string{
	"workload.file":            pathWith(""),
	"workload.trace_path":      pathWith(""),
	"workload.trace_histogram": pathWith(".json"),
	"cluster.profile": func(value string, f func(string) string) string {
		entries, err := parseProfiles(value)
		if err != nil {
			return value // whoever loads them says what is wrong
		}
		names := make([]string, len(entries))
		for i, e := range entries {
			if isProfileFile(e.name, f) {
				e.name = f(e.name)
			}
			names[i] = e.String()
		}
		return strings.Join(names, ",")
	},
}

// pathWith is a path that ends in a suffix.
func pathWith(suffix string) func(value string, f func(string) string) string {
	return func(value string, f func(string) string) string {
		if value == "" || !strings.HasSuffix(value, suffix) {
			return value
		}
		return f(value)
	}
}

// isProfileFile says whether a profile is a file and not a built-in one, nor a
// name that is neither, which is left for the error message to show.
func isProfileFile(name string, f func(string) string) bool {
	if name == "" || slices.Contains(profile.Names(), name) || strings.HasPrefix(name, profile.AnalyticPrefix) {
		return false
	}
	if strings.ContainsAny(name, `./\`) {
		return true
	}
	_, err := os.Stat(f(name))
	return err == nil
}

// MapPaths replaces the name of every file that the scenario reads by f of it.
func (s *Scenario) MapPaths(f func(path string) string) {
	for _, field := range fields {
		if v := field.of(s); v.Kind() == reflect.String {
			v.SetString(field.MapPaths(v.String(), f))
		}
	}
}

// MapPaths replaces the names of files within a value of the setting by those
// that path gives; values of settings that name none stay as they are.
func (f Field) MapPaths(value string, path func(string) string) string {
	if replace, ok := pathsIn[f.Key]; ok {
		return replace(value, path)
	}
	return settings.MapPaths(grammars[f.leaf].forms(), value, path)
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

// AbsolutePaths makes the scenario independent of the working directory.
func (s *Scenario) AbsolutePaths() (failed error) {
	s.MapPaths(func(path string) string {
		abs, err := filepath.Abs(path)
		if err != nil {
			failed = err
			return path
		}
		return abs
	})
	return failed
}
