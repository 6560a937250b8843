package store

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/apache/arrow/go/v17/parquet"
	pq "github.com/apache/arrow/go/v17/parquet/file"

	"lorasim/internal/arrowfile"
)

// parquetColumn reads the numbers of one column of a row group. Their encodings
// are PLAIN and the dictionary ones, the defaults of Parquet writers.
type parquetColumn struct {
	pages      *arrowfile.Pages
	width      int // bytes of a value: 4 or 8
	dictionary []uint64

	left    int              // values left in the page
	coded   bool             // they are indices into the dictionary
	plain   []byte           // the values, if not coded
	indices arrowfile.Hybrid // the indices, if coded
}

func newParquetColumn(pages *arrowfile.Pages) *parquetColumn {
	return &parquetColumn{pages: pages, width: pages.Column().PhysicalType().ByteSize()}
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
		k, err := c.indices.Next()
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
	if !c.pages.Full() {
		return errors.New("has empty values")
	}
	page, values := c.pages.Page(), c.pages.Values()
	n := int(page.NumValues())
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
		c.indices, c.coded = arrowfile.NewHybrid(values[1:], int(values[0])), true
	default:
		return fmt.Errorf("encoding %v is not supported, expected PLAIN or a dictionary", encoding)
	}
	c.left = n
	return nil
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
