package scenario

import (
	"context"
	"errors"
	"maps"
	"slices"

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
	// Watch, where set, is given the observer of the run and the adapters, and
	// returns the one to use in its place.
	Watch func(next record.Observer, adapters []trace.Adapter) record.Observer
}

// Simulate runs the scenario in the simulator.
func (s *Scenario) Simulate(ctx context.Context, o RunOptions) (*result.Result, error) {
	in, err := s.input(o)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	collector := result.NewCollector(result.Options{
		NonStreaming: s.Client.NoStream, Workers: s.Cluster.NumWorkers, Adapters: in.Adapters(),
		SLO: o.SLO, KeepRecords: o.KeepRecords,
	})
	cfg, err := s.config(in, o)
	if err != nil {
		return nil, err
	}
	cfg.Observer = collector
	var file *recordsFile
	if o.RecordsFile != "" {
		if file, err = newRecordsFile(o.RecordsFile, in.Source, collector); err != nil {
			return nil, err
		}
		defer file.w.Abort()
		cfg.Source, cfg.Observer = file, file
	}
	if o.Watch != nil {
		cfg.Observer = o.Watch(cfg.Observer, in.Adapters())
	}
	var plans *plansFile
	if o.PlansFile != "" {
		if plans, err = newPlansFile(o.PlansFile, cfg.Observer); err != nil {
			return nil, err
		}
		defer plans.file.Abort()
		cfg.Observer = plans
	}
	var known *oracleObserver
	if o.Oracle {
		known = &oracleObserver{Observer: cfg.Observer}
		cfg.Observer = known
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
		return sim.Config{}, err
	}
	rt, err := s.Router(ps, in.Adapters())
	if err != nil {
		return sim.Config{}, err
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
		Source: in.Source, Workers: compile(ps), Router: rt,
		MaxConcurrency: s.Client.MaxConcurrency, NoStream: s.Client.NoStream, WarmUp: !s.Client.NoWarmup,
		Staleness: s.Routing.ViewStaleness, Home: home, TokenTimes: o.TokenTimes,
		MoveMode: router.Moving(s.Routing.RequestMigration), Seed: s.Seed,
		LoadFailures: s.Cluster.LoadFailureRate, Outages: outages, NoFailover: s.Cluster.NoFailover,
	}
	if o.Running != nil {
		total := int64(0)
		if sized, ok := in.Source.(trace.Sized); ok {
			total = sized.Len()
		}
		cfg.Progress = func(done int64, now float64) { o.Running(done, total, now) }
	}
	return cfg, nil
}

// input is the workload of the run.
func (s *Scenario) input(o RunOptions) (*Input, error) {
	if o.Input != nil {
		return o.Input, nil
	}
	return s.OpenWorkload(o.Reading)
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
	}
	if dataset == "synthetic" || dataset == "slora" {
		m.RequestRate = result.Rate(w.RequestRate)
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
	return m
}

func counters(st *sim.Stats) *result.Counters {
	c := &result.Counters{}
	for _, w := range st.Workers {
		c.FailedLoads += w.Failures
		c.Workers = append(c.Workers, result.WorkerCounters{
			Busy: w.Busy.Seconds(), ColdLoads: w.Loads, Evictions: w.Evictions,
			Retractions: w.Retractions, LoadTime: w.Stalled.Seconds(),
		})
	}
	p := &st.Plans
	for _, kind := range slices.Sorted(maps.Keys(p.Moves)) {
		c.Migrations = append(c.Migrations, result.MigrationCount{Kind: kind, Count: p.Moves[kind]})
	}
	c.MigrationTime = p.Lost.Seconds()
	c.SolverRuns, c.SolverTime = p.Plans, p.SolveTime
	c.Plans = result.PlanCounters{
		Applied: p.Applied, Dropped: p.Dropped, Loads: p.Loads, Unloads: p.Unloads,
		Recomputed: p.Recomputed, Copied: p.Copied, Changes: p.Changes, Undone: p.Changes - p.Net,
	}
	if p.Gaps > 0 {
		c.Plans.Gap = p.GapSum / float64(p.Gaps)
	}
	return c
}

// recordsFile writes records in the order of the workload, though requests end
// in another: it stands between the simulator and its source and observer.
type recordsFile struct {
	trace.Source
	record.Observer
	w     *records.Writer
	open  []int64                   // ids that entered and were not written yet, in order
	ended map[int64]*record.Request // those of them that have ended
	err   error
}

func newRecordsFile(path string, src trace.Source, next record.Observer) (*recordsFile, error) {
	w, err := records.Create(path, src.Adapters())
	if err != nil {
		return nil, err
	}
	return &recordsFile{Source: src, Observer: next, w: w, ended: map[int64]*record.Request{}}, nil
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
	f.Observer.Done(r)
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
	if len(f.open) > 0 {
		return errors.New("internal error: requests without a record")
	}
	return f.w.Close()
}
