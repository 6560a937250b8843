package scenario

import (
	"context"
	"fmt"
	"slices"

	"lorasim/bench/result"
	"lorasim/sim/profile"
)

// unsuccessful is the share of failed or rejected requests beyond which a run is unlike the validated runs: its
// metrics cover only the other requests.
const unsuccessful = 0.01

// intervals adds prediction intervals for the metrics of a run, or the reason why they are unknown.
func (s *Scenario) intervals(ctx context.Context, res *result.Result, workers []*profile.Costs, adapters int,
	waiting float64) (*result.Intervals, error) {
	ran := workers[0].Profile()
	out := &result.Intervals{Profile: ran.Name, Waiting: waiting}
	entries, _, err := s.Cluster.workers()
	if err != nil {
		return nil, err
	}
	base, err := profile.Load(ctx, entries[0].name)
	if err != nil {
		return nil, err
	}
	in := base.Intervals
	switch kind := base.Provenance().Kind; {
	case slices.ContainsFunc(workers, func(c *profile.Costs) bool { return c.Profile() != ran }):
		out.Without = []string{"The workers have several profiles, and no measured run of such a cluster was compared with a prediction."}
		return out, nil
	case in == nil && kind == profile.Computed:
		out.Without = []string{"Profile " + ran.Name +
			" is computed, and no measured run was compared with it: fit it to runs of your server with lorasim profile fit."}
		return out, nil
	case in == nil:
		out.Without = []string{"Profile " + ran.Name +
			" has no intervals, because too few held-out runs were compared with it: lorasim profile fit writes them (runs, vllm-runs)."}
		return out, nil
	}
	policy, err := s.Routing.policy()
	mean := func(total result.ID) float64 {
		n, _ := res.Metrics.Get(result.Completed)
		v, _ := res.Metrics.Get(total)
		return v / max(n, 1)
	}
	extrapolated, refused := in.Compare(profile.ValidatedRun{
		Workers: len(workers), Policy: policy.String(), Profile: ran, Requests: int(res.Extra.Requests),
		Adapters: adapters, Prompt: mean(result.TotalInputTokens), Output: mean(result.TotalOutputTokens),
		Window: s.Workload.Window > 0,
	}, base)
	if out.Without = append(s.refuses(res), refused...); len(out.Without) > 0 {
		return out, err
	}
	out.Extrapolated = append(extrapolated, s.extrapolates(res)...)
	for _, b := range in.At(waiting) {
		m, _ := result.IDOf(b.Metric)
		v, ok := res.Metrics.Get(m)
		if !ok {
			continue
		}
		if len(out.Extrapolated) > 0 {
			b = b.Widened()
		}
		times := func(r *[2]float64) *[2]float64 {
			if r == nil {
				return nil
			}
			return &[2]float64{r[0] * v, r[1] * v}
		}
		out.Figures = append(out.Figures, result.Interval{Metric: b.Metric, Predicted: v, Runs: b.Runs,
			Half: times(b.Half), Most: times(b.Most), Level: b.Level})
	}
	if len(out.Figures) == 0 {
		out.Without, out.Extrapolated = []string{
			"No validated run has requests that waited for this share of their time."},
			nil
	}
	return out, err
}

// refuses returns, in whole sentences, the conditions of the run that no validated run of any profile had and that
// prediction intervals cannot cover.
func (s *Scenario) refuses(res *result.Result) (why []string) {
	e := res.Extra
	if bad := e.Failed + e.Rejected + e.Aborted; float64(bad) > unsuccessful*float64(e.Requests) {
		why = append(why, fmt.Sprintf("%d of %d requests failed or were rejected; the figures cover only the others.",
			bad, e.Requests))
	}
	for _, v := range s.set("client.max_concurrency", "client.no_stream", "cluster.adapter_home", "cluster.elastic",
		"cluster.load_failure_rate", "cluster.outages") {
		why = append(why, fmt.Sprintf("The run has %s, which no validated run had.", v))
	}
	return why
}

// extrapolates returns the conditions of the run that no validated run of any profile had and that the simulator
// decides by the rules of the router.
func (s *Scenario) extrapolates(res *result.Result) (what []string) {
	if n := res.Extra.Migrated; n > 0 {
		what = append(what, fmt.Sprintf("%d requests moved (validated without moves)", n))
	}
	for _, v := range s.set("routing.known_outputs", "routing.view_staleness") {
		what = append(what, v+" (validated without)")
	}
	return what
}

// set lists the given settings that differ from their defaults, each with its value.
func (s *Scenario) set(keys ...string) (list []string) {
	for _, key := range keys {
		i := slices.IndexFunc(fields, func(f Field) bool { return f.Key == key })
		if v := fields[i].Get(s); v != fields[i].Get(&defaults) {
			list = append(list, fields[i].Leaf()+" "+v)
		}
	}
	return list
}
