// Package vllmruns holds the simulator against measured hours of vLLM with many
// LoRA adapters: a table with a row for each run, and beside it what the server
// printed of its KV cache and of adapter loads.
//
//	runs, err := textfile.Read("vllm_lora/runs.csv", vllmruns.Read)
//	tables, err := vllmruns.ReadTables("vllm_lora")
//	rows, err := vllmruns.Simulate(ctx, runs, tables, vllmruns.Options{})
//	vllmruns.NewReport(rows, "").WriteText(os.Stdout)
//
// A run is an hour of one worker: a Poisson process per adapter, lengths drawn
// from a pool of ShareGPT prompts, and an end at which what is unfinished is
// cancelled. All figures count completed requests only.
package vllmruns

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"

	"lorasim/bench/validate"
	"lorasim/internal/record"
	"lorasim/internal/tick"
	"lorasim/router"
	"lorasim/sim"
	"lorasim/sim/profile"
	"lorasim/trace"
	"lorasim/trace/lengths"
	"lorasim/trace/synth"
)

// The metrics. TPOT is the mean over requests of their mean gap between tokens,
// ITL the mean over all gaps, Running the mean number of running requests.
const (
	Throughput validate.Metric = "throughput" // prompt + output tokens/s of completed requests
	TPOT       validate.Metric = "tpot"       // ms
	ITL        validate.Metric = "itl"        // ms
	TTFTMean   validate.Metric = "ttft_mean"  // ms
	TTFTMedian validate.Metric = "ttft_median"
	Running    validate.Metric = "running"
)

// Metrics lists the metrics in the order in which they are printed.
var Metrics = []validate.Metric{Throughput, TPOT, ITL, TTFTMean, TTFTMedian, Running}

// Held is a use of runs beside those of package validate: of a table kept aside.
const Held = "held"

// starvedBelow: a run that completed less than this share of its arrivals was
// starved.
const starvedBelow = 0.9

// Options say how runs are predicted.
type Options struct {
	// Profiles by the name of the model; one that is missing is the embedded one.
	Profiles map[string]*profile.Profile
	// Progress, where set, is told how many runs of all are done.
	Progress func(done, total int64)
}

// models are the models that have an embedded profile, with the law of the
// lengths in their tokens.
var models = map[string]struct{ profile, lengths string }{
	"llama-3.1-8b-instruct": {"llama-3.1-8b-h100", "sharegpt-llama3"},
	"qwen-2.5-7b-instruct":  {"qwen-2.5-7b-h100", "sharegpt-qwen2"},
}

// ProfileOf is the name of the embedded profile of a model, "" if it has none.
func ProfileOf(model string) string { return models[model].profile }

// clientLimit is the number of requests that the client could have in flight:
// the local ports of its machine.
const clientLimit = 26_500

// model is what the runs of a model have in common.
type model struct {
	profile *profile.Profile
	lengths *lengths.Copula
	// means of prompt and output before any reply ends early, tokens
	prompt, output float64
}

// newModel gathers what is known of a model.
func newModel(name string, t *Tables, o Options) (*model, error) {
	known, ok := models[name]
	m := &model{profile: o.Profiles[name]}
	var err error
	switch {
	case m.profile != nil:
	case !ok:
		return nil, fmt.Errorf("no profile of model %q: expected llama-3.1-8b-instruct, qwen-2.5-7b-instruct, or a profile for it", name)
	default:
		if m.profile, err = profile.Load(known.profile); err != nil {
			return nil, err
		}
	}
	if !ok {
		known.lengths = "sharegpt-llama3"
	}
	s, err := lengths.Parse(known.lengths)
	if err != nil {
		return nil, err
	}
	law := *s.(*lengths.Copula)
	law.Prompt, law.Output = t.prompt, t.output
	m.lengths = &law
	whole := law
	whole.EOS = 0
	const n = 100_000
	r := rand.New(rand.NewPCG(0, 0))
	for range n {
		p, q := whole.Draw(r)
		m.prompt += float64(p) / n
		m.output += float64(q) / n
	}
	return m, nil
}

// Simulate predicts runs on all processors. The result does not depend on their
// number.
func Simulate(ctx context.Context, runs []Run, t *Tables, o Options) ([]Row, error) {
	byName := map[string]*model{}
	for i := range runs {
		name := runs[i].Model
		if byName[name] != nil {
			continue
		}
		m, err := newModel(name, t, o)
		if err != nil {
			return nil, fmt.Errorf("run in line %d: %w", runs[i].Line, err)
		}
		byName[name] = m
	}
	rows := make([]Row, len(runs))
	err := validate.Parallel(ctx, len(runs), func(i int) (err error) {
		if rows[i], err = simulate(ctx, &runs[i], byName[runs[i].Model], t); err != nil {
			err = fmt.Errorf("run in line %d: %w", runs[i].Line, err)
		}
		return err
	}, o.Progress)
	return rows, err
}

// simulate predicts one run.
func simulate(ctx context.Context, r *Run, m *model, t *Tables) (Row, error) {
	row := Row{Setup: r.Setup, Adapters: len(r.Rates), Comparison: validate.Comparison{Measured: r.Measured}}
	costs, err := server(r, m.profile, t)
	if err != nil {
		row.Skipped = err.Error()
		return row, nil
	}
	src, err := workload(r, m)
	if err != nil {
		return row, err
	}
	watch := &observer{}
	var waiting sim.Waiting
	st, err := sim.Run(ctx, sim.Config{
		Source: src, Workers: []*profile.Costs{costs}, Router: &router.Router{Policy: validate.Fixed(func(int64) int { return 0 })},
		Observer: validate.Done(watch.done), Hooks: []sim.Hooks{{Watch: watch.Watch}, {Watch: waiting.Watch}}, Home: router.Disk, Window: r.Window, FailAbove: clientLimit,
	})
	if err != nil {
		return row, err
	}
	row.LoadsPerStep = float64(st.Workers[0].Loads) / float64(max(st.Workers[0].DecodeSteps, 1))
	row.Predict(watch.values(r.Window))
	row.Ran = validate.Ran{ValidatedRun: profile.ValidatedRun{
		Workers: 1, Profile: costs.Profile(), Requests: int(watch.arrived), Adapters: row.Adapters, Window: true,
		Prompt: watch.prompts / max(float64(len(watch.ttft)), 1), Output: (float64(watch.tokens) - watch.prompts) / max(float64(len(watch.ttft)), 1),
	}, Base: m.profile, Alike: r.Group, Waiting: waiting.Share()}
	row.StarvedPredicted = float64(len(watch.ttft)) < starvedBelow*float64(watch.arrived)
	if row.Arrivals = watch.arrived; r.Arrivals > 0 {
		row.Arrivals = int64(r.Arrivals)
	}
	row.StarvedMeasured = r.Completed < starvedBelow*float64(row.Arrivals)
	return row, nil
}

// server is the worker of a run: the profile of its model with the run's slots,
// ranks and limits, and the KV cache and load times of the tables.
func server(r *Run, p *profile.Profile, t *Tables) (*profile.Costs, error) {
	q := *p
	e := &q.Engine
	e.MaxLorasPerBatch, e.MaxLoraRank, e.MaxRunningRequests = r.Slots, r.MaxRank, r.MaxSeqs
	e.MaxLoadedLoras = max(len(r.Rates), r.Slots+1) // all adapters lie in host memory
	e.MaxNumBatchedTokens = max(e.MaxNumBatchedTokens, r.MaxSeqs)
	var err error
	if q.Memory.KVTokens, err = t.KVTokens(r.Model, r.Slots, r.MaxRank); err != nil {
		return nil, err
	}
	if host, disk, ok := t.load(r.Model, r.Ranks, r.MaxRank); ok {
		const atOnce = 1e6 // GB/s: the times do not depend on the rank
		q.Adapters.HostToGPU = profile.Stage{LatencyMs: host, GBPerS: atOnce}
		q.Adapters.DiskToHost = profile.Stage{LatencyMs: disk, GBPerS: atOnce}
	}
	if err := q.Check(); err != nil {
		return nil, err
	}
	return q.Compile(), nil
}

// workload is the requests of a run. The pool's means scale the lengths; they
// differ from run to run by a percent or two.
func workload(r *Run, m *model) (trace.Source, error) {
	ranks := r.Ranks
	if len(ranks) == 0 {
		ranks = []int{r.MaxRank}
	}
	src, err := synth.NewSharedPoisson(synth.SharedPoisson{Rates: r.Rates, Ranks: synth.Ranks{Values: ranks}, Duration: r.Window})
	if err != nil {
		return nil, err
	}
	law := m.lengths
	if r.PoolPrompt > 0 && r.PoolOutput > 0 {
		law = law.Scaled(r.PoolPrompt/m.prompt, r.PoolOutput/m.output)
	}
	return lengths.Fill(src, law, 0), nil
}

// observer collects the figures of a run.
type observer struct {
	ttft    []float64 // s, of completed requests
	tpot    float64   // s, summed over those with two tokens or more
	several int64     // number of those
	gaps    float64   // between the pieces of completed requests
	decode  float64   // s that these took
	tokens  int64     // of completed requests
	prompts float64   // tokens of these in prompts
	arrived int64
	running float64 // requests x s
	scrapes scrapes
}

func (o *observer) done(r *record.Request) {
	o.arrived++
	if r.Status != record.OK {
		return
	}
	// What the front end takes in late, the engine begins late.
	late := o.scrapes.after(r.Sent) - r.Sent
	first, last := o.scrapes.after(r.FirstToken+late), o.scrapes.after(r.Finish+late)
	o.ttft = append(o.ttft, first-r.Sent)
	o.tokens += int64(r.Prompt) + int64(r.Output)
	o.prompts += float64(r.Prompt)
	if r.Output > 1 {
		d := last - first
		o.several++
		o.tpot += d / float64(r.Output-1)
		o.decode += d
		o.gaps += o.scrapes.pieces(float64(r.Output-1), r.FirstToken+late, r.Finish+late)
	}
}

// Watch is a hook of sim.Hooks.
func (o *observer) Watch(from, to tick.Ticks, v *router.View) {
	o.scrapes.watch(to.Seconds(), &v.Workers[0])
	o.running += float64(v.Workers[0].Running) * (to - from).Seconds()
}

// values are the figures of a run of so many seconds; those of no requests are absent.
func (o *observer) values(window float64) validate.Values {
	v := validate.Values{Throughput: float64(o.tokens) / window, Running: o.running / window}
	if n := len(o.ttft); n > 0 {
		sum := 0.0
		for _, x := range o.ttft {
			sum += x
		}
		slices.Sort(o.ttft)
		v[TTFTMean], v[TTFTMedian] = 1000*sum/float64(n), 1000*(o.ttft[(n-1)/2]+o.ttft[n/2])/2
	}
	if o.several > 0 {
		v[TPOT], v[ITL] = 1000*o.tpot/float64(o.several), 1000*o.decode/o.gaps
	}
	return v
}

// scrapes is what reading the server's metrics does to its front end.
//
// vLLM exports which adapters have requests as the labels of a gauge,
// vllm:lora_requests_info (PrometheusStatLogger.record in v1/metrics/loggers.py):
// each list of adapters that it has ever seen, in the order in which they came to
// have requests, stays as a time series of its own. So the page of metrics grows
// with every such list, and whenever it is read, every two seconds in these runs,
// the front end renders all of it and does nothing else. The engine goes on, in
// a process of its own; but requests wait to be taken in, and what it generated
// meanwhile reaches its client in one piece. With 8 adapters there are few lists,
// with 128 of them the page takes most of a second at the end of an hour; where
// every adapter always has requests, the list never changes.
type scrapes struct {
	seen   [2]int64            // counts of the worker's requests and their tokens at the latest look
	listed []bool              // whether an adapter is in active
	active []int32             // adapters with requests, in the order in which they came to have them
	known  map[uint64]struct{} // lists seen
	names  int64               // adapters in all of them
	next   float64             // s
	stalls []stall
}

// stall is a time, s, in which the front end renders metrics. before is the sum
// of all stalls before it.
type stall struct{ from, to, before float64 }

const (
	scrapeEvery = 2.0 // s: the interval of the series in the table of runs
	// Times to render a list, s: one of it and one of each name in it, both
	// labels together. From ITL / TPOT of the calibration runs without a queue.
	scrapeList = 18.5e-6
	scrapeName = 0.1e-6
)

// watch takes note of the adapters with requests up to a time, s.
func (s *scrapes) watch(to float64, w *router.Worker) {
	for s.next <= to {
		d := scrapeList*float64(len(s.known)) + scrapeName*float64(s.names)
		if d > 0 {
			last := stall{}
			if n := len(s.stalls); n > 0 {
				last = s.stalls[n-1]
			}
			s.stalls = append(s.stalls, stall{s.next, s.next + d, last.before + last.to - last.from})
		}
		s.next += max(scrapeEvery, d)
	}
	if now := [2]int64{int64(w.Running + w.Queued), w.Tokens}; now != s.seen || s.listed == nil {
		s.seen = now
		s.look(w)
	}
}

// look takes note of the list of adapters with requests, if it is a new one.
func (s *scrapes) look(w *router.Worker) {
	if s.listed == nil {
		s.listed = make([]bool, len(w.Adapters))
	}
	has := func(a int32) bool { return w.Adapters[a].Running+w.Adapters[a].Queued > 0 }
	n := len(s.active)
	s.active = slices.DeleteFunc(s.active, func(a int32) bool {
		s.listed[a] = has(a)
		return !s.listed[a]
	})
	changed := len(s.active) < n
	for a := range int32(len(w.Adapters)) {
		if !s.listed[a] && has(a) {
			s.listed[a] = true
			s.active = append(s.active, a)
			changed = true
		}
	}
	if !changed {
		return
	}
	hash := uint64(14695981039346656037) // FNV-1a
	for _, a := range s.active {
		hash = (hash ^ uint64(a)) * 1099511628211
	}
	if s.known == nil {
		s.known = map[uint64]struct{}{}
	}
	if _, ok := s.known[hash]; !ok {
		s.known[hash] = struct{}{}
		s.names += int64(len(s.active))
	}
}

// after is the time at which the front end deals with what comes at time t.
func (s *scrapes) after(t float64) float64 {
	if k := s.index(t); k >= 0 && t < s.stalls[k].to {
		return s.stalls[k].to
	}
	return t
}

// index is the latest stall that began by time t, -1 if there is none.
func (s *scrapes) index(t float64) int {
	return sort.Search(len(s.stalls), func(k int) bool { return s.stalls[k].from > t }) - 1
}

// pieces is in how many pieces n tokens reach the client that are generated
// evenly between two times: those of a stall come in one.
func (s *scrapes) pieces(n, from, to float64) float64 {
	a, b := s.index(from), s.index(to)
	if b < 0 || !(to > from) {
		return n
	}
	until := func(k int, t float64) float64 {
		if k < 0 {
			return 0
		}
		return s.stalls[k].before + min(t, s.stalls[k].to) - s.stalls[k].from
	}
	bundled := (until(b, to) - until(a, from)) * n / (to - from)
	return max(n-max(bundled-float64(b-a), 0), 1)
}
