package importer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"lorasim/bench/result"
	"lorasim/internal/record"
)

// client writes results as JSON in a form of its own.
type client struct {
	is   func(fields map[string]json.RawMessage) bool
	read func(text []byte, add func(*Imported)) error
}

// clients are those whose files differ from the reference's JSON lines.
var clients = []client{
	{func(f map[string]json.RawMessage) bool { return f["benchmarks"] != nil }, readGuideLLM},
	{isAIPerf, readAIPerf},
	{func(map[string]json.RawMessage) bool { return true }, readLine},
}

// readJSON reads a file of JSON objects, each a run or several; the records of
// single requests that AIPerf writes are one run together.
func readJSON(r io.Reader, name string) (runs []*Imported, err error) {
	var requests aiperfRequests
	err = result.Documents(r, name, func(line int, text []byte) error {
		var fields map[string]json.RawMessage
		err := json.Unmarshal(text, &fields)
		switch {
		case err != nil:
		case fields["metadata"] != nil && fields["metrics"] != nil:
			if err = requests.add(text); len(requests.list) == 1 && err == nil {
				runs = append(runs, &Imported{File: name, Line: line}) // its place
			}
		default:
			c := clients[slices.IndexFunc(clients, func(c client) bool { return c.is(fields) })]
			err = c.read(text, func(m *Imported) {
				m.File, m.Line = name, line
				runs = append(runs, m)
			})
		}
		if err != nil {
			return result.Misplaced(name, line, text, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i, m := range runs {
		if m.Result == nil {
			if runs[i], err = requests.run(); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			runs[i].File, runs[i].Line = m.File, m.Line
		}
	}
	return runs, nil
}

// readLine reads a line of sglang, of vLLM or of this project.
func readLine(text []byte, add func(*Imported)) error {
	res, err := result.ParseJSON(text)
	if err != nil {
		return err
	}
	m := &Imported{Result: res}
	if res.Metrics == (result.Metrics{}) && res.Extra == nil {
		return errors.New("expected a result of sglang, vLLM, AIPerf, GuideLLM or lorasim: the object has none of their figures")
	}
	if d := res.Details; d != nil {
		if err := m.addDetails(d); err != nil {
			return err
		}
	}
	add(m)
	return nil
}

// addDetails takes what vLLM keeps of single requests: with --save-detailed all,
// otherwise how long each took.
func (m *Imported) addDetails(d *result.Details) error {
	n := len(d.Latencies)
	if completed, _ := m.Metrics.Get(result.Completed); n == 0 || completed == 0 {
		return nil
	}
	whole := true // all lists are there, and as long
	for _, l := range []int{len(d.InputLens), len(d.OutputLens), len(d.TTFTs), len(d.ITLs), len(d.Errors), len(d.StartTimes)} {
		whole = whole && l == n
	}
	if !whole {
		recs := make([]record.Request, n)
		for i, l := range d.Latencies {
			recs[i] = record.Request{FirstToken: math.NaN(), Finish: l}
			if l == 0 { // it never ended
				recs[i].Status = record.Failed
			}
		}
		_, err := m.derive(recs, func(k result.Metric) bool { return k >= result.MeanE2E && k <= result.P99E2E })
		return err
	}
	begin := slices.Min(d.StartTimes)
	recs := make([]record.Request, n)
	for i := range recs {
		sent := d.StartTimes[i] - begin
		recs[i] = record.Request{
			ID: int64(i), Adapter: -1, WorkerFirst: -1, WorkerLast: -1, Prompt: tokens(d.InputLens[i]), Output: tokens(d.OutputLens[i]), Requested: tokens(d.OutputLens[i]),
			Arrival: sent, Sent: sent, FirstToken: sent + d.TTFTs[i], Finish: sent + d.Latencies[i], Gaps: d.ITLs[i],
			Streamed: m.Streamed, Error: d.Errors[i],
		}
		if recs[i].Error != "" || d.Latencies[i] == 0 {
			recs[i].Status, recs[i].FirstToken = record.Failed, math.NaN()
		}
	}
	e, err := m.derive(recs, func(result.Metric) bool { return true })
	if e != nil {
		m.Records, m.Ended = recs, e
	}
	return err
}

func tokens(n int64) int32 { return int32(min(max(n, 0), math.MaxInt32)) }

// derive computes what want names, and the file does not state, from the
// requests. It returns how these ended; nil if they are not all of the run, and
// nothing was derived.
func (m *Imported) derive(recs []record.Request, want func(result.Metric) bool) (*result.Endings, error) {
	duration, _ := m.Metrics.Get(result.Duration)
	c := result.NewCollector(result.Options{Duration: duration})
	for i := range recs {
		if err := checkTimes(&recs[i]); err != nil {
			return nil, fmt.Errorf("request %d %w", i, err)
		}
		c.Done(&recs[i])
		c.AddGaps(&recs[i])
	}
	res := c.Result(result.Meta{}, nil)
	derived, _ := res.Metrics.Get(result.Completed)
	if stated, ok := m.Metrics.Get(result.Completed); ok && stated != derived {
		return nil, nil
	}
	for k := range result.NumMetrics {
		if v, ok := res.Metrics.Get(k); ok && !m.Metrics.Has(k) && want(k) && tells(k, recs) {
			m.Metrics.Set(k, v)
		}
	}
	res.Extra.CompletedSet = 0 // ids are the client's own
	return &res.Extra.Endings, nil
}

// longestRun limits the times of requests, s: a Collector counts by the second.
const longestRun = 30 * 86400

func checkTimes(r *record.Request) error {
	last := r.Finish
	if r.Finish < r.Sent {
		return fmt.Errorf("ended %g s before it was sent", r.Sent-r.Finish)
	}
	for _, g := range r.Gaps {
		last += max(g, 0)
	}
	if !(last <= longestRun) {
		return fmt.Errorf("ended %.0f s after the first was sent, expected at most %d days", last, longestRun/86400)
	}
	return nil
}

// tells says whether requests tell a metric: without a first token, or gaps,
// what comes of them is not known, where a Collector has zeros.
func tells(k result.Metric, recs []record.Request) bool {
	has := func(f func(*record.Request) bool) bool {
		return slices.ContainsFunc(recs, func(r record.Request) bool { return r.Status == record.OK && f(&r) })
	}
	switch {
	case k == result.TotalInputTextTokens || k == result.TotalOutputTokensRetokenized:
		return false // the same numbers under other names
	case k >= result.MeanITL && k <= result.MaxITL || k == result.MaxOutputTokensPerS:
		return has(func(r *record.Request) bool { return len(r.Gaps) > 0 })
	case k >= result.MeanTTFT && k <= result.P99TPOT:
		return has(func(r *record.Request) bool { return r.FirstToken > r.Sent })
	}
	return true
}

// latency is what a client states of one latency, in the unit of the block's
// rows times 1/scale; NaN is not known.
type latency struct {
	mean, median, std float64
	percentiles       map[string]float64 // by names such as p90
}

// set enters a latency whose mean is the given metric. Percentiles without a row
// go to the configuration, as vLLM's do.
func (m *Imported) setLatency(first result.Metric, scale float64, l latency) {
	m.Metrics.Set(first, l.mean*scale)
	m.Metrics.Set(first+result.Metric(result.Median), l.median*scale)
	m.Metrics.Set(first+result.Metric(result.Std), l.std*scale)
	for name, v := range l.percentiles {
		key := name + strings.TrimPrefix(first.String(), "mean")
		if k, ok := result.MetricByKey(key); ok {
			m.Metrics.Set(k, v*scale)
		} else {
			m.config(key, v*scale)
		}
	}
}

func (m *Imported) config(key string, v any) {
	if m.Config == nil {
		m.Config = map[string]any{}
	}
	m.Config[key] = v
}

// remarks are what the file does not tell, in one line, and what its client
// counts in another way.
func (m *Imported) remarks() []string {
	if miss := m.missing(); miss != "" {
		return append([]string{"not in the file: " + miss}, m.Notes...)
	}
	return m.Notes
}

var percentileKey = regexp.MustCompile(`^p([0-9.]+)_(e2e_latency|ttft|tpot|itl)_ms$`)

// percentiles lists those that the block has no row for, a line per latency.
func (m *Imported) percentiles() (lines []string) {
	type percentile struct{ p, v float64 }
	by := map[string][]percentile{}
	for key, v := range m.Config {
		k := percentileKey.FindStringSubmatch(key)
		v, isNumber := v.(float64)
		if k == nil || !isNumber {
			continue
		}
		if p, err := strconv.ParseFloat(k[1], 64); err == nil && p != 50 {
			by[k[2]] = append(by[k[2]], percentile{p, v})
		}
	}
	for _, name := range []string{"e2e_latency", "ttft", "tpot", "itl"} {
		list := by[name]
		if len(list) == 0 {
			continue
		}
		slices.SortFunc(list, func(a, b percentile) int { return int(math.Copysign(1, a.p-b.p)) })
		var parts []string
		for _, p := range list {
			parts = append(parts, fmt.Sprintf("P%g %.2f", p.p, p.v))
		}
		label := strings.ToUpper(strings.TrimSuffix(name, "_latency"))
		lines = append(lines, "also stated of "+label+" (ms): "+strings.Join(parts, ", "))
	}
	return lines
}

// missing names the rows of the block that the file does not tell: a latency of
// which it tells nothing by its name alone.
func (m *Imported) missing() string {
	optional := []result.Metric{result.TotalInputTextTokens, result.TotalInputVisionTokens, result.TotalOutputTokensRetokenized, result.AcceptLength}
	var list []string
	for _, row := range result.SGLang.Rows() {
		if row.Kind != result.MetricRow || m.Metrics.Has(row.Metric) || slices.Contains(optional, row.Metric) {
			continue
		}
		label := strings.TrimSuffix(row.Label, ":")
		if i := strings.LastIndex(label, " ("); i > 0 {
			label = label[:i]
		}
		if stat, name, ok := strings.Cut(label, " "); ok && row.Metric >= result.MeanE2E && row.Metric <= result.MaxITL && !m.Metrics.Has(meanOf(row.Metric)) {
			if stat != "Mean" {
				continue
			}
			label = name
		}
		list = append(list, label)
	}
	return strings.Join(list, ", ")
}

// meanOf is the mean of the latency that a metric is of.
func meanOf(k result.Metric) result.Metric {
	for _, mean := range []result.Metric{result.MeanITL, result.MeanTPOT, result.MeanTTFT} {
		if k >= mean {
			return mean
		}
	}
	return result.MeanE2E
}

// isNull says whether a JSON value is missing or null.
func isNull(text json.RawMessage) bool {
	return len(text) == 0 || bytes.Equal(text, []byte("null"))
}
