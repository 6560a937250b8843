package result

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"

	"lorasim/internal/record"
)

// Details are the per-request arrays of a JSONL line written with
// --output-details, in the order of the requests; times in seconds. A request
// that did not succeed has 0 output tokens and a TTFT of 0.
type Details struct {
	InputLens  []int64     `json:"input_lens"`
	OutputLens []int64     `json:"output_lens"`
	TTFTs      []float64   `json:"ttfts"`
	ITLs       [][]float64 `json:"itls"`
	Texts      []string    `json:"-"` // empty ones of simulated requests; not read: large and of no use here
	Errors     []string    `json:"errors"`
	// Only vLLM writes these: E2E latencies, also without the others, and when
	// requests were sent, on a clock of its own.
	Latencies  []float64 `json:"-"`
	StartTimes []float64 `json:"-"`
}

// jsonlMetrics are the metrics of the reference's JSONL line, in its order.
var jsonlMetrics = [][]Metric{
	{Duration, Completed, TotalInputTokens, TotalInputTextTokens, TotalInputVisionTokens, TotalOutputTokens, TotalOutputTokensRetokenized},
	{RequestThroughput, InputThroughput, OutputThroughput, TotalThroughput},
	{MeanE2E, MedianE2E, StdE2E, P90E2E, P95E2E, P99E2E},
	{MeanTTFT, MedianTTFT, StdTTFT, P90TTFT, P95TTFT, P99TTFT},
	{MeanTPOT, MedianTPOT, StdTPOT, P90TPOT, P95TPOT, P99TPOT},
	{MeanITL, MedianITL, StdITL, P90ITL, P95ITL, P99ITL, MaxITL},
	{Concurrency, AcceptLength, MaxOutputTokensPerS, MaxConcurrentRequests},
}

// AppendJSONL appends the run's line to a file as the reference does with
// --output-file, creating it if need be, in a single write. details adds the
// per-request arrays, for which the result must have records or details.
func (r *Result) AppendJSONL(path string, details bool) error {
	var b bytes.Buffer
	if err := r.WriteJSONL(&b, details); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(b.Bytes())
	return errors.Join(err, f.Close())
}

// WriteJSONL writes the run as one line with exactly the reference's fields in
// its order, and after them what tells runs apart (source, seed, policy,
// scenario, streamed) and how requests ended, where they are known; absent
// metrics have no field. The line is valid JSON: an infinite
// request rate is the string "inf", where the reference writes a bare Infinity.
func (r *Result) WriteJSONL(w io.Writer, details bool) error {
	o := &object{}
	r.writeArguments(o)
	for _, unknown := range []string{"tag", "sharegpt_output_len", "server_info"} {
		o.value(unknown, nil)
	}
	for _, group := range jsonlMetrics {
		for _, m := range group {
			o.metric(m, &r.Metrics)
		}
	}
	for _, f := range []struct {
		m      Metric
		absent any
	}{{TotalInputVisionTokens, 0}, {AcceptLength, nil}} {
		if _, ok := r.Metrics.Get(f.m); !ok {
			o.value(f.m.String(), f.absent)
		}
	}
	r.writeOwn(o)
	if details {
		d, err := r.details()
		if err != nil {
			return err
		}
		o.value("input_lens", d.InputLens)
		o.value("output_lens", d.OutputLens)
		o.value("ttfts", d.TTFTs)
		o.value("itls", d.ITLs)
		if d.Texts != nil {
			o.value("generated_texts", d.Texts)
		}
		o.value("errors", d.Errors)
	}
	return o.writeTo(w)
}

// WriteJSON writes the whole result, without its records, as one line of JSON:
// the fields of WriteJSONL and beside them the schema, the source, the seed, the
// other metrics, the extra section and the configuration. ParseJSONL reads it.
func (r *Result) WriteJSON(w io.Writer) error {
	o := &object{}
	o.value("schema", Schema)
	o.value("source", r.Source)
	r.writeArguments(o)
	o.value("seed", r.Seed)
	r.writeNames(o)
	for m := range NumMetrics {
		o.metric(m, &r.Metrics)
	}
	if len(r.Approximate) > 0 {
		o.value("approximate_percentiles", r.Approximate)
	}
	if r.Extra != nil {
		o.value("extra", r.Extra)
	} else if r.Ended != nil {
		o.value("ended", r.Ended)
	}
	if len(r.Config) > 0 {
		o.value("config", finite(r.Config))
	}
	return o.writeTo(w)
}

// writeOwn writes what a line has beyond the reference's fields, as far as it
// is known.
func (r *Result) writeOwn(o *object) {
	if r.Source == Sim || r.Source == Live {
		o.value("source", r.Source)
		o.value("seed", r.Seed)
	}
	r.writeNames(o)
	if e := r.Endings(); e != nil {
		o.value("requests", e.Requests)
		o.value("failed", e.Failed)
		o.value("rejected", e.Rejected)
		o.value("aborted", e.Aborted)
		if e.Unfinished != 0 {
			o.value("unfinished", e.Unfinished)
		}
		if e.Unsent != 0 {
			o.value("unsent", e.Unsent)
		}
		if len(e.Reasons) > 0 {
			o.value("reasons", e.Reasons)
		}
		if e.CompletedSet != 0 {
			o.value("completed_set", e.CompletedSet)
		}
	}
}

// writeNames writes what tells runs apart, as far as it is known.
func (r *Result) writeNames(o *object) {
	for _, f := range []struct{ name, text string }{
		{"policy", r.Policy}, {"scenario", r.Scenario}, {"streamed", string(r.Streamed)},
	} {
		if f.text != "" {
			o.value(f.name, f.text)
		}
	}
}

// writeArguments writes what the reference records of a run's arguments.
func (r *Result) writeArguments(o *object) {
	o.value("backend", r.Backend)
	o.value("dataset_name", r.DatasetName)
	switch {
	case r.RequestRate == 0:
		o.value("request_rate", nil)
	case r.RequestRate < 0 || math.IsInf(float64(r.RequestRate), 1):
		o.value("request_rate", r.RequestRate.String())
	default:
		o.raw("request_rate", r.RequestRate.String())
	}
	if r.MaxConcurrency == 0 {
		o.value("max_concurrency", nil)
	} else {
		o.value("max_concurrency", r.MaxConcurrency)
	}
	o.value("random_input_len", r.RandomInputLen)
	o.value("random_output_len", r.RandomOutputLen)
	o.value("random_range_ratio", r.RandomRangeRatio)
}

// details returns the per-request arrays, in the order of the request ids.
func (r *Result) details() (*Details, error) {
	if r.Details != nil {
		return r.Details, nil
	}
	if int64(len(r.Records)) < int64(r.Metrics.values[Completed]) {
		return nil, errors.New("output details need the records of the run, which were not kept")
	}
	recs := slices.Clone(r.Records)
	slices.SortStableFunc(recs, func(a, b record.Request) int { return cmp.Compare(a.ID, b.ID) })
	d := &Details{InputLens: []int64{}, OutputLens: []int64{}, TTFTs: []float64{}, ITLs: [][]float64{},
		Texts: []string{}, Errors: []string{}}
	for i := range recs {
		q := &recs[i]
		output, ttft, gaps := int64(0), 0.0, []float64{}
		if q.Status == record.OK {
			output = int64(q.Output)
			if t := q.TTFT(); !math.IsNaN(t) {
				ttft = t
			}
			gaps = append(gaps, q.Gaps...)
		}
		d.InputLens = append(d.InputLens, int64(q.Prompt))
		d.OutputLens = append(d.OutputLens, output)
		d.TTFTs = append(d.TTFTs, ttft)
		d.ITLs = append(d.ITLs, gaps)
		d.Texts = append(d.Texts, r.Texts[q.ID])
		d.Errors = append(d.Errors, q.Error)
	}
	return d, nil
}

// object builds a JSON object with its fields in the order they are given.
type object struct {
	b   bytes.Buffer
	err error
}

func (o *object) raw(key, value string) {
	if o.b.Len() == 0 {
		o.b.WriteByte('{')
	} else {
		o.b.WriteString(", ")
	}
	o.b.WriteString(strconv.Quote(key) + ": " + value)
}

func (o *object) value(key string, v any) {
	text, err := json.Marshal(v)
	if err != nil && o.err == nil {
		o.err = fmt.Errorf("field %s: %w", key, err)
	}
	o.raw(key, string(text))
}

// metric writes a metric that is there, a float as Python prints it.
func (o *object) metric(m Metric, ms *Metrics) {
	v, ok := ms.Get(m)
	switch {
	case !ok:
	case m.Descriptor().Int:
		o.raw(m.String(), FormatMetric(m, v))
	default:
		o.raw(m.String(), pyFloat(v))
	}
}

func (o *object) writeTo(w io.Writer) error {
	if o.err != nil {
		return o.err
	}
	o.b.WriteString("}\n")
	_, err := w.Write(o.b.Bytes())
	return err
}

// finite returns v with the numbers that JSON cannot hold as strings ("inf",
// "-inf", "nan").
func finite(v any) any {
	switch v := v.(type) {
	case float64:
		if math.IsInf(v, 0) || math.IsNaN(v) {
			return pyFloat(v)
		}
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = finite(v[i])
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for k := range v {
			out[k] = finite(v[k])
		}
		return out
	}
	return v
}
