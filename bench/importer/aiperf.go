package importer

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"lorasim/bench/result"
	"lorasim/internal/record"
)

// isAIPerf says whether an object is a summary of AIPerf, or of GenAI-Perf before
// it: fields are metrics with a unit each.
func isAIPerf(fields map[string]json.RawMessage) bool {
	isMetric := func(name string) bool {
		var m aiperfMetric
		return json.Unmarshal(fields[name], &m) == nil && m["unit"] != nil
	}
	return isMetric("request_latency") || isMetric("request_throughput") || fields["aiperf_version"] != nil ||
		fields["records"] != nil && fields["input_config"] != nil
}

// aiperfMetric is one metric of a summary: its unit, avg and, of latencies, std,
// max and percentiles.
type aiperfMetric map[string]any

// number is a field of the metric; NaN if there is none.
func (a aiperfMetric) number(name string) float64 {
	if v, ok := a[name].(float64); ok {
		return v
	}
	return math.NaN()
}

// aiperfSummary is profile_export_aiperf.json, schema 1.0 to 1.4.
type aiperfSummary struct {
	Version   string `json:"aiperf_version"`
	Cancelled bool   `json:"was_cancelled"`
	Errors    []struct {
		Details aiperfError `json:"error_details"`
		Count   int64
	} `json:"error_summary"`
	Input   aiperfInput                `json:"input_config"`
	Records map[string]json.RawMessage // the metrics, in early versions
}

// aiperfInput is the configuration; early versions have loadgen and model_names.
type aiperfInput struct {
	Models struct {
		Items []struct{ Name string }
	}
	Endpoint struct {
		Type       string
		Streaming  *bool
		ModelNames []string `json:"model_names"`
	}
	Phases []aiperfPhase
	Load   struct {
		Rate        *float64 `json:"request_rate"`
		Concurrency *int
	} `json:"loadgen"`
}

type aiperfPhase struct {
	Kind, Type  string
	Rate        *float64
	Concurrency *int
}

type aiperfError struct {
	Code          *int
	Type, Message string
}

func (e *aiperfError) text() string {
	parts := []string{}
	if e.Code != nil {
		parts = append(parts, fmt.Sprint(*e.Code))
	}
	for _, s := range []string{e.Type, e.Message} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	return strings.Join(parts, " ")
}

const aiperfLatencies = "AIPerf's inter-token latency, the mean of each request, is TPOT here; its inter-chunk latency is ITL"

func readAIPerf(text []byte, add func(*Imported)) error {
	var s aiperfSummary
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	fields := s.Records
	if fields == nil {
		if err := json.Unmarshal(text, &fields); err != nil {
			return err
		}
	}
	m := &Imported{Result: &result.Result{Meta: result.Meta{Source: result.Log}}, Context: Context{Client: "AIPerf"}}
	if s.Version != "" {
		m.Client += " " + s.Version
	}
	m.Notes = []string{aiperfLatencies}
	s.Input.describe(m)
	for name, metric := range aiperfMetrics {
		if isNull(fields[name]) {
			continue
		}
		if err := m.setAIPerf(metric, fields[name]); err != nil {
			return fmt.Errorf("field %s: %w", name, err)
		}
	}
	completed, _ := m.Metrics.Get(result.Completed)
	m.Ended = &result.Endings{}
	for _, e := range s.Errors {
		m.Ended.Failed += e.Count
		m.Ended.Reasons = append(m.Ended.Reasons, result.Reason{Status: record.Failed.String(), Reason: e.Details.text(), Count: e.Count})
	}
	m.Ended.Requests = int64(completed) + m.Ended.Failed
	if s.Cancelled {
		m.Notes = append(m.Notes, "the run was cancelled")
	}
	add(m)
	return nil
}

// aiperfMetrics are the names of what the block shows; of latencies, the mean
// names the others.
var aiperfMetrics = map[string]result.Metric{
	"request_count": result.Completed, "benchmark_duration": result.Duration, "request_throughput": result.RequestThroughput,
	"total_isl": result.TotalInputTokens, "total_osl": result.TotalOutputTokens,
	"input_token_throughput": result.InputThroughput, "output_token_throughput": result.OutputThroughput,
	"total_token_throughput": result.TotalThroughput, "effective_concurrency": result.Concurrency,
	"request_latency": result.MeanE2E, "time_to_first_token": result.MeanTTFT,
	"inter_token_latency": result.MeanTPOT, "inter_chunk_latency": result.MeanITL,
}

// setAIPerf enters a metric.
func (m *Imported) setAIPerf(k result.Metric, text json.RawMessage) error {
	var a aiperfMetric
	if err := json.Unmarshal(text, &a); err != nil {
		return err
	}
	scale := 1.0
	if to := k.Descriptor().Unit; to == "ms" || to == "s" {
		unit, _ := a["unit"].(string)
		s, err := timeScale(unit, to)
		if err != nil {
			return err
		}
		scale = s
	}
	avg := a.number("avg") * scale
	if k != meanOf(k) {
		if k.Descriptor().Int && !math.IsNaN(avg) && avg != math.Trunc(avg) {
			return fmt.Errorf("avg is %v, expected a whole number", avg)
		}
		m.Metrics.Set(k, avg)
		return nil
	}
	l := latency{mean: a.number("avg"), median: a.number("p50"), std: a.number("std"), percentiles: map[string]float64{}}
	for name := range a {
		if percentileName.MatchString(name) {
			l.percentiles[name] = a.number(name)
		}
	}
	m.setLatency(k, scale, l)
	if k == result.MeanITL {
		m.Metrics.Set(result.MaxITL, a.number("max")*scale)
	}
	return nil
}

var percentileName = regexp.MustCompile(`^p[0-9.]+$`)

// timeScale converts from a unit of AIPerf's.
func timeScale(from, to string) (float64, error) {
	if from == "" { // the unit that is wanted
		return 1, nil
	}
	s, ok := map[string]float64{"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1, "sec": 1}[from]
	if !ok {
		return 0, fmt.Errorf("unit is %q, expected ns, us, ms or sec", from)
	}
	if to == "ms" {
		s *= 1000
	}
	return s, nil
}

// describe enters what was run.
func (in *aiperfInput) describe(m *Imported) {
	m.Backend = in.Endpoint.Type
	if in.Endpoint.Streaming != nil {
		m.Streamed = record.StreamingIf(*in.Endpoint.Streaming)
	}
	names := slices.Clone(in.Endpoint.ModelNames)
	for _, i := range in.Models.Items {
		names = append(names, i.Name)
	}
	m.Models = names
	last := aiperfPhase{Rate: in.Load.Rate, Concurrency: in.Load.Concurrency}
	for _, p := range in.Phases {
		if p.Kind != "warmup" && p.Type != "" {
			last = p
		}
	}
	switch {
	case last.Rate != nil && *last.Rate > 0:
		m.RequestRate = result.Rate(*last.Rate)
	case last.Type == "fixed_schedule":
		m.RequestRate = result.TraceRate
	case last.Type == "concurrency" || last.Type == "" && last.Concurrency != nil:
		m.RequestRate = result.Unlimited()
	}
	if last.Concurrency != nil && *last.Concurrency > 0 {
		m.MaxConcurrency = *last.Concurrency
	}
}

// aiperfRequests gathers the lines of profile_export.jsonl, one per request.
type aiperfRequests struct {
	list []aiperfRequest
}

type aiperfRequest struct {
	Metadata struct {
		Start     int64  `json:"request_start_ns"`
		End       int64  `json:"request_end_ns"`
		Issued    *int64 `json:"credit_issued_ns"`
		Phase     string `json:"benchmark_phase"`
		Cancelled bool   `json:"was_cancelled"`
	}
	Metrics struct {
		Latency aiperfValue[float64]   `json:"request_latency"`
		TTFT    aiperfValue[float64]   `json:"time_to_first_token"`
		Gaps    aiperfValue[[]float64] `json:"inter_chunk_latency"`
		Input   aiperfValue[float64]   `json:"input_sequence_length"`
		Output  aiperfValue[float64]   `json:"output_sequence_length"`
	}
	Error *aiperfError
}

// aiperfValue is a metric of one request.
type aiperfValue[T any] struct {
	Value *T
	Unit  string
}

func (q *aiperfRequests) add(text []byte) error {
	var r aiperfRequest
	if err := json.Unmarshal(text, &r); err != nil {
		return err
	}
	if r.Metadata.Start <= 0 || r.Metadata.End < r.Metadata.Start {
		return fmt.Errorf("metadata: request_start_ns is %d and request_end_ns %d, expected times of which the second is not the earlier", r.Metadata.Start, r.Metadata.End)
	}
	for _, unit := range []string{r.Metrics.Latency.Unit, r.Metrics.TTFT.Unit, r.Metrics.Gaps.Unit} {
		if _, err := timeScale(unit, "s"); err != nil {
			return err
		}
	}
	q.list = append(q.list, r)
	return nil
}

// run makes one run of the requests; those of the warm-up do not count.
func (q *aiperfRequests) run() (m *Imported, err error) {
	m = &Imported{Result: &result.Result{Meta: result.Meta{Source: result.Log}}, Context: Context{Client: "AIPerf"}, Notes: []string{aiperfLatencies}}
	list := slices.DeleteFunc(q.list, func(r aiperfRequest) bool { return r.Metadata.Phase == "warmup" })
	begin, streamed := int64(math.MaxInt64), false
	for i := range list {
		begin = min(begin, list[i].Metadata.Start)
	}
	end, first := 0.0, math.Inf(1) // of successful requests, as AIPerf counts
	for i := range list {
		r := list[i].record(begin)
		r.ID = int64(i)
		m.Records = append(m.Records, r)
		if r.Status == record.OK {
			end, first = max(end, r.Finish), min(first, r.Sent)
			streamed = streamed || !math.IsNaN(r.FirstToken)
		}
	}
	m.Streamed = record.StreamingIf(streamed)
	for i := range m.Records {
		m.Records[i].Streamed = m.Streamed
	}
	if end > 0 {
		m.Metrics.Set(result.Duration, end-first)
	}
	// Its gaps are those between chunks, of several tokens at times.
	m.Ended, err = m.derive(m.Records, func(k result.Metric) bool { return k != result.MaxOutputTokensPerS })
	return m, err
}

// record is the fate of a request, with times since begin.
func (r *aiperfRequest) record(begin int64) record.Request {
	seconds := func(v aiperfValue[float64]) float64 {
		scale, err := timeScale(v.Unit, "s")
		if err != nil || v.Value == nil {
			return math.NaN()
		}
		return *v.Value * scale
	}
	sent := float64(r.Metadata.Start-begin) / 1e9
	end := float64(r.Metadata.End-begin) / 1e9
	out := record.Request{Adapter: -1, WorkerFirst: -1, WorkerLast: -1, Arrival: sent, Sent: sent, FirstToken: sent + seconds(r.Metrics.TTFT),
		Finish: end, Prompt: count(r.Metrics.Input), Output: count(r.Metrics.Output), Requested: count(r.Metrics.Output)}
	if l := seconds(r.Metrics.Latency); !math.IsNaN(l) {
		out.Finish = sent + l
	}
	if g := r.Metrics.Gaps; g.Value != nil {
		scale, _ := timeScale(g.Unit, "s") // see add
		for _, v := range *g.Value {
			out.Gaps = append(out.Gaps, v*scale)
		}
	}
	switch {
	case r.Metadata.Cancelled:
		out.Status, out.Error = record.Aborted, "cancelled"
	case r.Error != nil:
		out.Status, out.Error = record.Failed, r.Error.text()
	}
	return out
}

func count(v aiperfValue[float64]) int32 {
	if v.Value == nil || !(*v.Value > 0) {
		return 0
	}
	return int32(min(*v.Value, math.MaxInt32))
}
