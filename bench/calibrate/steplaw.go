package calibrate

import (
	"context"
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat"

	"lorasim/router"
	"lorasim/sim/profile"
)

// StepCoefficients are those that the times of tokens say something about where
// the law of the profile is that by distinct adapters.
var StepCoefficients = []string{
	"adapters.base_ms", "adapters.per_request_ms", "adapters.per_prompt_ms", "adapters.per_token_us",
	"adapters.per_kv_token_us", "adapters.per_adapter_ms",
	"load.host_to_gpu_ms", "request_overhead_ms",
}

// stepNoise is how far one step differs from the next of the same work, as a
// fraction.
const stepNoise = 0.1

// farOff is the factor by which a step may be off what the law says: beyond, it
// was held up by what is no work of the worker.
const farOff = 3

// arrival is what a request that comes in the middle of a step adds to it,
// where the server's front end shares the engine's processor. The simulator
// knows no such steps: in the profile it is part of what a prompt takes, which
// soon follows.
var arrival = Param{Name: "arrival_ms (part of per_prompt_ms)", Start: 0.5, Min: 1e-4, Max: 1000}

// fitSteps fits the law by distinct adapters to steps. What the law says of a
// step is linear in its coefficients, so that the mean of the steps is met if
// squares of deviations are summed: which is done second, over the steps that a
// first, robust fit does not find far off.
func fitSteps(ctx context.Context, steps []step, waits []float64, o *Options) (*profile.Profile, *Fit, error) {
	p, cs, err := o.problem(StepCoefficients, true)
	if err != nil {
		return nil, nil, err
	}
	if len(steps) < 10*len(cs) {
		return nil, nil, fmt.Errorf("%d steps are seen in the times of the tokens, expected at least %d", len(steps), 10*len(cs))
	}
	p.Params = append(p.Params, arrival)
	p.Prior = 3
	predict := func(x []float64) []float64 {
		at := with(o.Start, cs, x[:len(cs)])
		return lengths(steps, at, x[len(cs)])
	}
	p.Residuals = func(_ context.Context, x []float64) ([]float64, error) {
		r := predict(x)
		for i, s := range steps {
			r[i] = robust((r[i] - s.seconds) / (stepNoise * s.seconds))
		}
		return r, nil
	}
	first, err := Solve(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	expected := predict(first.X)
	p.Residuals = func(_ context.Context, x []float64) ([]float64, error) {
		r := predict(x)
		for i, s := range steps {
			if e := expected[i]; s.seconds > e*farOff || s.seconds < e/farOff {
				r[i] = 0
			} else {
				r[i] = (r[i] - s.seconds) / (stepNoise * e)
			}
		}
		return r, nil
	}
	fit, err := Solve(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	best := with(o.Start, cs, fit.X[:len(cs)])
	if a := fit.X[len(cs)]; !math.IsNaN(a) {
		best.Latency.Adapters.PerPromptMs += a
	}
	fit.Params = append(fit.Params, fitLoads(best, waits))
	return best, fit, nil
}

// lengths are those of steps under a profile, s.
func lengths(steps []step, p *profile.Profile, arrivalMs float64) []float64 {
	if math.IsNaN(arrivalMs) {
		arrivalMs = 0
	}
	costs := p.Compile()
	out := make([]float64, len(steps))
	for i := range steps {
		s := &steps[i]
		out[i] = s.waits*p.Latency.RequestOverheadMs/1000 + s.arrivals*arrivalMs/1000
		for _, rank := range s.loads {
			out[i] += costs.Load(rank, router.Host).Seconds()
		}
		out[i] += costs.Step(&s.work).Seconds()
	}
	return out
}

// fitLoads sets what bringing an adapter to host memory takes to the mean of what
// requests waited for it. Some wait long, for their turn or for room: that is no
// error of the measurement, so none is left out.
func fitLoads(p *profile.Profile, waits []float64) Estimate {
	mean, std := stat.MeanStdDev(waits, nil)
	l := &p.Adapters.DiskToHost
	e := Estimate{Param: Param{Name: "load.disk_to_host_ms", Start: l.LatencyMs}}
	if len(waits) < 2 {
		e.Value, e.RelStd, e.Held = math.NaN(), math.Inf(1), true
		return e
	}
	costs, rank := p.Compile(), p.Adapters.DefaultRank
	copying := (costs.Load(rank, router.Disk) - costs.Load(rank, router.Host)).Milliseconds() - l.LatencyMs
	l.LatencyMs = max(1000*mean-copying, 0)
	e.Value, e.RelStd = l.LatencyMs, std/mean/math.Sqrt(float64(len(waits)))
	return e
}

// stepsOfRuns are the steps of the first fitted[i] requests of each run, and how
// long they waited for loads.
func stepsOfRuns(runs []*replay, fitted []int, p *profile.Profile) (steps []step, waits []float64, err error) {
	for i, run := range runs {
		for k := range run.measured {
			r := &run.measured[k]
			if !seesTokens(r) {
				return nil, nil, fmt.Errorf("run %d, request %d: %d times of %d tokens are recorded; the law by distinct adapters is fitted to these: write records as .parquet, .arrow or .jsonl",
					i+1, r.ID, len(r.Gaps)+1, r.Output)
			}
			if k < fitted[i] && r.ColdLoad > 0 {
				waits = append(waits, r.ColdLoad)
			}
		}
		steps = append(steps, stepsOf(run, fitted[i], p)...)
	}
	return steps, waits, nil
}
