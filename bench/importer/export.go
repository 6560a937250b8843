package importer

import (
	"cmp"
	"encoding/json"
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

// inferencePerf is the summary of inference-perf, summary_lifecycle_metrics.json;
// its times are in s.
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

// inferencePerfStats are its names of statistics.
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

// toInferencePerf makes a summary as of inference-perf 0.7.
func toInferencePerf(r *result.Result) any {
	n, reasons := failures(r)
	latencies, rates, labels := object{}, object{}, object{}
	for _, f := range inferencePerfLatencies {
		of := stated(r, f.metric, 1e-3, inferencePerfStats)
		if values := latencyOf(r, f.metric); len(values) > 0 {
			of["min"], of["max"] = slices.Min(values), slices.Max(values)
		}
		if v, ok := r.Metrics.Get(result.MaxITL); ok && f.metric == result.MeanITL {
			of["max"] = v * 1e-3
		}
		if r.Metrics.Has(f.metric) {
			latencies[f.name] = of
		}
	}
	for _, f := range inferencePerfRates {
		if v, ok := r.Metrics.Get(f.metric); ok {
			rates[f.field] = v
		}
	}
	tokens := func(of func(*record.Request) float64) object {
		s := summarize(succeeded(r, of), nil)
		return object{"total": s["total_sum"], "mean": s["mean"], "min": s["min"], "max": s["max"], "median": s["median"]}
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
		"successes":              object{"count": int64(completed), "latency": latencies, "throughput": rates, "prompt_tokens": prompt, "output_tokens": tokens(outputOf)},
		"failures":               object{"count": n, "by_label": labels},
	}
}
