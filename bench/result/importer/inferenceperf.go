package importer

import (
	"cmp"
	"errors"
	"math"
	"slices"

	"lorasim/bench/result"
	"lorasim/sim/record"
	"lorasim/trace"
)

// inferencePerf is the summary of inference-perf, summary_lifecycle_metrics.json or stage_N_lifecycle_metrics.json. Its
// times are in s. Before 0.5 it has no duration, and prompt_len and output_len in place of the numbers of tokens.
type inferencePerf struct {
	Duration *float64 `json:"benchmark_time_seconds"`
	Load     struct {
		Count       whole
		Rate        float64 `json:"requested_rate"`
		Concurrency int
	} `json:"load_summary"`
	Successes struct {
		Count      whole
		Latency    map[string]figures
		Throughput figures
		Prompt     figures `json:"prompt_tokens"`
		Output     figures `json:"output_tokens"`
		PromptLen  figures `json:"prompt_len"`
		OutputLen  figures `json:"output_len"`
	}
	Failures struct {
		Count  whole
		Labels map[string]struct{ Count whole } `json:"by_label"`
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

func readInferencePerf(text []byte, _ fields, _ string) ([]*Imported, error) {
	var s inferencePerf
	if err := lenient(text, &s); err != nil {
		return nil, err
	}
	m := newClient("inference-perf", "", "inference-perf states no standard deviations; "+perfITL)
	done, n := &s.Successes, float64(s.Successes.Count)
	rate := done.Throughput.number("requests_per_sec")
	switch {
	case s.Duration != nil:
		m.Metrics.Set(result.Duration, *s.Duration)
	case rate > 0:
		m.Metrics.Set(result.Duration, n/rate)
		m.Notes = append(m.Notes, "the duration is successes / requests_per_sec: inference-perf before 0.5 states none")
	}
	m.Metrics.Set(result.Completed, n)
	m.RequestRate, m.MaxConcurrency = result.Rate(max(s.Load.Rate, 0)), max(s.Load.Concurrency, 0)
	total := func(metric result.ID, total, lengths figures) {
		v := total.number("total")
		if math.IsNaN(v) {
			v = math.Round(lengths.number("mean") * n)
		}
		m.Metrics.Set(metric, v)
	}
	total(result.TotalInputTokens, done.Prompt, done.PromptLen)
	total(result.TotalOutputTokens, done.Output, done.OutputLen)
	for _, f := range inferencePerfRates {
		m.Metrics.Set(f.metric, done.Throughput.number(f.field))
	}
	for _, f := range inferencePerfLatencies {
		of := done.Latency[f.name]
		m.setLatency(f.metric, 1000, of, inferencePerfStats, of.percentiles())
	}
	m.Metrics.Set(result.MaxITL, done.Latency["inter_token_latency"].number("max")*1000)
	m.Ended = &result.Endings{}
	for label, of := range s.Failures.Labels {
		m.addFailures(label, int64(of.Count))
	}
	slices.SortFunc(m.Ended.Reasons, func(a, b result.Reason) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Reason, b.Reason))
	})
	m.Ended.Failed = int64(max(s.Failures.Count, s.Load.Count-done.Count, 0))
	m.Ended.Requests = int64(done.Count) + m.Ended.Failed
	return []*Imported{m}, nil
}

const perfITL = "its ITL is 0 between tokens of one chunk"

func isInferencePerf(f fields) bool {
	return f.has("successes") && (f.has("benchmark_time_seconds") || f.has("load_summary") || f.has("failures"))
}

// perfRequest is a request of per_request_lifecycle_metrics.json. Times are in s on the client's clock. Versions before
// 0.5 have the fields of the reply in info itself.
type perfRequest struct {
	Start float64 `json:"start_time"`
	End   float64 `json:"end_time"`
	Info  struct {
		perfReply
		Adapter  string    `json:"lora_adapter"`
		Response perfReply `json:"response_metrics"`
		Request  struct {
			Text perfReply
		} `json:"request_metrics"`
	}
	Error *struct {
		Type    string `json:"error_type"`
		Message string `json:"error_msg"`
	}
	where string
}

type perfReply struct {
	Input  whole     `json:"input_tokens"`
	Output whole     `json:"output_tokens"`
	Times  []float64 `json:"output_token_times"`
}

func isPerfRequest(f fields) bool {
	return f.has("start_time", "end_time") && (f.has("info") || f.has("request"))
}

// perfRequests are the requests of a run.
type perfRequests struct{ list []perfRequest }

func (p *perfRequests) add(text []byte, where string) error {
	q := perfRequest{where: where}
	if err := lenient(text, &q); err != nil {
		return err
	}
	if q.Start == 0 {
		return errors.New("start_time is missing")
	}
	p.list = append(p.list, q)
	return nil
}

func (p *perfRequests) run() (*Imported, error) {
	m := newClient("inference-perf", "", perfITL)
	begin, end := math.Inf(1), 0.0
	for i := range p.list {
		begin = min(begin, p.list[i].Start)
	}
	index := map[string]int32{"": -1} // of adapters
	for i := range p.list {
		q := &p.list[i]
		times := q.Info.Response.Times
		if len(times) == 0 {
			times = q.Info.Times
		}
		first := math.NaN()
		if len(times) > 0 {
			first = times[0] - begin
		}
		r := newRecord(i, q.Start-begin, first, q.End-begin, float64(max(q.Info.Request.Text.Input, q.Info.Input)),
			float64(max(q.Info.Response.Output, q.Info.Output)))
		for k := 1; k < len(times); k++ {
			r.Gaps = append(r.Gaps, times[k]-times[k-1])
		}
		if q.Error != nil {
			r.Status, r.Error, r.FirstToken = record.Failed, joinKnown(": ", q.Error.Type, q.Error.Message), math.NaN()
		}
		if _, known := index[q.Info.Adapter]; !known {
			index[q.Info.Adapter] = int32(len(m.Adapters))
			m.Adapters = append(m.Adapters, trace.Adapter{Name: q.Info.Adapter})
		}
		r.Adapter = index[q.Info.Adapter]
		streamed := len(times) > 1
		r.Streamed = record.StreamingIf(streamed)
		if m.Records = m.keep(m.Records, &r, q.where); r.Finish > end {
			end = r.Finish
		}
	}
	if len(m.Records) == 0 {
		return nil, errors.New("none of its requests can be read")
	}
	m.Metrics.Set(result.Duration, end)
	m.Ended = m.derive(m.Records, func(id result.ID) bool { return id != result.MaxOutputTokensPerS })
	m.InferStreaming()
	return m, nil
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
