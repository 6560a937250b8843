package records

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"lorasim/internal/record"
)

// csvEncoder writes comma-separated values (RFC 4180, lines that end in \n)
// with a header; token gaps are left out.
type csvEncoder struct {
	w   *bufio.Writer
	buf []byte
}

func newCSVEncoder(w *bufio.Writer) *csvEncoder {
	for i, c := range columns {
		if c.name == gapsColumn {
			continue
		}
		if i > 0 {
			w.WriteByte(',')
		}
		w.WriteString(c.name)
	}
	w.WriteByte('\n') // an error sticks to the writer until it is flushed
	return &csvEncoder{w: w}
}

func (e *csvEncoder) encode(r *row) error {
	b := e.buf[:0]
	for i := range columns {
		p := columns[i].field(r)
		if _, gaps := p.(*[]float64); gaps {
			continue
		}
		if i > 0 {
			b = append(b, ',')
		}
		switch p := p.(type) {
		case *int64:
			b = strconv.AppendInt(b, *p, 10)
		case *int32:
			b = strconv.AppendInt(b, int64(*p), 10)
		case *float64:
			if !math.IsNaN(*p) {
				b = strconv.AppendFloat(b, *p, 'g', -1, 64)
			}
		case *string:
			b = appendCSV(b, *p)
		case *record.Status:
			b = append(b, p.String()...)
		}
	}
	e.buf = append(b, '\n')
	_, err := e.w.Write(e.buf)
	return err
}

func (e *csvEncoder) finish() error { return nil }

// appendCSV appends a text field, in quotes where it needs them.
func appendCSV(b []byte, s string) []byte {
	if !strings.ContainsAny(s, ",\"\n") {
		return append(b, s...)
	}
	b = append(b, '"')
	b = append(b, strings.ReplaceAll(s, `"`, `""`)...)
	return append(b, '"')
}

type csvDecoder struct {
	name   string
	r      *csv.Reader
	fields []*column // by position; nil: unknown, ignored
}

func newCSVDecoder(r io.Reader, name string) (*csvDecoder, error) {
	d := &csvDecoder{name: name, r: csv.NewReader(r)}
	d.r.ReuseRecord = true
	header, err := d.r.Read()
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s:1: empty file: expected a header line", name)
	}
	if err != nil {
		return nil, d.place(err)
	}
	seen := map[string]bool{}
	for i, h := range header {
		if i == 0 {
			h = strings.TrimPrefix(h, "\ufeff")
		}
		if seen[h] {
			return nil, fmt.Errorf("%s:1: column %q is there twice", name, h)
		}
		seen[h] = true
		d.fields = append(d.fields, columnByName(h))
	}
	if err := missing(func(n string) bool { return seen[n] }); err != nil {
		return nil, fmt.Errorf("%s:1: %w", name, err)
	}
	return d, nil
}

// columnByName finds a column that text formats can read; nil if there is none.
func columnByName(name string) *column {
	for i := range columns {
		if columns[i].name == name {
			return &columns[i]
		}
	}
	return nil
}

func (d *csvDecoder) decode(r *row) error {
	fields, err := d.r.Read()
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	if err != nil {
		return d.place(err)
	}
	for i, c := range d.fields {
		if c == nil {
			continue
		}
		if err := parseField(c.field(r), fields[i]); err != nil {
			line, column := d.r.FieldPos(i)
			return fmt.Errorf("%s:%d:%d: column %s: %w", d.name, line, column, c.name, err)
		}
	}
	return nil
}

// place gives an error of the CSV reader the usual form.
func (d *csvDecoder) place(err error) error {
	var p *csv.ParseError
	if errors.As(err, &p) {
		return fmt.Errorf("%s:%d:%d: %w", d.name, p.Line, p.Column, p.Err)
	}
	return fmt.Errorf("%s: %w", d.name, err)
}

// parseField stores the text of one field.
func parseField(p any, s string) (err error) {
	switch p := p.(type) {
	case *string:
		*p = s
	case *record.Status:
		*p, err = record.ParseStatus(s)
	case *float64:
		if s == "" {
			*p = math.NaN()
			return nil
		}
		v, err := strconv.ParseFloat(s, 64)
		if err != nil || math.IsNaN(v) {
			return fmt.Errorf("%q: expected a number or nothing", s)
		}
		return setFloat(p, v)
	case *[]float64:
		if s != "" {
			return errors.New("token gaps are not read from CSV")
		}
	default:
		v, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return fmt.Errorf("%q: expected a whole number", s)
		}
		return setInt(p, v)
	}
	return err
}
