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
	"reflect"
	"slices"
	"strconv"
	"strings"

	"lorasim/internal/format"
	"lorasim/sim/record"
)

// Details are the per-request arrays of a JSONL line written with --output-details, in
// the order of the requests. Times are in seconds. A request that did not succeed has 0
// output tokens and a TTFT of 0.
type Details struct {
	InputLens  []int64     // prompt tokens
	OutputLens []int64     // output tokens
	TTFTs      []float64   // s
	ITLs       [][]float64 // gaps between tokens, s
	Texts      []string    // replies; ParseJSON skips them, as they are large
	Errors     []string
	// Latencies are E2E latencies, s. Only vLLM writes them, also without the other arrays.
	Latencies []float64
	// StartTimes are the times at which requests were sent, s, on the client's clock. Only
	// vLLM writes them.
	StartTimes []float64
	// QueueTimes are the waits for the client's limit of requests in flight before StartTimes, s. Only vLLM writes
	// them, since 2026.
	QueueTimes []float64
}

// fields returns pointers to the fields that are not metrics, by JSON name.
func (r *Result) fields() map[string]any {
	return map[string]any{
		"source": &r.Source, "backend": &r.Backend, "dataset_name": &r.DatasetName, "request_rate": &r.RequestRate,
		"max_concurrency": (*limit)(&r.MaxConcurrency), "random_input_len": &r.RandomInputLen,
		"random_output_len": &r.RandomOutputLen, "random_range_ratio": &r.RandomRangeRatio, "seed": &r.Seed,
		"policy": &r.Policy, "scenario": &r.Scenario, "streamed": &r.Streamed,
		"definitions":             &r.Defined,
		"approximate_percentiles": &r.Approximate, "extra": &r.Extra, "ended": &r.Ended, "steady": &r.Steady,
	}
}

func (d *Details) fields() map[string]any {
	return map[string]any{
		"input_lens": &d.InputLens, "output_lens": &d.OutputLens, "ttfts": &d.TTFTs, "itls": &d.ITLs,
		"generated_texts": &d.Texts, "errors": &d.Errors, "latencies": &d.Latencies, "start_times": &d.StartTimes,
		"queue_times": &d.QueueTimes,
	}
}

func (e *Endings) fields() map[string]any {
	return map[string]any{
		"requests": &e.Requests, "failed": &e.Failed, "rejected": &e.Rejected, "aborted": &e.Aborted,
		"unfinished": &e.Unfinished,
		"unsent":     &e.Unsent, "reasons": &e.Reasons, "completed_set": &e.CompletedSet,
	}
}

// The reference benchmark's fields for a run's arguments, and fields that identify a run.
const (
	argumentFields = "backend dataset_name request_rate max_concurrency random_input_len random_output_len random_range_ratio"
	nameFields     = "policy scenario streamed"
)

// limit is a number that is null in JSON if it is 0.
type limit int

func (l limit) MarshalJSON() ([]byte, error) {
	if l == 0 {
		return []byte("null"), nil
	}
	return json.Marshal(int(l))
}

func (l *limit) UnmarshalJSON(text []byte) error {
	if err := json.Unmarshal(text, (*int)(l)); err != nil || *l < 0 {
		return fmt.Errorf("is %s, expected a whole number above 0, or null", format.Clip(string(text), 40))
	}
	return nil
}

// AppendJSONL appends the run's JSONL line to a file, as the reference benchmark does with
// --output-file. It creates the file if necessary, and writes the line in a single write.
// details adds the per-request arrays; the result must then have Records or Details.
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

// WriteJSONL writes the run as one line of JSON. The fields of the reference benchmark
// come first, in their order. Then come fields that identify the run (source, seed,
// policy, summary of the scenario, streamed), and the counts of how requests ended, if
// known. details adds the per-request arrays; the result must then have Records or
// Details. Absent metrics have no field. The line is valid JSON: an infinite request rate
// is the string "inf", where the reference benchmark writes a bare Infinity.
func (r *Result) WriteJSONL(w io.Writer, details bool) error {
	o, fields := &object{}, r.fields()
	fields["scenario"] = &r.Scenario.Summary // a line has flat fields, as the reference's
	o.write(argumentFields, fields)
	for _, unknown := range []string{"tag", "sharegpt_output_len", "server_info"} {
		o.raw(unknown, "null")
	}
	o.metrics(&r.Metrics)
	if !r.Metrics.Has(TotalInputVisionTokens) {
		o.raw(TotalInputVisionTokens.String(), "0")
	}
	if !r.Metrics.Has(AcceptLength) {
		o.raw(AcceptLength.String(), "null")
	}
	if r.Source == Sim || r.Source == Live {
		o.write("source seed", fields)
	}
	o.writeKnown(nameFields, fields)
	if e := r.Endings(); e != nil {
		o.write("requests failed rejected aborted", e.fields())
		o.writeKnown("unfinished unsent reasons completed_set", e.fields())
	}
	if details {
		d, err := r.details()
		if err != nil {
			return err
		}
		o.write("input_lens output_lens ttfts itls", d.fields())
		o.writeKnown("generated_texts", d.fields())
		o.write("errors", d.fields())
	}
	return o.writeTo(w)
}

// WriteJSON writes the whole result, without its records, as one line of JSON. It has the
// fields of WriteJSONL, and in addition the schema, the source, the seed, the other
// metrics, the extra section and the configuration. ParseJSON reads it.
func (r *Result) WriteJSON(w io.Writer) error {
	o, fields := &object{}, r.fields()
	o.value("schema", schema)
	o.write("source "+argumentFields+" seed", fields)
	o.writeKnown(nameFields, fields)
	o.metrics(&r.Metrics)
	if r.Extra != nil {
		delete(fields, "ended")
		if u := r.Extra.Reuse; u != nil {
			o.value("cached_tokens", u.Cached)
			o.value("prefix_hit_rate", u.HitRate)
		}
	}
	defined := r.Definitions()
	fields["definitions"] = &defined
	o.writeKnown("definitions steady approximate_percentiles extra ended", fields)
	if len(r.Config) > 0 {
		o.value("config", finite(r.Config))
	}
	return o.writeTo(w)
}

// details returns the per-request arrays, in the order of the request ids.
func (r *Result) details() (*Details, error) {
	if r.Details != nil {
		return r.Details, nil
	}
	recs := slices.Clone(r.Counted())
	if int64(len(recs)) < int64(r.Metrics.values[Completed]) {
		return nil, errors.New("output details need the records of the run, which were not kept")
	}
	slices.SortStableFunc(recs, func(a, b record.Request) int { return cmp.Compare(a.ID, b.ID) })
	n := len(recs)
	d := &Details{InputLens: make([]int64, n), OutputLens: make([]int64, n), TTFTs: make([]float64, n),
		ITLs:  make([][]float64, n),
		Texts: make([]string, n), Errors: make([]string, n)}
	for i := range recs {
		q := &recs[i]
		d.InputLens[i], d.Texts[i], d.Errors[i], d.ITLs[i] = int64(q.Prompt), r.Texts[q.ID], q.Error, []float64{}
		if q.Status == record.OK {
			d.OutputLens[i], d.ITLs[i] = int64(q.Output), append(d.ITLs[i], q.Gaps...)
			if t := q.TTFT(); !math.IsNaN(t) {
				d.TTFTs[i] = t
			}
		}
	}
	return d, nil
}

// object builds a JSON object with its fields in the order of the calls.
type object struct {
	b   bytes.Buffer
	err error
}

func (o *object) raw(key, value string) {
	separator := ", "
	if o.b.Len() == 0 {
		separator = "{"
	}
	o.b.WriteString(separator + strconv.Quote(key) + ": " + value)
}

func (o *object) value(key string, v any) {
	text, err := json.Marshal(v)
	if err != nil && o.err == nil {
		o.err = fmt.Errorf("field %s: %w", key, err)
	}
	o.raw(key, string(text))
}

// write writes the fields of the given names.
func (o *object) write(names string, fields map[string]any) {
	for _, name := range strings.Fields(names) {
		o.value(name, fields[name])
	}
}

// writeKnown writes the fields of the given names that exist and are not empty.
func (o *object) writeKnown(names string, fields map[string]any) {
	for _, name := range strings.Fields(names) {
		if at := fields[name]; at != nil && !reflect.ValueOf(at).Elem().IsZero() {
			o.value(name, at)
		}
	}
}

// metrics writes the metrics that are present, with floats as Python prints them.
func (o *object) metrics(ms *Metrics) {
	for m := range NumMetrics {
		v, ok := ms.Get(m)
		text := pyFloat(v)
		if m.Metric().Int {
			text = FormatMetric(m, v)
		}
		if ok {
			o.raw(m.String(), text)
		}
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

// finite returns v with numbers that JSON cannot represent replaced by strings ("inf",
// "-inf", "nan").
func finite(v any) any {
	switch v := v.(type) {
	case float64:
		if !format.IsFinite(v) {
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
