package importer

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"lorasim/bench/result"
	"lorasim/internal/atomicfile"
	"lorasim/internal/format"
	"lorasim/internal/record"
	"lorasim/internal/suggest"
)

// exports write a run as other benchmarks do.
var exports = map[string]func(*result.Result) any{"aiperf": toAIPerf, "guidellm": toGuideLLM, "inference-perf": toInferencePerf}

// ParseExport reads FORMAT:FILE.
func ParseExport(spec string) (form, file string, err error) {
	form, file, ok := strings.Cut(spec, ":")
	if known := slices.Sorted(maps.Keys(exports)); !ok || file == "" {
		return "", "", fmt.Errorf("%q, expected FORMAT:FILE with a format of %s", spec, strings.Join(known, ", "))
	} else if err := suggest.Among("format", form, known); err != nil {
		return "", "", err
	}
	return form, file, nil
}

// Export writes a run, whose records were kept, to a file in the format of another
// benchmark: the summary that AIPerf writes (profile_export_aiperf.json), the
// report of GuideLLM, or inference-perf's summary_lifecycle_metrics.json. Reading
// the file gives the same figures, as far as that benchmark has them.
func Export(spec string, r *result.Result) error {
	form, file, err := ParseExport(spec)
	if err != nil {
		return err
	}
	if completed, _ := r.Metrics.Get(result.Completed); int(completed) > len(r.Records) {
		return errors.New("export needs the records of the run, which were not kept")
	}
	return atomicfile.Write(file, func(w *atomicfile.File) error { return format.JSON(io.Writer(w), exports[form](r), "  ") })
}

type object = map[string]any

// succeeded is what f gives for each request that succeeded, where it gives any.
func succeeded(r *result.Result, f func(*record.Request) float64) (values []float64) {
	for i := range r.Records {
		if q := &r.Records[i]; q.Status == record.OK {
			if v := f(q); !math.IsNaN(v) {
				values = append(values, v)
			}
		}
	}
	return values
}

func promptOf(q *record.Request) float64 { return float64(q.Prompt) }
func outputOf(q *record.Request) float64 { return float64(q.Output) }

// latencyOf are the values, in s, that a latency sums up; nil for ITL, whose
// values are not of requests.
func latencyOf(r *result.Result, mean result.Metric) []float64 {
	switch mean {
	case result.MeanE2E:
		return succeeded(r, (*record.Request).E2E)
	case result.MeanTTFT:
		return succeeded(r, (*record.Request).TTFT)
	case result.MeanTPOT:
		return succeeded(r, func(q *record.Request) float64 {
			if q.Output < 2 {
				return math.NaN()
			}
			return (q.Finish - q.FirstToken) / float64(q.Output-1)
		})
	}
	return nil
}

// stated copies the statistics of a latency that a run states to the names that a
// benchmark has for them, times scale.
func stated(r *result.Result, mean result.Metric, scale float64, names [6]string) object {
	out := object{}
	for i, name := range names {
		if v, ok := r.Metrics.Get(mean + result.Metric(i)); ok && name != "" {
			out[name] = v * scale
		}
	}
	return out
}

// failures counts the requests that did not succeed, and why.
func failures(r *result.Result) (n int64, reasons []result.Reason) {
	e := r.Endings()
	if e == nil {
		return 0, nil
	}
	for _, reason := range e.Reasons {
		n += reason.Count
	}
	if all := e.Failed + e.Rejected + e.Aborted + e.Unfinished; all > n {
		reasons = []result.Reason{{Status: "not completed", Count: all - n}}
	}
	return max(n, e.Failed+e.Rejected+e.Aborted+e.Unfinished), append(slices.Clone(e.Reasons), reasons...)
}

// toAIPerf makes a summary of schema 1.4, without what the run's configuration
// would be in AIPerf.
func toAIPerf(r *result.Result) any {
	out := object{"schema_version": "1.4"}
	for _, f := range aiperfFigures {
		v, ok := r.Metrics.Get(f.metric)
		if !ok {
			continue
		}
		unit := map[string]string{"s": "sec", "req/s": "requests/sec", "tok/s": "tokens/sec", "": "requests"}[f.metric.Descriptor().Unit]
		unit = cmp.Or(unit, f.metric.Descriptor().Unit)
		of, _ := out[f.name].(object)
		if of == nil {
			of = object{"unit": unit}
			out[f.name] = of
		}
		of[f.field] = v
		if isLatency(f.metric) {
			maps.Copy(of, stated(r, f.metric, 1, [6]string{"avg", "p50", "std", "p90", "p95", "p99"}))
			if values := latencyOf(r, f.metric); len(values) > 0 {
				of["min"], of["max"], of["count"] = slices.Min(values)*1000, slices.Max(values)*1000, len(values)
			}
		}
	}
	for name, of := range map[string]func(*record.Request) float64{"input_sequence_length": promptOf, "output_sequence_length": outputOf} {
		d := summarize(succeeded(r, of), nil)
		out[name] = object{"unit": "tokens", "avg": d["mean"], "min": d["min"], "max": d["max"], "std": d["std_dev"], "count": d["count"], "sum": d["total_sum"]}
	}
	n, reasons := failures(r)
	errs := []any{}
	for _, e := range reasons {
		errs = append(errs, object{"error_details": object{"type": e.Status, "message": e.Reason}, "count": e.Count})
	}
	out["error_request_count"], out["error_summary"], out["was_cancelled"] = object{"unit": "requests", "avg": n}, errs, false
	if r.Seed != nil {
		out["run_info"] = object{"random_seed": *r.Seed}
	}
	return out
}

// summarize is GuideLLM's summary of values, by weights where there are any; its
// percentiles are among the values.
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
	return object{"mean": mean, "median": at(50), "mode": at(50), "variance": variance, "std_dev": math.Sqrt(variance), "min": at(0), "max": at(100),
		"count": len(values), "total_sum": sum, "percentiles": percentiles}
}

// constantly is the summary of a rate of which the mean alone is known.
func constantly(mean float64, count int) object {
	s := summarize([]float64{mean}, nil)
	s["count"] = count
	return s
}

// toGuideLLM makes a report of version 2 with one benchmark. Latencies have the
// run's own figures; TPOT and ITL those of GuideLLM's definitions.
func toGuideLLM(r *result.Result) any {
	begin, end := math.Inf(1), 0.0
	status := map[string][]any{"successful": {}, "errored": {}, "incomplete": {}}
	for i := range r.Records {
		q := &r.Records[i]
		begin, end = min(begin, q.Sent), max(end, q.Finish)
		key := map[record.Status]string{record.OK: "successful", record.Unfinished: "incomplete", record.Aborted: "incomplete"}[q.Status]
		key = cmp.Or(key, "errored")
		if !math.IsNaN(q.Finish + q.Sent) {
			status[key] = append(status[key], guideRequestOf(q))
		}
	}
	if d, ok := r.Metrics.Get(result.Duration); ok { // as the run counts it
		begin = min(begin, end)
		end = begin + d
	}
	completed, _ := r.Metrics.Get(result.Completed)
	n := int(completed)
	metrics := object{"request_totals": object{"successful": n, "errored": len(status["errored"]), "incomplete": len(status["incomplete"]),
		"total": n + len(status["errored"]) + len(status["incomplete"])}}
	for _, name := range strings.Fields(guideRest) {
		metrics[name] = object{}
	}
	maps.Copy(metrics, guideKinds())
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
	metrics["prompt_token_count"] = object{"successful": summarize(succeeded(r, promptOf), nil)}
	metrics["output_token_count"] = object{"successful": summarize(succeeded(r, outputOf), nil)}
	scheduler := object{"start_time": begin, "request_start_time": begin, "measure_start_time": begin, "measure_end_time": end,
		"request_end_time": end, "end_time": end, "requests_made": metrics["request_totals"]}
	for _, name := range strings.Fields("queued_time resolve_start_delay resolve_targeted_start_delay request_start_delay " +
		"request_targeted_start_delay request_time resolve_end_delay resolve_time finalized_delay processed_delay") {
		scheduler[name+"_avg"] = -1.0 // GuideLLM's word for not known
	}
	strategy, profile := object{"type_": "throughput", "max_concurrency": nil}, object{"kind": "throughput"}
	if rate := float64(r.RequestRate); rate > 0 && !math.IsInf(rate, 0) {
		strategy, profile = object{"type_": "constant", "rate": rate}, object{"kind": "constant", "rate": []float64{rate}}
	}
	backend := object{"kind": "openai_http", "target": "http://" + cmp.Or(r.Backend, "lorasim"), "stream": r.Streamed != record.NotStreamed}
	return object{
		"metadata": object{"version": 2, "guidellm_version": "0.8.1", "python_version": "", "platform": "lorasim"},
		"config":   object{"spec": object{"backend": backend, "profile": profile, "data": []any{object{"kind": "synthetic_text", "prompt_tokens": 1}}}},
		"benchmarks": []any{object{
			"type_": "generative_benchmark",
			"config": object{"run_id": cmp.Or(r.Scenario, "lorasim"), "run_index": 0, "strategy": strategy, "constraints": object{}, "profile": object{},
				"requests": object{}, "backend": backend, "environment": object{}},
			"scheduler_state": object{}, "scheduler_metrics": scheduler, "metrics": metrics, "requests": status,
			"start_time": begin, "end_time": end, "duration": end - begin,
		}},
	}
}

// guideRest are metrics that a report must have, if only empty.
const guideRest = "requests_per_second request_concurrency request_latency request_streaming_iterations_count total_token_count time_to_first_token_ms " +
	"time_to_first_output_token_ms time_per_output_token_ms inter_token_latency_ms time_to_last_round_trip_ms avg_round_trip_time_ms prompt_tokens_per_second " +
	"output_tokens_per_second tokens_per_second output_tokens_per_iteration iter_tokens_per_iteration"

// guideKinds are what GuideLLM counts by kind of content, all of it not known.
func guideKinds() object {
	out := object{}
	for kind, counts := range map[string]string{"text": "tokens words characters", "image": "tokens images pixels bytes", "video": "tokens frames seconds bytes",
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

// guideLatency is a latency as GuideLLM defines it.
func guideLatency(r *result.Result, mean result.Metric) object {
	if mean == result.MeanTPOT || mean == result.MeanITL {
		first := int32(0) // ITL leaves the first token out
		if mean == result.MeanITL {
			first = 1
		}
		has := func(q *record.Request) bool { return q.Output > first }
		values := succeeded(r, func(q *record.Request) float64 {
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
	scale := 1.0 // to ms, but for request_latency
	if mean == result.MeanE2E {
		scale = 1e-3
	}
	values := latencyOf(r, mean)
	for i := range values {
		values[i] *= scale * 1000
	}
	s := summarize(values, nil)
	own := stated(r, mean, scale, [6]string{"mean", "median", "std_dev", "p90", "p95", "p99"})
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

// guideRequestOf is a request with times since the beginning of the run.
func guideRequestOf(q *record.Request) object {
	timings := object{"targeted_start": q.Arrival, "request_start": q.Sent, "request_end": q.Finish, "resolve_end": q.Finish, "last_token_iteration": q.Finish}
	out := object{
		"type_": "generative_request_stats", "request_id": fmt.Sprint(q.ID), "prompt_tokens": q.Prompt, "output_tokens": q.Output,
		"request_start_time": q.Sent, "request_end_time": q.Finish, "request_latency": q.E2E(),
		"input_metrics": object{"text_tokens": q.Prompt}, "output_metrics": object{"text_tokens": q.Output},
	}
	if !math.IsNaN(q.FirstToken) {
		timings["first_token_iteration"], out["time_to_first_token_ms"] = q.FirstToken, 1000*q.TTFT()
	}
	info := object{"request_id": fmt.Sprint(q.ID), "status": "completed", "timings": timings}
	if q.Status != record.OK {
		info["status"], info["error"] = "errored", cmp.Or(q.Error, q.Status.String())
	}
	out["info"] = info
	return out
}
