package profile

import (
	"fmt"
	"strings"

	"lorasim/internal/suggest"
)

// A Serving is an engine with the defaults of its command on a GPU: "vllm serve" without further flags, or
// vLLM's class LLM.
type Serving struct {
	Engine  string // SchedulerVLLM or SchedulerSGLang
	Version string // "0.33"
	LLM     bool   // vLLM's class LLM instead of its server
}

// servings are the engines that [ParseServing] accepts.
var servings = []Serving{
	{SchedulerVLLM, "0.33", false}, {SchedulerVLLM, "0.33", true}, {SchedulerVLLM, "0.32", false},
	{SchedulerVLLM, "0.32", true}, {SchedulerVLLM, "0.23", false}, {SchedulerVLLM, "0.23", true},
	{SchedulerVLLM, "0.11", false}, {SchedulerVLLM, "0.11", true}, {SchedulerSGLang, "0.5.23", false},
}

// String returns the text that [ParseServing] accepts, such as vllm-0.33 or vllm-0.33:llm.
func (s Serving) String() string {
	if s.LLM {
		return s.Engine + "-" + s.Version + ":llm"
	}
	return s.Engine + "-" + s.Version
}

// Servings lists the texts that [ParseServing] accepts.
func Servings() []string {
	list := make([]string, len(servings))
	for i, s := range servings {
		list[i] = s.String()
	}
	return list
}

// ParseServing parses ENGINE-VERSION, or ENGINE-VERSION:llm for vLLM's class LLM.
func ParseServing(text string) (Serving, error) {
	for _, s := range servings {
		if s.String() == text {
			return s, nil
		}
	}
	hint := ""
	if name := suggest.Likely(text, Servings()); name != "" {
		hint = fmt.Sprintf(", did you mean %q?", name)
	}
	return Serving{}, fmt.Errorf("unknown engine %q, expected one of %s%s", text, strings.Join(Servings(), ", "), hint)
}

// Apply sets what the engine chooses by itself: the scheduler and its rules, and limits that depend on the
// memory and the name of the GPU. Slots, ranks and context length stay. The KV cache of a measured profile
// stays too; a computed profile gets the engine's share of the memory. Apply fails if the GPU of the profile
// is unknown.
func (s Serving) Apply(p *Profile) error {
	card := gpuOf(p.GPU)
	if card == nil {
		return fmt.Errorf("engine %s: its defaults depend on the GPU, and profile %s has gpu %q: expected one of %s", s,
			p.Name, p.GPU, strings.Join(names(GPUs(), (*GPU).name), ", "))
	}
	if s.Engine == SchedulerSGLang {
		s.sglang(p, card)
	} else {
		s.vllm(p, card)
	}
	return nil
}

// Shares of a GPU's memory. vLLM uses the share gpu_memory_utilization (config/cache.py). The peak of
// activations, CUDA graphs and the CUDA context take vllmOverhead from it: 0.026 of the memory on a server
// with Qwen3-14B on an H100 of 80 GB (288,608 KV tokens beside 27.5 GiB of weights), 0.027 on a server with
// Llama-3.1-8B on 64 GB (334,944 tokens, share 0.9).
const vllmShare, vllmOverhead = 0.92, 0.026

// Rules that changed between the versions of [servings]. Before vLLM 0.14 the server schedules step by step unless
// async_scheduling is given (vllm-project/vllm#27614). scheduler_reserve_full_isl came in March 2026 (#37307), after
// vLLM 0.11 and before 0.23. vLLM 0.11 has the memory share of 0.8.5, and no rule of its own for GPUs of 160 GiB.
const vllmAsync, vllmReserves, vllmOldShare = 14, 23, 0.9

// vllm sets the defaults of vLLM. Sources, versions 0.32 and 0.33: EngineArgs.get_batch_defaults and
// _set_default_max_num_seqs_and_batched_tokens_args in engine/arg_utils.py, CacheConfig in config/cache.py, and
// VllmConfig in config/vllm.py, which turns asynchronous scheduling on for models that generate. The log of a server of
// 0.23 on an H100 agrees: 8192 tokens a step, blocks of 16, and a KV cache that a share of 0.9 could not hold.
func (s Serving) vllm(p *Profile, card *GPU) {
	e := &p.Engine
	if e.Scheduler != SchedulerVLLM {
		e.UseVLLM()
	}
	e.VLLMVersion, e.PageSize = s.Version, 16
	old := !e.VLLMAtLeast(vllmReserves)
	e.AsyncScheduling, e.NoReserveFullISL = e.VLLMAtLeast(vllmAsync), old
	e.NoChunkedPrefill, e.LongPrefillTokenThreshold = false, 0
	if p.Uncalibrated { // a measured profile has the kernels of its measurement
		p.Latency.LoRA.Kernels = kernelsLoRASteps
	}
	large := card.MemoryGiB >= 70 && !strings.HasPrefix(card.Name, "a100")
	switch {
	case card.MemoryGiB >= 160 && !old:
		e.MaxNumBatchedTokens, e.MaxRunningRequests = 16384, 1024
	case large && s.LLM:
		e.MaxNumBatchedTokens, e.MaxRunningRequests = 16384, 1024
	case large:
		e.MaxNumBatchedTokens, e.MaxRunningRequests = 8192, 1024
	case s.LLM:
		e.MaxNumBatchedTokens, e.MaxRunningRequests = 8192, 256
	default:
		e.MaxNumBatchedTokens, e.MaxRunningRequests = 2048, 256
	}
	e.MaxNumBatchedTokens = min(e.MaxNumBatchedTokens, e.MaxRunningRequests*e.ContextLength)
	share := vllmShare
	if old {
		share = vllmOldShare
	}
	p.share(card, share-vllmOverhead)
}

// UseMemoryShare sets the share of the GPU's memory that the engine uses (gpu_memory_utilization of vLLM) in a computed
// profile. It returns an error if the memory of the profile was measured or stated, or if its GPU or model is unknown.
func (p *Profile) UseMemoryShare(share float64) error {
	card := gpuOf(p.GPU)
	if card == nil || !p.share(card, share-vllmOverhead) {
		return fmt.Errorf("gpu_memory_utilization needs a computed profile (analytic:MODEL,GPU); profile %s states its "+
			"memory: give kv_tokens", p.Name)
	}
	return nil
}

// sglang sets the defaults of sglang 0.5.23: _handle_gpu_memory_settings in srt/arg_groups/memory_hook.py,
// max_prefill_tokens and disable_overlap_schedule in srt/arg_groups/fields/schedule.py, the limit of running requests
// in srt/model_executor/pool_configurator.py. The memory share stays: the server measures it after its CUDA graphs.
func (s Serving) sglang(p *Profile, card *GPU) {
	e, was := &p.Engine, p.Engine
	if was.Scheduler != SchedulerSGLang {
		*e = Default().Engine
		e.ContextLength, e.MaxLorasPerBatch, e.MaxLoadedLoras, e.MaxLoraRank = was.ContextLength, was.MaxLorasPerBatch,
			was.MaxLoadedLoras, was.MaxLoraRank
	}
	e.MaxPrefillTokens, e.PageSize, e.OverlapSchedule = 16384, 1, true
	switch gib := card.MemoryGiB; {
	case gib < 20:
		e.ChunkedPrefillSize = 2048
	case gib < 60:
		e.ChunkedPrefillSize = 4096
	case gib < 160:
		e.ChunkedPrefillSize = 8192
	default:
		e.ChunkedPrefillSize = 16384
	}
	if kv, err := p.KVTokens(); err == nil {
		e.MaxRunningRequests = max(min(int(float64(kv)/float64(e.ContextLength)*512), 4096), 2048)
	}
}

// share sets the pool of a computed profile, which KV cache and adapter slots share: the given share of the
// GPUs' memory less the weights. It returns false for other profiles.
func (p *Profile) share(card *GPU, share float64) bool {
	m := architectureOf(p.Model)
	if !p.Uncalibrated || p.Memory.PoolGiB == 0 || p.Memory.KVTokens > 0 || m == nil {
		return false
	}
	weights := m.bytes(m.Parameters()-m.routed(), m.routed(), bitsOf(p.Model)) / gib
	n := float64(p.GPUs())
	p.Memory.PoolGiB = Round4((n*card.MemoryGiB*share - weights) * m.kvParts(n) / n)
	return true
}
