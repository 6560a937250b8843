package importer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"lorasim/bench/result"
	"lorasim/internal/atomicfile"
	"lorasim/internal/format"
	"lorasim/internal/suggest"
	"lorasim/sim/record"
)

// readJSON reads a file of JSON objects. An object holds one run or several. AIPerf's
// objects of single requests form one run together.
func readJSON(r io.Reader, name string) (runs []*Imported, err error) {
	var requests []aiperfRequest
	place := -1 // index of their run
	err = result.Documents(r, name, func(line int, text []byte) error {
		var fields map[string]json.RawMessage
		var found []*Imported
		err := json.Unmarshal(text, &fields)
		switch {
		case err != nil:
		case fields["metadata"] != nil && fields["metrics"] != nil:
			var q aiperfRequest
			if err = q.parse(text); place < 0 {
				place, found = len(runs), []*Imported{newClient("AIPerf", "", aiperfLatencies)}
			}
			requests = append(requests, q)
		case fields["benchmarks"] != nil:
			found, err = readGuideLLM(text)
		case fields["benchmark_time_seconds"] != nil && fields["successes"] != nil:
			found, err = readInferencePerf(text)
		case isAIPerf(fields):
			found, err = readAIPerf(text, fields)
		default:
			found, err = readLine(text)
		}
		if err != nil {
			return result.Misplaced(name, line, text, err)
		}
		for _, m := range found {
			m.File, m.Line = name, line
		}
		runs = append(runs, found...)
		return nil
	})
	if err == nil && place >= 0 {
		if err = runs[place].setRequests(requests); err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
	}
	if err != nil {
		return nil, err
	}
	return runs, nil
}

// newClient returns a run of a client whose definitions differ from the reference
// benchmark's; note describes how.
func newClient(name, version, note string) *Imported {
	if version != "" {
		name += " " + version
	}
	return &Imported{
		Result: &result.Result{Meta: result.Meta{Source: result.Log}}, Context: Context{Client: name},
		Notes: []string{note},
	}
}

// readLine reads a line of sglang, vLLM or lorasim.
func readLine(text []byte) ([]*Imported, error) {
	res, err := result.ParseJSON(text)
	if err != nil {
		return nil, err
	}
	m := &Imported{Result: res}
	if res.Metrics == (result.Metrics{}) && res.Extra == nil {
		return nil, errors.New("expected a result of sglang, vLLM, AIPerf, GuideLLM, inference-perf or lorasim: the object has none of their figures")
	}
	if d := res.Details; d != nil {
		err = m.addDetails(d)
	}
	return []*Imported{m}, err
}

// addDetails adds vLLM's arrays of single requests. With --save-detailed they are complete,
// otherwise they have only the E2E latencies.
func (m *Imported) addDetails(d *result.Details) error {
	n := len(d.Latencies)
	if completed, _ := m.Metrics.Get(result.Completed); n == 0 || completed == 0 {
		return nil
	}
	whole := true // all arrays are present and have the same length
	for _, l := range []int{len(d.InputLens), len(d.OutputLens), len(d.TTFTs), len(d.ITLs), len(d.Errors),
		len(d.StartTimes)} {
		whole = whole && l == n
	}
	begin := 0.0
	if whole {
		begin = slices.Min(d.StartTimes)
	}
	recs := make([]record.Request, n)
	for i, latency := range d.Latencies {
		r := &recs[i]
		*r = record.Request{FirstToken: math.NaN(), Finish: latency}
		if whole {
			sent := d.StartTimes[i] - begin
			*r = newRecord(i, sent, sent+d.TTFTs[i], sent+latency, float64(d.InputLens[i]), float64(d.OutputLens[i]))
			r.Gaps, r.Streamed, r.Error = d.ITLs[i], m.Streamed, d.Errors[i]
		}
		if latency == 0 || r.Error != "" { // it never ended
			r.Status, r.FirstToken = record.Failed, math.NaN()
		}
	}
	e, err := m.derive(recs, func(k result.ID) bool { return whole || k >= result.MeanE2E && k <= result.P99E2E })
	if e != nil && whole {
		m.Records, m.Ended = recs, e
	}
	return err
}

// newRecord returns the record of a request that was sent on time and succeeded. Times are
// in seconds, input and output in tokens.
func newRecord(id int, sent, first, finish, input, output float64) record.Request {
	tokens := func(n float64) int32 { return int32(min(max(n, 0), math.MaxInt32)) }
	return record.Request{
		ID: int64(id), Adapter: -1, WorkerFirst: -1, WorkerLast: -1, Arrival: sent, Sent: sent, FirstToken: first,
		Finish: finish,
		Prompt: tokens(input), Output: tokens(output), Requested: tokens(output),
	}
}

// derive computes metrics from the requests: those that the file lacks and for which want
// returns true. It returns the counts of how requests ended. If recs are not all requests
// of the run, it derives nothing and returns nil.
func (m *Imported) derive(recs []record.Request, want func(result.ID) bool) (*result.Endings, error) {
	duration, _ := m.Metrics.Get(result.Duration)
	c := result.NewCollector(result.Options{Duration: duration})
	gaps, text := false, false
	for i := range recs {
		r := &recs[i]
		if err := checkTimes(r); err != nil {
			return nil, fmt.Errorf("request %d %w", i, err)
		}
		c.Done(r)
		c.AddGaps(r)
		gaps = gaps || r.Status == record.OK && len(r.Gaps) > 0
		text = text || r.Status == record.OK && r.FirstToken > r.Sent
	}
	res := c.Result(result.Meta{}, nil)
	derived, _ := res.Metrics.Get(result.Completed)
	if stated, ok := m.Metrics.Get(result.Completed); ok && stated != derived {
		return nil, nil
	}
	for k := range result.NumMetrics {
		known := true // a Collector has zeros for what requests lack
		switch {
		case k == result.TotalInputTextTokens || k == result.TotalOutputTokensRetokenized:
			known = false // the same numbers under other names
		case k >= result.MeanITL && k <= result.MaxITL || k == result.MaxOutputTokensPerS:
			known = gaps
		case k >= result.MeanTTFT && k <= result.P99TPOT:
			known = text
		}
		if v, ok := res.Metrics.Get(k); ok && known && want(k) && !m.Metrics.Has(k) {
			m.Metrics.Set(k, v)
		}
	}
	res.Extra.CompletedSet = 0 // ids are the client's own
	return &res.Extra.Endings, nil
}

// longestRun limits the times of requests, s, since a Collector has counters for each
// second.
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

// figure is the place of a metric in a client's file: a field of the figures with the
// given name. For a latency, the metric is its mean; other statistics are beside it.
type figure struct {
	metric      result.ID
	name, field string
}

// figures are numbers by name. Percentiles have names such as p99.
type figures map[string]any

// number returns the number of the given name; NaN if there is none.
func (f figures) number(name string) float64 {
	if v, ok := f[name].(float64); ok {
		return v
	}
	return math.NaN()
}

var percentileName = regexp.MustCompile(`^p[0-9.]+$`)

// percentiles returns the percentiles among the figures.
func (f figures) percentiles() figures {
	of := figures{}
	for name, v := range f {
		if percentileName.MatchString(name) {
			of[name] = v
		}
	}
	return of
}

// setLatency sets the metrics of a latency whose mean is the given metric. scale converts
// the figures to the unit of the block's rows. names are the names of mean, median and
// standard deviation among the figures. Percentiles without a row in the block go to the
// configuration, as vLLM's do.
func (m *Imported) setLatency(mean result.ID, scale float64, f figures, names [6]string, percentiles figures) {
	for stat, name := range names[:3] {
		m.Metrics.Set(mean+result.ID(stat), f.number(name)*scale)
	}
	for _, name := range slices.Sorted(maps.Keys(percentiles)) {
		key := name + mean.String()[len("mean"):]
		if k, ok := result.IDOf(key); ok {
			m.Metrics.Set(k, percentiles.number(name)*scale)
		} else {
			m.SetConfig(key, percentiles.number(name)*scale)
		}
	}
}

// addFailures counts n failed requests with a reason.
func (m *Imported) addFailures(reason string, n int64) {
	m.Ended.Failed += n
	m.Ended.Reasons = append(m.Ended.Reasons, result.Reason{Status: record.Failed.String(), Reason: reason, Count: n})
}

// or returns *stated, or v if stated is nil.
func or[T any](stated *T, v T) T {
	if stated == nil {
		return v
	}
	return *stated
}

// isLatency reports whether a metric is the mean of a latency.
func isLatency(k result.ID) bool {
	return k == result.MeanE2E || k == result.MeanTTFT || k == result.MeanTPOT || k == result.MeanITL
}

// exports are the functions that convert a run to other benchmarks' formats.
var exports = map[string]func(*result.Result) any{"aiperf": toAIPerf, "guidellm": toGuideLLM,
	"inference-perf": toInferencePerf}

// ParseExport splits FORMAT:FILE. The format is aiperf, guidellm or inference-perf; any
// other is an error.
func ParseExport(spec string) (form, file string, err error) {
	form, file, ok := strings.Cut(spec, ":")
	if known := slices.Sorted(maps.Keys(exports)); !ok || file == "" {
		return "", "", fmt.Errorf("%q, expected FORMAT:FILE with a format of %s", spec, strings.Join(known, ", "))
	} else if err := suggest.Among("format", form, known); err != nil {
		return "", "", err
	}
	return form, file, nil
}

// Export writes a run to a file in the format of another benchmark: AIPerf's summary
// (profile_export_aiperf.json), GuideLLM's report, or inference-perf's
// summary_lifecycle_metrics.json. spec is FORMAT:FILE, as in ParseExport. Reading the file
// gives the same metrics, as far as that benchmark has them. It is an error if the run's
// records were not kept.
func Export(spec string, r *result.Result) error {
	form, file, err := ParseExport(spec)
	if err != nil {
		return err
	}
	if completed, _ := r.Metrics.Get(result.Completed); int(completed) > len(r.Counted()) {
		return errors.New("export needs the records of the run, which were not kept")
	}
	counted := *r
	counted.Records = r.Counted()
	return atomicfile.Write(file, func(w *atomicfile.File) error {
		return format.JSON(io.Writer(w), exports[form](&counted), "  ")
	})
}

type object = map[string]any

// succeeded returns the values of f for the successful requests, without NaN.
func succeeded(r *result.Result, f func(*record.Request) float64) (values []float64) {
	for i := range r.Records {
		if q := &r.Records[i]; q.Status == record.OK {
			if v := f(q); !math.IsNaN(v) {
				values = append(values, v)
			}
		}
	}
	return values
}

func promptOf(q *record.Request) float64 { return float64(q.Prompt) }
func outputOf(q *record.Request) float64 { return float64(q.Output) }

// latencyOf returns the values of a latency by request, in s. For ITL, which has no values
// by request, it returns those of TPOT. A client that does not stream has only E2E.
func latencyOf(r *result.Result, mean result.ID) []float64 {
	if mean != result.MeanE2E && r.Streamed == record.NotStreamed {
		return nil
	}
	switch mean {
	case result.MeanE2E:
		return succeeded(r, (*record.Request).E2E)
	case result.MeanTTFT:
		return succeeded(r, (*record.Request).TTFT)
	case result.MeanTPOT, result.MeanITL, result.MaxITL:
		return succeeded(r, func(q *record.Request) float64 {
			if q.Output < 2 {
				return math.NaN()
			}
			return (q.Finish - q.FirstToken) / float64(q.Output-1)
		})
	}
	return nil
}

// stated returns the run's statistics of a latency times scale, under a benchmark's names
// for them.
func stated(r *result.Result, mean result.ID, scale float64, names [6]string) object {
	out := object{}
	for i, name := range names {
		if v, ok := r.Metrics.Get(mean + result.ID(i)); ok && name != "" {
			out[name] = v * scale
		}
	}
	return out
}

// failures returns the number of requests that did not succeed, and the reasons.
func failures(r *result.Result) (n int64, reasons []result.Reason) {
	e := r.Endings()
	if e == nil {
		return 0, nil
	}
	for _, reason := range e.Reasons {
		n += reason.Count
	}
	if all := e.Failed + e.Rejected + e.Aborted + e.Unfinished; all > n {
		reasons = []result.Reason{{Status: "not completed", Count: all - n}}
	}
	return max(n, e.Failed+e.Rejected+e.Aborted+e.Unfinished), append(slices.Clone(e.Reasons), reasons...)
}
