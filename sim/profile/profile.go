// Package profile describes workers: how long their steps take, how much memory they have, and how their
// schedulers are set up.
//
// A [Profile] is a YAML file; several are embedded (see [Names]). It is the only source of a prediction's
// numbers. Each profile states where its numbers come from and how well it predicts. [Profile.Compile]
// converts a profile to integer step costs for the simulator.
//
//	p, err := profile.Load(ctx, "llama-2-7b-rtx-4090-sglang-0.5")
//	costs := p.Compile()
package profile

import (
	"context"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/goccy/go-yaml"

	"lorasim/internal/suggest"
	"lorasim/internal/textfile"
	"lorasim/internal/yamlfile"
)

// A Profile describes one kind of worker.
type Profile struct {
	Name   string `yaml:"name"`
	Model  string `yaml:"model"`
	GPU    string `yaml:"gpu"`
	Source string `yaml:"source"` // where the numbers come from
	// Hardware, EngineVersion and ValidatedOn are short phrases on what the coefficients were measured on and
	// validated with; see [Profile.Provenance]. Hardware defaults to GPU, and ValidatedOn to the first line
	// of Validation.
	Hardware      string `yaml:"hardware,omitempty"`
	EngineVersion string `yaml:"engine_version,omitempty"`
	ValidatedOn   string `yaml:"validated_on,omitempty"`
	// Uncalibrated marks a computed profile: no measured run was compared with it.
	Uncalibrated bool `yaml:"uncalibrated,omitempty"`

	Latency  Latency  `yaml:"latency"`
	Memory   Memory   `yaml:"memory"`
	Engine   Engine   `yaml:"engine"`
	Adapters Adapters `yaml:"adapters"`

	// Validation lists the errors of predictions for runs that the profile was not fitted to.
	Validation []Validation `yaml:"validation,omitempty"`
	Intervals  *Intervals   `yaml:"intervals,omitempty"`

	// origin is the profile as Parse read it, before a scenario's changes; nil for a profile made otherwise.
	origin *Profile
	// computed is set in a profile that Analytic.Profile computed.
	computed *computed
}

// GPUs returns the number of GPUs of a worker: the number that the field GPU begins with, as in "8 GPUs of
// one server" or "2 x h100", else 1.
func (p *Profile) GPUs() int {
	n := 0
	if _, rest, _ := strings.Cut(p.GPU, " "); strings.HasPrefix(rest, "x ") || strings.HasPrefix(rest, "GPUs ") {
		n, _ = strconv.Atoi(strings.Fields(p.GPU)[0])
	}
	return max(n, 1)
}

// Latency holds the coefficients of the step-time model. Law phases is
//
//	decode step  = base + per_request*B + per_kv_token*sum(ctx) + lora
//	prefill step = (base + per_token*tokens + per_token_ctx*sum(tokens*ctx))
//	               * first_wave_factor (steps before the worker's first decode)
//	               * (1 + lora.prefill_factor * share of adapter tokens)
//	               + first_extend (once, where a chunked prompt goes on)
//
// with B running requests and ctx the KV tokens of each. Law roofline takes the longer of reading and
// computing instead of their sum; see [LawRoofline]. Law adapters is [AdapterLaw]. [Experts] and [LoRA]
// describe the terms that they add.
type Latency struct {
	Law     string  `yaml:"law,omitempty" is:"phases|roofline|adapters|"` // "": phases
	Decode  Decode  `yaml:"decode"`
	Prefill Prefill `yaml:"prefill"`
	LoRA    LoRA    `yaml:"lora"`
	Experts Experts `yaml:"experts,omitempty"`
	// Adapters holds the coefficients of law adapters.
	Adapters AdapterLaw `yaml:"adapters,omitempty"`
	FrontEnd FrontEnd   `yaml:"front_end,omitempty"`
	// HostMs is the host's time for a step: scheduling, input and output. HostPerRequestMs is its time for each
	// running request. The GPU waits meanwhile, unless engine.async_scheduling or engine.overlap_schedule is set. Law
	// roofline only.
	HostMs           float64 `yaml:"host_ms,omitempty" is:">=0 <1e6"`
	HostPerRequestMs float64 `yaml:"host_per_request_ms,omitempty" is:">=0 <1e6"`
	// StepMs is the time of a step besides reading and computing, such as the starts of kernels, and StepPerRequestMs
	// that of each running request. Law roofline only.
	StepMs           float64 `yaml:"step_ms,omitempty" is:">=0 <1e6"`
	StepPerRequestMs float64 `yaml:"step_per_request_ms,omitempty" is:">=0 <1e6"`
	// AllReduce is the exchanges between the GPUs of a worker. Law roofline only.
	AllReduce AllReduce `yaml:"all_reduce,omitempty"`
	// RequestOverheadMs is the time spent outside the engine on every request (HTTP, tokenizer, detokenizer).
	// It delays all tokens of the request.
	RequestOverheadMs float64 `yaml:"request_overhead_ms" is:">=0"`
}

// AllReduce is the time of all exchanges between GPUs in a step, by the tokens of the step (running requests and prompt
// tokens). Between two listed numbers of tokens it is interpolated linearly, beyond the last it is proportional.
type AllReduce struct {
	Tokens []int64   `yaml:"tokens,flow,omitempty"`
	Ms     []float64 `yaml:"ms,flow,omitempty"`
}

// FrontEnd is a server's front end: tokenizer and HTTP in one process. It hands requests to the engine one
// after the other. A request occupies the front end for PerRequestMs. The first request of each adapter
// occupies it for FirstUseMs more, while the adapter is read and registered.
type FrontEnd struct {
	PerRequestMs float64 `yaml:"per_request_ms,omitempty" is:">=0"`
	FirstUseMs   float64 `yaml:"first_use_ms,omitempty" is:">=0"`
}

// Decode holds the coefficients of a decode step; see [Latency].
type Decode struct {
	BaseMs       float64 `yaml:"base_ms" is:">=0"`
	PerRequestMs float64 `yaml:"per_request_ms" is:">=0"`
	PerKVTokenUs float64 `yaml:"per_kv_token_us" is:">=0"`
}

// Prefill holds the coefficients of a prefill step; see [Latency].
type Prefill struct {
	BaseMs     float64 `yaml:"base_ms" is:">=0"`
	PerTokenUs float64 `yaml:"per_token_us" is:">=0"`
	// PerTokenCtxNs is the attention term: ns per prompt token and token of context before it.
	PerTokenCtxNs float64 `yaml:"per_token_ctx_ns,omitempty" is:">=0"`
	// FirstWaveFactor multiplies the prefill steps before a worker's first decode step (kernel compilation
	// and autotuning). 0 or 1: no effect.
	FirstWaveFactor float64 `yaml:"first_wave_factor,omitempty" is:">=0"`
	// FirstExtendMs is added once, to a worker's first prefill step that continues a partly prefilled prompt.
	// The kernels for attention to cached context are compiled then.
	FirstExtendMs float64 `yaml:"first_extend_ms,omitempty" is:">=0"`
	// MixedMs is the additional time of a step with prompt tokens, and MixedPerRequestMs the additional time
	// per running request in it. Law roofline only.
	MixedMs           float64 `yaml:"mixed_ms,omitempty" is:">=0"`
	MixedPerRequestMs float64 `yaml:"mixed_per_request_ms,omitempty" is:">=0"`
}

// Experts describes the routed experts of a mixture-of-experts model, for laws phases and roofline.
//
// Each of the n tokens of a step (running requests and prompt tokens) uses TopK of Count experts. If all
// experts are equally likely and tokens are independent, a step uses
//
//	Count * (1 - (1 - TopK/Count)^n)
//
// experts on average, and reads their weights. Real routing is skewed and uses fewer. The step computes while
// it reads. It adds the longer of the two: the time of the running requests or prompt tokens, or the
// time to read the experts.
type Experts struct {
	Count int `yaml:"count,omitempty" is:">=0 <=100000"`
	TopK  int `yaml:"top_k,omitempty" is:">=0"` // experts of one token
	// ReadMs is the time to read the weights of all experts of all layers.
	ReadMs float64 `yaml:"read_ms,omitempty" is:">=0 <1e6"`
}

// LoRA backends: how an engine computes adapters. Coefficients in comments are those of decode steps; B is the number
// of requests with an adapter, r_max their largest rank.
const (
	BackendNone   = "none"         // adapters take no time
	BackendCSGMV  = "csgmv"        // KernelTimes, or in decode steps: coefficient * r_max
	BackendTriton = "triton"       // KernelTimes, or in decode steps: coefficient * B * r_max
	BackendMerged = "merged"       // one adapter at a time, merged into the weights
	BackendDLoRA  = "dlora"        // merged, or all adapters together in longer steps; credits decide
	BackendPunica = "punica"       // vLLM's kernels: KernelTimes, or law adapters
	BackendNative = "torch_native" // sglang's loop over adapters, without LoRA kernels: law adapters
	// BackendMBGMV is the backend of S-LoRA's kernels, which gather adapters of different ranks without padding.
	BackendMBGMV = "mbgmv"
)

// Values of [LoRA.Kernels].
const (
	// kernelsEveryStep: launch, and all slots, also in steps without an adapter. vLLM before 0.11.1.
	kernelsEveryStep = "every-step"
	// kernelsLoRASteps: launch, and all slots, in steps with an adapter. vLLM since 0.11.1
	// (vllm-project/vllm#25914).
	kernelsLoRASteps = "lora-steps"
	// kernelsActive: launch, and the number of adapters in the step, rounded up to a power of 2. vLLM since 0.16
	// with specialize_active_lora (vllm-project/vllm#32005).
	kernelsActive = "active-adapters"
)

var allBackends = []string{BackendNone, BackendCSGMV, BackendTriton, BackendMerged, BackendDLoRA, BackendPunica,
	BackendNative, BackendMBGMV}

// LoRA holds the time that adapters add to a step. B is the number of running requests with an adapter, and
// r_max the largest rank among their adapters.
type LoRA struct {
	Backend string `yaml:"backend" is:"none|csgmv|triton|merged|dlora|punica|torch_native|mbgmv"`
	// Cost of a backend's kernels in a decode step; 0: unknown, and the backend cannot be used. csgmv
	// processes all segments of the batch in parallel, each with the weights of its own rank. It takes as
	// long as the largest: us per rank. The grid of triton covers every request up to the largest rank: us
	// per request and rank.
	CSGMVUs  float64 `yaml:"csgmv_us,omitempty" is:">=0"`
	TritonUs float64 `yaml:"triton_us,omitempty" is:">=0"`

	// Backend mbgmv adds to each step with an adapter
	//
	//	launch + rank*R + request_rank*Q + token_rank*T
	//
	// R is the sum of the ranks of the distinct adapters in steps that decode. Q and T are sums of the rank of the
	// adapter, over the running requests and over the prompt tokens.
	LaunchMs      float64 `yaml:"launch_ms,omitempty" is:">=0"`
	RankUs        float64 `yaml:"rank_us,omitempty" is:">=0"`
	TokenRankNs   float64 `yaml:"token_rank_ns,omitempty" is:">=0"`
	RequestRankUs float64 `yaml:"request_rank_us,omitempty" is:">=0"`

	// Kernels says in which steps the kernels of backends with KernelTimes, and of punica and torch_native,
	// take time. It depends on the version of the engine: see [kernelsEveryStep] and those after it. "": every-step
	// with law adapters, else lora-steps.
	Kernels string `yaml:"kernels,omitempty" is:"every-step|lora-steps|active-adapters|"`

	// KernelTimes are the measured times of the backend's kernels, for backends punica, csgmv and triton. They hold
	// for steps with and without prompts.
	KernelTimes KernelTimes `yaml:"kernel_times,omitempty"`

	// PrefillFactor is the relative increase of a prefill step's time if all its tokens use adapters. Law
	// roofline applies it to the computing of prompt tokens.
	PrefillFactor float64 `yaml:"prefill_factor,omitempty" is:">=0"`

	// Backends merged and dlora: SwitchMs is the time of a mode change, UnmergedMs the additional time of an
	// unmerged decode step over a merged one.
	SwitchMs   float64 `yaml:"switch_ms,omitempty" is:">=0"`
	UnmergedMs float64 `yaml:"unmerged_ms,omitempty" is:">=0"`
	// SwitchCredit (backend merged) is the number of credits that ends a merged mode. A decode step gives an
	// adapter one credit for each of its requests that the step passes over. CreditScale (backend dlora) is
	// the number of credits that an adapter must gain before it runs first.
	SwitchCredit int64 `yaml:"switch_credit,omitempty"`
	CreditScale  int64 `yaml:"credit_scale,omitempty"`
}

// Memory describes the KV cache of a worker. Adapter slots are allocated beside it at the largest rank,
// whatever the ranks of the adapters in them.
type Memory struct {
	// KVTokens is the capacity in tokens. 0: taken from KVTable, or derived from PoolGiB.
	KVTokens int64 `yaml:"kv_tokens,omitempty" is:">=0"`
	// KVTable is the measured capacity, by the number and the rank of the slots.
	KVTable []KVCurve `yaml:"kv_table,omitempty"`
	// PoolGiB is the memory for KV cache and adapter slots: what weights, activations and CUDA graphs leave.
	PoolGiB float64 `yaml:"pool_gib,omitempty" is:">=0"`
	// KVBytesPerToken is the size of one token's keys and values.
	KVBytesPerToken int64 `yaml:"kv_bytes_per_token,omitempty"`
}

// Values of the settings of [Engine].
const (
	SchedulerSGLang = "sglang" // prefill steps first, else decode steps
	SchedulerVLLM   = "vllm"   // every step decodes and computes prompt chunks
	SchedulerSLoRA  = "slora"  // S-LoRA: a prefill step every few decode steps; adapters share the KV cache's memory

	HeadOfLineSkip  = "skip"  // skip requests whose adapter finds no slot
	HeadOfLineBlock = "block" // the first such request blocks the queue, as in old versions of sglang

	LoadBlocking   = "blocking"   // no step runs while an adapter loads
	LoadOverlapped = "overlapped" // steps continue; only requests of the adapter wait

	EvictLRU  = "lru"  // least recently used adapter
	EvictFIFO = "fifo" // adapter that was loaded first

	EvictPages = "pages" // prefix cache: only the pages that are needed
	EvictNodes = "nodes" // prefix cache: whole nodes of the radix tree, as sglang does

	OrderFCFS     = "fcfs"     // first come, first served
	OrderPriority = "priority" // by the priority of the adapter
	OrderLIFO     = "lifo"     // last come, first served (scheduler slora)
	OrderVTC      = "vtc"      // virtual token counter: the least served adapter first

	// OverflowReject rejects requests with prompt + max_new_tokens > context_length.
	OverflowReject = "reject"
	// OverflowPrompt rejects only too long prompts. It cuts max_new_tokens to the remaining context.
	OverflowPrompt = "prompt"
	// OverflowIgnore rejects only too long prompts, and outputs may exceed the context. No engine does this;
	// lengths fitted to measured runs were fitted with it.
	OverflowIgnore = "ignore"
)

// Engine holds the settings of a worker's scheduler. Flag names are the engines' own where they exist.
type Engine struct {
	Scheduler          string `yaml:"scheduler" is:"sglang|vllm|slora"`
	MaxRunningRequests int    `yaml:"max_running_requests" is:">0"`  // requests in the batch
	ChunkedPrefillSize int    `yaml:"chunked_prefill_size" is:">=0"` // tokens of a prefill step; 0: unlimited
	MaxPrefillTokens   int    `yaml:"max_prefill_tokens" is:">0"`    // prompt tokens of a prefill step
	// MaxNumBatchedTokens is the token budget of a step of scheduler vllm. Running requests take one token
	// each, prompts take the rest.
	MaxNumBatchedTokens int `yaml:"max_num_batched_tokens" is:">0"`
	// LongPrefillTokenThreshold is the maximum number of tokens of one prompt in a step of scheduler vllm
	// while there are other requests. 0: no limit.
	LongPrefillTokenThreshold int `yaml:"long_prefill_token_threshold,omitempty" is:">=0"`
	// NoChunkedPrefill and NoReserveFullISL disable two defaults of vLLM. With chunked prefill a step may
	// compute part of a prompt. With scheduler_reserve_full_isl a request is admitted only if there is memory
	// for all its tokens, not only for those of the first step. Versions without that setting (for example
	// 0.8.5) do not reserve.
	NoChunkedPrefill bool `yaml:"no_chunked_prefill,omitempty"`
	NoReserveFullISL bool `yaml:"no_reserve_full_isl,omitempty"`
	// AsyncScheduling makes scheduler vllm form a step while the one before it runs (--async-scheduling).
	AsyncScheduling bool `yaml:"async_scheduling,omitempty"`
	// OverlapSchedule makes scheduler sglang form a step while the one before it runs, as sglang does without
	// --disable-overlap-schedule.
	OverlapSchedule bool `yaml:"overlap_schedule,omitempty"`
	// VLLMVersion is the version whose rules scheduler vllm follows, such as 0.33. "": 0.32.
	VLLMVersion string `yaml:"vllm_version,omitempty"`

	// AdapterCellsPerRank is the memory of one rank of an adapter in KV tokens, with scheduler slora: 4 where
	// adapters have the projections q, k, v and o.
	AdapterCellsPerRank int `yaml:"adapter_cells_per_rank,omitempty" is:">=0 <=1000"`

	ContextLength   int    `yaml:"context_length" is:">0"` // maximum tokens of prompt and output
	ContextOverflow string `yaml:"context_overflow" is:"reject|prompt|ignore"`
	PageSize        int    `yaml:"page_size" is:">0"` // KV tokens per page

	MaxLorasPerBatch int `yaml:"max_loras_per_batch" is:">0"` // GPU adapter slots; the base model takes one
	// MaxLoadedLoras is the number of adapters in host memory. 0: no limit; scheduler vllm: max_loras_per_batch.
	MaxLoadedLoras int    `yaml:"max_loaded_loras" is:">=0"`
	MaxLoraRank    int    `yaml:"max_lora_rank" is:">0"` // rank the slots are allocated for
	HeadOfLine     string `yaml:"head_of_line" is:"skip|block"`
	// LoraDrainWait is the waiting time in s after which a request without a slot makes the scheduler drain a
	// running adapter (lora_drain_wait_threshold). 0: disabled.
	LoraDrainWait   float64 `yaml:"lora_drain_wait_threshold" is:">=0"`
	AdapterLoading  string  `yaml:"adapter_loading" is:"blocking|overlapped"`
	AdapterEviction string  `yaml:"adapter_eviction" is:"lru|fifo"`

	// NewTokenRatio is the share of its remaining budget that a running request is expected to use. It falls
	// to NewTokenRatio * NewTokenRatioMin over NewTokenRatioSteps decode steps, and is re-estimated after a
	// retraction.
	NewTokenRatio      float64 `yaml:"new_token_ratio" is:">0 <=1"`
	NewTokenRatioMin   float64 `yaml:"new_token_ratio_min" is:">=0 <=1"`
	NewTokenRatioSteps int64   `yaml:"new_token_ratio_steps" is:">0"`
	// ClipNewTokens caps the budget the scheduler reserves for one request.
	ClipNewTokens int `yaml:"clip_new_tokens" is:">0"`

	// SchedulePolicy is the order of the waiting queue: fcfs (or ""), priority, vtc, lifo.
	SchedulePolicy string `yaml:"schedule_policy,omitempty" is:"fcfs|priority|vtc|lifo|"`
	// EnableAbort is S-LoRA's early abort: requests that would miss a TTFT of 6 s are rejected, and the latest
	// requests are served first while the queue grows.
	EnableAbort bool `yaml:"enable_abort,omitempty"`
	// Priorities under scheduler sglang. Large values come first, unless LowPriorityFirst is set. If the
	// batch is full, a request preempts running requests whose priority is worse by more than
	// PreemptionThreshold, unless NoPriorityPreemption is set.
	LowPriorityFirst     bool `yaml:"schedule_low_priority_values_first,omitempty"`
	NoPriorityPreemption bool `yaml:"disable_priority_preemption,omitempty"`
	PreemptionThreshold  int  `yaml:"priority_scheduling_preemption_threshold" is:">=0"`
	// Limits above which requests are rejected; 0: none. MaxQueuedRequests (sglang) counts requests in the
	// queue. MaxNumQueuedReqs (vLLM) counts all requests on the worker, and MaxNumQueuedTokens (vLLM) the
	// prompt tokens of requests without a first token.
	MaxQueuedRequests  int   `yaml:"max_queued_requests,omitempty" is:">=0"`
	MaxNumQueuedReqs   int   `yaml:"max_num_queued_reqs,omitempty" is:">=0"`
	MaxNumQueuedTokens int64 `yaml:"max_num_queued_tokens,omitempty" is:">=0"`

	// MixedChunk makes prefill steps also decode the running requests (enable_mixed_chunk).
	MixedChunk bool `yaml:"enable_mixed_chunk"`
	// IgnoreEOS makes requests run to their budget, and the scheduler reserves memory accordingly.
	IgnoreEOS bool `yaml:"ignore_eos"`
	// DisableRadixCache disables sglang's radix cache. It matters with IgnoreEOS, where sglang then reserves
	// memory by another rule. If it is false and PrefixCache is false too, no two prompts share a prefix.
	DisableRadixCache bool `yaml:"disable_radix_cache"`
	// PrefixCache keeps computed prompts. A prompt with the same adapter and the same beginning reuses them.
	PrefixCache bool `yaml:"prefix_cache"`
	// PrefixEviction is the eviction unit of the prefix cache: pages (only the pages that are needed), or
	// nodes (whole nodes of the tree, as in sglang). vLLM evicts pages.
	PrefixEviction string `yaml:"prefix_eviction" is:"pages|nodes"`
}

// Adapters holds the sizes of adapters and the times to move them.
type Adapters struct {
	BytesPerRank float64 `yaml:"bytes_per_rank" is:">=0"`
	DefaultRank  int     `yaml:"default_rank" is:">0"` // rank of adapters without one in the workload
	// Stages of a load. An adapter passes every stage from the place of its weights to the GPU.
	HostToGPU    Stage `yaml:"host_to_gpu"`
	DiskToHost   Stage `yaml:"disk_to_host"`
	RemoteToHost Stage `yaml:"remote_to_host"`
	// Network carries KV caches between workers.
	Network Stage `yaml:"network"`
}

// A Stage is one hop of a transfer. It takes LatencyMs + bytes/GBPerS.
type Stage struct {
	LatencyMs float64 `yaml:"latency_ms" is:">=0"`
	GBPerS    float64 `yaml:"gb_per_s" is:">0"`
}

// A Validation is one line of a profile's validation table.
type Validation struct {
	Runs           string  `yaml:"runs" json:"runs"`
	Metric         string  `yaml:"metric" json:"metric"`
	MedianAbsError float64 `yaml:"median_abs_error" json:"median_abs_error"` // fraction
	P90AbsError    float64 `yaml:"p90_abs_error,omitempty" json:"p90_abs_error"`
}

//go:embed *.yaml profiles/*.yaml
var embedded embed.FS

// part decodes a file that is embedded in the binary.
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

// Default returns the settings that [Parse] starts from: those of scheduler sglang.
func Default() Profile { return defaults() }

// UseVLLM sets scheduler vllm with the defaults of vLLM 0.32. They are those of the API server on a GPU with
// less than 70 GiB (engine/arg_utils.py, get_batch_defaults). Larger GPUs except the A100 use max_num_seqs
// 1024 and max_num_batched_tokens 8192. Settings of the hardware or the deployment stay: slots, ranks,
// context length.
func (e *Engine) UseVLLM() {
	e.Scheduler, e.HeadOfLine, e.AdapterLoading, e.AdapterEviction = SchedulerVLLM, HeadOfLineSkip, LoadBlocking,
		EvictLRU
	e.PrefixEviction, e.OverlapSchedule = EvictPages, false
	e.MaxRunningRequests, e.MaxNumBatchedTokens, e.PageSize, e.MaxLoadedLoras = 256, 2048, 16, 0
}

// defaultVLLM is [Default] for scheduler vllm. The number and the rank of slots are the defaults of vLLM's
// config/lora.py.
func defaultVLLM() Profile {
	p := Default()
	p.Engine.UseVLLM()
	p.Engine.MaxLorasPerBatch, p.Engine.MaxLoraRank = 1, 16
	return p
}

// HostLoras returns the number of adapters that fit in host memory; 0: no limit. vLLM's max_cpu_loras is
// max_loras unless set (config/lora.py, _validate_lora_config).
func (e *Engine) HostLoras() int {
	switch {
	case e.Scheduler == SchedulerSLoRA:
		return 0
	case e.MaxLoadedLoras == 0 && e.Scheduler == SchedulerVLLM:
		return e.MaxLorasPerBatch
	}
	return e.MaxLoadedLoras
}

// Load returns a profile by name or file. nameOrFile is, in this order, "analytic:MODEL,GPU[,OPTION...]"
// (see [Analytic]), the name or an alias of an embedded profile, a YAML file, or the name of a GPU (see
// [ForGPU]). ctx ends the wait for a file that is a pipe.
func Load(ctx context.Context, nameOrFile string) (*Profile, error) {
	if spec, ok := strings.CutPrefix(nameOrFile, AnalyticPrefix); ok {
		a, err := parseAnalytic(spec)
		if err != nil {
			return nil, fmt.Errorf("profile %q: %w", nameOrFile, err)
		}
		return a.Profile()
	}
	if IsEmbedded(nameOrFile) {
		return Embedded(nameOrFile)
	}
	data, err := textfile.ReadFile(ctx, nameOrFile, yamlfile.MaxBytes)
	if os.IsNotExist(err) {
		switch list := ForGPU(nameOrFile); len(list) {
		case 0:
		case 1:
			return Load(ctx, list[0])
		default:
			return nil, fmt.Errorf("profile %q fits several profiles, choose one:\n  %s", nameOrFile,
				strings.Join(Choices(ctx, list), "\n  "))
		}
		if ext := filepath.Ext(nameOrFile); !strings.ContainsAny(nameOrFile, "/\\") && ext != ".yaml" && ext != ".yml" {
			return nil, unknown(nameOrFile)
		}
	}
	if err != nil {
		return nil, err
	}
	return Parse(data, nameOrFile)
}

// parsed has the embedded profiles that were read, by their names.
var parsed sync.Map

// Embedded returns the embedded profile with a name or alias. The caller may change fields of the profile, but not the
// elements of its lists.
func Embedded(name string) (*Profile, error) {
	file := "profiles/" + Canonical(name) + ".yaml"
	known, ok := parsed.Load(file)
	if !ok {
		data, err := embedded.ReadFile(file)
		if err != nil {
			return nil, err
		}
		p, err := Parse(data, name)
		if err != nil {
			return nil, err
		}
		known, _ = parsed.LoadOrStore(file, p)
	}
	p := *known.(*Profile)
	p.Validation = slices.Clip(p.Validation) // what one caller appends is not in the profile of another one
	return &p, nil
}

// unknown returns the error of a text that names no profile, with the profile whose name or alias is similar.
func unknown(text string) error {
	hint := ""
	if near := suggest.Likely(text, withAliases()); near != "" {
		hint = fmt.Sprintf(", did you mean %q?", Canonical(near))
		if near != Canonical(near) {
			hint = fmt.Sprintf(", did you mean %q (alias %q)?", Canonical(near), near)
		}
	}
	return fmt.Errorf("profile %q: neither an embedded profile (%s) nor a GPU (%s) nor a file nor %sMODEL,GPU%s",
		text, strings.Join(Names(), ", "), strings.Join(names(GPUs(), (*GPU).name), ", "), AnalyticPrefix, hint)
}

// Parse reads a profile from YAML, on top of the defaults of its scheduler. Errors name the source as where.
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

// YAML returns the whole profile as YAML, which [Parse] reads back.
func (p *Profile) YAML() ([]byte, error) {
	return yaml.MarshalWithOptions(p, yaml.Indent(2))
}
