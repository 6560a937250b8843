package importer

import (
	"encoding/json"
	"fmt"
	"math"

	"lorasim/bench/result"
)

// failureNames are the names under which clients state the requests that did not succeed: as a number, as a list with
// a text for each request, or as numbers by reason.
var failureNames = []string{"failed", "failures", "errors", "errored", "num_failed", "failed_requests",
	"num_failed_requests", "num_failures", "num_errors", "error_count", "error_requests", "failure_count"}

// totalNames are the names under which clients state how many requests they were told to send.
var totalNames = []string{"num_prompts", "total_requests", "num_requests"}

// rateNames are the names of shares of requests.
var rateNames = []struct {
	name    string
	success bool
}{{"error_rate", false}, {"failure_rate", false}, {"success_rate", true}}

// setFailures counts the requests that did not succeed, however the file states them. A run with failures must not
// look like one without: requests that are neither successes nor failures count as failed.
func (m *Imported) setFailures(f fields) {
	failed, stated := 0.0, false
	for _, name := range failureNames {
		if n := failuresIn(f[name]); !math.IsNaN(n) {
			failed, stated = max(failed, n), true
		}
	}
	total := math.NaN()
	for _, name := range totalNames {
		if n := number(f[name]); math.IsNaN(total) && n > 0 {
			total = n
		}
	}
	completed, known := m.Metrics.Get(result.Completed)
	for _, r := range rateNames {
		share := number(f[r.name])
		if math.IsNaN(share) || stated {
			continue
		}
		if share > 1 {
			share /= 100
		}
		if r.success {
			share = 1 - share
		}
		all := total
		if math.IsNaN(all) && share < 1 {
			all = completed / (1 - share)
		}
		if n := math.Round(share * all); n >= 0 {
			failed, stated = n, true
		}
	}
	switch {
	case !known && failed > 0:
		m.Notes = append(m.Notes,
			fmt.Sprintf("%.0f requests failed; the file does not state how many succeeded", failed))
	case !known:
	case stated:
		m.Ended = &result.Endings{Requests: int64(completed + failed), Failed: int64(failed)}
	case total > completed:
		m.Ended = &result.Endings{Requests: int64(total), Failed: int64(total - completed), Reasons: []result.Reason{{
			Status: "not completed", Reason: "the file does not say why", Count: int64(total - completed)}}}
	}
}

// failuresIn returns the number of failures that a JSON value states; NaN if it states none.
func failuresIn(text json.RawMessage) float64 {
	var v any
	if len(text) == 0 || json.Unmarshal(text, &v) != nil {
		return math.NaN()
	}
	n := 0.0
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			if isError(e) {
				n++
			}
		}
	case map[string]any:
		for _, e := range v {
			if x, ok := e.(float64); ok {
				n += x
			}
		}
	default:
		n = result.LooseFloat(v)
	}
	if !(n >= 0 && n < 1<<53) {
		return math.NaN()
	}
	return n
}

// isError reports whether a value in a list of errors is one.
func isError(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case string:
		return v != ""
	case bool:
		return v
	case float64:
		return v != 0
	case map[string]any:
		return len(v) > 0
	case []any:
		return len(v) > 0
	}
	return true
}
