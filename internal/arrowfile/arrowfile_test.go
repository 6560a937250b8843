package arrowfile_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"

	"lorasim/internal/arrowfile"
)

const (
	arrowText   = `[7 8 8 -1][7 (null) 8 -1]["a" "" "ccc" "a"][[1 2 3] [] [4] [5 6]]`
	parquetText = `[7 8 8][-1][5 5][6][a  ccc][a][1 2 3][4 5][6]`
)

// readers are the two formats and variants of whole files of them.
func readers(tb testing.TB) []struct {
	name, want string
	read       func([]byte) (string, error)
	files      [][]byte
} {
	return []struct {
		name, want string
		read       func([]byte) (string, error)
		files      [][]byte
	}{
		{"arrow", arrowText + arrowText, readArrow, [][]byte{
			arrowFile(tb), arrowFile(tb, ipc.WithZstd()), arrowFile(tb, ipc.WithLZ4()),
		}},
		{"parquet", parquetText + parquetText, readParquet, [][]byte{
			parquetFile(tb),
			parquetFile(tb, parquet.WithDictionaryDefault(false), parquet.WithCompression(compress.Codecs.Snappy)),
			parquetFile(tb, parquet.WithDataPageVersion(parquet.DataPageV2), parquet.WithCompression(compress.Codecs.Gzip)),
		}},
	}
}

func TestWholeFiles(t *testing.T) {
	for _, r := range readers(t) {
		for i, content := range r.files {
			if got, err := r.read(content); got != r.want || err != nil {
				t.Errorf("%s %d: read %s, %v; expected %s", r.name, i, got, err, r.want)
			}
		}
	}
}

// TestDamage: a file cut short is an error; one with a changed byte is one or
// gives other values, but neither panics, hangs nor takes all memory.
func TestDamage(t *testing.T) {
	for _, r := range readers(t) {
		for k, content := range r.files {
			for i := 0; i < len(content); i += 3 { // every third byte, to save time
				if _, err := r.read(content[:i]); err == nil {
					t.Errorf("%s %d: no error for the first %d bytes", r.name, k, i)
				}
				changed := bytes.Clone(content)
				changed[i] ^= 0x84 // a high and a low bit
				r.read(changed)
			}
		}
	}
}

func fuzz(f *testing.F, format int) {
	r := readers(f)[format]
	for _, content := range r.files {
		f.Add(content)
	}
	f.Fuzz(func(t *testing.T, content []byte) { r.read(content) })
}

func FuzzArrow(f *testing.F)   { fuzz(f, 0) }
func FuzzParquet(f *testing.F) { fuzz(f, 1) }

func TestGuard(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		f    func() error
		want string
	}{
		{func() error { return broken }, "broken"},
		{func() error { panic("index out of range") }, "damaged file: index out of range"},
		{func() error { var s []int; _ = s[3]; return nil }, "damaged file: runtime error: index out of range [3] with length 0"},
	} {
		if err := arrowfile.Guard(c.f); err == nil || err.Error() != c.want {
			t.Errorf("error %v, expected %s", err, c.want)
		}
	}
	if err := arrowfile.Guard(func() error { return nil }); err != nil {
		t.Error(err)
	}
}

// TestMemory: a batch gets what an intact file may need, and no more.
func TestMemory(t *testing.T) {
	f, err := arrowfile.New(bytes.NewReader(make([]byte, 1<<20)))
	if err != nil {
		t.Fatal(err)
	}
	const limit = 64<<20 + 256<<20
	take := func(sizes ...int) error {
		return arrowfile.Guard(func() error {
			for _, n := range sizes {
				f.Allocator().Free(f.Allocator().Allocate(n))
			}
			return nil
		})
	}
	if err := take(limit/2, limit/2); err != nil {
		t.Error(err)
	}
	if err := take(1); err == nil || !strings.Contains(err.Error(), "a batch takes more than 335544320 bytes, too much for a file of 1048576") {
		t.Errorf("error %v, expected that a batch takes too much", err)
	}
	f.NextBatch()
	if err := take(limit / 2); err != nil {
		t.Error(err)
	}
	for _, n := range []int{limit, math.MaxInt, -1} {
		f.NextBatch()
		if err := take(1, n); err == nil {
			t.Errorf("got %d bytes", n)
		}
	}
	f.NextBatch()
	b := f.Allocator().Reallocate(4, []byte{1, 2})
	if b[0] != 1 || b[1] != 2 || len(b) != 4 {
		t.Errorf("reallocated %v", b)
	}
	if small := f.Allocator().Reallocate(1, b); len(small) != 1 || &small[0] != &b[0] {
		t.Error("reallocated memory that was large enough")
	}
}

func TestFooterErrors(t *testing.T) {
	whole := arrowFile(t)
	tail := len(whole) - 10
	footer := tail - int(binary.LittleEndian.Uint32(whole[tail:]))
	change := func(at int, b ...byte) []byte {
		changed := bytes.Clone(whole)
		copy(changed[at:], b)
		return changed
	}
	for _, c := range []struct {
		what, want string
		content    []byte
	}{
		{"text", "not an Arrow file: too short", []byte("id,arrival_s")},
		{"a long text", "does not end in ARROW1", []byte(strings.Repeat("id,arrival_s\n", 10))},
		{"too long a footer", "damaged footer", change(tail, 0xff, 0xff, 0xff)},
		{"no footer", "damaged file: runtime error", change(tail, 0, 0, 0, 0)},
		{"a footer beyond its end", "damaged file: runtime error", change(footer, 0xff, 0xff, 0xff, 0x7f)},
	} {
		if _, err := readArrow(c.content); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, expected %q in it", c.what, err, c.want)
		}
	}
}

// oneColumn returns a file with one column of the given type, of one null.
func oneColumn(t *testing.T, dataType arrow.DataType) []byte {
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "x", Type: dataType, Nullable: true}}, nil))
	b.Field(0).AppendNull()
	return writeArrow(t, b.NewRecord())
}

func TestUnsupportedTypes(t *testing.T) {
	for _, c := range []struct {
		dataType arrow.DataType
		want     string
	}{
		{arrow.PrimitiveTypes.Float32, ""},
		{arrow.FixedWidthTypes.Timestamp_us, ""},
		{arrow.ListOf(arrow.StructOf(arrow.Field{Name: "y", Type: arrow.BinaryTypes.LargeString})), ""},
		{&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}, "dictionary-encoded"},
		{&arrow.FixedSizeBinaryType{ByteWidth: 3}, "of a type that is not supported"},
		{arrow.StructOf(arrow.Field{Name: "y", Type: arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Int8)}), "of a type that is not supported"},
	} {
		_, err := readArrow(oneColumn(t, c.dataType))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v: error %v, expected %q in it", c.dataType, err, c.want)
		}
	}
	var many []arrow.Field
	for range 1001 {
		many = append(many, arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Int8})
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(many, nil))
	if _, err := readArrow(writeArrow(t, b.NewRecord())); err == nil || !strings.Contains(err.Error(), "more than 1000 columns") {
		t.Errorf("1001 columns: error %v", err)
	}
}

// TestBatchesWithinFile moves the places of record batches, which the footer
// holds, to where the file does not reach.
func TestBatchesWithinFile(t *testing.T) {
	whole := arrowFile(t)
	footer := len(whole) - 10 - int(binary.LittleEndian.Uint32(whole[len(whole)-10:]))
	place := func(at int) (start, end uint64) {
		start = binary.LittleEndian.Uint64(whole[at:])
		return start, start + uint64(binary.LittleEndian.Uint32(whole[at+8:])) + binary.LittleEndian.Uint64(whole[at+16:])
	}
	// The two places stand one after the other, and so do the batches.
	at := footer
	for ; at+48 <= len(whole); at++ {
		start, end := place(at)
		next, last := place(at + 24)
		if 8 < start && start < end && end == next && next < last && last <= uint64(footer) {
			break
		}
	}
	for _, field := range []int{0, 16, 24, 24 + 16} {
		changed := bytes.Clone(whole)
		binary.LittleEndian.PutUint64(changed[at+field:], uint64(len(whole)))
		if _, err := readArrow(changed); err == nil || err.Error() != "damaged footer" {
			t.Errorf("byte %d of the places: error %v, expected a damaged footer", field, err)
		}
	}
}
