package calibrate

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"lorasim/bench/validate"
	"lorasim/internal/record"
	"lorasim/internal/tick"
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

// How far an equation may be off: by the client's clock, in s, and by steps
// whose sharing had to be estimated, as a fraction.
const (
	clockNoise  = 0.003
	recordNoise = 0.01
)

// RecordsOptions say how to fit to records.
type RecordsOptions struct {
	Options
	// Holdout is the share of the requests, the last ones, that the fit does
	// not look at, to measure its errors on.
	Holdout float64
}

// replay is a recorded run ready to be simulated.
type replay struct {
	measured []record.Request // by the time they were sent
	workload trace.Workload
	workers  []int32 // of each request
	count    int     // of workers
}

// Records fits a profile to the records of live runs: its coefficients to the
// equations of the runs (see [span]), which are exact but for the scatter of
// the clock, or to their steps (see [step]) where its law is that by distinct
// adapters. It returns the errors of E2E latency and TTFT, in a simulation of
// the requests on the workers and at the times at which they were sent, on the
// requests held out of each run.
func Records(ctx context.Context, records [][]record.Request, o RecordsOptions) (*profile.Profile, *Fit, []profile.Validation, error) {
	if o.Start == nil {
		return nil, nil, nil, errNoStart
	}
	if !(o.Holdout >= 0 && o.Holdout < 1) {
		return nil, nil, nil, fmt.Errorf("holdout is %v, expected 0 to below 1", o.Holdout)
	}
	var runs []*replay
	var fitted []int // requests of each run
	for i, rs := range records {
		run, err := newReplay(rs)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("run %d: %w", i+1, err)
		}
		runs = append(runs, run)
		fitted = append(fitted, len(run.measured)-int(o.Holdout*float64(len(run.measured))))
	}
	best, fit, err := fitRecords(ctx, runs, fitted, &o.Options)
	if err != nil {
		return nil, nil, nil, err
	}
	var errs errorsOf
	for i, run := range runs {
		got, err := run.simulate(ctx, best)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("run %d: %w", i+1, err)
		}
		errs.add(run, got, fitted[i])
	}
	return best, fit, errs.validation(), nil
}

// fitRecords fits to the first fitted[i] requests of each run.
func fitRecords(ctx context.Context, runs []*replay, fitted []int, o *Options) (*profile.Profile, *Fit, error) {
	if o.Start.Latency.Law == profile.LawAdapters {
		steps, waits, err := stepsOfRuns(runs, fitted, o.Start)
		if err != nil {
			return nil, nil, err
		}
		return fitSteps(ctx, len(runs), steps, waits, o)
	}
	p, cs, err := o.problem(RecordCoefficients, true)
	if err != nil {
		return nil, nil, err
	}
	var eqs []span
	for i, run := range runs {
		eqs = append(eqs, equations(run, fitted[i], o.Start)...)
	}
	p.Residuals = func(_ context.Context, x []float64) ([]float64, error) {
		return equationResiduals(eqs, with(o.Start, cs, x)), nil
	}
	p.Prior = 3 // the equations are reason enough to leave the start
	fit, err := Solve(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	return with(o.Start, cs, fit.X), fit, nil
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

func newReplay(rs []record.Request) (*replay, error) {
	run := &replay{}
	for _, r := range rs {
		if r.Status != record.OK {
			continue
		}
		if r.WorkerLast < 0 {
			return nil, fmt.Errorf("request %d: no worker is recorded", r.ID)
		}
		if r.Output < 1 || r.Prompt < 1 {
			return nil, fmt.Errorf("request %d: %d prompt and %d output tokens, expected at least 1 each", r.ID, r.Prompt, r.Output)
		}
		if r.Migrations == 0 {
			run.measured = append(run.measured, r)
		}
	}
	if len(run.measured) < 10 {
		return nil, fmt.Errorf("%d successful requests, expected at least 10", len(run.measured))
	}
	slices.SortStableFunc(run.measured, func(a, b record.Request) int { return cmp.Compare(a.Sent, b.Sent) })
	adapters := int32(0)
	for i := range run.measured {
		adapters = max(adapters, run.measured[i].Adapter+1)
	}
	if adapters > 1_000_000 {
		return nil, fmt.Errorf("adapter index %d, expected below 10^6", adapters-1)
	}
	run.workload.Adapters = trace.Names(int(adapters), nil)
	for i, r := range run.measured {
		if r.Adapter >= 0 {
			run.workload.Adapters[r.Adapter].Rank = int(r.Rank)
		}
		run.workload.Requests = append(run.workload.Requests, trace.Request{
			ID: int64(i), Arrival: r.Sent, Adapter: r.Adapter, Prompt: r.Prompt, Output: r.Output, MaxNew: max(r.Requested, r.Output),
		})
		run.workers = append(run.workers, r.WorkerLast)
		run.count = max(run.count, int(r.WorkerLast)+1)
	}
	if run.count > 100_000 {
		return nil, fmt.Errorf("worker index %d, expected below 10^5", run.count-1)
	}
	return run, nil
}

// Route implements router.Policy: every request goes where it went.
func (run *replay) Route(r router.Request, _ *router.View) int { return int(run.workers[r.ID]) }

// times are when a request got its first and its last token, s after it was
// sent.
type times struct{ ttft, e2e float64 }

// simulate returns the simulated times of all requests, in order.
func (run *replay) simulate(ctx context.Context, p *profile.Profile) ([]times, error) {
	costs := p.Compile()
	workers := make([]*profile.Costs, run.count)
	for i := range workers {
		workers[i] = costs
	}
	o := &timesOf{got: make([]times, len(run.measured))}
	_, err := sim.Run(ctx, sim.Config{
		Source: run.workload.Source(), Workers: workers, Router: &router.Router{Policy: run}, Observer: o, Home: router.Disk,
	})
	if err == nil && o.failed > 0 {
		err = fmt.Errorf("%d requests that succeeded live do not in the simulation (%s): the profile's engine or memory is not that of the workers", o.failed, o.reason)
	}
	return o.got, err
}

// timesOf observes a run whose ids are indices.
type timesOf struct {
	got    []times
	failed int
	reason string
}

func (o *timesOf) Done(r *record.Request) {
	if r.Status != record.OK {
		o.failed++
		o.reason = r.Error
		return
	}
	o.got[r.ID] = times{r.TTFT(), r.E2E()}
}

func (*timesOf) Tokens(tick.Ticks, int64) {}
func (*timesOf) Steps(record.Steps)       {}
func (*timesOf) Gap(tick.Ticks, int64)    {}

// streamed says whether the client saw the first token before the last one.
func streamed(r *record.Request) bool { return r.Output > 1 && r.FirstToken < r.Finish }

// errorsOf are the errors of single requests.
type errorsOf struct{ e2e, ttft []float64 }

// add enters those of the requests of a run from index from on.
func (e *errorsOf) add(run *replay, got []times, from int) {
	for i := from; i < len(got); i++ {
		q := &run.measured[i]
		if q.E2E() > 0 {
			e.e2e = append(e.e2e, got[i].e2e/q.E2E()-1)
		}
		if streamed(q) && q.TTFT() > 0 {
			e.ttft = append(e.ttft, got[i].ttft/q.TTFT()-1)
		}
	}
}

func (e *errorsOf) validation() (out []profile.Validation) {
	for _, m := range []struct {
		name   string
		errors []float64
	}{{"e2e of each request", e.e2e}, {"ttft of each request", e.ttft}} {
		if len(m.errors) > 0 {
			s := validate.Summarize(m.errors)
			out = append(out, profile.Validation{Runs: fmt.Sprintf("%d held-out requests", s.Runs), Metric: m.name,
				MedianAbsError: s.MedianAbsError, P90AbsError: s.P90AbsError})
		}
	}
	return out
}
