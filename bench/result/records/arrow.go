package records

import (
	"fmt"
	"io"
	"math"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"lorasim/internal/arrowfile"
	"lorasim/internal/record"
)

// batchRows is the number of rows written as one batch or row group.
const batchRows = 1 << 16

// arrowSchema returns the Arrow schema of the columns.
func arrowSchema() *arrow.Schema {
	var fields []arrow.Field
	var r row
	for _, c := range columns {
		f := arrow.Field{Name: c.name}
		switch c.field(&r).(type) {
		case *int64:
			f.Type = arrow.PrimitiveTypes.Int64
		case *int32:
			f.Type = arrow.PrimitiveTypes.Int32
		case *float64:
			f.Type, f.Nullable = arrow.PrimitiveTypes.Float64, true
		case *string, *record.Status:
			f.Type = arrow.BinaryTypes.String
		case *[]float64:
			f.Type, f.Nullable = arrow.ListOfNonNullable(arrow.PrimitiveTypes.Float64), true
		}
		fields = append(fields, f)
	}
	return arrow.NewSchema(fields, nil)
}

// batchEncoder gathers rows into Arrow batches.
type batchEncoder struct {
	builder *array.RecordBuilder
	rows    int
	write   func(arrow.Record) error
	close   func() error
}

func newArrowEncoder(f io.WriteSeeker) (*batchEncoder, error) {
	s := arrowSchema()
	w, err := ipc.NewFileWriter(f, ipc.WithSchema(s))
	if err != nil {
		return nil, err
	}
	return &batchEncoder{
		builder: array.NewRecordBuilder(memory.DefaultAllocator, s),
		write:   w.Write, close: w.Close,
	}, nil
}

func (e *batchEncoder) encode(r *row) error {
	for i := range columns {
		switch p := columns[i].field(r).(type) {
		case *int64:
			e.builder.Field(i).(*array.Int64Builder).Append(*p)
		case *int32:
			e.builder.Field(i).(*array.Int32Builder).Append(*p)
		case *float64:
			b := e.builder.Field(i).(*array.Float64Builder)
			if math.IsNaN(*p) {
				b.AppendNull()
			} else {
				b.Append(*p)
			}
		case *string:
			e.builder.Field(i).(*array.StringBuilder).Append(*p)
		case *record.Status:
			e.builder.Field(i).(*array.StringBuilder).Append(p.String())
		case *[]float64:
			b := e.builder.Field(i).(*array.ListBuilder)
			if *p == nil {
				b.AppendNull()
				continue
			}
			b.Append(true)
			b.ValueBuilder().(*array.Float64Builder).AppendValues(*p, nil)
		}
	}
	if e.rows++; e.rows == batchRows {
		return e.flush()
	}
	return nil
}

func (e *batchEncoder) flush() error {
	e.rows = 0
	batch := e.builder.NewRecord()
	defer batch.Release()
	return e.write(batch)
}

func (e *batchEncoder) finish() error {
	if e.rows > 0 {
		if err := e.flush(); err != nil {
			return err
		}
	}
	return e.close()
}

// batchDecoder takes rows from Arrow batches.
type batchDecoder struct {
	name  string
	file  *arrowfile.File
	next  func() (arrow.Record, error) // io.EOF after the last batch
	batch arrow.Record
	cols  []int // by position in columns; -1: absent
	at    int   // next row of batch
	row   int64 // rows read before
}

func newArrowDecoder(src arrowfile.Source, name string) (d *batchDecoder, err error) {
	err = guard(name, 0, func() error {
		f, err := arrowfile.New(src)
		if err != nil {
			return err
		}
		r, err := f.Arrow()
		if err != nil {
			return err
		}
		d = &batchDecoder{name: name, file: f, next: r.Read}
		return d.bind(r.Schema())
	})
	return d, err
}

// bind finds the columns in the file's schema.
func (d *batchDecoder) bind(s *arrow.Schema) error {
	if err := missing(func(n string) bool { return len(s.FieldIndices(n)) == 1 }); err != nil {
		return err
	}
	for _, c := range columns {
		at := -1
		if is := s.FieldIndices(c.name); len(is) == 1 {
			at = is[0]
		}
		d.cols = append(d.cols, at)
	}
	return nil
}

func (d *batchDecoder) decode(r *row) error {
	for d.batch == nil || d.at >= int(d.batch.NumRows()) {
		d.file.NextBatch()
		err := guard(d.name, 0, func() (err error) {
			d.batch, err = d.next()
			return err
		})
		if err != nil {
			return err
		}
		d.at = 0
	}
	err := guard(d.name, d.row+1, func() error { return d.take(r) })
	d.at++
	d.row++
	return err
}

// take copies the current row of the batch.
func (d *batchDecoder) take(r *row) error {
	for i, at := range d.cols {
		if at < 0 {
			continue
		}
		if err := takeValue(columns[i].field(r), d.batch.Column(at), d.at); err != nil {
			return fmt.Errorf("column %s: %w", columns[i].name, err)
		}
	}
	return nil
}

// takeValue stores element i of a column.
func takeValue(p any, col arrow.Array, i int) error {
	null := col.IsNull(i)
	switch a := col.(type) {
	case *array.Float64:
		p, ok := p.(*float64)
		switch {
		case !ok:
		case null:
			*p = math.NaN()
			return nil
		default:
			return setFloat(p, a.Value(i))
		}
	case *array.String:
		if null {
			break
		}
		switch p := p.(type) {
		case *string:
			*p = a.Value(i)
			return nil
		case *record.Status:
			v, err := record.ParseStatus(a.Value(i))
			*p = v
			return err
		}
	case *array.Int32:
		if isInt(p) && !null {
			return setInt(p, int64(a.Value(i)))
		}
	case *array.Int64:
		if isInt(p) && !null {
			return setInt(p, a.Value(i))
		}
	case *array.List:
		if p, ok := p.(*[]float64); ok {
			return takeGaps(p, a, i)
		}
	}
	if null {
		return fmt.Errorf("is null, expected a value")
	}
	return fmt.Errorf("has type %s, expected %s", col.DataType(), typeOf(p))
}

func isInt(p any) bool {
	switch p.(type) {
	case *int32, *int64:
		return true
	}
	return false
}

// typeOf names the Arrow type that a field is stored as.
func typeOf(p any) string {
	switch p.(type) {
	case *float64:
		return "float64"
	case *string, *record.Status:
		return "utf8"
	case *[]float64:
		return "list<float64>"
	}
	return "int32 or int64"
}

func takeGaps(p *[]float64, a *array.List, i int) error {
	if a.IsNull(i) {
		return nil
	}
	values, ok := a.ListValues().(*array.Float64)
	if !ok || values.NullN() > 0 {
		return fmt.Errorf("has type %s, expected list<float64> without nulls", a.DataType())
	}
	start, end := a.ValueOffsets(i)
	if start < 0 || start > end || end > int64(values.Len()) {
		return fmt.Errorf("list of elements %d to %d out of %d", start, end, values.Len())
	}
	*p = make([]float64, 0, end-start)
	for j := start; j < end; j++ {
		*p = append(*p, values.Value(int(j)))
	}
	return nil
}
