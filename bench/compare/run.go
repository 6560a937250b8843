package compare

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"lorasim/bench/result"
	"lorasim/bench/sweep"
	"lorasim/internal/record"
)

func fromResult(res *result.Result, file string) *Run {
	r := &Run{Source: string(res.Source), File: file, Results: []*result.Result{res}, values: map[string][]float64{}}
	if r.Source == "" {
		r.Source = string(result.Log)
	}
	seed := ""
	if res.Seed != nil {
		seed = strconv.FormatInt(*res.Seed, 10)
	}
	r.Seeds = []string{seed}
	r.What = describe(res)
	r.add(sweep.Values(res))
	if r.Streamed = res.Streamed; r.Streamed == record.NotStreamed {
		r.Notes = append(r.Notes, "the client did not stream: its TTFT is E2E, and its TTFT, TPOT and ITL are not comparable with those of one that did")
	}
	r.Notes = append(r.Notes, res.Shortfall()...)
	out, ok1 := res.Metrics.Get(result.TotalOutputTokens)
	got, ok2 := res.Metrics.Get(result.TotalOutputTokensRetokenized)
	if ok1 && ok2 && got < 0.8*out {
		r.Asked = true
		r.Notes = append(r.Notes, "fewer tokens came than it counts as generated: its token throughputs count what was asked for")
	}
	return r
}

// add enters the numbers of one seed.
func (r *Run) add(values []sweep.Value) {
	r.completed = append(r.completed, sweep.CompletionOf(func(name string) float64 {
		for _, v := range values {
			if v.Name == name {
				return v.Value
			}
		}
		return math.NaN()
	}))
	for _, v := range values {
		if sweep.Hidden(v.Name) {
			continue
		}
		if r.values[v.Name] == nil {
			r.order = append(r.order, v.Name)
		}
		r.values[v.Name] = append(r.values[v.Name], v.Value)
	}
}

// describe tells what a run was.
func describe(res *result.Result) string {
	var parts []string
	config := func(key string) string {
		v, ok := res.Config[key]
		if !ok || v == nil {
			return ""
		}
		return fmt.Sprint(v)
	}
	if res.Backend != "" {
		parts = append(parts, res.Backend)
	}
	if res.Policy != "" {
		parts = append(parts, res.Policy)
	} else if p := config("routing.policy"); p != "" {
		parts = append(parts, p)
	} else if a := config("inference_architecture"); a != "" && a != res.Backend {
		parts = append(parts, a)
	}
	if n := config("cluster.num_workers"); n != "" {
		parts = append(parts, n+" workers")
	}
	if res.RequestRate != 0 {
		parts = append(parts, "rate "+res.RequestRate.String())
	}
	if res.MaxConcurrency > 0 {
		parts = append(parts, fmt.Sprintf("concurrency %d", res.MaxConcurrency))
	}
	// settings are told above where the whole configuration is known
	if s := res.Scenario; s != "" && (config("cluster.num_workers") == "" || !strings.Contains(s, "=") && s != "defaults") {
		parts = append(parts, s)
	}
	return strings.Join(parts, ", ")
}

// joinSeeds makes one run of results that differ in their seed alone.
func joinSeeds(runs []*Run) []*Run {
	var out []*Run
	by := map[string]*Run{}
	for _, r := range runs {
		key := seedKey(r)
		if first := by[key]; key != "" && first != nil && !slices.Contains(first.Seeds, r.Seeds[0]) {
			first.Results = append(first.Results, r.Results...)
			first.Seeds = append(first.Seeds, r.Seeds...)
			first.add(sweep.Values(r.Results[0]))
			continue
		}
		if key != "" && by[key] == nil {
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
	return fmt.Sprintf("%s|%s|%s|%s|%d|%s", res.Source, res.Backend, res.DatasetName, res.RequestRate, res.MaxConcurrency, config)
}

// FromResult returns a run of a comparison for a result.
func FromResult(name string, res *result.Result) *Run {
	r := fromResult(res, "")
	r.Name = name
	return r
}

// FromValues returns a run of a comparison for the numbers of several seeds.
func FromValues(name string, seeds []string, numbers [][]sweep.Value) *Run {
	r := &Run{Name: name, Source: "sweep", Seeds: seeds, values: map[string][]float64{}}
	for _, values := range numbers {
		r.add(values)
	}
	return r
}
