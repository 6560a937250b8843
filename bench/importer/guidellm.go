package importer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"lorasim/bench/result"
	"lorasim/internal/record"
	"lorasim/trace"
)

// guideReport is the JSON that GuideLLM writes: a benchmark for each strategy, as
// in a sweep over rates.
type guideReport struct {
	Metadata struct {
		Version string `json:"guidellm_version"`
	}
	Benchmarks []guideBenchmark
}

type guideBenchmark struct {
	Config struct {
		Strategy guideStrategy
		Backend  struct {
			Kind, Model string
			Stream      *bool
		}
	}
	Args      struct{ Strategy guideStrategy } // where versions before 0.4 have it
	Scheduler struct{ Strategy guideStrategy }
	Duration  *float64
	Start     float64 `json:"start_time"`
	End       float64 `json:"end_time"`
	Metrics   json.RawMessage
	Requests  struct {
		Successful, Errored, Incomplete []guideRequest
	}
}

type guideStrategy struct {
	Type           string `json:"type_"`
	Rate           float64
	Streams        int
	MaxConcurrency int `json:"max_concurrency"`
}

// guideRequest is one request; the times are Unix seconds.
type guideRequest struct {
	Args  string   `json:"request_args"`
	Start *float64 `json:"request_start_time"`
	End   *float64 `json:"request_end_time"`
	TTFT  *float64 `json:"time_to_first_token_ms"`
	Input int64    `json:"prompt_tokens"`
	Out   int64    `json:"output_tokens"`
	Info  struct {
		Error   string
		Timings struct {
			Targeted *float64 `json:"targeted_start"`
		}
	}
	OldStart *float64 `json:"start_time"` // before 0.4
	OldEnd   *float64 `json:"end_time"`
}

// guideStats are GuideLLM's names of statistics.
var guideStats = [6]string{"mean", "median", "std_dev", "p90", "p95", "p99"}

const guideTPOT = "GuideLLM's TPOT counts the first token, as time over tokens; its percentiles of TPOT and ITL weigh each request's mean by its tokens"

func readGuideLLM(text []byte) (runs []*Imported, err error) {
	var g guideReport
	if err := json.Unmarshal(text, &g); err != nil {
		return nil, err
	}
	for i := range g.Benchmarks {
		b := &g.Benchmarks[i]
		if b.Metrics == nil {
			return nil, fmt.Errorf("benchmarks[%d] has no metrics, expected those of GuideLLM", i)
		}
		m := newClient("GuideLLM", g.Metadata.Version, guideTPOT)
		b.describe(m)
		if err := b.setMetrics(m); err != nil {
			return nil, err
		}
		if err := b.setRecords(m); err != nil {
			return nil, fmt.Errorf("benchmarks[%d]: %w", i, err)
		}
		runs = append(runs, m)
	}
	return runs, nil
}

// describe enters what was run.
func (b *guideBenchmark) describe(m *Imported) {
	m.Backend = b.Config.Backend.Kind
	if name := b.Config.Backend.Model; name != "" {
		m.Models = []string{name}
	}
	m.setStreamed(b.Config.Backend.Stream)
	s := b.Config.Strategy
	for _, old := range []guideStrategy{b.Args.Strategy, b.Scheduler.Strategy} {
		if s.Type == "" {
			s = old
		}
	}
	m.Strategy = s.Type
	limit := 0
	switch m.RequestRate = result.Unlimited(); s.Type {
	case "synchronous":
		limit = 1
	case "concurrent":
		limit = s.Streams
	case "throughput":
	case "trace":
		m.RequestRate = result.TraceRate
	default:
		m.RequestRate = result.Rate(max(s.Rate, 0))
	}
	if limit == 0 && s.MaxConcurrency != guideCap {
		limit = s.MaxConcurrency
	}
	m.MaxConcurrency = max(limit, 0)
}

// guideCap is the concurrency that GuideLLM states where none was asked for.
const guideCap = 10240

var guideFigures = []figure{
	{result.RequestThroughput, "requests_per_second", "mean"}, {result.InputThroughput, "prompt_tokens_per_second", "mean"},
	{result.OutputThroughput, "output_tokens_per_second", "mean"}, {result.TotalThroughput, "tokens_per_second", "mean"},
	{result.Concurrency, "request_concurrency", "mean"}, {result.MaxConcurrentRequests, "request_concurrency", "max"},
	{result.TotalInputTokens, "prompt_token_count", "total_sum"}, {result.TotalOutputTokens, "output_token_count", "total_sum"},
	{result.MeanE2E, "request_latency", "mean"}, {result.MeanTTFT, "time_to_first_token_ms", "mean"},
	{result.MeanTPOT, "time_per_output_token_ms", "mean"}, {result.MeanITL, "inter_token_latency_ms", "mean"},
}

// setMetrics enters the figures of the requests that succeeded.
func (b *guideBenchmark) setMetrics(m *Imported) error {
	var totals struct {
		Requests *struct {
			Successful, Errored, Incomplete int64
		} `json:"request_totals"`
	}
	var metrics map[string]any
	if err := cmp.Or(json.Unmarshal(b.Metrics, &totals), json.Unmarshal(b.Metrics, &metrics)); err != nil {
		return err
	}
	of := func(f map[string]any, name string) figures {
		inner, _ := f[name].(map[string]any)
		return inner
	}
	successful := func(name string) figures { return of(of(metrics, name), "successful") }
	switch {
	case b.Duration != nil:
		m.Metrics.Set(result.Duration, *b.Duration)
	case b.End > b.Start:
		m.Metrics.Set(result.Duration, b.End-b.Start)
	}
	if t := totals.Requests; t != nil {
		m.Metrics.Set(result.Completed, float64(t.Successful))
		m.Ended = &result.Endings{Requests: t.Successful + t.Errored + t.Incomplete, Failed: t.Errored, Unfinished: t.Incomplete}
	} else {
		m.Metrics.Set(result.Completed, successful("request_latency").number("count"))
	}
	for _, f := range guideFigures {
		s := successful(f.name)
		switch v := s.number(f.field); {
		case !isLatency(f.metric):
			if f.metric.Descriptor().Int {
				v = math.Round(v) // 107.00000000000001
			}
			m.Metrics.Set(f.metric, v)
		case s.number("count") > 0: // GuideLLM has zeros for what it did not see
			scale := 1.0
			if f.metric == result.MeanE2E { // in s
				scale = 1000
			}
			percentiles := figures{}
			for name, v := range of(s, "percentiles") {
				if p := guidePercentiles[name]; p != "" {
					percentiles[p] = v
				}
			}
			m.setLatency(f.metric, scale, s, guideStats, percentiles)
		}
	}
	return nil
}

// guidePercentiles are GuideLLM's names of percentiles; the median has a field.
var guidePercentiles = map[string]string{"p001": "p0.1", "p01": "p1", "p05": "p5", "p10": "p10", "p25": "p25", "p75": "p75",
	"p90": "p90", "p95": "p95", "p99": "p99", "p999": "p99.9"}

// setRecords enters the requests, in the order in which they were sent. The file
// may have a sample of them alone.
func (b *guideBenchmark) setRecords(m *Imported) error {
	index := map[string]int32{"": -1} // of models
	for _, of := range []struct {
		status record.Status
		list   []guideRequest
	}{{record.OK, b.Requests.Successful}, {record.Failed, b.Requests.Errored}, {record.Unfinished, b.Requests.Incomplete}} {
		for i := range of.list {
			r, ok := of.list[i].record()
			if !ok {
				continue
			}
			model := of.list[i].model()
			if _, known := index[model]; !known {
				index[model] = int32(len(m.Adapters))
				m.Adapters = append(m.Adapters, trace.Adapter{Name: model})
			}
			r.Status, r.Adapter, r.Streamed = of.status, index[model], m.Streamed
			m.Records = append(m.Records, r)
		}
	}
	slices.SortFunc(m.Records, func(a, b record.Request) int {
		return cmp.Or(cmp.Compare(a.Sent, b.Sent), cmp.Compare(a.Finish, b.Finish))
	})
	if len(m.Records) == 0 {
		return nil
	}
	begin := math.Inf(1)
	for _, r := range m.Records {
		begin = min(begin, r.Arrival)
	}
	for i := range m.Records {
		r := &m.Records[i]
		r.ID, r.Arrival, r.Sent, r.FirstToken, r.Finish = int64(i), r.Arrival-begin, r.Sent-begin, r.FirstToken-begin, r.Finish-begin
	}
	e, err := m.derive(m.Records, func(result.Metric) bool { return false })
	switch {
	case e != nil:
		m.Ended = e
	case err == nil:
		m.Notes = append(m.Notes, fmt.Sprintf("the file has %d of the requests, a sample", len(m.Records)))
	}
	return err
}

// record is the fate of a request, in Unix time; false if it was never sent.
func (q *guideRequest) record() (record.Request, bool) {
	start, end := cmp.Or(q.Start, q.OldStart), cmp.Or(q.End, q.OldEnd)
	if start == nil || end == nil || *end < *start {
		return record.Request{}, false
	}
	r := newRecord(0, *start, *start+or(q.TTFT, math.NaN())/1000, *end, float64(q.Input), float64(q.Out))
	r.Error = q.Info.Error
	if t := q.Info.Timings.Targeted; t != nil {
		r.Arrival = min(*t, *start)
	}
	return r, true
}

// model is that of the request's arguments, JSON in a string.
func (q *guideRequest) model() string {
	var args struct{ Body struct{ Model string } }
	if json.Unmarshal([]byte(q.Args), &args) != nil {
		return ""
	}
	return args.Body.Model
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
	status, of := map[string][]any{"successful": {}, "errored": {}, "incomplete": {}}, map[string][]*record.Request{}
	for i := range r.Records {
		q := &r.Records[i]
		key := map[record.Status]string{record.OK: "successful", record.Unfinished: "incomplete", record.Aborted: "incomplete"}[q.Status]
		key = cmp.Or(key, "errored")
		of[key], of["total"] = append(of[key], q), append(of["total"], q)
		if !math.IsNaN(q.Finish + q.Sent) {
			begin, end = min(begin, q.Sent), max(end, q.Finish)
			status[key] = append(status[key], guideRequestOf(q, r.Streamed))
		}
	}
	if d, ok := r.Metrics.Get(result.Duration); ok { // as the run counts it
		begin = min(begin, end)
		end = begin + d
	}
	completed, _ := r.Metrics.Get(result.Completed)
	n := int(completed)
	metrics := object{"request_totals": object{"successful": n, "errored": len(of["errored"]), "incomplete": len(of["incomplete"]), "total": len(of["total"])}}
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
	for name, tokens := range map[string]func(*record.Request) float64{"prompt_token_count": promptOf, "output_token_count": outputOf,
		"total_token_count": func(q *record.Request) float64 { return promptOf(q) + outputOf(q) }} {
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
	for _, name := range strings.Fields(guideRest) { // GuideLLM states each of every status
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
	scheduler := object{"start_time": begin, "request_start_time": begin, "measure_start_time": begin, "measure_end_time": end,
		"request_end_time": end, "end_time": end, "requests_made": metrics["request_totals"]}
	for _, name := range strings.Fields("queued_time resolve_start_delay resolve_targeted_start_delay request_start_delay " +
		"request_targeted_start_delay request_time resolve_end_delay resolve_time finalized_delay processed_delay") {
		scheduler[name+"_avg"] = -1.0 // GuideLLM's word for not known
	}
	strategy, profile := guideStrategyOf(r)
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

// guideStrategyOf is how the run's requests were sent, and what would send them.
func guideStrategyOf(r *result.Result) (strategy, profile object) {
	var limit any
	if r.MaxConcurrency > 0 {
		limit = r.MaxConcurrency
	}
	switch rate := float64(r.RequestRate); {
	case r.RequestRate == result.TraceRate:
		return object{"type_": "trace"}, object{"kind": "replay"}
	case rate > 0 && !math.IsInf(rate, 0):
		return object{"type_": "constant", "rate": rate, "max_concurrency": limit}, object{"kind": "constant", "rate": []float64{rate}, "max_concurrency": limit}
	case limit != nil:
		return object{"type_": "concurrent", "streams": limit}, object{"kind": "concurrent", "streams": []any{limit}}
	}
	return object{"type_": "throughput", "max_concurrency": nil}, object{"kind": "throughput", "max_concurrency": nil}
}

// guideRest are metrics that a report must have, if only zeros.
const guideRest = "prompt_token_count output_token_count requests_per_second request_concurrency request_latency request_streaming_iterations_count total_token_count time_to_first_token_ms " +
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
	scale := 1.0 // to ms, but for request_latency
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

// guideRequestOf is a request with times since the beginning of the run.
func guideRequestOf(q *record.Request, streamed record.Streaming) object {
	timings := object{"targeted_start": q.Arrival, "request_start": q.Sent, "request_end": q.Finish, "resolve_end": q.Finish, "last_token_iteration": q.Finish}
	out := object{
		"type_": "generative_request_stats", "request_id": fmt.Sprint(q.ID), "prompt_tokens": q.Prompt, "output_tokens": q.Output,
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
