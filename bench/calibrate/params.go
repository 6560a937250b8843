package calibrate

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"lorasim/internal/suggest"
	"lorasim/sim/profile"
)

// coefficient is a number of a profile that a fit may move.
type coefficient struct {
	name     string
	min, max float64
	usual    float64 // where the fit starts if the profile has 0
	of       func(p *profile.Profile) *float64
}

// coefficients are the ones of the latency model with bounds that no engine
// leaves, and the size of the memory.
var coefficients = []coefficient{
	{"decode.base_ms", 0.1, 1000, 5, func(p *profile.Profile) *float64 { return &p.Latency.Decode.BaseMs }},
	{"decode.per_request_ms", 1e-4, 50, 0.02, func(p *profile.Profile) *float64 { return &p.Latency.Decode.PerRequestMs }},
	{"decode.per_kv_token_us", 1e-4, 50, 0.01, func(p *profile.Profile) *float64 { return &p.Latency.Decode.PerKVTokenUs }},
	{"prefill.base_ms", 0.1, 1000, 3, func(p *profile.Profile) *float64 { return &p.Latency.Prefill.BaseMs }},
	{"prefill.per_token_us", 0.5, 5000, 5, func(p *profile.Profile) *float64 { return &p.Latency.Prefill.PerTokenUs }},
	{"prefill.per_token_ctx_ns", 1e-4, 1000, 1, func(p *profile.Profile) *float64 { return &p.Latency.Prefill.PerTokenCtxNs }},
	{"prefill.first_wave_factor", 0.9, 20, 1.1, func(p *profile.Profile) *float64 { return &p.Latency.Prefill.FirstWaveFactor }},
	{"prefill.first_extend_ms", 1, 60_000, 500, func(p *profile.Profile) *float64 { return &p.Latency.Prefill.FirstExtendMs }},
	{"lora.csgmv_us", 1e-3, 10_000, 10, func(p *profile.Profile) *float64 { return &p.Latency.LoRA.CSGMVUs }},
	{"lora.triton_us", 1e-3, 10_000, 10, func(p *profile.Profile) *float64 { return &p.Latency.LoRA.TritonUs }},
	{"lora.prefill_factor", 1e-3, 5, 0.1, func(p *profile.Profile) *float64 { return &p.Latency.LoRA.PrefillFactor }},
	{"request_overhead_ms", 0.1, 5000, 100, func(p *profile.Profile) *float64 { return &p.Latency.RequestOverheadMs }},
	{"adapters.base_ms", 0.05, 1000, 5, func(p *profile.Profile) *float64 { return &p.Latency.Adapters.BaseMs }},
	{"adapters.per_request_ms", 1e-4, 100, 0.1, func(p *profile.Profile) *float64 { return &p.Latency.Adapters.PerRequestMs }},
	{"adapters.per_prompt_ms", 1e-4, 1000, 1, func(p *profile.Profile) *float64 { return &p.Latency.Adapters.PerPromptMs }},
	{"adapters.per_token_us", 0.05, 50_000, 20, func(p *profile.Profile) *float64 { return &p.Latency.Adapters.PerTokenUs }},
	{"adapters.per_kv_token_us", 1e-4, 100, 0.05, func(p *profile.Profile) *float64 { return &p.Latency.Adapters.PerKVTokenUs }},
	{"adapters.per_adapter_ms", 1e-4, 1000, 0.5, perAdapter},
	{"load.host_to_gpu_ms", 1e-3, 10_000, 2, func(p *profile.Profile) *float64 { return &p.Adapters.HostToGPU.LatencyMs }},
	{"load.disk_to_host_ms", 1e-3, 60_000, 20, func(p *profile.Profile) *float64 { return &p.Adapters.DiskToHost.LatencyMs }},
	{"memory.pool_gib", 0.5, 2000, 8, func(p *profile.Profile) *float64 { return &p.Memory.PoolGiB }},
}

// perAdapter is the cost of an adapter at the rank of the slots.
func perAdapter(p *profile.Profile) *float64 {
	l := &p.Latency.Adapters
	i := slices.IndexFunc(l.ByRank, func(c profile.RankCost) bool { return c.Rank == p.Engine.MaxLoraRank })
	if i < 0 {
		l.ByRank = []profile.RankCost{{Rank: p.Engine.MaxLoraRank}}
		i = 0
	}
	return &l.ByRank[i].PerAdapterMs
}

// Coefficients lists the names of the coefficients that a fit can move.
func Coefficients() []string {
	var names []string
	for _, c := range coefficients {
		names = append(names, c.name)
	}
	return names
}

// choose returns the coefficients of the given names, which a law has to know.
func choose(names []string, law string) ([]coefficient, error) {
	var out []coefficient
	for _, n := range names {
		i := slices.IndexFunc(coefficients, func(c coefficient) bool { return c.name == n })
		if i < 0 {
			return nil, suggest.Unknown("coefficient", n, Coefficients())
		}
		if slices.IndexFunc(out, func(c coefficient) bool { return c.name == n }) >= 0 {
			return nil, fmt.Errorf("coefficient %s is given twice", n)
		}
		if part, _, _ := strings.Cut(n, "."); part == "adapters" != (law == profile.LawAdapters) && slices.Contains([]string{"decode", "prefill", "lora", "adapters"}, part) {
			return nil, fmt.Errorf("the law of the profile (latency.law) has no coefficient %s", n)
		}
		out = append(out, coefficients[i])
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no coefficient to fit, expected some of: %s", strings.Join(Coefficients(), ", "))
	}
	return out, nil
}

// params are the parameters of a fit that starts from p. Where floor is set,
// they start no lower than at the coefficient's usual size: a fit of logarithms
// sees no slope in a coefficient that is all but zero.
func params(cs []coefficient, p *profile.Profile, floor bool) []Param {
	out := make([]Param, len(cs))
	for i, c := range cs {
		start := *c.of(p)
		if start <= c.min || floor && start < c.usual {
			start = c.usual
		}
		out[i] = Param{Name: c.name, Start: min(start, c.max*0.99), Min: c.min, Max: c.max}
	}
	return out
}

// with returns a copy of p with the coefficients set to x; NaN leaves one.
func with(p *profile.Profile, cs []coefficient, x []float64) *profile.Profile {
	q := *p
	q.Latency.Adapters.ByRank = slices.Clone(q.Latency.Adapters.ByRank)
	for i, c := range cs {
		if !math.IsNaN(x[i]) {
			*c.of(&q) = x[i]
		}
	}
	return &q
}

// logError is the logarithm of predicted over measured: a relative error that
// is the same in both directions.
func logError(measured, predicted float64) float64 {
	return math.Log(max(predicted, 1e-9) / max(measured, 1e-9))
}
