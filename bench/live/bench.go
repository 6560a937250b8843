package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"lorasim/bench/live/fleet"
	"lorasim/bench/result"
	"lorasim/bench/result/records"
	"lorasim/bench/scenario"
	"lorasim/internal/record"
	"lorasim/router"
	"lorasim/trace"
)

// Options is how a scenario is run against live workers.
type Options struct {
	URLs      []string // as fleet.ParseURL returns them
	Backend   Backend
	API       fleet.API
	Transport *http.Transport // nil: the default
	Header    http.Header
	Path      func(a trace.Adapter) string // where workers find an adapter; nil: its name
	Speed     float64                      // of emulated workers' time; 0: 1

	SLO         result.SLO
	RecordsFile string // "": none
	KeepRecords bool   // in the result
	Replies     string // file for the token ids of the replies; "": none
	HonourEOS   bool
	Vocabulary  int
	Extra       []byte

	FirstToken, Idle, Total time.Duration
	Retries                 int
	Grace                   time.Duration
	Poll                    time.Duration
	Ready                   time.Duration // wait so long for workers that are not there yet

	Reading  func(read, total int64)
	Progress func(p Progress, total int64) // total 0: unknown
	Log      func(format string, args ...any)
}

// Bench runs a scenario's workload against live workers under its policy. The
// result is complete even if ctx ended the run early (Stats.Stopped).
func Bench(ctx context.Context, sc *scenario.Scenario, o Options) (*result.Result, *Stats, error) {
	sc.Cluster.NumWorkers = len(o.URLs)
	in, err := sc.OpenWorkload(ctx, o.Reading)
	if err != nil {
		return nil, nil, err
	}
	defer in.Close()
	if sc.Workload.Window > 0 || sc.Client.MaxInFlightFail > 0 {
		return nil, nil, errors.New("window and max_in_flight_fail are for simulated runs: a live run ends when all is done, or is interrupted")
	}
	client := NewHTTPClient(o.Transport)
	defer client.CloseIdleConnections()
	first := Preflight{URLs: o.URLs, API: o.API, Client: client, Header: o.Header, Ready: o.Ready}
	ps, err := first.Look(ctx, sc)
	if err != nil {
		return nil, nil, err
	}
	rt, err := sc.Router(ps, in.Adapters())
	if err != nil {
		return nil, nil, err
	}
	if err := first.Judge(in.Adapters(), rt, moving(sc, rt) == router.MoveRecompute, o.Log); err != nil {
		return nil, nil, err
	}
	clock := NewClock(o.Speed)
	limits, err := fleet.LimitsOf(ps)
	if err != nil {
		return nil, nil, err
	}
	f, err := fleet.New(fleet.Config{
		URLs: o.URLs, API: o.API, Client: client, Header: o.Header, Router: rt, Adapters: in.Adapters(), Path: o.Path,
		Now: clock.Now, Speed: o.Speed, Poll: o.Poll, Staleness: sc.Routing.ViewStaleness,
		Limits: limits, Stated: Stated(sc), Log: o.Log,
	})
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if err := f.Start(ctx); err != nil {
		return nil, nil, err
	}
	sink := &sink{collector: result.NewCollector(result.Options{
		NonStreaming: sc.Client.NoStream, Workers: len(o.URLs), Adapters: in.Adapters(), SLO: o.SLO, KeepRecords: o.KeepRecords,
	})}
	sink.keep = o.RecordsFile != ""
	cfg := Config{
		Source: in.Source, Fleet: f, URLs: o.URLs, Backend: o.Backend, Client: client, Header: o.Header, Clock: clock,
		Done: sink.done, MaxConcurrency: sc.Client.MaxConcurrency, NoStream: sc.Client.NoStream, WarmUp: !sc.Client.NoWarmup,
		HonourEOS: o.HonourEOS, KnownOutputs: sc.Routing.KnownOutputs, Seed: sc.Seed, Vocabulary: o.Vocabulary, Extra: o.Extra,
		FirstToken: o.FirstToken, Idle: o.Idle, Total: o.Total, Retries: o.Retries, NoFailover: sc.Cluster.NoFailover,
		Move: moving(sc, rt), Grace: o.Grace, Log: o.Log,
	}
	var replies *repliesFile
	if o.Replies != "" {
		if replies, err = createReplies(o.Replies); err != nil {
			return nil, nil, err
		}
		defer replies.abort()
		cfg.Output = replies.add
	}
	texts := map[int64]string{}
	if o.KeepRecords {
		cfg.Text = func(id int64, text string) { texts[id] = text }
	}
	total := max(in.Source.Len(), 0)
	if o.Progress != nil {
		cfg.Progress = func(p Progress) { o.Progress(p, total) }
	}
	st, runErr := Run(ctx, cfg)
	if st == nil {
		return nil, nil, runErr
	}
	if o.RecordsFile != "" {
		if err := sink.write(o.RecordsFile, in.Adapters()); err != nil {
			return nil, nil, err
		}
	}
	if replies != nil {
		if err := replies.close(); err != nil {
			return nil, nil, err
		}
	}
	fs := f.Stats()
	meta := sc.Meta(in.Dataset)
	meta.Source, meta.Backend = result.Live, string(o.Backend)
	meta.Config["live"] = describe(o, st, &fs)
	res := sink.collector.Result(meta, counters(st, &fs, cfg.Move))
	res.Texts = texts
	res.Extra.Unsent = max(total-res.Extra.Requests, 0) // all were sent, unless the run was stopped
	return res, st, runErr
}

// moving is how requests move: not at all where nobody plans.
func moving(sc *scenario.Scenario, rt *router.Router) router.Moving {
	if _, adjusts := rt.Policy.(router.Adjuster); rt.Planner == nil && !adjusts {
		return router.MoveNone
	}
	return router.Moving(sc.Routing.RequestMigration)
}

// sink takes the records of a run.
type sink struct {
	collector *result.Collector
	keep      bool
	records   []record.Request
}

func (s *sink) done(r *record.Request) {
	s.collector.Done(r)
	s.collector.AddGaps(r)
	if s.keep {
		s.records = append(s.records, *r) // its gaps are its own
	}
}

// write saves the records in the order of the workload.
func (s *sink) write(path string, adapters []trace.Adapter) error {
	slices.SortFunc(s.records, func(a, b record.Request) int { return cmp.Compare(a.ID, b.ID) })
	w, err := records.Create(path, adapters)
	if err != nil {
		return err
	}
	defer w.Abort()
	for i := range s.records {
		if err := w.Write(&s.records[i]); err != nil {
			return err
		}
	}
	return w.Close()
}

func counters(st *Stats, fs *fleet.Stats, how router.Moving) *result.Counters {
	c := &result.Counters{SolverRuns: fs.Plans, SolverTime: fs.SolveTime, FailedLoads: fs.FailedLoads,
		Plans: &result.PlanCounters{Applied: fs.Applied, Dropped: fs.Dropped}}
	if st.Moved > 0 {
		c.Migrations = append(c.Migrations, result.MigrationCount{Kind: string(how), Count: st.Moved})
	}
	return c
}

// describe is what is particular to a live run, for the result's configuration.
func describe(o Options, st *Stats, fs *fleet.Stats) map[string]any {
	urls := make([]any, len(o.URLs))
	for i, u := range o.URLs {
		urls[i] = u
	}
	return map[string]any{
		"worker_urls": urls, "time_scale": cmp.Or(o.Speed, 1),
		"sent": st.Sent, "stopped": st.Stopped, "retries": st.Retries, "failovers": st.Failovers,
		"moved_requests": st.Moved, "moves_given_up": st.MovesOff,
		"lateness_mean_s": st.LatenessMean, "lateness_p50_s": st.LatenessP50, "lateness_p99_s": st.LatenessP99, "lateness_max_s": st.LatenessMax,
		"adapter_loads": fs.Loads, "adapter_unloads": fs.Unloads, "failed_adapter_loads": fs.FailedLoads,
		"plans": fs.Plans, "plans_applied": fs.Applied, "plans_dropped": fs.Dropped, "worker_downs": fs.Downs,
	}
}

// Summary is a line for people about what the block does not tell.
func (s *Stats) Summary() string {
	text := fmt.Sprintf("%d requests sent, lateness mean %.2f ms, P99 %.2f ms, max %.2f ms", s.Sent, 1e3*s.LatenessMean, 1e3*s.LatenessP99, 1e3*s.LatenessMax)
	for _, c := range []struct {
		n    int64
		what string
	}{{s.Retries, "retries"}, {s.Failovers, "failovers"}, {s.Moved, "moved"}, {s.MovesOff, "moves given up"}} {
		if c.n > 0 {
			text += fmt.Sprintf(", %d %s", c.n, c.what)
		}
	}
	return text
}
