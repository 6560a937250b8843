package calibrate

import (
	"context"
	"fmt"
	"math"
	"strings"

	"gonum.org/v1/gonum/stat"

	"lorasim/router"
	"lorasim/sim/profile"
)

// StepCoefficients are those that the times of tokens say something about where
// the law of the profile is that by distinct adapters.
var StepCoefficients = []string{
	"adapters.base_ms", "adapters.per_request_ms", "adapters.per_prompt_ms", "adapters.per_token_us",
	"adapters.per_kv_token_us", "adapters.per_adapter_ms",
	"load.host_to_gpu_ms", diskToHost, "request_overhead_ms",
}

// stepNoise is how far one step differs from the next of the same work, as a
// fraction.
const stepNoise = 0.1

// farOff is the factor by which a step may be off what the law says: beyond, it
// was held up by what is no work of the worker.
const farOff = 3

// diskToHost is fitted to steps where these wait for it, else to what requests
// waited.
const diskToHost = "load.disk_to_host_ms"

// arrival is what a request that comes in the middle of a step adds to it,
// where the server's front end shares the engine's processor. The simulator
// knows no such steps: in the profile it is part of what a prompt takes, which
// soon follows.
var arrival = Param{Name: "arrival_ms (part of per_prompt_ms)", Start: 0.5, Min: 1e-4, Max: 1000}

// beside are what a fit to steps moves that is no coefficient of the profile.
type beside struct {
	arrivalMs float64
	// slow is what all times of a run are multiplied by, 1 in the (geometric) mean:
	// a machine that others use is not equally fast in all runs, and what is
	// compared across runs must not be taken for the cost of what differs in them.
	slow []float64
}

// besides are the parameters of beside, and its inverse reads them: the factors of
// all runs but the first.
func besides(runs int) []Param {
	ps := []Param{arrival}
	for i := 1; i < runs; i++ {
		ps = append(ps, Param{Name: fmt.Sprintf("run %d is slower than the mean by a factor of", i+1), Start: 1, Min: 0.25, Max: 4})
	}
	return ps
}

func readBeside(x []float64) beside {
	or := func(x, held float64) float64 {
		if math.IsNaN(x) {
			return held
		}
		return x
	}
	b := beside{or(x[0], 0), []float64{1}}
	for _, f := range x[1:] {
		b.slow = append(b.slow, or(f, 1))
		b.slow[0] /= or(f, 1)
	}
	return b
}

// fitSteps fits the law by distinct adapters to steps. What the law says of a
// step is linear in its coefficients, so that the mean of the steps is met if
// squares of deviations are summed: which is done second, over the steps that a
// first, robust fit does not find far off. What those take too long, the law is
// then made longer by as a whole.
func fitSteps(ctx context.Context, runs int, steps []step, waits []float64, o *Options) (*profile.Profile, *Fit, error) {
	p, cs, err := o.problem(StepCoefficients, true)
	if err != nil {
		return nil, nil, err
	}
	if len(steps) < 10*len(cs) {
		return nil, nil, fmt.Errorf("%d steps are seen in the times of the tokens, expected at least %d", len(steps), 10*len(cs))
	}
	p.Params = append(p.Params, besides(runs)...)
	p.Prior = 3
	predict := func(x []float64) []float64 {
		return lengths(steps, with(o.Start, cs, x[:len(cs)]), readBeside(x[len(cs):]))
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
	best.Latency.Adapters.PerPromptMs += readBeside(fit.X[len(cs):]).arrivalMs
	stretch(best, fit, steps, predict(fit.X))
	for i := range fit.Params {
		if e := &fit.Params[i]; e.Name == diskToHost && e.Held && len(waits) > 1 {
			fitLoads(best, waits, e)
		}
	}
	return best, fit, nil
}

// stretch makes the law longer by what the steps, those far off too, take longer
// in all than expected: what holds up a worker does so the oftener the longer
// it works.
func stretch(p *profile.Profile, fit *Fit, steps []step, expected []float64) {
	var seconds, sum float64
	for i, s := range steps {
		if s.waits == 0 {
			seconds += s.seconds
			sum += expected[i]
		}
	}
	for _, c := range coefficients {
		if strings.HasPrefix(c.name, "adapters.") {
			*c.of(p) *= seconds / sum
		}
	}
	for i := range fit.Params {
		if e := &fit.Params[i]; strings.HasPrefix(e.Name, "adapters.") || e.Name == arrival.Name {
			e.Value *= seconds / sum
		}
	}
}

// lengths are those of steps under a profile, s.
func lengths(steps []step, p *profile.Profile, b beside) []float64 {
	costs := p.Compile()
	out := make([]float64, len(steps))
	for i := range steps {
		s := &steps[i]
		out[i] = s.waits*p.Latency.RequestOverheadMs/1000 + s.arrivals*b.arrivalMs/1000
		for _, l := range s.loads {
			out[i] += costs.Load(l.rank, l.from).Seconds()
		}
		out[i] += costs.Step(&s.work).Seconds()
		out[i] *= b.slow[s.run]
	}
	return out
}

// fitLoads sets what bringing an adapter to host memory takes, where no step
// waits for it, to the mean of what requests waited. Some wait long, for their
// turn or for room: that is no error of the measurement, so none is left out.
func fitLoads(p *profile.Profile, waits []float64, e *Estimate) {
	mean, std := stat.MeanStdDev(waits, nil)
	l := &p.Adapters.DiskToHost
	costs, rank := p.Compile(), p.Adapters.DefaultRank
	copying := (costs.Load(rank, router.Disk) - costs.Load(rank, router.Host)).Milliseconds() - l.LatencyMs
	l.LatencyMs = max(1000*mean-copying, 0)
	e.Value, e.RelStd, e.Held = l.LatencyMs, std/mean/math.Sqrt(float64(len(waits))), false
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
		for _, s := range stepsOf(run, fitted[i], p) {
			s.run = i
			steps = append(steps, s)
		}
	}
	return steps, waits, nil
}
