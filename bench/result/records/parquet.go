package records

import (
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/schema"

	"lorasim/internal/arrowfile"
	"lorasim/internal/record"
)

// The columns go to and from Parquet without Arrow in between: the bridge of
// the Arrow library (pqarrow) would link a whole RPC framework into the binary.

// parquetSchema returns the Parquet schema of the columns.
func parquetSchema() (*schema.GroupNode, error) {
	var fields schema.FieldList
	var r row
	for _, c := range columns {
		var n schema.Node
		var err error
		switch c.field(&r).(type) {
		case *int64:
			n = schema.NewInt64Node(c.name, parquet.Repetitions.Required, -1)
		case *int32:
			n = schema.NewInt32Node(c.name, parquet.Repetitions.Required, -1)
		case *float64:
			n = schema.NewFloat64Node(c.name, parquet.Repetitions.Optional, -1)
		case *string, *record.Status:
			n, err = schema.NewPrimitiveNodeLogical(c.name, parquet.Repetitions.Required,
				schema.StringLogicalType{}, parquet.Types.ByteArray, -1, -1)
		case *[]float64:
			element := schema.NewFloat64Node("element", parquet.Repetitions.Required, -1)
			n, err = schema.ListOfWithName(c.name, element, parquet.Repetitions.Optional, -1)
		}
		if err != nil {
			return nil, err
		}
		fields = append(fields, n)
	}
	return schema.NewGroupNode("schema", parquet.Repetitions.Required, fields, -1)
}

// parquetEncoder writes one row group for each batch of rows.
type parquetEncoder struct {
	w       *file.Writer
	rows    int
	buffers []columnBuffer // by column
}

// columnBuffer holds a batch of one column. def and rep are the definition and
// repetition levels of the Dremel encoding (S. Melnik et al., VLDB 2010): def
// counts the optional and repeated nodes that are there, rep is 1 for the
// second and later elements of a list.
type columnBuffer struct {
	int64s   []int64
	int32s   []int32
	floats   []float64
	texts    []parquet.ByteArray
	arena    []byte // of texts
	def, rep []int16
}

func newParquetEncoder(w io.Writer) (*parquetEncoder, error) {
	s, err := parquetSchema()
	if err != nil {
		return nil, err
	}
	props := parquet.NewWriterProperties(parquet.WithCompression(compress.Codecs.Snappy))
	return &parquetEncoder{
		w:       file.NewParquetWriter(w, s, file.WithWriterProps(props)),
		buffers: make([]columnBuffer, len(columns)),
	}, nil
}

func (e *parquetEncoder) encode(r *row) error {
	for i := range columns {
		e.buffers[i].add(columns[i].field(r))
	}
	if e.rows++; e.rows == batchRows {
		return e.flush()
	}
	return nil
}

func (b *columnBuffer) add(p any) {
	switch p := p.(type) {
	case *int64:
		b.int64s = append(b.int64s, *p)
	case *int32:
		b.int32s = append(b.int32s, *p)
	case *float64:
		if math.IsNaN(*p) {
			b.def = append(b.def, 0)
			return
		}
		b.def = append(b.def, 1)
		b.floats = append(b.floats, *p)
	case *string:
		b.addText(*p)
	case *record.Status:
		b.addText(p.String())
	case *[]float64:
		b.addList(*p)
	}
}

func (b *columnBuffer) addText(s string) {
	start := len(b.arena)
	b.arena = append(b.arena, s...)
	b.texts = append(b.texts, parquet.ByteArray(b.arena[start:]))
}

// addList adds an optional list: definition level 0 for no list, 1 for an empty
// one, 2 for each element.
func (b *columnBuffer) addList(list []float64) {
	b.rep = append(b.rep, 0)
	switch {
	case list == nil:
		b.def = append(b.def, 0)
		return
	case len(list) == 0:
		b.def = append(b.def, 1)
		return
	}
	for i := range list {
		if i > 0 {
			b.rep = append(b.rep, 1)
		}
		b.def = append(b.def, 2)
	}
	b.floats = append(b.floats, list...)
}

func (b *columnBuffer) write(w file.ColumnChunkWriter) (err error) {
	switch w := w.(type) {
	case *file.Int64ColumnChunkWriter:
		_, err = w.WriteBatch(b.int64s, nil, nil)
	case *file.Int32ColumnChunkWriter:
		_, err = w.WriteBatch(b.int32s, nil, nil)
	case *file.Float64ColumnChunkWriter:
		_, err = w.WriteBatch(b.floats, b.def, b.rep)
	case *file.ByteArrayColumnChunkWriter:
		_, err = w.WriteBatch(b.texts, nil, nil)
	}
	return err
}

func (b *columnBuffer) reset() {
	b.int64s, b.int32s, b.floats = b.int64s[:0], b.int32s[:0], b.floats[:0]
	b.texts, b.arena = b.texts[:0], b.arena[:0]
	b.def, b.rep = b.def[:0], b.rep[:0]
}

func (e *parquetEncoder) flush() error {
	group := e.w.AppendRowGroup()
	for i := range e.buffers {
		w, err := group.NextColumn()
		if err != nil {
			return err
		}
		if err := e.buffers[i].write(w); err != nil {
			return fmt.Errorf("column %s: %w", columns[i].name, err)
		}
	}
	if err := group.Close(); err != nil {
		return err
	}
	for i := range e.buffers {
		e.buffers[i].reset()
	}
	e.rows = 0
	return nil
}

func (e *parquetEncoder) finish() error {
	if e.rows > 0 {
		if err := e.flush(); err != nil {
			return err
		}
	}
	return e.w.Close()
}

// parquetDecoder walks all columns of a row group side by side.
type parquetDecoder struct {
	name    string
	file    *arrowfile.File
	r       *file.Reader
	leaves  []int // of the file, by column; -1: absent
	streams []stream
	group   int   // next row group
	left    int64 // rows left in the current one
	row     int64 // rows read before
}

func newParquetDecoder(src arrowfile.Source, name string) (d *parquetDecoder, err error) {
	err = guard(name, 0, func() error {
		f, err := arrowfile.New(src)
		if err != nil {
			return err
		}
		r, err := f.Parquet()
		if err != nil {
			return err
		}
		d = &parquetDecoder{name: name, file: f, r: r}
		return d.bind()
	})
	return d, err
}

// bind finds the leaf columns of the file, a list's by the name of the list.
func (d *parquetDecoder) bind() error {
	s := d.r.MetaData().Schema
	found := map[string]int{}
	for i := range s.NumColumns() {
		found[s.Column(i).ColumnPath()[0]] = i
	}
	if err := missing(func(n string) bool { _, ok := found[n]; return ok }); err != nil {
		return err
	}
	for _, c := range columns {
		leaf, ok := found[c.name]
		if !ok {
			leaf = -1
		}
		d.leaves = append(d.leaves, leaf)
	}
	return nil
}

func (d *parquetDecoder) decode(r *row) error {
	d.file.NextBatch()
	return guard(d.name, d.row+1, func() error {
		for d.left == 0 {
			if d.group == d.r.NumRowGroups() {
				return io.EOF
			}
			if err := d.openGroup(); err != nil {
				return err
			}
		}
		d.left--
		d.row++
		for i, s := range d.streams {
			if s == nil {
				continue
			}
			if err := s.take(columns[i].field(r)); err != nil {
				return fmt.Errorf("column %s: %w", columns[i].name, err)
			}
		}
		return nil
	})
}

// openGroup begins the next row group.
func (d *parquetDecoder) openGroup() error {
	group := d.group
	d.group++
	d.left = max(d.r.RowGroup(group).NumRows(), 0)
	d.streams = make([]stream, len(columns))
	var r row
	for i, leaf := range d.leaves {
		if leaf < 0 {
			continue
		}
		pages, err := d.file.Pages(d.r, group, leaf)
		if err == nil {
			d.streams[i], err = newStream(pages, d.file.Allocator(), d.r.BufferPool(), columns[i].field(&r))
		}
		if err != nil {
			return fmt.Errorf("column %s: %w", columns[i].name, err)
		}
	}
	return nil
}

var errShort = errors.New("ends before the row group does")
