package fit

import (
	"context"
	"fmt"
	"slices"

	"lorasim/bench/fidelity/check"
	"lorasim/bench/fidelity/measured"
	"lorasim/bench/stats"
	"lorasim/sim/profile"
	"lorasim/sim/record"
)

// recordCoefficients are the coefficients that affect records.
var recordCoefficients = []string{
	"decode.base_ms", "decode.per_request_ms", "decode.per_kv_token_us",
	"prefill.base_ms", "prefill.per_token_us", "prefill.per_token_ctx_ns", "request_overhead_ms",
}

// RecordsOptions configures a fit to records.
type RecordsOptions struct {
	Options
	// Holdout is the share of the requests, the last ones, that are held out of the fit to measure
	// its errors.
	Holdout float64
	// MaxConcurrency is the client's limit of requests in flight; 0: derived from the records.
	MaxConcurrency int
	// MemoryStated says that the size of the KV cache in Start is that of the server.
	MemoryStated bool
}

// fitter fits knobs to runs.
type fitter func(ctx context.Context, knobs []knob, runs []*replay) (*Result, error)

// method chooses the fitter and the default coefficients by the law of the profile, with those of its LoRA backend if
// a request has an adapter. far says that coefficients may start near 0, see [Options.knobs].
func (o *RecordsOptions) method(runs []*replay) (fitTo fitter, defaults []string, far bool) {
	fitTo, defaults, far = o.methodWithoutLoRA(runs)
	if o.Start != nil && slices.ContainsFunc(runs, (*replay).adapted) {
		names := loraCoefficients(&o.Start.Latency)
		if !severalRanks(runs) { // rank is then a part of launch
			names = slices.DeleteFunc(names, func(n string) bool { return n == "lora.rank_us" })
		}
		defaults = slices.Concat(defaults, names)
	}
	return fitTo, defaults, far
}

func (o *RecordsOptions) methodWithoutLoRA(runs []*replay) (fitTo fitter, defaults []string, far bool) {
	switch {
	case o.Start == nil: // knobs returns the error
	case o.Start.Latency.Law == profile.LawAdapters && timed(runs):
		return o.fitSteps, stepCoefficients, true
	case o.Start.Latency.Law == profile.LawAdapters:
		return o.fitFigures, stepCoefficients, false
	case o.Start.Latency.Law == profile.LawRoofline:
		return o.fitFigures, figureCoefficients, false
	}
	return o.fitEquations, recordCoefficients, true
}

// Records fits a profile to the records of live runs. The law of the profile selects the method:
//
//   - phases: the coefficients are fitted to the equations of the runs (see [span]), which are exact
//     except for the scatter of the clock;
//   - adapters, with the times of all tokens: they are fitted to the steps of the runs (see [step]);
//   - roofline, and adapters without those times: they are fitted to the figures of the runs in
//     whole simulations (see [Options.fitFigures]).
//
// The validation has the errors of E2E latency and TTFT on the held-out requests of each run. They
// are simulated on the workers that served them.
func Records(ctx context.Context, records [][]record.Request, o RecordsOptions) (*Result, error) {
	if !(o.Holdout >= 0 && o.Holdout < 1) {
		return nil, fmt.Errorf("holdout is %v, expected 0 to below 1", o.Holdout)
	}
	runs, err := newReplays(records, o.MaxConcurrency, o.Holdout)
	if err != nil {
		return nil, err
	}
	memory := o.memory(runs)
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
	errs := map[measured.Metric][]float64{}
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
	fit.Profile.Validation = check.Summary(stats.SummarizeErrorsBy(errs)).Validation([]measured.Metric{e2e, ttft},
		"held-out requests")
	fit.Notes = slices.Concat(o.loraNotes(fit, slices.ContainsFunc(runs, (*replay).adapted)), memory)
	return fit.describe(o.Start, "%d per-request records", succeeded)
}

// Uncertainty of an equation: the client's clock, s, and steps whose sharing is estimated, as a
// fraction.
const (
	clockNoise  = 0.003
	recordNoise = 0.01
)
