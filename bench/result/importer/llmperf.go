package importer

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"

	"lorasim/bench/result"
	"lorasim/sim/record"
)

// isLLMPerf reports whether an object is llmperf's summary (..._summary.json), in which every figure has a key of its
// own, such as results_ttft_s_quantiles_p50.
func isLLMPerf(f fields) bool {
	return f.has("results_num_requests_started") || f.has("results_num_completed_requests")
}

var llmperfLatencies = []figure{
	{result.MeanE2E, "end_to_end_latency_s", "mean"}, {result.MeanTTFT, "ttft_s", "mean"},
	{result.MeanTPOT, "inter_token_latency_s", "mean"},
}

// llmperfStats are llmperf's names of statistics.
var llmperfStats = [6]string{"mean", "quantiles_p50", "stddev", "quantiles_p90", "quantiles_p95", "quantiles_p99"}

func readLLMPerf(_ []byte, f fields, _ string) ([]*Imported, error) {
	m := newClient("llmperf", "", "llmperf's inter-token latency is TPOT here; it is E2E / output tokens")
	value := func(name string) float64 { return number(f["results_"+name]) }
	completed, tokens := value("num_completed_requests"), value("mean_output_throughput_token_per_s")
	perSecond := value("num_completed_requests_per_min") / 60
	m.Metrics.Set(result.Completed, completed)
	m.Metrics.Set(result.RequestThroughput, perSecond)
	m.Metrics.Set(result.OutputThroughput, tokens)
	if perSecond > 0 {
		m.Metrics.Set(result.Duration, completed/perSecond)
	}
	for id, name := range map[result.ID]string{result.TotalInputTokens: "number_input_tokens",
		result.TotalOutputTokens: "number_output_tokens"} {
		m.Metrics.Set(id, math.Round(value(name+"_mean")*completed))
	}
	for _, l := range llmperfLatencies {
		of, percentiles := figures{}, figures{}
		for key, v := range f {
			if stat, ok := strings.CutPrefix(key, "results_"+l.name+"_"); ok {
				of[stat] = number(v)
				if p, isP := strings.CutPrefix(stat, "quantiles_"); isP && p != "p50" {
					percentiles[p] = number(v)
				}
			}
		}
		m.setLatency(l.metric, 1000, of, llmperfStats, percentiles)
	}
	m.Models = slices.Collect(maps.Keys(textOf(f["model"])))
	m.MaxConcurrency = int(max(number(f["num_concurrent_requests"]), 0))
	m.setEnded(completed, cmp.Or(value("number_errors"), 0), value("num_requests_started"))
	return []*Imported{m}, nil
}

// textOf returns a set of the text in a JSON value; empty if it is none.
func textOf(text json.RawMessage) map[string]bool {
	var s string
	if json.Unmarshal(text, &s) != nil || s == "" {
		return nil
	}
	return map[string]bool{s: true}
}

// setEnded sets how the requests ended: those that are neither successes nor failures did not complete.
func (m *Imported) setEnded(completed, failed, all float64) {
	if math.IsNaN(completed) {
		return
	}
	failed = max(failed, 0) // NaN if unknown
	if math.IsNaN(failed) {
		failed = 0
	}
	m.Ended = &result.Endings{Requests: int64(completed + failed), Failed: int64(failed)}
	if rest := int64(all - completed - failed); all > completed+failed {
		m.addFailures("the file does not say why", rest)
		m.Ended.Requests += rest
	}
}

// llmperfRequests are the requests of ..._individual_responses.json, without the times at which they were sent.
type llmperfRequests struct {
	m    *Imported
	recs []record.Request
}

func isLLMPerfRequest(f fields) bool {
	return f.has("end_to_end_latency_s", "ttft_s") || f.has("error_code", "number_output_tokens")
}

func (l *llmperfRequests) add(text []byte, where string) error {
	var f fields
	if err := json.Unmarshal(text, &f); err != nil {
		return err
	}
	if l.m == nil {
		l.m = newClient("llmperf", "", "llmperf does not state when it sent a request: no records, no throughput")
	}
	e2e, ttft := number(f["end_to_end_latency_s"]), number(f["ttft_s"])
	r := newRecord(len(l.recs), 0, ttft, e2e, number(f["number_input_tokens"]), number(f["number_output_tokens"]))
	code := strings.Trim(string(f["error_code"]), `"`)
	if code != "" && code != "null" && code != "0" && code != "None" {
		r.Status, r.Error, r.FirstToken = record.Failed, code, math.NaN()
	}
	l.recs = l.m.keep(l.recs, &r, where)
	return nil
}

func (l *llmperfRequests) run() (*Imported, error) {
	if l.m == nil || len(l.recs) == 0 {
		return nil, errors.New("none of its requests can be read")
	}
	l.m.Ended = l.m.derive(l.recs, func(id result.ID) bool {
		return id == result.Completed || id == result.TotalInputTokens || id == result.TotalOutputTokens ||
			id >= result.MeanE2E && id <= result.P99TPOT
	})
	return l.m, nil
}
