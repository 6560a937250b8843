package store_test

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lorasim/internal/testutil"
	"lorasim/trace"
	"lorasim/trace/store"
)

func TestReadText(t *testing.T) {
	base := trace.BaseModel
	named := []trace.Adapter{{Name: "sql", Rank: 16}, {Name: "chat, fr"}}
	for _, c := range []struct {
		name, file, content string
		o                   store.ReadOptions
		want                trace.Workload
	}{
		{
			"columns in any order, optional ones empty", "w.csv",
			"output_tokens,rank,prompt_tokens,max_new_tokens,adapter,arrival_s,id\r\n2,,1,,1,0.5,3\r\n5,8,4,9,1,0.5,4",
			store.ReadOptions{Files: files},
			trace.Workload{Adapters: []trace.Adapter{{Name: "lora0"}, {Name: "lora1", Rank: 8}},
				Requests: []trace.Request{
					{ID: 3, Arrival: 0.5, Adapter: 1, Prompt: 1, Output: 2},
					{ID: 4, Arrival: 0.5, Adapter: 1, Prompt: 4, Output: 5, MaxNew: 9},
				}},
		}, {
			"names, by first appearance", "w.csv",
			"id,arrival_s,adapter,prompt_tokens,output_tokens,rank\n0,0,,1,1,\n1,1,sql,1,1,16\n2,2,\"chat, fr\",1,1,0\n3,3,sql,1,1,\n", store.ReadOptions{Files: files},
			trace.Workload{Adapters: named, Requests: []trace.Request{
				{Adapter: base, Prompt: 1, Output: 1}, {ID: 1, Arrival: 1, Prompt: 1, Output: 1},
				{ID: 2, Arrival: 2, Adapter: 1, Prompt: 1, Output: 1}, {ID: 3, Arrival: 3, Prompt: 1, Output: 1},
			}},
		}, {
			"names, of stated adapters", "w.jsonl",
			`{"id":0,"arrival_s":0,"adapter":"chat, fr","prompt_tokens":1,"output_tokens":1}` + "\n" +
				` { "adapter" : "" , "arrival_s" : 1e0, "id":1, "prompt_tokens":1,"output_tokens":1,"max_new_tokens":3, "rank": 4} `,
			store.ReadOptions{Files: files, Adapters: named},
			trace.Workload{Adapters: named, Requests: []trace.Request{
				{Adapter: 1, Prompt: 1, Output: 1}, {ID: 1, Arrival: 1, Adapter: base, Prompt: 1, Output: 1, MaxNew: 3},
			}},
		}, {
			"base model only", "w.csv", "id,arrival_s,adapter,prompt_tokens,output_tokens\n0,0,-1,1,1\n",
			store.ReadOptions{Files: files},
			trace.Workload{Requests: []trace.Request{{Adapter: base, Prompt: 1, Output: 1}}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := read(testutil.File(t, c.file, c.content), c.o)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&c.want, got); diff != "" {
				t.Errorf("difference:\n%s", diff)
			}
		})
	}
}

func TestReadGzip(t *testing.T) {
	packed := testutil.Gzip(t, strings.Repeat("\n", 100)+head+"0,0,1,1,1\n")
	got, err := read(testutil.File(t, "w.csv.gz", packed), store.ReadOptions{Files: files})
	if err != nil || len(got.Requests) != 1 || len(got.Adapters) != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	path := testutil.File(t, "w.csv.gz", packed[:len(packed)-10])
	if _, err := read(path, store.ReadOptions{Files: files}); err == nil || !strings.HasPrefix(err.Error(), path+":") ||
		!strings.Contains(err.Error(), "truncated") {
		t.Errorf("error %v", err)
	}
}

const (
	head = "id,arrival_s,adapter,prompt_tokens,output_tokens\n"
	row0 = `{"id":0,"arrival_s":1,"adapter":0,"prompt_tokens":1,"output_tokens":1}` + "\n"
)

func TestTextErrors(t *testing.T) {
	for _, c := range []struct{ file, content, want string }{
		{"w.csv", "", ": file is empty, expected a header"},
		{"w.csv", head, ": empty workload"},
		{"w.csv", "id,arrival_s,adapter,prompt_tokens\n", `:1: no column "output_tokens"`},
		{"w.csv", "id,arrival_s,adapter,promt_tokens,output_tokens\n",
			`:1: unknown column "promt_tokens", did you mean "prompt_tokens"?`},
		{"w.csv", "id,id,arrival_s,adapter,prompt_tokens,output_tokens\n", `:1: column "id": appears twice`},
		{"w.csv", head + "0,1,0,1,1\n1,1,0,1\n", ":3: row has 4 fields, expected 5"},
		{"w.csv", head + "0,1,0,1,1\n1,1,0,-1,1\n", `:3: prompt_tokens is -1, expected >= 1`},
		{"w.csv", head + "0,1,0,1,x\n", `:2: column "output_tokens": "x" is not a whole number`},
		{"w.csv", head + "0.5,1,0,1,1\n", `:2: column "id": "0.5" is not a whole number`},
		{"w.csv", head + "0,NaN,0,1,1\n", `:2: column "arrival_s": "NaN" is not a decimal number`},
		{"w.csv", head + "0,-1,0,1,1\n", ":2: arrival_s is -1, expected a finite number >= 0"},
		{"w.csv", head + "0,1,0,0,1\n", ":2: prompt_tokens is 0, expected >= 1"},
		{"w.csv", head + "0,1,0,1,1\n1,0.5,0,1,1\n", ":3: arrival_s 0.5 is before that of the previous request (1)"},
		{"w.csv", head + "0,1,0,1,1\n0,1,0,1,1\n", ":3: id 0 is not greater than that of the previous request (0)"},
		{"w.csv", head + "0,1,-2,1,1\n", `:2: column "adapter": -2 is out of range`},
		{"w.csv", head + "0,1,1048576,1,1\n", `: column "adapter": 1048576 gives more than 1048576 adapters`},
		{"w.csv", head + "0,1,99999999999,1,1\n", `:2: column "adapter": 99999999999 is out of range`},
		{"w.csv", "id,arrival_s,adapter,prompt_tokens,output_tokens,rank\n0,1,0,1,1,8\n1,1,0,1,1,16\n",
			`:3: column "adapter": adapter 0 has rank 16 here and 8 before`},
		{"w.csv", "id,arrival_s,adapter,prompt_tokens,output_tokens,max_new_tokens\n0,1,0,1,5,4\n",
			":2: max_new_tokens is 4, expected >= output_tokens (5)"},
		{"w.jsonl", "", ": empty workload"},
		{"w.jsonl", row0 + `{"id":1,"arrival_s":1,"adapter":0,"prompt_tokens":1}`,
			`:2: column "output_tokens": is missing`},
		{"w.jsonl", `{"id":1,"arrival":1}`, `:1: unknown key "arrival", did you mean "arrival_s"?`},
		{"w.jsonl", `{"id":1,"id":1}`, `:1: column "id": appears twice`},
		{"w.jsonl", `{"id":1,"arrival_s":"1"}`, `:1: column "arrival_s": "\"1\"" is not a decimal number`},
		{"w.jsonl", strings.Replace(row0, `"prompt_tokens":1`, `"prompt_tokens":-4`, 1),
			`:1: prompt_tokens is -4, expected >= 1`},
		{"w.jsonl", strings.Replace(row0, `"adapter":0`, `"adapter":null`, 1),
			`:1: column "adapter": "null" is not a whole number`},
		{"w.jsonl", strings.Replace(row0, `"adapter":0`, `"adapter":2.5`, 1),
			`:1: column "adapter": "2.5" is not a whole number`},
		{"w.jsonl", row0 + row0[:30], ":2: JSON object ends too early"},
		{"w.jsonl", row0 + "[]\n", ":2: \"[]\" is not a JSON object"},
		{"w.jsonl", row0 + strings.Replace(row0, `"arrival_s":1`, `"arrival_s":0`, 1), ":2: arrival_s 0 is before"},
	} {
		path := testutil.File(t, c.file, c.content)
		_, err := read(path, store.ReadOptions{Files: files})
		if err == nil || !strings.HasPrefix(err.Error(), path+c.want) {
			t.Errorf("%s %q:\nerror    %v\nexpected %s%s", c.file, c.content, err, path, c.want)
		}
	}
}

func TestStatedAdapters(t *testing.T) {
	path := testutil.File(t, "w.csv", head+"0,1,2,1,1\n")
	if _, err := read(path, store.ReadOptions{Files: files, Adapters: trace.Names(2, nil)}); err == nil ||
		!strings.Contains(err.Error(), "w.csv:2: adapter is 2, expected -1 (base model) to 1") {
		t.Errorf("error %v", err)
	}
	path = testutil.File(t, "w.csv", head+"0,1,sqll,1,1\n")
	known := []trace.Adapter{{Name: "sql"}, {Name: "chat"}}
	if _, err := read(path, store.ReadOptions{Files: files, Adapters: known}); err == nil ||
		!strings.Contains(err.Error(), `unknown adapter "sqll", did you mean "sql"?`) {
		t.Errorf("error %v", err)
	}
	// They replace those of a Parquet or Arrow file.
	w := bursty(10)
	for _, ext := range []string{".parquet", ".arrow"} {
		path := filepath.Join(t.TempDir(), "w"+ext)
		if _, err := store.Write(path, w.Source(), store.WriteOptions{Files: files}); err != nil {
			t.Fatal(err)
		}
		want := trace.Names(40, []int{1})
		if got, err := read(path, store.ReadOptions{Files: files, Adapters: want}); err != nil ||
			!cmp.Equal(got.Adapters, want) {
			t.Errorf("%s: %v", ext, err)
		}
		if _, err := read(path, store.ReadOptions{Files: files, Adapters: want[:1]}); err == nil ||
			!strings.Contains(err.Error(), "adapter is ") {
			t.Errorf("%s: error %v", ext, err)
		}
	}
}

func TestUnknownFormat(t *testing.T) {
	for path, want := range map[string]string{
		"w.parket": `w.parket: unknown file format ".parket", did you mean ".parquet"?`,
		"workload": "workload: no extension to tell the format, expected .csv, .jsonl, .parquet or .arrow",
	} {
		if _, err := store.Open(t.Context(), path, store.ReadOptions{Files: files}); err == nil ||
			!strings.HasPrefix(err.Error(), want) {
			t.Errorf("Open: error %v, expected %s", err, want)
		}
		if _, err := store.Write(path, bursty(1).Source(), store.WriteOptions{Files: files}); err == nil ||
			!strings.HasPrefix(err.Error(), want) {
			t.Errorf("Write: error %v, expected %s", err, want)
		}
	}
	for _, ext := range extensions {
		if _, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "none"+ext),
			store.ReadOptions{Files: files}); !os.IsNotExist(err) {
			t.Errorf("%s: error %v, expected that the file does not exist", ext, err)
		}
	}
}

func TestReadProgress(t *testing.T) {
	w := bursty(100_000)
	for _, ext := range extensions {
		path := filepath.Join(t.TempDir(), "w"+ext)
		if _, err := store.Write(path, w.Source(), store.WriteOptions{Files: files}); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		calls, last := 0, int64(0)
		if _, err := read(path,
			store.ReadOptions{Files: files,
				Progress: func(n int64) error { calls++; last = n; return nil }}); err != nil {
			t.Fatal(err)
		}
		// Parquet and Arrow readers touch their footers more than once.
		if calls < 3 || math.Abs(float64(last)/float64(info.Size())-1) > 0.05 {
			t.Errorf("%s: %d calls, the last told %d of %d bytes", ext, calls, last, info.Size())
		}
	}
}
