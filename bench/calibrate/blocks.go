package calibrate

import (
	"context"
	"errors"

	"lorasim/bench/validate"
	"lorasim/sim/profile"
)

// BlockCoefficients are the coefficients that blocks say something about.
var BlockCoefficients = []string{
	"decode.base_ms", "decode.per_request_ms", "decode.per_kv_token_us",
	"prefill.base_ms", "prefill.per_token_us", "prefill.first_extend_ms", "request_overhead_ms",
}

// blockNoise is how far apart repeated runs of a benchmark lie, as a fraction;
// tails and the waits of the first wave scatter more than means.
var blockNoise = map[validate.Metric]float64{
	validate.Duration: 0.01, validate.MeanE2E: 0.01, validate.MedianE2E: 0.01,
	validate.MeanTTFT: 0.02, validate.MedianTTFT: 0.02, validate.P99TTFT: 0.03,
	validate.MeanITL: 0.01, validate.MedianITL: 0.01, validate.P95ITL: 0.01, validate.P99ITL: 0.02, validate.MaxITL: 0.03,
}

// Options say how to fit.
type Options struct {
	Start *profile.Profile
	// Fit names the coefficients to fit; empty: those that the kind of data
	// says something about.
	Fit         []string
	Evaluations int // 0: as Problem has it
	Progress    func(done, total int, loss float64)
}

var errNoStart = errors.New("calibrate: no profile to start from")

// problem is the common part of all problems.
func (o *Options) problem(defaults []string, floor bool) (Problem, []coefficient, error) {
	if o.Start == nil {
		return Problem{}, nil, errNoStart
	}
	names := o.Fit
	if len(names) == 0 {
		names = defaults
	}
	cs, err := choose(names, o.Start.Latency.Law)
	if err != nil {
		return Problem{}, nil, err
	}
	return Problem{Params: params(cs, o.Start, floor), Evaluations: o.Evaluations, Progress: o.Progress}, cs, nil
}

// Blocks fits a profile to closed-loop blocks.
func Blocks(ctx context.Context, blocks []validate.Block, o Options) (*profile.Profile, *Fit, error) {
	p, cs, err := o.problem(BlockCoefficients, true)
	if err != nil {
		return nil, nil, err
	}
	var usable []validate.Block
	for _, b := range blocks {
		if b.Skipped == "" {
			usable = append(usable, b)
		}
	}
	if len(usable) == 0 {
		return nil, nil, errors.New("no closed-loop block with known lengths to fit")
	}
	p.Residuals = func(ctx context.Context, x []float64) ([]float64, error) {
		return blockResiduals(ctx, usable, with(o.Start, cs, x))
	}
	fit, err := Solve(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	return with(o.Start, cs, fit.X), fit, nil
}

func blockResiduals(ctx context.Context, blocks []validate.Block, p *profile.Profile) ([]float64, error) {
	var r []float64
	for i := range blocks {
		vs, err := validate.SimulateBlock(ctx, &blocks[i], p)
		if err != nil {
			return nil, err
		}
		for _, m := range validate.BlockMetrics {
			if measured, ok := blocks[i].Measured[m]; ok {
				r = append(r, logError(measured, vs[m])/blockNoise[m])
			}
		}
	}
	return r, nil
}
