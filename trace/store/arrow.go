package store

import (
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"lorasim/internal/arrowfile"
	"lorasim/trace"
)

// arrowFile reads an Arrow IPC file one record batch at a time.
type arrowFile struct {
	r      *ipc.FileReader
	index  [6]int
	total  int64
	record int
	own    batch // for columns that need converting
}

func newArrow(f *arrowfile.File) (blocks, error) {
	r, err := f.Arrow()
	if err != nil {
		return nil, err
	}
	a := &arrowFile{r: r}
	fields := r.Schema().Fields()
	names := make([]string, len(fields))
	for i, field := range fields {
		names[i] = field.Name
	}
	if a.index, err = columnIndices(names); err != nil {
		return nil, err
	}
	for k, i := range a.index {
		if i < 0 {
			continue
		}
		got, isArrival := fields[i].Type.ID(), binaryColumns[k] == arrivalColumn
		isInt := got == arrow.INT32 || got == arrow.INT64
		if isArrival && got != arrow.FLOAT64 || !isArrival && !isInt {
			return nil, fmt.Errorf("column %q is of type %v, expected float64 for %s and int32 or int64 for others", names[i], fields[i].Type, arrivalColumn)
		}
	}
	// The format keeps the number of rows in each batch alone.
	for i := range r.NumRecords() {
		f.NextBatch()
		record, err := r.Record(i)
		if err != nil {
			return nil, err
		}
		if record.NumRows() < 0 {
			return nil, fmt.Errorf("record batch %d states %d rows", i+1, record.NumRows())
		}
		a.total += record.NumRows()
	}
	return a, nil
}

func (a *arrowFile) adapters() (string, bool) {
	return a.r.Schema().Metadata().GetValue(adaptersKey)
}

func (a *arrowFile) rows() int64 { return a.total }

func (a *arrowFile) next(b *batch) error {
	if a.record == a.r.NumRecords() {
		return io.EOF
	}
	record, err := a.r.Record(a.record)
	if err != nil {
		return err
	}
	a.record++
	for k, i := range a.index {
		if err := a.column(record, k, i, b); err != nil {
			return fmt.Errorf("record batch %d: column %q: %w", a.record, binaryColumns[k], err)
		}
	}
	return nil
}

// column points column k of the batch at column i of the record. The record
// stays valid until the next one is read.
func (a *arrowFile) column(record arrow.Record, k, i int, b *batch) (err error) {
	n := int(record.NumRows())
	if i < 0 { // no max_new_tokens
		a.own.resize(n)
		clear(a.own.small[k-2])
		b.small[k-2] = a.own.small[k-2]
		return nil
	}
	c := record.Column(i)
	if c.Len() != n {
		return fmt.Errorf("has %d values, expected %d", c.Len(), n)
	}
	if c.NullN() != 0 {
		return errors.New("has empty values")
	}
	switch c := c.(type) {
	case *array.Float64:
		b.arrival = c.Float64Values()
	case *array.Int64:
		if k == 0 {
			b.id = c.Int64Values()
			return nil
		}
		a.own.resize(n)
		b.small[k-2] = a.own.small[k-2]
		return convert(b.small[k-2], c.Int64Values())
	case *array.Int32:
		if k > 0 {
			b.small[k-2] = c.Int32Values()
			return nil
		}
		a.own.resize(n)
		b.id = a.own.id
		return convert(b.id, c.Int32Values())
	}
	return nil
}

// convert copies whole numbers between types, checking their range.
func convert[To, From int32 | int64](to []To, from []From) error {
	for i, x := range from {
		to[i] = To(x)
		if From(to[i]) != x {
			return fmt.Errorf("value %d is out of range", x)
		}
	}
	return nil
}

// arrowWriter writes record batches of batchRows rows, uncompressed.
type arrowWriter struct {
	w      *ipc.FileWriter
	schema *arrow.Schema
	b      batch
	n      int
}

func newArrowWriter(w io.WriteSeeker, adapters []trace.Adapter, _ WriteOptions) (encoder, error) {
	text, err := formatAdapters(adapters)
	if err != nil {
		return nil, err
	}
	var fields []arrow.Field
	for _, name := range binaryColumns {
		var t arrow.DataType = arrow.PrimitiveTypes.Int32
		switch name {
		case idColumn:
			t = arrow.PrimitiveTypes.Int64
		case arrivalColumn:
			t = arrow.PrimitiveTypes.Float64
		}
		fields = append(fields, arrow.Field{Name: name, Type: t})
	}
	meta := arrow.NewMetadata([]string{adaptersKey}, []string{text})
	a := &arrowWriter{schema: arrow.NewSchema(fields, &meta)}
	a.b.resize(batchRows)
	a.w, err = ipc.NewFileWriter(w, ipc.WithSchema(a.schema))
	return a, err
}

func (a *arrowWriter) write(r trace.Request) error {
	a.b.set(a.n, r)
	if a.n++; a.n < batchRows {
		return nil
	}
	return a.flush()
}

func (a *arrowWriter) flush() error {
	columns := []arrow.Array{
		vector(arrow.PrimitiveTypes.Int64, arrow.Int64Traits.CastToBytes(a.b.id[:a.n]), a.n),
		vector(arrow.PrimitiveTypes.Float64, arrow.Float64Traits.CastToBytes(a.b.arrival[:a.n]), a.n),
	}
	for _, values := range a.b.small {
		columns = append(columns, vector(arrow.PrimitiveTypes.Int32, arrow.Int32Traits.CastToBytes(values[:a.n]), a.n))
	}
	record := array.NewRecord(a.schema, columns, int64(a.n))
	a.n = 0
	return a.w.Write(record)
}

// vector views the bytes of n values without nulls as an Arrow array.
func vector(t arrow.DataType, values []byte, n int) arrow.Array {
	buffers := []*memory.Buffer{nil, memory.NewBufferBytes(values)}
	return array.MakeFromData(array.NewData(t, n, buffers, nil, 0, 0))
}

func (a *arrowWriter) close() error {
	if a.n > 0 {
		if err := a.flush(); err != nil {
			return err
		}
	}
	return a.w.Close()
}
