package importer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"

	"lorasim/bench/result"
	"lorasim/internal/record"
	"lorasim/trace"
)

// isAIPerf says whether an object is a summary of AIPerf, or of GenAI-Perf before
// it: fields are metrics with a unit each.
func isAIPerf(fields map[string]json.RawMessage) bool {
	isMetric := func(name string) bool {
		var f figures
		return json.Unmarshal(fields[name], &f) == nil && f["unit"] != nil
	}
	return isMetric("request_latency") || isMetric("request_throughput") || fields["aiperf_version"] != nil ||
		fields["records"] != nil && fields["input_config"] != nil
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
	parts := []string{e.Type, e.Message}
	if e.Code != nil {
		parts = slices.Insert(parts, 0, fmt.Sprint(*e.Code))
	}
	return joinKnown(" ", parts...)
}

const aiperfLatencies = "AIPerf's inter-token latency, the mean of each request, is TPOT here; its inter-chunk latency is ITL"

var aiperfFigures = []figure{
	{result.Completed, "request_count", "avg"}, {result.Duration, "benchmark_duration", "avg"},
	{result.RequestThroughput, "request_throughput", "avg"}, {result.Concurrency, "effective_concurrency", "avg"},
	{result.TotalInputTokens, "total_isl", "avg"}, {result.TotalOutputTokens, "total_osl", "avg"},
	{result.InputThroughput, "input_token_throughput", "avg"}, {result.OutputThroughput, "output_token_throughput", "avg"},
	{result.TotalThroughput, "total_token_throughput", "avg"}, {result.MaxITL, "inter_chunk_latency", "max"},
	{result.MeanE2E, "request_latency", "avg"}, {result.MeanTTFT, "time_to_first_token", "avg"},
	{result.MeanTPOT, "inter_token_latency", "avg"}, {result.MeanITL, "inter_chunk_latency", "avg"},
}

func readAIPerf(text []byte, fields map[string]json.RawMessage) ([]*Imported, error) {
	var s aiperfSummary
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, err
	}
	if s.Records != nil {
		fields = s.Records
	}
	m := newClient("AIPerf", s.Version, aiperfLatencies)
	s.Input.describe(m)
	for _, f := range aiperfFigures {
		if err := m.setAIPerf(f, fields[f.name]); err != nil {
			return nil, fmt.Errorf("field %s: %w", f.name, err)
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
	return []*Imported{m}, nil
}

var percentileName = regexp.MustCompile(`^p[0-9.]+$`)

// setAIPerf enters what a summary states of a metric.
func (m *Imported) setAIPerf(f figure, text json.RawMessage) error {
	if len(text) == 0 || bytes.Equal(text, []byte("null")) {
		return nil
	}
	var a figures
	if err := json.Unmarshal(text, &a); err != nil {
		return err
	}
	scale := 1.0
	d := f.metric.Descriptor()
	if d.Unit == "ms" || d.Unit == "s" {
		unit, _ := a["unit"].(string)
		s, err := timeScale(unit, d.Unit)
		if err != nil {
			return err
		}
		scale = s
	}
	v := a.number(f.field)
	if d.Int && !math.IsNaN(v) && v != math.Trunc(v) {
		return fmt.Errorf("%s is %v, expected a whole number", f.field, v)
	}
	m.Metrics.Set(f.metric, v*scale)
	if isLatency(f.metric) {
		percentiles := map[string]float64{}
		for name := range a {
			if percentileName.MatchString(name) {
				percentiles[name] = a.number(name)
			}
		}
		m.setLatency(f.metric, scale, a, "avg", "p50", "std", percentiles)
	}
	return nil
}

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
func (q *aiperfRequest) parse(text []byte) (err error) {
	if err := json.Unmarshal(text, q); err != nil {
		return err
	}
	if q.Metadata.Start <= 0 || q.Metadata.End < q.Metadata.Start {
		return fmt.Errorf("metadata: request_start_ns is %d and request_end_ns %d, expected times of which the second is not the earlier", q.Metadata.Start, q.Metadata.End)
	}
	ms := &q.Metrics
	if ms.Latency.scale, err = timeScale(ms.Latency.Unit, "s"); err != nil {
		return err
	}
	if ms.TTFT.scale, err = timeScale(ms.TTFT.Unit, "s"); err != nil {
		return err
	}
	ms.Gaps.scale, err = timeScale(ms.Gaps.Unit, "s")
	return err
}

// setRequests makes one run of requests; those of the warm-up do not count.
func (m *Imported) setRequests(list []aiperfRequest) (err error) {
	list = slices.DeleteFunc(list, func(r aiperfRequest) bool { return r.Metadata.Phase == "warmup" })
	begin, streamed := int64(math.MaxInt64), false
	for i := range list {
		begin = min(begin, list[i].Metadata.Start)
	}
	end, first := 0.0, math.Inf(1) // of successful requests, as AIPerf counts
	for i := range list {
		r := list[i].record(i, begin)
		m.Records = append(m.Records, r)
		if r.Status == record.OK {
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
	// Its gaps are those between chunks, of several tokens at times.
	m.Ended, err = m.derive(m.Records, func(k result.Metric) bool { return k != result.MaxOutputTokensPerS })
	return err
}

// record is the fate of a request, with times since begin.
func (q *aiperfRequest) record(id int, begin int64) record.Request {
	ms := &q.Metrics
	sent, finish := float64(q.Metadata.Start-begin)/1e9, float64(q.Metadata.End-begin)/1e9
	if ms.Latency.Value != nil {
		finish = sent + *ms.Latency.Value*ms.Latency.scale
	}
	out := newRecord(id, sent, sent+number(ms.TTFT.Value)*ms.TTFT.scale, finish, deref(ms.Input.Value), deref(ms.Output.Value))
	for _, v := range deref(ms.Gaps.Value) {
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
		limit = s.MaxConcurrency
	case "trace":
		m.RequestRate = result.TraceRate
	default:
		m.RequestRate = result.Rate(max(s.Rate, 0))
	}
	m.MaxConcurrency = max(limit, 0)
}

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
		Totals *struct {
			Successful, Errored, Incomplete int64
		} `json:"request_totals"`
	}
	var metrics map[string]any
	if err := cmp.Or(json.Unmarshal(b.Metrics, &totals), json.Unmarshal(b.Metrics, &metrics)); err != nil {
		return err
	}
	successful := func(name string) figures {
		of, _ := metrics[name].(map[string]any)
		f, _ := of["successful"].(map[string]any)
		return f
	}
	switch {
	case b.Duration != nil:
		m.Metrics.Set(result.Duration, *b.Duration)
	case b.End > b.Start:
		m.Metrics.Set(result.Duration, b.End-b.Start)
	}
	if t := totals.Totals; t != nil {
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
			stated, _ := s["percentiles"].(map[string]any)
			percentiles := map[string]float64{}
			for name := range stated {
				if p := guidePercentiles[name]; p != "" {
					percentiles[p] = figures(stated).number(name)
				}
			}
			m.setLatency(f.metric, scale, s, "mean", "median", "std_dev", percentiles)
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
	r := newRecord(0, *start, *start+number(q.TTFT)/1000, *end, float64(q.Input), float64(q.Out))
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

// number is NaN where nothing is stated.
func number(v *float64) float64 {
	if v == nil {
		return math.NaN()
	}
	return *v
}

// deref is zero where nothing is stated.
func deref[T any](v *T) (zero T) {
	if v == nil {
		return zero
	}
	return *v
}
