package columnar

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"
	flatbuffers "github.com/google/flatbuffers/go"

	"lorasim/internal/table"
)

// arrowEncoder writes record batches of batchRows rows, uncompressed.
type arrowEncoder struct {
	w       *ipc.FileWriter
	builder *array.RecordBuilder
	add     []func() // appends the cell of each column
	rows    int
}

func newArrowEncoder(f io.WriteSeeker, columns []table.Column, meta [][2]string) (*arrowEncoder, error) {
	var fields []arrow.Field
	for i := range columns {
		fields = append(fields, arrow.Field{Name: columns[i].Name, Type: formOf(&columns[i]).arrow,
			Nullable: columns[i].MayLack()})
	}
	var keys, values []string
	for _, m := range meta {
		keys, values = append(keys, m[0]), append(values, m[1])
	}
	md := arrow.NewMetadata(keys, values)
	s := arrow.NewSchema(fields, &md)
	w, err := ipc.NewFileWriter(f, ipc.WithSchema(s))
	if err != nil {
		return nil, err
	}
	e := &arrowEncoder{w: w, builder: array.NewRecordBuilder(memory.DefaultAllocator, s)}
	for i := range columns {
		e.add = append(e.add, arrowAppender(&columns[i], e.builder.Field(i)))
	}
	return e, nil
}

func arrowAppender(c *table.Column, b array.Builder) func() {
	switch p := c.Value.(type) {
	case *int64:
		b := b.(*array.Int64Builder)
		return func() { b.Append(*p) }
	case *int32:
		b := b.(*array.Int32Builder)
		return func() { b.Append(*p) }
	case *string:
		b := b.(*array.StringBuilder)
		return func() { b.Append(*p) }
	case *float64:
		b := b.(*array.Float64Builder)
		return func() {
			if c.Nullable && math.IsNaN(*p) {
				b.AppendNull()
			} else {
				b.Append(*p)
			}
		}
	}
	p, lists := c.Value.(*[]float64), b.(*array.ListBuilder)
	return func() {
		if lists.Append(*p != nil); *p != nil {
			lists.ValueBuilder().(*array.Float64Builder).AppendValues(*p, nil)
		}
	}
}

// Write implements table.Encoder.
func (e *arrowEncoder) Write() error {
	if e.rows == 0 {
		e.builder.Reserve(batchRows)
	}
	for _, add := range e.add {
		add()
	}
	if e.rows++; e.rows < batchRows {
		return nil
	}
	return e.flush()
}

func (e *arrowEncoder) flush() error {
	e.rows = 0
	batch := e.builder.NewRecord()
	defer batch.Release()
	return e.w.Write(batch)
}

// Close implements table.Encoder.
func (e *arrowEncoder) Close() error {
	if e.rows > 0 {
		if err := e.flush(); err != nil {
			return err
		}
	}
	return e.w.Close()
}

// arrowDecoder reads one record batch at a time.
type arrowDecoder struct {
	parts
	r     *ipc.FileReader
	mem   *budget
	index []int
}

func newArrowDecoder(src *table.Source, path string, columns []table.Column, strict bool) (*arrowDecoder, error) {
	if err := checkFooter(src, src.Size()); err != nil {
		return nil, err
	}
	mem := newBudget(src.Size())
	r, err := ipc.NewFileReader(src, ipc.WithAllocator(mem))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, f := range r.Schema().Fields() {
		names = append(names, f.Name)
	}
	d := &arrowDecoder{parts: newParts(path, "record batch", r.NumRecords(), columns), r: r, mem: mem}
	d.open = d.openBatch
	d.index, err = table.Bind(columns, names, strict)
	return d, err
}

// Meta implements table.Decoder.
func (d *arrowDecoder) Meta() (pairs [][2]string) {
	md := d.r.Schema().Metadata()
	for i, k := range md.Keys() {
		pairs = append(pairs, [2]string{k, md.Values()[i]})
	}
	return pairs
}

func (d *arrowDecoder) batch(i int) (arrow.Record, error) {
	d.mem.taken = 0
	return d.r.Record(i)
}

// Rows reads all batches, because the format holds the number of rows only in each batch.
func (d *arrowDecoder) Rows() (n int64, err error) {
	for i := range d.n {
		batch, err := d.batch(i)
		if err != nil {
			return 0, err
		}
		if n += batch.NumRows(); batch.NumRows() < 0 {
			return 0, fmt.Errorf("record batch %d states %d rows", i+1, batch.NumRows())
		}
	}
	return n, nil
}

func (d *arrowDecoder) openBatch(i int) (rows int64, err error) {
	batch, err := d.batch(i)
	if err != nil {
		return 0, err
	}
	for i, at := range d.index {
		if at < 0 {
			continue
		}
		c, values := &d.columns[i], batch.Column(at)
		if int64(values.Len()) != batch.NumRows() {
			return 0, fmt.Errorf("column %q: has %d values, expected %d", c.Name, values.Len(), batch.NumRows())
		}
		if d.set[i], err = arrowSetter(c, values, d.texts); err != nil {
			return 0, fmt.Errorf("column %q: %w", c.Name, err)
		}
	}
	return batch.NumRows(), nil
}

// arrowSetter returns what puts a value of an array into the cell.
func arrowSetter(c *table.Column, values arrow.Array, t table.Texts) (set func(i int) error, err error) {
	switch p := c.Value.(type) {
	case *int64, *int32:
		switch v := values.(type) {
		case *array.Int64:
			set = func(i int) error { return c.SetInt(v.Value(i)) }
		case *array.Int32:
			set = func(i int) error { return c.SetInt(int64(v.Value(i))) }
		}
	case *float64:
		if v, ok := values.(*array.Float64); ok {
			set = func(i int) error { *p = v.Value(i); return nil }
		}
	case *string:
		if v, ok := values.(*array.String); ok {
			set = func(i int) error { // the batch's memory ends with it
				known, ok := t[v.Value(i)]
				if !ok {
					known = t.Of([]byte(v.Value(i)))
				}
				*p = known
				return nil
			}
		}
	case *[]float64:
		if v, ok := values.(*array.List); ok {
			if elements, ok := v.ListValues().(*array.Float64); ok {
				set = func(i int) error { return setArrowList(p, v, elements, i) }
			}
		}
	}
	if set == nil {
		return nil, fmt.Errorf("has type %s, expected %s", values.DataType(), formOf(c).wants)
	}
	if values.NullN() == 0 {
		return set, nil
	}
	full := set
	return func(i int) error {
		if values.IsNull(i) {
			return c.Null()
		}
		return full(i)
	}, nil
}

func setArrowList(p *[]float64, lists *array.List, elements *array.Float64, i int) error {
	start, end := lists.ValueOffsets(i)
	if start < 0 || start > end || end > int64(elements.Len()) {
		return fmt.Errorf("list of elements %d to %d out of %d", start, end, elements.Len())
	}
	if elements.NullN() > 0 {
		return errors.New("holds a null, expected numbers")
	}
	*p = append(make([]float64, 0, end-start), elements.Float64Values()[start:end]...)
	return nil
}

// budget is an allocator that panics, for guard, when an intact file could not need as much memory at a time.
type budget struct {
	size, limit int64
	taken       int64 // since the last batch began
}

// newBudget returns the budget of a file of the given size, bytes. Compression reduces the size of a file by a
// factor of a few hundred at most.
func newBudget(size int64) *budget {
	const floor, factor, most = 64 << 20, 256, 4 << 30
	return &budget{size: size, limit: max(size, min(floor+factor*size, most))}
}

func (b *budget) Allocate(n int) []byte {
	if b.taken += int64(n); n < 0 || b.taken > b.limit {
		panic(fmt.Sprintf("a batch takes more than %d bytes, the limit for a file of %d bytes", b.limit, b.size))
	}
	return make([]byte, n)
}

func (b *budget) Reallocate(n int, old []byte) []byte {
	if n <= cap(old) {
		return old[:n]
	}
	grown := b.Allocate(n)
	copy(grown, old)
	return grown
}

func (b *budget) Free([]byte) {}

// Slots of the tables in the footer of an Arrow IPC file (Arrow columnar format,
// "IPC File Format"; File.fbs and Schema.fbs). The n-th field of a table, from
// 0, has slot 4 + 2n.
const (
	footerSchema       = 6
	footerDictionaries = 8
	footerBatches      = 10
	schemaFields       = 6
	schemaMetadata     = 8
	fieldType          = 8
	fieldDictionary    = 12
	fieldChildren      = 14
	fieldMetadata      = 16
)

const (
	maxFields = 1000 // of a schema, with the pairs of its metadata
	blockSize = 24   // bytes of the place of a record batch
)

// plainTypes are the type tags whose metadata hold no counts of their own: Null,
// Int, FloatingPoint, Binary, Utf8, Bool, Timestamp, List, Struct_ and
// LargeUtf8.
var plainTypes = map[byte]bool{1: true, 2: true, 3: true, 4: true, 5: true, 6: true, 10: true, 12: true, 13: true,
	20: true}

// checkFooter checks the counts in the footer of an Arrow IPC file, for which the library would allocate memory and
// loop. It panics if the footer points beyond its end.
func checkFooter(src io.ReaderAt, size int64) error {
	data, err := readFooter(src, size, "an Arrow", "ARROW1", 10)
	if err != nil {
		return err
	}
	footer := flat{flatbuffers.Table{Bytes: data, Pos: flatbuffers.GetUOffsetT(data)}}
	if _, n, err := footer.vector(footerDictionaries, blockSize); err != nil {
		return err
	} else if n > 0 {
		return errors.New("has dictionary-encoded columns, expected plain ones")
	}
	if err := footer.checkBatches(uint64(size)); err != nil {
		return err
	}
	o := footer.Offset(footerSchema)
	if o == 0 {
		return errDamaged
	}
	left := maxFields
	return footer.at(footer.Pos+flatbuffers.UOffsetT(o)).checkFields(schemaFields, schemaMetadata, &left)
}

// flat is a FlatBuffers table with vectors of unchecked length.
type flat struct{ flatbuffers.Table }

// at returns the table that the offset at pos points to.
func (t flat) at(pos flatbuffers.UOffsetT) flat {
	return flat{flatbuffers.Table{Bytes: t.Bytes, Pos: t.Indirect(pos)}}
}

// vector returns where the vector in a slot begins and how many items of the
// given size in bytes it has, none if it is absent.
func (t flat) vector(slot flatbuffers.VOffsetT, size uint64) (start flatbuffers.UOffsetT, n int, err error) {
	o := t.Offset(slot)
	if o == 0 {
		return 0, 0, nil
	}
	start, n = t.Vector(flatbuffers.UOffsetT(o)), t.VectorLen(flatbuffers.UOffsetT(o))
	if uint64(n)*size > uint64(len(t.Bytes[start:])) {
		return 0, 0, errDamaged
	}
	return start, n, nil
}

// tables returns the tables of a vector of tables.
func (t flat) tables(slot flatbuffers.VOffsetT) ([]flat, error) {
	start, n, err := t.vector(slot, flatbuffers.SizeUOffsetT)
	if err != nil {
		return nil, err
	}
	if n > maxFields {
		return nil, fmt.Errorf("has more than %d columns", maxFields)
	}
	all := make([]flat, n)
	for i := range all {
		all[i] = t.at(start + flatbuffers.UOffsetT(i*flatbuffers.SizeUOffsetT))
	}
	return all, nil
}

// checkBatches checks that the record batches lie within the file: each place
// has an offset (int64), the length of the metadata (int32, padded) and that of
// the body (int64).
func (t flat) checkBatches(size uint64) error {
	start, n, err := t.vector(footerBatches, blockSize)
	if err != nil {
		return err
	}
	for b := t.Bytes[start:]; n > 0; n-- {
		offset := binary.LittleEndian.Uint64(b)
		meta := uint64(binary.LittleEndian.Uint32(b[8:]))
		body := binary.LittleEndian.Uint64(b[16:])
		if offset > size || meta > size || body > size || offset+meta+body > size {
			return errDamaged
		}
		b = b[blockSize:]
	}
	return nil
}

// checkFields checks the fields in a slot, all fields below them, and the
// metadata beside them.
func (t flat) checkFields(fields, metadata flatbuffers.VOffsetT, left *int) error {
	pairs, err := t.tables(metadata)
	if err != nil {
		return err
	}
	children, err := t.tables(fields)
	if err != nil {
		return err
	}
	if *left -= len(pairs) + len(children); *left < 0 {
		return fmt.Errorf("has more than %d columns", maxFields)
	}
	for _, c := range children {
		if !plainTypes[c.GetByteSlot(fieldType, 0)] || c.Offset(fieldDictionary) != 0 {
			return errors.New("has a column of a type that is not supported: expected numbers, text or lists")
		}
		if err := c.checkFields(fieldChildren, fieldMetadata, left); err != nil {
			return err
		}
	}
	return nil
}
