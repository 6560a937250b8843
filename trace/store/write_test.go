package store_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lorasim/trace"
	"lorasim/trace/store"
)

// failing is a source that breaks after a number of requests.
type failing struct {
	trace.Source
	left  int
	panic bool
}

var errBroken = errors.New("source is broken")

func (f *failing) Next() (trace.Request, error) {
	if f.left == 0 && f.panic {
		panic(errBroken)
	}
	if f.left == 0 {
		return trace.Request{}, errBroken
	}
	f.left--
	return f.Source.Next()
}

// TestWriteErrors: nothing is left behind, and what was there stays.
func TestWriteErrors(t *testing.T) {
	long := bursty(200_000)
	second := func(r trace.Request) *trace.Workload {
		return &trace.Workload{Adapters: trace.Names(1, nil), Requests: []trace.Request{{ID: 1, Prompt: 1, Output: 1},
			r}}
	}
	for _, ext := range extensions {
		checkNothingWritten(t, ext, &failing{Source: long.Source(), left: 150_000}, "source is broken")
		checkNothingWritten(t, ext, (&trace.Workload{}).Source(), "empty workload")
		for want, w := range map[string]*trace.Workload{
			"request 1: prompt_tokens is 0, expected >= 1": second(trace.Request{ID: 2, Output: 1}),
			"request 1: adapter is 1, expected -1": second(trace.Request{ID: 2, Adapter: 1, Prompt: 1,
				Output: 1}),
			"request 1: id 1 is not greater": second(trace.Request{ID: 1, Prompt: 1, Output: 1}),
			"request 1: arrival_s is -1, expected a finite num": second(trace.Request{ID: 2, Arrival: -1, Prompt: 1,
				Output: 1}),
		} {
			checkNothingWritten(t, ext, w.Source(), want)
		}
	}
}

func checkNothingWritten(t *testing.T, ext string, src trace.Source, want string) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "w"+ext)
	if err := os.WriteFile(path, []byte("before"), 0o644); err != nil {
		t.Fatal(err)
	}
	n, err := store.Write(path, src, store.WriteOptions{Files: files})
	if err == nil || n != 0 || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: wrote %d, error %v, expected %q in it", ext, n, err, want)
	}
	checkOnly(t, dir, path, "before")
}

// checkOnly checks that a folder holds one file, and what that holds.
func checkOnly(t *testing.T, dir, path, content string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != content || len(entries) != 1 {
		t.Errorf("%s: %d files, %.40q, %v", path, len(entries), got, err)
	}
}

func TestWritePanics(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "w.csv")
	if err := os.WriteFile(path, []byte("before"), 0o644); err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if p := recover(); p != errBroken {
				t.Errorf("recovered %v", p)
			}
		}()
		_, err := store.Write(path, &failing{Source: bursty(10).Source(), left: 5, panic: true},
			store.WriteOptions{Files: files})
		t.Errorf("returned %v", err)
	}()
	checkOnly(t, dir, path, "before")
}

func TestWriteMaxNew(t *testing.T) {
	w := &trace.Workload{Requests: []trace.Request{
		{Adapter: -1, Prompt: 1, Output: 2, MaxNew: 2}, {ID: 1, Adapter: -1, Prompt: 1, Output: 2, MaxNew: 3},
	}}
	for _, ext := range extensions {
		path := filepath.Join(t.TempDir(), "w"+ext)
		_, err := store.Write(path, w.Source(), store.WriteOptions{Files: files})
		if text := ext == ".csv" || ext == ".jsonl"; text {
			if err == nil || !strings.Contains(err.Error(), "request 1: max_new_tokens is 3 and output_tokens 2") {
				t.Errorf("%s: error %v: the budget must not get lost", ext, err)
			}
		} else if err != nil {
			t.Errorf("%s: %v", ext, err)
		}
	}
}

func TestWriteNowhere(t *testing.T) {
	for _, ext := range extensions {
		if _, err := store.Write(filepath.Join(t.TempDir(), "none", "w"+ext), bursty(1).Source(),
			store.WriteOptions{Files: files}); !os.IsNotExist(err) {
			t.Errorf("%s: error %v, expected that the folder does not exist", ext, err)
		}
	}
}

func TestWritePermissions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.csv")
	if _, err := store.Write(path, bursty(1).Source(), store.WriteOptions{Files: files}); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("%v, %v; expected that others may read the file", info.Mode(), err)
	}
}

// With Names, text files name their adapters and keep the base model apart; a name may be a
// number, also if all names are.
func TestWriteNames(t *testing.T) {
	for _, ext := range []string{".csv", ".jsonl"} {
		for _, second := range []string{"sql", "7", "42"} {
			first := "chat"
			if second == "42" {
				first = "0"
			}
			w := &trace.Workload{Adapters: []trace.Adapter{{Name: first}, {Name: second}}, Requests: []trace.Request{
				{ID: 0, Adapter: 1, Prompt: 1, Output: 1}, {ID: 1, Adapter: trace.BaseModel, Prompt: 1, Output: 1},
				{ID: 2, Adapter: 0, Prompt: 1, Output: 1}}}
			path := filepath.Join(t.TempDir(), "w"+ext)
			if _, err := store.Write(path, w.Source(), store.WriteOptions{Files: files, Names: true}); err != nil {
				t.Fatal(err)
			}
			r, err := store.Open(t.Context(), path, store.ReadOptions{Files: files})
			if err != nil {
				t.Fatal(err)
			}
			got, err := trace.Collect(r)
			r.Close()
			if err != nil {
				t.Fatal(err)
			}
			want := []int32{0, trace.BaseModel, 1} // by first appearance
			for i, q := range got.Requests {
				if q.Adapter != want[i] {
					t.Errorf("%s, %s: request %d has adapter %d of %v, expected %d", ext, second, i, q.Adapter,
						got.Adapters, want[i])
				}
			}
			if got.Adapters[0].Name != second || got.Adapters[1].Name != first {
				t.Errorf("%s: adapters %v", ext, got.Adapters)
			}
		}
	}
}
