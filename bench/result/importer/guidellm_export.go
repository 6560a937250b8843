package importer

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"lorasim/bench/result"
	"lorasim/sim/record"
)

// summarize returns GuideLLM's summary of values, with weights if there are any. The
// percentiles are always among the values.
func summarize(values, weights []float64) object {
	order := make([]int, len(values))
	n, sum, squares := 0.0, 0.0, 0.0
	weight := func(i int) float64 {
		if weights == nil {
			return 1
		}
		return weights[i]
	}
	for i, v := range values {
		order[i] = i
		n, sum, squares = n+weight(i), sum+v*weight(i), squares+v*v*weight(i)
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(values[a], values[b]) })
	at := func(p float64) (v float64) {
		below := 0.0
		for _, i := range order {
			v = values[i]
			if below += weight(i); below >= p/100*n {
				break
			}
		}
		return v
	}
	percentiles := object{"p50": at(50)}
	for name, p := range guidePercentiles {
		var x float64
		fmt.Sscanf(p, "p%g", &x)
		percentiles[name] = at(x)
	}
	mean := sum / max(n, 1)
	variance := max(squares/max(n, 1)-mean*mean, 0)
	return object{"mean": mean, "median": at(50), "mode": at(50), "variance": variance, "std_dev": math.Sqrt(variance),
		"min": at(0), "max": at(100),
		"count": len(values), "total_sum": sum, "percentiles": percentiles}
}

// constantly returns the summary of a rate with only a known mean.
func constantly(mean float64, count int) object {
	s := summarize([]float64{mean}, nil)
	s["count"] = count
	return s
}

// toGuideLLM returns a report of version 2 with one benchmark. Latencies are the run's own,
// except that TPOT and ITL follow GuideLLM's definitions.
func toGuideLLM(r *result.Result) any {
	status, of, begin, end := guideRequests(r)
	if d, ok := r.Metrics.Get(result.Duration); ok { // as the run counts it
		begin = min(begin, end)
		end = begin + d
	}
	metrics := guideMetrics(r, of)
	strategy, profile := guideStrategyOf(r)
	backend := object{"kind": "openai_http", "target": "http://" + cmp.Or(r.Backend, "lorasim"),
		"stream": r.Streamed != record.NotStreamed}
	return object{
		"metadata": object{"version": 2, "guidellm_version": "0.8.1", "python_version": "", "platform": "lorasim"},
		"config": object{"spec": object{"backend": backend, "profile": profile,
			"data": []any{object{"kind": "synthetic_text", "prompt_tokens": 1}}}},
		"benchmarks": []any{object{
			"type_": "generative_benchmark",
			"config": object{"run_id": cmp.Or(r.Scenario.Summary, "lorasim"), "run_index": 0, "strategy": strategy,
				"constraints": object{}, "profile": object{},
				"requests": object{}, "backend": backend, "environment": object{}},
			"scheduler_state": object{}, "scheduler_metrics": guideScheduler(begin, end, metrics["request_totals"]),
			"metrics": metrics, "requests": status, "start_time": begin, "end_time": end, "duration": end - begin,
		}},
	}
}

// guideRequests returns the requests in GuideLLM's form and as records, by GuideLLM's status (of also has "total"), and
// the times of the first and the last.
func guideRequests(r *result.Result) (status map[string][]any, of map[string][]*record.Request, begin, end float64) {
	begin = math.Inf(1)
	status, of = map[string][]any{"successful": {}, "errored": {}, "incomplete": {}}, map[string][]*record.Request{}
	for i := range r.Records {
		q := &r.Records[i]
		key := map[record.Status]string{record.OK: "successful", record.Unfinished: "incomplete",
			record.Aborted: "incomplete"}[q.Status]
		key = cmp.Or(key, "errored")
		of[key], of["total"] = append(of[key], q), append(of["total"], q)
		if !math.IsNaN(q.Finish + q.Sent) {
			begin, end = min(begin, q.Sent), max(end, q.Finish)
			status[key] = append(status[key], guideRequestOf(q, r.Streamed))
		}
	}
	return status, of, begin, end
}

// guideMetrics returns all metrics that GuideLLM's loader expects; those that are unknown are summaries of nothing.
func guideMetrics(r *result.Result, of map[string][]*record.Request) object {
	completed, _ := r.Metrics.Get(result.Completed)
	n := int(completed)
	metrics := object{"request_totals": object{"successful": n, "errored": len(of["errored"]),
		"incomplete": len(of["incomplete"]), "total": len(of["total"])}}
	for _, f := range guideFigures {
		v, ok := r.Metrics.Get(f.metric)
		switch {
		case !ok || f.field != "mean":
			continue
		case isLatency(f.metric):
			metrics[f.name] = object{"successful": guideLatency(r, f.metric)}
		default:
			metrics[f.name] = object{"successful": constantly(v, n)}
		}
	}
	if v, ok := r.Metrics.Get(result.MaxConcurrentRequests); ok {
		if of, ok := metrics["request_concurrency"].(object)["successful"].(object); ok {
			of["max"] = v
		}
	}
	for name, tokens := range map[string]func(*record.Request) float64{"prompt_token_count": promptOf,
		"output_token_count": outputOf,
		"total_token_count":  func(q *record.Request) float64 { return promptOf(q) + outputOf(q) }} {
		counts := object{}
		for key, list := range of {
			values := make([]float64, len(list))
			for i, q := range list {
				values[i] = tokens(q)
			}
			counts[key] = summarize(values, nil)
		}
		metrics[name] = counts
	}
	metrics["time_to_first_output_token_ms"] = metrics["time_to_first_token_ms"]
	for _, name := range strings.Fields(guideRest) { // GuideLLM writes each metric for every status
		if metrics[name] == nil {
			metrics[name] = object{}
		}
		m := metrics[name].(object)
		for _, key := range []string{"successful", "errored", "incomplete"} {
			if m[key] == nil {
				m[key] = summarize(nil, nil)
			}
		}
		if m["total"] == nil {
			m["total"] = m["successful"]
		}
	}
	maps.Copy(metrics, guideKinds())
	return metrics
}

// guideScheduler returns the times of GuideLLM's scheduler, which a run of lorasim does not have: -1 is unknown.
func guideScheduler(begin, end float64, totals any) object {
	scheduler := object{"start_time": begin, "request_start_time": begin, "measure_start_time": begin,
		"measure_end_time": end, "request_end_time": end, "end_time": end, "requests_made": totals}
	for _, name := range strings.Fields("queued_time resolve_start_delay resolve_targeted_start_delay request_start_delay " +
		"request_targeted_start_delay request_time resolve_end_delay resolve_time finalized_delay processed_delay") {
		scheduler[name+"_avg"] = -1.0
	}
	return scheduler
}

// guideStrategyOf returns GuideLLM's strategy and profile for the run's rate and concurrency.
func guideStrategyOf(r *result.Result) (strategy, profile object) {
	var limit any
	if r.MaxConcurrency > 0 {
		limit = r.MaxConcurrency
	}
	switch rate := float64(r.RequestRate); {
	case r.RequestRate == result.TraceRate:
		return object{"type_": "trace"}, object{"kind": "replay"}
	case rate > 0 && !math.IsInf(rate, 0):
		return object{"type_": "constant", "rate": rate, "max_concurrency": limit},
			object{"kind": "constant", "rate": []float64{rate}, "max_concurrency": limit}
	case limit != nil:
		return object{"type_": "concurrent", "streams": limit}, object{"kind": "concurrent", "streams": []any{limit}}
	}
	return object{"type_": "throughput", "max_concurrency": nil}, object{"kind": "throughput", "max_concurrency": nil}
}

// guideRest are metrics that a report must have, even if they are zeros.
const guideRest = "prompt_token_count output_token_count requests_per_second request_concurrency request_latency request_streaming_iterations_count total_token_count time_to_first_token_ms " +
	"time_to_first_output_token_ms time_per_output_token_ms inter_token_latency_ms time_to_last_round_trip_ms avg_round_trip_time_ms prompt_tokens_per_second " +
	"output_tokens_per_second tokens_per_second output_tokens_per_iteration iter_tokens_per_iteration"

// guideKinds returns GuideLLM's counts by kind of content, all unknown.
func guideKinds() object {
	out := object{}
	for kind, counts := range map[string]string{"text": "tokens words characters",
		"image": "tokens images pixels bytes", "video": "tokens frames seconds bytes",
		"audio": "tokens samples seconds bytes", "tool_call": "tokens mixed_tokens count"} {
		of := object{}
		for _, count := range strings.Fields(counts) {
			rates := object{}
			for _, way := range []string{"input", "output", "total"} {
				rates[way], rates[way+"_per_second"], rates[way+"_concurrency"] = nil, nil, nil
			}
			of[count] = rates
		}
		out[kind] = of
	}
	return out
}

// guideLatency returns a latency as GuideLLM defines it.
func guideLatency(r *result.Result, mean result.ID) object {
	values := latencyOf(r, mean)
	if len(values) == 0 && mean != result.MeanTPOT {
		return summarize(nil, nil)
	}
	if mean == result.MeanTPOT || mean == result.MeanITL {
		first := int32(0) // ITL leaves the first token out
		if mean == result.MeanITL {
			first = 1
		}
		has := func(q *record.Request) bool { return q.Output > first }
		values = succeeded(r, func(q *record.Request) float64 {
			if !has(q) {
				return math.NaN()
			}
			since := q.Sent
			if first > 0 {
				since = q.FirstToken
			}
			return 1000 * (q.Finish - since) / float64(q.Output-first)
		})
		weights := succeeded(r, func(q *record.Request) float64 {
			if !has(q) {
				return math.NaN()
			}
			return float64(q.Output - first)
		})
		return summarize(values, weights)
	}
	scale := 1.0 // to ms, except for request_latency
	if mean == result.MeanE2E {
		scale = 1e-3
	}
	for i := range values {
		values[i] *= scale * 1000
	}
	s := summarize(values, nil)
	own := stated(r, mean, scale, guideStats)
	for _, p := range []string{"p90", "p95", "p99"} {
		if v, ok := own[p]; ok {
			s["percentiles"].(object)[p] = v
			delete(own, p)
		}
	}
	maps.Copy(s, own)
	s["percentiles"].(object)["p50"] = s["median"]
	return s
}

// guideRequestOf returns GuideLLM's form of a request, with times since the start of the
// run.
func guideRequestOf(q *record.Request, streamed record.Streaming) object {
	timings := object{"targeted_start": q.Arrival, "request_start": q.Sent, "request_end": q.Finish,
		"resolve_end": q.Finish, "last_token_iteration": q.Finish}
	out := object{
		"type_": "generative_request_stats", "request_id": fmt.Sprint(q.ID), "prompt_tokens": q.Prompt,
		"output_tokens":      q.Output,
		"request_start_time": q.Sent, "request_end_time": q.Finish, "request_latency": q.E2E(),
		"input_metrics": object{"text_tokens": q.Prompt}, "output_metrics": object{"text_tokens": q.Output},
	}
	if !math.IsNaN(q.FirstToken) && streamed != record.NotStreamed {
		timings["first_token_iteration"], out["time_to_first_token_ms"] = q.FirstToken, 1000*q.TTFT()
	}
	info := object{"request_id": fmt.Sprint(q.ID), "status": "completed", "timings": timings}
	if q.Status != record.OK {
		info["status"], info["error"] = "errored", cmp.Or(q.Error, q.Status.String())
	}
	out["info"] = info
	return out
}
