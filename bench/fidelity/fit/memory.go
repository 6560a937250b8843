package fit

import (
	"fmt"

	"lorasim/bench/fidelity/measured"
	"lorasim/sim/profile"
)

// memory estimates the KV cache of a computed profile from records that fill it, and makes it that of the start, unless
// its size is stated. It returns a sentence on it for the result.
func (o *RecordsOptions) memory(runs []*replay) []string {
	if o.Start == nil || o.MemoryStated || !o.Start.Uncalibrated || o.Start.Memory.KVTokens > 0 ||
		o.Start.Memory.KVBytesPerToken == 0 {
		return nil
	}
	assumed, err := o.Start.KVTokens()
	if err != nil { // the check of the profile reports it
		return nil
	}
	costs := o.Start.Compile()
	var longest measured.Plateau
	where := ""
	for _, run := range runs {
		if p, ok := run.Plateau(costs); ok && p.To-p.From > longest.To-longest.From {
			longest, where = p, run.Name
		}
	}
	if where == "" {
		return []string{fmt.Sprintf("KV cache: its size is not stated and the runs do not fill it; %d tokens are assumed. "+
			"State it: --engine-args kv_tokens=N (engines print N when they start)%s.", assumed, shareHint(o.Start))}
	}
	start := copyOf(o.Start)
	start.Memory.PoolGiB = profile.Round4(start.Memory.PoolGiB +
		float64(longest.Tokens-assumed)*float64(start.Memory.KVBytesPerToken)/(1<<30))
	o.Start = start
	return []string{fmt.Sprintf("KV cache: %d tokens, estimated from %s: from %.1f s to %.1f s %d requests wait and none "+
		"starts while %d run.", longest.Tokens, where, longest.From, longest.To, longest.Waiting, longest.Running)}
}

// shareHint names the other key that sets the KV cache, for the scheduler that has it.
func shareHint(p *profile.Profile) string {
	if p.Engine.Scheduler == profile.SchedulerVLLM {
		return " or gpu_memory_utilization=SHARE"
	}
	return ""
}
