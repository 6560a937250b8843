package profile

import "fmt"

// UseSLoRA sets the scheduler to S-LoRA's with the defaults of its server
// (slora/server/api_server.py, commit c1ddf488781e). What the deployment decides
// stays: the size of the memory, the context length.
func (e *Engine) UseSLoRA() {
	e.Scheduler, e.HeadOfLine, e.AdapterLoading, e.AdapterEviction = SchedulerSLoRA, HeadOfLineBlock, LoadBlocking,
		EvictLRU
	e.SchedulePolicy, e.PageSize, e.AdapterCellsPerRank = "", 1, 4
	e.MaxRunningRequests, e.MaxPrefillTokens, e.ChunkedPrefillSize, e.MaxLoadedLoras = 1000, 3072, 0, 0
	e.MixedChunk, e.PrefixCache, e.AsyncScheduling, e.OverlapSchedule, e.VLLMVersion = false, false, false, false, ""
	e.LoraDrainWait = 0
}

// checkSLoRA says which setting scheduler slora does not have, or nil.
func (e *Engine) checkSLoRA() error {
	if e.Scheduler != SchedulerSLoRA {
		if e.AdapterCellsPerRank > 0 {
			return fmt.Errorf("engine.adapter_cells_per_rank is %d, expected 0 without scheduler %s",
				e.AdapterCellsPerRank, SchedulerSLoRA)
		}
		return nil
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

// Unified says whether adapters and KV cache share their memory.
func (e *Engine) Unified() bool { return e.Scheduler == SchedulerSLoRA }

// Slots is the number of adapters that can be in GPU memory at a time, of n in all.
func (e *Engine) Slots(n int) int {
	if e.Unified() {
		return max(n, 1)
	}
	return e.MaxLorasPerBatch
}

// PrefillTokens is the most prompt tokens of a prefill step, but for a single longer prompt, with a KV cache of kv
// tokens. S-LoRA takes a sixth of the memory if that is more (slora/server/api_server.py, batch_max_tokens).
func (e *Engine) PrefillTokens(kv int64) int64 {
	if e.Unified() {
		return max(kv/6, int64(e.MaxPrefillTokens))
	}
	return int64(e.MaxPrefillTokens)
}
