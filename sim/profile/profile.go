// Package profile describes one kind of worker: how long its steps take, how
// much memory it has, and how its scheduler is set up.
//
// A profile is a YAML file; several are embedded (see [Names]). It is the only
// place where a prediction's numbers come from, so each says where it got them
// and how well it predicts. [Profile.Compile] turns one into integer step
// costs for the simulator.
//
//	p, err := profile.Load("llama2-7b-24gb")
//	costs := p.Compile()
package profile

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Profile is one kind of worker.
type Profile struct {
	Name   string `yaml:"name"`
	Model  string `yaml:"model"`
	GPU    string `yaml:"gpu"`
	Source string `yaml:"source"` // where the numbers come from
	// Uncalibrated marks a profile that was never held against a measured run.
	Uncalibrated bool `yaml:"uncalibrated,omitempty"`

	Latency  Latency  `yaml:"latency"`
	Memory   Memory   `yaml:"memory"`
	Engine   Engine   `yaml:"engine"`
	Adapters Adapters `yaml:"adapters"`

	// Validation lists how well the profile predicted runs it was not fitted on.
	Validation []Validation `yaml:"validation,omitempty"`
}

// Latency holds the coefficients of the step-time model:
//
//	decode step  = base + per_request*B + per_kv_token*sum(ctx) + lora
//	prefill step = (base + per_token*tokens + per_token_ctx*sum(tokens*ctx))
//	               * first_wave_factor (steps before the worker's first decode)
//	               * (1 + lora.prefill_factor * share of adapter tokens)
//	               + first_extend (once, where a chunked prompt goes on)
//
// with B running requests and ctx the KV tokens of each: law phases. AdapterLaw
// has the other one.
type Latency struct {
	Law     string  `yaml:"law,omitempty"` // "": phases
	Decode  Decode  `yaml:"decode"`
	Prefill Prefill `yaml:"prefill"`
	LoRA    LoRA    `yaml:"lora"`
	// Adapters holds the coefficients of law adapters.
	Adapters AdapterLaw `yaml:"adapters,omitempty"`
	FrontEnd FrontEnd   `yaml:"front_end,omitempty"`
	// RequestOverheadMs is spent outside the engine on every request (HTTP,
	// tokenizer, detokenizer); it delays all its tokens.
	RequestOverheadMs float64 `yaml:"request_overhead_ms"`
}

// Decode holds the coefficients of a decode step.
type Decode struct {
	BaseMs       float64 `yaml:"base_ms"`
	PerRequestMs float64 `yaml:"per_request_ms"`
	PerKVTokenUs float64 `yaml:"per_kv_token_us"`
}

// Prefill holds the coefficients of a prefill step.
type Prefill struct {
	BaseMs     float64 `yaml:"base_ms"`
	PerTokenUs float64 `yaml:"per_token_us"`
	// PerTokenCtxNs is the attention term: ns per prompt token and token of
	// context before it.
	PerTokenCtxNs float64 `yaml:"per_token_ctx_ns,omitempty"`
	// FirstWaveFactor multiplies prefill steps before the first decode step of
	// a worker (kernel compilation and autotuning); 0 or 1: no effect.
	FirstWaveFactor float64 `yaml:"first_wave_factor,omitempty"`
	// FirstExtendMs is spent once, in a worker's first prefill step that goes on
	// with a partly prefilled prompt: the kernels that attend to cached context
	// are compiled then.
	FirstExtendMs float64 `yaml:"first_extend_ms,omitempty"`
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
)

var allBackends = []string{BackendNone, BackendCSGMV, BackendTriton, BackendMerged, BackendDLoRA, BackendPunica, BackendNative}

// LoRA holds what adapters add to a step; B counts the running requests that
// use an adapter, r_max is the largest rank among them.
type LoRA struct {
	Backend string `yaml:"backend"`
	// What the kernels of a backend add to a decode step; 0: not known, so that
	// the backend cannot be used. csgmv works through all segments of the batch
	// side by side, each loading the weights of its own rank, and takes as long as
	// the largest: us per rank. triton's grid covers every request up to the
	// largest rank: us per request and rank.
	CSGMVUs  float64 `yaml:"csgmv_us,omitempty"`
	TritonUs float64 `yaml:"triton_us,omitempty"`

	PrefillFactor float64 `yaml:"prefill_factor,omitempty"`

	// Backends merged and dlora: what a change of the mode takes, and what an
	// unmerged decode step takes more than a merged one.
	SwitchMs   float64 `yaml:"switch_ms,omitempty"`
	UnmergedMs float64 `yaml:"unmerged_ms,omitempty"`
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
	KVTokens int64 `yaml:"kv_tokens,omitempty"`
	// KVTable is the capacity as measured, by slots and their rank.
	KVTable []KVCurve `yaml:"kv_table,omitempty"`
	// PoolGiB is what weights, activations and graphs leave for KV cache and
	// adapter slots.
	PoolGiB float64 `yaml:"pool_gib,omitempty"`
	// KVBytesPerToken is the size of one token's keys and values.
	KVBytesPerToken int64 `yaml:"kv_bytes_per_token,omitempty"`
}

// Schedulers and choices of the engine.
const (
	SchedulerSGLang = "sglang" // prefill steps first, else decode steps
	SchedulerVLLM   = "vllm"   // every step decodes and takes prompt chunks

	HeadOfLineSkip  = "skip"  // requests whose adapter finds no slot are passed over
	HeadOfLineBlock = "block" // the first of them stops the queue, as in old versions of sglang

	LoadBlocking   = "blocking"   // no step runs while an adapter loads
	LoadOverlapped = "overlapped" // steps go on; requests of the adapter wait

	EvictLRU  = "lru"
	EvictFIFO = "fifo"

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
	Scheduler          string `yaml:"scheduler"`
	MaxRunningRequests int    `yaml:"max_running_requests"`
	ChunkedPrefillSize int    `yaml:"chunked_prefill_size"` // tokens of a prefill step; 0: unlimited
	MaxPrefillTokens   int    `yaml:"max_prefill_tokens"`
	// MaxNumBatchedTokens is the token budget of a step of scheduler vllm, whose
	// running requests take one each and prompts the rest.
	MaxNumBatchedTokens int `yaml:"max_num_batched_tokens"`
	// LongPrefillTokenThreshold is the most tokens of one prompt that a step of
	// scheduler vllm takes while there are other requests; 0: no limit.
	LongPrefillTokenThreshold int `yaml:"long_prefill_token_threshold,omitempty"`
	// NoChunkedPrefill and NoReserveFullISL turn off two of vLLM's defaults:
	// prompts that a step takes in part, and a request being let in only where
	// all its tokens find memory, not just those of the first step. Versions
	// without scheduler_reserve_full_isl (0.8.5, for one) have the latter off.
	NoChunkedPrefill bool `yaml:"no_chunked_prefill,omitempty"`
	NoReserveFullISL bool `yaml:"no_reserve_full_isl,omitempty"`

	ContextLength   int    `yaml:"context_length"`
	ContextOverflow string `yaml:"context_overflow"`
	PageSize        int    `yaml:"page_size"` // KV tokens per page

	MaxLorasPerBatch int    `yaml:"max_loras_per_batch"` // GPU adapter slots; the base model takes one
	MaxLoadedLoras   int    `yaml:"max_loaded_loras"`    // adapters in host memory; 0: no limit, scheduler vllm: max_loras_per_batch
	MaxLoraRank      int    `yaml:"max_lora_rank"`       // rank the slots are allocated for
	HeadOfLine       string `yaml:"head_of_line"`
	// LoraDrainWait is the age in s at which a request that finds no slot has a
	// running adapter make way (lora_drain_wait_threshold); 0: never.
	LoraDrainWait   float64 `yaml:"lora_drain_wait_threshold"`
	AdapterLoading  string  `yaml:"adapter_loading"`
	AdapterEviction string  `yaml:"adapter_eviction"`

	// NewTokenRatio is the share of its remaining budget a running request is
	// expected to still use; it falls to NewTokenRatioMin * itself over
	// NewTokenRatioSteps decode steps and is re-estimated after a retraction.
	NewTokenRatio      float64 `yaml:"new_token_ratio"`
	NewTokenRatioMin   float64 `yaml:"new_token_ratio_min"`
	NewTokenRatioSteps int64   `yaml:"new_token_ratio_steps"`
	// ClipNewTokens caps the budget the scheduler reserves for one request.
	ClipNewTokens int `yaml:"clip_new_tokens"`

	// MixedChunk has prefill steps take the running requests along
	// (enable_mixed_chunk).
	MixedChunk bool `yaml:"enable_mixed_chunk"`
	// IgnoreEOS: requests run to their budget, and the scheduler knows it.
	IgnoreEOS bool `yaml:"ignore_eos"`
	// DisableRadixCache matters with IgnoreEOS, where sglang then reserves
	// memory by another rule; shared prefixes are not simulated either way.
	DisableRadixCache bool `yaml:"disable_radix_cache"`
}

// Adapters says how big adapters are and how long moving them takes.
type Adapters struct {
	BytesPerRank float64 `yaml:"bytes_per_rank"`
	DefaultRank  int     `yaml:"default_rank"` // for adapters whose rank the workload does not state
	// A load passes every stage from where the weights lie to the GPU.
	HostToGPU    Stage `yaml:"host_to_gpu"`
	DiskToHost   Stage `yaml:"disk_to_host"`
	RemoteToHost Stage `yaml:"remote_to_host"`
	// Network carries KV caches from worker to worker.
	Network Stage `yaml:"network"`
}

// Stage is one hop of an adapter's way: latency + bytes/bandwidth.
type Stage struct {
	LatencyMs float64 `yaml:"latency_ms"`
	GBPerS    float64 `yaml:"gb_per_s"`
}

// Validation is one line of a profile's validation table.
type Validation struct {
	Runs           string  `yaml:"runs"`
	Metric         string  `yaml:"metric"`
	MedianAbsError float64 `yaml:"median_abs_error"` // fraction
	P90AbsError    float64 `yaml:"p90_abs_error,omitempty"`
}

// Default returns the settings a profile file starts from: sglang's own
// defaults, and loading times measured on commodity servers.
func Default() Profile {
	return Profile{
		Latency: Latency{Prefill: Prefill{FirstWaveFactor: 1}, LoRA: LoRA{Backend: BackendNone, SwitchCredit: 256, CreditScale: 10000}},
		Engine: Engine{
			Scheduler:           SchedulerSGLang,
			MaxRunningRequests:  256,
			ChunkedPrefillSize:  8192,
			MaxPrefillTokens:    16384,
			MaxNumBatchedTokens: 2048,
			ContextLength:       4096,
			ContextOverflow:     OverflowReject,
			PageSize:            1,
			MaxLorasPerBatch:    8,
			MaxLoraRank:         64,
			HeadOfLine:          HeadOfLineSkip,
			AdapterLoading:      LoadBlocking,
			AdapterEviction:     EvictLRU,
			NewTokenRatio:       0.7,
			NewTokenRatioMin:    0.14,
			NewTokenRatioSteps:  600,
			ClipNewTokens:       4096,
		},
		Adapters: Adapters{
			BytesPerRank: 5.0e6,
			DefaultRank:  16,
			HostToGPU:    Stage{LatencyMs: 2, GBPerS: 20},
			DiskToHost:   Stage{LatencyMs: 50, GBPerS: 1.5},
			RemoteToHost: Stage{LatencyMs: 200, GBPerS: 0.2},
			Network:      Stage{LatencyMs: 1, GBPerS: 12.5},
		},
	}
}

// UseVLLM sets the scheduler to vLLM's with the defaults of vLLM 0.32, those of
// the API server on a GPU of less than 70 GiB (engine/arg_utils.py,
// get_batch_defaults; larger ones but the A100 take max_num_seqs 1024 and
// max_num_batched_tokens 8192). What the hardware or the deployment decides
// stays: slots, ranks, context length.
func (e *Engine) UseVLLM() {
	e.Scheduler = SchedulerVLLM
	e.MaxRunningRequests = 256
	e.MaxNumBatchedTokens = 2048
	e.PageSize = 16
	e.MaxLoadedLoras = 0
	e.HeadOfLine = HeadOfLineSkip
	e.AdapterLoading = LoadBlocking
	e.AdapterEviction = EvictLRU
}

// DefaultVLLM is Default for a profile of scheduler vllm. LoRA slots and rank
// are those of vLLM's config/lora.py.
func DefaultVLLM() Profile {
	p := Default()
	p.Engine.UseVLLM()
	p.Engine.MaxLorasPerBatch, p.Engine.MaxLoraRank = 1, 16
	return p
}

// HostLoras is the number of adapters in host memory, 0: no limit. vLLM's
// max_cpu_loras is max_loras unless set (config/lora.py, _validate_lora_config).
func (e *Engine) HostLoras() int {
	if e.MaxLoadedLoras == 0 && e.Scheduler == SchedulerVLLM {
		return e.MaxLorasPerBatch
	}
	return e.MaxLoadedLoras
}

// Check says what is wrong with a profile, or nil; the first fault by field.
func (p *Profile) Check() error {
	for _, c := range []struct {
		field string
		v     float64
	}{
		{"latency.decode.base_ms", p.Latency.Decode.BaseMs},
		{"latency.decode.per_request_ms", p.Latency.Decode.PerRequestMs},
		{"latency.decode.per_kv_token_us", p.Latency.Decode.PerKVTokenUs},
		{"latency.prefill.base_ms", p.Latency.Prefill.BaseMs},
		{"latency.prefill.per_token_us", p.Latency.Prefill.PerTokenUs},
		{"latency.prefill.per_token_ctx_ns", p.Latency.Prefill.PerTokenCtxNs},
		{"latency.prefill.first_wave_factor", p.Latency.Prefill.FirstWaveFactor},
		{"latency.prefill.first_extend_ms", p.Latency.Prefill.FirstExtendMs},
		{"latency.lora.csgmv_us", p.Latency.LoRA.CSGMVUs},
		{"latency.lora.triton_us", p.Latency.LoRA.TritonUs},
		{"latency.lora.prefill_factor", p.Latency.LoRA.PrefillFactor},
		{"latency.lora.switch_ms", p.Latency.LoRA.SwitchMs},
		{"latency.lora.unmerged_ms", p.Latency.LoRA.UnmergedMs},
		{"latency.request_overhead_ms", p.Latency.RequestOverheadMs},
		{"latency.front_end.per_request_ms", p.Latency.FrontEnd.PerRequestMs},
		{"latency.front_end.first_use_ms", p.Latency.FrontEnd.FirstUseMs},
		{"memory.pool_gib", p.Memory.PoolGiB},
		{"memory.kv_tokens", float64(p.Memory.KVTokens)},
		{"engine.lora_drain_wait_threshold", p.Engine.LoraDrainWait},
		{"engine.chunked_prefill_size", float64(p.Engine.ChunkedPrefillSize)},
		{"engine.max_loaded_loras", float64(p.Engine.MaxLoadedLoras)},
		{"engine.long_prefill_token_threshold", float64(p.Engine.LongPrefillTokenThreshold)},
		{"adapters.bytes_per_rank", p.Adapters.BytesPerRank},
		{"adapters.host_to_gpu.latency_ms", p.Adapters.HostToGPU.LatencyMs},
		{"adapters.disk_to_host.latency_ms", p.Adapters.DiskToHost.LatencyMs},
		{"adapters.remote_to_host.latency_ms", p.Adapters.RemoteToHost.LatencyMs},
		{"adapters.network.latency_ms", p.Adapters.Network.LatencyMs},
	} {
		if !(c.v >= 0) || math.IsInf(c.v, 0) {
			return fmt.Errorf("%s is %v, expected a number >= 0", c.field, c.v)
		}
	}
	for _, c := range []struct {
		field string
		v     float64
	}{
		{"engine.max_running_requests", float64(p.Engine.MaxRunningRequests)},
		{"engine.max_prefill_tokens", float64(p.Engine.MaxPrefillTokens)},
		{"engine.max_num_batched_tokens", float64(p.Engine.MaxNumBatchedTokens)},
		{"engine.context_length", float64(p.Engine.ContextLength)},
		{"engine.page_size", float64(p.Engine.PageSize)},
		{"engine.max_loras_per_batch", float64(p.Engine.MaxLorasPerBatch)},
		{"engine.max_lora_rank", float64(p.Engine.MaxLoraRank)},
		{"engine.new_token_ratio_steps", float64(p.Engine.NewTokenRatioSteps)},
		{"engine.clip_new_tokens", float64(p.Engine.ClipNewTokens)},
		{"adapters.default_rank", float64(p.Adapters.DefaultRank)},
		{"adapters.host_to_gpu.gb_per_s", p.Adapters.HostToGPU.GBPerS},
		{"adapters.disk_to_host.gb_per_s", p.Adapters.DiskToHost.GBPerS},
		{"adapters.remote_to_host.gb_per_s", p.Adapters.RemoteToHost.GBPerS},
		{"adapters.network.gb_per_s", p.Adapters.Network.GBPerS},
	} {
		if !(c.v > 0) || math.IsInf(c.v, 0) {
			return fmt.Errorf("%s is %v, expected a number > 0", c.field, c.v)
		}
	}
	for _, c := range []struct {
		field, v string
		known    []string
	}{
		{"latency.law", p.Latency.Law, []string{LawPhases, LawAdapters, ""}},
		{"engine.scheduler", p.Engine.Scheduler, []string{SchedulerSGLang, SchedulerVLLM}},
		{"engine.context_overflow", p.Engine.ContextOverflow, []string{OverflowReject, OverflowPrompt, OverflowIgnore}},
		{"engine.head_of_line", p.Engine.HeadOfLine, []string{HeadOfLineSkip, HeadOfLineBlock}},
		{"engine.adapter_loading", p.Engine.AdapterLoading, []string{LoadBlocking, LoadOverlapped}},
		{"engine.adapter_eviction", p.Engine.AdapterEviction, []string{EvictLRU, EvictFIFO}},
		{"latency.lora.backend", p.Latency.LoRA.Backend, allBackends},
	} {
		if !slices.Contains(c.known, c.v) {
			return fmt.Errorf("%s is %q, expected one of: %s", c.field, c.v, strings.Join(c.known, ", "))
		}
	}
	if b := p.Latency.LoRA.Backend; b == BackendMerged || b == BackendDLoRA {
		if p.Engine.Scheduler != SchedulerSGLang {
			return fmt.Errorf("latency.lora.backend %s needs engine.scheduler %s", b, SchedulerSGLang)
		}
		if c := p.Latency.LoRA.SwitchCredit; c < 1 || c > 1e12 {
			return fmt.Errorf("latency.lora.switch_credit is %d, expected 1 to 10^12", c)
		}
		if c := p.Latency.LoRA.CreditScale; b == BackendDLoRA && (c < 1 || c > 1e6) {
			return fmt.Errorf("latency.lora.credit_scale is %d, expected 1 to 10^6", c)
		}
	}
	if r := p.Engine.NewTokenRatio; !(r > 0 && r <= 1) {
		return fmt.Errorf("engine.new_token_ratio is %v, expected a number in (0, 1]", r)
	}
	if r := p.Engine.NewTokenRatioMin; !(r >= 0 && r <= 1) {
		return fmt.Errorf("engine.new_token_ratio_min is %v, expected a number in [0, 1]", r)
	}
	if err := p.Latency.checkLaw(&p.Engine); err != nil {
		return err
	}
	if err := checkKVTable(p.Memory.KVTable); err != nil {
		return err
	}
	if e := &p.Engine; e.Scheduler == SchedulerVLLM && e.MaxNumBatchedTokens < e.MaxRunningRequests {
		return fmt.Errorf("engine.max_num_batched_tokens is %d, expected at least max_running_requests (%d), since every running request takes one token",
			e.MaxNumBatchedTokens, e.MaxRunningRequests)
	}
	if e := &p.Engine; e.NoChunkedPrefill && e.MaxNumBatchedTokens < e.ContextLength { // as SchedulerConfig.verify_max_model_len
		return fmt.Errorf("engine.max_num_batched_tokens is %d, expected at least context_length (%d) with no_chunked_prefill",
			e.MaxNumBatchedTokens, e.ContextLength)
	}
	if e := &p.Engine; e.MixedChunk && (e.Scheduler != SchedulerSGLang || p.Latency.LoRA.Backend == BackendMerged || p.Latency.LoRA.Backend == BackendDLoRA) {
		return fmt.Errorf("engine.enable_mixed_chunk needs engine.scheduler %s and a backend that runs all adapters together", SchedulerSGLang)
	} else if e.MixedChunk && (e.ChunkedPrefillSize > 0 && e.ChunkedPrefillSize <= e.MaxRunningRequests || e.MaxPrefillTokens <= e.MaxRunningRequests) {
		return fmt.Errorf("engine.enable_mixed_chunk needs chunked_prefill_size (%d) and max_prefill_tokens (%d) above max_running_requests (%d), since every running request takes one token of a step",
			e.ChunkedPrefillSize, e.MaxPrefillTokens, e.MaxRunningRequests)
	}
	if n, err := p.KVTokens(); err != nil {
		return err
	} else if n < int64(p.Engine.PageSize) {
		return fmt.Errorf("the KV cache holds %d tokens, less than one page of %d", n, p.Engine.PageSize)
	}
	return nil
}

// knows says whether there are coefficients of a backend.
func (l *Latency) knows(backend string) bool {
	phases := l.Law != LawAdapters
	switch backend {
	case BackendNone:
		return true
	case BackendCSGMV:
		return phases && l.LoRA.CSGMVUs > 0
	case BackendTriton:
		return phases && l.LoRA.TritonUs > 0
	case BackendMerged:
		return phases && l.LoRA.SwitchMs > 0
	case BackendDLoRA:
		return phases && l.LoRA.SwitchMs > 0 && l.LoRA.UnmergedMs > 0
	}
	return !phases
}

// backends are those that the profile has coefficients of.
func (l *Latency) backends() (known []string) {
	for _, b := range allBackends {
		if l.knows(b) {
			known = append(known, b)
		}
	}
	return known
}

// checkLaw says what is wrong with the law of the step times, or nil.
func (l *Latency) checkLaw(e *Engine) error {
	if !l.knows(l.LoRA.Backend) {
		return fmt.Errorf("latency.lora.backend is %s, for which the profile has no coefficients; it has those of: %s", l.LoRA.Backend, strings.Join(l.backends(), ", "))
	}
	switch {
	case l.Law == LawAdapters:
		return l.Adapters.check(e, l.LoRA.Backend)
	case l.Decode.BaseMs == 0 && l.Decode.PerRequestMs == 0:
		return errors.New("latency.decode.base_ms and per_request_ms are both 0: a decode step would take no time")
	case l.Prefill.BaseMs == 0 && l.Prefill.PerTokenUs == 0:
		return errors.New("latency.prefill.base_ms and per_token_us are both 0: a prefill step would take no time")
	}
	return nil
}

// KVTokens is the capacity of the KV cache in tokens: stated, from the table, or
// what the adapter slots leave of the pool.
func (p *Profile) KVTokens() (int64, error) {
	if p.Memory.KVTokens > 0 {
		return p.Memory.KVTokens, nil
	}
	if len(p.Memory.KVTable) > 0 {
		if p.Latency.LoRA.Backend == BackendNone {
			return kvFromTable(p.Memory.KVTable, 0, p.Memory.KVTable[0].Rank)
		}
		return kvFromTable(p.Memory.KVTable, p.Engine.MaxLorasPerBatch, p.Engine.MaxLoraRank)
	}
	if p.Memory.PoolGiB <= 0 || p.Memory.KVBytesPerToken <= 0 {
		return 0, errors.New("memory: expected kv_tokens, or pool_gib and kv_bytes_per_token")
	}
	pool := p.Memory.PoolGiB * (1 << 30)
	slots := 0.0
	if p.Latency.LoRA.Backend != BackendNone {
		slots = float64(p.Engine.MaxLorasPerBatch) * float64(p.Engine.MaxLoraRank) * p.Adapters.BytesPerRank
	}
	n := int64((pool - slots) / float64(p.Memory.KVBytesPerToken))
	if n <= 0 {
		return 0, fmt.Errorf("memory: %d adapter slots of rank %d take %.1f GiB, more than pool_gib %.1f leaves",
			p.Engine.MaxLorasPerBatch, p.Engine.MaxLoraRank, slots/(1<<30), p.Memory.PoolGiB)
	}
	return n, nil
}
