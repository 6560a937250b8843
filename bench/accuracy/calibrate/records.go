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
	// MaxConcurrency is the client's limit of requests in flight; 0: as the records show it.
	MaxConcurrency int
}

// fitter fits knobs to runs.
type fitter func(ctx context.Context, knobs []knob, runs []*replay) (*Fit, error)

// method is how to fit, and what, unless the user says it; far: from a start that may be
// all but zero, see [Options.knobs].
func (o *RecordsOptions) method(runs []*replay) (fitTo fitter, defaults []string, far bool) {
	switch {
	case o.Start == nil: // knobs says so
	case o.Start.Latency.Law == profile.LawAdapters && timed(runs):
		return o.fitSteps, stepCoefficients, true
	case o.Start.Latency.Law == profile.LawAdapters:
		return o.fitFigures, stepCoefficients, false
	case o.Start.Latency.Law == profile.LawRoofline:
		return o.fitFigures, figureCoefficients, false
	}
	return o.fitEquations, recordCoefficients, true
}

// Records fits a profile to the records of live runs. How follows from its law:
//
//   - phases: the coefficients to the equations of the runs (see [span]), which are exact
//     but for the scatter of the clock;
//   - adapters, with the times of all tokens: to the steps of the runs (see [step]);
//   - roofline, and adapters without those times: to the figures of the runs in whole
//     simulations (see [Options.fitFigures]).
//
// The validation has the errors of E2E latency and TTFT, in a simulation of the requests
// on the workers to which they went, on the requests held out of each run.
func Records(ctx context.Context, records [][]record.Request, o RecordsOptions) (*Fit, error) {
	if !(o.Holdout >= 0 && o.Holdout < 1) {
		return nil, fmt.Errorf("holdout is %v, expected 0 to below 1", o.Holdout)
	}
	runs, err := newReplays(records, o.MaxConcurrency, o.Holdout)
	if err != nil {
		return nil, err
	}
	fitTo, defaults, far := o.method(runs)
	knobs, err := o.knobs(defaults, far)
	if err != nil {
		return nil, err
	}
	succeeded := 0
	for _, rs := range records {
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
	for _, run := range runs {
		got, err := run.simulate(ctx, fit.Profile)
		if err != nil {
			return nil, err
		}
		for k := run.fitted; k < len(got); k++ {
			q := &run.Measured[k]
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
