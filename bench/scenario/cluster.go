package scenario

import (
	"fmt"
	"strconv"
	"strings"

	"lorasim/internal/suggest"
	"lorasim/router"
	"lorasim/sim"
	"lorasim/sim/profile"
	"lorasim/trace"
)

// override applies the settings that are not left to the profile.
func (c *Cluster) override(p *profile.Profile) {
	e := &p.Engine
	if c.Scheduler == profile.SchedulerVLLM && e.Scheduler != c.Scheduler {
		e.UseVLLM()
	}
	for _, o := range []struct {
		v  int
		to *int
	}{
		{c.MaxRunningRequests, &e.MaxRunningRequests},
		{c.MaxNumBatchedTokens, &e.MaxNumBatchedTokens},
		{c.MaxLorasPerBatch, &e.MaxLorasPerBatch},
		{c.MaxLoadedLoras, &e.MaxLoadedLoras},
		{c.MaxLoraRank, &e.MaxLoraRank},
		{max(c.ChunkedPrefillSize, 0), &e.ChunkedPrefillSize},
		{c.MaxPrefillTokens, &e.MaxPrefillTokens},
		{c.ContextLength, &e.ContextLength},
		{c.PageSize, &e.PageSize},
	} {
		if o.v != 0 {
			*o.to = o.v
		}
	}
	for _, o := range []struct {
		v  string
		to *string
	}{
		{c.HeadOfLine, &e.HeadOfLine},
		{c.AdapterLoading, &e.AdapterLoading},
		{c.AdapterEviction, &e.AdapterEviction},
		{c.LoraBackend, &p.Latency.LoRA.Backend},
		{c.Scheduler, &e.Scheduler},
	} {
		if o.v != "" {
			*o.to = o.v
		}
	}
	if c.ChunkedPrefillSize < 0 {
		e.ChunkedPrefillSize = 0 // no limit, as in sglang
	}
	if c.KVTokens != 0 {
		p.Memory.KVTokens = c.KVTokens
	}
	if c.LoraDrainWait != 0 {
		e.LoraDrainWait = c.LoraDrainWait
	}
	e.MixedChunk = e.MixedChunk || c.EnableMixedChunk
	e.IgnoreEOS = e.IgnoreEOS || c.IgnoreEOS
	e.DisableRadixCache = e.DisableRadixCache || c.DisableRadixCache
}

// checkRanks refuses adapters that the engines would not load: sglang's
// LoRAMemoryPool.can_support (srt/lora/mem_pool.py) and vLLM's PEFTHelper
// (lora/peft_helper.py) take ranks up to max_lora_rank.
func checkRanks(ps []*profile.Profile, adapters []trace.Adapter) error {
	seen := map[*profile.Profile]bool{}
	for _, p := range ps {
		if seen[p] {
			continue
		}
		seen[p] = true
		for _, a := range adapters {
			if a.Rank > p.Engine.MaxLoraRank {
				return fmt.Errorf("adapter %s has rank %d, above the max_lora_rank of the workers (%d, profile %s): an engine refuses to load it", a.Name, a.Rank, p.Engine.MaxLoraRank, p.Name)
			}
		}
	}
	return nil
}

// home is the tier of adapters that a worker does not start with.
func (c *Cluster) home() (router.Tier, error) {
	switch c.AdapterHome {
	case "disk":
		return router.Disk, nil
	case "remote":
		return router.Remote, nil
	}
	return 0, suggest.Unknown("adapter_home", c.AdapterHome, []string{"disk", "remote"})
}

// outages reads the failures of workers.
func (c *Cluster) outages() ([]sim.Outage, error) {
	if c.Outages == "" {
		return nil, nil
	}
	os, err := parseOutages(c.Outages)
	if err != nil {
		return nil, fmt.Errorf("outages: %w", err)
	}
	return os, nil
}

// parseOutages reads a text such as "2@10-30+0@50".
func parseOutages(text string) ([]sim.Outage, error) {
	var os []sim.Outage
	for part := range strings.SplitSeq(text, "+") {
		worker, span, ok := strings.Cut(strings.TrimSpace(part), "@")
		from, to, until := strings.Cut(span, "-")
		o, err := sim.Outage{}, error(nil)
		if o.Worker, err = strconv.Atoi(worker); err == nil && ok {
			o.From, err = strconv.ParseFloat(from, 64)
		}
		if err == nil && until {
			o.To, err = strconv.ParseFloat(to, 64)
		}
		if err != nil || !ok {
			return nil, fmt.Errorf("%q, expected WORKER@FROM or WORKER@FROM-TO, in s", part)
		}
		os = append(os, o)
	}
	return os, nil
}
