// Package frame is a table with typed columns, as sweeps write and read them:
// CSV and JSON lines for people and scripts, Parquet for both and to be read
// back.
//
//	f := frame.New("policy", frame.Text, "mean_ms", frame.Float)
//	f.Append("static", 12.5)
//	f.Append("p2c", math.NaN()) // absent: empty in CSV, null elsewhere
//	err := f.WriteFile("table.parquet")
package frame

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"lorasim/internal/atomicfile"
)

// Kind is the type of a column.
type Kind uint8

// The kinds.
const (
	Text Kind = iota
	Int
	Float // NaN is an absent value
)

func (k Kind) String() string { return [...]string{"text", "whole numbers", "numbers"}[k] }

// Column is one column; the slice of its kind is used.
type Column struct {
	Name   string
	Kind   Kind
	Texts  []string
	Ints   []int64
	Floats []float64
}

// Frame is a table. All columns have Rows values.
type Frame struct {
	Columns []*Column
	Rows    int
	// Meta is what a Parquet file says of itself, as pairs of key and value.
	Meta [][2]string
}

// New returns an empty table with the given names and kinds in turn.
func New(namesAndKinds ...any) *Frame {
	f := &Frame{}
	for i := 0; i+1 < len(namesAndKinds); i += 2 {
		f.Add(namesAndKinds[i].(string), namesAndKinds[i+1].(Kind))
	}
	return f
}

// Add appends a column to a table that has no rows yet.
func (f *Frame) Add(name string, kind Kind) {
	f.Columns = append(f.Columns, &Column{Name: name, Kind: kind})
}

// Append adds a row: a string, an int64 or int, or a float64 for each column.
func (f *Frame) Append(values ...any) {
	if len(values) != len(f.Columns) {
		panic(fmt.Sprintf("frame: %d values for %d columns", len(values), len(f.Columns)))
	}
	for i, v := range values {
		switch c := f.Columns[i]; v := v.(type) {
		case string:
			c.Texts = append(c.Texts, v)
		case int:
			c.Ints = append(c.Ints, int64(v))
		case int64:
			c.Ints = append(c.Ints, v)
		case float64:
			c.Floats = append(c.Floats, v)
		default:
			panic(fmt.Sprintf("frame: column %s: value of type %T", c.Name, v))
		}
	}
	f.Rows++
}

// Column finds a column of the given kind.
func (f *Frame) Column(name string, kind Kind) (*Column, error) {
	for _, c := range f.Columns {
		if c.Name == name {
			if c.Kind != kind {
				return nil, fmt.Errorf("column %s holds %s, expected %s", name, c.Kind, kind)
			}
			return c, nil
		}
	}
	return nil, fmt.Errorf("no column %s", name)
}

// MetaValue returns what the file says of itself under key, or "".
func (f *Frame) MetaValue(key string) string {
	for _, p := range f.Meta {
		if p[0] == key {
			return p[1]
		}
	}
	return ""
}

// WriteFile writes the table in the format that the ending of path names:
// .csv, .jsonl or .parquet. The file appears only when it is complete.
func (f *Frame) WriteFile(path string) error {
	write := f.WriteParquet
	switch ext := strings.ToLower(filepath.Ext(path)); ext {
	case ".csv":
		write = f.WriteCSV
	case ".jsonl":
		write = f.WriteJSONL
	case ".parquet":
	default:
		return fmt.Errorf("%s: unknown format %q: expected a name that ends in .csv, .jsonl or .parquet", path, ext)
	}
	err := atomicfile.Write(path, func(file *atomicfile.File) error {
		out := bufio.NewWriterSize(file, 1<<16)
		if err := write(out); err != nil {
			return err
		}
		return out.Flush()
	})
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// WriteCSV writes the table with a header line.
func (f *Frame) WriteCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	line := make([]string, len(f.Columns))
	for i, c := range f.Columns {
		line[i] = c.Name
	}
	if err := out.Write(line); err != nil {
		return err
	}
	for row := range f.Rows {
		for i, c := range f.Columns {
			line[i] = c.text(row)
		}
		if err := out.Write(line); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

func (c *Column) text(row int) string {
	switch c.Kind {
	case Text:
		return c.Texts[row]
	case Int:
		return strconv.FormatInt(c.Ints[row], 10)
	}
	if math.IsNaN(c.Floats[row]) {
		return ""
	}
	return strconv.FormatFloat(c.Floats[row], 'g', -1, 64)
}

// WriteJSONL writes one JSON object per row, with the columns in their order.
// A number that JSON cannot hold is null.
func (f *Frame) WriteJSONL(w io.Writer) error {
	var b []byte
	for row := range f.Rows {
		b = append(b[:0], '{')
		for i, c := range f.Columns {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendJSON(b, c.Name)
			b = append(b, ':')
			switch {
			case c.Kind == Text:
				b = appendJSON(b, c.Texts[row])
			case c.Kind == Float && (math.IsNaN(c.Floats[row]) || math.IsInf(c.Floats[row], 0)):
				b = append(b, "null"...)
			default:
				b = append(b, c.text(row)...)
			}
		}
		if _, err := w.Write(append(b, '}', '\n')); err != nil {
			return err
		}
	}
	return nil
}

func appendJSON(b []byte, s string) []byte {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings always marshal
	}
	return append(b, text...)
}
