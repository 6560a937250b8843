package fit

import (
	"fmt"
	"slices"
	"strings"

	"lorasim/sim/profile"
)

// loraSpread is the standard deviation of the logarithm of a coefficient of LoRA about its start, in fits to figures.
// An A100 needs 1.45 times as long for the kernels as the H100 that they were measured on; other cards and versions may
// differ more.
const loraSpread = 1

// loraCoefficients returns the coefficients of the LoRA backend of a profile.
func loraCoefficients(l *profile.Latency) []string {
	if l.LoRA.Measured() {
		return []string{"lora.kernel_factor"}
	}
	switch l.LoRA.Backend {
	case profile.BackendCSGMV:
		return []string{"lora.csgmv_us", "lora.prefill_factor"}
	case profile.BackendTriton:
		return []string{"lora.triton_us", "lora.prefill_factor"}
	case profile.BackendMBGMV:
		return []string{"lora.launch_ms", "lora.rank_us", "lora.request_rank_us", "lora.token_rank_ns"}
	}
	return nil
}

// severalRanks reports whether the sum of the ranks of the adapters in a step may differ between the steps of the
// fitted requests: a worker has several adapters, or runs have adapters of different ranks.
func severalRanks(runs []*replay) bool {
	rank := int32(-1)
	for _, run := range runs {
		adapters := make([]int32, run.Workers)
		for i := range run.Measured[:run.fitted] {
			r := &run.Measured[i]
			if r.Adapter < 0 {
				continue
			}
			if one := &adapters[r.WorkerLast]; *one == 0 {
				*one = r.Adapter + 1
			} else if *one != r.Adapter+1 {
				return true
			}
			if rank >= 0 && rank != r.Rank {
				return true
			}
			rank = r.Rank
		}
	}
	return false
}

// loosen gives the coefficients of LoRA a wide distance from their start.
func loosen(knobs []knob) {
	for i := range knobs {
		if strings.HasPrefix(knobs[i].Name, "lora.") {
			knobs[i].Loose = loraSpread
		}
	}
}

// adapted reports whether a fitted request of a run has an adapter.
func (run *replay) adapted() bool {
	for i := range run.Measured[:run.fitted] {
		if run.Measured[i].Adapter >= 0 {
			return true
		}
	}
	return false
}

// loraTraffic says which runs determine a coefficient of LoRA.
var loraTraffic = map[string]string{
	"lora.launch_ms":       "runs with adapters and runs of the base model alone",
	"lora.kernel_factor":   "runs with adapters and runs of the base model alone",
	"lora.csgmv_us":        "runs with adapters and runs of the base model alone",
	"lora.triton_us":       "runs with adapters and runs of the base model alone, at several rates",
	"lora.rank_us":         "runs with one adapter and runs with several adapters",
	"lora.request_rank_us": "runs with adapters at several rates",
	"lora.token_rank_ns":   "runs with adapters at several rates and prompt lengths",
	"lora.prefill_factor":  "runs of long prompts, with and without adapters",
}

// loraNotes says what the fit knows of the costs of LoRA, and which traffic would tell the rest. adapted says
// whether a request has an adapter.
func (o *Options) loraNotes(fit *Result, adapted bool) (notes []string) {
	names := loraCoefficients(&o.Start.Latency)
	if o.Start.Latency.Law == profile.LawAdapters || len(names) == 0 {
		return nil
	}
	if !adapted {
		return []string{"LoRA: no request has an adapter, so the costs of LoRA are those of the start. " +
			"Runs with adapters determine " + strings.Join(names, ", ") + "."}
	}
	var known []string
	for _, name := range names {
		i := slices.IndexFunc(fit.Params, func(e Estimate) bool { return e.Name == name })
		switch {
		case i < 0 && len(o.Fit) > 0:
		case i < 0 || fit.Params[i].Held:
			c, _ := choose([]string{name}, o.Start.Latency.Law) // no error: the law has it
			notes = append(notes, fmt.Sprintf("LoRA: %s is that of the start (%.4g); %s determine it.", name,
				*c[0].of(o.Start), loraTraffic[name]))
		default:
			e := &fit.Params[i]
			low, high := e.interval()
			known = append(known, fmt.Sprintf("%s %.3g (95 %%: %.3g to %.3g)", name, e.Value, low, high))
		}
	}
	if known != nil {
		notes = append([]string{"LoRA: fitted " + strings.Join(known, ", ") + "."}, notes...)
	}
	return notes
}
