package fit

import (
	"cmp"
	"context"

	"lorasim/bench/fidelity/measured"
	"lorasim/internal/parallel"
	"lorasim/sim/profile"
	"lorasim/sim/record"
)

// figureCoefficients are the coefficients of law roofline that affect the figures of runs.
var figureCoefficients = []string{
	"decode.base_ms", "decode.per_request_ms", "decode.per_kv_token_us",
	"prefill.per_token_us", "prefill.per_token_ctx_ns", "prefill.mixed_ms", "prefill.mixed_per_request_ms",
	"request_overhead_ms",
}

// figureNoise is the relative difference between two measurements of the same run: medians of
// eleven repeated runs of vLLM with Qwen3-14B on an H100. For the duration the run is saturated.
var figureNoise = map[measured.Metric]float64{
	measured.Duration: 0.005,
	measured.TTFTMean: 0.014, measured.TTFTMedian: 0.011, measured.TTFTP90: 0.016, measured.TTFTP99: 0.024,
	measured.TPOTMean: 0.005, measured.TPOTP99: 0.007,
	measured.E2EMean: 0.005, measured.E2EP90: 0.006, measured.E2EP99: 0.007,
}

const (
	// figurePrior is the standard deviation of the logarithm of a coefficient about its start, where
	// [figurePriors] has none. It equals the spread of computed over published step times
	// (figures_test.go of sim/profile).
	figurePrior = 0.2
	// figureScale multiplies figureNoise: ten figures of a run are worth only a few independent
	// ones, and the simulator is not exact.
	figureScale = 3
	// figureEvaluations is the number of simulations of all runs, per coefficient.
	figureEvaluations = 100
)

// fitFigures fits the knobs to the figures of runs ([measured.Figures]) by whole simulations of the
// fitted requests of each run. The simulated client gets each request when the real one did. The
// fit needs no token times, and handles saturated runs like others.
func (o *Options) fitFigures(ctx context.Context, knobs []knob, runs []*replay) (*Result, error) {
	seen := make([]measured.Values, len(runs))
	for i, run := range runs {
		seen[i] = run.figures(run.Measured)
	}
	with := *o
	with.Evaluations, with.coarse = cmp.Or(o.Evaluations, figureEvaluations*len(knobs)), true
	start, priors := model{profile: o.Start}, knobs
	if o.Start.Latency.Law == profile.LawRoofline {
		priors = withPriors(knobs)
	}
	loosen(priors)
	_, fit, err := with.fit(ctx, start, priors, figurePrior, func(ctx context.Context, m *model) ([]float64, error) {
		parts := make([][]float64, len(runs))
		err := parallel.Do(ctx, len(runs), func(i int) error {
			got, err := runs[i].simulate(ctx, m.profile)
			if err != nil {
				return err
			}
			predicted := runs[i].figures(got)
			for _, metric := range measured.RecordingMetrics {
				if a, ok := seen[i][metric]; ok {
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

// figures returns the figures of the fitted requests of a run.
func (run *replay) figures(rs []record.Request) measured.Values {
	return measured.Figures(rs[:run.fitted], run.Measured[:run.fitted])
}
