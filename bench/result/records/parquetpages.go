package records

import (
	"encoding/binary"
	"errors"
	"math/bits"

	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/schema"
)

// checkedPages are the pages of a column chunk. It refuses data pages with fewer
// levels than they claim, over which the library would loop for ever, and knows
// how many levels of the current page are left: a batch of text must not reach
// beyond it, since values lie in the memory of their page.
type checkedPages struct {
	file.PageReader
	column *schema.Column
	left   int
	err    error
}

// Next implements file.PageReader.
func (p *checkedPages) Next() bool {
	if p.err != nil || !p.PageReader.Next() {
		return false
	}
	ok := true
	switch page := p.Page().(type) {
	case *file.DataPageV1:
		ok = p.checkV1(page)
		p.left = int(page.NumValues())
	case *file.DataPageV2:
		ok = p.checkV2(page)
		p.left = int(page.NumValues())
	}
	if !ok {
		p.err = errors.New("damaged page: fewer levels than values")
	}
	return ok
}

// Err implements file.PageReader.
func (p *checkedPages) Err() error {
	if p.err != nil {
		return p.err
	}
	return p.PageReader.Err()
}

// checkV1 checks a page whose repetition and definition levels, where the
// column has them, each begin with their length in four bytes.
func (p *checkedPages) checkV1(page *file.DataPageV1) bool {
	data := page.Data()
	for _, l := range []struct {
		max      int16
		encoding parquet.Encoding
	}{
		{p.column.MaxRepetitionLevel(), page.RepetitionLevelEncoding()},
		{p.column.MaxDefinitionLevel(), page.DefinitionLevelEncoding()},
	} {
		if l.max == 0 {
			continue
		}
		if l.encoding != parquet.Encodings.RLE || len(data) < 4 {
			return false
		}
		n := binary.LittleEndian.Uint32(data)
		if uint64(n) > uint64(len(data)-4) || !holdsLevels(data[4:4+n], l.max, page.NumValues()) {
			return false
		}
		data = data[4+n:]
	}
	return true
}

// checkV2 checks a page whose levels have their lengths in its header.
func (p *checkedPages) checkV2(page *file.DataPageV2) bool {
	data := page.Data()
	rep, def := int64(page.RepetitionLevelByteLen()), int64(page.DefinitionLevelByteLen())
	if rep < 0 || def < 0 || rep+def > int64(len(data)) {
		return false
	}
	return holdsLevels(data[:rep], p.column.MaxRepetitionLevel(), page.NumValues()) &&
		holdsLevels(data[rep:rep+def], p.column.MaxDefinitionLevel(), page.NumValues())
}

// holdsLevels says whether data holds at least want levels up to max in
// Parquet's hybrid of run lengths and bit packing: a varint header whose lowest
// bit tells a packed group of 8*(header>>1) levels from a run of header>>1 equal
// ones (Parquet format, "Encodings").
func holdsLevels(data []byte, max int16, want int32) bool {
	if max == 0 {
		return true
	}
	width := uint64(bits.Len16(uint16(max)))
	for left := int64(want); left > 0; {
		header, n := binary.Uvarint(data)
		count := header >> 1
		if n <= 0 || n > 5 || count == 0 {
			return false
		}
		data = data[n:]
		size := (width + 7) / 8
		if header&1 == 1 {
			size = count * width
			count *= 8
			if size > uint64(len(data)) { // the last group may be cut short
				count, size = uint64(len(data))*8/width, uint64(len(data))
			}
		}
		if size > uint64(len(data)) {
			return false
		}
		data = data[size:]
		left -= int64(count)
	}
	return true
}
