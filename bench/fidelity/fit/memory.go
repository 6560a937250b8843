package fit

import (
	"cmp"
	"fmt"
	"slices"

	"lorasim/bench/fidelity/measured"
	"lorasim/sim/profile"
)

const poolGiB = "memory.pool_gib"

// memory prepares the fit of the memory of a computed profile, unless it is stated. If the records show a full KV
// cache, the memory at the start becomes that of the records, and defaults has its coefficient. note returns a
// sentence for the result.
func (o *RecordsOptions) memory(runs []*replay) (defaults []string, note func(*Result) []string) {
	none := func(*Result) []string { return nil }
	if o.Start == nil || o.MemoryStated || !o.Start.Uncalibrated || o.Start.Memory.KVTokens > 0 ||
		o.Start.Memory.KVBytesPerToken == 0 {
		return nil, none
	}
	assumed, err := o.Start.KVTokens()
	if err != nil { // the check of the profile reports it
		return nil, none
	}
	costs := o.Start.Compile()
	var found []measured.Plateau
	var where []string
	for _, run := range runs {
		if p, ok := run.Plateau(costs); ok {
			found, where = append(found, p), append(where, run.Name)
		}
	}
	if found == nil {
		return nil, func(*Result) []string {
			return []string{fmt.Sprintf("KV cache: its size is not stated and the runs do not fill it; %d tokens are "+
				"assumed. State it: --engine-args kv_tokens=N (engines print N when they start)%s.", assumed,
				shareHint(o.Start))}
		}
	}
	longest := slices.MaxFunc(found, func(a, b measured.Plateau) int { return cmp.Compare(a.To-a.From, b.To-b.From) })
	i := slices.Index(found, longest)
	start := model{profile: o.Start}.clone().profile
	start.Memory.PoolGiB = profile.Round4(start.Memory.PoolGiB +
		float64(longest.Tokens-assumed)*float64(start.Memory.KVBytesPerToken)/(1<<30))
	o.Start = start
	return []string{poolGiB}, func(fit *Result) []string {
		n, err := fit.Profile.KVTokens()
		if err != nil { // the check of the profile reports it
			return nil
		}
		return []string{fmt.Sprintf("KV cache: %d tokens, estimated from %s: from %.1f s to %.1f s %d requests wait and none "+
			"starts while %d run, and about %d tokens fit.", n, where[i], longest.From, longest.To, longest.Waiting,
			longest.Running, longest.Tokens)}
	}
}

// shareHint names the other key that sets the KV cache, for the scheduler that has it.
func shareHint(p *profile.Profile) string {
	if p.Engine.Scheduler == profile.SchedulerVLLM {
		return " or gpu_memory_utilization=SHARE"
	}
	return ""
}
