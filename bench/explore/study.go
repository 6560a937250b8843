package explore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"lorasim/bench/result"
	"lorasim/bench/result/series"
	"lorasim/bench/result/waits"
	"lorasim/bench/scenario"
	"lorasim/bench/steady"
	"lorasim/bench/study/compare"
	"lorasim/internal/format"
	"lorasim/internal/parallel"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/trace"
)

// A Run is the result of a policy's first run.
type Run struct {
	ID     string `json:"id"` // equal scenarios have equal IDs
	Policy string `json:"policy"`
	// TTFT, E2E and TPOT are quantiles of the latencies of successful requests, ms, for the probabilities 0,
	// 1/series.Quantiles, ..., 1.
	TTFT []float64 `json:"ttft"`
	E2E  []float64 `json:"e2e"`
	TPOT []float64 `json:"tpot"`
	// Parts are the parts of the mean time to first token, ms per request, in the order of [PartNames].
	Parts    []float64 `json:"parts"`
	State    State     `json:"state"`
	Attained *float64  `json:"attained,omitempty"` // share of requests within the SLO; nil: no SLO
	Cost     *Cost     `json:"cost,omitempty"`
	Notes    []string  `json:"notes,omitempty"`
	// Result is the complete result, in the JSON form of lorasim sim --json.
	Result json.RawMessage `json:"result"`
}

// A State describes the state of a policy's run.
type State struct {
	Policy string       `json:"policy"`
	State  steady.State `json:"state"`
	Words  []string     `json:"words"`
}

// PartNames returns the names of the parts of the time to first token: the causes of waiting, and the request's own
// steps.
func PartNames() []string {
	names := make([]string, 0, waits.NumCauses+1)
	for c := range waits.NumCauses {
		names = append(names, partWords[waits.Name(c)])
	}
	return append(names, "own prefill step")
}

// partWords are the causes as the page words them.
var partWords = map[string]string{
	"compute": "steps of other requests", "KV": "KV cache memory", "slots": "an adapter slot",
	"host memory": "adapter on its way to host memory", "loads": "adapter load into a slot",
	"routing": "routing: another worker had room", "front end": "front end",
}

// Compared is the comparison of the policies, in the JSON form of lorasim compare --json.
type Compared struct {
	Seeds int             `json:"seeds"`
	Of    int             `json:"of"` // number of seeds when complete
	Table json.RawMessage `json:"table"`
}

// study answers one query.
type study struct {
	ctx  context.Context
	x    *Explorer
	plan *plan
	emit func(Event)

	workers []*profile.Profile
	offered float64            // requests/s of the first run; 0: unknown
	results [][]*result.Result // by policy and seed
	spent   atomic.Int64       // requests simulated
	runs    atomic.Int64       // runs that simulated them

	mu        sync.Mutex
	workloads map[workloadKey]func() (*workload, error)
}

// workloadKey is what a workload depends on within a query.
type workloadKey struct {
	seed   uint64
	factor float64 // of the rate
}

// workload is held in memory, for the runs of all policies.
type workload struct {
	*trace.Workload
	dataset string
}

func newStudy(ctx context.Context, x *Explorer, p *plan, emit func(Event)) *study {
	return &study{ctx: ctx, x: x, plan: p, emit: emit, results: make([][]*result.Result, len(p.policies)),
		workloads: map[workloadKey]func() (*workload, error){}}
}

// run does the parts of the answer in their order.
func (s *study) run() error {
	checked, err := s.check()
	if err != nil || len(checked.Faults) > 0 {
		return errors.Join(err, s.tell(KindChecked, checked))
	}
	if err := s.tell(KindChecked, checked); err != nil {
		return err
	}
	if ok, err := s.firstRuns(); err != nil || !ok {
		return err
	}
	c := &curve{study: s, points: make([][]Point, len(s.plan.policies))}
	for _, part := range []func() error{s.compare, s.moreSeeds, c.run, s.states, c.intervals} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

// tell emits a part of the answer, unless the query was cancelled.
func (s *study) tell(kind string, data any) error {
	if err := s.ctx.Err(); err != nil {
		return err
	}
	s.emit(Event{kind, data})
	return nil
}

// check opens what the runs need. Faults are those of the query.
func (s *study) check() (c Checked, err error) {
	p := s.plan
	fault := func(err error) (Checked, error) {
		if s.ctx.Err() != nil {
			return Checked{}, s.ctx.Err()
		}
		return Checked{Faults: []Fault{p.faultOf(err)}}, nil
	}
	if s.workers, err = s.x.workers(s.ctx, &p.base); err != nil {
		return fault(err)
	}
	w, err := s.workload(&p.base, workloadKey{p.base.Seed, 1})
	if err != nil {
		return fault(err)
	}
	if n := len(w.Adapters) * len(s.workers); n > s.x.limits.Places {
		return Checked{Faults: []Fault{{"workload.num_adapters", fmt.Sprintf(
			"%d adapters on %d workers: the explorer takes at most %d in the product; lorasim sim has no limit",
			len(w.Adapters), len(s.workers), s.x.limits.Places)}}}, nil
	}
	if p.prices != nil {
		if _, err := p.prices.hour(s.workers); err != nil {
			return Checked{Faults: []Fault{{keyPrice, err.Error()}}}, nil
		}
	}
	return Checked{Faults: []Fault{}, Effective: s.effective(w), Notes: s.ignored(), Target: p.target(),
		SLO: p.limits(), Reproduce: p.reproduce()}, nil
}

// ignored are the settings that have no effect under any of the policies.
func (s *study) ignored() []string {
	var notes []string
	for i := range s.plan.policies {
		sc := s.plan.of(i, 0)
		def := scenario.Default()
		of := sc.Ignored(func(f scenario.Field) string {
			if f.Get(sc) == f.Get(&def) {
				return ""
			}
			return f.Leaf()
		})
		if i == 0 {
			notes = of
		}
		kept := notes[:0]
		for _, n := range notes {
			for _, o := range of {
				if n == o {
					kept = append(kept, n)
				}
			}
		}
		notes = kept
	}
	return notes
}

// effective returns the values of the settings that the query leaves to the profile and the workload.
func (s *study) effective(w *workload) map[string]string {
	e := &s.workers[0].Engine
	return map[string]string{
		"cluster.num_workers":                 strconv.Itoa(len(s.workers)),
		"cluster.engine.max_loras_per_batch":  strconv.Itoa(e.MaxLorasPerBatch),
		"cluster.engine.max_loaded_loras":     strconv.Itoa(e.MaxLoadedLoras),
		"cluster.engine.max_running_requests": strconv.Itoa(e.MaxRunningRequests),
		"cluster.engine.context_length":       strconv.Itoa(e.ContextLength),
		"cluster.engine.max_lora_rank":        strconv.Itoa(e.MaxLoraRank),
		"workload.num_adapters":               strconv.Itoa(len(w.Adapters)),
		"workload.num_prompts":                strconv.Itoa(len(w.Requests)),
		"workload.lora_ranks":                 scenario.DefaultRanksFor(s.workers),
	}
}

var errTooMany = errors.New("too many requests")

// workload reads the workload of a scenario, once for each key.
func (s *study) workload(sc *scenario.Scenario, key workloadKey) (*workload, error) {
	s.mu.Lock()
	get := s.workloads[key]
	if get == nil {
		own := *sc
		get = sync.OnceValues(func() (*workload, error) { return s.collect(&own) })
		s.workloads[key] = get
	}
	s.mu.Unlock()
	return get()
}

// forget frees a workload that no further run needs.
func (s *study) forget(key workloadKey) {
	s.mu.Lock()
	delete(s.workloads, key)
	s.mu.Unlock()
}

func (s *study) collect(sc *scenario.Scenario) (*workload, error) {
	in, err := sc.OpenWorkload(s.ctx, nil)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	limit := s.x.limits.Requests
	watched := trace.Watch(in, func(n int64) error {
		if n > limit {
			return errTooMany
		}
		return s.ctx.Err()
	})
	w, err := trace.Collect(watched)
	switch {
	case errors.Is(err, errTooMany):
		return nil, fmt.Errorf("num_prompts: the workload has more than %d requests, which is the most that the explorer takes; set a smaller number",
			limit)
	case err != nil:
		return nil, err
	case len(w.Requests) == 0:
		return nil, errors.New("num_prompts: the workload has no requests")
	}
	return &workload{w, in.Dataset}, nil
}

// simulate runs a scenario of the query.
func (s *study) simulate(sc *scenario.Scenario, key workloadKey, saturate bool, watch func() record.Watcher) (
	*result.Result, error) {
	w, err := s.workload(sc, key)
	if err != nil {
		return nil, err
	}
	o := scenario.RunOptions{SLO: s.plan.slo, Workers: s.workers, Saturate: saturate,
		Input: &scenario.Input{Source: w.Source(), Dataset: w.dataset}}
	if watch != nil {
		o.Watch = func([]trace.Adapter) record.Watcher { return watch() }
	}
	s.spent.Add(int64(len(w.Requests)))
	s.runs.Add(1)
	return sc.Simulate(s.ctx, o)
}

// firstRuns runs every policy once. ok: all of them can run.
func (s *study) firstRuns() (ok bool, err error) {
	n := len(s.plan.policies)
	runs, faults := make([]Run, n), make([]error, n)
	err = parallel.Do(s.ctx, n, func(i int) error {
		runs[i], faults[i] = s.firstRun(i)
		return nil
	}, nil)
	if err = errors.Join(err, s.ctx.Err()); err != nil {
		return false, s.ctx.Err()
	}
	var checked Checked
	for i, e := range faults {
		if e != nil {
			f := s.plan.faultOf(e)
			if f.Key == "" {
				f.Key = keyPolicy + strconv.Itoa(i)
			}
			if !slices.Contains(checked.Faults, f) { // that of several policies
				checked.Faults = append(checked.Faults, f)
			}
		}
	}
	if len(checked.Faults) > 0 {
		return false, s.tell(KindChecked, checked)
	}
	return true, s.tell(KindRuns, runs)
}

func (s *study) firstRun(i int) (Run, error) {
	sc := s.plan.of(i, 0)
	key := workloadKey{sc.Seed, 1}
	w, err := s.workload(sc, key)
	if err != nil {
		return Run{}, err
	}
	lat, lost := series.NewLatencies(), waits.New(result.SLO{}, s.workers, w.Adapters)
	res, err := s.simulate(sc, key, false, func() record.Watcher {
		w := lost.Watcher()
		w.Note = func(e *record.Event) {
			if e.Kind == record.EventEnded {
				lat.Done(e.Request)
			}
			lost.Note(e)
		}
		return w
	})
	if err != nil {
		return Run{}, err
	}
	s.results[i] = []*result.Result{res}
	if i == 0 {
		s.offered = offeredRate(res)
	}
	r := Run{ID: s.idOf(sc), Policy: s.plan.policies[i], TTFT: series.QuantilesOf(lat.TTFT),
		E2E: series.QuantilesOf(lat.E2E), TPOT: series.QuantilesOf(lat.TPOT), Parts: partsOf(lost, res),
		State: stateOf(s.plan.policies[i], res), Notes: res.Shortfall()}
	if err := scenario.Misfit(res); err != nil {
		r.Notes = append(r.Notes, err.Error())
	}
	if g := res.Extra.Goodput; g != nil {
		r.Attained = &g.Share
	}
	if r.Cost, err = s.cost(res); err != nil {
		return Run{}, err
	}
	var b bytes.Buffer
	if err := res.WriteJSON(&b); err != nil {
		return Run{}, err
	}
	r.Result = json.RawMessage(b.Bytes())
	s.x.remember(r.ID, sc)
	return r, nil
}

// offeredRate is the stated rate of the requests of a run, else the measured one, requests/s; 0: unknown.
func offeredRate(res *result.Result) float64 {
	if rate := float64(res.RequestRate); rate > 0 && !math.IsInf(rate, 1) {
		return rate
	}
	if res.Steady != nil {
		return res.Steady.OfferedRate
	}
	return 0
}

// idOf is the same for the same scenario.
func (s *study) idOf(sc *scenario.Scenario) string {
	h := fnv.New64a()
	for _, f := range scenario.Fields() {
		fmt.Fprintf(h, "%s=%s\n", f.Key, f.Get(sc))
	}
	return strconv.FormatUint(h.Sum64(), 36)
}

// partsOf are the parts of the mean time to the first token, ms.
func partsOf(o *waits.Observer, res *result.Result) []float64 {
	causes, own := o.Parts(res)
	n, _ := res.Metrics.Get(result.Completed)
	parts := make([]float64, 0, len(causes)+1)
	for _, c := range append(causes[:], own) {
		parts = append(parts, 1000*c/max(n, 1))
	}
	return parts
}

// stateOf is a run's state in words.
func stateOf(policy string, res *result.Result) State {
	a := res.Steady
	st := State{Policy: policy, Words: res.SteadyNotes()}
	if a == nil {
		return st
	}
	if st.State = a.State; a.State == steady.Steady {
		st.Words = []string{fmt.Sprintf(
			"steady: the workers keep up with this run's %s requests/s; a longer run would give the same means", format.Digits(a.OfferedRate))}
	}
	return st
}

// compare compares the runs that there are, by the code of lorasim compare.
func (s *study) compare() error {
	var runs []*compare.Run
	for i, results := range s.results {
		runs = append(runs, compare.FromResults(s.plan.policies[i], results))
	}
	t, err := compare.New(runs, compare.Options{})
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := t.WriteJSON(&b); err != nil {
		return err
	}
	return s.tell(KindCompared, Compared{len(s.results[0]), s.plan.seeds, bytes.TrimSpace(b.Bytes())})
}

// moreSeeds runs the other seeds, and compares again.
func (s *study) moreSeeds() error {
	n := len(s.plan.policies)
	more := (s.plan.seeds - 1) * n
	if more == 0 {
		return nil
	}
	out := make([]*result.Result, more)
	err := parallel.Do(s.ctx, more, func(k int) error {
		seed := 1 + k/n
		sc := s.plan.of(k%n, seed)
		var err error
		out[k], err = s.simulate(sc, workloadKey{sc.Seed, 1}, false, nil)
		return err
	}, nil)
	if err != nil {
		return err
	}
	for k, res := range out {
		s.results[k%n] = append(s.results[k%n], res)
		s.forget(workloadKey{s.plan.base.Seed + uint64(1+k/n), 1})
	}
	return s.compare()
}

// states judges the states again, by longer runs where the first were too short (see scenario.RunOptions.Saturate).
func (s *study) states() error {
	n := len(s.plan.policies)
	states := make([]State, n)
	err := parallel.Do(s.ctx, n, func(i int) error {
		if s.results[i][0].Steady.Judge() {
			states[i] = stateOf(s.plan.policies[i], s.results[i][0])
			return nil
		}
		sc := s.plan.of(i, 0)
		res, err := s.simulate(sc, workloadKey{sc.Seed, 1}, true, nil)
		if err == nil {
			states[i] = stateOf(s.plan.policies[i], res)
		}
		return err
	}, nil)
	if err != nil {
		return err
	}
	return s.tell(KindStates, states)
}
