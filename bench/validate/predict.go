package validate

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"lorasim/internal/record"
	"lorasim/internal/tick"
	"lorasim/router"
	"lorasim/sim"
	"lorasim/sim/profile"
	"lorasim/trace"
	"lorasim/trace/lengths"
	"lorasim/trace/replay"
)

// Options say how runs are predicted.
type Options struct {
	Profile *profile.Profile
	Groups  *Groups // nil: DefaultGroups
	// Seeds is the number of draws of the lengths that a prediction is the
	// mean of, from FirstSeed on.
	Seeds     int
	FirstSeed uint64
	// NoLoad leaves out the simulations that Prediction.Load needs.
	NoLoad bool
	// Progress, where set, is told how many simulations of all are done.
	Progress func(done, total int64)
}

// Prediction is a run with what the simulator makes of it.
type Prediction struct {
	Run       Run
	Predicted Values
	Spread    Values // standard deviation over the seeds
	// Load is the offered load: the time until the last request has begun when
	// all of them come at once, as a multiple of the time over which they came.
	Load float64
	// Skipped says why the run was not predicted.
	Skipped string
}

// NearSaturation says whether the offered load is within 15 % of what the
// workers can do: there small differences in speed decide whether a queue
// builds up, and no prediction of latencies is worth much.
func (p *Prediction) NearSaturation() bool { return p.Load > 0.85 && p.Load < 1.15 }

// job is one simulation.
type job struct {
	run    int
	seed   int // -1: all requests at once
	values Values
	err    error
}

// Simulate predicts runs on all processors. The result does not depend on their
// number.
func Simulate(ctx context.Context, runs []Run, hists Histograms, o Options) ([]Prediction, error) {
	if o.Groups == nil {
		o.Groups = DefaultGroups()
	}
	if o.Seeds < 1 {
		return nil, fmt.Errorf("seeds is %d, expected >= 1", o.Seeds)
	}
	ps := make([]Prediction, len(runs))
	var plans []*plan
	var jobs []*job
	for i, r := range runs {
		ps[i].Run = r
		p, err := newPlan(&r, hists, o)
		plans = append(plans, p)
		var no skip
		if errors.As(err, &no) {
			ps[i].Skipped = no.Error()
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("run in line %d: %w", r.Line, err)
		}
		first := 0
		if !o.NoLoad {
			first = -1
		}
		for seed := first; seed < o.Seeds; seed++ {
			jobs = append(jobs, &job{run: i, seed: seed})
		}
	}
	Parallel(ctx, len(jobs), func(k int) {
		j := jobs[k]
		j.values, j.err = plans[j.run].simulate(ctx, j.seed)
	}, o.Progress)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, j := range jobs {
		if j.err != nil {
			return nil, fmt.Errorf("run in line %d: %w", ps[j.run].Run.Line, j.err)
		}
	}
	for i := range ps {
		ps[i].average(jobs, i, plans[i])
	}
	return ps, nil
}

// Parallel calls f for 0 to n-1 on all processors, until ctx ends; progress, where
// not nil, is told how many are done, by one goroutine at a time.
func Parallel(ctx context.Context, n int, f func(int), progress func(done, total int64)) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	next, done := 0, int64(0)
	for range min(runtime.GOMAXPROCS(0), n) {
		wg.Go(func() {
			for {
				mu.Lock()
				k := next
				next++
				mu.Unlock()
				if k >= n || ctx.Err() != nil {
					return
				}
				f(k)
				mu.Lock()
				if done++; progress != nil {
					progress(done, int64(n))
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

// average fills in the prediction of run i from its simulations.
func (p *Prediction) average(jobs []*job, i int, pl *plan) {
	byMetric := map[Metric][]float64{}
	for _, j := range jobs {
		switch {
		case j.run != i:
		case j.seed < 0:
			p.Load = j.values[begun] / pl.span
		default:
			for m, v := range j.values {
				byMetric[m] = append(byMetric[m], v)
			}
		}
	}
	if len(byMetric) == 0 {
		return
	}
	p.Predicted, p.Spread = Values{}, Values{}
	delete(byMetric, begun)
	for m, vs := range byMetric {
		p.Predicted[m], p.Spread[m] = meanStd(vs)
	}
}

// begun is the time at which the last request has its first token, s.
const begun Metric = "begun"

// skip says why a run cannot be predicted.
type skip string

func (s skip) Error() string { return string(s) }

// plan is a run ready to be simulated with any draw of its lengths.
type plan struct {
	run      Run
	requests []trace.Request // arrivals and adapters
	adapters []trace.Adapter
	costs    []*profile.Costs
	lengths  lengths.Sampler
	seed0    uint64
	span     float64 // s from the start to the last arrival
	maxRun   int
	slots    int
}

func newPlan(r *Run, hists Histograms, o Options) (*plan, error) {
	g := o.Groups.of(r)
	counts, err := invocations(r, g, hists)
	if err != nil {
		return nil, err
	}
	if r.Adapters > maxAdapters || r.Workers > maxAdapters {
		return nil, fmt.Errorf("%d adapters on %d workers, expected at most %d", r.Adapters, r.Workers, maxAdapters)
	}
	adapters := trace.Names(r.Adapters, r.Ranks)
	d := replay.DLoRA{Requests: r.Requests, Distribution: "gamma", Interval: 60, TotalRate: r.Rate, CV: r.CV}
	src, _, err := d.ReplayHistogram(adapters, counts)
	if err != nil {
		return nil, err
	}
	w, err := trace.Collect(src)
	if err != nil {
		return nil, err
	}
	p := *o.Profile
	p.Engine.ContextOverflow = profile.OverflowIgnore // the fitted lengths go with it
	p.Engine.HeadOfLine = profile.HeadOfLineBlock     // the measured servers ran sglang 0.5.4 to 0.5.6
	if r.MaxLoras > 0 {
		p.Engine.MaxLorasPerBatch = r.MaxLoras
	}
	if r.MaxRunning > 0 {
		p.Engine.MaxRunningRequests = r.MaxRunning
	}
	if err := p.Check(); err != nil {
		return nil, err
	}
	sampler, err := lengths.Parse(g.Lengths)
	if err != nil {
		return nil, err
	}
	costs := p.Compile()
	pl := &plan{run: *r, requests: w.Requests, adapters: adapters, lengths: sampler, seed0: o.FirstSeed,
		span: w.Requests[len(w.Requests)-1].Arrival, maxRun: p.Engine.MaxRunningRequests, slots: p.Engine.MaxLorasPerBatch}
	for range r.Workers {
		pl.costs = append(pl.costs, costs)
	}
	return pl, nil
}

// invocations returns the histogram of a run: that of its stride, or one that
// gives the group's share to the first worker.
func invocations(r *Run, g Group, hists Histograms) ([][]int64, error) {
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
		return nil, skip(fmt.Sprintf("no histogram of stride %d", r.Stride))
	}
	if len(flat) != r.Adapters {
		return nil, skip(fmt.Sprintf("the histogram of stride %d has %d adapters, the run has %d", r.Stride, len(flat), r.Adapters))
	}
	counts := make([][]int64, len(flat))
	for i, n := range flat {
		counts[i] = []int64{n}
	}
	return counts, nil
}

// simulate runs one draw of the lengths; seed -1 is the first draw with all
// requests at time 0.
func (p *plan) simulate(ctx context.Context, seed int) (Values, error) {
	requests := p.requests
	if seed < 0 {
		requests = slices.Clone(requests)
		for i := range requests {
			requests[i].Arrival = 0
		}
	}
	lengthSeed := p.seed0 + uint64(max(seed, 0))
	w := trace.Workload{Adapters: p.adapters, Requests: requests}
	src := lengths.Fill(w.Source(), lengths.Rescale(p.lengths, len(requests), lengthSeed), lengthSeed)
	rt, err := router.New(p.run.Policy, router.Env{
		Workers:  router.Alike(len(p.costs), router.Spec{MaxRunning: p.maxRun, Slots: p.slots, Cost: profile.Model{Costs: p.costs[0]}}),
		Adapters: p.adapters, Seed: lengthSeed,
	})
	if err != nil {
		return nil, err
	}
	var o latencies
	st, err := sim.Run(ctx, sim.Config{
		Source: src, Workers: p.costs, Router: rt, Observer: &o, WarmUp: true, Home: router.Disk,
	})
	if err != nil {
		return nil, err
	}
	if len(o.e2e) == 0 {
		return nil, errors.New("no request of the simulated run succeeded")
	}
	mean, _ := meanStd(o.e2e)
	slices.Sort(o.e2e)
	return Values{
		Duration: st.End.Seconds(), MeanE2E: mean, MedianE2E: quantile(o.e2e, 0.5), P99E2E: quantile(o.e2e, 0.99),
		begun: o.begun,
	}, nil
}

// latencies collects the latencies of successful requests, ms, and when the
// last of them had its first token, s.
type latencies struct {
	e2e   []float64
	begun float64
}

func (l *latencies) Done(r *record.Request) {
	if r.Status == record.OK {
		l.e2e = append(l.e2e, r.E2E()*1000)
		l.begun = max(l.begun, r.FirstToken)
	}
}

func (*latencies) Tokens(tick.Ticks, int64) {}
func (*latencies) Steps(record.Steps)       {}
func (*latencies) Gap(tick.Ticks, int64)    {}
