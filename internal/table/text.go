package table

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"lorasim/internal/suggest"
	"lorasim/internal/textfile"
)

// textEncoder writes CSV (RFC 4180, lines that end in \n, with a header) or JSON
// lines.
type textEncoder struct {
	w       *bufio.Writer
	json    bool
	columns []Column
	before  []string // what stands before each value
	line    []byte
}

func newTextEncoder(w *bufio.Writer, asJSON bool, columns []Column) (*textEncoder, error) {
	t := &textEncoder{w: w, json: asJSON}
	mark := "{"
	for _, c := range columns {
		if asJSON {
			t.before = append(t.before, mark+string(appendJSON(nil, c.Name))+":")
		} else if _, list := c.Value.(*[]float64); list {
			continue
		} else {
			t.before = append(t.before, strings.TrimPrefix(mark, "{"))
			t.line = appendCSV(append(t.line, t.before[len(t.columns)]...), c.Name)
		}
		t.columns = append(t.columns, c)
		mark = ","
	}
	if asJSON {
		return t, nil
	}
	_, err := w.Write(append(t.line, '\n'))
	return t, err
}

// Write implements Encoder.
func (t *textEncoder) Write() error {
	b := t.line[:0]
	for i := range t.columns {
		b = t.append(append(b, t.before[i]...), &t.columns[i])
	}
	if t.json {
		b = append(b, '}')
	}
	t.line = append(b, '\n')
	_, err := t.w.Write(t.line)
	return err
}

// Close implements Encoder.
func (t *textEncoder) Close() error { return nil }

func (t *textEncoder) append(b []byte, c *Column) []byte {
	switch p := c.Value.(type) {
	case *int64:
		return strconv.AppendInt(b, *p, 10)
	case *int32:
		return strconv.AppendInt(b, int64(*p), 10)
	case *float64:
		return t.appendFloat(b, *p, c.Decimal)
	case *string:
		if t.json {
			return appendJSON(b, *p)
		}
		return appendCSV(b, *p)
	case *[]float64: // JSON alone
		if *p == nil {
			return append(b, "null"...)
		}
		b = append(b, '[')
		for i, x := range *p {
			if i > 0 {
				b = append(b, ',')
			}
			b = t.appendFloat(b, x, c.Decimal)
		}
		return append(b, ']')
	}
	panic(fmt.Sprintf("table: column %s: cannot write a %T", c.Name, c.Value))
}

// appendFloat appends the shortest decimal that reads back as x, or null for what JSON cannot hold.
func (t *textEncoder) appendFloat(b []byte, x float64, decimal bool) []byte {
	switch {
	case t.json && (math.IsNaN(x) || math.IsInf(x, 0)):
		return append(b, "null"...)
	case math.IsNaN(x):
		return b
	case !decimal:
		return strconv.AppendFloat(b, x, 'g', -1, 64)
	case x == 0 || 1e-7 <= x && x < 1e15:
		return strconv.AppendFloat(b, x, 'f', -1, 64)
	}
	return strconv.AppendFloat(b, x, 'e', -1, 64)
}

func appendCSV(b []byte, s string) []byte {
	if isFormula(s) {
		s = "'" + s
	}
	if !strings.ContainsAny(s, ",\"\r\n") {
		return append(b, s...)
	}
	b = append(b, '"')
	b = append(b, strings.ReplaceAll(s, `"`, `""`)...)
	return append(b, '"')
}

// appendJSON escapes what HTML takes for its own where it escapes anything.
func appendJSON(b []byte, s string) []byte {
	special := func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' }
	if strings.ContainsFunc(s, special) {
		text, _ := json.Marshal(s) // a string always has a JSON form
		return append(b, text...)
	}
	return append(append(append(b, '"'), s...), '"')
}

// textDecoder reads CSV or JSON lines.
type textDecoder struct {
	file    *textfile.File
	columns []Column
	texts   Texts

	table *textfile.Table // CSV
	index []int           // of each column in it; -1: not there

	strict bool // JSON
	visit  func(key, value []byte) error
	quoted []string // names of the columns
	seen   []bool   // by column
	next   int      // column that the next member is likely to be of
}

func openText(ctx context.Context, path string, asJSON bool, columns []Column, o Options) (*Reader, error) {
	f, err := textfile.OpenIn(ctx, o.Files.FS, path, o.Progress)
	if err != nil {
		return nil, err
	}
	r, err := OpenText(f, asJSON, columns, o.Strict)
	if err == nil && !asJSON {
		r.text.table.Multiline = true
	}
	return r, err
}

// OpenText returns a Reader of JSON lines or CSV from an open file of any name. The Reader closes the file. CSV
// fields may not span lines.
func OpenText(f *textfile.File, asJSON bool, columns []Column, strict bool) (*Reader, error) {
	d, err := newTextDecoder(f, asJSON, columns, strict)
	if err != nil {
		f.Close()
		return nil, err
	}
	return &Reader{dec: d, text: d, file: f}, nil
}

func newTextDecoder(f *textfile.File, asJSON bool, columns []Column, strict bool) (*textDecoder, error) {
	d := &textDecoder{file: f, columns: columns, texts: Texts{}, strict: strict, seen: make([]bool, len(columns))}
	if d.visit = d.member; asJSON {
		for _, c := range columns {
			d.quoted = append(d.quoted, strconv.Quote(c.Name))
		}
		return d, nil
	}
	var err error
	if d.table, err = f.Header(); err != nil {
		return nil, err
	}
	if d.index, err = Bind(columns, d.table.Names(), strict); err != nil {
		return nil, f.Bad("", err)
	}
	return d, nil
}

// Rows implements Decoder.
func (d *textDecoder) Rows() (int64, error) { return -1, nil }

// Meta implements Decoder.
func (d *textDecoder) Meta() [][2]string { return nil }

// Bad implements Decoder.
func (d *textDecoder) Bad(column string, err error) error { return d.file.Bad(column, err) }

// Read implements Decoder.
func (d *textDecoder) Read() error {
	if d.table == nil {
		return d.readJSON()
	}
	fields, err := d.table.Row()
	if err != nil {
		return err
	}
	for i, at := range d.index {
		if at < 0 {
			continue
		}
		c := &d.columns[i]
		if err := d.set(c, fields[at]); err != nil {
			return d.file.Bad(c.Name, err)
		}
	}
	return nil
}

// set puts a field of a CSV file into the cell of a column.
func (d *textDecoder) set(c *Column, field []byte) error {
	if len(field) == 0 && (c.Nullable || c.Optional) {
		if c.Nullable {
			return c.Null()
		}
		return nil
	}
	switch p := c.Value.(type) {
	case *string:
		*p = d.texts.Of(Unquoted(field))
	case *Raw:
		*p = field
	case *[]float64:
		return errors.New("lists are not read from CSV")
	default:
		return c.number(field)
	}
	return nil
}

// number puts a number of a text file into the cell.
func (c *Column) number(text []byte) (err error) {
	switch p := c.Value.(type) {
	case *int32:
		x, err := textfile.Int(text)
		if *p = int32(x); err == nil && int64(*p) != x {
			err = outOfRange(x)
		}
		return err
	case *int64:
		*p, err = textfile.Int(text)
	case *float64:
		*p, err = textfile.Float(text)
	}
	return err
}

func (d *textDecoder) readJSON() error {
	clear(d.seen)
	d.next = 0
	if err := d.file.Object(d.visit); err != nil {
		return err
	}
	for i, c := range d.columns {
		if !d.seen[i] && !c.Optional {
			return d.file.Bad(c.Name, errors.New("is missing"))
		}
	}
	return nil
}

// member puts the value of a JSON member into the cell of its column.
func (d *textDecoder) member(key, value []byte) error {
	i := d.next
	if i >= len(d.columns) || d.quoted[i] != string(key) {
		name, err := textfile.Text(key)
		if err != nil {
			return d.file.Bad("", err)
		}
		i = slices.IndexFunc(d.columns, func(c Column) bool { return c.Name == string(name) })
		if i < 0 && d.strict {
			return d.file.Bad("", unknown("key", string(name), d.columns))
		}
		if i < 0 {
			return nil
		}
	}
	c := &d.columns[i]
	if d.seen[i] {
		return d.file.Bad(c.Name, errors.New("appears twice"))
	}
	d.next, d.seen[i] = i+1, true
	if err := d.setJSON(c, value); err != nil {
		return d.file.Bad(c.Name, err)
	}
	return nil
}

func (d *textDecoder) setJSON(c *Column, value []byte) error {
	if p, ok := c.Value.(*Raw); ok {
		*p = value
		return nil
	}
	if string(value) == "null" {
		return c.Null()
	}
	switch p := c.Value.(type) {
	case *string:
		text, err := textfile.Text(value)
		*p = d.texts.Of(text)
		return err
	case *[]float64:
		return setList(p, value)
	}
	return c.number(value)
}

// setList reads a JSON array of numbers.
func setList(p *[]float64, value []byte) error {
	if value[0] != '[' {
		return fmt.Errorf("%s is not a list of numbers", suggest.Clip(string(value)))
	}
	value = bytes.TrimSpace(value[1 : len(value)-1])
	*p = make([]float64, 0, min(len(value), bytes.Count(value, []byte(","))+1))
	for text := range bytes.SplitSeq(value, []byte(",")) {
		if len(value) == 0 {
			break
		}
		x, err := textfile.Float(bytes.TrimSpace(text))
		if err != nil {
			return err
		}
		*p = append(*p, x)
	}
	return nil
}
