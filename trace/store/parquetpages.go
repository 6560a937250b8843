package store

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow/go/v17/parquet"
	pq "github.com/apache/arrow/go/v17/parquet/file"
)

// parquetColumn reads the numbers of one column of a row group.
//
// The library reads and decompresses the pages; their values are decoded here,
// since the library's decoders trust counts in a page: a damaged file makes them
// loop for ever or take all memory, which no recover can catch. Encodings are
// PLAIN and the dictionary ones, the defaults of Parquet writers.
type parquetColumn struct {
	pages      pq.PageReader
	width      int  // bytes of a value: 4 or 8
	nullable   bool // the column could have empty values
	dictionary []uint64

	left    int    // values left in the page
	coded   bool   // they are indices into the dictionary
	plain   []byte // the values, if not coded
	indices hybrid // the indices, if coded
}

// newParquetColumn returns a reader of column i of a row group. It reads
// through a bufio.Reader, since the library's own buffer gives zeros without
// end where a damaged file states a column beyond its end.
func newParquetColumn(f *file, r *pq.Reader, g *pq.RowGroupReader, i int) (*parquetColumn, error) {
	chunk, err := g.MetaData().ColumnChunk(i)
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
	const buffer = 64 << 10 // also the largest header of a page
	section := bufio.NewReaderSize(io.NewSectionReader(f, start, size), buffer)
	pages, err := pq.NewPageReader(section, chunk.NumValues(), chunk.Compression(), f, nil)
	if err != nil {
		return nil, err
	}
	pages.SetMaxPageHeaderSize(buffer)
	column := r.MetaData().Schema.Column(i)
	return &parquetColumn{
		pages: pages, width: column.PhysicalType().ByteSize(), nullable: column.MaxDefinitionLevel() > 0,
	}, nil
}

// read fills dst with the next values: the bits of a double, or an integer with
// its sign extended.
func (c *parquetColumn) read(dst []uint64) error {
	for len(dst) > 0 {
		if c.left == 0 {
			if err := c.page(); err != nil {
				return err
			}
			continue
		}
		n := min(c.left, len(dst))
		if c.coded {
			if err := c.lookUp(dst[:n]); err != nil {
				return err
			}
		} else {
			decodePlain(dst[:n], c.plain, c.width)
			c.plain = c.plain[n*c.width:]
		}
		c.left -= n
		dst = dst[n:]
	}
	return nil
}

func (c *parquetColumn) lookUp(dst []uint64) error {
	for i := range dst {
		k, err := c.indices.next()
		if err != nil {
			return err
		}
		if k >= uint64(len(c.dictionary)) {
			return fmt.Errorf("index %d into a dictionary of %d values", k, len(c.dictionary))
		}
		dst[i] = c.dictionary[k]
	}
	return nil
}

// page goes to the next page.
func (c *parquetColumn) page() error {
	if !c.pages.Next() {
		if err := c.pages.Err(); err != nil {
			return err
		}
		return errors.New("has fewer values than the row group has rows")
	}
	page := c.pages.Page()
	n := int(page.NumValues())
	values, err := c.values(page, n)
	if err != nil {
		return err
	}
	encoding := parquet.Encoding(page.Encoding())
	_, isDictionary := page.(*pq.DictionaryPage)
	switch {
	case isDictionary || encoding == parquet.Encodings.Plain:
		if n > len(values)/c.width {
			return fmt.Errorf("page of %d bytes cannot hold %d values", len(values), n)
		}
		if isDictionary {
			c.dictionary = make([]uint64, n)
			decodePlain(c.dictionary, values, c.width)
			return nil
		}
		c.plain, c.coded = values, false
	case encoding == parquet.Encodings.RLEDict || encoding == parquet.Encodings.PlainDict:
		if len(values) == 0 || values[0] > 32 {
			return errors.New("page has no width of its dictionary indices")
		}
		c.indices, c.coded = hybrid{data: values[1:], width: uint(values[0])}, true
	default:
		return fmt.Errorf("encoding %v is not supported, expected PLAIN or a dictionary", encoding)
	}
	c.left = n
	return nil
}

// values returns the encoded values of a page without the definition levels in
// front of them, of which it checks that no value is empty.
func (c *parquetColumn) values(page pq.Page, n int) ([]byte, error) {
	data := page.Data()
	var size, start uint32 // of the definition levels
	switch page := page.(type) {
	case *pq.DataPageV1:
		if !c.nullable {
			return data, nil
		}
		if len(data) < 4 || page.DefinitionLevelEncoding() != parquet.Encodings.RLE {
			return nil, errors.New("page has no definition levels in RLE encoding")
		}
		size, start = binary.LittleEndian.Uint32(data), 4
	case *pq.DataPageV2:
		size, start = uint32(page.DefinitionLevelByteLen()), uint32(page.RepetitionLevelByteLen())
	default:
		return data, nil
	}
	if uint64(start)+uint64(size) > uint64(len(data)) {
		return nil, errors.New("page is smaller than its definition levels")
	}
	if c.nullable {
		levels := hybrid{data: data[start:][:size], width: 1}
		if set, err := levels.allOne(n); err != nil {
			return nil, err
		} else if !set {
			return nil, errors.New("has empty values")
		}
	}
	return data[start+size:], nil
}

func decodePlain(dst []uint64, data []byte, width int) {
	if width == 4 {
		for i := range dst {
			dst[i] = uint64(int32(binary.LittleEndian.Uint32(data[4*i:])))
		}
		return
	}
	for i := range dst {
		dst[i] = binary.LittleEndian.Uint64(data[8*i:])
	}
}

// hybrid reads whole numbers in Parquet's hybrid of run-length encoding and bit
// packing.
type hybrid struct {
	data  []byte
	width uint // bits of a number, at most 32

	run    uint64 // numbers left in the run
	packed bool   // they are bit-packed, not the same
	same   uint64 // the number of a run that is not packed
	bits   uint64 // bits read of a packed run
	have   uint   // how many
}

var errShort = errors.New("page ends too early")

// start reads the header of a run.
func (h *hybrid) start() error {
	header, n := binary.Uvarint(h.data)
	if n <= 0 {
		return errShort
	}
	h.data = h.data[n:]
	if h.packed = header&1 == 1; h.packed {
		h.run = header >> 1 * 8 // in groups of 8
		h.bits, h.have = 0, 0
		return nil
	}
	h.run, h.same = header>>1, 0
	bytes := int(h.width+7) / 8
	if len(h.data) < bytes {
		return errShort
	}
	for i, b := range h.data[:bytes] {
		h.same |= uint64(b) << (8 * i)
	}
	h.data = h.data[bytes:]
	return nil
}

func (h *hybrid) next() (uint64, error) {
	for h.run == 0 {
		if err := h.start(); err != nil {
			return 0, err
		}
	}
	h.run--
	if !h.packed {
		return h.same, nil
	}
	for h.have < h.width {
		if len(h.data) == 0 {
			return 0, errShort
		}
		h.bits |= uint64(h.data[0]) << h.have
		h.data = h.data[1:]
		h.have += 8
	}
	x := h.bits & (1<<h.width - 1)
	h.bits >>= h.width
	h.have -= h.width
	return x, nil
}

// allOne says whether the next n numbers are all 1.
func (h *hybrid) allOne(n int) (bool, error) {
	for n > 0 {
		x, err := h.next()
		if err != nil || x != 1 {
			return false, err
		}
		n--
		if !h.packed { // the rest of the run at once
			k := min(h.run, uint64(n))
			h.run -= k
			n -= int(k)
		}
	}
	return true, nil
}
