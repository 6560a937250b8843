// Package vllmruns compares the simulator with measured hours of vLLM with many LoRA adapters. A
// table has a row for each run. Further tables have the server's KV cache sizes and adapter load
// times.
//
//	runs, err := textfile.Read(ctx, "vllm_lora/runs.csv", vllmruns.Read)
//	tables, err := vllmruns.ReadTables(ctx, "vllm_lora")
//	rows, err := vllmruns.Simulate(ctx, runs, tables, vllmruns.Options{})
//	vllmruns.NewReport(rows, "").WriteText(os.Stdout)
//
// A run is an hour of one worker with a Poisson process per adapter. Lengths are drawn from a pool
// of ShareGPT prompts, and unfinished requests are cancelled at the end. All figures count
// completed requests only.
package vllmruns

import (
	"context"
	"fmt"
	"math/rand/v2"

	"lorasim/bench/accuracy/validate"
	"lorasim/internal/parallel"
	"lorasim/router"
	"lorasim/sim"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/trace"
	"lorasim/trace/lengths"
	"lorasim/trace/synth"
)

// The metrics. TPOT is the mean over requests of their mean gap between tokens, ITL the mean over
// all gaps, and Running the mean number of running requests.
const (
	Throughput validate.Quantity = "throughput" // prompt + output tokens/s of completed requests
	TPOT       validate.Quantity = "tpot"       // ms
	ITL        validate.Quantity = "itl"        // ms
	TTFTMean   validate.Quantity = "ttft_mean"  // ms
	TTFTMedian validate.Quantity = "ttft_median"
	Running    validate.Quantity = "running"
)

// Metrics lists the metrics in the order in which they are printed.
var Metrics = []validate.Quantity{Throughput, TPOT, ITL, TTFTMean, TTFTMedian, Running}

// Held is the use of runs of a table kept aside, in addition to the uses of package validate.
const Held = "held"

// starvedBelow is the share of completed arrivals below which a run was starved.
const starvedBelow = 0.9

// Options configures the prediction of runs.
type Options struct {
	// Profiles maps names of models to profiles. Default: the embedded profile of the model.
	Profiles map[string]*profile.Profile
	// Progress, if not nil, is called with the number of finished runs and of all runs.
	Progress func(done, total int64)
}

// models are the models with an embedded profile, with the law of the lengths in their tokens.
var models = map[string]struct{ profile, lengths string }{
	"llama-3.1-8b-instruct": {"llama-3.1-8b-h100-64gb-vllm-0.8.5", "sharegpt-llama3"},
	"qwen-2.5-7b-instruct":  {"qwen2.5-7b-h100-64gb-vllm-0.8.5", "sharegpt-qwen2"},
}

// ProfileOf returns the name of the embedded profile of a model, or "" if it has none.
func ProfileOf(model string) string { return models[model].profile }

// clientLimit is the largest number of requests that the client could have in flight: the number of
// local ports of its machine.
const clientLimit = 26_500

// model is the data that all runs of a model share.
type model struct {
	profile *profile.Profile
	lengths *lengths.Copula
	// mean tokens of prompt and output, before any reply ends early
	prompt, output float64
}

// newModel collects the data of a model.
func newModel(ctx context.Context, name string, t *Tables, o Options) (*model, error) {
	known, ok := models[name]
	m := &model{profile: o.Profiles[name]}
	var err error
	switch {
	case m.profile != nil:
	case !ok:
		return nil, fmt.Errorf(
			"no profile of model %q: expected llama-3.1-8b-instruct, qwen-2.5-7b-instruct, or a profile for it", name)
	default:
		if m.profile, err = profile.Embedded(known.profile); err != nil {
			return nil, err
		}
	}
	if !ok {
		known.lengths = "sharegpt-llama3"
	}
	s, err := lengths.Parse(ctx, known.lengths)
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

// Simulate predicts runs on all processors. The result does not depend on the number of processors.
// A run that cannot be predicted has a Row with the reason.
func Simulate(ctx context.Context, runs []Run, t *Tables, o Options) ([]Row, error) {
	byName := map[string]*model{}
	for i := range runs {
		name := runs[i].Model
		if byName[name] != nil {
			continue
		}
		m, err := newModel(ctx, name, t, o)
		if err != nil {
			return nil, fmt.Errorf("run in line %d: %w", runs[i].Line, err)
		}
		byName[name] = m
	}
	rows := make([]Row, len(runs))
	err := parallel.Do(ctx, len(runs), func(i int) (err error) {
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
	var waiting record.Waiting
	st, err := sim.Run(ctx, sim.Config{
		Source: src, Workers: []*profile.Costs{costs},
		Router:   &router.Router{Policy: router.Always(0)},
		Observer: record.Ends(watch.done),
		Watchers: []record.Watcher{{Kinds: record.EventState, Note: watch.state}, waiting.Watcher()},
		Home:     router.Disk, Window: r.Window, FailAbove: clientLimit,
	})
	if err != nil {
		return row, err
	}
	row.LoadsPerStep = float64(st.Workers[0].ColdLoads) / float64(max(st.Workers[0].DecodeSteps, 1))
	row.Predict(watch.values(r.Window))
	row.Ran = validate.Ran{ValidatedRun: profile.ValidatedRun{
		Workers: 1, Profile: costs.Profile(), Requests: int(watch.arrived), Adapters: row.Adapters, Window: true,
		Prompt: watch.prompts / max(float64(len(watch.ttft)), 1),
		Output: (float64(watch.tokens) - watch.prompts) / max(float64(len(watch.ttft)), 1),
	}, Base: m.profile, Alike: r.Group, Waiting: waiting.Share()}
	row.StarvedPredicted = float64(len(watch.ttft)) < starvedBelow*float64(watch.arrived)
	if row.Arrivals = watch.arrived; r.Arrivals > 0 {
		row.Arrivals = int64(r.Arrivals)
	}
	row.StarvedMeasured = r.Completed < starvedBelow*float64(row.Arrivals)
	return row, nil
}

// server returns the costs of a run's worker. They come from the profile of the model, the run's
// slots, ranks and limits, and the KV cache sizes and load times of the tables.
func server(r *Run, p *profile.Profile, t *Tables) (*profile.Costs, error) {
	q := *p
	e := &q.Engine
	e.MaxLorasPerBatch, e.MaxLoraRank, e.MaxRunningRequests = r.Slots, r.MaxRank, r.MaxSeqs
	e.MaxLoadedLoras = max(len(r.Rates), r.Slots+1) // host memory holds all adapters
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

// workload returns the requests of a run. The pool's means scale the lengths; they differ between
// runs by one or two percent.
func workload(r *Run, m *model) (trace.Source, error) {
	ranks := r.Ranks
	if len(ranks) == 0 {
		ranks = []int{r.MaxRank}
	}
	src, err := synth.NewSharedPoisson(synth.SharedPoisson{
		Rates: r.Rates, Ranks: synth.Ranks{Values: ranks}, Duration: r.Window,
	})
	if err != nil {
		return nil, err
	}
	law := m.lengths
	if r.PoolPrompt > 0 && r.PoolOutput > 0 {
		law = law.Scaled(r.PoolPrompt/m.prompt, r.PoolOutput/m.output)
	}
	return lengths.Fill(src, law, 0), nil
}
