package importer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"lorasim/bench/result"
	"lorasim/sim/record"
	"lorasim/trace"
)

// guideReport is GuideLLM's JSON report. It has a benchmark for each strategy, as in a
// sweep over rates.
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
	Args      struct{ Strategy guideStrategy } // in versions before 0.4
	Scheduler struct{ Strategy guideStrategy }
	Stats     struct {
		Successful whole                                           `json:"total_successful"`
		Errored    whole                                           `json:"total_errored"`
		Incomplete whole                                           `json:"total_incomplete"`
		Made       struct{ Successful, Errored, Incomplete whole } `json:"requests_made"`
	} `json:"run_stats"` // before 0.4
	Duration *float64
	Start    float64 `json:"start_time"`
	End      float64 `json:"end_time"`
	Metrics  json.RawMessage
	Requests struct {
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
	Input whole    `json:"prompt_tokens"`
	Out   whole    `json:"output_tokens"`
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

func readGuideLLM(text []byte, _ fields, where string) (runs []*Imported, err error) {
	var g guideReport
	if err := lenient(text, &g); err != nil {
		return nil, err
	}
	for i := range g.Benchmarks {
		b := &g.Benchmarks[i]
		if b.Metrics == nil {
			return nil, fmt.Errorf("benchmarks[%d] has no metrics, expected those of GuideLLM", i)
		}
		m := newClient("GuideLLM", g.Metadata.Version, guideTPOT)
		b.describe(m)
		m.define("GuideLLM")
		if err := b.setMetrics(m); err != nil {
			return nil, err
		}
		b.setRecords(m, fmt.Sprintf("%s: benchmarks[%d]", where, i))
		runs = append(runs, m)
	}
	return runs, nil
}

// describe sets the configuration of the run.
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

// guideCap is the concurrency in GuideLLM's report if no limit was set.
const guideCap = 10240

var guideFigures = []figure{
	{result.RequestThroughput, "requests_per_second", "mean"}, {result.InputThroughput, "prompt_tokens_per_second",
		"mean"},
	{result.OutputThroughput, "output_tokens_per_second", "mean"}, {result.TotalThroughput, "tokens_per_second",
		"mean"},
	{result.Concurrency, "request_concurrency", "mean"}, {result.MaxConcurrentRequests, "request_concurrency", "max"},
	{result.TotalInputTokens, "prompt_token_count", "total_sum"}, {result.TotalOutputTokens, "output_token_count",
		"total_sum"},
	{result.MeanE2E, "request_latency", "mean"}, {result.MeanTTFT, "time_to_first_token_ms", "mean"},
	{result.MeanTPOT, "time_per_output_token_ms", "mean"}, {result.MeanITL, "inter_token_latency_ms", "mean"},
}

// setMetrics sets the metrics of the successful requests.
func (b *guideBenchmark) setMetrics(m *Imported) error {
	var totals struct {
		Requests *struct {
			Successful, Errored, Incomplete whole
		} `json:"request_totals"`
	}
	var metrics map[string]any
	if err := cmp.Or(lenient(b.Metrics, &totals), json.Unmarshal(b.Metrics, &metrics)); err != nil {
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
		m.Ended = &result.Endings{Requests: int64(t.Successful + t.Errored + t.Incomplete), Failed: int64(t.Errored),
			Unfinished: int64(t.Incomplete)}
	} else {
		b.setTotals(m, successful("request_latency").number("count"))
	}
	for _, f := range guideFigures {
		s := successful(f.name)
		switch v := s.number(f.field); {
		case !isLatency(f.metric):
			if f.metric.Metric().Int {
				v = math.Round(v) // 107.00000000000001
			}
			m.Metrics.Set(f.metric, v)
		case s.number("count") > 0: // GuideLLM writes zeros for what it did not measure
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

// setTotals sets the numbers of requests of early versions, which state them as run_stats, with those of the warm-up.
func (b *guideBenchmark) setTotals(m *Imported, count float64) {
	s := &b.Stats
	completed, errored := max(s.Successful, s.Made.Successful), max(s.Errored, s.Made.Errored)
	incomplete := max(s.Incomplete, s.Made.Incomplete)
	if math.IsNaN(count) {
		count = float64(completed)
	}
	m.Metrics.Set(result.Completed, count)
	if done := int64(count); errored+incomplete > 0 {
		m.Ended = &result.Endings{Requests: done + int64(errored+incomplete), Failed: int64(errored),
			Unfinished: int64(incomplete)}
	}
}

// guidePercentiles are GuideLLM's names of percentiles. The median has its own field.
var guidePercentiles = map[string]string{"p001": "p0.1", "p01": "p1", "p05": "p5", "p10": "p10", "p25": "p25",
	"p75": "p75",
	"p90": "p90", "p95": "p95", "p99": "p99", "p999": "p99.9"}

// setRecords sets the records of the requests, in the order in which they were sent. The
// file may have only a sample of the requests.
func (b *guideBenchmark) setRecords(m *Imported, where string) {
	index := map[string]int32{"": -1} // of models
	for _, of := range []struct {
		status record.Status
		list   []guideRequest
	}{{record.OK, b.Requests.Successful}, {record.Failed, b.Requests.Errored},
		{record.Unfinished, b.Requests.Incomplete}} {
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
	begin := math.Inf(1)
	for _, r := range m.Records {
		begin = min(begin, r.Arrival)
	}
	all := m.Records
	m.Records = nil
	for i := range all {
		r := &all[i]
		r.ID, r.Arrival, r.Sent, r.FirstToken, r.Finish = int64(i), r.Arrival-begin, r.Sent-begin, r.FirstToken-begin,
			r.Finish-begin
		m.Records = m.keep(m.Records, r, fmt.Sprintf("%s: request %d by the time of sending", where, i))
	}
	if len(m.Records) == 0 {
		return
	}
	e := m.derive(m.Records, func(result.ID) bool { return false })
	switch {
	case e == nil:
		m.Notes = append(m.Notes, fmt.Sprintf("the file has %d of the requests, a sample", len(m.Records)))
	case m.Left.Rows() == 0:
		m.Ended = e
	}
}

// record returns the record of a request, in Unix time; false if it was never sent.
func (q *guideRequest) record() (record.Request, bool) {
	start, end := cmp.Or(q.Start, q.OldStart), cmp.Or(q.End, q.OldEnd)
	if start == nil || end == nil {
		return record.Request{}, false
	}
	r := newRecord(0, *start, *start+or(q.TTFT, math.NaN())/1000, *end, float64(q.Input), float64(q.Out))
	r.Error = q.Info.Error
	if t := q.Info.Timings.Targeted; t != nil {
		r.Arrival = min(*t, *start)
	}
	return r, true
}

// model returns the model in the request's arguments, which are JSON in a string.
func (q *guideRequest) model() string {
	var args struct{ Body struct{ Model string } }
	if json.Unmarshal([]byte(q.Args), &args) != nil {
		return ""
	}
	return args.Body.Model
}
