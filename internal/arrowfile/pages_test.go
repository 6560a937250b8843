package arrowfile

import (
	"errors"
	"testing"

	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/schema"
)

// Definition levels of a page: their length in four bytes, then a run of 3 ones.
func TestSplitV1(t *testing.T) {
	node := schema.NewInt32Node("x", parquet.Repetitions.Optional, -1)
	for _, c := range []struct {
		name   string
		data   []byte
		n      int32
		ok     bool
		values int
	}{
		{"levels and values", []byte{2, 0, 0, 0, 6, 1, 7, 7, 7}, 3, true, 3},
		{"levels alone", []byte{2, 0, 0, 0, 6, 1}, 3, true, 0},
		{"fewer values", []byte{2, 0, 0, 0, 6, 1, 7}, 2, true, 1},
		{"more values than levels", []byte{2, 0, 0, 0, 6, 1, 7}, 4, false, 0},
		{"a byte too long", []byte{3, 0, 0, 0, 6, 1}, 3, false, 0},
		{"much too long", []byte{9, 0, 0, 0, 6, 1}, 3, false, 0},
		{"no length", []byte{2, 0, 0}, 0, false, 0},
		{"nothing in it", []byte{0, 0, 0, 0}, 0, true, 0},
	} {
		page := file.NewDataPageV1(memory.NewBufferBytes(c.data), c.n, parquet.Encodings.Plain, parquet.Encodings.RLE, parquet.Encodings.RLE, int32(len(c.data)))
		p := &Pages{column: schema.NewColumn(node, 1, 0)}
		if ok := p.splitV1(page); ok != c.ok || ok && len(p.Values()) != c.values {
			t.Errorf("%s: %v, %d bytes of values; expected %v, %d", c.name, ok, len(p.Values()), c.ok, c.values)
		}
	}
	broken := errors.New("broken")
	if err := (&Pages{err: broken}).Err(); err != broken {
		t.Errorf("error %v, expected that of the page", err)
	}
}
