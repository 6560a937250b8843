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
	"reflect"
	"slices"
	"strings"

	"lorasim/internal/format"
	"lorasim/sim/record"
)

// Misplaced prefixes err with the file name and the line of an error in a JSON document.
// text is the document, line the line on which it begins. For a syntax error the line is
// that of the error, for other errors the line on which the document begins.
func Misplaced(name string, line int, text []byte, err error) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		line += bytes.Count(text[:min(int(syntax.Offset), len(text))], []byte("\n"))
	}
	return fmt.Errorf("%s:%d: %w", name, line, err)
}

// Documents splits a file into its JSON objects, each on one or several lines. It calls
// yield for each object, with the line on which the object begins. An error of yield ends
// the reading and is returned. Python's bare Infinity and NaN, which are not JSON, become
// the strings "inf" and "". name is the file's name for errors.
func Documents(r io.Reader, name string, yield func(line int, text []byte) error) error {
	in := bufio.NewReaderSize(r, 1<<16)
	var doc document
	for number := 1; ; number++ {
		text, err := in.ReadBytes('\n')
		last := errors.Is(err, io.EOF)
		complete := false
		if err == nil || last {
			if number == 1 {
				text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
			}
			complete, err = doc.add(text, number)
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", name, number, err)
		}
		if complete {
			if err := yield(doc.line, doc.text); err != nil {
				return err
			}
			doc = document{}
		}
		if last && len(doc.text) > 0 {
			return fmt.Errorf("%s:%d: the JSON object that begins here has no end", name, doc.line)
		}
		if last {
			return nil
		}
	}
}

const (
	maxDocument = 256 << 20 // bytes of a JSON object
	maxNested   = 10_000    // levels, as encoding/json
)

// document gathers the lines of one JSON object.
type document struct {
	line  int // where it begins
	depth int // open brackets
	text  []byte
}

// add appends a line and reports whether the object is complete. Python's bare Infinity
// and NaN, which are not JSON, become strings of the same length, so that positions in
// errors stay right.
func (d *document) add(text []byte, number int) (complete bool, err error) {
	if len(d.text) == 0 {
		if text = bytes.TrimLeft(text, " \t\r\n"); len(text) == 0 {
			return false, nil
		}
		if text[0] != '{' {
			return false, fmt.Errorf("expected a JSON object that begins with {, found %q",
				format.Clip(string(text[:min(len(text), 40)]), 20))
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
	if len(d.text)+len(text) > maxDocument {
		return false, fmt.Errorf("the JSON object that begins in line %d is longer than %d MiB", d.line,
			maxDocument>>20)
	}
	if d.depth > maxNested {
		return false, fmt.Errorf("the JSON object that begins in line %d is nested deeper than %d levels",
			d.line, maxNested)
	}
	d.text = append(d.text, text...)
	return d.depth <= 0, nil
}

// ParseJSON reads one result: a JSONL line of the reference benchmark, split off by
// Documents, or the output of WriteJSONL or WriteJSON. Unknown fields go to
// Result.Config.
func ParseJSON(text []byte) (*Result, error) {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(text, &values); err != nil {
		return nil, err
	}
	r, d := &Result{Meta: Meta{Source: Log}}, &Details{}
	fields := r.fields()
	maps.Copy(fields, d.fields())
	for _, unused := range []string{"generated_texts", "queue_times"} { // and large
		fields[unused] = nil
	}
	for key := range (&Endings{}).fields() { // see below
		fields[key] = nil
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if err := r.setField(key, values[key], fields); err != nil {
			return nil, fmt.Errorf("field %s: %w", key, err)
		}
	}
	if !reflect.ValueOf(*d).IsZero() {
		r.Details = d
	}
	r.Streamed = record.ParseStreaming(string(r.Streamed))
	if values["failed"] != nil {
		if err := r.setEndings(text, values["failed"]); err != nil {
			return nil, err
		}
	}
	if r.Source == Log {
		r.InferStreaming()
	}
	return r, nil
}

// setEndings sets the counts of how requests ended, from a line of WriteJSONL or of
// another benchmark with a count of failures, such as vLLM's.
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

// setField sets one field of a JSON line. fields holds pointers to the fields that are not
// metrics, by name; nil for a field to skip.
func (r *Result) setField(key string, text json.RawMessage, fields map[string]any) error {
	if key == "total_token_throughput" { // these two are vLLM's names
		key = "total_throughput"
	} else if stat, ok := strings.CutSuffix(key, "_e2el_ms"); ok {
		key = stat + "_e2e_latency_ms"
	}
	if m, ok := IDOf(key); ok {
		return r.setMetric(m, text)
	}
	if at, known := fields[key]; at != nil {
		return json.Unmarshal(text, at)
	} else if known {
		return nil
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return err
	}
	if key == "schema" && v != Schema {
		return fmt.Errorf("is %s, expected %q", text, Schema)
	}
	config, isMap := v.(map[string]any)
	switch {
	case key == "config" && isMap:
		for k, v := range config {
			r.SetConfig(k, v)
		}
	case key == "config" && v != nil:
		return fmt.Errorf("is %s, expected an object", format.Clip(string(text), 40))
	case key != "schema" && key != "config":
		r.SetConfig(key, v)
	}
	return nil
}

// SetConfig sets a value of Config.
func (r *Result) SetConfig(key string, v any) {
	if r.Config == nil {
		r.Config = map[string]any{}
	}
	r.Config[key] = v
}

// setMetric sets a metric. null and numbers that are not finite leave it absent.
func (r *Result) setMetric(m ID, text json.RawMessage) error {
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return err
	}
	switch v := v.(type) {
	case nil:
		return nil
	case float64:
		if m.Metric().Int && (v != math.Trunc(v) || math.Abs(v) > 1<<53) {
			return fmt.Errorf("is %s, expected a whole number", text)
		}
		r.Metrics.Set(m, v)
		return nil
	case string:
		if v == "" || v == "inf" || v == "-inf" { // see document.add
			return nil
		}
	}
	return fmt.Errorf("is %s, expected a number", format.Clip(string(text), 40))
}
