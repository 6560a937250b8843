package arrowfile

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"

	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/schema"
)

// Pages are the pages of one column of a row group, read and decompressed by the
// library. A data page has as many repetition and definition levels as it
// claims; the values behind them are not checked.
type Pages struct {
	file.PageReader
	// Left counts the levels of the current data page that are still to be read,
	// if the caller subtracts those it reads.
	Left int

	column      *schema.Column
	definitions []byte // definition levels of the current data page
	values      []byte // what follows the levels
	err         error
}

// Pages returns the pages of a column of a row group.
func (f *File) Pages(r *file.Reader, group, column int) (*Pages, error) {
	chunk, err := r.RowGroup(group).MetaData().ColumnChunk(column)
	if err != nil {
		return nil, err
	}
	if chunk.CryptoMetadata() != nil {
		return nil, errors.New("column is encrypted")
	}
	start, size := chunk.DataPageOffset(), chunk.TotalCompressedSize()
	if d := chunk.DictionaryPageOffset(); chunk.HasDictionaryPage() && d > 0 && d < start {
		start = d
	}
	if start < 0 || size < 0 || start > f.size || size > f.size-start {
		return nil, fmt.Errorf("column of %d bytes lies at byte %d of a file of %d", size, start, f.size)
	}
	// Not the library's own buffer, which gives zeros without end where the
	// column ends too early. It must hold the header of a page, for which the
	// library takes at least 16 KiB at a time.
	buffer := 64 << 10
	if size <= 16<<10 {
		buffer = 16 << 10
	}
	section := bufio.NewReaderSize(io.NewSectionReader(f.src, start, size), buffer)
	pages, err := file.NewPageReader(section, chunk.NumValues(), chunk.Compression(), f.mem, nil)
	if err != nil {
		return nil, err
	}
	pages.SetMaxPageHeaderSize(buffer)
	return &Pages{PageReader: pages, column: r.MetaData().Schema.Column(column)}, nil
}

// Column returns the column that the pages belong to.
func (p *Pages) Column() *schema.Column { return p.column }

// Next implements file.PageReader.
func (p *Pages) Next() bool {
	if p.err != nil || !p.PageReader.Next() {
		return false
	}
	ok := true
	switch page := p.Page().(type) {
	case *file.DataPageV1:
		ok = p.splitV1(page)
		p.Left = int(page.NumValues())
	case *file.DataPageV2:
		ok = p.splitV2(page)
		p.Left = int(page.NumValues())
	default:
		p.definitions, p.values = nil, page.Data()
	}
	if !ok {
		p.err = errors.New("damaged page: fewer levels than values")
	}
	return ok
}

// Err implements file.PageReader.
func (p *Pages) Err() error {
	if p.err != nil {
		return p.err
	}
	return p.PageReader.Err()
}

// Values returns the encoded values of the current page, without the levels of a
// data page.
func (p *Pages) Values() []byte { return p.values }

// Full says whether the current page has no empty values.
func (p *Pages) Full() bool {
	top := p.column.MaxDefinitionLevel()
	if top == 0 || p.definitions == nil {
		return true
	}
	levels := NewHybrid(p.definitions, bits.Len16(uint16(top)))
	return levels.all(uint64(top), int64(p.Page().NumValues()))
}

// splitV1 splits a page whose repetition and definition levels, where the column
// has them, each begin with their length in four bytes.
func (p *Pages) splitV1(page *file.DataPageV1) bool {
	p.definitions, p.values = nil, page.Data()
	take := func(top int16, encoding parquet.Encoding) (levels []byte, ok bool) {
		if top == 0 {
			return nil, true
		}
		if encoding != parquet.Encodings.RLE || len(p.values) < 4 {
			return nil, false
		}
		n := binary.LittleEndian.Uint32(p.values)
		if uint64(n) > uint64(len(p.values)-4) {
			return nil, false
		}
		levels, p.values = p.values[4:4+n], p.values[4+n:]
		return levels, holdsLevels(levels, top, page.NumValues())
	}
	_, ok := take(p.column.MaxRepetitionLevel(), page.RepetitionLevelEncoding())
	if ok {
		p.definitions, ok = take(p.column.MaxDefinitionLevel(), page.DefinitionLevelEncoding())
	}
	return ok
}

// splitV2 splits a page whose levels have their lengths in its header.
func (p *Pages) splitV2(page *file.DataPageV2) bool {
	data := page.Data()
	rep, def := int64(page.RepetitionLevelByteLen()), int64(page.DefinitionLevelByteLen())
	if rep < 0 || def < 0 || rep+def > int64(len(data)) {
		return false
	}
	p.definitions, p.values = data[rep:rep+def], data[rep+def:]
	return holdsLevels(data[:rep], p.column.MaxRepetitionLevel(), page.NumValues()) &&
		holdsLevels(p.definitions, p.column.MaxDefinitionLevel(), page.NumValues())
}

// holdsLevels says whether data holds at least n levels from 0 to top.
func holdsLevels(data []byte, top int16, n int32) bool {
	if top == 0 {
		return true
	}
	levels := NewHybrid(data, bits.Len16(uint16(top)))
	return levels.holds(int64(n))
}
