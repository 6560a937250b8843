package llm_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lorasim/trace/llm"
)

// fuzzFormat reads arbitrary files of one format: whatever they hold, requests
// are valid and in order, and errors name the file.
func fuzzFormat(f *testing.F, format llm.Format) {
	path := filepath.Join(f.TempDir(), "trace")
	f.Fuzz(func(t *testing.T, content []byte, skip, sort bool) {
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
		r, err := llm.Open(t.Context(), format, path, llm.Options{SkipBadRows: skip, Sort: sort})
		if err != nil {
			named(t, err, path)
			return
		}
		defer r.Close()
		last := 0.0
		for n := int64(0); ; n++ {
			q, err := r.Next()
			if errors.Is(err, io.EOF) && n > 0 {
				return
			}
			if err != nil {
				named(t, err, path)
				return
			}
			if err := q.Check(0); err != nil || q.Arrival < last || q.ID != n {
				t.Fatalf("request %d after %v s: %+v, %v", n, last, q, err)
			}
			last = q.Arrival
		}
	})
}

func named(t *testing.T, err error, path string) {
	t.Helper()
	if !strings.HasPrefix(err.Error(), path+":") {
		t.Errorf("error does not name the file: %v", err)
	}
}

func FuzzAzure(f *testing.F) {
	f.Add([]byte(azure2023), false, false)
	f.Add([]byte(
		"TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2024-10-15T23:59:59.5Z,2,900,120\nx\n2024-10-15T23:59:58Z,2,9,0\n"), true, true)
	fuzzFormat(f, llm.AzureLLM)
}

func FuzzBurst(f *testing.F) {
	f.Add([]byte(burst1), false, false)
	f.Add([]byte("Request tokens,Response tokens,\"Timestamp\"\n1,1,5.25\n1,0,4\n"), true, true)
	fuzzFormat(f, llm.BurstGPT)
}

func FuzzMooncake(f *testing.F) {
	f.Add([]byte(mooncake3), false, false)
	f.Add([]byte(mooncake3+"{}\n"), true, true)
	fuzzFormat(f, llm.Mooncake)
}

func FuzzQwen(f *testing.F) {
	sample, err := os.ReadFile("testdata/qwen_sample.jsonl")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sample, false, false)
	f.Add(append(sample, `{"timestamp": 0, "input_length": 9, "output_length": 1, "hash_ids": [-7]}`...), true, true)
	fuzzFormat(f, llm.QwenBailian)
}
