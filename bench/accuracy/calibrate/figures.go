package calibrate

import (
	"cmp"
	"context"

	"lorasim/bench/accuracy/recorded"
	"lorasim/bench/accuracy/validate"
	"lorasim/internal/parallel"
	"lorasim/sim/record"
)

// figureCoefficients are the coefficients of law roofline that the figures of runs say
// something about.
var figureCoefficients = []string{
	"decode.base_ms", "decode.per_request_ms", "decode.per_kv_token_us",
	"prefill.per_token_us", "prefill.per_token_ctx_ns", "prefill.mixed_ms", "prefill.mixed_per_request_ms",
	"request_overhead_ms",
}

// figureNoise is how far apart two measurements of the same run lie, as a fraction: the
// medians of eleven repeated runs of vLLM with Qwen3-14B on an H100. Of the duration that
// of a saturated run is meant.
var figureNoise = map[validate.Metric]float64{
	recorded.Duration: 0.005,
	recorded.TTFTMean: 0.014, recorded.TTFTMedian: 0.011, recorded.TTFTP90: 0.016, recorded.TTFTP99: 0.024,
	recorded.TPOTMean: 0.005, recorded.TPOTP99: 0.007,
	recorded.E2EMean: 0.005, recorded.E2EP90: 0.006, recorded.E2EP99: 0.007,
}

const (
	// figurePrior is the standard deviation of the logarithm of a coefficient about its
	// start: that of computed over published step times (figures_test.go of sim/profile).
	figurePrior = 0.2
	// figureScale is how many times figureNoise a figure counts as uncertain: ten figures
	// of a run tell no more than a few independent ones, and the simulator is not exact.
	figureScale = 3
	// figureEvaluations are the simulations of all runs for each coefficient.
	figureEvaluations = 100
)

// fitFigures fits the knobs to the figures of runs ([recorded.Figures]) in whole
// simulations: of the fitted requests of each run, whose requests are given to the client
// when they were. It needs no times of tokens, and saturated runs are runs as any.
func (o *Options) fitFigures(ctx context.Context, knobs []knob, runs []*replay) (*Fit, error) {
	measured := make([]validate.Values, len(runs))
	for i, run := range runs {
		measured[i] = run.figures(run.Measured)
	}
	with := *o
	with.Evaluations, with.coarse = cmp.Or(o.Evaluations, figureEvaluations*len(knobs)), true
	start := model{profile: o.Start}
	_, fit, err := with.fit(ctx, start, knobs, figurePrior, func(ctx context.Context, m *model) ([]float64, error) {
		parts := make([][]float64, len(runs))
		err := parallel.Do(ctx, len(runs), func(i int) error {
			got, err := runs[i].simulate(ctx, m.profile)
			if err != nil {
				return err
			}
			predicted := runs[i].figures(got)
			for _, metric := range recorded.Metrics {
				if a, ok := measured[i][metric]; ok {
					parts[i] = append(parts[i], logError(a, predicted[metric])/(figureScale*figureNoise[metric]))
				}
			}
			return nil
		}, nil)
		var r []float64
		for _, p := range parts {
			r = append(r, p...)
		}
		return r, err
	})
	return fit, err
}

// figures are those of the fitted requests of a run.
func (run *replay) figures(rs []record.Request) validate.Values {
	return recorded.Figures(rs[:run.fitted], run.Measured[:run.fitted])
}
