package fit

import (
	"context"
	"errors"
	"math"

	"lorasim/bench/fidelity/sloraruns"
	"lorasim/bench/stats"
)

// sloraCoefficients are the coefficients that S-LoRA's published runs determine. lora.rank_us keeps the
// profile's value, the time to read an adapter's weights from the GPU's memory: with many adapters of mixed
// ranks, its effect cannot be told from that of lora.request_rank_us.
var sloraCoefficients = []string{"decode.base_ms", "decode.per_request_ms", "decode.per_kv_token_us",
	"prefill.base_ms", "prefill.per_token_us", "lora.launch_ms", "lora.request_rank_us",
	"lora.token_rank_ns", "load.host_to_gpu_ms", "load.host_to_gpu_gb_per_s", "request_overhead_ms"}

// Units of deviation: relative, for the attainment absolute. Their ratios are those of the spreads
// between repetitions of a run.
const (
	sloraTime, sloraLatency, sloraFirst, sloraAttainment = 0.005, 0.015, 0.04, 0.01
)

// SLoRA fits a profile to published runs of S-LoRA by whole simulations.
func SLoRA(ctx context.Context, runs []sloraruns.Run, o Options) (*Result, error) {
	if len(runs) == 0 {
		return nil, errors.New("calibrate: no runs to fit")
	}
	knobs, err := o.knobs(sloraCoefficients, false)
	if err != nil {
		return nil, err
	}
	o.coarse = true
	best, fit, err := o.fit(ctx, model{profile: o.Start}, knobs, 3,
		func(ctx context.Context, m *model) (rs []float64, err error) {
			predicted, err := sloraruns.Predict(ctx, runs, m.profile, nil)
			for i, p := range predicted {
				rs = append(rs, sloraResiduals(p, runs[i].Measured)...)
			}
			return rs, err
		})
	if err != nil {
		return nil, err
	}
	predicted, err := sloraruns.Predict(ctx, runs, best.profile, nil)
	if err != nil {
		return nil, err
	}
	var es []float64
	for i, p := range predicted {
		es = append(es, p.Latency/runs[i].Measured.Latency-1)
	}
	fit.Errors = stats.SummarizeErrors(es)
	return fit.describe(o.Start, "%d published runs of S-LoRA on %s", len(runs), runs[0].GPU)
}

// sloraResiduals returns the deviations of a run in units. They are robust, since files of runs come from different
// builds, and some rows contradict all others.
func sloraResiduals(p, m sloraruns.Figures) []float64 {
	attainment := 0.0
	if !math.IsNaN(m.Attainment) {
		attainment = (p.Attainment - m.Attainment) / sloraAttainment
	}
	return []float64{robust(math.Log(p.TotalTime/m.TotalTime) / sloraTime),
		robust(math.Log(p.Latency/m.Latency) / sloraLatency),
		robust(math.Log(p.FirstToken/m.FirstToken) / sloraFirst), robust(attainment)}
}
