package live

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"lorasim/bench/result"
	"lorasim/bench/run"
	"lorasim/bench/scenario"
	"lorasim/bench/serving/fleet"
	"lorasim/internal/atomicfile"
	"lorasim/internal/format"
	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/trace"
)

// Options has the settings of [Bench] that a scenario does not contain.
type Options struct {
	Config               // Bench sets the fields that the scenario determines
	Workers fleet.Config // likewise

	SLO         result.SLO // of the result
	RecordsFile string     // file for the records; "": none
	KeepRecords bool       // keep the records in the result
	// PushDir is the folder with the new versions of adapters, NAME/VERSION; "": the adapters' own paths again.
	PushDir string
	Replies string                  // file for the token ids of the replies; "": none
	Ready   time.Duration           // longest wait for workers that do not answer yet
	Reading func(read, total int64) // called while the workload is read; nil: no calls
	// Events, if not nil, is called with the adapters and returns a watcher of the run, as scenario.RunOptions.Watch.
	Events func(adapters []trace.Adapter) record.Watcher
	// Profiles, if not nil, is called with the profile of each worker before the run and before Events.
	Profiles func([]*profile.Profile)
	// Watch is called with the fleet before it starts, and the function that it returns once the run has ended, before
	// the fleet is closed. nil: no calls.
	Watch func(f *fleet.Fleet) (stop func())
}

// Bench runs a scenario's workload against live workers under its policy. If ctx ends the run early (Stats.Stopped),
// the result contains all requests up to then.
func Bench(ctx context.Context, sc *scenario.Scenario, o Options) (*result.Result, *Stats, error) {
	sc.Cluster.FixWorkers(len(o.Workers.URLs))
	in, err := sc.OpenWorkload(ctx, o.Reading)
	if err != nil {
		return nil, nil, err
	}
	defer in.Close()
	if sc.Workload.Window > 0 || sc.Client.MaxInFlightFail > 0 {
		return nil, nil, errors.New(
			"window and max_in_flight_fail are for simulated runs: a live run ends after its last request, or when interrupted")
	}
	cfg := o.Config
	cfg.Clock = newClock(o.Workers.Speed)
	o.Workers.Now, o.Workers.Adapters = cfg.Clock.Now, in.Adapters()
	defer o.Workers.Client.CloseIdleConnections()
	if cfg.Push, err = pushes(sc, in.Adapters(), &o); err != nil {
		return nil, nil, err
	}
	f, rt, seen, err := newFleet(ctx, sc, o.Workers, o.Ready, false)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if o.Watch != nil {
		defer o.Watch(f)()
	}
	if err := f.Start(ctx); err != nil {
		return nil, nil, err
	}
	r := sc.NewRun(in, seen.profiles, o.SLO)
	r.RecordsFile, r.CachesUnknown = o.RecordsFile, true
	r.Collect.PrefixCache, r.Collect.KeepRecords = true, o.KeepRecords
	r.Meta.Source, r.Meta.Backend = result.Live, string(o.Backend)
	cfg.Fleet, cfg.Move = f, moving(sc, rt)
	cfg.takeSettings(sc)
	texts := map[int64]string{}
	if o.KeepRecords {
		cfg.Text = func(id int64, text string) { texts[id] = text }
	}
	if o.Profiles != nil {
		o.Profiles(seen.profiles)
	}
	if o.Events != nil {
		cfg.Watchers = append(cfg.Watchers, o.Events(in.Adapters()))
	}
	var st *Stats
	describe := r.Describe
	r.Describe = func(res *result.Result) error {
		fs := f.Stats()
		res.Config["live"] = particulars(&o.Workers, st, &fs)
		res.Extra.Unsent = max(st.Requests-res.Extra.Requests, 0) // all were sent, unless the run was stopped
		err := describe(res)
		seen.tell(&res.Scenario)
		return err
	}
	execute := func(ctx context.Context, source trace.Source, to run.Observer) (*result.RunCounters, error) {
		cfg.Source, cfg.Done = source, func(r *record.Request) {
			to.Done(r)
			to.AddGaps(r)
		}
		var err error
		if st, err = runWithReplies(ctx, cfg, o.Replies); st == nil {
			return nil, err
		}
		return countersOf(f, st, cfg.Push != nil), err
	}
	res, err := r.Drive(ctx, execute)
	if res == nil {
		return nil, nil, err
	}
	res.Texts = texts
	if e := res.Extra; !sc.Cluster.Engine.PrefixCache && (e.Reuse == nil || e.Cached == 0) {
		leaveOutReuse(e) // the workers have no prefix caches, or do not report them
	}
	return res, st, err
}

// takeSettings sets what the scenario says about the client.
func (c *Config) takeSettings(sc *scenario.Scenario) {
	c.MaxConcurrency, c.NoStream, c.WarmUp = sc.Client.MaxConcurrency, sc.Client.NoStream, !sc.Client.NoWarmup
	c.KnownOutputs, c.Seed, c.NoFailover = sc.Routing.KnownOutputs, sc.Seed, sc.Cluster.NoFailover
}

// countersOf returns what client and fleet counted, with the pushes of adapter versions if there were any.
func countersOf(f *fleet.Fleet, st *Stats, pushes bool) *result.RunCounters {
	fs := f.Stats()
	c := counters(st, &fs)
	if pushes {
		pushed, cutOver := f.LoRAs.Pushes()
		c.Pushes = result.CountPushes(&pushed)
		c.Pushes.CutOver = cutOver
	}
	return c
}

// leaveOutReuse takes the figures of prefix caches out of a result.
func leaveOutReuse(e *result.Extra) {
	e.Reuse = nil
	for i := range e.Workers {
		e.Workers[i].Reuse = nil
	}
	for i := range e.Adapters {
		e.Adapters[i].Reuse = nil
	}
}

// runWithReplies is [Run]. It writes the token ids of the replies to a file, unless path is "".
func runWithReplies(ctx context.Context, cfg Config, path string) (st *Stats, runErr error) {
	if path == "" {
		return Run(ctx, cfg)
	}
	err := atomicfile.Write(path, func(file *atomicfile.File) error {
		w := &replies{to: bufio.NewWriter(file)}
		cfg.Output = w.add
		if st, runErr = Run(ctx, cfg); st == nil {
			return runErr
		}
		return cmp.Or(w.err, w.to.Flush())
	})
	if err != nil {
		return nil, cmp.Or(runErr, err)
	}
	return st, runErr
}

// NewFleet returns a fleet of the workers in cfg under the scenario's policy, and the router. It examines the workers
// first and waits up to the time ready for those that do not answer yet. Limits that the workers report replace the
// assumptions of the scenario's profiles, unless a user stated other ones. A configuration that cannot work with these
// workers is an error. For a gateway, the fleet takes in adapters that the workers hold, and requests do not move.
func NewFleet(ctx context.Context, sc *scenario.Scenario, cfg fleet.Config, ready time.Duration,
	gateway bool) (*fleet.Fleet, *router.Router, error) {
	f, rt, _, err := newFleet(ctx, sc, cfg, ready, gateway)
	return f, rt, err
}

// seen is what was found of the workers.
type seen struct {
	profiles []*profile.Profile // with the limits that the workers reported
	reports  []fleet.Report
}

// tell enters the engines of the workers, as far as they report them. Their profiles
// count for the policy alone.
func (s *seen) tell(ran *result.Scenario) {
	var out []result.RanProfile
	for i, p := range s.profiles {
		r, from := &s.reports[i], p.Provenance()
		own := result.RanProfile{Name: p.Name, Kind: string(from.Kind), Hardware: from.Hardware,
			AdapterSlots: p.Engine.MaxLorasPerBatch, Routing: true,
			Engine: cmp.Or(strings.TrimSpace(string(r.API)+" "+r.Version), "unknown")}
		if k := slices.IndexFunc(out, func(o result.RanProfile) bool { o.Workers = 0; return o == own }); k >= 0 {
			out[k].Workers++
			continue
		}
		own.Workers = 1
		out = append(out, own)
	}
	ran.Profiles = out
}

// silent returns an error if no worker answers. ready is how long they had.
func silent(reports []fleet.Report, ready time.Duration) error {
	if slices.ContainsFunc(reports, func(r fleet.Report) bool { return r.Error == "" }) {
		return nil
	}
	if k := slices.IndexFunc(reports, func(r fleet.Report) bool { return r.Refused }); k >= 0 {
		return fmt.Errorf("%s: %s", reports[k].URL, reports[k].Error)
	}
	which := "the worker does not answer"
	if n := len(reports); n > 1 {
		which = fmt.Sprintf("none of %d workers answers", n)
	}
	return fmt.Errorf("%s within %v (--ready-timeout): %s: %s", which, ready, reports[0].URL, reports[0].Error)
}

func newFleet(ctx context.Context, sc *scenario.Scenario, cfg fleet.Config, ready time.Duration,
	gateway bool) (*fleet.Fleet, *router.Router, *seen, error) {
	sc.Cluster.FixWorkers(len(cfg.URLs))
	ps, err := sc.Profiles(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	cfg.Stated = stated(sc)
	wait := fleet.Patience{Ready: ready}
	if gateway { // which answers nobody until then
		wait.First = 2 * time.Second // as a probe
	}
	reports := fleet.Check(ctx, cfg.Connection, wait, false)
	if err := ctx.Err(); err != nil {
		return nil, nil, nil, err
	}
	if !gateway {
		if err := silent(reports, ready); err != nil {
			return nil, nil, nil, err
		}
	}
	assumed := ps
	infos := make([]fleet.Info, len(reports))
	for i := range reports {
		infos[i] = reports[i].Info
	}
	ps = told(ps, infos, cfg.Stated)
	if gateway {
		own := *sc
		own.Routing.RequestMigration = string(router.MoveNone)
		sc = &own
	}
	if cfg.Router, err = sc.Router(ctx, ps, cfg.Adapters); err != nil {
		return nil, nil, nil, err
	}
	if gateway && cfg.Log != nil {
		noteAssumed(cfg.Log, ps, reports, cfg.Stated)
	}
	for i := range reports {
		if r := &reports[i]; r.Error == "" && r.TokenIDs == fleet.Off && !gateway &&
			moving(sc, cfg.Router) == router.MoveRecompute {
			cfg.Log("worker %d (%s) reports no token ids: running requests are not moved", i, r.URL)
		}
	}
	if err := fleet.Refuse(reports, cfg.Adapters, cfg.Router); err != nil {
		return nil, cfg.Router, nil, err
	}
	if cfg.Limits, err = limits(ps); err != nil {
		return nil, nil, nil, err
	}
	if gateway {
		stated := cfg.Stated
		cfg.Extend = func(workers []fleet.Info, all []trace.Adapter) (*router.Router, []fleet.Limits, error) {
			return extend(ctx, sc, told(assumed, workers, stated), all)
		}
	}
	cfg.Staleness = sc.Routing.ViewStaleness
	f, err := fleet.New(cfg)
	return f, cfg.Router, &seen{ps, reports}, err
}

// extend makes a router for other workers or more adapters.
func extend(ctx context.Context, sc *scenario.Scenario, ps []*profile.Profile,
	all []trace.Adapter) (*router.Router, []fleet.Limits, error) {
	rt, err := sc.Router(ctx, ps, all)
	if err != nil {
		return nil, nil, err
	}
	own, err := limits(ps)
	return rt, own, err
}

// limits are those that profiles assume.
func limits(ps []*profile.Profile) (list []fleet.Limits, err error) {
	for _, p := range ps {
		kv, err := p.KVTokens()
		if err != nil {
			return nil, err
		}
		list = append(list, fleet.Limits{MaxRunning: p.Engine.MaxRunningRequests, Slots: p.Engine.MaxLorasPerBatch,
			KVCapacity: kv, MaxLoaded: p.Engine.HostLoras()})
	}
	return list, nil
}

// noteAssumed says what of the workers is assumed: their step times, and the limits that they do not report.
func noteAssumed(log func(format string, args ...any), ps []*profile.Profile, reports []fleet.Report,
	stated fleet.Limits) {
	var said []string
	for i, p := range ps {
		from := p.Provenance()
		text := fmt.Sprintf("step times of profile %s (%s, %s) are assumed; --profile selects another", p.Name,
			from.Kind, from.Hardware)
		if !slices.Contains(said, text) {
			log("%s", text)
			said = append(said, text)
		}
		r := &reports[i]
		var lacks []string
		if stated.MaxRunning == 0 && r.MaxRunning == 0 {
			lacks = append(lacks, fmt.Sprintf("limit of running requests %d (raised if it runs more)",
				p.Engine.MaxRunningRequests))
		}
		if stated.Slots == 0 && r.Slots == 0 && r.LoRA != fleet.Off {
			lacks = append(lacks, fmt.Sprintf("adapter slots %d (until it reports them)",
				p.Engine.MaxLorasPerBatch))
		}
		if stated.KVCapacity == 0 && r.KVCapacity == 0 {
			kv, _ := p.KVTokens() // Router has checked it
			lacks = append(lacks, fmt.Sprintf("KV tokens %d (until it reports them)", kv))
		}
		if len(lacks) > 0 {
			log("worker %d (%s) does not report its limits; values of the profile: %s", i, r.URL,
				strings.Join(lacks, ", "))
		}
	}
}

// stated are the limits that flags or the scenario state; what is not stated is 0.
func stated(sc *scenario.Scenario) fleet.Limits {
	e := &sc.Cluster.Engine
	return fleet.Limits{MaxRunning: e.MaxRunningRequests, Slots: e.MaxLorasPerBatch, KVCapacity: e.KVTokens,
		MaxLoaded: e.MaxLoadedLoras}
}

// told are the workers' profiles with what the workers tell of themselves and nobody has stated. Workers beyond the
// given profiles have joined: they have the last one.
func told(ps []*profile.Profile, workers []fleet.Info, stated fleet.Limits) []*profile.Profile {
	list := make([]*profile.Profile, len(workers))
	for i := range list {
		p, r := *ps[min(i, len(ps)-1)], &workers[i] // a copy: workers share profiles
		take(&p.Engine.MaxRunningRequests, stated.MaxRunning, r.MaxRunning)
		take(&p.Engine.MaxLorasPerBatch, stated.Slots, r.Slots)
		take(&p.Engine.MaxLoadedLoras, stated.MaxLoaded, r.MaxLoaded)
		take(&p.Memory.KVTokens, stated.KVCapacity, r.KVCapacity)
		list[i] = &p
	}
	return list
}

func take[T int | int64](to *T, stated, told T) {
	if stated == 0 {
		*to = cmp.Or(told, *to)
	}
}

// moving is how requests move: not at all where nobody plans.
func moving(sc *scenario.Scenario, rt *router.Router) router.Moving {
	if !rt.Plans() {
		return router.MoveNone
	}
	return router.Moving(sc.Routing.RequestMigration)
}

// replies gets a line for each reply, as in
// {"id": 3, "adapter": 0, "prompt": [9], "tokens": [5, 6]}, in the order in which they end.
type replies struct {
	to  *bufio.Writer
	err error // the first
}

func (w *replies) add(r *record.Request, prompt, tokens []int32) {
	w.err = cmp.Or(w.err, json.NewEncoder(w.to).Encode(format.Object{"id", r.ID, "adapter", r.Adapter, "prompt",
		append([]int32{}, prompt...),
		"tokens", append([]int32{}, tokens...)}))
}

// counters adds what the client counted and what the fleet counted.
func counters(st *Stats, fs *fleet.Stats) *result.RunCounters {
	c := new(result.RunCounters)
	c.SetPlans(&fs.Plans)
	for i, w := range fs.Workers {
		w.Add(&st.Workers[i])
		c.Workers = append(c.Workers, result.WorkerCounters{Counters: w})
	}
	return c
}

// particulars is what is particular to a live run, for the result's configuration.
func particulars(workers *fleet.Config, st *Stats, fs *fleet.Stats) map[string]any {
	return map[string]any{
		"worker_urls": workers.URLs, "time_scale": cmp.Or(workers.Speed, 1),
		"sent": st.Sent, "stopped": st.Stopped, "retries": st.Retries,
		"retries_maybe_executed": st.MaybeExecuted, "failovers": st.Failovers,
		"moved_requests": st.Moved, "moves_given_up": st.MovesOff,
		"lateness_mean_s": st.LatenessMean, "lateness_p50_s": st.LatenessP50, "lateness_p99_s": st.LatenessP99,
		"lateness_max_s": st.LatenessMax,
		"adapter_loads":  fs.Loads, "adapter_unloads": fs.Unloads, "failed_adapter_loads": fs.Total().FailedLoads,
		"plans": fs.Plans.Made, "plans_applied": fs.Plans.Applied, "plans_dropped": fs.Plans.Dropped,
		"worker_downs": fs.Downs,
	}
}

// Summary returns one line with the figures that the result block lacks.
func (s *Stats) Summary() string {
	text := fmt.Sprintf("%d requests sent, lateness mean %.2f ms, P99 %.2f ms, max %.2f ms", s.Sent, 1e3*s.LatenessMean,
		1e3*s.LatenessP99, 1e3*s.LatenessMax)
	for _, c := range []struct {
		n    int64
		what string
	}{{s.Retries, "retries"}, {s.MaybeExecuted, "retries of requests that may have been executed"},
		{s.Failovers, "failovers"}, {s.Moved, "moved"}, {s.MovesOff, "abandoned moves"}} {
		if c.n > 0 {
			text += fmt.Sprintf(", %d %s", c.n, c.what)
		}
	}
	return text
}
