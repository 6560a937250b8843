package fit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strings"

	"lorasim/bench/fidelity/check"
	"lorasim/bench/fidelity/measured"
	"lorasim/bench/stats"
	"lorasim/internal/table"
	"lorasim/sim/profile"
)

// StepTiming is one timing of vLLM steps that are all alike, without adapters.
type StepTiming struct {
	Batch, KV, Prompt float64 // running requests, their KV tokens, prompt tokens
	Ms                float64 // median length, ms
}

// ReadStepTimings reads a table of step timings, measured in closed loops of equal requests. It
// returns them by model. Rows with adapters are ignored: they do not show the cost of a plain step.
// Steps of rows with one output token are full of prompt tokens. The other rows decode as many
// requests as the server takes, with half-grown KV caches on average.
func ReadStepTimings(in io.Reader, name string) (map[string][]StepTiming, error) {
	const (
		manyRequests = 1000 // fewer do not fill the steps
		stepTokens   = 2048 // max_num_batched_tokens of the timings
	)
	numbers := []string{"max_num_seqs", "requests", "output_len", "in_tokens", "steps", "step_median_ms"}
	out := map[string][]StepTiming{}
	err := table.ReadCSV(in, name, append([]string{"model", "max_loras"}, numbers...), func(r *table.CSVRow) {
		if r.Has("max_loras") || slices.ContainsFunc(numbers, func(c string) bool { return !r.Has(c) }) {
			return // with adapters, or from a server whose steps were not timed
		}
		batch, requests, output := r.Positive("max_num_seqs"), r.Positive("requests"), r.Positive("output_len")
		input, steps, ms := r.Positive("in_tokens"), r.Positive("steps"), r.Positive("step_median_ms")
		t := StepTiming{Batch: batch, KV: batch * (input/requests + output/2), Ms: ms}
		if output == 1 {
			t = StepTiming{Prompt: min(input/steps, stepTokens), Ms: ms}
		}
		if requests >= manyRequests {
			out[r.Text("model")] = append(out[r.Text("model")], t)
		}
	})
	return out, err
}

// Hours is measured hours of vLLM with one model, with the tables and step timings of the model.
type Hours struct {
	Model   string
	Runs    []measured.Hour // those of use calibration are fitted
	Tables  *measured.HourTables
	Timings []StepTiming
	// Progress, if not nil, is called with the number of simulated runs and of all runs.
	Progress func(done, total int64)
}

// Fit fits the law by distinct adapters to the runs for calibration, and compares the profile with
// the other runs.
func (h *Hours) Fit(ctx context.Context, start *profile.Profile) (*Result, error) {
	use := func(calibration bool) []measured.Hour {
		return slices.DeleteFunc(slices.Clone(h.Runs), func(r measured.Hour) bool {
			return (r.Use == measured.Calibration) != calibration
		})
	}
	in, left := use(true), use(false)
	f := &Result{Profile: model{profile: start}.clone().profile}
	p := f.Profile
	if err := sizes(p, h.Model, h.Tables); err != nil {
		return nil, err
	}
	fit, err := h.fitLaw(ctx, p, in)
	if err != nil {
		return nil, err
	}
	if err := h.refineWaiting(ctx, p, in); err != nil {
		return nil, err
	}
	p.Source = fmt.Sprintf(
		"lorasim profile fit vllm-runs: the law fitted to the mean time per output token of %d measured hours of vLLM 0.8.5 "+
			"(median error of the fit %.1f %%) with the costs of a prompt token and of a KV token from %d timings of steps without adapters "+
			"(%.1f %%); sizes of the KV cache and load times as measured.",
		len(in), 100*fit.runs.MedianAbsError, len(h.Timings), 100*fit.steps.MedianAbsError)
	if len(fit.held) > 0 {
		p.Source += " Not determined by the timings, unchanged: " + strings.Join(fit.held, ", ") + "."
	}
	f.Errors = fit.runs
	if len(fit.bounded) > 0 {
		p.Source += fmt.Sprintf(" At the least that the %s allows: %s.", p.GPU, strings.Join(fit.bounded, ", "))
	}
	law, old := p.Latency.Adapters, start.Latency.Adapters
	f.list("", old, law)
	for _, c := range law.ByRank {
		var was profile.RankCost // for a rank without an earlier value
		for _, o := range old.ByRank {
			if o.Rank == c.Rank {
				was = o
			}
		}
		f.list(fmt.Sprintf("rank %d: ", c.Rank), was, c)
	}
	if err := f.check(); err != nil || len(left) == 0 {
		return f, err
	}
	rows, err := h.simulate(ctx, p, left)
	if err != nil {
		return nil, err
	}
	r := check.NewHoursReport(rows, "")
	p.Validation, p.Intervals = r.Validation("measured hours not fitted"), r.Intervals().One()
	p.ValidatedOn = fmt.Sprintf("%d held-out hours, 1 worker", r.Summary.Starved.Runs)
	return f, f.check()
}

// list adds the coefficients of a law that are not 0. start is the law at the start; start and law
// are structs of numbers.
func (f *Result) list(prefix string, start, law any) {
	was := reflect.ValueOf(start)
	for field, v := range reflect.ValueOf(law).Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		if v.Kind() == reflect.Float64 && !v.IsZero() {
			f.Params = append(f.Params, Estimate{
				Param: Param{Name: prefix + name, Start: was.FieldByIndex(field.Index).Float()}, Value: v.Float(),
				RelStd: math.NaN(),
			})
		}
	}
}

// simulate predicts runs with a profile.
func (h *Hours) simulate(ctx context.Context, p *profile.Profile, runs []measured.Hour) ([]measured.PredictedHour,
	error) {
	return measured.PredictHours(ctx, runs, h.Tables, measured.HourOptions{
		Profiles: map[string]*profile.Profile{h.Model: p}, Progress: h.Progress,
	})
}

// fitLaw sets the profile's law to the one that fits the runs. The number of adapter loads per step
// comes from a simulation of the runs with that law. The first law counts no loads, whatever law
// the profile had.
func (h *Hours) fitLaw(ctx context.Context, p *profile.Profile, runs []measured.Hour) (*lawFit, error) {
	loads, leastKVUs := make([]float64, len(runs)), 0.0
	if hardware, known := p.Floor(); known {
		leastKVUs = roundUp4(hardware.PerKVTokenUs())
	}
	for pass := 1; ; pass++ {
		fit, err := fitLaw(runs, loads, p.Adapters.HostToGPU.LatencyMs, h.Tables, h.Timings, p.Latency.Adapters,
			leastKVUs)
		if err != nil {
			return nil, err
		}
		p.Latency.Adapters = fit.law
		if pass == 3 {
			return fit, nil
		}
		rows, err := h.simulate(ctx, p, runs)
		if err != nil {
			return nil, err
		}
		for i := range rows {
			loads[i] = rows[i].LoadsPerStep
		}
	}
}

// manyWaiting is the mean queue from which a run shows the cost of a waiting request: a step then
// scans the queue for a millisecond or more.
const manyWaiting = 3000

// refineWaiting sets the cost of a waiting request so that the median error of the simulated time
// per output token is 0 over the runs with many waiting requests. Mean figures determine this cost
// badly: the queue grows all the time, and adapters that wait for a slot come and go with it.
func (h *Hours) refineWaiting(ctx context.Context, p *profile.Profile, runs []measured.Hour) error {
	runs = slices.DeleteFunc(slices.Clone(runs), func(r measured.Hour) bool { return !(r.Waiting > manyWaiting) })
	w := &p.Latency.Adapters.PerWaitingUs
	if len(runs) < 3 || *w == 0 {
		return nil
	}
	var failed error
	deviation := func(at float64) float64 {
		*w = at
		rows, err := h.simulate(ctx, p, runs)
		failed = errors.Join(failed, err)
		var errs []float64
		for _, r := range rows {
			if e, ok := r.Error[measured.TPOT]; ok {
				errs = append(errs, e)
			}
		}
		if len(errs) == 0 {
			return 0
		}
		slices.Sort(errs)
		return stats.Quantile(errs, 0.5)
	}
	*w = rootNear(*w, deviation)
	return failed
}

// rootNear returns the zero of the line through f(x) and f(x/2), between 0 and 2x, to three
// decimals. It returns x if f does not rise, as the quantity has then no effect.
func rootNear(x float64, f func(float64) float64) float64 {
	a, b := f(x), f(x/2)
	if a <= b {
		return x
	}
	return math.Round(1000*min(max(x-a*(x/2)/(a-b), 0), 2*x)) / 1000
}
