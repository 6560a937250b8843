package importer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"

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
	Metrics   *guideMetrics
	Requests  struct {
		Successful, Errored, Incomplete []guideRequest
	}
}

type guideStrategy struct {
	Type           string `json:"type_"`
	Rate           *float64
	Streams        *int
	MaxConcurrency *int `json:"max_concurrency"`
}

// guideMetrics are those of the block; of requests that succeeded, beside others.
type guideMetrics struct {
	Totals *struct {
		Successful, Errored, Incomplete int64
	} `json:"request_totals"`
	Requests    guideStats `json:"requests_per_second"`
	Concurrency guideStats `json:"request_concurrency"`
	E2E         guideStats `json:"request_latency"` // s
	TTFT        guideStats `json:"time_to_first_token_ms"`
	TPOT        guideStats `json:"time_per_output_token_ms"`
	ITL         guideStats `json:"inter_token_latency_ms"`
	Prompt      guideStats `json:"prompt_token_count"`
	Output      guideStats `json:"output_token_count"`
	PromptRate  guideStats `json:"prompt_tokens_per_second"`
	OutputRate  guideStats `json:"output_tokens_per_second"`
	TokenRate   guideStats `json:"tokens_per_second"`
}

type guideStats struct {
	Successful *struct {
		Mean, Median, Max *float64
		Std               *float64 `json:"std_dev"`
		Sum               *float64 `json:"total_sum"`
		Count             int64
		Percentiles       map[string]*float64
	}
}

// guideRequest is one request; the times are Unix seconds.
type guideRequest struct {
	Args  string   `json:"request_args"`
	Start *float64 `json:"request_start_time"`
	End   *float64 `json:"request_end_time"`
	TTFT  *float64 `json:"time_to_first_token_ms"`
	Input *int64   `json:"prompt_tokens"`
	Out   *int64   `json:"output_tokens"`
	Info  struct {
		Error   *string
		Timings struct {
			Targeted *float64 `json:"targeted_start"`
		}
	}
	OldStart *float64 `json:"start_time"` // before 0.4
	OldEnd   *float64 `json:"end_time"`
}

const guideTPOT = "GuideLLM's TPOT counts the first token, as time over tokens; its percentiles of TPOT and ITL weigh each request's mean by its tokens"

func readGuideLLM(text []byte, add func(*Imported)) error {
	var g guideReport
	if err := json.Unmarshal(text, &g); err != nil {
		return err
	}
	for i := range g.Benchmarks {
		b := &g.Benchmarks[i]
		if b.Metrics == nil {
			return fmt.Errorf("benchmarks[%d] has no metrics, expected those of GuideLLM", i)
		}
		m := &Imported{Result: &result.Result{Meta: result.Meta{Source: result.Log}}, Context: Context{Client: "GuideLLM"}}
		if v := g.Metadata.Version; v != "" {
			m.Client += " " + v
		}
		m.Notes = []string{guideTPOT}
		b.describe(m)
		b.setMetrics(m)
		if err := b.setRecords(m); err != nil {
			return fmt.Errorf("benchmarks[%d]: %w", i, err)
		}
		add(m)
	}
	return nil
}

// describe enters what was run.
func (b *guideBenchmark) describe(m *Imported) {
	m.Backend = b.Config.Backend.Kind
	if name := b.Config.Backend.Model; name != "" {
		m.Models = []string{name}
	}
	if s := b.Config.Backend.Stream; s != nil {
		m.Streamed = record.StreamingIf(*s)
	}
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
		limit = deref(s.Streams)
	case "throughput":
		limit = deref(s.MaxConcurrency)
	case "trace":
		m.RequestRate = result.TraceRate
	default:
		if m.RequestRate = 0; s.Rate != nil && *s.Rate > 0 {
			m.RequestRate = result.Rate(*s.Rate)
		}
	}
	m.MaxConcurrency = max(limit, 0)
}

// setMetrics enters the figures of the requests that succeeded.
func (b *guideBenchmark) setMetrics(m *Imported) {
	g := b.Metrics
	switch {
	case b.Duration != nil:
		m.Metrics.Set(result.Duration, *b.Duration)
	case b.End > b.Start:
		m.Metrics.Set(result.Duration, b.End-b.Start)
	}
	if t := g.Totals; t != nil {
		m.Metrics.Set(result.Completed, float64(t.Successful))
		m.Ended = &result.Endings{Requests: t.Successful + t.Errored + t.Incomplete, Failed: t.Errored, Unfinished: t.Incomplete}
	} else if s := g.E2E.Successful; s != nil {
		m.Metrics.Set(result.Completed, float64(s.Count))
	}
	for k, s := range map[result.Metric]*guideStats{
		result.RequestThroughput: &g.Requests, result.InputThroughput: &g.PromptRate, result.OutputThroughput: &g.OutputRate,
		result.TotalThroughput: &g.TokenRate, result.Concurrency: &g.Concurrency,
	} {
		if s.Successful != nil {
			m.Metrics.Set(k, number(s.Successful.Mean))
		}
	}
	if s := g.Concurrency.Successful; s != nil {
		m.Metrics.Set(result.MaxConcurrentRequests, number(s.Max))
	}
	for k, s := range map[result.Metric]*guideStats{result.TotalInputTokens: &g.Prompt, result.TotalOutputTokens: &g.Output} {
		if s.Successful != nil {
			m.Metrics.Set(k, math.Round(number(s.Successful.Sum))) // 107.00000000000001
		}
	}
	for k, s := range map[result.Metric]*guideStats{result.MeanE2E: &g.E2E, result.MeanTTFT: &g.TTFT, result.MeanTPOT: &g.TPOT, result.MeanITL: &g.ITL} {
		q := s.Successful
		if q == nil || q.Count == 0 { // GuideLLM has zeros for what it did not see
			continue
		}
		scale := 1.0
		if k == result.MeanE2E {
			scale = 1000
		}
		l := latency{mean: number(q.Mean), median: number(q.Median), std: number(q.Std), percentiles: map[string]float64{}}
		for name, v := range q.Percentiles {
			if p := guidePercentiles[name]; p != "" {
				l.percentiles[p] = number(v)
			}
		}
		m.setLatency(k, scale, l)
	}
}

// guidePercentiles are GuideLLM's names of percentiles; the median has a field.
var guidePercentiles = map[string]string{"p001": "p0.1", "p01": "p1", "p05": "p5", "p10": "p10", "p25": "p25", "p75": "p75",
	"p90": "p90", "p95": "p95", "p99": "p99", "p999": "p99.9"}

// setRecords enters the requests, in the order in which they were sent. The file
// may have a sample of them alone.
func (b *guideBenchmark) setRecords(m *Imported) error {
	index := map[string]int32{}
	for status, list := range map[record.Status][]guideRequest{
		record.OK: b.Requests.Successful, record.Failed: b.Requests.Errored, record.Unfinished: b.Requests.Incomplete,
	} {
		for i := range list {
			if r, ok := list[i].record(status); ok {
				r.Adapter = m.adapter(list[i].model(), index)
				r.Streamed = m.Streamed
				m.Records = append(m.Records, r)
			}
		}
	}
	slices.SortFunc(m.Records, func(a, b record.Request) int {
		return cmp.Or(cmp.Compare(a.Sent, b.Sent), cmp.Compare(a.Finish, b.Finish))
	})
	if len(m.Records) == 0 {
		return nil
	}
	begin := m.Records[0].Sent
	for i := range m.Records {
		r := &m.Records[i]
		begin = min(begin, r.Arrival)
		r.ID = int64(i)
	}
	for i := range m.Records {
		r := &m.Records[i]
		r.Arrival, r.Sent, r.FirstToken, r.Finish = r.Arrival-begin, r.Sent-begin, r.FirstToken-begin, r.Finish-begin
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

// adapter is the index of the model that a request names.
func (m *Imported) adapter(model string, index map[string]int32) int32 {
	if model == "" {
		return -1
	}
	i, ok := index[model]
	if !ok {
		i = int32(len(m.Adapters))
		index[model] = i
		m.Adapters = append(m.Adapters, trace.Adapter{Name: model})
	}
	return i
}

// record is the fate of a request, in Unix time; false if it was never sent.
func (q *guideRequest) record(status record.Status) (record.Request, bool) {
	start, end := cmp.Or(q.Start, q.OldStart), cmp.Or(q.End, q.OldEnd)
	if start == nil || end == nil || *end < *start {
		return record.Request{}, false
	}
	r := record.Request{WorkerFirst: -1, WorkerLast: -1, Status: status, Arrival: *start, Sent: *start, Finish: *end, FirstToken: *start + number(q.TTFT)/1000,
		Prompt: tokens(deref(q.Input)), Output: tokens(deref(q.Out)), Requested: tokens(deref(q.Out)), Error: deref(q.Info.Error)}
	if t := q.Info.Timings.Targeted; t != nil && *t < *start {
		r.Arrival = *t
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
