package scenario

import (
	"cmp"
	"slices"

	"lorasim/bench/result"
	"lorasim/sim/profile"
)

// shownSettings are the settings with a field in result.Scenario.
var shownSettings = []string{"name", "seed", "routing.policy", "routing.inference_architecture",
	"routing.migration_type", "cluster.num_workers",
	"cluster.profile", "cluster.engine.scheduler", "cluster.engine.max_loras_per_batch", "cluster.elastic",
	"workload.num_adapters",
	"workload.lora_ranks", "workload.lora_names",
	"workload.file", "workload.use_trace", "workload.trace_name", "workload.trace_path", "workload.num_prompts",
	"workload.request_rate", "workload.lengths"}

// describe adds to a result the scenario's settings and its workers; ps has one profile per worker. requests is the
// number of requests in the source before the run; -1: unknown.
func (s *Scenario) describe(res *result.Result, in *Input, requests int64, ps []*profile.Profile) {
	r := &res.Scenario
	policy, err := s.Routing.policy()
	if err != nil {
		return // such a scenario does not run
	}
	r.Summary, r.Workers, r.Elastic = s.Summary(), len(ps), s.Cluster.Elastic.String()
	r.Policy, r.PolicyOptions = policy.Name(), nil
	for _, o := range policy.Given() {
		if r.PolicyOptions == nil {
			r.PolicyOptions = map[string]string{}
		}
		r.PolicyOptions[o[0]] = o[1]
	}
	if policy.Facts().Plans {
		r.Moving = s.Routing.RequestMigration
	}
	r.Profiles = ranProfiles(ps)
	s.countAdapters(r, in)
	seed := s.Seed
	r.Seed = &seed
	w := &s.Workload
	r.Workload = &result.RanWorkload{Source: sourceName(in.Dataset), File: cmp.Or(w.File, w.TracePath),
		Rate: res.RequestRate, Lengths: w.Lengths.String()}
	r.Workload.Requests = requests
	if e := res.Endings(); e != nil && (requests < 0 || w.Window > 0) {
		r.Workload.Requests = e.Requests + e.Unsent
	}
	if w.File != "" || w.Lengths.Value().word == autoWord && (w.Compat == "slora" || w.llmTrace()) {
		r.Workload.Lengths = "of the source"
	}
	r.Settings = nil
	for _, f := range fields {
		if v := f.Get(s); v != f.Get(&defaults) && !slices.Contains(shownSettings, f.Key) {
			r.Settings = append(r.Settings, result.SettingUsed{Key: f.Key, Value: v})
		}
	}
}

// sourceName returns a readable name of a dataset.
func sourceName(dataset string) string {
	switch dataset {
	case "synthetic":
		return "generated"
	case "slora", "vllm-lora":
		return "generated (" + dataset + ")"
	case "workload":
		return "saved workload"
	case "histogram":
		return "histogram"
	}
	return "trace " + dataset
}

// ranProfiles counts the workers of each profile, in the order in which they come.
func ranProfiles(ps []*profile.Profile) (out []result.RanProfile) {
	at := map[*profile.Profile]int{}
	for _, p := range ps {
		i, ok := at[p]
		if !ok {
			i = len(out)
			at[p] = i
			from := p.Provenance()
			out = append(out, result.RanProfile{Name: p.Name, Kind: string(from.Kind), Hardware: from.Hardware,
				Engine: p.Engine.Scheduler, AdapterSlots: p.Engine.MaxLorasPerBatch})
		}
		out[i].Workers++
	}
	return out
}

// countAdapters counts the adapters by rank.
func (s *Scenario) countAdapters(r *result.Scenario, in *Input) {
	all := in.Adapters()
	counts := map[int]int{}
	for _, a := range all {
		counts[a.Rank]++
	}
	r.Adapters, r.Ranks = len(all), nil
	if in.ofFile < len(all) {
		r.WithRequests = in.ofFile
	}
	for rank, n := range counts {
		r.Ranks = append(r.Ranks, result.RankCount{Rank: rank, Adapters: n})
	}
	slices.SortFunc(r.Ranks, func(a, b result.RankCount) int { return cmp.Compare(a.Rank, b.Rank) })
}
