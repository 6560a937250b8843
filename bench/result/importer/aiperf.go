package importer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"lorasim/bench/result"
	"lorasim/sim/record"
)

// isAIPerf reports whether an object is a summary of AIPerf or of its predecessor
// GenAI-Perf. Each field is a metric with a unit.
func isAIPerf(fields fields) bool {
	isMetric := func(name string) bool {
		var f figures
		return json.Unmarshal(fields[name], &f) == nil && f["unit"] != nil
	}
	return isMetric("request_latency") || isMetric("request_throughput") || fields["aiperf_version"] != nil ||
		fields["records"] != nil && fields["input_config"] != nil
}

// aiperfSummary is the content of profile_export_aiperf.json, schema 1.0 to 1.4.
type aiperfSummary struct {
	Version   string `json:"aiperf_version"`
	Cancelled bool   `json:"was_cancelled"`
	Errors    []struct {
		Details aiperfError `json:"error_details"`
		Count   whole
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
		Rate        float64 `json:"request_rate"`
		Concurrency int
	} `json:"loadgen"`
}

type aiperfPhase struct {
	Kind, Type  string
	Rate        float64
	Concurrency int
}

type aiperfError struct {
	Code          *int
	Type, Message string
}

func (e *aiperfError) text() string {
	code := ""
	if e.Code != nil {
		code = fmt.Sprint(*e.Code)
	}
	return joinKnown(" ", code, e.Type, e.Message)
}

const aiperfLatencies = "AIPerf's inter-token latency, the mean of each request, is TPOT here; its inter-chunk latency is ITL"

var aiperfFigures = []figure{
	{result.Completed, "request_count", "avg"}, {result.Duration, "benchmark_duration", "avg"},
	{result.RequestThroughput, "request_throughput", "avg"}, {result.Concurrency, "effective_concurrency", "avg"},
	{result.TotalInputTokens, "total_isl", "avg"}, {result.TotalOutputTokens, "total_osl", "avg"},
	{result.InputThroughput, "input_token_throughput", "avg"}, {result.OutputThroughput, "output_token_throughput",
		"avg"},
	{result.TotalThroughput, "total_token_throughput", "avg"}, {result.MaxITL, "inter_chunk_latency", "max"},
	{result.MeanE2E, "request_latency", "avg"}, {result.MeanTTFT, "time_to_first_token", "avg"},
	{result.MeanTPOT, "inter_token_latency", "avg"}, {result.MeanITL, "inter_chunk_latency", "avg"},
}

// aiperfStats are AIPerf's names of statistics.
var aiperfStats = [6]string{"avg", "p50", "std", "p90", "p95", "p99"}

func readAIPerf(text []byte, fields fields, _ string) ([]*Imported, error) {
	var s aiperfSummary
	if err := lenient(text, &s); err != nil {
		return nil, err
	}
	if s.Records != nil {
		fields = s.Records
	}
	m := newClient("AIPerf", s.Version, aiperfLatencies)
	s.Input.describe(m)
	m.define("AIPerf")
	for _, f := range aiperfFigures {
		if err := m.setAIPerf(f, fields[f.name]); err != nil {
			return nil, fmt.Errorf("field %s: %w", f.name, err)
		}
	}
	m.setMeans(fields)
	completed, _ := m.Metrics.Get(result.Completed)
	m.Ended = &result.Endings{}
	for _, e := range s.Errors {
		m.addFailures(e.Details.text(), int64(e.Count))
	}
	var count figures
	json.Unmarshal(fields["error_request_count"], &count) // absent before 0.2
	if n := int64(max(count.number("avg"), 0)); n > m.Ended.Failed {
		m.addFailures("other errors", n-m.Ended.Failed)
	}
	if m.Ended.Requests = int64(completed) + m.Ended.Failed; m.Ended.Failed > 0 {
		m.Defined.Throughput = result.SuccessfulRun
	}
	if s.Cancelled {
		m.Notes = append(m.Notes, "the run was cancelled")
	}
	return []*Imported{m}, nil
}

// setMeans derives what GenAI-Perf and early versions of AIPerf state only by request.
func (m *Imported) setMeans(fields fields) {
	completed, ok := m.Metrics.Get(result.Completed)
	if !ok {
		return
	}
	for id, names := range map[result.ID][2]string{
		result.TotalInputTokens:  {"input_sequence_length", "num_input_token"},
		result.TotalOutputTokens: {"output_sequence_length", "num_output_token"}} {
		for _, name := range names {
			var of figures
			if m.Metrics.Has(id) || json.Unmarshal(fields[name], &of) != nil {
				continue
			}
			m.Metrics.Set(id, math.Round(of.number("avg")*completed))
		}
	}
	if rate, _ := m.Metrics.Get(result.RequestThroughput); rate > 0 && !m.Metrics.Has(result.Duration) {
		m.Metrics.Set(result.Duration, completed/rate)
	}
}

// setAIPerf sets a metric from its field in a summary.
func (m *Imported) setAIPerf(f figure, text json.RawMessage) error {
	var a figures
	if len(text) == 0 || bytes.Equal(text, []byte("null")) {
		return nil
	} else if err := json.Unmarshal(text, &a); err != nil {
		return err
	}
	scale := 1.0
	d := f.metric.Metric()
	if d.Unit == "ms" || d.Unit == "s" {
		unit, _ := a["unit"].(string)
		var err error
		if scale, err = timeScale(unit, d.Unit); err != nil {
			return err
		}
	}
	v := a.number(f.field)
	if d.Int && !math.IsNaN(v) && v != math.Trunc(v) {
		return fmt.Errorf("%s is %v, expected a whole number", f.field, v)
	}
	m.Metrics.Set(f.metric, v*scale)
	if isLatency(f.metric) {
		m.setLatency(f.metric, scale, a, aiperfStats, a.percentiles())
	}
	return nil
}

// timeScale returns the factor from a time unit of AIPerf to the unit to, "ms" or "s".
func timeScale(from, to string) (float64, error) {
	s, ok := map[string]float64{"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1, "sec": 1}[from]
	switch {
	case from == "": // already in the unit to
		return 1, nil
	case !ok:
		return 0, fmt.Errorf("unit is %q, expected ns, us, ms or sec", from)
	case to == "ms":
		s *= 1000
	}
	return s, nil
}

// describe sets the configuration of the run.
func (in *aiperfInput) describe(m *Imported) {
	m.Backend = in.Endpoint.Type
	m.setStreamed(in.Endpoint.Streaming)
	m.Models = slices.Clone(in.Endpoint.ModelNames)
	for _, i := range in.Models.Items {
		m.Models = append(m.Models, i.Name)
	}
	last := aiperfPhase{Rate: in.Load.Rate, Concurrency: in.Load.Concurrency}
	for _, p := range in.Phases {
		if p.Kind != "warmup" && p.Type != "" {
			last = p
		}
	}
	switch {
	case last.Rate > 0:
		m.RequestRate = result.Rate(last.Rate)
	case last.Type == "fixed_schedule":
		m.RequestRate = result.TraceRate
	case last.Type == "concurrency" || last.Type == "" && last.Concurrency != 0:
		m.RequestRate = result.Unlimited()
	}
	m.MaxConcurrency = max(last.Concurrency, 0)
}

func (m *Imported) setStreamed(streamed *bool) {
	if streamed != nil {
		m.Streamed = record.StreamingIf(*streamed)
	}
}

// aiperfRequest is a line of profile_export.jsonl, one per request.
type aiperfRequest struct {
	Metadata struct {
		Start     int64  `json:"request_start_ns"`
		End       int64  `json:"request_end_ns"`
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
	scale float64 // to s
}

// parse reads a line and its units.
func (q *aiperfRequest) parse(text []byte) error {
	if err := json.Unmarshal(text, q); err != nil {
		return err
	}
	if q.Metadata.Start <= 0 {
		return errors.New("request_start_ns is missing")
	}
	if q.Metadata.End < q.Metadata.Start {
		return errors.New("it ends before it was sent (request_end_ns < request_start_ns)")
	}
	var errs [3]error
	ms := &q.Metrics
	ms.Latency.scale, errs[0] = timeScale(ms.Latency.Unit, "s")
	ms.TTFT.scale, errs[1] = timeScale(ms.TTFT.Unit, "s")
	ms.Gaps.scale, errs[2] = timeScale(ms.Gaps.Unit, "s")
	return cmp.Or(errs[:]...)
}

// aiperfRequests are the requests of a run.
type aiperfRequests struct {
	list  []aiperfRequest
	where []string // of each request
}

func (a *aiperfRequests) add(text []byte, where string) error {
	var q aiperfRequest
	if err := q.parse(text); err != nil {
		return err
	}
	if q.Metadata.Phase != "warmup" { // requests of the warm-up do not count
		a.list, a.where = append(a.list, q), append(a.where, where)
	}
	return nil
}

func (a *aiperfRequests) run() (*Imported, error) {
	m := newClient("AIPerf", "", aiperfLatencies)
	begin, streamed := int64(math.MaxInt64), false
	for i := range a.list {
		begin = min(begin, a.list[i].Metadata.Start)
	}
	end, first := 0.0, math.Inf(1) // of successful requests, as in AIPerf
	for i := range a.list {
		r := a.list[i].record(i, begin)
		m.Records = m.keep(m.Records, &r, a.where[i])
	}
	if len(m.Records) == 0 {
		return nil, errors.New("none of its requests can be read")
	}
	for i := range m.Records {
		if r := &m.Records[i]; r.Status == record.OK {
			end, first = max(end, r.Finish), min(first, r.Sent)
			streamed = streamed || !math.IsNaN(r.FirstToken)
		}
	}
	m.setStreamed(&streamed)
	for i := range m.Records {
		m.Records[i].Streamed = m.Streamed
	}
	if end > 0 {
		m.Metrics.Set(result.Duration, end-first)
	}
	// AIPerf's gaps are between chunks, which may have several tokens.
	m.Ended = m.derive(m.Records, func(k result.ID) bool { return k != result.MaxOutputTokensPerS })
	if m.Ended != nil && m.Ended.Unsuccessful() > 0 {
		m.Defined.Throughput = result.SuccessfulRun
	}
	return m, nil
}

// record returns the record of a request, with times since begin.
func (q *aiperfRequest) record(id int, begin int64) record.Request {
	ms := &q.Metrics
	sent, finish := float64(q.Metadata.Start-begin)/1e9, float64(q.Metadata.End-begin)/1e9
	if ms.Latency.Value != nil {
		finish = sent + *ms.Latency.Value*ms.Latency.scale
	}
	out := newRecord(id, sent, sent+or(ms.TTFT.Value, math.NaN())*ms.TTFT.scale, finish, or(ms.Input.Value, 0),
		or(ms.Output.Value, 0))
	for _, v := range or(ms.Gaps.Value, nil) {
		out.Gaps = append(out.Gaps, v*ms.Gaps.scale)
	}
	switch {
	case q.Metadata.Cancelled:
		out.Status, out.Error = record.Aborted, "cancelled"
	case q.Error != nil:
		out.Status, out.Error = record.Failed, q.Error.text()
	}
	return out
}

// toAIPerf returns a summary of schema 1.4, without AIPerf's configuration of the run.
func toAIPerf(r *result.Result) any {
	out := object{"schema_version": "1.4"}
	for _, f := range aiperfFigures {
		v, ok := r.Metrics.Get(f.metric)
		values := latencyOf(r, f.metric)
		if !ok || len(values) == 0 && (isLatency(f.metric) || f.metric == result.MaxITL) {
			continue
		}
		unit := map[string]string{"s": "sec", "req/s": "requests/sec", "tok/s": "tokens/sec",
			"": "requests"}[f.metric.Metric().Unit]
		unit = cmp.Or(unit, f.metric.Metric().Unit)
		of, _ := out[f.name].(object)
		if of == nil {
			of = object{"unit": unit}
			out[f.name] = of
		}
		of[f.field] = v
		if isLatency(f.metric) {
			maps.Copy(of, stated(r, f.metric, 1, aiperfStats))
			if f.metric != result.MeanITL {
				of["min"], of["max"], of["count"] = slices.Min(values)*1000, slices.Max(values)*1000, len(values)
			}
		}
	}
	for name, of := range map[string]func(*record.Request) float64{"input_sequence_length": promptOf,
		"output_sequence_length": outputOf} {
		d := summarize(succeeded(r, of), nil)
		out[name] = object{"unit": "tokens", "avg": d["mean"], "min": d["min"], "max": d["max"], "std": d["std_dev"],
			"count": d["count"], "sum": d["total_sum"]}
	}
	n, reasons := failures(r)
	errs := []any{}
	for _, e := range reasons {
		errs = append(errs, object{"error_details": object{"type": e.Status, "message": e.Reason}, "count": e.Count})
	}
	out["error_request_count"], out["error_summary"], out["was_cancelled"] = object{"unit": "requests", "avg": n}, errs,
		false
	if r.Seed != nil {
		out["run_info"] = object{"random_seed": *r.Seed}
	}
	return out
}
