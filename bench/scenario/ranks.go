package scenario

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"lorasim/sim/profile"
	"lorasim/trace"
	"lorasim/trace/synth"
)

// defaultRanks are the ranks of adapters where nothing states any.
var defaultRanks = []int{8, 16, 32, 64}

// ranksUpTo returns the default ranks of adapters for workers that load ranks up to most, in the form of
// lora_ranks: those of 8, 16, 32 and 64 that fit, else most itself.
func ranksUpTo(most int) string {
	var fit []string
	for _, r := range fitting(most) {
		fit = append(fit, strconv.Itoa(r))
	}
	return strings.Join(fit, ",")
}

// fitting lists the default ranks up to most, else most itself.
func fitting(most int) (fit []int) {
	for _, r := range defaultRanks {
		if r <= most {
			fit = append(fit, r)
		}
	}
	if fit == nil {
		fit = []int{most}
	}
	return fit
}

// DefaultRanksFor returns the default ranks of adapters for a cluster.
func DefaultRanksFor(ps []*profile.Profile) string { return ranksUpTo(leastMaxRank(ps)) }

// leastMaxRank is the rank up to which every worker loads adapters.
func leastMaxRank(ps []*profile.Profile) int {
	least := ps[0].Engine.MaxLoraRank
	for _, p := range ps[1:] {
		least = min(least, p.Engine.MaxLoraRank)
	}
	return least
}

// ranksByDefault reports whether neither the settings nor a saved workload state the ranks.
func (w *Workload) ranksByDefault() bool {
	return !w.LoraRanks.Given() && w.File == ""
}

// fitRanks gives the adapters of a source the default ranks that all workers can load, if no setting or file states
// their ranks.
func (s *Scenario) fitRanks(src trace.Source, ps []*profile.Profile) trace.Source {
	most := leastMaxRank(ps)
	if !s.Workload.ranksByDefault() || most >= slices.Max(defaultRanks) {
		return src
	}
	adapters := slices.Clone(src.Adapters())
	for i, rank := range (synth.Ranks{Values: fitting(most)}).For(len(adapters), s.Seed) {
		adapters[i].Rank = rank
	}
	return withAdapters{src, adapters}
}

// CommonRanks sets lora_ranks if no setting or file states it and the workers of some variants load fewer ranks than
// the default has. All variants then have the same adapters and are comparable. CommonRanks skips variants with
// errors; running them reports the errors.
func (s *Scenario) CommonRanks(ctx context.Context, variants ...Scenario) error {
	if !s.Workload.ranksByDefault() {
		return nil
	}
	largest := slices.Max(defaultRanks)
	least := largest
	for i := range variants {
		if ps, err := variants[i].Profiles(ctx); err == nil {
			least = min(least, leastMaxRank(ps))
		}
	}
	if least < largest {
		return s.Set("lora_ranks", ranksUpTo(least))
	}
	return nil
}

// CheckRanks returns an error if the engines would not load one of the adapters. sglang's LoRAMemoryPool.can_support
// (srt/lora/mem_pool.py) and vLLM's PEFTHelper (lora/peft_helper.py) accept ranks up to max_lora_rank.
func CheckRanks(p *profile.Profile, adapters []trace.Adapter) error {
	for _, a := range adapters {
		if a.Rank > p.Engine.MaxLoraRank {
			return fmt.Errorf("adapter %s has rank %d, but workers of profile %s load ranks up to %d: "+
				"give smaller ranks with --lora-ranks (as in --lora-ranks %s), or allow larger ones with --engine-args max_lora_rank=%d",
				a.Name, a.Rank, p.Name, p.Engine.MaxLoraRank, ranksUpTo(p.Engine.MaxLoraRank), a.Rank)
		}
	}
	return nil
}
