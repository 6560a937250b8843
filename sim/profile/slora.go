package profile

import "fmt"

// UseSLoRA sets scheduler slora with the defaults of S-LoRA's server (slora/server/api_server.py, commit
// c1ddf488781e). Settings of the deployment stay: the size of the memory, the context length.
func (e *Engine) UseSLoRA() {
	e.Scheduler, e.HeadOfLine, e.AdapterLoading, e.AdapterEviction = SchedulerSLoRA, HeadOfLineBlock, LoadBlocking,
		EvictLRU
	e.SchedulePolicy, e.PageSize, e.AdapterCellsPerRank = "", 1, 4
	e.MaxRunningRequests, e.MaxPrefillTokens, e.ChunkedPrefillSize, e.MaxLoadedLoras = 1000, 3072, 0, 0
	e.MixedChunk, e.PrefixCache, e.AsyncScheduling, e.OverlapSchedule, e.VLLMVersion = false, false, false, false, ""
	e.LoraDrainWait, e.EnableAbort = 0, false
}

// checkSLoRA returns an error if a setting and scheduler slora exclude each other.
func (e *Engine) checkSLoRA() error {
	lifo := e.SchedulePolicy == OrderLIFO
	switch slora := e.Scheduler == SchedulerSLoRA; {
	case !slora && e.AdapterCellsPerRank > 0:
		return fmt.Errorf("engine.adapter_cells_per_rank is %d, expected 0 without scheduler %s",
			e.AdapterCellsPerRank, SchedulerSLoRA)
	case !slora && lifo, !slora && e.EnableAbort:
		return fmt.Errorf("engine.schedule_policy %s and engine.enable_abort need scheduler %s", OrderLIFO,
			SchedulerSLoRA)
	case !slora:
		return nil
	case lifo && e.EnableAbort:
		return fmt.Errorf("engine.schedule_policy %s and engine.enable_abort exclude each other", OrderLIFO)
	}
	if e.PageSize != 1 {
		return fmt.Errorf("engine.page_size is %d, expected 1 with scheduler %s", e.PageSize, SchedulerSLoRA)
	}
	for _, k := range []struct {
		set  bool
		name string
	}{
		{e.AdapterLoading != LoadBlocking, "adapter_loading " + e.AdapterLoading},
		{e.ChunkedPrefillSize > 0, "chunked_prefill_size"},
		{e.PrefixCache, "prefix_cache"},
		{e.orders(), "schedule_policy " + e.SchedulePolicy},
		{e.LoraDrainWait > 0, "lora_drain_wait_threshold"},
		{e.MaxLoadedLoras > 0, "max_loaded_loras"},
	} {
		if k.set {
			return fmt.Errorf("engine.%s: scheduler %s does not have it", k.name, SchedulerSLoRA)
		}
	}
	return nil
}

// Unified reports whether adapters and KV cache share their memory.
func (e *Engine) Unified() bool { return e.Scheduler == SchedulerSLoRA }

// Slots returns the number of adapters, of n in total, that fit in GPU memory at the same time.
func (e *Engine) Slots(n int) int {
	if e.Unified() {
		return max(n, 1)
	}
	return e.MaxLorasPerBatch
}

// PrefillTokens returns the maximum number of prompt tokens of a prefill step with a KV cache of kv tokens. A
// single longer prompt may exceed it. S-LoRA uses a sixth of the memory if that is more
// (slora/server/api_server.py, batch_max_tokens).
func (e *Engine) PrefillTokens(kv int64) int64 {
	if e.Unified() {
		return max(kv/6, int64(e.MaxPrefillTokens))
	}
	return int64(e.MaxPrefillTokens)
}
