package scenario

import (
	"fmt"
	"slices"

	"lorasim/bench/result"
	"lorasim/sim/profile"
)

// unsuccessful is the share of requests that fail or are refused from which on a
// run is none of those that were validated: its figures are of the others alone.
const unsuccessful = 0.01

// intervals says how far the figures of a run may be off, or why nobody knows.
func (s *Scenario) intervals(res *result.Result, workers []*profile.Costs, adapters int, waiting float64) (*result.Intervals, error) {
	ran := workers[0].Profile()
	out := &result.Intervals{Profile: ran.Name, Waiting: waiting}
	entries, _, err := s.Cluster.workers()
	if err != nil {
		return nil, err
	}
	base, err := profile.Load(entries[0].name)
	if err != nil {
		return nil, err
	}
	in := base.Intervals
	switch {
	case slices.ContainsFunc(workers, func(c *profile.Costs) bool { return c.Profile() != ran }):
		out.Without = []string{"workers of several profiles"}
		return out, nil
	case in == nil:
		out.Without = []string{"profile " + ran.Name + " has no intervals"}
		return out, nil
	}
	policy, err := s.Routing.policy()
	mean := func(total result.Metric) float64 {
		n, _ := res.Metrics.Get(result.Completed)
		v, _ := res.Metrics.Get(total)
		return v / max(n, 1)
	}
	out.Without = append(s.beyond(res), in.Beyond(profile.ValidatedRun{
		Workers: len(workers), Policy: policy, Profile: ran, Requests: int(res.Extra.Requests), Adapters: adapters,
		Prompt: mean(result.TotalInputTokens), Output: mean(result.TotalOutputTokens), Window: s.Workload.Window > 0,
	}, base)...)
	if len(out.Without) > 0 {
		return out, err
	}
	for _, b := range in.At(waiting) {
		m, _ := result.MetricByKey(b.Metric)
		v, ok := res.Metrics.Get(m)
		if !ok {
			continue
		}
		times := func(r *[2]float64) *[2]float64 {
			if r == nil {
				return nil
			}
			return &[2]float64{r[0] * v, r[1] * v}
		}
		out.Figures = append(out.Figures, result.Interval{Metric: b.Metric, Predicted: v, Runs: b.Runs, Half: times(b.Half), Most: times(b.Most), Level: b.Level})
	}
	if len(out.Figures) == 0 {
		out.Without = []string{"no validated run in which requests wait such a share of their time"}
	}
	return out, nil
}

// beyond says what was going on that was in no validated run of any profile.
func (s *Scenario) beyond(res *result.Result) (why []string) {
	e := res.Extra
	if bad := e.Failed + e.Rejected + e.Aborted; float64(bad) > unsuccessful*float64(e.Requests) {
		why = append(why, fmt.Sprintf("%d of %d requests failed or were refused", bad, e.Requests))
	}
	if e.Migrated > 0 {
		why = append(why, fmt.Sprintf("%d requests moved", e.Migrated))
	}
	for _, key := range []string{
		"client.max_concurrency", "client.no_stream", "cluster.adapter_home", "cluster.elastic", "cluster.load_failure_rate", "cluster.outages",
		"routing.known_outputs", "routing.view_staleness",
	} {
		i := slices.IndexFunc(fields, func(f Field) bool { return f.Key == key })
		if v := fields[i].Get(s); v != fields[i].Get(&defaults) {
			why = append(why, fields[i].Leaf()+" "+v)
		}
	}
	return why
}
