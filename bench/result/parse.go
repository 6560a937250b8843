package result

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"lorasim/internal/record"
)

// ParseJSONL reads results one by one from JSON lines: the reference's, also
// with Python's bare Infinity and NaN, and those of WriteJSONL and WriteJSON. A
// result may also span several lines, as after a pretty-printer. name is the
// name of the file for errors. Fields unknown to the schema go to
// Result.Config. yield is called for each result with the line it begins on;
// its error ends the reading.
func ParseJSONL(r io.Reader, name string, yield func(line int, r *Result) error) error {
	return Documents(r, name, func(line int, text []byte) error {
		res, err := ParseJSON(text)
		if err != nil {
			return Misplaced(name, line, text, err)
		}
		return yield(line, res)
	})
}

// Misplaced is an error in the text of a document of a file: that of a syntax
// error tells the line, that of any other the line on which the text begins.
func Misplaced(name string, line int, text []byte, err error) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		line += bytes.Count(text[:min(int(syntax.Offset), len(text))], []byte("\n"))
	}
	return fmt.Errorf("%s:%d: %w", name, line, err)
}

// Documents cuts a file into the JSON objects that it holds, one after the
// other, on one line or several. Python's bare Infinity and NaN, which JSON has
// not, become the strings "inf" and "". yield is called for each with the line
// it begins on; its error ends the reading.
func Documents(r io.Reader, name string, yield func(line int, text []byte) error) error {
	in := bufio.NewReaderSize(r, 1<<16)
	var doc document
	for number := 1; ; number++ {
		text, err := in.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("%s:%d: %w", name, number, err)
		}
		last := err != nil
		if number == 1 {
			text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
		}
		complete, err := doc.add(text, number)
		if err != nil {
			return fmt.Errorf("%s:%d: %w", name, number, err)
		}
		if complete {
			if err := yield(doc.line, doc.text); err != nil {
				return err
			}
			doc = document{}
		}
		if last {
			if len(doc.text) > 0 {
				return fmt.Errorf("%s:%d: the JSON object that begins here has no end", name, doc.line)
			}
			return nil
		}
	}
}

// document gathers the lines of one JSON object.
type document struct {
	line  int // where it begins
	depth int // open brackets
	text  []byte
}

// add takes one more line and says whether the object is complete. Python's
// bare Infinity and NaN, which JSON has not, become strings of the same length,
// so that places in errors stay right.
func (d *document) add(text []byte, number int) (complete bool, err error) {
	if len(d.text) == 0 {
		if text = bytes.TrimLeft(text, " \t\r\n"); len(text) == 0 {
			return false, nil
		}
		if text[0] != '{' {
			return false, fmt.Errorf("expected a JSON object that begins with {, found %q", clip(string(text[:min(len(text), 40)]), 20))
		}
		d.line = number
	}
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted:
			if c == '\\' {
				i++
			} else if c == '"' {
				quoted = false
			}
		case c == '"':
			quoted = true
		case c == '{' || c == '[':
			d.depth++
		case c == '}' || c == ']':
			d.depth--
		case c == 'N' && bytes.HasPrefix(text[i:], []byte("NaN")):
			copy(text[i:], `"" `)
			i += len("NaN") - 1
		case c == 'I' && bytes.HasPrefix(text[i:], []byte("Infinity")):
			if i > 0 && text[i-1] == '-' {
				copy(text[i-1:], `"-inf"   `)
			} else {
				copy(text[i:], `"inf"   `)
			}
			i += len("Infinity") - 1
		}
	}
	d.text = append(d.text, text...)
	return d.depth <= 0, nil
}

// ParseJSON reads one result; see ParseJSONL.
func ParseJSON(text []byte) (*Result, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, err
	}
	r := &Result{Meta: Meta{Source: Log}}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if err := r.setField(key, fields[key]); err != nil {
			return nil, fmt.Errorf("field %s: %w", key, err)
		}
	}
	if fields["failed"] != nil {
		if err := r.setEndings(text, fields["failed"]); err != nil {
			return nil, err
		}
	}
	if r.Source == Log {
		r.InferStreaming()
	}
	return r, nil
}

// setEndings enters how the requests of a line of WriteJSONL ended; or of a line
// of another benchmark, such as vLLM's, which counts failures.
func (r *Result) setEndings(line []byte, failed json.RawMessage) error {
	e := &Endings{}
	if r.Source != Log {
		r.Ended = e
		return json.Unmarshal(line, e)
	}
	completed, ok := r.Metrics.Get(Completed)
	if json.Unmarshal(failed, &e.Failed) == nil && e.Failed >= 0 && ok {
		e.Requests = int64(completed) + e.Failed
		r.Ended = e
	}
	return nil
}

// setField enters one field of a JSON line.
func (r *Result) setField(key string, text json.RawMessage) error {
	if key == "total_token_throughput" { // these two are vLLM's names
		key = "total_throughput"
	} else if stat, ok := strings.CutSuffix(key, "_e2el_ms"); ok {
		key = stat + "_e2e_latency_ms"
	}
	if m, ok := MetricByKey(key); ok {
		return r.setMetric(m, text)
	}
	switch key {
	case "schema":
		var s string
		if err := json.Unmarshal(text, &s); err != nil || s != Schema {
			return fmt.Errorf("is %s, expected %q", text, Schema)
		}
		return nil
	case "source":
		return json.Unmarshal(text, &r.Source)
	case "backend":
		return json.Unmarshal(text, &r.Backend)
	case "dataset_name":
		return json.Unmarshal(text, &r.DatasetName)
	case "request_rate":
		return r.setRate(text)
	case "max_concurrency":
		if err := json.Unmarshal(text, &r.MaxConcurrency); err != nil || r.MaxConcurrency < 0 {
			return fmt.Errorf("is %s, expected a whole number above 0, or null", clip(string(text), 40))
		}
		return nil
	case "random_input_len":
		return json.Unmarshal(text, &r.RandomInputLen)
	case "random_output_len":
		return json.Unmarshal(text, &r.RandomOutputLen)
	case "random_range_ratio":
		return json.Unmarshal(text, &r.RandomRangeRatio)
	case "seed":
		return json.Unmarshal(text, &r.Seed)
	case "approximate_percentiles":
		return json.Unmarshal(text, &r.Approximate)
	case "policy":
		return json.Unmarshal(text, &r.Policy)
	case "scenario":
		return json.Unmarshal(text, &r.Scenario)
	case "streamed":
		var s string
		err := json.Unmarshal(text, &s)
		r.Streamed = record.ParseStreaming(s)
		return err
	case "extra":
		return json.Unmarshal(text, &r.Extra)
	case "ended":
		return json.Unmarshal(text, &r.Ended)
	case "config":
		return r.mergeConfig(text)
	case "input_lens", "output_lens", "ttfts", "itls", "errors", "latencies", "start_times":
		return r.setDetail(key, text)
	case "requests", "failed", "rejected", "aborted", "unfinished", "unsent", "reasons", "completed_set":
		return nil // see ParseJSON
	case "generated_texts", "queue_times":
		return nil // of no use here, and large
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return err
	}
	r.setConfig(key, v)
	return nil
}

func (r *Result) setConfig(key string, v any) {
	if r.Config == nil {
		r.Config = map[string]any{}
	}
	r.Config[key] = v
}

func (r *Result) mergeConfig(text json.RawMessage) error {
	var c map[string]any
	if err := json.Unmarshal(text, &c); err != nil {
		return err
	}
	for k, v := range c {
		r.setConfig(k, v)
	}
	return nil
}

// setMetric enters a metric; null and numbers that are not finite leave it
// absent.
func (r *Result) setMetric(m Metric, text json.RawMessage) error {
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return err
	}
	switch v := v.(type) {
	case nil:
		return nil
	case float64:
		if m.Descriptor().Int && (v != math.Trunc(v) || math.Abs(v) > 1<<53) {
			return fmt.Errorf("is %s, expected a whole number", text)
		}
		r.Metrics.Set(m, v)
		return nil
	case string:
		if v == "" || v == "inf" || v == "-inf" { // see document.add
			return nil
		}
	}
	return fmt.Errorf("is %s, expected a number", clip(string(text), 40))
}

func (r *Result) setRate(text json.RawMessage) error {
	if s := string(text); s == "null" {
		return nil
	}
	rate, err := ParseRate(strings.Trim(string(text), `" `))
	r.RequestRate = rate
	return err
}

func (r *Result) setDetail(key string, text json.RawMessage) error {
	if r.Details == nil {
		r.Details = &Details{}
	}
	d := r.Details
	return json.Unmarshal(text, map[string]any{
		"input_lens": &d.InputLens, "output_lens": &d.OutputLens,
		"ttfts": &d.TTFTs, "itls": &d.ITLs, "errors": &d.Errors,
		"latencies": &d.Latencies, "start_times": &d.StartTimes,
	}[key])
}
