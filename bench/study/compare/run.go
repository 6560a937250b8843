package compare

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/bench/stats"
	"lorasim/bench/steady"
	"lorasim/bench/study/sweep"
	"lorasim/internal/format"
	"lorasim/router"
	"lorasim/sim/record"
)

// A Run is one column of a comparison: a run, or several runs that differ only in their seed.
type Run struct {
	Name   string   `json:"name"`   // short, unique within a comparison: "A", "B", ...
	Source string   `json:"source"` // sim, live, log, records or sweep
	File   string   `json:"file"`
	Line   int      `json:"line,omitempty"` // line in a log; 0: none
	What   string   `json:"what"`           // short description of the run
	Seeds  []string `json:"seeds"`
	Notes  []string `json:"notes,omitempty"`
	// Streamed reports whether the client read replies as a stream; if not, TTFT is E2E.
	Streamed record.Streaming `json:"-"`
	Asked    bool             `json:"-"` // output tokens are the requested number, not the received number
	// Definitions say how the client measured.
	Definitions result.Definitions `json:"definitions,omitzero"`
	// Results has one result per seed; nil for a sweep.
	Results []*result.Result `json:"-"`

	sampling  stats.Sampling       // what the seeds draw
	dataset   string               // "": unknown
	stated    float64              // rate of arrivals, requests/s; 0: unknown
	measured  float64              // the same, as it was
	warmup    bool                 // of a sweep: the runs leave out a warm-up
	numbers   [][]result.Value     // one list for each seed
	completed []result.Completion  // one for each seed
	values    map[string][]float64 // by metric: one for each seed
	order     []string             // names of values, as first seen
}

// FromValues returns a run of metrics, one list per seed.
func FromValues(name string, seeds []string, numbers [][]result.Value) *Run {
	r := &Run{Name: name, Source: "sweep", Seeds: seeds, values: map[string][]float64{}}
	for _, values := range numbers {
		r.add(values)
	}
	return r
}

// FromResult returns the run of a result.
func FromResult(name string, res *result.Result) *Run {
	r := FromValues(name, []string{""}, [][]result.Value{result.Values(res)})
	r.Source, r.Results, r.What, r.Streamed = string(cmp.Or(res.Source, result.Log)), []*result.Result{res},
		describe(res), res.Streamed
	r.Definitions = res.Definitions()
	r.dataset, r.stated, r.measured = res.DatasetName, max(float64(res.RequestRate), 0), measuredRate(res)
	if sc, ok := scenario.FromConfig(res.Config); ok {
		r.sampling = sc.Sampling()
	}
	if res.Seed != nil {
		r.Seeds[0] = strconv.FormatInt(*res.Seed, 10)
	}
	if r.Streamed == record.NotStreamed {
		r.Notes = append(r.Notes,
			"the client did not stream: its TTFT is E2E, and its TTFT, TPOT and ITL are not comparable with those of streaming clients")
	}
	r.Notes = append(r.Notes, res.Shortfall()...)
	out, ok1 := res.Metrics.Get(result.TotalOutputTokens)
	got, ok2 := res.Metrics.Get(result.TotalOutputTokensRetokenized)
	if r.Asked = ok1 && ok2 && got < 0.8*out; r.Asked {
		r.Notes = append(r.Notes,
			"fewer tokens arrived than it counts as generated: its token throughputs count requested tokens")
	}
	return r
}

// FromResults returns one run of several results that differ only in their seed. There must be at least one result.
func FromResults(name string, results []*result.Result) *Run {
	r := FromResult(name, results[0])
	for _, res := range results[1:] {
		r.join(FromResult(name, res))
	}
	return r
}

// join adds the run of another seed.
func (r *Run) join(o *Run) {
	r.Results = append(r.Results, o.Results...)
	r.Seeds = append(r.Seeds, o.Seeds...)
	r.add(result.Values(o.Results[0]))
}

// Stationarity reports whether the run reached a steady state. For several seeds, the rule is that of sweeps.
func (r *Run) Stationarity() steady.Stationarity {
	return result.StationarityOf(func(name string) []float64 {
		var out []float64
		for _, values := range r.numbers {
			out = append(out, (&sweep.CellResult{Values: values}).Value(name))
		}
		return out
	})
}

// MarshalJSON encodes the fields and the steady-state assessment.
func (r *Run) MarshalJSON() ([]byte, error) {
	type plain Run // without this method
	reached := r.Stationarity()
	return json.Marshal(struct {
		*plain
		State       string         `json:"state,omitempty"`
		Sustainable *format.Number `json:"sustainable_rate,omitempty"`
	}{(*plain)(r), string(reached.State), known(reached.Sustains)})
}

func known(x float64) *format.Number {
	if !format.IsFinite(x) {
		return nil
	}
	n := format.Number(x)
	return &n
}

// add enters the numbers of one seed.
func (r *Run) add(values []result.Value) {
	r.numbers = append(r.numbers, values)
	r.completed = append(r.completed, result.CompletionOf(func(name string) float64 {
		return (&sweep.CellResult{Values: values}).Value(name)
	}))
	for _, v := range values {
		if result.MetricOf(v.Name).Hidden {
			continue
		}
		if r.values[v.Name] == nil {
			r.order = append(r.order, v.Name)
		}
		r.values[v.Name] = append(r.values[v.Name], v.Value)
	}
}

// describe describes a run in a few words.
func describe(res *result.Result) string {
	config := func(key string) string {
		if v := res.Config[key]; v != nil {
			return fmt.Sprint(v)
		}
		return ""
	}
	architecture := config("inference_architecture")
	if architecture == res.Backend {
		architecture = ""
	}
	parts := []string{res.Backend, router.Canonical(cmp.Or(res.Policy, config("routing.policy"), architecture))}
	workers := config("cluster.num_workers")
	if workers != "" {
		parts = append(parts, workers+" workers")
	}
	if res.RequestRate != 0 {
		parts = append(parts, "rate "+res.RequestRate.String())
	}
	if res.MaxConcurrency > 0 {
		parts = append(parts, fmt.Sprintf("concurrency %d", res.MaxConcurrency))
	}
	// settings are told above where the whole configuration is known
	if s := res.Scenario.Summary; workers == "" || !strings.Contains(s, "=") && s != "defaults" {
		parts = append(parts, s)
	}
	return joinKnown(parts...)
}

// joinSeeds makes one run of results that differ in their seed alone.
func joinSeeds(runs []*Run) (out []*Run) {
	by := map[string]*Run{}
	for _, r := range runs {
		key := seedKey(r)
		if first := by[key]; key != "" && first != nil && !slices.Contains(first.Seeds, r.Seeds[0]) {
			first.join(r)
			continue
		}
		if by[key] == nil {
			by[key] = r
		}
		out = append(out, r)
	}
	return out
}

// seedKey is the same for results that differ in their seed alone; "" where a
// result does not tell enough.
func seedKey(r *Run) string {
	if len(r.Results) != 1 || r.Seeds[0] == "" || len(r.Results[0].Config) == 0 {
		return ""
	}
	res := r.Results[0]
	config, err := json.Marshal(res.Config)
	if err != nil {
		return "" // an infinite number, say; then it stays by itself
	}
	return fmt.Sprintf("%s|%s|%s|%s|%d|%s",
		res.Source, res.Backend, res.DatasetName, res.RequestRate, res.MaxConcurrency, config)
}

// needs returns the number of requests that a transient run needs; 0: it is not transient, or that is unknown.
func (r *Run) needs() int64 {
	if s := r.Stationarity(); s.State == steady.Transient {
		return s.Needed
	}
	return 0
}

// longer returns the command that repeats a simulated run with a number of requests; "": it was not simulated, or its
// log has no more.
func (r *Run) longer(requests int64) string {
	if r.Source != string(result.Sim) || len(r.Results) == 0 || requests == 0 {
		return ""
	}
	res := r.Results[0]
	sc, ok := scenario.FromConfig(res.Config)
	if !ok || res.Extra == nil || sc.Workload.Ended(res.Extra.Requests) {
		return ""
	}
	if res.Seed != nil {
		sc.Seed = uint64(*res.Seed)
	}
	if sc.Set("num_prompts", strconv.FormatInt(requests, 10)) != nil {
		return ""
	}
	return fmt.Sprintf("lorasim sim %s --json > %s.json", strings.Join(sc.Arguments(), " "), r.Name)
}
