// Package profile describes one kind of worker: how long its steps take, how
// much memory it has, and how its scheduler is set up.
//
// A profile is a YAML file; several are embedded (see [Names]). It is the only
// place where a prediction's numbers come from, so each says where it got them
// and how well it predicts. [Profile.Compile] turns one into integer step
// costs for the simulator.
//
//	p, err := profile.Load("llama-2-7b-rtx-4090-sglang-0.5")
//	costs := p.Compile()
package profile

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/goccy/go-yaml"

	"lorasim/internal/suggest"
	"lorasim/internal/textfile"
	"lorasim/internal/yamlfile"
)

// Profile is one kind of worker.
type Profile struct {
	Name   string `yaml:"name"`
	Model  string `yaml:"model"`
	GPU    string `yaml:"gpu"`
	Source string `yaml:"source"` // where the numbers come from
	// Hardware, EngineVersion and ValidatedOn say in short phrases what the
	// coefficients were measured on and validated with: see [Profile.Provenance].
	// Hardware defaults to GPU, ValidatedOn to the first line of Validation.
	Hardware      string `yaml:"hardware,omitempty"`
	EngineVersion string `yaml:"engine_version,omitempty"`
	ValidatedOn   string `yaml:"validated_on,omitempty"`
	// Uncalibrated marks a computed profile: no measured run was compared with it.
	Uncalibrated bool `yaml:"uncalibrated,omitempty"`

	Latency  Latency  `yaml:"latency"`
	Memory   Memory   `yaml:"memory"`
	Engine   Engine   `yaml:"engine"`
	Adapters Adapters `yaml:"adapters"`

	// Validation lists how well the profile predicted runs it was not fitted on.
	Validation []Validation `yaml:"validation,omitempty"`
	Intervals  *Intervals   `yaml:"intervals,omitempty"`

	// origin is the profile as it was read, before a scenario's changes; nil: it
	// was made otherwise.
	origin *Profile
}

// GPUs is how many a worker has, as GPU begins with their number: "8 GPUs of one
// server", "2 x h100"; else 1.
func (p *Profile) GPUs() int {
	n := 0
	if _, rest, _ := strings.Cut(p.GPU, " "); strings.HasPrefix(rest, "x ") || strings.HasPrefix(rest, "GPUs ") {
		n, _ = strconv.Atoi(strings.Fields(p.GPU)[0])
	}
	return max(n, 1)
}

// Latency holds the coefficients of the step-time model:
//
//	decode step  = base + per_request*B + per_kv_token*sum(ctx) + lora
//	prefill step = (base + per_token*tokens + per_token_ctx*sum(tokens*ctx))
//	               * first_wave_factor (steps before the worker's first decode)
//	               * (1 + lora.prefill_factor * share of adapter tokens)
//	               + first_extend (once, where a chunked prompt goes on)
//
// with B running requests and ctx the KV tokens of each: law phases. Law roofline
// has the longer of reading and computing instead of their sum, see [LawRoofline];
// AdapterLaw is law adapters. Experts and LoRA add what they say.
type Latency struct {
	Law     string  `yaml:"law,omitempty" is:"phases|roofline|adapters|"` // "": phases
	Decode  Decode  `yaml:"decode"`
	Prefill Prefill `yaml:"prefill"`
	LoRA    LoRA    `yaml:"lora"`
	Experts Experts `yaml:"experts,omitempty"`
	// Adapters holds the coefficients of law adapters.
	Adapters AdapterLaw `yaml:"adapters,omitempty"`
	FrontEnd FrontEnd   `yaml:"front_end,omitempty"`
	// HostMs is what the host does for a step: scheduling, input and output. The GPU waits
	// meanwhile, but with engine.async_scheduling or engine.overlap_schedule. Law roofline.
	HostMs float64 `yaml:"host_ms,omitempty" is:">=0 <1e6"`
	// RequestOverheadMs is spent outside the engine on every request (HTTP,
	// tokenizer, detokenizer); it delays all its tokens.
	RequestOverheadMs float64 `yaml:"request_overhead_ms" is:">=0"`
}

// FrontEnd is a server's front end that hands requests to the engine one after
// the other: tokenizer and HTTP in one process. A request occupies it for
// PerRequestMs; the first request of each adapter for FirstUseMs more, while
// the adapter is read and registered.
type FrontEnd struct {
	PerRequestMs float64 `yaml:"per_request_ms,omitempty" is:">=0"`
	FirstUseMs   float64 `yaml:"first_use_ms,omitempty" is:">=0"`
}

// Decode holds the coefficients of a decode step.
type Decode struct {
	BaseMs       float64 `yaml:"base_ms" is:">=0"`
	PerRequestMs float64 `yaml:"per_request_ms" is:">=0"`
	PerKVTokenUs float64 `yaml:"per_kv_token_us" is:">=0"`
}

// Prefill holds the coefficients of a prefill step.
type Prefill struct {
	BaseMs     float64 `yaml:"base_ms" is:">=0"`
	PerTokenUs float64 `yaml:"per_token_us" is:">=0"`
	// PerTokenCtxNs is the attention term: ns per prompt token and token of
	// context before it.
	PerTokenCtxNs float64 `yaml:"per_token_ctx_ns,omitempty" is:">=0"`
	// FirstWaveFactor multiplies prefill steps before the first decode step of
	// a worker (kernel compilation and autotuning); 0 or 1: no effect.
	FirstWaveFactor float64 `yaml:"first_wave_factor,omitempty" is:">=0"`
	// FirstExtendMs is spent once, in a worker's first prefill step that goes on
	// with a partly prefilled prompt: the kernels that attend to cached context
	// are compiled then.
	FirstExtendMs float64 `yaml:"first_extend_ms,omitempty" is:">=0"`
	// MixedMs is what a step with prompt tokens takes beyond its work, and
	// MixedPerRequestMs what each running request in it adds: law roofline.
	MixedMs           float64 `yaml:"mixed_ms,omitempty" is:">=0"`
	MixedPerRequestMs float64 `yaml:"mixed_per_request_ms,omitempty" is:">=0"`
}

// Experts are the routed experts of a mixture-of-experts model, in laws phases and roofline. A step of
// n tokens (running requests and prompt tokens) that each choose TopK of Count experts,
// all alike and independently of each other, uses
//
//	Count * (1 - (1 - TopK/Count)^n)
//
// of them on average, and reads the weights of those. Real routing is skewed and
// uses fewer. The step computes while it reads and takes the longer of both: what the
// running requests, or the prompt tokens, add to a step, or that read.
type Experts struct {
	Count int `yaml:"count,omitempty" is:">=0 <=100000"`
	TopK  int `yaml:"top_k,omitempty" is:">=0"` // experts of one token
	// ReadMs is the time to read the weights of all experts of all layers.
	ReadMs float64 `yaml:"read_ms,omitempty" is:">=0 <1e6"`
}

// LoRA backends.
const (
	BackendNone   = "none"         // adapters cost nothing
	BackendCSGMV  = "csgmv"        // decode: coefficient * r_max
	BackendTriton = "triton"       // decode: coefficient * B * r_max
	BackendMerged = "merged"       // one adapter at a time, merged into the weights
	BackendDLoRA  = "dlora"        // merged, or all together at a cost for each step, by credits
	BackendPunica = "punica"       // vLLM's kernels: law adapters
	BackendNative = "torch_native" // sglang without kernels, a loop: law adapters
	// BackendRoofline is that of computed profiles: bytes, operations and kernels.
	BackendRoofline = "roofline"
	// BackendMBGMV is that of S-LoRA's kernels, which gather adapters of different ranks without padding.
	BackendMBGMV = "mbgmv"
)

var allBackends = []string{BackendNone, BackendCSGMV, BackendTriton, BackendMerged, BackendDLoRA, BackendPunica,
	BackendNative, BackendRoofline, BackendMBGMV}

// LoRA holds what adapters add to a step; B counts the running requests that
// use an adapter, r_max is the largest rank among them.
type LoRA struct {
	Backend string `yaml:"backend" is:"none|csgmv|triton|merged|dlora|punica|torch_native|roofline|mbgmv"`
	// What the kernels of a backend add to a decode step; 0: not known, so that
	// the backend cannot be used. csgmv works through all segments of the batch
	// side by side, each loading the weights of its own rank, and takes as long as
	// the largest: us per rank. triton's grid covers every request up to the
	// largest rank: us per request and rank.
	CSGMVUs  float64 `yaml:"csgmv_us,omitempty" is:">=0"`
	TritonUs float64 `yaml:"triton_us,omitempty" is:">=0"`

	// Backend roofline adds to each step with an adapter, prefill steps too:
	//
	//	launch + rank*R + token_rank*T
	//
	// with R the sum of the ranks of the distinct adapters in the step, and T the sum
	// over its tokens of the rank of their adapter.
	LaunchMs    float64 `yaml:"launch_ms,omitempty" is:">=0"`
	RankUs      float64 `yaml:"rank_us,omitempty" is:">=0"`
	TokenRankNs float64 `yaml:"token_rank_ns,omitempty" is:">=0"`
	// Backend mbgmv adds
	//
	//	launch + rank*R + request_rank*Q + token_rank*T
	//
	// with R of steps that decode alone, Q the sum over the running requests of the rank of
	// their adapter, and T of prompt tokens alone.
	RequestRankUs float64 `yaml:"request_rank_us,omitempty" is:">=0"`

	PrefillFactor float64 `yaml:"prefill_factor,omitempty" is:">=0"`

	// Backends merged and dlora: what a change of the mode takes, and what an
	// unmerged decode step takes more than a merged one.
	SwitchMs   float64 `yaml:"switch_ms,omitempty" is:">=0"`
	UnmergedMs float64 `yaml:"unmerged_ms,omitempty" is:">=0"`
	// SwitchCredit, backend merged, are the credits that end a merged mode (a
	// decode step gives an adapter one for each of its requests that it passes
	// over); CreditScale, backend dlora, those that an adapter has to gain
	// before it runs first.
	SwitchCredit int64 `yaml:"switch_credit,omitempty"`
	CreditScale  int64 `yaml:"credit_scale,omitempty"`
}

// Memory is the KV cache of a worker. Adapter slots are allocated beside it at
// the largest rank, whatever the rank of the adapters in them.
type Memory struct {
	// KVTokens is the capacity in tokens; 0: from KVTable, or derived from PoolGiB.
	KVTokens int64 `yaml:"kv_tokens,omitempty" is:">=0"`
	// KVTable is the capacity as measured, by slots and their rank.
	KVTable []KVCurve `yaml:"kv_table,omitempty"`
	// PoolGiB is what weights, activations and graphs leave for KV cache and
	// adapter slots.
	PoolGiB float64 `yaml:"pool_gib,omitempty" is:">=0"`
	// KVBytesPerToken is the size of one token's keys and values.
	KVBytesPerToken int64 `yaml:"kv_bytes_per_token,omitempty"`
}

// Schedulers and choices of the engine.
const (
	SchedulerSGLang = "sglang" // prefill steps first, else decode steps
	SchedulerVLLM   = "vllm"   // every step decodes and takes prompt chunks
	SchedulerSLoRA  = "slora"  // S-LoRA: prefill steps now and then, adapters in the memory of the KV cache

	HeadOfLineSkip  = "skip"  // requests whose adapter finds no slot are passed over
	HeadOfLineBlock = "block" // the first of them stops the queue, as in old versions of sglang

	LoadBlocking   = "blocking"   // no step runs while an adapter loads
	LoadOverlapped = "overlapped" // steps go on; requests of the adapter wait

	EvictLRU  = "lru"
	EvictFIFO = "fifo"

	EvictPages = "pages"
	EvictNodes = "nodes"

	OrderFCFS     = "fcfs"     // first come, first served
	OrderPriority = "priority" // by the priority of the adapter
	OrderVTC      = "vtc"      // the adapter that was served least

	// OverflowReject refuses prompt + max_new_tokens > context_length.
	OverflowReject = "reject"
	// OverflowPrompt refuses only prompts; max_new_tokens is cut to what is left.
	OverflowPrompt = "prompt"
	// OverflowIgnore refuses only prompts, and outputs may run past the context.
	// No engine does that: the lengths fitted to measured runs were fitted so.
	OverflowIgnore = "ignore"
)

// Engine is the set-up of a worker's scheduler. Flag names follow the engines'
// own where they have one.
type Engine struct {
	Scheduler          string `yaml:"scheduler" is:"sglang|vllm|slora"`
	MaxRunningRequests int    `yaml:"max_running_requests" is:">0"`
	ChunkedPrefillSize int    `yaml:"chunked_prefill_size" is:">=0"` // tokens of a prefill step; 0: unlimited
	MaxPrefillTokens   int    `yaml:"max_prefill_tokens" is:">0"`
	// MaxNumBatchedTokens is the token budget of a step of scheduler vllm, whose
	// running requests take one each and prompts the rest.
	MaxNumBatchedTokens int `yaml:"max_num_batched_tokens" is:">0"`
	// LongPrefillTokenThreshold is the most tokens of one prompt that a step of
	// scheduler vllm takes while there are other requests; 0: no limit.
	LongPrefillTokenThreshold int `yaml:"long_prefill_token_threshold,omitempty" is:">=0"`
	// NoChunkedPrefill and NoReserveFullISL turn off two of vLLM's defaults. With chunked prefill a step may take
	// part of a prompt. With scheduler_reserve_full_isl a request is admitted only if there is memory for all its
	// tokens, not only for those of the first step. Versions without that setting (for example 0.8.5) have it off.
	NoChunkedPrefill bool `yaml:"no_chunked_prefill,omitempty"`
	NoReserveFullISL bool `yaml:"no_reserve_full_isl,omitempty"`
	// AsyncScheduling has scheduler vllm form a step while the one before it runs (--async-scheduling).
	AsyncScheduling bool `yaml:"async_scheduling,omitempty"`
	// OverlapSchedule has scheduler sglang form a step while the one before it runs, as sglang does without
	// --disable-overlap-schedule.
	OverlapSchedule bool `yaml:"overlap_schedule,omitempty"`
	// VLLMVersion is the version whose rules scheduler vllm follows, such as 0.33; "": 0.32.
	VLLMVersion string `yaml:"vllm_version,omitempty"`

	// AdapterCellsPerRank is the number of KV tokens whose memory a rank of an adapter takes, with scheduler slora: 4
	// where adapters have the projections q, k, v and o.
	AdapterCellsPerRank int `yaml:"adapter_cells_per_rank,omitempty" is:">=0 <=1000"`

	ContextLength   int    `yaml:"context_length" is:">0"`
	ContextOverflow string `yaml:"context_overflow" is:"reject|prompt|ignore"`
	PageSize        int    `yaml:"page_size" is:">0"` // KV tokens per page

	MaxLorasPerBatch int `yaml:"max_loras_per_batch" is:">0"` // GPU adapter slots; the base model takes one
	// adapters in host memory; 0: no limit, scheduler vllm: max_loras_per_batch
	MaxLoadedLoras int    `yaml:"max_loaded_loras" is:">=0"`
	MaxLoraRank    int    `yaml:"max_lora_rank" is:">0"` // rank the slots are allocated for
	HeadOfLine     string `yaml:"head_of_line" is:"skip|block"`
	// LoraDrainWait is the age in s at which a request that finds no slot has a
	// running adapter make way (lora_drain_wait_threshold); 0: never.
	LoraDrainWait   float64 `yaml:"lora_drain_wait_threshold" is:">=0"`
	AdapterLoading  string  `yaml:"adapter_loading" is:"blocking|overlapped"`
	AdapterEviction string  `yaml:"adapter_eviction" is:"lru|fifo"`

	// NewTokenRatio is the share of its remaining budget a running request is
	// expected to still use; it falls to NewTokenRatioMin * itself over
	// NewTokenRatioSteps decode steps and is re-estimated after a retraction.
	NewTokenRatio      float64 `yaml:"new_token_ratio" is:">0 <=1"`
	NewTokenRatioMin   float64 `yaml:"new_token_ratio_min" is:">=0 <=1"`
	NewTokenRatioSteps int64   `yaml:"new_token_ratio_steps" is:">0"`
	// ClipNewTokens caps the budget the scheduler reserves for one request.
	ClipNewTokens int `yaml:"clip_new_tokens" is:">0"`

	// SchedulePolicy is the order of the waiting queue: fcfs (or ""), priority, vtc.
	SchedulePolicy string `yaml:"schedule_policy,omitempty" is:"fcfs|priority|vtc|"`
	// What priorities do under scheduler sglang: large values come first unless
	// LowPriorityFirst; where all seats are taken, a request whose priority is better
	// by more than PreemptionThreshold has running ones make way.
	LowPriorityFirst     bool `yaml:"schedule_low_priority_values_first,omitempty"`
	NoPriorityPreemption bool `yaml:"disable_priority_preemption,omitempty"`
	PreemptionThreshold  int  `yaml:"priority_scheduling_preemption_threshold" is:">=0"`
	// Limits above which requests are refused, 0: none. sglang counts requests in
	// the queue, vLLM all on the worker, or prompt tokens of those without a token.
	MaxQueuedRequests  int   `yaml:"max_queued_requests,omitempty" is:">=0"`
	MaxNumQueuedReqs   int   `yaml:"max_num_queued_reqs,omitempty" is:">=0"`
	MaxNumQueuedTokens int64 `yaml:"max_num_queued_tokens,omitempty" is:">=0"`

	// MixedChunk has prefill steps take the running requests along
	// (enable_mixed_chunk).
	MixedChunk bool `yaml:"enable_mixed_chunk"`
	// IgnoreEOS: requests run to their budget, and the scheduler knows it.
	IgnoreEOS bool `yaml:"ignore_eos"`
	// DisableRadixCache matters with IgnoreEOS, where sglang then reserves
	// memory by another rule. Off, without PrefixCache, no prompt is like another.
	DisableRadixCache bool `yaml:"disable_radix_cache"`
	// PrefixCache: what was computed of a prompt is kept, and not computed again
	// for a prompt of the same adapter that begins alike.
	PrefixCache bool `yaml:"prefix_cache"`
	// PrefixEviction: pages, no more than are needed, or whole nodes of the tree,
	// as sglang does. Under vLLM pages.
	PrefixEviction string `yaml:"prefix_eviction" is:"pages|nodes"`
}

// Adapters says how big adapters are and how long moving them takes.
type Adapters struct {
	BytesPerRank float64 `yaml:"bytes_per_rank" is:">=0"`
	DefaultRank  int     `yaml:"default_rank" is:">0"` // for adapters whose rank the workload does not state
	// A load passes every stage from where the weights lie to the GPU.
	HostToGPU    Stage `yaml:"host_to_gpu"`
	DiskToHost   Stage `yaml:"disk_to_host"`
	RemoteToHost Stage `yaml:"remote_to_host"`
	// Network carries KV caches from worker to worker.
	Network Stage `yaml:"network"`
}

// Stage is one hop of an adapter's way: latency + bytes/bandwidth.
type Stage struct {
	LatencyMs float64 `yaml:"latency_ms" is:">=0"`
	GBPerS    float64 `yaml:"gb_per_s" is:">0"`
}

// Validation is one line of a profile's validation table.
type Validation struct {
	Runs           string  `yaml:"runs" json:"runs"`
	Metric         string  `yaml:"metric" json:"metric"`
	MedianAbsError float64 `yaml:"median_abs_error" json:"median_abs_error"` // fraction
	P90AbsError    float64 `yaml:"p90_abs_error,omitempty" json:"p90_abs_error"`
}

//go:embed *.yaml profiles/*.yaml
var embedded embed.FS

// part reads a file that is part of the binary.
func part[T any](name string) (x T) {
	data, err := embedded.ReadFile(name)
	if err == nil {
		err = yamlfile.Unmarshal(data, name, &x)
	}
	if err != nil {
		panic(err)
	}
	return x
}

var defaults = sync.OnceValue(func() Profile { return part[Profile]("defaults.yaml") })

// Default returns the settings a profile file starts from.
func Default() Profile { return defaults() }

// UseVLLM sets the scheduler to vLLM's with the defaults of vLLM 0.32, those of
// the API server on a GPU of less than 70 GiB (engine/arg_utils.py,
// get_batch_defaults; larger ones but the A100 take max_num_seqs 1024 and
// max_num_batched_tokens 8192). What the hardware or the deployment decides
// stays: slots, ranks, context length.
func (e *Engine) UseVLLM() {
	e.Scheduler, e.HeadOfLine, e.AdapterLoading, e.AdapterEviction = SchedulerVLLM, HeadOfLineSkip, LoadBlocking,
		EvictLRU
	e.PrefixEviction, e.OverlapSchedule = EvictPages, false
	e.MaxRunningRequests, e.MaxNumBatchedTokens, e.PageSize, e.MaxLoadedLoras = 256, 2048, 16, 0
}

// defaultVLLM is Default for a profile of scheduler vllm. LoRA slots and rank
// are those of vLLM's config/lora.py.
func defaultVLLM() Profile {
	p := Default()
	p.Engine.UseVLLM()
	p.Engine.MaxLorasPerBatch, p.Engine.MaxLoraRank = 1, 16
	return p
}

// HostLoras is the number of adapters in host memory, 0: no limit. vLLM's
// max_cpu_loras is max_loras unless set (config/lora.py, _validate_lora_config).
func (e *Engine) HostLoras() int {
	switch {
	case e.Scheduler == SchedulerSLoRA:
		return 0
	case e.MaxLoadedLoras == 0 && e.Scheduler == SchedulerVLLM:
		return e.MaxLorasPerBatch
	}
	return e.MaxLoadedLoras
}

// Load returns the embedded profile of that name or alias, makes the analytic one that
// "analytic:MODEL,GPU" asks for ([parseAnalytic]), reads a profile file, or returns the profile for a GPU ([ForGPU]).
func Load(nameOrFile string) (*Profile, error) {
	if spec, ok := strings.CutPrefix(nameOrFile, AnalyticPrefix); ok {
		a, err := parseAnalytic(spec)
		if err != nil {
			return nil, fmt.Errorf("profile %q: %w", nameOrFile, err)
		}
		return a.Profile()
	}
	read := func(name string) ([]byte, error) { return textfile.ReadFile(name, yamlfile.MaxBytes) }
	if name := Canonical(nameOrFile); IsEmbedded(name) {
		read = func(string) ([]byte, error) { return embedded.ReadFile("profiles/" + name + ".yaml") }
	}
	data, err := read(nameOrFile)
	ext := filepath.Ext(nameOrFile) // "llama-3.1-8b" has one, too
	if os.IsNotExist(err) {
		if name, ok := ForGPU(nameOrFile); ok {
			return Load(name)
		}
	}
	if os.IsNotExist(err) && !strings.ContainsAny(nameOrFile, "/\\") && ext != ".yaml" && ext != ".yml" {
		hint := ""
		if name := suggest.Likely(nameOrFile, Names()); name != "" {
			hint = fmt.Sprintf(", did you mean %q?", name)
		}
		return nil, fmt.Errorf("profile %q: neither an embedded profile (%s) nor a GPU (%s) nor a file nor %sMODEL,GPU%s",
			nameOrFile, strings.Join(Names(), ", "), strings.Join(names(GPUs(), (*GPU).name), ", "),
			AnalyticPrefix, hint)
	}
	if err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	return Parse(data, nameOrFile)
}

// Parse reads a profile from YAML on top of the defaults of its scheduler,
// where names it in errors.
func Parse(data []byte, where string) (*Profile, error) {
	var of struct {
		Engine struct {
			Scheduler string `yaml:"scheduler"`
		} `yaml:"engine"`
	}
	p := Default()
	// else the next reading says why
	if err := yamlfile.UnmarshalPart(data, where, &of); err == nil {
		switch of.Engine.Scheduler {
		case SchedulerVLLM:
			p = defaultVLLM()
		case SchedulerSLoRA:
			p.Engine.UseSLoRA()
		}
	}
	if err := yamlfile.Unmarshal(data, where, &p); err != nil {
		return nil, fmt.Errorf("profile %w", err)
	}
	if p.Name == "" {
		return nil, fmt.Errorf("profile %s: name is missing", where)
	}
	if err := p.Check(); err != nil {
		return nil, fmt.Errorf("profile %s: %w", where, err)
	}
	read := p
	p.origin = &read
	return &p, nil
}

// YAML returns the whole profile as a file that Parse reads back.
func (p *Profile) YAML() ([]byte, error) {
	return yaml.MarshalWithOptions(p, yaml.Indent(2))
}
