package store

import (
	"bufio"
	"fmt"
	"io"
	"math"

	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
	pq "github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/metadata"
	"github.com/apache/arrow/go/v17/parquet/schema"

	"lorasim/internal/arrowfile"
	"lorasim/trace"
)

// parquetFile reads a Parquet file page by page, not as Arrow records: it then
// holds one page of each column and one batch.
type parquetFile struct {
	file    *arrowfile.File
	r       *pq.Reader
	index   [6]int
	group   int               // next row group
	left    int64             // rows left in the current row group
	columns [6]*parquetColumn // of the current row group; nil: absent
	raw     []uint64
}

func newParquet(f *arrowfile.File) (blocks, error) {
	r, err := f.Parquet()
	if err != nil {
		return nil, err
	}
	p := &parquetFile{file: f, r: r}
	s := r.MetaData().Schema
	names := make([]string, s.NumColumns())
	for i := range names {
		names[i] = s.Column(i).Path()
	}
	if p.index, err = columnIndices(names); err != nil {
		return nil, err
	}
	for k, i := range p.index {
		if i < 0 {
			continue
		}
		got, isArrival := s.Column(i).PhysicalType(), binaryColumns[k] == arrivalColumn
		isInt := got == parquet.Types.Int32 || got == parquet.Types.Int64
		if isArrival && got != parquet.Types.Double || !isArrival && !isInt || s.Column(i).MaxRepetitionLevel() > 0 {
			return nil, fmt.Errorf("column %q is of type %v, expected double for %s and int32 or int64 for others", names[i], got, arrivalColumn)
		}
	}
	return p, nil
}

func (p *parquetFile) adapters() (string, bool) {
	if v := p.r.MetaData().KeyValueMetadata().FindValue(adaptersKey); v != nil {
		return *v, true
	}
	return "", false
}

func (p *parquetFile) rows() int64 { return p.r.NumRows() }

func (p *parquetFile) next(b *batch) error {
	for p.left == 0 {
		if p.group == p.r.NumRowGroups() {
			return io.EOF
		}
		if err := p.openGroup(); err != nil {
			return err
		}
	}
	n := min(p.left, batchRows)
	p.left -= n
	b.resize(int(n))
	for k, c := range p.columns {
		if err := p.readColumn(c, k, b); err != nil {
			return fmt.Errorf("row group %d: column %q: %w", p.group, binaryColumns[k], err)
		}
	}
	return nil
}

func (p *parquetFile) openGroup() error {
	p.group++
	if p.left = p.r.RowGroup(p.group - 1).NumRows(); p.left < 0 {
		return fmt.Errorf("row group %d states %d rows", p.group, p.left)
	}
	for k, i := range p.index {
		if i < 0 {
			continue
		}
		pages, err := p.file.Pages(p.r, p.group-1, i)
		if err != nil {
			return fmt.Errorf("row group %d: column %q: %w", p.group, binaryColumns[k], err)
		}
		p.columns[k] = newParquetColumn(pages)
	}
	return nil
}

// readColumn fills column k of the batch.
func (p *parquetFile) readColumn(c *parquetColumn, k int, b *batch) error {
	if c == nil { // no max_new_tokens
		clear(b.small[k-2])
		return nil
	}
	n := len(b.id)
	if cap(p.raw) < n {
		p.raw = make([]uint64, n)
	}
	raw := p.raw[:n]
	if err := c.read(raw); err != nil {
		return err
	}
	switch k {
	case 0:
		for i, x := range raw {
			b.id[i] = int64(x)
		}
	case 1:
		for i, x := range raw {
			b.arrival[i] = math.Float64frombits(x)
		}
	default:
		dst := b.small[k-2]
		for i, x := range raw {
			dst[i] = int32(x)
			if int64(dst[i]) != int64(x) {
				return fmt.Errorf("value %d is out of range", int64(x))
			}
		}
	}
	return nil
}

// parquetWriter writes row groups of batchRows rows.
type parquetWriter struct {
	buf *bufio.Writer
	w   *pq.Writer
	b   batch
	n   int
}

func newParquetWriter(w io.WriteSeeker, adapters []trace.Adapter, _ WriteOptions) (encoder, error) {
	required := parquet.Repetitions.Required
	var fields schema.FieldList
	for _, name := range binaryColumns {
		switch name {
		case idColumn:
			fields = append(fields, schema.NewInt64Node(name, required, -1))
		case arrivalColumn:
			fields = append(fields, schema.NewFloat64Node(name, required, -1))
		default:
			fields = append(fields, schema.NewInt32Node(name, required, -1))
		}
	}
	root, err := schema.NewGroupNode("schema", required, fields, -1)
	if err != nil {
		return nil, err
	}
	text, err := formatAdapters(adapters)
	if err != nil {
		return nil, err
	}
	props := parquet.NewWriterProperties(
		parquet.WithCompression(compress.Codecs.Snappy),
		// Every id and almost every arrival is different.
		parquet.WithDictionaryFor(idColumn, false),
		parquet.WithDictionaryFor(arrivalColumn, false),
	)
	p := &parquetWriter{buf: bufio.NewWriterSize(w, 1<<20)}
	p.b.resize(batchRows)
	var meta metadata.KeyValueMetadata
	if err := meta.Append(adaptersKey, text); err != nil {
		return nil, err
	}
	p.w = pq.NewParquetWriter(p.buf, root, pq.WithWriterProps(props), pq.WithWriteMetadata(meta))
	return p, nil
}

func (p *parquetWriter) write(r trace.Request) error {
	p.b.set(p.n, r)
	if p.n++; p.n < batchRows {
		return nil
	}
	return p.flush()
}

func (p *parquetWriter) flush() error {
	g := p.w.AppendRowGroup()
	for k := range binaryColumns {
		c, err := g.NextColumn()
		if err != nil {
			return err
		}
		switch c := c.(type) {
		case *pq.Int64ColumnChunkWriter:
			_, err = c.WriteBatch(p.b.id[:p.n], nil, nil)
		case *pq.Float64ColumnChunkWriter:
			_, err = c.WriteBatch(p.b.arrival[:p.n], nil, nil)
		case *pq.Int32ColumnChunkWriter:
			_, err = c.WriteBatch(p.b.small[k-2][:p.n], nil, nil)
		}
		if err != nil {
			return err
		}
		if err := c.Close(); err != nil {
			return err
		}
	}
	p.n = 0
	return g.Close()
}

func (p *parquetWriter) close() error {
	if p.n > 0 {
		if err := p.flush(); err != nil {
			return err
		}
	}
	// The library's Close drops the error of writing the footer.
	if err := p.w.FlushWithFooter(); err != nil {
		return err
	}
	if err := p.w.Close(); err != nil {
		return err
	}
	return p.buf.Flush()
}
