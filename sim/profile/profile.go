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
// with B running requests and ctx the KV tokens of each.
type Latency struct {
	Decode  Decode  `yaml:"decode"`
	Prefill Prefill `yaml:"prefill"`
	LoRA    LoRA    `yaml:"lora"`
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
	BackendNone   = "none"   // adapters cost nothing
	BackendCSGMV  = "csgmv"  // decode: coefficient * sqrt(B * r_max)
	BackendTriton = "triton" // decode: coefficient * B * r_max
	BackendMerged = "merged" // one adapter at a time, merged into the weights
	BackendDLoRA  = "dlora"  // merged, or all together at a cost for each step, by credits
)

// LoRA holds what adapters add to a step; B counts the running requests that
// use an adapter, r_max is the largest rank among them.
type LoRA struct {
	Backend       string  `yaml:"backend"`
	DecodeUs      float64 `yaml:"decode_us,omitempty"` // coefficient of the backend's term
	PrefillFactor float64 `yaml:"prefill_factor,omitempty"`

	// Backends merged and dlora: what a change of the mode takes, what an
	// unmerged decode step takes more than a merged one, and the credits that
	// end a merged mode (a decode step gives an adapter one for each of its
	// requests that it passes over).
	SwitchMs     float64 `yaml:"switch_ms,omitempty"`
	UnmergedMs   float64 `yaml:"unmerged_ms,omitempty"`
	SwitchCredit int64   `yaml:"switch_credit,omitempty"`
}

// Memory is the KV cache of a worker. Adapter slots are allocated beside it at
// the largest rank, whatever the rank of the adapters in them.
type Memory struct {
	// KVTokens is the capacity in tokens; 0: derived from PoolGiB.
	KVTokens int64 `yaml:"kv_tokens,omitempty"`
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

	HeadOfLineBlock = "block" // the first request that does not fit stops the queue
	HeadOfLineSkip  = "skip"  // requests whose adapter finds no slot are passed over

	LoadBlocking   = "blocking"   // no step runs while an adapter loads
	LoadOverlapped = "overlapped" // steps go on; requests of the adapter wait

	EvictLRU  = "lru"
	EvictFIFO = "fifo"

	// OverflowReject refuses prompt + max_new_tokens > context_length.
	OverflowReject = "reject"
	// OverflowPrompt refuses only prompts >= context_length.
	OverflowPrompt = "prompt"
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
	MaxNumBatchedTokens int    `yaml:"max_num_batched_tokens"`
	ContextLength       int    `yaml:"context_length"`
	ContextOverflow     string `yaml:"context_overflow"`
	PageSize            int    `yaml:"page_size"` // KV tokens per page

	MaxLorasPerBatch int     `yaml:"max_loras_per_batch"` // GPU adapter slots; the base model takes one
	MaxLoadedLoras   int     `yaml:"max_loaded_loras"`    // adapters in host memory; 0: no limit
	MaxLoraRank      int     `yaml:"max_lora_rank"`       // rank the slots are allocated for
	HeadOfLine       string  `yaml:"head_of_line"`
	StarvationS      float64 `yaml:"starvation_s"` // head_of_line skip: age at which a waiter is given a slot
	AdapterLoading   string  `yaml:"adapter_loading"`
	AdapterEviction  string  `yaml:"adapter_eviction"`

	// NewTokenRatio is the share of its remaining budget a running request is
	// expected to still use; it falls to NewTokenRatioMin * itself over
	// NewTokenRatioSteps decode steps and is re-estimated after a retraction.
	NewTokenRatio      float64 `yaml:"new_token_ratio"`
	NewTokenRatioMin   float64 `yaml:"new_token_ratio_min"`
	NewTokenRatioSteps int64   `yaml:"new_token_ratio_steps"`
	// ClipNewTokens caps the budget the scheduler reserves for one request.
	ClipNewTokens int `yaml:"clip_new_tokens"`
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
		Latency: Latency{Prefill: Prefill{FirstWaveFactor: 1}, LoRA: LoRA{Backend: BackendNone, SwitchCredit: 256}},
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
			HeadOfLine:          HeadOfLineBlock,
			StarvationS:         3,
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
		{"latency.lora.decode_us", p.Latency.LoRA.DecodeUs},
		{"latency.lora.prefill_factor", p.Latency.LoRA.PrefillFactor},
		{"latency.lora.switch_ms", p.Latency.LoRA.SwitchMs},
		{"latency.lora.unmerged_ms", p.Latency.LoRA.UnmergedMs},
		{"latency.request_overhead_ms", p.Latency.RequestOverheadMs},
		{"memory.pool_gib", p.Memory.PoolGiB},
		{"memory.kv_tokens", float64(p.Memory.KVTokens)},
		{"engine.starvation_s", p.Engine.StarvationS},
		{"engine.chunked_prefill_size", float64(p.Engine.ChunkedPrefillSize)},
		{"engine.max_loaded_loras", float64(p.Engine.MaxLoadedLoras)},
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
		{"engine.scheduler", p.Engine.Scheduler, []string{SchedulerSGLang, SchedulerVLLM}},
		{"engine.context_overflow", p.Engine.ContextOverflow, []string{OverflowReject, OverflowPrompt}},
		{"engine.head_of_line", p.Engine.HeadOfLine, []string{HeadOfLineBlock, HeadOfLineSkip}},
		{"engine.adapter_loading", p.Engine.AdapterLoading, []string{LoadBlocking, LoadOverlapped}},
		{"engine.adapter_eviction", p.Engine.AdapterEviction, []string{EvictLRU, EvictFIFO}},
		{"latency.lora.backend", p.Latency.LoRA.Backend, []string{BackendNone, BackendCSGMV, BackendTriton, BackendMerged, BackendDLoRA}},
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
	}
	if r := p.Engine.NewTokenRatio; !(r > 0 && r <= 1) {
		return fmt.Errorf("engine.new_token_ratio is %v, expected a number in (0, 1]", r)
	}
	if r := p.Engine.NewTokenRatioMin; !(r >= 0 && r <= 1) {
		return fmt.Errorf("engine.new_token_ratio_min is %v, expected a number in [0, 1]", r)
	}
	if p.Latency.Decode.BaseMs == 0 && p.Latency.Decode.PerRequestMs == 0 {
		return errors.New("latency.decode.base_ms and per_request_ms are both 0: a decode step would take no time")
	}
	if p.Latency.Prefill.BaseMs == 0 && p.Latency.Prefill.PerTokenUs == 0 {
		return errors.New("latency.prefill.base_ms and per_token_us are both 0: a prefill step would take no time")
	}
	if e := &p.Engine; e.Scheduler == SchedulerVLLM && e.MaxNumBatchedTokens < e.MaxRunningRequests {
		return fmt.Errorf("engine.max_num_batched_tokens is %d, expected at least max_running_requests (%d), since every running request takes one token",
			e.MaxNumBatchedTokens, e.MaxRunningRequests)
	}
	if n, err := p.KVTokens(); err != nil {
		return err
	} else if n < int64(p.Engine.PageSize) {
		return fmt.Errorf("the KV cache holds %d tokens, less than one page of %d", n, p.Engine.PageSize)
	}
	return nil
}

// KVTokens is the capacity of the KV cache in tokens: stated, or what the
// adapter slots leave of the pool.
func (p *Profile) KVTokens() (int64, error) {
	if p.Memory.KVTokens > 0 {
		return p.Memory.KVTokens, nil
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
