package measured

import (
	"context"
	"fmt"
	"math/rand/v2"

	"lorasim/internal/parallel"
	"lorasim/router"
	"lorasim/sim"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/trace"
	"lorasim/trace/lengths"
	"lorasim/trace/synth"
)

// starvedBelow is the share of completed arrivals below which a run was starved.
const starvedBelow = 0.9

// HourOptions configures the prediction of runs.
type HourOptions struct {
	// Profiles maps names of models to profiles. Default: the embedded profile of the model.
	Profiles map[string]*profile.Profile
	// Progress, if not nil, is called with the number of finished runs and of all runs.
	Progress func(done, total int64)
}

// PredictedHour is one run with its prediction.
type PredictedHour struct {
	HourSetup
	Adapters int `json:"adapters"`
	// Arrivals is the number of requests that arrived, as recorded, else as generated.
	Arrivals int64 `json:"arrivals"`
	Comparison

	// LoadsPerStep is the mean number of adapters that a predicted step loads into slots.
	LoadsPerStep float64 `json:"-"`

	StarvedMeasured  bool `json:"starved_measured"`
	StarvedPredicted bool `json:"starved_predicted"`
	// Skipped is the reason why the run was not predicted; "": it was.
	Skipped string `json:"skipped,omitempty"`
}

// hourModels are the models with an embedded profile, with the law of the lengths in their tokens.
var hourModels = map[string]struct{ profile, lengths string }{
	"llama-3.1-8b-instruct": {"llama-3.1-8b-h100-64gb-vllm-0.8.5", "sharegpt-llama3"},
	"qwen-2.5-7b-instruct":  {"qwen2.5-7b-h100-64gb-vllm-0.8.5", "sharegpt-qwen2"},
}

// HourProfile returns the name of the embedded profile of a model, or "" if it has none.
func HourProfile(model string) string { return hourModels[model].profile }

// clientLimit is the largest number of requests that the client could have in flight: the number of
// local ports of its machine.
const clientLimit = 26_500

// hourModel is the data that all runs of a model share.
type hourModel struct {
	profile *profile.Profile
	lengths *lengths.Copula
	// mean tokens of prompt and output, before any reply ends early
	prompt, output float64
}

// newHourModel collects the data of a model.
func newHourModel(ctx context.Context, name string, t *HourTables, o HourOptions) (*hourModel, error) {
	known, ok := hourModels[name]
	m := &hourModel{profile: o.Profiles[name]}
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

// PredictHours predicts runs on all processors. The result does not depend on the number of processors.
// A run that cannot be predicted has a Row with the reason.
func PredictHours(ctx context.Context, runs []Hour, t *HourTables, o HourOptions) ([]PredictedHour, error) {
	byName := map[string]*hourModel{}
	for i := range runs {
		name := runs[i].Model
		if byName[name] != nil {
			continue
		}
		m, err := newHourModel(ctx, name, t, o)
		if err != nil {
			return nil, fmt.Errorf("run in line %d: %w", runs[i].Line, err)
		}
		byName[name] = m
	}
	rows := make([]PredictedHour, len(runs))
	err := parallel.Do(ctx, len(runs), func(i int) (err error) {
		if rows[i], err = simulateHour(ctx, &runs[i], byName[runs[i].Model], t); err != nil {
			err = fmt.Errorf("run in line %d: %w", runs[i].Line, err)
		}
		return err
	}, o.Progress)
	return rows, err
}

// simulateHour predicts one run.
func simulateHour(ctx context.Context, r *Hour, m *hourModel, t *HourTables) (PredictedHour, error) {
	row := PredictedHour{HourSetup: r.HourSetup, Adapters: len(r.Rates), Comparison: Comparison{Measured: r.Measured}}
	costs, err := hourServer(r, m.profile, t)
	if err != nil {
		row.Skipped = err.Error()
		return row, nil
	}
	src, err := hourWorkload(r, m)
	if err != nil {
		return row, err
	}
	watch := &hourObserver{}
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
	row.Ran = Ran{ValidatedRun: profile.ValidatedRun{
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

// hourServer returns the costs of a run's worker. They come from the profile of the model, the run's
// slots, ranks and limits, and the KV cache sizes and load times of the tables.
func hourServer(r *Hour, p *profile.Profile, t *HourTables) (*profile.Costs, error) {
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

// hourWorkload returns the requests of a run. The pool's means scale the lengths; they differ between
// runs by one or two percent.
func hourWorkload(r *Hour, m *hourModel) (trace.Source, error) {
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
