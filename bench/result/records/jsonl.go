package records

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"lorasim/internal/record"
)

// jsonEncoder writes one JSON object per line.
type jsonEncoder struct {
	w   *bufio.Writer
	buf []byte
}

func (e *jsonEncoder) encode(r *row) error {
	b := append(e.buf[:0], '{')
	for i := range columns {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		b = append(b, columns[i].name...)
		b = append(b, '"', ':')
		switch p := columns[i].field(r).(type) {
		case *int64:
			b = strconv.AppendInt(b, *p, 10)
		case *int32:
			b = strconv.AppendInt(b, int64(*p), 10)
		case *float64:
			b = appendNumber(b, *p)
		case *string:
			b = appendText(b, *p)
		case *record.Status:
			b = appendText(b, p.String())
		case *[]float64:
			b = appendGaps(b, *p)
		}
	}
	e.buf = append(b, '}', '\n')
	_, err := e.w.Write(e.buf)
	return err
}

func (e *jsonEncoder) finish() error { return nil }

func appendNumber(b []byte, v float64) []byte {
	if math.IsNaN(v) {
		return append(b, "null"...)
	}
	return strconv.AppendFloat(b, v, 'g', -1, 64)
}

// appendGaps appends token gaps, null where none were recorded.
func appendGaps(b []byte, gaps []float64) []byte {
	if gaps == nil {
		return append(b, "null"...)
	}
	b = append(b, '[')
	for i, g := range gaps {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendNumber(b, g)
	}
	return append(b, ']')
}

func appendText(b []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			text, _ := json.Marshal(s) // a string always has a JSON form
			return append(b, text...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

type jsonDecoder struct {
	name   string
	r      *bufio.Reader
	line   int
	fields map[string]json.RawMessage
}

func newJSONDecoder(r io.Reader, name string) *jsonDecoder {
	return &jsonDecoder{name: name, r: bufio.NewReaderSize(r, 1<<16), fields: map[string]json.RawMessage{}}
}

func (d *jsonDecoder) decode(r *row) error {
	text, err := d.next()
	if err != nil {
		return err
	}
	clear(d.fields)
	if err := json.Unmarshal(text, &d.fields); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return fmt.Errorf("%s:%d:%d: %w", d.name, d.line, syntax.Offset, err)
		}
		return fmt.Errorf("%s:%d: expected a JSON object: %w", d.name, d.line, err)
	}
	present := func(n string) bool { _, ok := d.fields[n]; return ok }
	if err := missing(present); err != nil {
		return fmt.Errorf("%s:%d: %w", d.name, d.line, err)
	}
	for i := range columns {
		c := &columns[i]
		text, ok := d.fields[c.name]
		if !ok {
			continue
		}
		if err := parseJSON(c.field(r), text); err != nil {
			return fmt.Errorf("%s:%d: field %s: %w", d.name, d.line, c.name, err)
		}
	}
	return nil
}

// next returns the next line that is not empty, or io.EOF.
func (d *jsonDecoder) next() ([]byte, error) {
	for {
		text, err := d.r.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%s:%d: %w", d.name, d.line+1, err)
		}
		d.line++
		if text = bytes.TrimSpace(text); len(text) > 0 {
			return text, nil
		}
		if err != nil {
			return nil, io.EOF
		}
	}
}

// parseJSON stores the value of one field.
func parseJSON(p any, text json.RawMessage) error {
	null := string(text) == "null"
	switch p := p.(type) {
	case *string:
		return json.Unmarshal(text, p)
	case *record.Status:
		var s string
		if err := json.Unmarshal(text, &s); err != nil {
			return err
		}
		return parseField(p, s)
	case *[]float64:
		if !null && bytes.Contains(text, []byte("null")) {
			return errors.New("holds a null, expected numbers")
		}
		return json.Unmarshal(text, p)
	case *float64:
		if null {
			*p = math.NaN()
			return nil
		}
		v, err := strconv.ParseFloat(string(text), 64)
		if err != nil {
			return fmt.Errorf("%s: expected a number or null", text)
		}
		return setFloat(p, v)
	}
	return parseField(p, string(text))
}
