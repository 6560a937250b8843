package importer

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"

	"lorasim/bench/result"
)

// locustRow is an entry of locust's statistics (--json), of one name of requests. Times are in ms, or s since the
// epoch.
type locustRow struct {
	Requests whole            `json:"num_requests"`
	Failures whole            `json:"num_failures"`
	Total    float64          `json:"total_response_time"`
	Start    float64          `json:"start_time"`
	Last     float64          `json:"last_request_timestamp"`
	Times    map[string]whole `json:"response_times"` // number of requests by time
}

func isLocust(f fields) bool { return f.has("num_requests", "num_failures", "response_times") }

const locustNote = "locust's response time is E2E; its times and its numbers of requests include failed requests"

// locustRows are the rows of a run; each counts requests of one name.
type locustRows struct{ rows []locustRow }

func (l *locustRows) add(text []byte, _ string) error {
	var r locustRow
	err := lenient(text, &r)
	l.rows = append(l.rows, r)
	return err
}

func (l *locustRows) run() (*Imported, error) {
	m := newClient("locust", "", locustNote)
	var times []float64
	n, failed, total := 0.0, 0.0, 0.0
	start, last := math.Inf(1), 0.0
	for _, r := range l.rows {
		n, failed, total = n+float64(r.Requests), failed+float64(r.Failures), total+r.Total
		if r.Start > 0 {
			start = min(start, r.Start)
		}
		last = max(last, r.Last)
		for text, count := range r.Times {
			t, err := strconv.ParseFloat(text, 64)
			if err != nil || count < 0 || len(times)+int(count) > maxLines {
				return nil, fmt.Errorf("response_times: %q with %d requests, expected ms and at most %d requests", text,
					count, maxLines)
			}
			times = append(times, slices.Repeat([]float64{t}, int(count))...)
		}
	}
	m.Metrics.Set(result.Completed, n-failed)
	m.setEnded(n-failed, failed, n)
	if n > 0 {
		m.Metrics.Set(result.MeanE2E, total/n)
	}
	if d := last - start; d > 0 {
		m.Metrics.Set(result.Duration, d)
		m.Metrics.Set(result.RequestThroughput, (n-failed)/d)
	}
	slices.Sort(times)
	for id, p := range map[result.ID]float64{result.MedianE2E: 0.5, result.P90E2E: 0.9, result.P95E2E: 0.95,
		result.P99E2E: 0.99} {
		if len(times) > 0 {
			m.Metrics.Set(id, times[min(int(p*float64(len(times))), len(times)-1)])
		}
	}
	return m, nil
}

// readLocustTable reads locust's ..._stats.csv: the row of all requests, or the sum of its rows.
func readLocustTable(rows []map[string]string) ([]*Imported, error) {
	all := slices.IndexFunc(rows, func(r map[string]string) bool { return r["Name"] == "Aggregated" })
	if all < 0 && len(rows) == 1 {
		all = 0
	}
	if all < 0 {
		return nil, fmt.Errorf("locust's table has no row Aggregated: expected ..._stats.csv")
	}
	row := rows[all]
	value := func(name string) float64 { return result.LooseFloat(row[name]) }
	m := newClient("locust", "", locustNote)
	n, failed := value("Request Count"), value("Failure Count")
	m.Metrics.Set(result.Completed, n-failed)
	m.setEnded(n-failed, failed, n)
	for id, name := range map[result.ID]string{result.MeanE2E: "Average Response Time",
		result.MedianE2E: "Median Response Time", result.P90E2E: "90%", result.P95E2E: "95%", result.P99E2E: "99%"} {
		m.Metrics.Set(id, value(name))
	}
	if rate := value("Requests/s"); rate > 0 {
		m.Metrics.Set(result.Duration, n/rate)
		m.Metrics.Set(result.RequestThroughput, rate*(n-failed)/n)
	}
	return []*Imported{m}, nil
}

// object returns a row of a table as a JSON object.
func objectOf(row map[string]string) ([]byte, fields, error) {
	f := fields{}
	for name, text := range row {
		if text == "" || name == "" {
			continue
		}
		var err error
		if v := json.RawMessage(text); json.Valid(v) {
			f[name] = v
		} else if f[name], err = json.Marshal(text); err != nil {
			return nil, nil, err
		}
	}
	text, err := json.Marshal(f)
	return text, f, err
}
