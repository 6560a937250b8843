package store_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"lorasim/internal/testutil"
	"lorasim/trace"
	"lorasim/trace/columnar"
	"lorasim/trace/store"
)

// files has all formats.
var files = columnar.Files()

// read reads a whole file.
func read(path string, o store.ReadOptions) (*trace.Workload, error) {
	r, err := store.Open(context.Background(), path, o)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return trace.Collect(r)
}

// workloads draws valid workloads of at least one request.
func workloads() *rapid.Generator[*trace.Workload] {
	return rapid.Custom(func(t *rapid.T) *trace.Workload {
		w := &trace.Workload{Adapters: []trace.Adapter{}}
		n := rapid.IntRange(0, 5).Draw(t, "adapters")
		for i := range n {
			name := rapid.StringMatching(`[a-z0-9 ,"\\äλ/:-]{1,8}`).Draw(t, "name")
			w.Adapters = append(w.Adapters, trace.Adapter{
				Name: fmt.Sprintf("%d%s", i, name), Rank: rapid.SampledFrom([]int{0, 8, 64}).Draw(t, "rank"),
			})
		}
		var id int64
		arrival := 0.0
		for range rapid.IntRange(1, 20).Draw(t, "requests") {
			arrival = rapid.Float64Range(arrival, math.MaxFloat64).Draw(t, "arrival")
			r := trace.Request{
				ID: id, Arrival: arrival,
				Adapter: int32(rapid.IntRange(-1, n-1).Draw(t, "adapter")),
				Prompt:  rapid.Int32Range(1, math.MaxInt32).Draw(t, "prompt"),
				Output:  rapid.Int32Range(1, math.MaxInt32).Draw(t, "output"),
			}
			if rapid.Bool().Draw(t, "has budget") {
				r.MaxNew = rapid.Int32Range(r.Output, math.MaxInt32).Draw(t, "max new")
			}
			w.Requests = append(w.Requests, r)
			id += rapid.Int64Range(1, 1<<40).Draw(t, "gap of ids")
		}
		return w
	})
}

// TestRoundTrip: every format gives back exactly what was written, twice the
// same bytes.
func TestRoundTrip(t *testing.T) {
	dir := t.TempDir()
	for _, ext := range extensions {
		t.Run(ext, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				w := workloads().Draw(t, "workload")
				o := store.WriteOptions{Files: files, MaxNew: true, Ranks: rapid.Bool().Draw(t, "ranks")}
				path, again := filepath.Join(dir, "w"+ext), filepath.Join(dir, "again"+ext)
				for _, p := range []string{path, again} {
					if n, err := store.Write(p, w.Source(), o); err != nil || n != int64(len(w.Requests)) {
						t.Fatalf("wrote %d requests, %v", n, err)
					}
				}
				a, _ := os.ReadFile(path)
				b, _ := os.ReadFile(again)
				if len(a) == 0 || !bytes.Equal(a, b) {
					t.Fatal("the same workload gives different bytes")
				}
				stated := store.ReadOptions{Files: files}
				if ext == ".csv" || ext == ".jsonl" {
					stated.Adapters = w.Adapters // not in the file
				}
				got, err := read(path, stated)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(w, got); diff != "" {
					t.Fatalf("difference:\n%s", diff)
				}
			})
		})
	}
}

// TestAdaptersFound: a CSV or JSONL file tells as much of the adapters as its
// rows hold.
func TestAdaptersFound(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		w := workloads().Draw(t, "workload")
		path := filepath.Join(dir, "w"+rapid.SampledFrom([]string{".csv", ".jsonl"}).Draw(t, "format"))
		if _, err := store.Write(path, w.Source(), store.WriteOptions{Files: files, MaxNew: true,
			Ranks: true}); err != nil {
			t.Fatal(err)
		}
		want := &trace.Workload{Adapters: []trace.Adapter{}, Requests: w.Requests}
		for _, r := range w.Requests {
			for i := int32(len(want.Adapters)); i <= r.Adapter; i++ {
				want.Adapters = append(want.Adapters, trace.Adapter{Name: fmt.Sprintf("lora%d", i)})
			}
			if r.Adapter >= 0 {
				want.Adapters[r.Adapter].Rank = w.Adapters[r.Adapter].Rank
			}
		}
		got, err := read(path, store.ReadOptions{Files: files})
		if err != nil {
			t.Fatal(err)
		}
		if got.Adapters == nil {
			got.Adapters = []trace.Adapter{}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("difference:\n%s", diff)
		}
	})
}

// TestManyBatches crosses the borders of row groups and record batches.
func TestManyBatches(t *testing.T) {
	for _, n := range []int{1<<16 - 1, 1 << 16, 1<<16 + 1, 200_000} {
		w := bursty(n)
		for _, ext := range []string{".parquet", ".arrow"} {
			path := filepath.Join(t.TempDir(), "w"+ext)
			if _, err := store.Write(path, w.Source(), store.WriteOptions{Files: files}); err != nil {
				t.Fatal(err)
			}
			r, err := store.Open(t.Context(), path, store.ReadOptions{Files: files})
			if err != nil {
				t.Fatal(err)
			}
			if left := r.Len(); left != int64(n) {
				t.Errorf("%s: %d requests to come, expected %d", ext, left, n)
			}
			for i, want := range w.Requests {
				if got, err := r.Next(); err != nil || got != want {
					t.Fatalf("%s: request %d is %+v, %v; expected %+v", ext, i, got, err, want)
				}
			}
			if left := r.Len(); left != 0 {
				t.Errorf("%s: %d requests to come at the end", ext, left)
			}
			r.Close()
		}
	}
}

// TestExactText pins the text formats, which other tools read.
func TestExactText(t *testing.T) {
	w := &trace.Workload{
		Adapters: []trace.Adapter{{Name: "a", Rank: 8}, {Name: "b"}},
		Requests: []trace.Request{
			{ID: 0, Arrival: 0, Adapter: -1, Prompt: 1, Output: 2},
			{ID: 1, Arrival: 1e-9, Adapter: 0, Prompt: 3, Output: 4, MaxNew: 4},
			{ID: 7, Arrival: 250.5046187369351, Adapter: 1, Prompt: 5, Output: 6},
		},
	}
	all := store.WriteOptions{Files: files, MaxNew: true, Ranks: true}
	for _, c := range []struct {
		ext  string
		o    store.WriteOptions
		want string
	}{
		{".csv", store.WriteOptions{Files: files},
			"id,arrival_s,adapter,prompt_tokens,output_tokens\n0,0,-1,1,2\n1,1e-09,0,3,4\n7,250.5046187369351,1,5,6\n"},
		{".csv", all, "id,arrival_s,adapter,prompt_tokens,output_tokens,max_new_tokens,rank\n" +
			"0,0,-1,1,2,0,0\n1,1e-09,0,3,4,4,8\n7,250.5046187369351,1,5,6,0,0\n"},
		{".jsonl", store.WriteOptions{Files: files},
			`{"id":0,"arrival_s":0,"adapter":-1,"prompt_tokens":1,"output_tokens":2}` +
				"\n" +
				`{"id":1,"arrival_s":1e-09,"adapter":0,"prompt_tokens":3,"output_tokens":4}` + "\n" +
				`{"id":7,"arrival_s":250.5046187369351,"adapter":1,"prompt_tokens":5,"output_tokens":6}` + "\n"},
	} {
		path := filepath.Join(t.TempDir(), "w"+c.ext)
		if _, err := store.Write(path, w.Source(), c.o); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if diff := cmp.Diff(c.want, string(got)); err != nil || diff != "" {
			t.Errorf("%s %+v: %v\n%s", c.ext, c.o, err, diff)
		}
	}
}

// TestTexts: what prompts have in common survives, for ids of any number of
// tokens without being told, and for conversations with their parents.
func TestTexts(t *testing.T) {
	first, second := &trace.Text{Block: 16, ID: 7}, &trace.Text{Block: 512, ID: 7}
	system := &trace.Text{ID: 0}
	talk := &trace.Text{Parent: system, Start: 10, ID: 2}
	edit := &trace.Text{Parent: talk, Start: 30, ID: 3}
	for name, texts := range map[string][]*trace.Text{
		"16":           {first, {Parent: first, Start: 16, Block: 16, ID: 2}, nil},
		"512":          {second, {Parent: second, Start: 512, Block: 512, ID: 8}},
		"conversation": {talk, talk, nil, edit, {ID: 4}},
	} {
		w := &trace.Workload{Adapters: []trace.Adapter{{Name: "a"}}}
		for i, text := range texts {
			r := trace.Request{ID: int64(i), Arrival: float64(i), Prompt: 600, Output: 3, Text: text}
			if name == "conversation" && i != 1 {
				r.Reply = text
			}
			w.Requests = append(w.Requests, r)
		}
		for _, ext := range []string{".jsonl", ".parquet", ".arrow", ".csv"} {
			path := filepath.Join(t.TempDir(), "w"+ext)
			_, err := store.Write(path, w.Source(), store.WriteOptions{Files: files})
			if ext == ".csv" && name != "conversation" {
				if err == nil {
					t.Error("no error for ids in CSV")
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			got, err := read(path, store.ReadOptions{Files: files, Adapters: w.Adapters})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(w.Requests, got.Requests, cmpopts.IgnoreUnexported(trace.Text{})); diff != "" {
				t.Errorf("%s%s: difference:\n%s", name, ext, diff)
			}
			if r := got.Requests; name == "conversation" && (r[0].Text != r[1].Text || r[3].Text.Parent != r[0].Text) {
				t.Errorf("%s%s: equal texts became different ones", name, ext)
			}
		}
		w.Requests[0].Text = nil
		if _, err := store.Write(filepath.Join(t.TempDir(), "w.jsonl"), w.Source(),
			store.WriteOptions{Files: files}); err == nil {
			t.Error("no error for texts that the file has no column for")
		}
	}
}

// TestBadTexts: a text that begins with the prompt does not begin later, and
// begins at the same place in every row.
func TestBadTexts(t *testing.T) {
	const head = `{"id":%d,"arrival_s":0,"adapter":0,"prompt_tokens":9,"output_tokens":1,"text":1,"text_start":%d,"text_parent":%d}` + "\n"
	for _, rows := range [][][3]int{{{0, 5, -1}}, {{0, -1, 2}}, {{0, 5, 2}, {1, 6, 2}}, {{0, 5, 2}, {1, 5, 3}}} {
		var text string
		for _, r := range rows {
			text += fmt.Sprintf(head, r[0], r[1], r[2])
		}
		if _, err := read(testutil.File(t, "w.jsonl", text), store.ReadOptions{Files: files}); err == nil {
			t.Errorf("no error for %v", rows)
		}
	}
}
