package store_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/google/go-cmp/cmp"

	"lorasim/trace/store"
)

// fuzzFormat reads arbitrary files of one format: an error names the file, and
// what is read can be written and read again.
func fuzzFormat(f *testing.F, ext string) {
	dir := f.TempDir()
	path, again := filepath.Join(dir, "w"+ext), filepath.Join(dir, "again"+ext)
	f.Fuzz(func(t *testing.T, content []byte) {
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
		w, err := read(path, store.ReadOptions{Files: files})
		if err != nil {
			if !strings.HasPrefix(err.Error(), path+":") {
				t.Errorf("error does not name the file: %v", err)
			}
			return
		}
		if _, err := store.Write(again, w.Source(), store.WriteOptions{Files: files, MaxNew: true,
			Ranks: true}); err != nil {
			t.Fatal(err)
		}
		got, err := read(again, store.ReadOptions{Files: files, Adapters: w.Adapters})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(w.Requests, got.Requests); diff != "" {
			t.Errorf("difference:\n%s", diff)
		}
	})
}

func FuzzCSV(f *testing.F) {
	f.Add([]byte(head + "0,0,-1,1,2\n1,0.5,3,4,5\n"))
	f.Add([]byte(
		"rank,id,arrival_s,adapter,prompt_tokens,output_tokens,max_new_tokens\r\n,7,1e-9,\"a,\"\"b\",1,2,3\r\n8,8,2.5,,1,2,\r\n"))
	fuzzFormat(f, ".csv")
}

func FuzzJSONL(f *testing.F) {
	f.Add([]byte(row0))
	f.Add([]byte(
		`{"rank":8,"max_new_tokens":9,"id":0,"arrival_s":1.5e2,"adapter":"a\u00e4","prompt_tokens":1,"output_tokens":1}` + "\n"))
	fuzzFormat(f, ".jsonl")
}

// addBinary adds a file of ours and one of another program to the corpus.
func addBinary(f *testing.F, ext string) {
	path := filepath.Join(f.TempDir(), "w"+ext)
	add := func() {
		content, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
	}
	if _, err := store.Write(path, bursty(5).Source(), store.WriteOptions{Files: files}); err != nil {
		f.Fatal(err)
	}
	add()
	writeBinary(f, path, foreign(), twoAdapters)
	add()
}

func FuzzParquet(f *testing.F) {
	addBinary(f, ".parquet")
	fuzzFormat(f, ".parquet")
}

func FuzzArrow(f *testing.F) {
	addBinary(f, ".arrow")
	path := filepath.Join(f.TempDir(), "w.arrow")
	for _, compression := range []ipc.Option{ipc.WithZstd(), ipc.WithLZ4()} {
		writeArrow(f, path, foreign(), twoAdapters, compression)
		content, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
	}
	fuzzFormat(f, ".arrow")
}
