package arrowfile_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/schema"

	"lorasim/internal/arrowfile"
)

// What the files below hold: a number, one that may be empty, a text, a list.
var (
	numbers  = []int64{7, 8, 8, -1}
	optional = []int32{5, 5, 6} // the second one is empty
	present  = []bool{true, false, true, true}
	texts    = []string{"a", "", "ccc", "a"}
	lists    = [][]float64{{1, 2, 3}, {}, {4}, {5, 6}}
)

// seekBuffer is a buffer that Arrow files can be written to.
type seekBuffer struct{ bytes.Buffer }

func (b *seekBuffer) Seek(offset int64, whence int) (int64, error) {
	if offset != 0 || whence == io.SeekStart {
		return 0, errors.New("seekBuffer only tells where it is")
	}
	return int64(b.Len()), nil
}

func arrowFile(tb testing.TB, options ...ipc.Option) []byte {
	tb.Helper()
	s := arrow.NewSchema([]arrow.Field{
		{Name: "number", Type: arrow.PrimitiveTypes.Int64},
		{Name: "optional", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
		{Name: "text", Type: arrow.BinaryTypes.String},
		{Name: "list", Type: arrow.ListOf(arrow.PrimitiveTypes.Float64)},
	}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, s)
	for i := range numbers {
		b.Field(0).(*array.Int64Builder).Append(numbers[i])
		if present[i] {
			b.Field(1).(*array.Int32Builder).Append(int32(numbers[i]))
		} else {
			b.Field(1).AppendNull()
		}
		b.Field(2).(*array.StringBuilder).Append(texts[i])
		list := b.Field(3).(*array.ListBuilder)
		list.Append(true)
		list.ValueBuilder().(*array.Float64Builder).AppendValues(lists[i], nil)
	}
	return writeArrow(tb, b.NewRecord(), options...)
}

func writeArrow(tb testing.TB, record arrow.Record, options ...ipc.Option) []byte {
	tb.Helper()
	var out seekBuffer
	w, err := ipc.NewFileWriter(&out, append(options, ipc.WithSchema(record.Schema()))...)
	if err == nil {
		err = errors.Join(w.Write(record), w.Write(record), w.Close())
	}
	if err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}

func parquetFile(tb testing.TB, options ...parquet.WriterProperty) []byte {
	tb.Helper()
	required := parquet.Repetitions.Required
	list, err := schema.ListOf(schema.NewFloat64Node("list", required, -1), required, -1)
	if err != nil {
		tb.Fatal(err)
	}
	root, err := schema.NewGroupNode("schema", required, schema.FieldList{
		schema.NewInt64Node("number", required, -1),
		schema.NewInt32Node("optional", parquet.Repetitions.Optional, -1),
		schema.NewByteArrayNode("text", required, -1),
		list,
	}, -1)
	if err != nil {
		tb.Fatal(err)
	}
	var out bytes.Buffer
	w := file.NewParquetWriter(&out, root, file.WithWriterProps(parquet.NewWriterProperties(options...)))
	for range 2 {
		group := w.AppendRowGroup()
		for range root.NumFields() {
			c, err := group.NextColumn()
			if err == nil {
				err = writeColumn(c)
			}
			if err != nil {
				tb.Fatal(err)
			}
		}
		if err := group.Close(); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}

func writeColumn(c file.ColumnChunkWriter) (err error) {
	switch c := c.(type) {
	case *file.Int64ColumnChunkWriter:
		_, err = c.WriteBatch(numbers, nil, nil)
	case *file.Int32ColumnChunkWriter:
		_, err = c.WriteBatch(optional, []int16{1, 0, 1, 1}, nil)
	case *file.ByteArrayColumnChunkWriter:
		values := make([]parquet.ByteArray, len(texts))
		for i, s := range texts {
			values[i] = parquet.ByteArray(s)
		}
		_, err = c.WriteBatch(values, nil, nil)
	case *file.Float64ColumnChunkWriter:
		_, err = c.WriteBatch([]float64{1, 2, 3, 4, 5, 6}, []int16{1, 1, 1, 0, 1, 1, 1}, []int16{0, 1, 1, 0, 0, 0, 1})
	}
	return errors.Join(err, c.Close())
}

// readArrow reads all batches, as text.
func readArrow(content []byte) (text string, err error) {
	f, err := arrowfile.New(bytes.NewReader(content))
	if err != nil {
		return "", err
	}
	r, err := f.Arrow()
	if err != nil {
		return "", err
	}
	err = arrowfile.Guard(func() error {
		for i := range r.NumRecords() {
			f.NextBatch()
			record, err := r.Record(i)
			if err != nil {
				return err
			}
			for _, c := range record.Columns() {
				if c.Len() > 1000 {
					return errors.New("implausible")
				}
				text += fmt.Sprint(c)
			}
		}
		return nil
	})
	return text, err
}

// readParquet reads all columns through the library's decoders, as text.
func readParquet(content []byte) (text string, err error) {
	f, err := arrowfile.New(bytes.NewReader(content))
	if err != nil {
		return "", err
	}
	r, err := f.Parquet()
	if err != nil {
		return "", err
	}
	err = arrowfile.Guard(func() error {
		for g := range r.NumRowGroups() {
			for c := range r.MetaData().Schema.NumColumns() {
				f.NextBatch()
				pages, err := f.Pages(r, g, c)
				if err != nil {
					return err
				}
				values, err := readColumn(file.NewColumnReader(pages.Column(), pages, f.Allocator(), r.BufferPool()))
				if err = errors.Join(err, pages.Err()); err != nil {
					return err
				}
				text += values
			}
		}
		return nil
	})
	return text, err
}

func readColumn(c file.ColumnChunkReader) (string, error) {
	switch c := c.(type) {
	case *file.Int32ColumnChunkReader:
		return readAll(c.ReadBatch)
	case *file.Int64ColumnChunkReader:
		return readAll(c.ReadBatch)
	case *file.Float64ColumnChunkReader:
		return readAll(c.ReadBatch)
	case *file.ByteArrayColumnChunkReader:
		return readAll(c.ReadBatch)
	}
	return "", errors.New("unexpected type")
}

func readAll[T any](read func(int64, []T, []int16, []int16) (int64, int, error)) (text string, err error) {
	const batch = 3
	values, def, rep := make([]T, batch), make([]int16, batch), make([]int16, batch)
	for {
		levels, n, err := read(batch, values, def, rep)
		if err != nil || levels == 0 {
			return text, err
		}
		text += fmt.Sprint(values[:n])
		if len(text) > 10_000 {
			return text, errors.New("implausible")
		}
	}
}
