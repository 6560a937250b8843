package calibrate

import (
	"context"
	"fmt"

	"lorasim/bench/accuracy/validate"
	"lorasim/bench/stats"
	"lorasim/sim/profile"
	"lorasim/sim/record"
)

// recordCoefficients are the coefficients that records say something about.
var recordCoefficients = []string{
	"decode.base_ms", "decode.per_request_ms", "decode.per_kv_token_us",
	"prefill.base_ms", "prefill.per_token_us", "prefill.per_token_ctx_ns",
	"lora.csgmv_us", "lora.triton_us", "lora.prefill_factor", "request_overhead_ms",
}

// RecordsOptions say how to fit to records.
type RecordsOptions struct {
	Options
	// Holdout is the share of the requests, the last ones, that the fit does
	// not look at, to measure its errors on.
	Holdout float64
}

// Records fits a profile to the records of live runs: its coefficients to the
// equations of the runs (see [span]), which are exact but for the scatter of
// the clock, or to their steps (see [step]) where its law is that by distinct
// adapters. The validation has the errors of E2E latency and TTFT, in a simulation
// of the requests on the workers and at the times at which they were sent, on the
// requests held out of each run.
func Records(ctx context.Context, records [][]record.Request, o RecordsOptions) (*Fit, error) {
	if !(o.Holdout >= 0 && o.Holdout < 1) {
		return nil, fmt.Errorf("holdout is %v, expected 0 to below 1", o.Holdout)
	}
	fitTo, defaults := o.fitEquations, recordCoefficients
	if o.Start != nil && o.Start.Latency.Law == profile.LawAdapters {
		fitTo, defaults = o.fitSteps, stepCoefficients
	}
	knobs, err := o.knobs(defaults, true)
	if err != nil {
		return nil, err
	}
	var runs []*replay
	succeeded := 0
	for i, rs := range records {
		run, err := newReplay(rs)
		if err != nil {
			return nil, fmt.Errorf("run %d: %w", i+1, err)
		}
		run.fitted = len(run.measured) - int(o.Holdout*float64(len(run.measured)))
		runs = append(runs, run)
		for _, r := range rs {
			if r.Status == record.OK {
				succeeded++
			}
		}
	}
	fit, err := fitTo(ctx, knobs, runs)
	if err != nil {
		return nil, err
	}
	const e2e, ttft = "e2e of each request", "ttft of each request"
	errs := map[validate.Metric][]float64{}
	for i, run := range runs {
		got, err := run.simulate(ctx, fit.Profile)
		if err != nil {
			return nil, fmt.Errorf("run %d: %w", i+1, err)
		}
		for k := run.fitted; k < len(got); k++ {
			q := &run.measured[k]
			if q.E2E() > 0 {
				errs[e2e] = append(errs[e2e], got[k].E2E()/q.E2E()-1)
			}
			if streamed(q) && q.TTFT() > 0 {
				errs[ttft] = append(errs[ttft], got[k].TTFT()/q.TTFT()-1)
			}
		}
	}
	fit.Profile.Validation = validate.ValidationOf(stats.SummarizeErrorsBy(errs), []validate.Metric{e2e, ttft},
		"held-out requests")
	return fit.describe(o.Start, "%d per-request records", succeeded)
}

// How far an equation may be off: by the client's clock, in s, and by steps
// whose sharing had to be estimated, as a fraction.
const (
	clockNoise  = 0.003
	recordNoise = 0.01
)
