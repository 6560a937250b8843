package scenario

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"lorasim/bench/result"
	"lorasim/bench/result/records"
	"lorasim/internal/record"
	"lorasim/router"
	"lorasim/sim"
	"lorasim/sim/profile"
	"lorasim/trace"
)

// RunOptions is what a caller may ask of a run beside the scenario; none of it
// changes what happens in the run.
type RunOptions struct {
	SLO         result.SLO
	RecordsFile string // write one row per request there; "": do not
	TokenTimes  bool   // with the time of every token
	Oracle      bool   // tell how far the run is from what perfect knowledge could reach
	PlansFile   string // write one plan per line there, as JSON; "": do not
	KeepRecords bool   // in the result

	// Reading is told the bytes of input read, Running the requests done of
	// total (0: unknown) and the simulated time in seconds.
	Reading func(read, total int64)
	Running func(done, total int64, now float64)

	// Input is the scenario's workload where the caller has it already, as in a
	// sweep that runs it several times; nil: open it.
	Input *Input
	// Watch, where set, is given the adapters and returns one more observer of
	// the run, of those that sim.Config.Others takes.
	Watch func(adapters []trace.Adapter) any
}

// Simulate runs the scenario in the simulator.
func (s *Scenario) Simulate(ctx context.Context, o RunOptions) (*result.Result, error) {
	in, err := s.input(ctx, o)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	cfg, err := s.config(in, o)
	if err != nil {
		return nil, err
	}
	collector := result.NewCollector(result.Options{
		NonStreaming: s.Client.NoStream, Workers: len(cfg.Workers), Adapters: in.Adapters(),
		SLO: o.SLO, KeepRecords: o.KeepRecords, Duration: s.Workload.Window,
	})
	cfg.Observer = collector
	var file *recordsFile
	if o.RecordsFile != "" {
		if file, err = newRecordsFile(o.RecordsFile, in.Source); err != nil {
			return nil, err
		}
		file.window = s.Workload.Window > 0
		defer file.w.Abort()
		cfg.Source, cfg.Others = file, append(cfg.Others, file)
	}
	if o.Watch != nil {
		cfg.Others = append(cfg.Others, o.Watch(in.Adapters()))
	}
	var plans *plansFile
	if o.PlansFile != "" {
		if plans, err = newPlansFile(o.PlansFile); err != nil {
			return nil, err
		}
		defer plans.file.Abort()
		cfg.Others = append(cfg.Others, plans)
	}
	var known *oracleObserver
	if o.Oracle {
		known = &oracleObserver{}
		cfg.Others = append(cfg.Others, known)
	}
	st, err := sim.Run(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if file != nil {
		if err := file.close(); err != nil {
			return nil, err
		}
	}
	if plans != nil {
		if err := plans.close(); err != nil {
			return nil, err
		}
	}
	res := collector.Result(s.Meta(in.Dataset), counters(st))
	if known != nil {
		res.Extra.Oracle = known.bound(cfg.Workers)
	}
	return res, nil
}

// config is the simulation that the scenario describes, without an observer.
func (s *Scenario) config(in *Input, o RunOptions) (sim.Config, error) {
	ps, err := s.Profiles()
	if err != nil {
		return sim.Config{}, fault(err)
	}
	if err := checkRanks(ps, in.Adapters()); err != nil {
		return sim.Config{}, fault(err)
	}
	rt, err := s.Router(ps, in.Adapters())
	if err != nil {
		return sim.Config{}, fault(err)
	}
	home, err := s.Cluster.home()
	if err != nil {
		return sim.Config{}, err
	}
	outages, err := s.Cluster.outages()
	if err != nil {
		return sim.Config{}, err
	}
	cfg := sim.Config{
		Window: s.Workload.Window, FailAbove: s.Client.MaxInFlightFail,
		Source: in.Source, Workers: compile(ps), Router: rt,
		MaxConcurrency: s.Client.MaxConcurrency, NoStream: s.Client.NoStream, WarmUp: !s.Client.NoWarmup,
		Staleness: s.Routing.ViewStaleness, KnownOutputs: s.Routing.KnownOutputs, Home: home, TokenTimes: o.TokenTimes,
		MoveMode: router.Moving(s.Routing.RequestMigration), Seed: s.Seed,
		LoadFailures: s.Cluster.LoadFailureRate, Outages: outages, NoFailover: s.Cluster.NoFailover,
	}
	if o.Running != nil {
		total := max(in.Source.Len(), 0)
		cfg.Progress = func(done int64, now float64) { o.Running(done, total, now) }
	}
	return cfg, nil
}

// input is the workload of the run.
func (s *Scenario) input(ctx context.Context, o RunOptions) (*Input, error) {
	if o.Input != nil {
		return o.Input, nil
	}
	return s.OpenWorkload(ctx, o.Reading)
}

// compile turns profiles into step costs, shared where the profile is.
func compile(ps []*profile.Profile) []*profile.Costs {
	byProfile := map[*profile.Profile]*profile.Costs{}
	cs := make([]*profile.Costs, len(ps))
	for i, p := range ps {
		if byProfile[p] == nil {
			byProfile[p] = p.Compile()
		}
		cs[i] = byProfile[p]
	}
	return cs
}

// Meta describes the scenario as the head of a result.
func (s *Scenario) Meta(dataset string) result.Meta {
	w := &s.Workload
	m := result.Meta{
		Source: result.Sim, Backend: "lorasim", DatasetName: dataset,
		RequestRate: result.TraceRate, MaxConcurrency: s.Client.MaxConcurrency, Config: map[string]any{},
		Streamed: record.StreamingIf(!s.Client.NoStream), Policy: s.Routing.Policy, Scenario: s.Summary(),
	}
	if dataset == "synthetic" || dataset == "slora" || dataset == "vllm-lora" {
		m.RequestRate = result.Rate(w.RequestRate)
	}
	if w.paced() {
		if m.RequestRate = result.Rate(w.RequestRate); w.RampUpStrategy != "" {
			m.RequestRate = result.Unlimited() // as vLLM's client reports it
		}
	}
	if w.Lengths == "random" || w.RandomInputLen > 0 || w.RandomOutputLen > 0 {
		in, out := s.randomRanges()
		i, o := int(in[1])-1, int(out[1])-1
		m.RandomInputLen, m.RandomOutputLen, m.RandomRangeRatio = &i, &o, &w.RandomRangeRatio
	}
	seed := int64(s.Seed)
	m.Seed = &seed
	for _, f := range Fields() {
		if f.Key != "seed" {
			m.Config[f.Key] = f.Value(s)
		}
	}
	if n, err := s.Workers(); err == nil {
		m.Config["cluster.num_workers"] = n
	}
	return m
}

// Summary is the scenario's name, or, where it has none, the settings in which
// it differs from the defaults, beside policy and seed: "num_workers=8
// request_rate=25"; "defaults" where it does not.
func (s *Scenario) Summary() string {
	if s.Name != "" {
		return s.Name
	}
	def := Default()
	var parts []string
	for _, f := range Fields() {
		v := f.Get(s)
		if f.Key == "name" || f.Key == "seed" || f.Key == "routing.policy" || v == f.Get(&def) {
			continue
		}
		if i := strings.LastIndexByte(v, '/'); i >= 0 {
			v = v[i+1:] // the folder of a file tells little
		}
		parts = append(parts, f.Leaf()+"="+v)
	}
	if len(parts) == 0 {
		return "defaults"
	}
	return strings.Join(parts, " ")
}

func counters(st *sim.Stats) *result.Counters {
	c := &result.Counters{}
	for _, w := range st.Workers {
		c.FailedLoads += w.Failures
		c.Workers = append(c.Workers, result.WorkerCounters{
			Busy: w.Busy.Seconds(), LoadCounters: result.LoadCounters{
				ColdLoads: w.Loads, Evictions: w.Evictions, Retractions: w.Retractions, LoadTime: w.Stalled.Seconds(),
			},
		})
	}
	p := &st.Plans
	for _, kind := range slices.Sorted(maps.Keys(p.Moves)) {
		c.Migrations = append(c.Migrations, result.MigrationCount{Kind: kind, Count: p.Moves[kind]})
	}
	c.MigrationTime = p.Lost.Seconds()
	c.SolverRuns, c.SolverTime = p.Plans, p.SolveTime
	c.Plans = &result.PlanCounters{
		Applied: p.Applied, Dropped: p.Dropped, Loads: p.Loads, Unloads: p.Unloads,
		Recomputed: p.Recomputed, Copied: p.Copied, Changes: p.Changes, Undone: p.Changes - p.Net,
	}
	if p.Gaps > 0 {
		c.Plans.Gap = p.GapSum / float64(p.Gaps)
	}
	return c
}

// recordsFile writes records in the order of the workload, though requests end
// in another: it stands between the simulator and its source, and observes.
type recordsFile struct {
	trace.Source
	w     *records.Writer
	open  []int64                   // ids that entered and were not written yet, in order
	ended map[int64]*record.Request // those of them that have ended
	err   error
	// window: the run has an end, and a request that was read but not sent by
	// then gets no record.
	window bool
}

func newRecordsFile(path string, src trace.Source) (*recordsFile, error) {
	w, err := records.Create(path, src.Adapters())
	if err != nil {
		return nil, err
	}
	return &recordsFile{Source: src, w: w, ended: map[int64]*record.Request{}}, nil
}

func (f *recordsFile) Next() (trace.Request, error) {
	if f.err != nil {
		return trace.Request{}, f.err
	}
	r, err := f.Source.Next()
	if err == nil {
		f.open = append(f.open, r.ID)
	}
	return r, err
}

func (f *recordsFile) Done(r *record.Request) {
	c := *r
	f.ended[r.ID] = &c
	n := 0
	for n < len(f.open) && f.ended[f.open[n]] != nil && f.err == nil {
		id := f.open[n]
		f.err = f.w.Write(f.ended[id])
		delete(f.ended, id)
		n++
	}
	f.open = f.open[n:]
}

func (f *recordsFile) close() error {
	if f.err != nil {
		return f.err
	}
	if unsent := len(f.open); unsent > 1 || unsent == 1 && !f.window {
		return errors.New("internal error: requests without a record")
	}
	return f.w.Close()
}
