package fit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"lorasim/bench/fidelity/check"
	"lorasim/bench/fidelity/measured"
	"lorasim/internal/suggest"
	"lorasim/sim/profile"
)

// Options configures a fit.
type Options struct {
	Start *profile.Profile // profile to start from; required
	// Fit names the coefficients to fit (see [Coefficients]). Default: those that the kind of data
	// determines.
	Fit         []string
	Evaluations int // limit of evaluations; 0: 60 per coefficient, or 100 in fits to figures
	// Progress, if not nil, is called with the evaluations done, their limit, and the loss so far.
	Progress func(done, total int, loss float64)

	coarse bool // see problem
}

// model is the quantities that a fit changes: a profile, and further inputs of predictions.
type model struct {
	profile *profile.Profile
	groups  *measured.Groups // of runs
	// arrivalMs and slow apply to fits to steps: see arrival and slowness.
	arrivalMs float64
	slow      []float64
}

// knob is a number of a model that a fit may move.
type knob struct {
	Param
	set func(m *model, x float64)
}

// coefficient is a number of a profile that a fit may move.
type coefficient struct {
	name     string
	min, max float64
	usual    float64 // start of the fit if the profile has 0
	of       func(p *profile.Profile) *float64
}

// coefficients are the coefficients of the latency model, within bounds that hold for every engine,
// and the size of the memory.
var coefficients = []coefficient{
	{"decode.base_ms", 0.1, 1000, 5, func(p *profile.Profile) *float64 { return &p.Latency.Decode.BaseMs }},
	{"decode.per_request_ms", 1e-4, 50, 0.02,
		func(p *profile.Profile) *float64 { return &p.Latency.Decode.PerRequestMs }},
	{"decode.per_kv_token_us", 1e-4, 50, 0.01,
		func(p *profile.Profile) *float64 { return &p.Latency.Decode.PerKVTokenUs }},
	{"prefill.base_ms", 0.1, 1000, 3, func(p *profile.Profile) *float64 { return &p.Latency.Prefill.BaseMs }},
	{"prefill.per_token_us", 0.5, 5000, 5, func(p *profile.Profile) *float64 { return &p.Latency.Prefill.PerTokenUs }},
	{"prefill.per_token_ctx_ns", 1e-4, 1000, 1,
		func(p *profile.Profile) *float64 { return &p.Latency.Prefill.PerTokenCtxNs }},
	{"prefill.first_wave_factor", 0.9, 20, 1.1,
		func(p *profile.Profile) *float64 { return &p.Latency.Prefill.FirstWaveFactor }},
	{"prefill.first_extend_ms", 1, 60_000, 500,
		func(p *profile.Profile) *float64 { return &p.Latency.Prefill.FirstExtendMs }},
	{"prefill.mixed_ms", 1e-3, 1000, 1, func(p *profile.Profile) *float64 { return &p.Latency.Prefill.MixedMs }},
	{"prefill.mixed_per_request_ms", 1e-4, 50, 0.02,
		func(p *profile.Profile) *float64 { return &p.Latency.Prefill.MixedPerRequestMs }},
	{"lora.csgmv_us", 1e-3, 10_000, 10, func(p *profile.Profile) *float64 { return &p.Latency.LoRA.CSGMVUs }},
	{"lora.triton_us", 1e-3, 10_000, 10, func(p *profile.Profile) *float64 { return &p.Latency.LoRA.TritonUs }},
	{"lora.launch_ms", 1e-3, 1000, 0.5, func(p *profile.Profile) *float64 { return &p.Latency.LoRA.LaunchMs }},
	{"lora.rank_us", 1e-3, 10_000, 5, func(p *profile.Profile) *float64 { return &p.Latency.LoRA.RankUs }},
	{"lora.request_rank_us", 1e-4, 10_000, 0.5,
		func(p *profile.Profile) *float64 { return &p.Latency.LoRA.RequestRankUs }},
	{"lora.token_rank_ns", 1e-4, 100_000, 1,
		func(p *profile.Profile) *float64 { return &p.Latency.LoRA.TokenRankNs }},
	{"lora.kernel_factor", 0.01, 100, 1,
		func(p *profile.Profile) *float64 { return &p.Latency.LoRA.KernelTimes.Factor }},
	{"lora.prefill_factor", 1e-3, 5, 0.1, func(p *profile.Profile) *float64 { return &p.Latency.LoRA.PrefillFactor }},
	{"request_overhead_ms", 0.1, 5000, 100, func(p *profile.Profile) *float64 { return &p.Latency.RequestOverheadMs }},
	{"adapters.base_ms", 0.05, 1000, 5, func(p *profile.Profile) *float64 { return &p.Latency.Adapters.BaseMs }},
	{"adapters.per_request_ms", 1e-4, 100, 0.1,
		func(p *profile.Profile) *float64 { return &p.Latency.Adapters.PerRequestMs }},
	{"adapters.per_prompt_ms", 1e-4, 1000, 1,
		func(p *profile.Profile) *float64 { return &p.Latency.Adapters.PerPromptMs }},
	{"adapters.per_token_us", 0.05, 50_000, 20,
		func(p *profile.Profile) *float64 { return &p.Latency.Adapters.PerTokenUs }},
	{"adapters.per_kv_token_us", 1e-4, 100, 0.05,
		func(p *profile.Profile) *float64 { return &p.Latency.Adapters.PerKVTokenUs }},
	{"adapters.per_adapter_ms", 1e-4, 1000, 0.5, perAdapter},
	{"load.host_to_gpu_ms", 1e-3, 10_000, 2,
		func(p *profile.Profile) *float64 { return &p.Adapters.HostToGPU.LatencyMs }},
	{"load.host_to_gpu_gb_per_s", 0.01, 1000, 10,
		func(p *profile.Profile) *float64 { return &p.Adapters.HostToGPU.GBPerS }},
	{"load.disk_to_host_ms", 1e-3, 60_000, 20,
		func(p *profile.Profile) *float64 { return &p.Adapters.DiskToHost.LatencyMs }},
	{"memory.pool_gib", 0.5, 2000, 8, func(p *profile.Profile) *float64 { return &p.Memory.PoolGiB }},
}

// perAdapter returns a pointer to the cost of an adapter at the rank of the slots.
func perAdapter(p *profile.Profile) *float64 {
	l := &p.Latency.Adapters
	i := slices.IndexFunc(l.ByRank, func(c profile.RankCost) bool { return c.Rank == p.Engine.MaxLoraRank })
	if i < 0 {
		l.ByRank = []profile.RankCost{{Rank: p.Engine.MaxLoraRank}}
		i = 0
	}
	return &l.ByRank[i].PerAdapterMs
}

// Coefficients returns the names of the coefficients that a fit can move.
func Coefficients() (names []string) {
	for _, c := range coefficients {
		names = append(names, c.name)
	}
	return names
}

// inLaw reports whether a law has a coefficient.
func inLaw(law, name string) bool {
	switch part, _, _ := strings.Cut(name, "."); {
	case part == "adapters":
		return law == profile.LawAdapters
	case name == "prefill.base_ms" || name == "prefill.first_wave_factor" || name == "prefill.first_extend_ms":
		return law != profile.LawAdapters && law != profile.LawRoofline
	case strings.HasPrefix(name, "prefill.mixed_"):
		return law == profile.LawRoofline
	case part == "decode" || part == "prefill" || part == "lora":
		return law != profile.LawAdapters
	}
	return true
}

// choose returns the coefficients of the given names. A name that the law does not have is an
// error.
func choose(names []string, law string) (out []coefficient, err error) {
	for _, n := range names {
		named := func(c coefficient) bool { return c.name == n }
		i := slices.IndexFunc(coefficients, named)
		if i < 0 {
			return nil, suggest.Unknown("coefficient", n, Coefficients())
		}
		if slices.ContainsFunc(out, named) {
			return nil, fmt.Errorf("coefficient %s is given twice", n)
		}
		if !inLaw(law, n) {
			return nil, fmt.Errorf("the law of the profile (latency.law) has no coefficient %s", n)
		}
		out = append(out, coefficients[i])
	}
	return out, nil
}

// knobs returns the coefficients to fit, with the values of the profile as their start. With floor,
// each starts at its usual size or higher: a fit of logarithms sees no slope near 0.
func (o *Options) knobs(defaults []string, floor bool) (out []knob, err error) {
	if o.Start == nil {
		return nil, errors.New("calibrate: no profile to start from")
	}
	names := o.Fit
	if len(names) == 0 {
		names = slices.DeleteFunc(slices.Clone(defaults),
			func(n string) bool { return !inLaw(o.Start.Latency.Law, n) })
	}
	o.Start = physical(o.Start)
	hardware, known := o.Start.Floor()
	cs, err := choose(names, o.Start.Latency.Law)
	for _, c := range cs {
		start := *c.of(o.Start)
		if known {
			c.min = max(c.min, roundUp4(hardware.Least(c.name)))
		}
		if start <= c.min || floor && start < c.usual {
			start = max(c.usual, 1.02*c.min) // in the transformed coordinate the bounds lie at infinity
		}
		out = append(out, knob{
			Param{Name: c.name, Start: min(start, c.max*0.99), Min: c.min, Max: c.max},
			func(m *model, x float64) { *c.of(m.profile) = x },
		})
	}
	return out, err
}

// physical returns the profile with each coefficient raised to the least value that its hardware
// allows: coefficients that the data do not determine stay where the fit starts.
func physical(p *profile.Profile) *profile.Profile {
	hardware, known := p.Floor()
	if !known {
		return p
	}
	m := model{profile: p}.clone()
	m.profile.Validation, m.profile.Intervals = p.Validation, p.Intervals
	for _, c := range coefficients {
		of := c.of
		if !inLaw(p.Latency.Law, c.name) {
			continue
		}
		if least := roundUp4(hardware.Least(c.name)); least > 0 && *of(m.profile) < least {
			*of(m.profile) = least
		}
	}
	return m.profile
}

// roundUp4 rounds a bound up to 4 significant digits, so that a coefficient at the bound stays
// within it when it is rounded.
func roundUp4(x float64) float64 {
	if r := profile.Round4(x); r >= x {
		return r
	}
	return profile.Round4(x * 1.0005)
}

// fit moves the knobs of a model until the residuals are small. Knobs that the data do not
// determine keep their values.
func (o *Options) fit(
	ctx context.Context, start model, knobs []knob, prior float64,
	residuals func(context.Context, *model) ([]float64, error),
) (*model, *Result, error) {
	p := problem{Evaluations: o.Evaluations, Coarse: o.coarse, Progress: o.Progress, Prior: prior}
	for _, k := range knobs {
		p.Params = append(p.Params, k.Param)
	}
	apply := func(x []float64) *model {
		m := start.clone()
		for i, k := range knobs {
			if !math.IsNaN(x[i]) {
				k.set(m, x[i])
			}
		}
		return m
	}
	p.Residuals = func(ctx context.Context, x []float64) ([]float64, error) { return residuals(ctx, apply(x)) }
	fit, err := solve(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	if hardware, known := o.Start.Floor(); known {
		for i := range fit.Params {
			e := &fit.Params[i]
			e.Physical = e.Min == roundUp4(hardware.Least(e.Name))
		}
	}
	best := apply(fit.x)
	fit.Profile, fit.Groups = best.profile, best.groups
	return best, fit, nil
}

func (m model) clone() *model {
	p := *m.profile
	p.Validation, p.Intervals, p.ValidatedOn = nil, nil, "" // these belong to the old coefficients
	p.Latency.Adapters.ByRank = slices.Clone(p.Latency.Adapters.ByRank)
	m.profile, m.slow = &p, slices.Clone(m.slow)
	if m.groups != nil {
		m.groups = m.groups.Clone()
	}
	return &m
}

// logError returns the logarithm of predicted over measured: a relative error that is symmetric in
// both directions.
func logError(measured, predicted float64) float64 {
	return math.Log(max(predicted, 1e-9) / max(measured, 1e-9))
}

// blockCoefficients are the coefficients that affect blocks.
var blockCoefficients = []string{
	"decode.base_ms", "decode.per_request_ms", "decode.per_kv_token_us",
	"prefill.base_ms", "prefill.per_token_us", "prefill.first_extend_ms", "request_overhead_ms",
}

// blockNoise is the relative difference between repeated runs of a benchmark. Tails, and the TTFT
// of the first wave, scatter more than means.
var blockNoise = map[measured.Metric]float64{
	measured.Duration: 0.01, measured.MeanE2E: 0.01, measured.MedianE2E: 0.01,
	measured.MeanTTFT: 0.02, measured.MedianTTFT: 0.02, measured.P99TTFT: 0.03,
	measured.MeanITL: 0.01, measured.MedianITL: 0.01, measured.P95ITL: 0.01, measured.P99ITL: 0.02,
	measured.MaxITL: 0.03,
}

// Blocks fits a profile to closed-loop blocks. Its errors are on the blocks left.
func Blocks(ctx context.Context, blocks, left []measured.Block, o Options) (*Result, error) {
	knobs, err := o.knobs(blockCoefficients, true)
	if err != nil {
		return nil, err
	}
	blocks = slices.DeleteFunc(slices.Clone(blocks), func(b measured.Block) bool { return b.Skipped != "" })
	if len(blocks) == 0 {
		return nil, errors.New("no closed-loop block with known lengths to fit")
	}
	_, fit, err := o.fit(ctx, model{profile: o.Start}, knobs, 0,
		func(ctx context.Context, m *model) (r []float64, err error) {
			for i := range blocks {
				vs, err := measured.PredictBlock(ctx, &blocks[i], m.profile)
				if err != nil {
					return nil, err
				}
				for _, metric := range measured.BlockMetrics {
					if measured, ok := blocks[i].Measured[metric]; ok {
						r = append(r, logError(measured, vs[metric])/blockNoise[metric])
					}
				}
			}
			return r, nil
		})
	if err != nil {
		return nil, err
	}
	if len(left) > 0 {
		r, err := check.Logs(ctx, left, fit.Profile)
		if err != nil {
			return nil, err
		}
		fit.Profile.Validation = r.Validation("blocks not fitted")
	}
	names := make([]string, len(blocks))
	for i := range blocks {
		names[i] = blocks[i].Name()
	}
	return fit.describe(o.Start, "%d closed-loop blocks (%s)", len(blocks), strings.Join(names, ", "))
}
