package steps

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"lorasim/internal/shareddata"
	"lorasim/internal/tick"
)

// What a running sglang 0.5.23 made of requests that were all there when it
// began.
func TestSGLangBatches(t *testing.T) {
	r, err := SGLang(context.Background(), shareddata.Path(t, "sglang_batches"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Cases {
		if !c.Exact {
			t.Errorf("%s: %s", c.Name, c.result())
		}
	}
	if len(r.Cases) < 24 {
		t.Errorf("%d cases, expected 24", len(r.Cases))
	}
}

// Three more, from wider ranges of flags: with retractions, with mixed chunks,
// and with neither.
func TestSGLangRecorded(t *testing.T) {
	r, err := SGLang(context.Background(), filepath.Join("testdata", "sglang"))
	if err != nil {
		t.Fatal(err)
	}
	if want := (Summary{Cases: 3, Exact: 3}); r.Summary != want {
		t.Errorf("%+v, expected %+v: %+v", r.Summary, want, r.Cases)
	}
}

// smallCase is worked out by hand. Two slots, chunks of 50 tokens: adapter 0
// and 40 tokens, then 10 of adapter 1's 30; the third adapter finds no slot. The
// rest of adapter 1's prompt goes with the request that comes last, which has
// adapter 0. One step each later the first and the last are done.
const smallCase = `{
"flags": {"--max-loras-per-batch": "2", "--chunked-prefill-size": "50", "--disable-radix-cache": null},
"requests": [{"id": 0, "adapter": 0, "prompt": 40, "output": 2}, {"id": 1, "adapter": 1, "prompt": 30, "output": 3},
	{"id": 2, "adapter": 2, "prompt": 5, "output": 1}, {"id": 3, "adapter": 0, "prompt": 7, "output": 2}],
"batches": [{"prefill": [2, 50, 0, 0, 2]}, {"prefill": [2, 27, 0, 1, 1]}, {"decode": [3, 31, 1]},
	{"prefill": [1, 5, 0, 1, 0]}, {"decode": [1, 0, 0]}],
"first": [[0], [1, 3], [2]]}`

func TestSGLangCase(t *testing.T) {
	for _, c := range []struct {
		name, from, to string
		want           string // of the first difference
	}{
		{"as it is", "", "", "exact"},
		{"another prefill", "[2, 27, 0, 1, 1]", "[2, 28, 0, 1, 1]", `step 1: expected {"prefill":[2,28,0,1,1]}, got {"prefill":[2,27,0,1,1]}`},
		{"another decode", "[3, 31, 1]", "[3, 31, 0]", `step 2: expected {"decode":[3,31,0]}, got {"decode":[3,31,1]}`},
		{"one fewer", `, {"decode": [1, 0, 0]}],`, `],`, `step 4: expected {}, got {"decode":[1,0,0]}`},
		{"one more", `{"decode": [1, 0, 0]}],`, `{"decode": [1, 0, 0]}, {"decode": [1, 0, 0]}],`, `step 5: expected {"decode":[1,0,0]}, got {}`},
		{"a retraction", `{"decode": [3, 31, 1]}`, `{"log": "KV cache pool is full. #retracted_reqs: 2, #new"}`, `step 2: expected {"retracted":2}, got {"decode":[3,31,1]}`},
		{"torn apart", "[1, 3]", "[3], [1]", "exact"},
		{"together", "[0], [1, 3]", "[0, 1, 3]", "exact"},
		{"another order", "[0], [1, 3], [2]", "[0], [2], [1, 3]", `step 5: expected "first token of 2 before 1", got "that of 1 before 2"`},
		{"radix", `, "--disable-radix-cache": null`, "", "exact"},
	} {
		got, err := runSGLang("", []byte(strings.Replace(smallCase, c.from, c.to, 1)))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if r := got.result(); r != c.want {
			t.Errorf("%s: %s, expected %s", c.name, r, c.want)
		}
	}
}

func TestSGLangFlags(t *testing.T) {
	c, err := parseSGLangCase([]byte(`{"flags": {"--max-loras-per-batch": "5", "--max-running-requests": "7", "--max-prefill-tokens": "90",
		"--context-length": "300", "--page-size": "4", "--chunked-prefill-size": "-1", "--max-total-tokens": "400",
		"--schedule-conservativeness": "0.5"}, "ignore_eos": false}`))
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.profile()
	if err != nil {
		t.Fatal(err)
	}
	e := p.Engine
	got := []any{e.MaxLorasPerBatch, e.MaxRunningRequests, e.MaxPrefillTokens, e.ContextLength, e.PageSize, e.ChunkedPrefillSize, p.Memory.KVTokens,
		e.NewTokenRatio, e.IgnoreEOS, e.MixedChunk, e.DisableRadixCache}
	if want := []any{5, 7, 90, 300, 4, 0, int64(400), 0.35, false, false, false}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, expected %v", got, want)
	}
}

func TestSGLangRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"{": "unexpected end",
		`{"flags": {"--speculative-algorithm": "EAGLE"}}`:                        "flag --speculative-algorithm is not known",
		`{"flags": {"--page-size": "x"}}`:                                        "flag --page-size x: expected a number",
		`{"flags": {"--page-size": "0"}}`:                                        "page_size is 0",
		`{"requests": [{"prompt": 0, "output": 1}]}`:                             "request 0: expected",
		`{"requests": [{"prompt": 1, "output": 0}]}`:                             "request 0: expected",
		`{"requests": [{"adapter": -2, "prompt": 1, "output": 1}]}`:              "request 0: expected",
		`{"requests": [{"prompt": 1, "output": 1}, {"prompt": 1, "output": 1}]}`: "request 0 is there twice",
		`{"batches": [{"prefill": [1]}]}`:                                        "batch 0: expected 5 numbers",
		`{"batches": [{"decode": [1, 2, 3], "prefill": []}]}`:                    "batch 0: expected 5 numbers",
		`{"batches": [{}]}`:                                                      "batch 0: expected 5 numbers",
		`{"batches": [{"log": "#retracted_reqs: many, "}]}`:                      "expected the number of retracted",
		`{"flags": {"--max-total-tokens": "20", "--disable-radix-cache": null}, "requests": [{"prompt": 30, "output": 1}]}`: "request 0: needs more than the worker's 20 KV tokens",
	} {
		if _, err := runSGLang("", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, expected %s", text, err, want)
		}
	}
	if _, err := SGLang(context.Background(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "no NAME.json there") {
		t.Errorf("an empty folder: %v", err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "x.json"), []byte("[]"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := SGLang(context.Background(), dir); err == nil || !strings.Contains(err.Error(), "x.json: ") {
		t.Errorf("a broken case: %v, expected its file's name", err)
	}
}

func TestCompareFirst(t *testing.T) {
	c := sglangCase{First: [][]int64{{1, 2}, {3}}}
	for _, first := range []map[int64]tick.Ticks{{1: 5, 2: 5, 3: 5}, {1: 5, 2: 6, 3: 6}} {
		if d := c.compareFirst(first); d != nil {
			t.Errorf("%v: %+v", first, d)
		}
	}
	if c.compareFirst(map[int64]tick.Ticks{1: 5, 2: 7, 3: 6}) == nil {
		t.Error("3 came before 2, and nobody noticed")
	}
}

func FuzzSGLangCase(f *testing.F) {
	f.Add([]byte(smallCase))
	f.Add([]byte(`{"flags": {"--page-size": "3"}, "batches": [{"log": "#retracted_reqs: 1, x"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parseSGLangCase(data)
		if err != nil {
			return
		}
		again, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseSGLangCase(again); err != nil && !strings.Contains(err.Error(), "expected 5 numbers") { // log lines are not kept
			t.Errorf("%v after a round trip of %s", err, data)
		}
		_, _ = c.profile()
	})
}
