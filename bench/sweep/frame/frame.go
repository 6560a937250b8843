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
	"errors"
	"fmt"
	"io"

	"lorasim/internal/table"
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

// WriteFile writes the table in the format that the ending of path names. The
// file appears only when it is complete; the same table gives the same bytes.
func (f *Frame) WriteFile(path string) error {
	columns := make([]table.Column, len(f.Columns))
	for i, c := range f.Columns {
		columns[i] = table.Column{Name: c.Name, Value: c.Kind.cell(), Nullable: true}
	}
	w, err := table.Create(path, columns, table.Options{Meta: f.Meta})
	if err != nil {
		return err
	}
	defer w.Abort()
	for row := range f.Rows {
		for i, c := range f.Columns {
			switch p := columns[i].Value.(type) {
			case *string:
				*p = c.Texts[row]
			case *int64:
				*p = c.Ints[row]
			case *float64:
				*p = c.Floats[row]
			}
		}
		if err := w.Write(); err != nil {
			return err
		}
	}
	return w.Close()
}

// cell returns a place for a value of the kind.
func (k Kind) cell() any {
	switch k {
	case Text:
		return new(string)
	case Int:
		return new(int64)
	}
	return new(float64)
}

// ReadFile reads a table without lists from a Parquet file; every error names
// the file.
func ReadFile(path string) (*Frame, error) {
	r, err := table.Open(path, nil, table.Options{})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	f := &Frame{Meta: r.Meta()}
	values := make([]any, len(r.Columns()))
	for _, c := range r.Columns() {
		switch c.Value.(type) {
		case *string:
			f.Add(c.Name, Text)
		case *int64:
			f.Add(c.Name, Int)
		case *float64:
			f.Add(c.Name, Float)
		default:
			return nil, fmt.Errorf("%s: column %q holds lists, expected text or numbers", path, c.Name)
		}
	}
	for {
		err := r.Read()
		if errors.Is(err, io.EOF) {
			return f, nil
		}
		if err != nil {
			return nil, err
		}
		for i, c := range r.Columns() {
			switch p := c.Value.(type) {
			case *string:
				values[i] = *p
			case *int64:
				values[i] = *p
			case *float64:
				values[i] = *p
			}
		}
		f.Append(values...)
	}
}
