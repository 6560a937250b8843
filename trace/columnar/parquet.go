package columnar

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/parquet-go/parquet-go"

	"lorasim/internal/table"
)

// ordered is a group of columns in the order in which they are stated.
type ordered struct {
	parquet.Group
	fields []parquet.Field
}

func (o ordered) Fields() []parquet.Field { return o.fields }

func parquetSchema(columns []table.Column) *parquet.Schema {
	var root ordered
	for i := range columns {
		node := formOf(&columns[i]).parquet
		if columns[i].MayLack() {
			node = parquet.Optional(node)
		}
		one := parquet.Group{columns[i].Name: node}
		root.fields = append(root.fields, one.Fields()...)
	}
	return parquet.NewSchema("schema", root)
}

// parquetEncoder writes row groups of batchRows rows.
type parquetEncoder struct {
	//lint:ignore SA1019 the generic writer wants a Go type; columns are known at run time
	w       *parquet.Writer
	columns []table.Column
	values  [][]parquet.Value // by column; held back
	arena   []byte            // of their texts
	held    int               // rows held back
	rows    int               // of the row group
}

func newParquetEncoder(w io.Writer, columns []table.Column, meta [][2]string) (*parquetEncoder, error) {
	options := []parquet.WriterOption{
		parquetSchema(columns), parquet.Compression(&parquet.Snappy), parquet.DataPageStatistics(false),
		parquet.CreatedBy("lorasim", "1", "parquet-go"), parquet.DictionaryMaxBytes(1 << 20),
	}
	for _, m := range meta {
		options = append(options, parquet.KeyValueMetadata(m[0], m[1]))
	}
	return &parquetEncoder{w: parquet.NewWriter(w, options...), columns: columns,
		values: make([][]parquet.Value, len(columns))}, nil
}

// Write implements table.Encoder.
func (e *parquetEncoder) Write() error {
	for i := range e.columns {
		e.values[i] = e.append(e.values[i], &e.columns[i], i)
	}
	const most = 1024
	if e.held++; e.held < most {
		return nil
	}
	return e.flush()
}

// append adds a cell with its repetition and definition levels in the Dremel
// encoding (S. Melnik et al., VLDB 2010): a definition level counts the optional
// and repeated nodes that are there, the repetition level is 1 for the second and
// later elements of a list.
func (e *parquetEncoder) append(values []parquet.Value, c *table.Column, column int) []parquet.Value {
	var v parquet.Value
	defined := 0
	switch p := c.Value.(type) {
	case *int64:
		v = parquet.Int64Value(*p)
	case *int32:
		v = parquet.Int32Value(*p)
	case *float64:
		if v = parquet.DoubleValue(*p); !c.Nullable {
			break
		}
		if defined = 1; math.IsNaN(*p) {
			v, defined = parquet.NullValue(), 0
		}
	case *string:
		start := len(e.arena)
		e.arena = append(e.arena, *p...)
		v = parquet.ByteArrayValue(e.arena[start:])
	case *[]float64:
		for i, x := range *p {
			values = append(values, parquet.DoubleValue(x).Level(min(i, 1), 2, column))
		}
		if len(*p) > 0 {
			return values
		}
		if *p != nil {
			defined = 1
		}
	}
	return append(values, v.Level(0, defined, column))
}

// flush writes the rows held back.
func (e *parquetEncoder) flush() error {
	for i, w := range e.w.ColumnWriters() {
		if _, err := w.WriteRowValues(e.values[i]); err != nil {
			return fmt.Errorf("column %q: %w", e.columns[i].Name, err)
		}
		e.values[i] = e.values[i][:0]
	}
	e.rows += e.held
	e.held, e.arena = 0, e.arena[:0]
	if e.rows < batchRows {
		return nil
	}
	e.rows = 0
	return e.w.Flush()
}

// Close implements table.Encoder.
func (e *parquetEncoder) Close() error {
	if e.held > 0 {
		if err := e.flush(); err != nil {
			return err
		}
	}
	return e.w.Close()
}

// parquetDecoder walks all columns of a row group side by side.
type parquetDecoder struct {
	parts
	src    *table.Source
	f      *parquet.File
	leaves []parquet.LeafColumn // of each column; index -1: not there
	chunks []*chunk
}

func newParquetDecoder(src *table.Source, path string, columns []table.Column, strict bool) (*parquetDecoder, error) {
	if err := checkParquetFooter(src, src.Size()); err != nil {
		return nil, err
	}
	f, err := parquet.OpenFile(src, src.Size(), parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return nil, err
	}
	d := &parquetDecoder{parts: newParts(path, "row group", len(f.RowGroups()), columns), src: src, f: f,
		chunks: make([]*chunk, len(columns))}
	d.open = d.openGroup
	var names []string
	var leaves []parquet.LeafColumn
	for _, p := range f.Schema().Columns() {
		leaf, _ := f.Schema().Lookup(p...)
		if leaf.MaxRepetitionLevel > 0 {
			p = p[:1] // a list goes by its own name
		}
		names, leaves = append(names, strings.Join(p, ".")), append(leaves, leaf)
	}
	index, err := table.Bind(columns, names, strict)
	if err != nil {
		return nil, err
	}
	for i, at := range index {
		leaf := parquet.LeafColumn{ColumnIndex: -1}
		if c := &columns[i]; at >= 0 {
			if leaf = leaves[at]; !fits(c, leaf) {
				return nil, fmt.Errorf("column %q: has type %s, expected %s", c.Name, leaf.Node.Type(), formOf(c).wants)
			}
			leaf.ColumnIndex = at
		}
		d.leaves = append(d.leaves, leaf)
	}
	return d, nil
}

// fits reports whether the cell can hold the values of a leaf of the schema.
func fits(c *table.Column, leaf parquet.LeafColumn) bool {
	levels := 0
	if _, list := c.Value.(*[]float64); list {
		levels = 1
	}
	return slices.Contains(formOf(c).kinds, leaf.Node.Type().Kind()) && leaf.MaxRepetitionLevel == levels
}

// Rows implements table.Decoder.
func (d *parquetDecoder) Rows() (int64, error) { return d.f.NumRows(), nil }

// Meta implements table.Decoder.
func (d *parquetDecoder) Meta() (pairs [][2]string) {
	for _, m := range d.f.Metadata().KeyValueMetadata {
		pairs = append(pairs, [2]string{m.Key, m.Value})
	}
	return pairs
}

func (d *parquetDecoder) openGroup(n int) (rows int64, err error) {
	group := d.f.RowGroups()[n]
	stated := &d.f.Metadata().RowGroups[n]
	for i, leaf := range d.leaves {
		if leaf.ColumnIndex < 0 {
			continue
		}
		if d.chunks[i] != nil {
			d.chunks[i].pages.Close()
		}
		if err := checkPages(d.src.SectionReader, d.src.Size(), &stated.Columns[leaf.ColumnIndex].MetaData,
			leaf); err != nil {
			return 0, fmt.Errorf("column %q: %w", d.columns[i].Name, err)
		}
		d.chunks[i] = &chunk{pages: group.ColumnChunks()[leaf.ColumnIndex].Pages()}
		d.set[i] = parquetSetter(&d.columns[i], d.chunks[i], leaf, d.texts)
	}
	return group.NumRows(), nil
}

// parquetSetter returns what puts the next value of a column chunk into the cell.
func parquetSetter(c *table.Column, from *chunk, leaf parquet.LeafColumn, t table.Texts) func(int) error {
	if p, ok := c.Value.(*[]float64); ok {
		empty := leaf.MaxDefinitionLevel - 1 // definition level of an empty list
		if leaf.Node.Optional() {
			empty--
		}
		return func(int) error { return setParquetList(p, from, empty) }
	}
	text, _ := c.Value.(*string)
	if text == nil && leaf.MaxDefinitionLevel == 0 {
		return parquetNumbers(c, from)
	}
	number, _ := c.Value.(*float64)
	return func(int) (err error) {
		var v *parquet.Value
		if from.at < from.n {
			v = &from.buffer[from.at]
			from.at++
		} else if v, err = from.take(); err != nil {
			return err
		}
		switch kind := v.Kind(); {
		case number != nil && kind == parquet.Double:
			*number = v.Double()
		case text != nil && kind == parquet.ByteArray:
			*text = t.Of(v.ByteArray()) // the page's memory is used again
		case kind == parquet.Int64:
			return c.SetInt(v.Int64())
		case kind == parquet.Int32:
			return c.SetInt(int64(v.Int32()))
		default:
			return c.Null()
		}
		return nil
	}
}

// parquetNumbers copies numbers without null values into the cell, straight from the pages: that takes half the time
// of values of any kind.
func parquetNumbers(c *table.Column, from *chunk) func(int) error {
	var doubles []float64
	var wide []int64
	var narrow, index []int32
	i, n := 0, 0
	return func(int) error {
		for i == n {
			if ok, err := from.nextPage(); err != nil {
				return err
			} else if !ok {
				return errShort
			}
			values := from.page.Data()
			i, n, index = 0, int(from.page.NumValues()), nil
			if d := from.page.Dictionary(); d != nil {
				index, values = values.Int32(), d.Page().Data()
			}
			switch from.page.Type().Kind() {
			case parquet.Double:
				doubles = values.Double()
			case parquet.Int64:
				wide, narrow = values.Int64(), nil
			default:
				narrow = values.Int32()
			}
		}
		k := i
		if i++; index != nil {
			k = int(index[k])
		}
		if p, ok := c.Value.(*float64); ok {
			*p = doubles[k]
			return nil
		}
		if narrow != nil {
			return c.SetInt(int64(narrow[k]))
		}
		return c.SetInt(wide[k])
	}
}

func setParquetList(p *[]float64, from *chunk, empty int) error {
	v, err := from.take()
	if err != nil {
		return err
	}
	*p = nil
	switch defined := v.DefinitionLevel(); {
	case defined < empty:
		return nil
	case defined == empty:
		*p = []float64{}
		return nil
	}
	for more := true; more; {
		if v.IsNull() {
			return errors.New("holds a null, expected numbers")
		}
		*p = append(*p, v.Double())
		if more, err = from.fill(); err != nil {
			return err
		}
		if more = more && from.buffer[from.at].RepetitionLevel() > 0; more {
			if v, err = from.take(); err != nil {
				return err
			}
		}
	}
	return nil
}

// chunk reads the values of a column of a row group.
type chunk struct {
	pages  parquet.Pages
	page   parquet.Page
	values parquet.ValueReader // of the page; nil: none left
	buffer [256]parquet.Value
	at, n  int
}

// nextPage goes to the next page; false at the end of the chunk.
func (c *chunk) nextPage() (bool, error) {
	parquet.Release(c.page)
	var err error
	if c.page, err = c.pages.ReadPage(); errors.Is(err, io.EOF) {
		return false, nil
	}
	return err == nil, err
}

// fill makes sure that a value is in the buffer; false at the end of the chunk.
func (c *chunk) fill() (bool, error) {
	for c.at == c.n {
		if c.values == nil {
			if ok, err := c.nextPage(); !ok {
				return false, err
			}
			c.values = c.page.Values()
		}
		n, err := c.values.ReadValues(c.buffer[:])
		c.at, c.n = 0, n
		if errors.Is(err, io.EOF) || err == nil && n == 0 {
			c.values = nil
		} else if err != nil {
			return false, err
		}
	}
	return true, nil
}

// take returns the next value, valid until the next call.
func (c *chunk) take() (*parquet.Value, error) {
	if c.at == c.n {
		if ok, err := c.fill(); err != nil {
			return nil, err
		} else if !ok {
			return nil, errShort
		}
	}
	c.at++
	return &c.buffer[c.at-1], nil
}

// parts is what Parquet and Arrow decoders share: the rows of a file come in parts.
type parts struct {
	path, what string // what a part is called
	n, next    int    // how many there are, and the one to open next
	open       func(part int) (rows int64, err error)
	columns    []table.Column
	set        []func(i int) error // fills a cell with row i of the part; nil: the file lacks the column
	texts      table.Texts
	at, end    int64 // rows of the current part
	row        int64 // rows read before the one at hand
}

func newParts(path, what string, n int, columns []table.Column) parts {
	return parts{path: path, what: what, n: n, columns: columns, set: make([]func(int) error, len(columns)),
		texts: table.Texts{}, row: -1}
}

// Read implements table.Decoder.
func (d *parts) Read() error {
	for d.at == d.end {
		if d.next == d.n {
			return io.EOF
		}
		d.next++
		if err := table.Guard(d.openNext); err != nil {
			return fmt.Errorf("%s: %s %d: %w", d.path, d.what, d.next, err)
		}
	}
	d.row++
	for i, set := range d.set {
		if set == nil {
			continue
		}
		if err := set(int(d.at)); err != nil {
			return d.Bad(d.columns[i].Name, err)
		}
	}
	d.at++
	return nil
}

func (d *parts) openNext() error {
	rows, err := d.open(d.next - 1)
	if err == nil && rows < 0 {
		err = fmt.Errorf("states %d rows", rows)
	}
	if d.at, d.end = 0, rows; err != nil {
		d.end = 0
	}
	return err
}

// Bad implements table.Decoder.
func (d *parts) Bad(column string, err error) error {
	if column != "" {
		err = fmt.Errorf("column %q: %w", column, err)
	}
	return fmt.Errorf("%s: row %d: %w", d.path, d.row+1, err)
}
