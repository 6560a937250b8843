package frame

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/schema"

	"lorasim/internal/arrowfile"
)

// WriteParquet writes the table as one row group. The same table gives the same
// bytes.
func (f *Frame) WriteParquet(w io.Writer) error {
	var fields schema.FieldList
	for _, c := range f.Columns {
		var n schema.Node
		var err error
		switch c.Kind {
		case Int:
			n = schema.NewInt64Node(c.Name, parquet.Repetitions.Required, -1)
		case Float:
			n = schema.NewFloat64Node(c.Name, parquet.Repetitions.Optional, -1)
		default:
			n, err = schema.NewPrimitiveNodeLogical(c.Name, parquet.Repetitions.Required,
				schema.StringLogicalType{}, parquet.Types.ByteArray, -1, -1)
		}
		if err != nil {
			return err
		}
		fields = append(fields, n)
	}
	root, err := schema.NewGroupNode("schema", parquet.Repetitions.Required, fields, -1)
	if err != nil {
		return err
	}
	props := parquet.NewWriterProperties(parquet.WithCompression(compress.Codecs.Snappy))
	out := file.NewParquetWriter(w, root, file.WithWriterProps(props))
	for _, p := range f.Meta {
		if err := out.AppendKeyValueMetadata(p[0], p[1]); err != nil {
			return err
		}
	}
	group := out.AppendRowGroup()
	for _, c := range f.Columns {
		cw, err := group.NextColumn()
		if err == nil {
			err = c.writeTo(cw)
		}
		if err != nil {
			return fmt.Errorf("column %s: %w", c.Name, err)
		}
	}
	if err := group.Close(); err != nil {
		return err
	}
	return out.Close()
}

func (c *Column) writeTo(w file.ColumnChunkWriter) (err error) {
	switch w := w.(type) {
	case *file.Int64ColumnChunkWriter:
		_, err = w.WriteBatch(c.Ints, nil, nil)
	case *file.Float64ColumnChunkWriter:
		def := make([]int16, len(c.Floats))
		var there []float64
		for i, x := range c.Floats {
			if !math.IsNaN(x) {
				def[i] = 1
				there = append(there, x)
			}
		}
		_, err = w.WriteBatch(there, def, nil)
	case *file.ByteArrayColumnChunkWriter:
		texts := make([]parquet.ByteArray, len(c.Texts))
		for i, s := range c.Texts {
			texts[i] = parquet.ByteArray(s)
		}
		_, err = w.WriteBatch(texts, nil, nil)
	}
	return err
}

// ReadFile reads a table from a Parquet file; every error names the file.
func ReadFile(path string) (*Frame, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadParquet(f, path)
}

// ReadParquet reads a table without lists from a Parquet file called name.
func ReadParquet(src arrowfile.Source, name string) (*Frame, error) {
	var out *Frame
	err := arrowfile.Guard(func() (err error) {
		out, err = readParquet(src)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return out, nil
}

func readParquet(src arrowfile.Source) (*Frame, error) {
	in, err := arrowfile.New(src)
	if err != nil {
		return nil, err
	}
	r, err := in.Parquet()
	if err != nil {
		return nil, err
	}
	out := &Frame{}
	kv := r.MetaData().KeyValueMetadata()
	for i, k := range kv.Keys() {
		out.Meta = append(out.Meta, [2]string{k, kv.Values()[i]})
	}
	s := r.MetaData().Schema
	for i := range s.NumColumns() {
		d := s.Column(i)
		kind, ok := map[parquet.Type]Kind{parquet.Types.ByteArray: Text, parquet.Types.Int64: Int, parquet.Types.Double: Float}[d.PhysicalType()]
		if !ok || d.MaxRepetitionLevel() > 0 || d.MaxDefinitionLevel() > 1 || kind != Float && d.MaxDefinitionLevel() > 0 {
			return nil, fmt.Errorf("column %s has type %s, expected text, 64-bit whole numbers, or floating-point numbers", d.Name(), d.PhysicalType())
		}
		out.Add(d.Name(), kind)
	}
	for g := range r.NumRowGroups() {
		rows := r.RowGroup(g).NumRows()
		for i, c := range out.Columns {
			if err := c.read(in, r, g, i, rows); err != nil {
				return nil, fmt.Errorf("column %s: %w", c.Name, err)
			}
		}
		out.Rows += int(rows)
	}
	return out, nil
}

var errShort = errors.New("ends before the row group does")

// read appends one column of a row group.
func (c *Column) read(in *arrowfile.File, r *file.Reader, group, leaf int, rows int64) error {
	in.NextBatch()
	pages, err := in.Pages(r, group, leaf)
	if err != nil {
		return err
	}
	reader := file.NewColumnReader(pages.Column(), pages, in.Allocator(), r.BufferPool())
	const most = 1024
	var def, rep [most]int16
	for rows > 0 {
		// never on into another page, since text lies in the memory of its page
		n := min(rows, int64(max(pages.Left, 1)), most)
		switch cr := reader.(type) {
		case *file.Int64ColumnChunkReader:
			var values [most]int64
			n, _, err = cr.ReadBatch(n, values[:], def[:], rep[:])
			c.Ints = append(c.Ints, values[:n]...)
		case *file.ByteArrayColumnChunkReader:
			var values [most]parquet.ByteArray
			n, _, err = cr.ReadBatch(n, values[:], def[:], rep[:])
			for _, v := range values[:n] {
				c.Texts = append(c.Texts, string(v))
			}
		case *file.Float64ColumnChunkReader:
			var values [most]float64
			var have int
			n, have, err = cr.ReadBatch(n, values[:], def[:], rep[:])
			if err == nil {
				err = c.addFloats(values[:have], def[:n], pages.Column().MaxDefinitionLevel())
			}
		default:
			return fmt.Errorf("unexpected reader %T", reader)
		}
		if err == nil {
			err = pages.Err()
		}
		if err != nil {
			return err
		}
		if n <= 0 {
			return errShort
		}
		pages.Left -= int(n)
		rows -= n
	}
	return nil
}

// addFloats appends numbers; those without a definition are absent.
func (c *Column) addFloats(values []float64, def []int16, top int16) error {
	for _, d := range def {
		switch {
		case d < top:
			c.Floats = append(c.Floats, math.NaN())
		case len(values) == 0:
			return errShort
		default:
			c.Floats = append(c.Floats, values[0])
			values = values[1:]
		}
	}
	return nil
}
