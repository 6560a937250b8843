package scenario

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"lorasim/bench/result"
	"lorasim/bench/run"
	"lorasim/internal/atomicfile"
	"lorasim/router"
	"lorasim/sim"
	"lorasim/sim/oracle"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/trace"
)

// RunOptions are the options of a run beside the scenario. None of them but Route changes what happens in the run.
type RunOptions struct {
	SLO         result.SLO
	RecordsFile string // file to write with one row per request; "": none
	TokenTimes  bool   // record the time of every token
	Oracle      bool   // compare the run with a bound that assumes perfect knowledge
	PushLoss    bool   // compare a run with new versions of adapters with the same run without
	Intervals   bool   // add prediction intervals, derived from the profile's validation
	PlansFile   string // file to write with one plan per line, as JSON; "": none
	KeepRecords bool   // keep the records of requests in the result
	// Saturate adds a second, saturated run if this run is too short to detect overload. The second run measures the
	// sustainable rate.
	Saturate bool
	// Profiles, if not nil, is called with the profile of each worker before the run.
	Profiles func([]*profile.Profile)

	// Reading, if not nil, is called with the bytes of input read so far and in all (0: unknown). Running, if not nil,
	// is called with the requests done so far and in all (0: unknown), and the simulated time, s.
	Reading func(read, total int64)
	Running func(done, total int64, now float64)
	// Skipped is called after the run with the number of dropped input rows, unless it is 0.
	Skipped func(rows int64)

	// Workers are the profiles of the scenario's workers (see [Scenario.Profiles]), if the caller has loaded them
	// already; nil: load them. Runs may share them.
	Workers []*profile.Profile
	// Input is the scenario's workload, if the caller has opened it already, as a sweep does for several runs; nil:
	// open it.
	Input *Input
	// Route, if not nil, takes the place of the scenario's policy: it returns the worker of a request by its ID.
	Route func(id int64) int
	// Watch, if not nil, is called with the adapters and returns a watcher of the run.
	Watch func(adapters []trace.Adapter) record.Watcher
}

// Simulate runs the scenario in the simulator.
func (s *Scenario) Simulate(ctx context.Context, o RunOptions) (*result.Result, error) {
	in := o.Input
	if in == nil {
		var err error
		if in, err = s.OpenWorkload(ctx, o.Reading); err != nil {
			return nil, err
		}
	}
	defer in.Close()
	cfg, err := s.config(ctx, in, o)
	if err != nil {
		return nil, fault(err)
	}
	ps := make([]*profile.Profile, len(cfg.Workers))
	for i, c := range cfg.Workers {
		ps[i] = c.Profile()
	}
	r := s.NewRun(in, ps, o.SLO)
	r.Source, r.RecordsFile, r.Collect.KeepRecords = cfg.Source, o.RecordsFile, o.KeepRecords
	r.Collect.PrefixCache = slices.ContainsFunc(ps, func(p *profile.Profile) bool { return p.Engine.PrefixCache })
	plans := &plansFile{}
	if o.Watch != nil {
		cfg.Watchers = append(cfg.Watchers, o.Watch(in.Adapters()))
	}
	if o.PlansFile != "" {
		file, err := atomicfile.Create(o.PlansFile)
		if err != nil {
			return nil, err
		}
		defer file.Abort()
		plans = &plansFile{file: file, buf: bufio.NewWriter(file)}
		cfg.Watchers = append(cfg.Watchers, record.Watcher{Kinds: record.EventPlan, Note: plans.note})
	}
	var waiting record.Waiting
	if o.Intervals {
		cfg.Watchers = append(cfg.Watchers, waiting.Watcher())
	}
	var known oracleObserver
	if o.Oracle {
		cfg.Watchers = append(cfg.Watchers, record.WatchEnds(known.done))
	}
	execute := func(ctx context.Context, source trace.Source, to run.Observer) (*result.RunCounters, error) {
		cfg.Source, cfg.Observer = source, to
		st, err := sim.Run(ctx, cfg)
		if err != nil {
			return nil, err
		}
		if o.Skipped != nil && in.Skipped != nil && in.Skipped() > 0 {
			o.Skipped(in.Skipped())
		}
		return counters(st, cfg.Workers), plans.close()
	}
	res, err := r.Drive(ctx, execute)
	if err != nil {
		return nil, err
	}
	if o.Saturate {
		if err := s.saturate(ctx, res); err != nil {
			return nil, err
		}
	}
	if o.PushLoss && res.Extra.Pushes != nil {
		if err := s.pushLoss(ctx, res); err != nil {
			return nil, err
		}
	}
	if o.Oracle {
		res.Extra.Oracle = known.bound(cfg.Workers)
	}
	if o.Intervals {
		res.Extra.Intervals, err = s.intervals(ctx, res, cfg.Workers, len(in.Adapters()), waiting.Share())
	}
	return res, err
}

// NewRun returns what the runs of the scenario's workload have in common, simulated or live, on workers with the given
// profiles. The caller sets the fields that depend on the executor.
func (s *Scenario) NewRun(in *Input, ps []*profile.Profile, slo result.SLO) *run.Run {
	requests := in.Source.Len()
	return &run.Run{
		Source: in.Source, Meta: s.Meta(in.Dataset), Files: s.Files,
		Collect: result.Options{NonStreaming: s.Client.NoStream, Workers: len(ps), Adapters: in.Adapters(), SLO: slo,
			Noisy: s.Workload.Noisy(), Duration: s.Workload.Window, Warmup: s.Warmup(), Period: s.period()},
		Describe: func(res *result.Result) error {
			s.describe(res, in, requests, ps)
			s.judgeLoad(res)
			return s.checkWarmup(res)
		},
	}
}

// Check returns the error that would stop the scenario from running. It simulates the scenario with one request; first
// is the result of [Scenario.First].
func (s *Scenario) Check(ctx context.Context, first *trace.Workload) error {
	one := *s
	one.Client.Warmup = defaults.Client.Warmup // a warm-up covers a run of one request
	_, err := one.Simulate(ctx, RunOptions{Input: &Input{Source: first.Source()}})
	return err
}

// config is the simulation that the scenario describes, without an observer.
func (s *Scenario) config(ctx context.Context, in *Input, o RunOptions) (cfg sim.Config, err error) {
	ps := o.Workers
	if ps == nil {
		if ps, err = s.Profiles(ctx); err != nil {
			return cfg, err
		}
	}
	if o.Profiles != nil {
		o.Profiles(ps)
	}
	in.Source = s.fitRanks(in.Source, ps)
	cfg = sim.Config{
		Window: s.Workload.Window, FailAbove: s.Client.MaxInFlightFail, Source: in.Source,
		MaxConcurrency: s.Client.MaxConcurrency, NoStream: s.Client.NoStream, WarmUp: !s.Client.NoWarmup,
		Staleness: s.Routing.ViewStaleness, KnownOutputs: s.Routing.KnownOutputs, TokenTimes: o.TokenTimes,
		MoveMode: router.Moving(s.Routing.RequestMigration), Seed: s.Seed,
		Home:         s.Cluster.home(),
		LoadFailures: s.Cluster.LoadFailureRate, NoFailover: s.Cluster.NoFailover,
	}
	if cfg.Workers, err = compile(ps, in.Adapters()); err != nil {
		return cfg, err
	}
	if cfg.Router, err = s.Router(ctx, ps, in.Adapters()); err != nil {
		return cfg, err
	}
	if o.Route != nil {
		cfg.Router = &router.Router{Policy: router.Fixed{Worker: o.Route}}
	}
	if e := s.Cluster.Elastic.Value(); e != nil {
		initial, err := s.Cluster.initial()
		if err != nil {
			return cfg, err
		}
		cfg.Elastic, cfg.Source = e.config(initial, in.Source)
	}
	if cfg.Push, err = s.Pushes(in.Adapters()); err != nil {
		return cfg, err
	}
	cfg.Outages = s.Cluster.Outages.Value()
	for _, o := range cfg.Outages {
		if o.Worker >= len(cfg.Workers) {
			return cfg, fmt.Errorf("outages: there is no worker %d, expected 0 to %d", o.Worker, len(cfg.Workers)-1)
		}
	}
	if o.Running != nil {
		total := max(in.Source.Len(), 0)
		cfg.Progress = func(done int64, now float64) { o.Running(done, total, now) }
	}
	return cfg, nil
}

// Meta returns the head of a result for the scenario.
func (s *Scenario) Meta(dataset string) result.Meta {
	w := &s.Workload
	m := result.Meta{
		Source: result.Sim, Backend: "lorasim", DatasetName: dataset,
		RequestRate: result.TraceRate, MaxConcurrency: s.Client.MaxConcurrency, Config: map[string]any{},
		Streamed: record.StreamingIf(!s.Client.NoStream), Policy: s.Routing.Policy.String(),
		Scenario: result.Scenario{Summary: s.Summary()},
	}
	if dataset == "synthetic" || dataset == "slora" || dataset == "vllm-lora" {
		m.RequestRate = result.Rate(w.RequestRate)
	}
	if w.paced() {
		if m.RequestRate = result.Rate(w.RequestRate); w.RampUpStrategy != "" {
			m.RequestRate = result.Unlimited() // as vLLM's client reports it
		}
	}
	if w.Lengths.Value().word == randomWord || w.RandomInputLen > 0 || w.RandomOutputLen > 0 {
		in, out := w.randomRanges()
		i, o := int(in[1])-1, int(out[1])-1
		m.RandomInputLen, m.RandomOutputLen, m.RandomRangeRatio = &i, &o, &w.RandomRangeRatio
	}
	seed := int64(s.Seed)
	m.Seed = &seed
	for _, f := range fields {
		if v := f.value(s); v != nil && f.Key != "seed" {
			m.Config[f.Key] = v
		}
	}
	if n, err := s.Cluster.initial(); err == nil {
		m.Config["cluster.num_workers"] = n
	}
	return m
}

// Summary returns the scenario's name. Without a name, it returns the settings that differ from the defaults, except
// policy and seed: "num_workers=8 request_rate=25", or "defaults" if there are none.
func (s *Scenario) Summary() string {
	if s.Name != "" {
		return s.Name
	}
	var parts []string
	for _, f := range fields {
		v := f.Get(s)
		if f.Key == "name" || f.Key == "seed" || f.Key == "routing.policy" || v == f.Get(&defaults) {
			continue
		}
		if i := strings.LastIndexByte(v, '/'); i >= 0 {
			v = v[i+1:] // the folder of a file tells little
		}
		parts = append(parts, f.Leaf()+"="+v)
	}
	return cmp.Or(strings.Join(parts, " "), "defaults")
}

func counters(st *sim.Stats, workers []*profile.Costs) *result.RunCounters {
	c := &result.RunCounters{}
	if e := st.Elastic; e != nil {
		c.Elastic = &result.Elastic{Mean: e.Mean, Min: e.Least, Max: e.Most, Ups: e.Started, CalledOff: e.CalledOff,
			Downs: e.Left, TakenBack: e.TakenBack}
	}
	if p := st.Push; p != nil {
		c.Pushes = result.CountPushes(&p.Stats)
		c.Pushes.CutOver = p.CutOver
	}
	for _, w := range st.Workers {
		c.Workers = append(c.Workers, result.WorkerCounters{Busy: w.Busy.Seconds(), Counters: w.Total()})
	}
	if e := c.Elastic; e != nil {
		for i, w := range st.Workers {
			hours := w.On.Seconds() / 3600
			c.Workers[i].On = w.On.Seconds()
			e.WorkerHours += hours
			e.GPUHours += hours * float64(workers[i].Profile().GPUs())
		}
	}
	c.SetPlans(&st.Plans)
	return c
}

// plansFile writes every plan of a run, one JSON object per line.
type plansFile struct {
	file *atomicfile.File
	buf  *bufio.Writer
	err  error
}

func (p *plansFile) note(e *record.Event) {
	if p.err == nil {
		enc := json.NewEncoder(p.buf)
		enc.SetEscapeHTML(false)
		p.err = enc.Encode(e.Plan)
	}
}

func (p *plansFile) close() error {
	if p.file == nil {
		return nil
	}
	if err := cmp.Or(p.err, p.buf.Flush()); err != nil {
		return err
	}
	return p.file.Commit()
}

// oracleObserver records the input of the oracle: the requests that succeeded.
type oracleObserver struct {
	requests []oracle.Request
	latency  float64 // s, summed
	end      float64 // s
}

func (o *oracleObserver) done(r *record.Request) {
	o.end = max(o.end, r.Finish)
	if r.Status == record.OK {
		o.requests = append(o.requests, oracle.Request{Release: r.Sent, Prompt: r.Prompt, Output: r.Output})
		o.latency += r.Finish - r.Sent
	}
}

// bound compares the run with what perfect knowledge could have reached; nil if
// no request ended well.
func (o *oracleObserver) bound(workers []*profile.Costs) *result.Oracle {
	if len(o.requests) == 0 {
		return nil
	}
	b := oracle.Of(o.requests, workers)
	mean := o.latency / float64(len(o.requests))
	return &result.Oracle{
		MeanE2E: 1000 * b.MeanE2E, Duration: b.Duration,
		E2ERegret: mean/b.MeanE2E - 1, DurationRegret: o.end/b.Duration - 1,
	}
}
