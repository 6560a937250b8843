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
	"strconv"
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

// Documents splits a file into its JSON objects, each on one or several lines, one after another or in an array. It
// calls yield for each object, with the line on which the object begins. An error of yield ends
// the reading and is returned. Python's bare Infinity and NaN, which are not JSON, become
// the strings "inf" and "". name is the file's name for errors.
func Documents(r io.Reader, name string, yield func(line int, text []byte) error) error {
	in := bufio.NewReaderSize(r, 1<<16)
	var doc document
	for number := 1; ; number++ {
		rest, err := in.ReadBytes('\n')
		last := errors.Is(err, io.EOF)
		if err == nil || last {
			err = nil
			if number == 1 {
				rest = bytes.TrimPrefix(rest, []byte("\xef\xbb\xbf"))
			}
		}
		if err == nil && doc.cutBefore(rest) {
			if err := yield(doc.line, doc.text); err != nil {
				return err
			}
			doc.text = nil
		}
		for complete := true; err == nil && complete; {
			if rest, complete, err = doc.add(rest, number); err == nil && complete {
				if err := yield(doc.line, doc.text); err != nil {
					return err
				}
				doc.text = nil
			}
		}
		switch {
		case err != nil:
			return fmt.Errorf("%s:%d: %w", name, number, err)
		case last && len(doc.text) > 0:
			return &NoEndError{name, doc.line}
		case last && len(doc.arrays) > 0:
			return fmt.Errorf("%s:%d: the JSON array that begins here has no end", name, doc.arrays[0])
		case last:
			return nil
		}
	}
}

// A NoEndError is an object that the end of its file cuts short.
type NoEndError struct {
	File string
	Line int // on which the object begins
}

// Error returns the error with its place.
func (e *NoEndError) Error() string {
	return fmt.Sprintf("%s:%d: the JSON object that begins here has no end", e.File, e.Line)
}

const (
	maxDocument = 256 << 20 // bytes of a JSON object
	maxNested   = 10_000    // levels, as encoding/json
)

// document gathers the lines of one JSON object.
type document struct {
	arrays []int // lines on which the arrays around the object begin
	line   int   // where it begins
	depth  int   // open brackets
	text   []byte
}

// add appends a line until the object is complete, and returns the rest of the line. Python's bare Infinity
// and NaN, which are not JSON, become strings of the same length, so that positions in
// errors stay right.
func (d *document) add(text []byte, number int) (rest []byte, complete bool, err error) {
	if len(d.text) == 0 {
		if text, err = d.begin(text, number); err != nil || len(text) == 0 {
			return nil, false, err
		}
	}
	quoted := false
	i := 0
	for ; i < len(text) && !complete; i++ {
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
			complete = d.depth <= 0
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
	i = min(i, len(text))
	if len(d.text)+i > maxDocument {
		return nil, false, fmt.Errorf("the JSON object that begins in line %d is longer than %d MiB", d.line,
			maxDocument>>20)
	}
	if d.depth > maxNested {
		return nil, false, fmt.Errorf("the JSON object that begins in line %d is nested deeper than %d levels",
			d.line, maxNested)
	}
	d.text = append(d.text, text[:i]...)
	return text[i:], complete, nil
}

// cutBefore reports whether the object so far is a line of JSON Lines that was cut short: another object begins on
// the next line, although the last one expects more of its own.
func (d *document) cutBefore(line []byte) bool {
	text := bytes.TrimRight(d.text, "\r\n")
	return bytes.HasPrefix(text, []byte(`{"`)) && bytes.HasPrefix(line, []byte(`{"`)) &&
		bytes.IndexByte(text, '\n') < 0 && !bytes.ContainsRune([]byte("[,:{"), rune(text[len(text)-1]))
}

// begin skips to the beginning of the next object, and returns the text from there on.
func (d *document) begin(text []byte, number int) ([]byte, error) {
	for {
		if text = bytes.TrimLeft(text, " \t\r\n"); len(text) == 0 {
			return nil, nil
		}
		switch inside := len(d.arrays); {
		case text[0] == '{':
			d.line, d.depth = number, 0
			return text, nil
		case text[0] == '[' && inside < maxNested:
			d.arrays = append(d.arrays, number)
		case text[0] == ']' && inside > 0:
			d.arrays = d.arrays[:inside-1]
		case text[0] != ',' || inside == 0:
			return nil, fmt.Errorf("expected a JSON object that begins with {, found %q",
				format.Clip(string(text[:min(len(text), 40)]), 20))
		}
		text = text[1:]
	}
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
	maps.Copy(fields, d.looseFields())
	fields["generated_texts"] = nil          // unused, and large
	for key := range (&Endings{}).fields() { // see below
		fields[key] = nil
	}
	_, own := values["schema"]
	for _, key := range slices.Sorted(maps.Keys(values)) {
		err := r.setField(key, values[key], fields)
		if at, described := fields[key]; err != nil && described && at != nil && !own {
			err = r.keep(key, values[key]) // it says nothing on the figures
		}
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", key, err)
		}
	}
	if !reflect.ValueOf(*d).IsZero() {
		r.Details = d
	}
	r.Streamed = record.ParseStreaming(string(r.Streamed))
	if values["failed"] != nil && r.Source != Log { // a line of WriteJSONL
		r.Ended = &Endings{}
		if err := json.Unmarshal(text, r.Ended); err != nil {
			return nil, err
		}
	}
	if r.Source == Log {
		r.InferStreaming()
	}
	return r, nil
}

// setField sets one field of a JSON line. fields holds pointers to the fields that are not
// metrics, by name; nil for a field to skip.
func (r *Result) setField(key string, text json.RawMessage, fields map[string]any) error {
	switch stat, isE2E := strings.CutSuffix(key, "_e2el_ms"); { // vLLM's names
	case isE2E:
		key = stat + "_e2e_latency_ms"
	case key == "total_token_throughput":
		key = "total_throughput"
	case key == "request_inthroughput": // until 0.4
		key = "request_throughput"
	}
	if m, ok := IDOf(key); ok {
		return r.setMetric(m, text)
	}
	if at, known := fields[key]; at != nil {
		return decode(text, at)
	} else if known {
		return nil
	}
	return r.keep(key, text)
}

// decode decodes text into *at. It leaves *at as it is if that fails.
func decode(text []byte, at any) error {
	to := reflect.ValueOf(at).Elem()
	v := reflect.New(to.Type())
	v.Elem().Set(to)
	if to.Kind() == reflect.Pointer { // else the decoder writes to what it points to
		v.Elem().SetZero()
	}
	err := json.Unmarshal(text, v.Interface())
	if err == nil {
		to.Set(v.Elem())
	}
	return err
}

// keep puts a value without a field of its own into the configuration.
func (r *Result) keep(key string, text json.RawMessage) error {
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return err
	}
	if key == "schema" && v != schema {
		return fmt.Errorf("is %s, expected %q", text, schema)
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
		switch f, err := strconv.ParseFloat(v, 64); {
		case v == "" || err == nil && !format.IsFinite(f): // see document.add
			return nil
		case err == nil:
			return r.setMetric(m, json.RawMessage(strconv.FormatFloat(f, 'g', -1, 64)))
		}
	}
	return fmt.Errorf("is %s, expected a number", format.Clip(string(text), 40))
}
