package scenario

import (
	"fmt"
	"strings"

	"lorasim/bench/result"
	"lorasim/sim/engine"
	"lorasim/sim/record"
)

// remedies are the flags that help where a worker can never serve a request.
var remedies = []struct{ reason, flags string }{
	{engine.KVTooSmall, "give the workers more KV cache with --engine-args kv_tokens=(sglang: --max-total-tokens), or leave it to the profile"},
	{engine.PromptTooLarge, "allow longer requests with --engine-args context_length, or make them shorter with --lengths"},
	{engine.BudgetTooLarge, "allow longer requests with --engine-args context_length, or ask for less with --max-new-tokens"},
	{engine.RankTooLarge, "give smaller ranks with --lora-ranks, or allow larger ones with --engine-args max_lora_rank"},
}

// Misfit returns an error if more than half of the requests of a simulated run were rejected because no worker could
// ever serve them. The metrics of the remaining requests would mislead. The error names the flags that help.
func Misfit(res *result.Result) error {
	e := res.Endings()
	if e == nil {
		return nil
	}
	var most result.Reason // the first and most frequent
	flags, never := "", int64(0)
	for _, r := range e.Reasons {
		for _, m := range remedies {
			begins, _, _ := strings.Cut(m.reason, "%")
			if r.Status != record.Rejected.String() || !strings.HasPrefix(r.Reason, begins) {
				continue
			}
			if never += r.Count; flags == "" {
				most, flags = r, m.flags
			}
		}
	}
	if 2*never <= e.Requests {
		return nil
	}
	return fmt.Errorf("%d of %d requests can never be served (most often: %s): %s", never, e.Requests, most.Reason,
		flags)
}
