package measured

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"gonum.org/v1/gonum/stat"

	"lorasim/bench/stats"
	"lorasim/internal/parallel"
	"lorasim/router"
	_ "lorasim/router/builtin"
	"lorasim/sim"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/trace"
	"lorasim/trace/lengths"
	"lorasim/trace/replay"
)

// RunOptions configures the prediction of runs.
type RunOptions struct {
	Profile *profile.Profile
	Groups  *Groups // nil: DefaultGroups
	// Seeds is the number of draws of the lengths, with the seeds from FirstSeed on. A prediction
	// is the mean over the draws.
	Seeds     int
	FirstSeed uint64
	// NoLoad skips the simulations for Row.Load.
	NoLoad bool
	// Progress, if not nil, is called with the number of finished simulations and of all
	// simulations.
	Progress func(done, total int64)
}

// PredictedRun is one run with its prediction.
type PredictedRun struct {
	Setup
	// Load is the offered load. It is the time until the last request begins if all arrive at once,
	// divided by the time over which they arrived.
	Load           float64 `json:"load,omitempty"`
	NearSaturation bool    `json:"near_saturation,omitempty"`
	Comparison
	Skipped string `json:"skipped,omitempty"` // reason why the run was not predicted

	Run *Run `json:"-"`
}

// PredictRuns predicts runs on all processors. The result does not depend on the number of processors.
// hists are the invocations per adapter. A run that cannot be predicted has a Row with the reason.
func PredictRuns(ctx context.Context, runs []Run, hists Histograms, o RunOptions) ([]PredictedRun, error) {
	if o.Groups == nil {
		o.Groups = DefaultGroups()
	}
	if o.Seeds < 1 {
		return nil, fmt.Errorf("seeds is %d, expected >= 1", o.Seeds)
	}
	// job is one simulation of a run: with one draw of its lengths or, with seed -1, with the first
	// draw and all requests at once.
	type job struct{ run, seed int }
	var jobs []job
	rows, plans := make([]PredictedRun, len(runs)), make([]*plan, len(runs))
	for i := range runs {
		r := &runs[i]
		rows[i] = PredictedRun{Setup: r.Setup, Comparison: Comparison{Measured: r.Measured}, Run: r}
		var err error
		if plans[i], rows[i].Skipped, err = newPlan(ctx, r, hists, o); err != nil {
			return nil, fmt.Errorf("run in line %d: %w", r.Line, err)
		}
		if p := plans[i]; p != nil {
			kind := fmt.Sprint(r.Group, r.Policy, r.Trace, r.Rate, r.Stride)
			rows[i].Ran = Ran{ValidatedRun: profile.ValidatedRun{
				Workers: r.Workers, Policy: r.Policy, Profile: p.costs.Profile(), Requests: r.Requests,
				Adapters: r.Adapters,
			},
				Base: o.Profile, Alike: kind, Repeat: kind}
		}
		first := -1
		if o.NoLoad {
			first = 0
		}
		for seed := first; seed < o.Seeds && plans[i] != nil; seed++ {
			jobs = append(jobs, job{i, seed})
		}
	}
	values := make([]Values, len(jobs))
	if err := parallel.Do(ctx, len(jobs), func(k int) (err error) {
		j := jobs[k]
		if values[k], err = plans[j.run].simulate(ctx, j.seed); err != nil {
			err = fmt.Errorf("run in line %d: %w", runs[j.run].Line, err)
		}
		return err
	}, o.Progress); err != nil {
		return nil, err
	}
	for k := 0; k < len(jobs); {
		i := jobs[k].run
		if jobs[k].seed < 0 {
			rows[i].setLoad(values[k][begun] / plans[i].span())
			k++
		}
		rows[i].average(values[k : k+o.Seeds])
		rows[i].Ran.Draws = values[k : k+o.Seeds]
		for _, v := range values[k : k+o.Seeds] {
			rows[i].Ran.Prompt += v[prompt] / float64(o.Seeds)
			rows[i].Ran.Output += v[output] / float64(o.Seeds)
		}
		k += o.Seeds
	}
	return rows, nil
}

// setLoad sets the offered load. Within 15 % of the workers' capacity, small differences in speed
// decide whether a queue grows, and predictions of latencies are unreliable.
func (r *PredictedRun) setLoad(load float64) {
	r.Load, r.NearSaturation = load, load > 0.85 && load < 1.15
}

// average sets the mean of the predictions with several seeds.
func (r *PredictedRun) average(draws []Values) {
	mean, spread := Values{}, Values{}
	for _, m := range RunMetrics {
		var vs []float64
		for _, v := range draws {
			vs = append(vs, v[m])
		}
		if mean[m] = stat.Mean(vs, nil); mean[m] != 0 {
			spread[m] = 0
			if len(vs) > 1 {
				spread[m] = stat.StdDev(vs, nil) / mean[m]
			}
		}
	}
	r.Predict(mean)
	r.Spread = spread
}

const (
	begun        Metric = "begun" // time of the first token of the last request, s
	WaitingShare Metric = "waits" // share of their time that requests wait
	// Mean tokens of the successful requests.
	prompt Metric = "prompt"
	output Metric = "output"
)

// plan is a run ready to be simulated with any draw of its lengths.
type plan struct {
	run      *Run
	workload *trace.Workload // arrivals and adapters
	costs    *profile.Costs
	spec     router.Spec // spec of a worker
	lengths  lengths.Sampler
	seed     uint64
}

// newPlan returns a plan, or the reason why the run cannot be predicted.
func newPlan(ctx context.Context, r *Run, hists Histograms, o RunOptions) (_ *plan, skipped string, err error) {
	g := o.Groups.of(r)
	counts, skipped := invocations(r, g, hists)
	if skipped != "" {
		return nil, skipped, nil
	}
	if r.Adapters > maxAdapters || r.Workers > maxAdapters {
		return nil, "", fmt.Errorf("%d adapters on %d workers, expected at most %d", r.Adapters, r.Workers, maxAdapters)
	}
	d := replay.DLoRA{Requests: r.Requests, Distribution: "gamma", Interval: 60, TotalRate: r.Rate, CV: r.CV}
	src, _, err := d.ReplayHistogram(trace.Names(r.Adapters, r.Ranks), counts)
	if err != nil {
		return nil, "", err
	}
	w, err := trace.Collect(src)
	if err != nil {
		return nil, "", err
	}
	p := *o.Profile
	e := &p.Engine
	e.ContextOverflow = profile.OverflowIgnore // the fitted lengths assume it
	e.HeadOfLine = profile.HeadOfLineBlock     // the measured servers ran sglang 0.5.4 to 0.5.6
	if r.MaxLoras > 0 {
		e.MaxLorasPerBatch = r.MaxLoras
	}
	if r.MaxRunning > 0 {
		e.MaxRunningRequests = r.MaxRunning
	}
	if err := p.Check(); err != nil {
		return nil, "", err
	}
	sampler, err := lengths.Parse(ctx, g.Lengths)
	if err != nil {
		return nil, "", err
	}
	costs := p.Compile()
	spec := router.Spec{MaxRunning: e.MaxRunningRequests, Slots: e.MaxLorasPerBatch, Cost: profile.Model{Costs: costs}}
	return &plan{run: r, workload: w, costs: costs, spec: spec, lengths: sampler, seed: o.FirstSeed}, "", nil
}

// span returns the time of the last arrival, s.
func (p *plan) span() float64 { return p.workload.Requests[len(p.workload.Requests)-1].Arrival }

// invocations returns the histogram of a run: the one of its stride, or one that gives the group's
// share to the first worker. If there is none, it returns the reason.
func invocations(r *Run, g Group, hists Histograms) (counts [][]int64, skipped string) {
	flat := hists[r.Stride]
	if share, ok := g.FirstWorker[r.Trace]; ok && r.Workers == 2 && len(flat) != r.Adapters {
		flat = nil
		half := (r.Adapters + 1) / 2
		for a := range r.Adapters {
			part, n := share, half
			if a >= half {
				part, n = 1-share, r.Adapters-half
			}
			flat = append(flat, int64(part/float64(n)*1e9))
		}
	}
	if flat == nil {
		return nil, fmt.Sprintf("no histogram of stride %d", r.Stride)
	}
	if len(flat) != r.Adapters {
		return nil, fmt.Sprintf("the histogram of stride %d has %d adapters, the run has %d",
			r.Stride, len(flat), r.Adapters)
	}
	for _, n := range flat {
		counts = append(counts, []int64{n})
	}
	return counts, ""
}

// simulate runs one draw of the lengths. Seed -1 is the first draw with all requests at time 0.
func (p *plan) simulate(ctx context.Context, seed int) (Values, error) {
	w := *p.workload
	if seed < 0 {
		w.Requests = slices.Clone(w.Requests)
		for i := range w.Requests {
			w.Requests[i].Arrival = 0
		}
	}
	lengthSeed := p.seed + uint64(max(seed, 0))
	rt, err := router.New(p.run.Policy, router.Env{
		Workers: router.Alike(p.run.Workers, p.spec), Adapters: w.Adapters, Seed: lengthSeed,
	})
	if err != nil {
		return nil, err
	}
	var e2e []float64 // E2E of successful requests, ms
	last, prompts, outputs := 0.0, 0.0, 0.0
	var waiting record.Waiting
	st, err := sim.Run(ctx, sim.Config{
		Source:  lengths.Fill(w.Source(), lengths.Rescale(p.lengths, len(w.Requests), lengthSeed), lengthSeed),
		Workers: slices.Repeat([]*profile.Costs{p.costs}, p.run.Workers), Router: rt, WarmUp: true, Home: router.Disk,
		Watchers: []record.Watcher{waiting.Watcher()},
		Observer: record.Ends(func(r *record.Request) {
			if r.Status == record.OK {
				e2e = append(e2e, r.E2E()*1000)
				last = max(last, r.FirstToken)
				prompts += float64(r.Prompt)
				outputs += float64(r.Output)
			}
		}),
	})
	if err != nil {
		return nil, err
	}
	if len(e2e) == 0 {
		return nil, errors.New("no request of the simulated run succeeded")
	}
	mean, n := stat.Mean(e2e, nil), float64(len(e2e))
	slices.Sort(e2e)
	return Values{
		Duration: st.End.Seconds(), MeanE2E: mean, MedianE2E: stats.Quantile(e2e, 0.5),
		P99E2E: stats.Quantile(e2e, 0.99), begun: last, WaitingShare: waiting.Share(),
		prompt: prompts / n, output: outputs / n,
	}, nil
}
