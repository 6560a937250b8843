package decisions

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"lorasim/internal/shareddata"
	"lorasim/sim/tick"
)

// What a running sglang 0.5.23 made of requests that were all there when it
// began.
func TestSGLangBatches(t *testing.T) {
	r, err := SGLangBatches(context.Background(), shareddata.Path(t, "sglang_batches"))
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

// Eight more: from wider ranges of flags, with retractions, with mixed chunks, and
// with neither; with priorities: large values first with preemption, small values
// first with a threshold, a limit on the queue, requests that come back after a
// retraction and have others make way, and a radix cache (recorded with
// SGLANG_ENABLE_WAITING_PREFIX_REFRESH=0, which the simulator does not know).
func TestSGLangRecorded(t *testing.T) {
	r, err := SGLangBatches(context.Background(), filepath.Join("testdata", "sglang"))
	if err != nil {
		t.Fatal(err)
	}
	if want := (Summary{Cases: 8, Exact: 8}); r.Summary != want {
		t.Errorf("%+v, expected %+v: %+v", r.Summary, want, r.Cases)
	}
}

// With the overlap schedule: two tight radix caches with retractions, priorities with retractions, mixed chunks with
// and without a radix cache, one slot and four seats; stop tokens end requests in most of them.
func TestSGLangOverlapRecorded(t *testing.T) {
	r, err := SGLangBatches(context.Background(), filepath.Join("testdata", "sglang-overlap"))
	if err != nil {
		t.Fatal(err)
	}
	if want := (Summary{Cases: 7, Exact: 7}); r.Summary != want {
		t.Errorf("%+v, expected %+v: %+v", r.Summary, want, r.Cases)
	}
	dir := t.TempDir()
	without := strings.Replace(overlapCase, `"overlap_schedule": true, `, "", 1)
	if err := os.WriteFile(filepath.Join(dir, "x.json"), []byte(without), 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err = SGLangOverlapBatches(context.Background(), dir); err != nil || r.Summary.Exact != 1 {
		t.Errorf("a case that does not say so: %+v, %v", r, err)
	}
}

// overlapCase is worked out by hand, too, with two seats. When step 1 is formed, the token of 0's prompt is in flight:
// 0 is in no decode step, but keeps its seat, so that 2 waits for step 2. Tokens are counted when the next step has its
// own. 1 is ended by a stop token of step 4, which is not known when step 5 is formed.
const overlapCase = `{
"overlap_schedule": true, "ignore_eos": false,
"flags": {"--max-running-requests": "2", "--disable-radix-cache": null},
"requests": [{"id": 0, "adapter": 0, "prompt": 10, "output": 1},
	{"id": 1, "adapter": 1, "prompt": 5, "output": 4, "max_tokens": 9}, {"id": 2, "adapter": 0, "prompt": 7,
		"output": 2}],
"batches": [{"prefill": [2, 15, 0, 0, 1], "ids": [0, 1]}, {"decode": [1, 13, 0], "ids": [1]},
	{"prefill": [1, 7, 0, 1, 0], "ids": [2]}, {"decode": [2, 8, 0], "ids": [1, 2]}, {"decode": [1, 0, 0], "ids": [1]},
	{"decode": [1, 0, 0], "ids": [1]}],
"first": [[0, 1], [2]]}`

func TestSGLangOverlapCase(t *testing.T) {
	checkSGLangCase(t, "overlap", overlapCase, "exact")
	without := strings.Replace(overlapCase, `"overlap_schedule": true, `, "", 1)
	const want = `step 1: expected {"decode":[1,13,0],"ids":[1]}, got {"prefill":[1,7,0,1,0],"ids":[2]}`
	checkSGLangCase(t, "without", without, want)
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
		{"another prefill", "[2, 27, 0, 1, 1]", "[2, 28, 0, 1, 1]",
			`step 1: expected {"prefill":[2,28,0,1,1]}, got {"prefill":[2,27,0,1,1]}`},
		{"another decode", "[3, 31, 1]", "[3, 31, 0]", `step 2: expected {"decode":[3,31,0]}, got {"decode":[3,31,1]}`},
		{"one fewer", `, {"decode": [1, 0, 0]}],`, `],`, `step 4: expected {}, got {"decode":[1,0,0]}`},
		{"one more", `{"decode": [1, 0, 0]}],`, `{"decode": [1, 0, 0]}, {"decode": [1, 0, 0]}],`,
			`step 5: expected {"decode":[1,0,0]}, got {}`},
		{"a retraction", `{"decode": [3, 31, 1]}`, `{"log": "KV cache pool is full. #retracted_reqs: 2, #new"}`,
			`step 2: expected {"retracted":2}, got {"decode":[3,31,1]}`},
		{"torn apart", "[1, 3]", "[3], [1]", "exact"},
		{"together", "[0], [1, 3]", "[0, 1, 3]", "exact"},
		{"another order", "[0], [1, 3], [2]", "[0], [2], [1, 3]",
			`step 5: expected "first token of 2 before 1", got "that of 1 before 2"`},
		{"radix", `, "--disable-radix-cache": null`, "", "exact"},
		{"its requests", `[2, 50, 0, 0, 2]`, `[2, 50, 0, 0, 2], "ids": [0, 1]`, "exact"},
		{"other requests", `[2, 50, 0, 0, 2]`, `[2, 50, 0, 0, 2], "ids": [0, 2]`,
			`step 0: expected {"prefill":[2,50,0,0,2],"ids":[0,2]}, got {"prefill":[2,50,0,0,2],"ids":[0,1]}`},
	} {
		checkSGLangCase(t, c.name, strings.Replace(smallCase, c.from, c.to, 1), c.want)
	}
}

func checkSGLangCase(t *testing.T, name, data, want string) {
	t.Helper()
	got, err := runSGLang(t.Context(), "", []byte(data))
	if err != nil {
		t.Errorf("%s: %v", name, err)
	} else if r := got.result(); r != want {
		t.Errorf("%s: %s, expected %s", name, r, want)
	}
}

// priorityCase is worked out by hand, too. One seat: request 1, by 20 better,
// takes that of request 0 before the third batch. One may wait: 2 finds request 0
// there and is refused, and so is 0 when 3 comes. At last the server is idle.
const priorityCase = `{
"flags": {"--enable-priority-scheduling": null, "--max-running-requests": "1", "--max-queued-requests": "1",
	"--disable-radix-cache": null},
"priorities": [0, 20],
"requests": [{"id": 0, "adapter": 0, "prompt": 10, "output": 5}, {"id": 1, "adapter": 1, "prompt": 5, "output": 4,
	"step": 2},
	{"id": 2, "adapter": 0, "prompt": 5, "output": 2, "step": 3}, {"id": 3, "adapter": 1, "prompt": 6, "output": 2,
		"step": 4},
	{"id": 4, "adapter": 0, "prompt": 7, "output": 1, "step": 100}],
"batches": [{"prefill": [1, 10, 0, 0, 0], "ids": [0]}, {"decode": [1, 11, 0]}, {"prefill": [1, 5, 0, 0, 1],
	"ids": [1]}, {"decode": [1, 6, 1]},
	{"decode": [1, 7, 1]}, {"decode": [1, 0, 1]}, {"prefill": [1, 6, 0, 0, 0], "ids": [3]}, {"decode": [1, 0, 0]},
		{"prefill": [1, 7, 0, 0, 0], "ids": [4]}],
"refused": [2, 0]}`

func TestSGLangPriorities(t *testing.T) {
	const stays = `step 2: expected {"prefill":[1,5,0,0,1],"ids":[1]}, got {"decode":[1,12,1],"ids":[0]}`
	for _, c := range []struct{ name, from, to, want string }{
		{"as it is", "", "", "exact"},
		{"no better", "[0, 20]", "[0, 10]", stays},
		{"the other way", `{"--enable`, `{"--schedule-low-priority-values-first": null, "--enable`, stays},
		{"no preemption", `{"--enable`, `{"--disable-priority-preemption": null, "--enable`, stays},
		{"a threshold", `{"--enable`, `{"--priority-scheduling-preemption-threshold": "20", "--enable`, stays},
		{"fewer refused", "[2, 0]", "[2]", `step 9: expected {"refused":[2]}, got {"refused":[0,2]}`},
	} {
		checkSGLangCase(t, c.name, strings.Replace(priorityCase, c.from, c.to, 1), c.want)
	}
}

func TestSGLangFlags(t *testing.T) {
	c, err := parseSGLangCase(
		[]byte(`{"flags": {"--max-loras-per-batch": "5", "--max-running-requests": "7", "--max-prefill-tokens": "90",
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
	got := []any{e.MaxLorasPerBatch, e.MaxRunningRequests, e.MaxPrefillTokens, e.ContextLength, e.PageSize,
		e.ChunkedPrefillSize, p.Memory.KVTokens,
		e.NewTokenRatio, e.IgnoreEOS, e.MixedChunk, e.DisableRadixCache}
	if want := []any{5, 7, 90, 300, 4, 0, int64(400), 0.35, false, false, false}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, expected %v", got, want)
	}
}

func TestSGLangRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"{": "unexpected end",
		`{"flags": {"--speculative-algorithm": "EAGLE"}}`:           "flag --speculative-algorithm is not known",
		`{"flags": {"--page-size": "x"}}`:                           "flag --page-size x: expected a number",
		`{"flags": {"--page-size": "0"}}`:                           "page_size is 0",
		`{"requests": [{"prompt": 0, "output": 1}]}`:                "request 0: expected",
		`{"requests": [{"prompt": 1, "output": 0}]}`:                "request 0: expected",
		`{"requests": [{"adapter": -2, "prompt": 1, "output": 1}]}`: "request 0: expected",

		`{"requests": [{"prompt": 1, "output": 1}, {"prompt": 1, "output": 1}]}`: "request 0 is there twice",

		`{"batches": [{"prefill": [1]}]}`:                     "batch 0: expected 5 numbers",
		`{"batches": [{"decode": [1, 2, 3], "prefill": []}]}`: "batch 0: expected 5 numbers",
		`{"batches": [{}]}`:                                   "batch 0: expected 5 numbers",
		`{"batches": [{"log": "#retracted_reqs: many, "}]}`:   "expected the number of retracted",
		`{"flags": {"--max-total-tokens": "20", "--disable-radix-cache": null}, "requests": [{"prompt": 30, "output": 1}]}`: "request 0: needs more than the worker's 20 KV tokens",
	} {
		if _, err := runSGLang(t.Context(), "", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, expected %s", text, err, want)
		}
	}
	if _, err := SGLangBatches(context.Background(), t.TempDir()); err == nil ||
		!strings.Contains(err.Error(), "no NAME.json there") {
		t.Errorf("an empty folder: %v", err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "x.json"), []byte("[]"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := SGLangBatches(context.Background(), dir); err == nil || !strings.Contains(err.Error(), "x.json: ") {
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
		// log lines are not kept
		if _, err := parseSGLangCase(again); err != nil && !strings.Contains(err.Error(), "expected 5 numbers") {
			t.Errorf("%v after a round trip of %s", err, data)
		}
		_, _ = c.profile()
	})
}
