package store_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
	pq "github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/metadata"
	"github.com/apache/arrow/go/v17/parquet/schema"
	"github.com/google/go-cmp/cmp"

	"lorasim/trace"
	"lorasim/trace/store"
)

// column is one column of a file that another program could have written.
type column struct {
	name   string
	values any    // []int32, []int64, []float64 or []float32
	valid  []bool // nil: the column cannot be null
}

// foreign are the columns of a valid workload in other types and another order
// than ours.
func foreign() []column {
	return []column{
		{name: "output_tokens", values: []int64{7, 8, 9}},
		{name: "adapter", values: []int64{-1, 0, 1}, valid: []bool{true, true, true}},
		{name: "arrival_s", values: []float64{0, 0.5, 0.5}, valid: []bool{true, true, true}},
		{name: "id", values: []int32{3, 4, 5}},
		{name: "prompt_tokens", values: []int32{1, 2, 3}, valid: []bool{true, true, true}},
	}
}

// with replaces the column of the same name, or adds it.
func with(c column) []column {
	all := foreign()
	for i := range all {
		if all[i].name == c.name {
			all[i] = c
			return all
		}
	}
	return append(all, c)
}

func without(name string) []column {
	all := foreign()
	for i := range all {
		if all[i].name == name {
			return append(all[:i], all[i+1:]...)
		}
	}
	return all
}

// dense drops the values that are not valid, which Parquet does not hold.
func dense[T any](values []T, valid []bool) []T {
	var kept []T
	for i, v := range values {
		if valid == nil || valid[i] {
			kept = append(kept, v)
		}
	}
	return kept
}

func writeParquet(tb testing.TB, path string, columns []column, adapters string, options ...parquet.WriterProperty) {
	tb.Helper()
	var fields schema.FieldList
	for _, c := range columns {
		repetition := parquet.Repetitions.Required
		if c.valid != nil {
			repetition = parquet.Repetitions.Optional
		}
		var node schema.Node
		switch c.values.(type) {
		case []int32:
			node = schema.NewInt32Node(c.name, repetition, -1)
		case []int64:
			node = schema.NewInt64Node(c.name, repetition, -1)
		case []float64:
			node = schema.NewFloat64Node(c.name, repetition, -1)
		case []float32:
			node = schema.NewFloat32Node(c.name, repetition, -1)
		}
		fields = append(fields, node)
	}
	root, err := schema.NewGroupNode("schema", parquet.Repetitions.Required, fields, -1)
	if err != nil {
		tb.Fatal(err)
	}
	f, err := os.Create(path)
	if err != nil {
		tb.Fatal(err)
	}
	meta := metadata.NewKeyValueMetadata()
	if adapters != "" {
		if err := meta.Append("lorasim.adapters", adapters); err != nil {
			tb.Fatal(err)
		}
	}
	w := pq.NewParquetWriter(f, root, pq.WithWriteMetadata(meta),
		pq.WithWriterProps(parquet.NewWriterProperties(options...)))
	group := w.AppendRowGroup()
	for _, c := range columns {
		writer, err := group.NextColumn()
		if err != nil {
			tb.Fatal(err)
		}
		var levels []int16
		for _, v := range c.valid {
			level := int16(0)
			if v {
				level = 1
			}
			levels = append(levels, level)
		}
		switch w := writer.(type) {
		case *pq.Int32ColumnChunkWriter:
			_, err = w.WriteBatch(dense(c.values.([]int32), c.valid), levels, nil)
		case *pq.Int64ColumnChunkWriter:
			_, err = w.WriteBatch(dense(c.values.([]int64), c.valid), levels, nil)
		case *pq.Float64ColumnChunkWriter:
			_, err = w.WriteBatch(dense(c.values.([]float64), c.valid), levels, nil)
		case *pq.Float32ColumnChunkWriter:
			_, err = w.WriteBatch(dense(c.values.([]float32), c.valid), levels, nil)
		}
		if err != nil {
			tb.Fatal(err)
		}
		if err := writer.Close(); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
}

func writeArrow(tb testing.TB, path string, columns []column, adapters string, options ...ipc.Option) {
	tb.Helper()
	var fields []arrow.Field
	var arrays []arrow.Array
	rows := 0
	for _, c := range columns {
		switch values := c.values.(type) {
		case []int32:
			b := array.NewInt32Builder(memory.DefaultAllocator)
			b.AppendValues(values, c.valid)
			arrays = append(arrays, b.NewArray())
		case []int64:
			b := array.NewInt64Builder(memory.DefaultAllocator)
			b.AppendValues(values, c.valid)
			arrays = append(arrays, b.NewArray())
		case []float64:
			b := array.NewFloat64Builder(memory.DefaultAllocator)
			b.AppendValues(values, c.valid)
			arrays = append(arrays, b.NewArray())
		case []float32:
			b := array.NewFloat32Builder(memory.DefaultAllocator)
			b.AppendValues(values, c.valid)
			arrays = append(arrays, b.NewArray())
		}
		a := arrays[len(arrays)-1]
		rows = a.Len()
		fields = append(fields, arrow.Field{Name: c.name, Type: a.DataType(), Nullable: c.valid != nil})
	}
	meta := arrow.MetadataFrom(map[string]string{})
	if adapters != "" {
		meta = arrow.MetadataFrom(map[string]string{"lorasim.adapters": adapters})
	}
	s := arrow.NewSchema(fields, &meta)
	f, err := os.Create(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	w, err := ipc.NewFileWriter(f, append(options, ipc.WithSchema(s))...)
	if err != nil {
		tb.Fatal(err)
	}
	if err := w.Write(array.NewRecord(s, arrays, int64(rows))); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
}

func writeBinary(tb testing.TB, path string, columns []column, adapters string) {
	tb.Helper()
	if filepath.Ext(path) == ".parquet" {
		writeParquet(tb, path, columns, adapters)
	} else {
		writeArrow(tb, path, columns, adapters)
	}
}

var binaryExtensions = []string{".parquet", ".arrow"}

const twoAdapters = `[{"name":"a","rank":8},{"name":"b"}]`

func TestForeignBinary(t *testing.T) {
	want := &trace.Workload{
		Adapters: []trace.Adapter{{Name: "a", Rank: 8}, {Name: "b"}},
		Requests: []trace.Request{
			{ID: 3, Arrival: 0, Adapter: -1, Prompt: 1, Output: 7},
			{ID: 4, Arrival: 0.5, Adapter: 0, Prompt: 2, Output: 8},
			{ID: 5, Arrival: 0.5, Adapter: 1, Prompt: 3, Output: 9},
		},
	}
	for _, ext := range binaryExtensions {
		path := filepath.Join(t.TempDir(), "w"+ext)
		writeBinary(t, path, foreign(), twoAdapters)
		got, err := read(path, store.ReadOptions{Files: files})
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", ext, err, diff)
		}
		writeBinary(t, path, foreign(), "")
		got, err = read(path, store.ReadOptions{Files: files, Adapters: want.Adapters})
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s without adapters: %v\n%s", ext, err, diff)
		}
	}
	path := filepath.Join(t.TempDir(), "w.arrow")
	for _, compression := range []ipc.Option{ipc.WithZstd(), ipc.WithLZ4()} {
		writeArrow(t, path, foreign(), twoAdapters, compression)
		got, err := read(path, store.ReadOptions{Files: files})
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("compressed: %v\n%s", err, diff)
		}
	}
}

// TestLargeRowGroup reads a row group of many pages and of more rows than are
// held in memory.
func TestLargeRowGroup(t *testing.T) {
	const n = 500_000
	id, arrival := make([]int64, n), make([]float64, n)
	adapter, prompt, output := make([]int32, n), make([]int32, n), make([]int64, n)
	for i := range n {
		id[i], arrival[i], adapter[i], prompt[i], output[i] = int64(i), float64(i)/7, int32(i%3-1), int32(1+i%5000),
			int64(1+i%77)
	}
	columns := []column{
		{name: "id", values: id}, {name: "arrival_s", values: arrival}, {name: "adapter", values: adapter},
		{name: "prompt_tokens", values: prompt}, {name: "output_tokens", values: output},
	}
	for _, ext := range binaryExtensions {
		path := filepath.Join(t.TempDir(), "w"+ext)
		writeBinary(t, path, columns, twoAdapters)
		got, err := read(path, store.ReadOptions{Files: files})
		if err != nil || len(got.Requests) != n {
			t.Fatalf("%s: %v", ext, err)
		}
		for i, r := range got.Requests {
			want := trace.Request{ID: id[i], Arrival: arrival[i], Adapter: adapter[i], Prompt: prompt[i],
				Output: int32(output[i])}
			if r != want {
				t.Fatalf("%s: request %d is %+v, expected %+v", ext, i, r, want)
			}
		}
	}
}

// TestParquetVariants reads what other writers may choose: page versions,
// encodings and codecs, with columns that could be empty and dictionaries of
// many sizes.
func TestParquetVariants(t *testing.T) {
	const n = 30_000
	r := rand.New(rand.NewPCG(1, 1))
	want := make([]trace.Request, n)
	id, arrival, valid := make([]int64, n), make([]float64, n), make([]bool, n)
	adapter, prompt, output := make([]int32, n), make([]int64, n), make([]int32, n)
	for i := range n {
		id[i], arrival[i], valid[i] = int64(i), float64(i/5), true
		adapter[i], prompt[i], output[i] = r.Int32N(3)-1, int64(1+r.Int32N(5000)), 1+int32(i/1000)
		want[i] = trace.Request{ID: id[i], Arrival: arrival[i], Adapter: adapter[i], Prompt: int32(prompt[i]),
			Output: output[i]}
	}
	columns := []column{
		{name: "id", values: id, valid: valid}, {name: "arrival_s", values: arrival, valid: valid},
		{name: "adapter", values: adapter},
		{name: "prompt_tokens", values: prompt, valid: valid}, {name: "output_tokens", values: output, valid: valid},
	}
	path := filepath.Join(t.TempDir(), "w.parquet")
	for _, page := range []parquet.DataPageVersion{parquet.DataPageV1, parquet.DataPageV2} {
		for _, codec := range []compress.Compression{
			compress.Codecs.Uncompressed, compress.Codecs.Snappy, compress.Codecs.Gzip, compress.Codecs.Zstd,
			compress.Codecs.Brotli,
		} {
			for _, dictionary := range []bool{false, true} {
				writeParquet(t, path, columns, twoAdapters, parquet.WithDataPageVersion(page),
					parquet.WithCompression(codec),
					parquet.WithDictionaryDefault(dictionary), parquet.WithDataPageSize(5000))
				got, err := read(path, store.ReadOptions{Files: files})
				if err != nil || !slices.Equal(got.Requests, want) {
					t.Errorf("page version %v, codec %v, dictionary %v: %v", page, codec, dictionary, err)
				}
			}
		}
	}
	writeParquet(t, path, columns, twoAdapters, parquet.WithDictionaryDefault(false),
		parquet.WithEncodingFor("prompt_tokens", parquet.Encodings.DeltaBinaryPacked))
	if got, err := read(path, store.ReadOptions{Files: files}); err != nil || !slices.Equal(got.Requests, want) {
		t.Errorf("delta encoding: %v", err)
	}
}

func TestBinaryErrors(t *testing.T) {
	yes := []bool{true, true, true}
	for want, columns := range map[string][]column{
		`no column "prompt_tokens"`: without("prompt_tokens"),
		`unknown column "promt" (known: id, arrival_s`: append(without("prompt_tokens"),
			column{name: "promt", values: []int32{1, 2, 3}}),
		`unknown column "max_new_token", did you mean "max_new_tokens"?`: with(column{name: "max_new_token",
			values: []int32{1, 2, 3}}),
		`column "id" appears twice`: append(foreign(), foreign()[3]),
		`column "arrival_s": has type`: with(column{name: "arrival_s",
			values: []float32{1, 2, 3}}),
		`column "adapter": has type`: with(column{name: "adapter",
			values: []float64{0, 1, 1}}),
		`row 2: column "output_tokens": 4294967297 is out of range`: with(column{name: "output_tokens",
			values: []int64{1, 1<<32 + 1, 1}}),
		`row 2: prompt_tokens is -4, expected >= 1`: with(column{name: "prompt_tokens",
			values: []int32{1, -4, 1}}),
		`row 3: arrival_s 0.5 is before that of the previous request (1`: with(column{name: "arrival_s",
			values: []float64{0, 1, 0.5}}),
		`row 3: id 3 is not greater than that of the previous request (4)`: with(column{name: "id",
			values: []int64{3, 4, 3}}),
		`row 3: adapter is 2, expected -1 (base model) to 1`: with(column{name: "adapter",
			values: []int64{0, 1, 2}}),
		`row 1: max_new_tokens is 1, expected >= output_tokens (7)`: with(column{name: "max_new_tokens",
			values: []int64{1, 0, 0}, valid: yes}),
		`row 2: column "max_new_tokens": is null, expected a value`: with(column{name: "max_new_tokens",
			values: []int32{9, 9, 9}, valid: []bool{true, false, true}}),
	} {
		for _, ext := range binaryExtensions {
			path := filepath.Join(t.TempDir(), "w"+ext)
			writeBinary(t, path, columns, twoAdapters)
			_, err := read(path, store.ReadOptions{Files: files})
			if err == nil || !strings.HasPrefix(err.Error(), path+":") || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v, expected %q in it", ext, err, want)
			}
		}
	}
	for adapters, want := range map[string]string{
		"":                         `no adapters under "lorasim.adapters" in the schema's metadata; give --num-adapters`,
		"[1]":                      `adapters under "lorasim.adapters" in the schema's metadata: json`,
		`[{"name":"a","rank":-8}]`: `adapter "a" has rank -8`,
	} {
		for _, ext := range binaryExtensions {
			path := filepath.Join(t.TempDir(), "w"+ext)
			writeBinary(t, path, foreign(), adapters)
			if _, err := read(path, store.ReadOptions{Files: files}); err == nil ||
				!strings.HasPrefix(err.Error(), path+": "+want) {
				t.Errorf("%s %s: error %v, expected %s", ext, adapters, err, want)
			}
		}
	}
}

// TestDamage: a file cut short or with a changed byte gives an error that names
// it, or valid requests, but never a panic.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	for _, ext := range binaryExtensions {
		if _, err := store.Write(path("ours"+ext), bursty(50).Source(), store.WriteOptions{Files: files}); err != nil {
			t.Fatal(err)
		}
		writeBinary(t, path("foreign"+ext), foreign(), twoAdapters)
	}
	writeArrow(t, path("zstd.arrow"), foreign(), twoAdapters, ipc.WithZstd())
	writeArrow(t, path("lz4.arrow"), foreign(), twoAdapters, ipc.WithLZ4())
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 6 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		whole, err := os.ReadFile(path(file.Name()))
		if err != nil {
			t.Fatal(err)
		}
		damaged := path("damaged" + filepath.Ext(file.Name()))
		for i := 0; i < len(whole); i += 5 { // every place would take long
			checkDamaged(t, damaged, whole[:i], true)
			changed := append([]byte(nil), whole...)
			changed[i] ^= 0x84 // a high and a low bit
			checkDamaged(t, damaged, changed, false)
		}
	}
}

func checkDamaged(t *testing.T, path string, content []byte, mustFail bool) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := read(path, store.ReadOptions{Files: files})
	if err != nil && !strings.HasPrefix(err.Error(), path+":") {
		t.Errorf("error does not name the file: %v", err)
	}
	if err == nil && mustFail {
		t.Errorf("read %d requests from the first %d bytes", len(got.Requests), len(content))
	}
}
