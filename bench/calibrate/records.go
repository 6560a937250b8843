package calibrate

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"lorasim/bench/validate"
	"lorasim/internal/record"
	"lorasim/router"
	"lorasim/sim"
	"lorasim/sim/profile"
	"lorasim/trace"
)

// RecordCoefficients are the coefficients that records say something about.
var RecordCoefficients = []string{
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
// adapters. It returns the errors of E2E latency and TTFT, in a simulation of
// the requests on the workers and at the times at which they were sent, on the
// requests held out of each run.
func Records(ctx context.Context, records [][]record.Request, o RecordsOptions) (*profile.Profile, *Fit, []profile.Validation, error) {
	if !(o.Holdout >= 0 && o.Holdout < 1) {
		return nil, nil, nil, fmt.Errorf("holdout is %v, expected 0 to below 1", o.Holdout)
	}
	fitTo, defaults := o.fitEquations, RecordCoefficients
	if o.Start != nil && o.Start.Latency.Law == profile.LawAdapters {
		fitTo, defaults = o.fitSteps, StepCoefficients
	}
	knobs, err := o.knobs(defaults, true)
	if err != nil {
		return nil, nil, nil, err
	}
	var runs []*replay
	for i, rs := range records {
		run, err := newReplay(rs)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("run %d: %w", i+1, err)
		}
		run.fitted = len(run.measured) - int(o.Holdout*float64(len(run.measured)))
		runs = append(runs, run)
	}
	best, fit, err := fitTo(ctx, knobs, runs)
	if err != nil {
		return nil, nil, nil, err
	}
	var e2e, ttft []float64 // errors of single requests
	for i, run := range runs {
		got, err := run.simulate(ctx, best)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("run %d: %w", i+1, err)
		}
		for k := run.fitted; k < len(got); k++ {
			q := &run.measured[k]
			if q.E2E() > 0 {
				e2e = append(e2e, got[k].e2e/q.E2E()-1)
			}
			if streamed(q) && q.TTFT() > 0 {
				ttft = append(ttft, got[k].ttft/q.TTFT()-1)
			}
		}
	}
	var held []profile.Validation
	for i, errs := range [][]float64{e2e, ttft} {
		if s := validate.Summarize(errs); s.Runs > 0 {
			held = append(held, profile.Validation{Runs: fmt.Sprintf("%d held-out requests", s.Runs), Metric: []string{"e2e", "ttft"}[i] + " of each request",
				MedianAbsError: s.MedianAbsError, P90AbsError: s.P90AbsError})
		}
	}
	return best, fit, held, nil
}

// replay is a recorded run ready to be simulated.
type replay struct {
	measured []record.Request // by the time they were sent
	fitted   int              // so many of these are fitted, the first ones
	workload trace.Workload
	workers  int
}

func newReplay(rs []record.Request) (*replay, error) {
	run := &replay{}
	for _, r := range rs {
		switch {
		case r.Status != record.OK:
		case r.WorkerLast < 0:
			return nil, fmt.Errorf("request %d: no worker is recorded", r.ID)
		case r.Output < 1 || r.Prompt < 1:
			return nil, fmt.Errorf("request %d: %d prompt and %d output tokens, expected at least 1 each", r.ID, r.Prompt, r.Output)
		case r.Migrations == 0:
			run.measured = append(run.measured, r)
		}
	}
	if len(run.measured) < 10 {
		return nil, fmt.Errorf("%d successful requests, expected at least 10", len(run.measured))
	}
	slices.SortStableFunc(run.measured, func(a, b record.Request) int { return cmp.Compare(a.Sent, b.Sent) })
	adapters := 0
	for _, r := range run.measured {
		adapters, run.workers = max(adapters, int(r.Adapter)+1), max(run.workers, int(r.WorkerLast)+1)
	}
	if adapters > 1_000_000 || run.workers > 100_000 {
		return nil, fmt.Errorf("adapter index %d and worker index %d, expected below 10^6 and 10^5", adapters-1, run.workers-1)
	}
	run.workload.Adapters = trace.Names(adapters, nil)
	for i, r := range run.measured {
		if r.Adapter >= 0 {
			run.workload.Adapters[r.Adapter].Rank = int(r.Rank)
		}
		run.workload.Requests = append(run.workload.Requests, trace.Request{
			ID: int64(i), Arrival: r.Sent, Adapter: r.Adapter, Prompt: r.Prompt, Output: r.Output, MaxNew: max(r.Requested, r.Output),
		})
	}
	return run, nil
}

// times are when a request got its first and its last token, s after it was
// sent.
type times struct{ ttft, e2e float64 }

// simulate returns the simulated times of all requests, in order; every request
// goes where it went.
func (run *replay) simulate(ctx context.Context, p *profile.Profile) ([]times, error) {
	got := make([]times, len(run.measured))
	failed, reason := 0, ""
	_, err := sim.Run(ctx, sim.Config{
		Source: run.workload.Source(), Workers: slices.Repeat([]*profile.Costs{p.Compile()}, run.workers), Home: router.Disk,
		Router: &router.Router{Policy: validate.Fixed(func(id int64) int { return int(run.measured[id].WorkerLast) })},
		Observer: validate.Done(func(r *record.Request) {
			if r.Status != record.OK {
				failed++
				reason = r.Error
				return
			}
			got[r.ID] = times{r.TTFT(), r.E2E()}
		}),
	})
	if err == nil && failed > 0 {
		err = fmt.Errorf("%d requests that succeeded live do not in the simulation (%s): the profile's engine or memory is not that of the workers", failed, reason)
	}
	return got, err
}

// streamed says whether the client saw the first token before the last one.
func streamed(r *record.Request) bool { return r.Output > 1 && r.FirstToken < r.Finish }

// How far an equation may be off: by the client's clock, in s, and by steps
// whose sharing had to be estimated, as a fraction.
const (
	clockNoise  = 0.003
	recordNoise = 0.01
)

// fitEquations fits the knobs to the equations of runs.
func (o *Options) fitEquations(ctx context.Context, knobs []knob, runs []*replay) (*profile.Profile, *Fit, error) {
	var eqs []span
	for _, run := range runs {
		eqs = append(eqs, equations(run, o.Start)...)
	}
	// The equations are reason enough to leave the start: hence the wide prior.
	best, fit, err := o.fit(ctx, model{profile: o.Start}, knobs, 3, func(_ context.Context, m *model) ([]float64, error) {
		return equationResiduals(eqs, m.profile), nil
	})
	if err != nil {
		return nil, nil, err
	}
	return best.profile, fit, nil
}

// equationResiduals are the relative errors of the equations over the noise.
func equationResiduals(eqs []span, p *profile.Profile) []float64 {
	r := make([]float64, len(eqs))
	for i := range eqs {
		s := &eqs[i]
		r[i] = robust((s.predict(p) - s.seconds) / math.Hypot(clockNoise, recordNoise*s.seconds))
	}
	return r
}

// robust has large errors count less than their square (pseudo-Huber loss):
// where steps were matched wrongly, one is off by much, whatever the coefficients.
func robust(e float64) float64 {
	return math.Copysign(math.Sqrt(2*(math.Sqrt(1+e*e)-1)), e)
}
