package importer

import (
	"cmp"
	"encoding/json"
	"slices"

	"lorasim/bench/result"
	"lorasim/sim/record"
)

// inferencePerf is the summary of inference-perf, summary_lifecycle_metrics.json. Its times
// are in s.
type inferencePerf struct {
	Duration  float64 `json:"benchmark_time_seconds"`
	Successes struct {
		Count      float64
		Latency    map[string]figures
		Throughput figures
		Prompt     figures `json:"prompt_tokens"`
		Output     figures `json:"output_tokens"`
	}
	Failures struct {
		Count  int64
		Labels map[string]struct{ Count int64 } `json:"by_label"`
	}
}

var inferencePerfLatencies = []figure{
	{result.MeanE2E, "request_latency", "mean"}, {result.MeanTTFT, "time_to_first_token", "mean"},
	{result.MeanTPOT, "time_per_output_token", "mean"}, {result.MeanITL, "inter_token_latency", "mean"},
}

// inferencePerfStats are inference-perf's names of statistics.
var inferencePerfStats = [6]string{"mean", "median", "", "p90", "p95", "p99"}

var inferencePerfRates = []figure{
	{result.RequestThroughput, "", "requests_per_sec"}, {result.InputThroughput, "", "input_tokens_per_sec"},
	{result.OutputThroughput, "", "output_tokens_per_sec"}, {result.TotalThroughput, "", "total_tokens_per_sec"},
}

func readInferencePerf(text []byte) ([]*Imported, error) {
	var s inferencePerf
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, err
	}
	m := newClient("inference-perf", "", "inference-perf states no standard deviations")
	m.Metrics.Set(result.Duration, s.Duration)
	m.Metrics.Set(result.Completed, s.Successes.Count)
	m.Metrics.Set(result.TotalInputTokens, s.Successes.Prompt.number("total"))
	m.Metrics.Set(result.TotalOutputTokens, s.Successes.Output.number("total"))
	for _, f := range inferencePerfRates {
		m.Metrics.Set(f.metric, s.Successes.Throughput.number(f.field))
	}
	for _, f := range inferencePerfLatencies {
		of := s.Successes.Latency[f.name]
		m.setLatency(f.metric, 1000, of, inferencePerfStats, of.percentiles())
	}
	m.Metrics.Set(result.MaxITL, s.Successes.Latency["inter_token_latency"].number("max")*1000)
	m.Ended = &result.Endings{}
	for label, of := range s.Failures.Labels {
		m.addFailures(label, of.Count)
	}
	m.Ended.Requests, m.Ended.Failed = int64(s.Successes.Count)+s.Failures.Count, s.Failures.Count
	slices.SortFunc(m.Ended.Reasons, func(a, b result.Reason) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Reason, b.Reason))
	})
	return []*Imported{m}, nil
}

// toInferencePerf returns a summary as in inference-perf 0.7.
func toInferencePerf(r *result.Result) any {
	n, reasons := failures(r)
	latencies, rates, labels := object{}, object{}, object{}
	for _, f := range inferencePerfLatencies {
		latencies[f.name] = nil
		values := latencyOf(r, f.metric)
		if len(values) == 0 || !r.Metrics.Has(f.metric) {
			continue
		}
		of := stated(r, f.metric, 1e-3, inferencePerfStats)
		if f.metric != result.MeanITL {
			of["min"], of["max"] = slices.Min(values), slices.Max(values)
		} else if v, ok := r.Metrics.Get(result.MaxITL); ok {
			of["max"] = v * 1e-3
		}
		latencies[f.name] = of
	}
	for _, f := range inferencePerfRates {
		if v, ok := r.Metrics.Get(f.metric); ok {
			rates[f.field] = v
		}
	}
	tokens := func(of func(*record.Request) float64) object {
		s := summarize(succeeded(r, of), nil)
		return object{"total": s["total_sum"], "mean": s["mean"], "min": s["min"], "max": s["max"],
			"median": s["median"]}
	}
	prompt := tokens(promptOf)
	cached := 0.0
	for _, v := range succeeded(r, func(q *record.Request) float64 { return float64(q.Cached) }) {
		cached += v
	}
	prompt["cached"], prompt["uncached"] = cached, prompt["total"].(float64)-cached
	for _, e := range reasons {
		label := joinKnown(": ", e.Status, e.Reason)
		labels[label] = object{"count": e.Count, "messages": []any{}}
	}
	completed, _ := r.Metrics.Get(result.Completed)
	duration, _ := r.Metrics.Get(result.Duration)
	return object{
		"benchmark_time_seconds": duration,
		"load_summary":           object{"count": int64(completed) + n},
		"successes": object{"count": int64(completed), "latency": latencies, "throughput": rates,
			"prompt_tokens": prompt, "output_tokens": tokens(outputOf)},
		"failures": object{"count": n, "by_label": labels},
	}
}
