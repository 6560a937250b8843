package main

import (
	"context"
	"errors"
	"fmt"
	"math"

	"lorasim/bench/fidelity/fit"
	"lorasim/bench/stats"
	"lorasim/sim/profile"
)

// coefficients are those that S-LoRA's published runs determine. lora.rank_us keeps the profile's value, the time to
// read an adapter's weights from the GPU's memory: with many adapters of mixed ranks, its effect cannot be told from
// that of lora.request_rank_us.
var coefficients = []string{"decode.base_ms", "decode.per_request_ms", "decode.per_kv_token_us",
	"prefill.base_ms", "prefill.per_token_us", "lora.launch_ms", "lora.request_rank_us",
	"lora.token_rank_ns", "load.host_to_gpu_ms", "load.host_to_gpu_gb_per_s", "request_overhead_ms"}

// Units of deviation: relative, for the attainment absolute. Their ratios are those of the spreads between
// repetitions of a run.
const (
	timeUnit, latencyUnit, firstUnit, attainmentUnit = 0.005, 0.015, 0.04, 0.01
)

// fitted fits a profile to runs by whole simulations.
func fitted(ctx context.Context, runs []Run, o fit.Options) (*fit.Result, error) {
	if len(runs) == 0 {
		return nil, errors.New("no runs to fit")
	}
	own := fit.Own{
		Coefficients: coefficients,
		Data:         fmt.Sprintf("%d published runs of S-LoRA on %s", len(runs), runs[0].GPU),
		Deviations: func(ctx context.Context, p *profile.Profile) (ds []float64, err error) {
			predicted, err := Predict(ctx, runs, p, nil)
			for i, f := range predicted {
				ds = append(ds, deviations(f, runs[i].Measured)...)
			}
			return ds, err
		},
		Errors: func(ctx context.Context, p *profile.Profile) (stats.ErrorSummary, error) {
			predicted, err := Predict(ctx, runs, p, nil)
			var es []float64
			for i, f := range predicted {
				es = append(es, f.Latency/runs[i].Measured.Latency-1)
			}
			return stats.SummarizeErrors(es), err
		},
	}
	return own.Fit(ctx, o)
}

// deviations returns the deviations of a run in units. Files of runs come from different builds, and some rows
// contradict all others.
func deviations(p, m Figures) []float64 {
	attainment := 0.0
	if !math.IsNaN(m.Attainment) {
		attainment = (p.Attainment - m.Attainment) / attainmentUnit
	}
	return []float64{math.Log(p.TotalTime/m.TotalTime) / timeUnit, math.Log(p.Latency/m.Latency) / latencyUnit,
		math.Log(p.FirstToken/m.FirstToken) / firstUnit, attainment}
}
