package columnar

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/schema"
	"github.com/google/go-cmp/cmp"
	pq "github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/delta"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"lorasim/internal/table"
)

// few are the rows of the files below.
func few() []cells {
	return []cells{
		{ID: 7, Count: 5, Time: 0.5, Maybe: 1, Text: "a", Gaps: []float64{1, 2, 3}},
		{ID: 8, Count: 5, Time: 1, Maybe: math.NaN(), Text: "", Gaps: []float64{}},
		{ID: 8, Count: -5, Time: 2, Maybe: -1, Text: "ccc", Optional: 9},
		{ID: -1, Count: 6, Time: 3, Maybe: 4, Text: "a", Gaps: []float64{5}},
	}
}

// otherParquet writes the few rows by another library, which is also that of the
// files of earlier versions.
func otherParquet(tb testing.TB, options ...parquet.WriterProperty) []byte {
	tb.Helper()
	required, optional := parquet.Repetitions.Required, parquet.Repetitions.Optional
	text, err1 := schema.NewPrimitiveNodeLogical("text", required, schema.StringLogicalType{}, parquet.Types.ByteArray,
		-1, -1)
	list, err2 := schema.ListOfWithName("gaps_s", schema.NewFloat64Node("element", required, -1), optional, -1)
	root, err3 := schema.NewGroupNode("schema", required, schema.FieldList{
		schema.NewInt64Node("id", required, -1), schema.NewInt32Node("count", required, -1),
		schema.NewFloat64Node("time_s", required, -1), schema.NewFloat64Node(`maybe, "s"`, optional, -1),
		text, list, schema.NewInt32Node("optional", required, -1),
	}, -1)
	var out bytes.Buffer
	w := file.NewParquetWriter(&out, root, file.WithWriterProps(parquet.NewWriterProperties(options...)))
	group := w.AppendRowGroup()
	next := func() file.ColumnChunkWriter {
		c, err := group.NextColumn()
		if err != nil {
			tb.Fatal(err)
		}
		return c
	}
	_, err4 := next().(*file.Int64ColumnChunkWriter).WriteBatch([]int64{7, 8, 8, -1}, nil, nil)
	_, err5 := next().(*file.Int32ColumnChunkWriter).WriteBatch([]int32{5, 5, -5, 6}, nil, nil)
	_, err6 := next().(*file.Float64ColumnChunkWriter).WriteBatch([]float64{0.5, 1, 2, 3}, nil, nil)
	_, err7 := next().(*file.Float64ColumnChunkWriter).WriteBatch([]float64{1, -1, 4}, []int16{1, 0, 1, 1}, nil)
	_, err8 := next().(*file.ByteArrayColumnChunkWriter).WriteBatch([]parquet.ByteArray{[]byte("a"), nil, []byte("ccc"),
		[]byte("a")}, nil, nil)
	_, err9 := next().(*file.Float64ColumnChunkWriter).WriteBatch([]float64{1, 2, 3, 5}, []int16{2, 2, 2, 1, 0, 2},
		[]int16{0, 1, 1, 0, 0, 0})
	_, err10 := next().(*file.Int32ColumnChunkWriter).WriteBatch([]int32{0, 0, 9, 0}, nil, nil)
	if err := errors.Join(err1, err2, err3, err4, err5, err6, err7, err8, err9, err10, group.Close(),
		w.Close()); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}

// samples are files of the few rows in Parquet and Arrow.
func samples(tb testing.TB, ext string) [][]byte {
	path := filepath.Join(tb.TempDir(), "s"+ext)
	files := [][]byte{save(tb, path, few(), table.Options{Files: files, Meta: [][2]string{{"key", "value"}}})}
	if ext != ".parquet" {
		return files
	}
	for _, page := range []parquet.DataPageVersion{parquet.DataPageV1, parquet.DataPageV2} {
		for _, codec := range []compress.Compression{
			compress.Codecs.Uncompressed, compress.Codecs.Snappy, compress.Codecs.Gzip, compress.Codecs.Zstd,
			compress.Codecs.Brotli,
		} {
			for _, dictionary := range []bool{false, true} {
				files = append(files, otherParquet(tb, parquet.WithDataPageVersion(page),
					parquet.WithCompression(codec), parquet.WithDictionaryDefault(dictionary)))
			}
		}
	}
	return append(files, deltaParquet(tb, parquet.Encodings.DeltaByteArray),
		deltaParquet(tb, parquet.Encodings.DeltaLengthByteArray))
}

// loadBytes reads a file with the given content.
func loadBytes(tb testing.TB, path string, content []byte) ([]cells, error) {
	if err := os.WriteFile(path, content, 0o644); err != nil {
		tb.Fatal(err)
	}
	rows, err := load(path, table.Options{Files: files})
	if err != nil && !strings.HasPrefix(err.Error(), path+":") {
		tb.Errorf("the error does not name the file: %v", err)
	}
	return rows, err
}

func TestOtherWriters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "o.parquet")
	for i, content := range samples(t, ".parquet") {
		got, err := loadBytes(t, path, content)
		if d := cmp.Diff(few(), got, equal); err != nil || d != "" {
			t.Errorf("%d: error %v, difference:\n%s", i, err, d)
		}
	}
}

// deltaParquet is the file of otherParquet in the encodings of newer writers.
func deltaParquet(tb testing.TB, text parquet.Encoding) []byte {
	return otherParquet(tb, parquet.WithDictionaryDefault(false), parquet.WithDataPageVersion(parquet.DataPageV2),
		parquet.WithEncodingFor("id", parquet.Encodings.DeltaBinaryPacked),
		parquet.WithEncodingFor("count", parquet.Encodings.DeltaBinaryPacked),
		parquet.WithEncodingFor("text", text))
}

// Delta-encoded pages that state more than their page holds are an error before the library sees them.
func TestDeltaPages(t *testing.T) {
	varints := func(values ...uint64) (b []byte) {
		for _, v := range values {
			b = binary.AppendUvarint(b, v)
		}
		return b
	}
	var packed delta.BinaryPackedEncoding
	long := make([]int32, 100)
	for i := range long {
		long[i] = maxPage / 50
	}
	shared, err := packed.EncodeInt32(nil, long)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		e    format.Encoding
		data []byte
		n    int32
		want string
	}{
		{format.DeltaBinaryPacked, varints(128, 4, 9, 0), 9, ""},
		{format.DeltaBinaryPacked, varints(128, 4, 10, 0), 9, errDamaged.Error()},
		{format.DeltaBinaryPacked, varints(128, 0, 9, 0), 9, errDamaged.Error()},
		{format.DeltaLengthByteArray, varints(1<<40, 4, 9, 0), 9, errDamaged.Error()},
		{format.DeltaLengthByteArray, varints(128, 4), 9, errDamaged.Error()},
		{format.DeltaByteArray, shared, 100, "texts of a page take more than 67108864 bytes"},
		{format.DeltaByteArray, shared, 99, errDamaged.Error()},
		{format.ByteStreamSplit, nil, 5, ""},
		{format.BitPacked, nil, 5, "is not supported"},
	} {
		err := checkValues(c.e, c.data, c.n)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v %v: %v, expected %q", c.e, c.data, err, c.want)
		}
	}
}

// The other library reads what is written here.
func TestOtherReader(t *testing.T) {
	r, err := file.NewParquetReader(bytes.NewReader(samples(t, ".parquet")[0]))
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for i := range r.MetaData().Schema.NumColumns() {
		c := r.MetaData().Schema.Column(i)
		text += fmt.Sprint(c.Path(), " ", c.PhysicalType(), " ", c.MaxDefinitionLevel(), c.MaxRepetitionLevel(), "; ")
	}
	if want := `id INT64 0 0; count INT32 0 0; time_s DOUBLE 0 0; maybe, "s" DOUBLE 1 0; text BYTE_ARRAY 0 0; gaps_s.list.element DOUBLE 2 1; optional INT32 0 0; `; text != want {
		t.Errorf("columns %s\nexpected %s", text, want)
	}
	c, err := r.RowGroup(0).Column(5)
	if err != nil {
		t.Fatal(err)
	}
	values, def, rep := make([]float64, 9), make([]int16, 9), make([]int16, 9)
	n, have, err := c.(*file.Float64ColumnChunkReader).ReadBatch(9, values, def, rep)
	if got := fmt.Sprint(values[:have], def[:n], rep[:n]); err != nil ||
		got != "[1 2 3 5] [2 2 2 1 0 2] [0 1 1 0 0 0]" {
		t.Errorf("lists are %s, %v", got, err)
	}
	if v := r.MetaData().KeyValueMetadata().FindValue("key"); v == nil || *v != "value" {
		t.Errorf("metadata %v", v)
	}
}

// A file cut short is an error; one with a changed byte is one or gives other
// values, but neither panics, hangs nor takes all memory.
func TestDamage(t *testing.T) {
	for _, ext := range []string{".parquet", ".arrow"} {
		path := filepath.Join(t.TempDir(), "d"+ext)
		for k, content := range samples(t, ext) {
			step := 7 // to save time, not every byte
			if k > 0 {
				step = 97
			}
			for i := k % step; i < len(content); i += step {
				if _, err := loadBytes(t, path, content[:i]); err == nil {
					t.Errorf("%s %d: no error for the first %d bytes", ext, k, i)
				}
				changed := bytes.Clone(content)
				changed[i] ^= 0x84 // a high and a low bit
				loadBytes(t, path, changed)
			}
		}
	}
}

func fuzz(f *testing.F, ext string) {
	dir := f.TempDir()
	for _, content := range samples(f, ext) {
		f.Add(content)
	}
	path, again := filepath.Join(dir, "f"+ext), filepath.Join(dir, "again"+ext)
	f.Fuzz(func(t *testing.T, content []byte) {
		rows, err := loadBytes(t, path, content)
		if err != nil {
			return
		}
		save(t, again, rows, table.Options{Files: files})
		if got, err := load(again, table.Options{Files: files}); err != nil || !cmp.Equal(rows, got, equal) {
			t.Errorf("what was read could not be written and read: %v", err)
		}
	})
}

func FuzzParquet(f *testing.F) { fuzz(f, ".parquet") }
func FuzzArrow(f *testing.F)   { fuzz(f, ".arrow") }

func FuzzCSV(f *testing.F) {
	f.Add([]byte("id,count,time_s,\"maybe, \"\"s\"\"\",text\n1,2,3,,\"a\n\nb\"\n"))
	fuzz(f, ".csv")
}
func FuzzJSONL(f *testing.F) {
	f.Add([]byte(`{"id":1,"count":2,"time_s":3,"maybe, \"s\"":null,"text":"\u00e4","gaps_s":[ 1 , 2e3 ]}`))
	fuzz(f, ".jsonl")
}

// page is a page of one column as a file holds it.
func page(tb testing.TB, h format.PageHeader, data []byte) []byte {
	h.CompressedPageSize = int32(len(data))
	head, err := thrift.Marshal(&thrift.CompactProtocol{}, &h)
	if err != nil {
		tb.Fatal(err)
	}
	return append(head, data...)
}

func dataPage(values int32, e format.Encoding) format.PageHeader {
	return format.PageHeader{
		Type: format.DataPage, UncompressedPageSize: 100,
		DataPageHeader: thrift.New(format.DataPageHeader{NumValues: values, Encoding: e,
			DefinitionLevelEncoding: format.RLE, RepetitionLevelEncoding: format.RLE}),
	}
}

// Counts that would take all memory are refused for a few kilobytes.
func TestHostilePages(t *testing.T) {
	endless := binary.AppendUvarint(nil, math.MaxInt32<<1) // a run of as many equal numbers
	levels := append([]byte{byte(len(endless) + 1), 0, 0, 0}, append(slices.Clone(endless), 0)...)
	dictionary := format.PageHeader{
		Type: format.DictionaryPage, UncompressedPageSize: 8,
		DictionaryPageHeader: thrift.New(format.DictionaryPageHeader{NumValues: math.MaxInt32}),
	}
	coded := dictionary
	coded.DictionaryPageHeader.V = format.DictionaryPageHeader{NumValues: 1, Encoding: format.RLEDictionary}
	huge := dataPage(1, format.Plain)
	huge.UncompressedPageSize = math.MaxInt32
	v2 := format.PageHeader{Type: format.DataPageV2, UncompressedPageSize: 8,
		DataPageHeaderV2: thrift.New(format.DataPageHeaderV2{
			NumValues: 1, Encoding: format.Plain, DefinitionLevelsByteLength: int32(len(endless)),
			IsCompressed: thrift.New(false),
		})}
	lying := v2
	lying.DataPageHeaderV2.V.DefinitionLevelsByteLength = 1 << 30
	bomb := snappyBlock(1 << 31)
	for what, c := range map[string]struct {
		page     []byte
		codec    format.CompressionCodec
		def, rep int
	}{
		"indices":             {page: page(t, dataPage(1, format.RLEDictionary), append([]byte{0}, endless...))},
		"definition levels":   {page: page(t, dataPage(1, format.Plain), levels), def: 1},
		"repetition levels":   {page: page(t, dataPage(1, format.Plain), levels), rep: 1},
		"levels of version 2": {page: page(t, v2, endless), def: 1},
		"no room for levels":  {page: page(t, lying, endless), def: 1},
		"half a length":       {page: page(t, dataPage(1, format.Plain), []byte{1, 0}), def: 1},
		"values":              {page: page(t, dataPage(math.MaxInt32, format.Plain), nil)},
		"negative values":     {page: page(t, dataPage(-1, format.Plain), nil)},
		"a dictionary":        {page: page(t, dictionary, make([]byte, 8))},
		"a coded dictionary":  {page: page(t, coded, append([]byte{0}, endless...))},
		"unpacked bytes":      {page: page(t, huge, nil)},
		"a snappy block":      {page: page(t, dataPage(1, format.Plain), bomb), codec: format.Snappy},
		"wide indices":        {page: page(t, dataPage(1, format.RLEDictionary), []byte{33, 2, 0})},
		"a codec":             {page: page(t, dataPage(1, format.Plain), nil), codec: format.LZO},
		"no header":           {page: []byte{0x1f, 0xff}},
		"an unfinished page":  {page: page(t, dataPage(1, format.Plain), make([]byte, 99))[:40]},
	} {
		m := &format.ColumnMetaData{Codec: c.codec, TotalCompressedSize: int64(len(c.page))}
		leaf := pq.LeafColumn{MaxDefinitionLevel: c.def, MaxRepetitionLevel: c.rep}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := checkPages(bytes.NewReader(c.page), int64(len(c.page)), m, leaf)
		runtime.ReadMemStats(&after)
		if taken := after.TotalAlloc - before.TotalAlloc; err == nil || taken > 1<<20 {
			t.Errorf("%s: error %v, took %d bytes", what, err, taken)
		}
	}
	for _, m := range []format.ColumnMetaData{{DataPageOffset: -1}, {DataPageOffset: 9}, {TotalCompressedSize: 9},
		{TotalCompressedSize: -1}, {DictionaryPageOffset: math.MaxInt64, TotalCompressedSize: 1}} {
		if checkPages(bytes.NewReader(make([]byte, 8)), 8, &m, pq.LeafColumn{}) == nil {
			t.Errorf("%+v lies in a file of 8 bytes", m)
		}
	}
	// What pages may be: runs with some to spare, an index page.
	for what, p := range map[string][]byte{
		"a packed group": page(t, dataPage(3, format.RLEDictionary), []byte{1, 3, 5}),
		"no values":      page(t, dataPage(0, format.RLEDictionary), nil),
		"an index page":  page(t, format.PageHeader{Type: format.IndexPage}, nil),
	} {
		if err := checkPages(bytes.NewReader(p), int64(len(p)),
			&format.ColumnMetaData{TotalCompressedSize: int64(len(p))}, pq.LeafColumn{}); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// snappyBlock is one that claims n bytes.
func snappyBlock(n uint64) []byte { return append(binary.AppendUvarint(nil, n), 0, 'a') }

// Descriptions at the end of a Parquet file that would take all memory, or the
// whole stack.
func TestHostileParquetFooters(t *testing.T) {
	list := append([]byte{0x29, 0xfc}, binary.AppendUvarint(nil, math.MaxInt32)...) // field 2: schema
	for what, footer := range map[string][]byte{
		"a long list":    list,
		"a long text":    append([]byte{0x28}, binary.AppendUvarint(nil, math.MaxInt32)...),
		"deep structs":   bytes.Repeat([]byte{0x1c}, 1<<20),
		"deep lists":     append([]byte{0x19}, bytes.Repeat([]byte{0x19}, 1<<20)...),
		"a map":          {0x1b, 0},
		"an endless int": append([]byte{0x16}, bytes.Repeat([]byte{0xff}, 20)...),
		"half a double":  {0x17, 1, 2},
		"no end":         {0x15, 2},
		"nothing":        {},
	} {
		content := append([]byte("PAR1"), footer...)
		content = append(binary.LittleEndian.AppendUint32(content, uint32(len(footer))), "PAR1"...)
		if err := checkParquetFooter(bytes.NewReader(content), int64(len(content))); !errors.Is(err, errDamaged) {
			t.Errorf("%s: error %v", what, err)
		}
	}
	for want, content := range map[string]string{
		"too short":                       "PAR1PAR1",
		"does not end in PAR1":            "PAR1 and so on",
		errDamaged.Error():                "PAR1\xff\xff\xff\x7fPAR1",
		"damaged file: impossible length": "PAR1\x00\x00\x00\x00PAR1",
	} {
		if err := checkParquetFooter(strings.NewReader(content), int64(len(content))); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, expected %s", content, err, want)
		}
	}
	// every type, and a far field
	flags := []byte{0x11, 0x12, 0x13, 9, 0x07, 2, 1, 2, 3, 4, 5, 6, 7, 8, 0x19, 0x21, 1, 2, 0x1a, 0x15, 2, 0}
	if rest, err := skim(append(flags, 99), thriftStruct, 0); err != nil || len(rest) != 1 {
		t.Errorf("left %v, %v", rest, err)
	}
}

// A batch gets the memory that an intact file may need, and no more.
func TestBudget(t *testing.T) {
	b := newBudget(1 << 20)
	const limit = 64<<20 + 256<<20
	take := func(sizes ...int) error {
		return table.Guard(func() error {
			for _, n := range sizes {
				b.Free(b.Allocate(n))
			}
			return nil
		})
	}
	if err := take(limit/2, limit/2); err != nil {
		t.Error(err)
	}
	if err := take(1); err == nil ||
		!strings.Contains(err.Error(), "a batch takes more than 335544320 bytes, the limit for a file of 1048576") {
		t.Errorf("error %v, expected that a batch takes too much", err)
	}
	for _, n := range []int{limit, math.MaxInt, -1} {
		b.taken = 0
		if err := take(1, n); err == nil {
			t.Errorf("got %d bytes", n)
		}
	}
	b.taken = 0
	grown := b.Reallocate(4, []byte{1, 2})
	if grown[0] != 1 || grown[1] != 2 || len(grown) != 4 {
		t.Errorf("reallocated %v", grown)
	}
	if small := b.Reallocate(1, grown); len(small) != 1 || &small[0] != &grown[0] {
		t.Error("reallocated memory that was large enough")
	}
}

// seekBuffer is a buffer that Arrow files can be written to.
type seekBuffer struct{ bytes.Buffer }

func (b *seekBuffer) Seek(int64, int) (int64, error) { return int64(b.Len()), nil }

func writeArrow(tb testing.TB, record arrow.Record, times int) []byte {
	tb.Helper()
	var out seekBuffer
	w, err := ipc.NewFileWriter(&out, ipc.WithSchema(record.Schema()))
	for range times {
		err = errors.Join(err, w.Write(record))
	}
	if err := errors.Join(err, w.Close()); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}

// oneColumn returns a file with a column of the given type, of one null.
func oneColumn(tb testing.TB, times int, fields ...arrow.Field) []byte {
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields, nil))
	b.Field(0).AppendNull()
	return writeArrow(tb, b.NewRecord(), times)
}

func checkArrow(content []byte) error {
	return table.Guard(func() error { return checkFooter(bytes.NewReader(content), int64(len(content))) })
}

func TestArrowFooter(t *testing.T) {
	whole := samples(t, ".arrow")[0]
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
		{"too long a footer", "damaged file", change(tail, 0xff, 0xff, 0xff)},
		{"no footer", "damaged file: runtime error", change(tail, 0, 0, 0, 0)},
		{"a footer beyond its end", "damaged file: runtime error", change(footer, 0xff, 0xff, 0xff, 0x7f)},
	} {
		if err := checkArrow(c.content); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, expected %q in it", c.what, err, c.want)
		}
	}
	for _, c := range []struct {
		dataType arrow.DataType
		want     string
	}{
		{arrow.PrimitiveTypes.Float32, ""},
		{arrow.FixedWidthTypes.Timestamp_us, ""},
		{arrow.ListOf(arrow.StructOf(arrow.Field{Name: "y", Type: arrow.BinaryTypes.LargeString})), ""},
		{&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String},
			"dictionary-encoded"},
		{&arrow.FixedSizeBinaryType{ByteWidth: 3}, "of a type that is not supported"},
		{arrow.StructOf(arrow.Field{Name: "y", Type: arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Int8)}),
			"of a type that is not supported"},
	} {
		err := checkArrow(oneColumn(t, 1, arrow.Field{Name: "x", Type: c.dataType, Nullable: true}))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v: error %v, expected %q in it", c.dataType, err, c.want)
		}
	}
	many := make([]arrow.Field, 1001)
	for i := range many {
		many[i] = arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Int8}
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(many, nil))
	if err := checkArrow(writeArrow(t, b.NewRecord(), 1)); err == nil ||
		!strings.Contains(err.Error(), "more than 1000 columns") {
		t.Errorf("1001 columns: error %v", err)
	}
}

// The places of record batches, which the footer holds, moved to where the file
// does not reach.
func TestBatchesWithinFile(t *testing.T) {
	whole := oneColumn(t, 2, arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Int64, Nullable: true})
	footer := len(whole) - 10 - int(binary.LittleEndian.Uint32(whole[len(whole)-10:]))
	place := func(at int) (start, end uint64) {
		start = binary.LittleEndian.Uint64(whole[at:])
		return start, start + uint64(binary.LittleEndian.Uint32(whole[at+8:])) +
			binary.LittleEndian.Uint64(whole[at+16:])
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
		if err := checkArrow(changed); !errors.Is(err, errDamaged) {
			t.Errorf("byte %d of the places: error %v, expected a damaged file", field, err)
		}
	}
}

// Columns of other types, and values that are not there, are refused by name.
func TestWrongColumns(t *testing.T) {
	field := func(name string, d arrow.DataType) arrow.Field {
		return arrow.Field{Name: name, Type: d, Nullable: true}
	}
	path := filepath.Join(t.TempDir(), "w.arrow")
	var number int32
	var text string
	var list []float64
	for want, c := range map[string]struct {
		d    arrow.DataType
		cell any
	}{
		`row 1: column "x": is null, expected a value`:                                            {arrow.PrimitiveTypes.Int64, &number},
		`record batch 1: column "x": has type utf8, expected int32 or int64`:                      {arrow.BinaryTypes.String, &number},
		`record batch 1: column "x": has type int64, expected text`:                               {arrow.PrimitiveTypes.Int64, &text},
		`record batch 1: column "x": has type list<item: int64, nullable>, expected lists of flo`: {arrow.ListOf(arrow.PrimitiveTypes.Int64), &list},
	} {
		if err := os.WriteFile(path, oneColumn(t, 1, field("x", c.d)), 0o644); err != nil {
			t.Fatal(err)
		}
		r, err := table.Open(t.Context(), path, []table.Column{{Name: "x", Value: c.cell}}, table.Options{Files: files})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Read(); err == nil || !strings.HasPrefix(err.Error(), path+": "+want) {
			t.Errorf("error %v, expected %s", err, want)
		}
		r.Close()
	}
	parquetPath := filepath.Join(t.TempDir(), "w.parquet")
	if err := os.WriteFile(parquetPath, otherParquet(t), 0o644); err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]table.Column{
		`column "text": has type STRING, expected int32 or int64`: {Name: "text", Value: &number},
		`column "gaps_s": has type DOUBLE, expected float64`:      {Name: "gaps_s", Value: new(float64)},
		`no column "y"; the file has id,count,time_s`:             {Name: "y", Value: &number},
	} {
		if _, err := table.Open(t.Context(), parquetPath, []table.Column{c}, table.Options{Files: files}); err == nil ||
			!strings.HasPrefix(err.Error(), parquetPath+": "+want) {
			t.Errorf("error %v, expected %s", err, want)
		}
	}
	maybe := table.Column{Name: `maybe, "s"`, Value: new(float64)}
	r, err := table.Open(t.Context(), parquetPath, []table.Column{maybe}, table.Options{Files: files})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := errors.Join(r.Read(), r.Read()); err == nil ||
		!strings.Contains(err.Error(), `row 2: column "maybe, \"s\"": is null, expected a value`) {
		t.Errorf("error %v", err)
	}
}
