package importer

import (
	"cmp"
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
	"lorasim/bench/result/records"
	"lorasim/internal/atomicfile"
	"lorasim/internal/format"
	"lorasim/internal/suggest"
	"lorasim/sim/record"
)

// fields are the values of a JSON object by name.
type fields map[string]json.RawMessage

// has reports whether the object has all fields.
func (f fields) has(names ...string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return f[name] == nil })
}

// A client is a benchmark whose files are read.
type client struct {
	name string
	// is reports whether an object is of the client, in any of its versions.
	is func(fields) bool
	// read reads an object that holds a run or several. where is its place in messages.
	read func(text []byte, f fields, where string) ([]*Imported, error)
	// requests, for an object that holds one request, returns the reader of all such objects of a file.
	requests func() requestReader
}

// A requestReader reads the requests of one run.
type requestReader interface {
	// add reads an object. An error costs only its request.
	add(text []byte, where string) error
	// run returns the run of the requests read. It adds those that cannot be requests to the run's Left.
	run() (*Imported, error)
}

// clients are the benchmarks in the order in which they are tried. Versions differ in what their files lack, and in
// names that the functions know besides today's.
var clients = []client{
	{name: "AIPerf", is: func(f fields) bool { return f.has("metadata", "metrics") }, // profile_export.jsonl
		requests: func() requestReader { return &aiperfRequests{} }},
	{name: "AIPerf", is: isAIPerf, read: readAIPerf}, // and its forerunner GenAI-Perf
	{name: "GuideLLM", is: func(f fields) bool { return f.has("benchmarks") }, read: readGuideLLM},
	{name: "inference-perf", is: isPerfRequest, requests: func() requestReader { return &perfRequests{} }},
	{name: "inference-perf", is: isInferencePerf, read: readInferencePerf},
	{name: "llmperf", is: isLLMPerf, read: readLLMPerf},
	{name: "llmperf", is: isLLMPerfRequest, requests: func() requestReader { return &llmperfRequests{} }},
	{name: "locust", is: isLocust, requests: func() requestReader { return &locustRows{} }},
	{name: "sglang, vLLM", is: func(fields) bool { return true }, read: readLine},
}

func clientNames() string {
	var names []string
	for _, c := range clients {
		if !slices.Contains(names, c.name) {
			names = append(names, c.name)
		}
	}
	return strings.Join(names, ", ") + " or lorasim"
}

// readJSON reads a file of JSON objects. An object holds one run or several. The objects of single requests form one
// run together.
func readJSON(r io.Reader, name string) (runs []*Imported, err error) {
	var reader requestReader
	var left records.LeftOut
	place := -1 // index of the run of the requests
	var first error
	err = result.Documents(r, name, func(line int, text []byte) error {
		var f fields
		where := fmt.Sprintf("%s:%d", name, line)
		if err := json.Unmarshal(text, &f); err != nil && reader != nil {
			left.Add(where, "the JSON object is cut short or broken")
			return nil
		} else if err != nil {
			return result.Misplaced(name, line, text, err)
		}
		c := &clients[slices.IndexFunc(clients, func(c client) bool { return c.is(f) })]
		if c.requests != nil {
			if reader == nil {
				reader, place = c.requests(), len(runs)
				runs = append(runs, nil)
			}
			if err := reader.add(text, where); err != nil {
				first = cmp.Or(first, fmt.Errorf("%s: %w", where, err))
				left.Add(where, err.Error())
			}
			return nil
		}
		found, err := c.read(text, f, where)
		if errors.Is(err, errNoFigures) {
			err = fmt.Errorf("expected a result of %s: %w", clientNames(), err)
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
	if cut := (*result.NoEndError)(nil); reader != nil && errors.As(err, &cut) {
		left.Add(fmt.Sprintf("%s:%d", name, cut.Line), "the file ends in the middle of the object")
		err = nil
	}
	if err != nil || place < 0 {
		return runs, err
	}
	m, err := reader.run()
	if err != nil {
		return nil, cmp.Or(first, fmt.Errorf("%s: %w", name, err))
	}
	left.Reasons = append(left.Reasons, m.Left.Reasons...)
	m.File, m.Line, m.Left = name, 1, left
	runs[place] = m
	return runs, nil
}

// newClient returns a run of a client whose definitions differ from the reference
// benchmark's; note describes how.
func newClient(name, version, note string) *Imported {
	m := &Imported{
		Result:  &result.Result{Meta: result.Meta{Source: result.Log}},
		Context: Context{Client: joinKnown(" ", name, version)}, Notes: []string{note},
	}
	m.define(name)
	return m
}

var errNoFigures = errors.New("the object has none of their figures")

// readLine reads a line of sglang, vLLM or lorasim.
func readLine(text []byte, f fields, where string) ([]*Imported, error) {
	res, err := result.ParseJSON(text)
	if err != nil {
		return nil, err
	}
	m := &Imported{Result: res}
	if !m.hasFigures() {
		return nil, errNoFigures
	}
	if res.Source == result.Log {
		m.setFailures(f)
		if m.Defined == (result.Definitions{}) {
			m.defineLine(f)
		}
	}
	if d := res.Details; d != nil {
		m.addDetails(d, where)
	}
	return []*Imported{m}, nil
}

// hasFigures reports whether a result has a figure beside its duration, which logs of requests have, too.
func (m *Imported) hasFigures() bool {
	rest := m.Metrics
	rest.Delete(result.Duration)
	return rest != (result.Metrics{}) || m.Extra != nil
}

// addDetails adds the arrays of single requests. vLLM's state when each request was sent; E2E follows from TTFT and the
// gaps between chunks if it is not stated. Without times of sending, only the E2E latencies are of use.
func (m *Imported) addDetails(d *result.Details, where string) {
	n := len(d.StartTimes)
	whole := n > 0 // the arrays tell all of each request
	for _, l := range []int{len(d.InputLens), len(d.OutputLens), len(d.TTFTs), len(d.ITLs)} {
		whole = whole && l == n
	}
	whole = whole && (d.Latencies == nil || len(d.Latencies) == n) && (d.Errors == nil || len(d.Errors) == n)
	if !whole {
		m.addLatencies(d)
		return
	}
	begin := math.Inf(1)
	for _, start := range d.StartTimes {
		if start < begin {
			begin = start
		}
	}
	var recs []record.Request
	for i, start := range d.StartTimes {
		r := m.detail(d, i, start-begin)
		recs = m.keep(recs, &r, fmt.Sprintf("%s: request %d", where, i))
	}
	e := m.derive(recs, func(result.ID) bool { return true })
	m.Records = recs
	switch {
	case e == nil:
		m.Notes = append(m.Notes, "its arrays of requests contradict its number of successful requests")
	case m.Left.Rows() == 0:
		m.Ended = e
	}
}

// detail returns the record of request i of the arrays.
func (m *Imported) detail(d *result.Details, i int, sent float64) record.Request {
	latency, gaps := d.TTFTs[i], d.ITLs[i]
	for _, g := range gaps {
		latency += g
	}
	if math.IsNaN(latency) {
		gaps = nil
	}
	if d.Latencies != nil {
		latency = d.Latencies[i]
	}
	r := newRecord(i, sent, sent+d.TTFTs[i], sent+latency, float64(d.InputLens[i]), float64(d.OutputLens[i]))
	r.Gaps, r.Streamed = gaps, m.Streamed
	if len(d.QueueTimes) == len(d.StartTimes) && d.QueueTimes[i] > 0 {
		r.Arrival -= d.QueueTimes[i]
	}
	if d.Errors != nil {
		r.Error = d.Errors[i]
	}
	if latency == 0 || r.Error != "" { // it never ended
		r.Status, r.FirstToken = record.Failed, math.NaN()
	}
	return r
}

// addLatencies derives the E2E figures from the array of latencies, which vLLM's files may have alone.
func (m *Imported) addLatencies(d *result.Details) {
	var recs []record.Request
	for i, latency := range d.Latencies {
		r := record.Request{FirstToken: math.NaN(), Finish: latency}
		if latency == 0 || i < len(d.Errors) && d.Errors[i] != "" {
			r.Status = record.Failed
		}
		recs = m.keep(recs, &r, fmt.Sprintf("request %d", i))
	}
	if len(recs) > 0 {
		m.derive(recs, func(k result.ID) bool { return k >= result.MeanE2E && k <= result.P99E2E })
	}
}

// keep appends a record if it is that of a possible request, else it lists it as left out. place names it.
func (m *Imported) keep(recs []record.Request, r *record.Request, place string) []record.Request {
	fault := records.Fault(r)
	if fault == nil {
		fault = tooLong(r)
	}
	if fault != nil {
		m.Left.Add(place, fault.Error())
		return recs
	}
	return append(recs, *r)
}

// newRecord returns the record of a request that was sent on time and succeeded. Times are
// in seconds, input and output in tokens.
func newRecord(id int, sent, first, finish, input, output float64) record.Request {
	tokens := func(n float64) int32 {
		if math.IsNaN(n) {
			return 0
		}
		return int32(min(max(n, 0), math.MaxInt32))
	}
	return record.Request{
		ID: int64(id), Adapter: -1, WorkerFirst: -1, WorkerLast: -1, Arrival: sent, Sent: sent, FirstToken: first,
		Finish: finish,
		Prompt: tokens(input), Output: tokens(output), Requested: tokens(output),
	}
}

// derive computes metrics from the requests: those that the file lacks and for which want
// returns true. It returns the counts of how requests ended. If recs and the requests left out are not all requests
// of the run, it derives nothing and returns nil.
func (m *Imported) derive(recs []record.Request, want func(result.ID) bool) *result.Endings {
	duration, _ := m.Metrics.Get(result.Duration)
	c := result.NewCollector(result.Options{Duration: duration})
	gaps, text := false, false
	for i := range recs {
		r := &recs[i]
		c.Done(r)
		c.AddGaps(r)
		gaps = gaps || r.Status == record.OK && len(r.Gaps) > 0
		text = text || r.Status == record.OK && r.FirstToken > r.Sent
	}
	res := c.Result(result.Meta{}, nil)
	derived, _ := res.Metrics.Get(result.Completed)
	if stated, ok := m.Metrics.Get(result.Completed); ok &&
		(stated < derived || stated > derived+float64(m.Left.Rows())) {
		return nil
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
	return &res.Extra.Endings
}

// longestRun limits the times of requests, s, since a Collector has counters for each
// second.
const longestRun = 30 * 86400

// tooLong returns an error for a request that ends after the longest run.
func tooLong(r *record.Request) error {
	last := r.Finish
	for _, g := range r.Gaps {
		last += max(g, 0)
	}
	if last > longestRun {
		return fmt.Errorf("it ends more than %d days after the first was sent", longestRun/86400)
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
func (f figures) number(name string) float64 { return result.LooseFloat(f[name]) }

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
