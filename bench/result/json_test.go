package result

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"lorasim/sim/record"
)

func pointer[T any](v T) *T { return &v }

// parseJSONL reads the results of a file one by one.
func parseJSONL(r io.Reader, name string, yield func(line int, r *Result) error) error {
	return Documents(r, name, func(line int, text []byte) error {
		res, err := ParseJSON(text)
		if err != nil {
			return Misplaced(name, line, text, err)
		}
		return yield(line, res)
	})
}

// The fields and their order are those the reference writes.
func TestJSONLLine(t *testing.T) {
	r := everything()
	r.Source, r.Extra = Log, nil
	r.RequestRate, r.MaxConcurrency = Unlimited(), 32
	r.RandomInputLen, r.RandomOutputLen, r.RandomRangeRatio = pointer(1024), pointer(128), pointer(0.0)
	var b bytes.Buffer
	if err := r.WriteJSONL(&b, false); err != nil {
		t.Fatal(err)
	}
	want := `{"backend": "sglang", "dataset_name": "random", "request_rate": "inf", "max_concurrency": 32, ` +
		`"random_input_len": 1024, "random_output_len": 128, "random_range_ratio": 0, ` +
		`"tag": null, "sharegpt_output_len": null, "server_info": null, "duration": 100.0, ` +
		`"completed": 101, "total_input_tokens": 102, "total_input_text_tokens": 103, "total_input_vision_tokens": 104, "total_output_tokens": 105, "total_output_tokens_retokenized": 106, ` +
		`"request_throughput": 107.0, "input_throughput": 108.0, "output_throughput": 109.0, "total_throughput": 110.0, ` +
		`"mean_e2e_latency_ms": 111.0, "median_e2e_latency_ms": 112.0, "std_e2e_latency_ms": 113.0, ` +
		`"p90_e2e_latency_ms": 114.0, "p95_e2e_latency_ms": 115.0, "p99_e2e_latency_ms": 116.0, ` +
		`"mean_ttft_ms": 117.0, "median_ttft_ms": 118.0, "std_ttft_ms": 119.0, "p90_ttft_ms": 120.0, "p95_ttft_ms": 121.0, "p99_ttft_ms": 122.0, ` +
		`"mean_tpot_ms": 123.0, "median_tpot_ms": 124.0, "std_tpot_ms": 125.0, "p90_tpot_ms": 126.0, "p95_tpot_ms": 127.0, "p99_tpot_ms": 128.0, ` +
		`"mean_itl_ms": 129.0, "median_itl_ms": 130.0, "std_itl_ms": 131.0, "p90_itl_ms": 132.0, "p95_itl_ms": 133.0, "p99_itl_ms": 134.0, "max_itl_ms": 135.0, ` +
		`"concurrency": 136.0, "accept_length": 137.0, "max_output_tokens_per_s": 138.0, "max_concurrent_requests": 139}` + "\n"
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestOutputDetails(t *testing.T) {
	c := NewCollector(Options{KeepRecords: true})
	c.Done(&record.Request{
		ID: 1, Sent: 1, FirstToken: 1.5, Finish: 2, Prompt: 7, Output: 3, Gaps: []float64{0.25, 0.25},
	})
	c.Done(&record.Request{
		ID: 0, Sent: 0, FirstToken: math.NaN(), Finish: 1, Prompt: 5, Status: record.Failed, Error: `bad "thing"`,
	})
	r := c.Result(Meta{RequestRate: 2}, nil)
	r.Texts = map[int64]string{1: "a \"word\""}
	path := filepath.Join(t.TempDir(), "out.jsonl")
	for range 2 {
		if err := r.AppendJSONL(path, true); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	tail := `"input_lens": [5,7], "output_lens": [0,3], "ttfts": [0,0.5], "itls": [[],[0.25,0.25]], "generated_texts": ["","a \"word\""], "errors": ["bad \"thing\"",""]}` + "\n"
	if s := string(text); strings.Count(s, "\n") != 2 || strings.Count(s, tail) != 2 {
		t.Errorf("file:\n%s\nwant two lines that end in\n%s", s, tail)
	}
	want := &Details{
		InputLens: []int64{5, 7}, OutputLens: []int64{0, 3}, TTFTs: []float64{0, 0.5},
		ITLs: [][]float64{{}, {0.25, 0.25}}, Errors: []string{`bad "thing"`, ""},
	}
	n := 0
	err = parseJSONL(bytes.NewReader(text), path, func(line int, got *Result) error {
		n++
		if d := cmp.Diff(want, got.Details); d != "" || line != n || got.Metrics.values[Completed] != 1 {
			t.Errorf("result %d on line %d (-want +got):\n%s", n, line, d)
		}
		return nil
	})
	if err != nil || n != 2 {
		t.Errorf("%d results, %v", n, err)
	}

	r.Records = nil
	if err := r.AppendJSONL(path, true); err == nil || !strings.Contains(err.Error(), "need the records") {
		t.Errorf("without records: %v", err)
	}
	if after, _ := os.ReadFile(path); !bytes.Equal(text, after) {
		t.Error("a refused line changed the file")
	}
}

// What WriteJSON writes, ParseJSON gives back, and it is one valid JSON value.
func TestJSONRoundTrip(t *testing.T) {
	number := rapid.Float64()
	rapid.Check(t, func(rt *rapid.T) {
		r := &Result{Meta: Meta{
			Source: Live, Backend: rapid.String().Draw(rt, "backend"), DatasetName: rapid.String().Draw(rt, "dataset"),
			RequestRate:    rapid.SampledFrom([]Rate{0, 0.1, 2, 1e-7, 1e21, TraceRate, Unlimited()}).Draw(rt, "rate"),
			MaxConcurrency: rapid.IntRange(0, 100).Draw(rt, "concurrency"),
			Streamed: rapid.SampledFrom([]record.Streaming{"", record.Streamed, record.NotStreamed}).Draw(rt,
				"streamed"),
			Policy: rapid.String().Draw(rt, "policy"), Scenario: randomScenario(rt),
			Seed:             rapid.Ptr(rapid.Int64(), true).Draw(rt, "seed"),
			RandomInputLen:   rapid.Ptr(rapid.Int(), true).Draw(rt, "input"),
			RandomRangeRatio: rapid.Ptr(number, true).Draw(rt, "ratio"),
			Config: map[string]any{
				"text": rapid.String().Draw(rt, "text"), "none": nil, "yes": true, "number": number.Draw(rt, "number"),
				"list": []any{1.0, "a", map[string]any{"b": nil}},
			},
		}, Approximate: []string{"itl"}}
		for m := range NumMetrics {
			if rapid.Bool().Draw(rt, "has") {
				v := number.Draw(rt, m.String())
				if m.Metric().Int {
					v = float64(rapid.Int64Range(0, 1<<53).Draw(rt, m.String()))
				}
				r.Metrics.Set(m, v)
			}
		}
		if rapid.Bool().Draw(rt, "extra") {
			r.Extra = smallRun(Options{Workers: 2, SLO: SLO{E2E: 1}}).Result(Meta{},
				&RunCounters{SolverTime: 0.5}).Extra
		} else if rapid.Bool().Draw(rt, "ended") {
			r.Ended = &Endings{
				Requests: 7, Rejected: 2, Reasons: []Reason{{"rejected", "full", 2}}, CompletedSet: 1 << 51,
			}
		}
		var b bytes.Buffer
		if err := r.WriteJSON(&b); err != nil {
			rt.Fatal(err)
		}
		var any map[string]any
		if err := json.Unmarshal(b.Bytes(), &any); err != nil || any["schema"] != schema ||
			bytes.Count(b.Bytes(), []byte("\n")) != 1 {
			rt.Fatalf("%v in %s", err, b.Bytes())
		}
		if v, ok := r.Metrics.Get(MeanE2E); ok && any["mean_e2e_latency_ms"] != v {
			rt.Fatalf("mean_e2e_latency_ms is %v at the top level, want %v", any["mean_e2e_latency_ms"], v)
		}
		var indented bytes.Buffer
		if err := json.Indent(&indented, b.Bytes(), "", "  "); err != nil {
			rt.Fatal(err)
		}
		for _, text := range []string{b.String(), indented.String(), "\ufeff\n" + strings.TrimSpace(b.String())} {
			var got *Result
			err := parseJSONL(strings.NewReader(text), "r", func(_ int, r *Result) error { got = r; return nil })
			if err != nil {
				rt.Fatal(err)
			}
			r.Defined = r.Definitions()
			if d := cmp.Diff(r, got, cmp.AllowUnexported(Metrics{}), cmpopts.EquateEmpty()); d != "" {
				rt.Fatalf("(-written +read):\n%s", d)
			}
		}
	})
}

// Config values that JSON cannot hold become strings.
func TestConfigInfinity(t *testing.T) {
	r := &Result{
		Meta: Meta{
			Config: map[string]any{"rate": math.Inf(1), "list": []any{math.NaN(), map[string]any{"x": math.Inf(-1)}}},
		},
	}
	var b bytes.Buffer
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	r.Config["f"] = func() {}
	if err := r.WriteJSON(io.Discard); err == nil || !strings.Contains(err.Error(), "field config: ") {
		t.Errorf("a setting that is no value: %v", err)
	}
	if want := `"config": {"list":["nan",{"x":"-inf"}],"rate":"inf"}}`; !strings.HasSuffix(
		strings.TrimSpace(b.String()), want) {
		t.Errorf("%s does not end in %s", b.String(), want)
	}
}

// Lines as the reference writes them: Python's json.dumps.
func TestParseReferenceLine(t *testing.T) {
	line := `{"tag": null, "backend": "sglang", "dataset_name": "random", "request_rate": Infinity, "max_concurrency": null, ` +
		`"sharegpt_output_len": null, "random_input_len": 64, "random_output_len": 16, "random_range_ratio": 0.0, ` +
		`"server_info": {"model": "say \"Infinity\"", "x": [NaN, -Infinity]}, "duration": 0.5943, "completed": 200, "mean_ttft_ms": NaN, ` +
		`"max_itl_ms": -Infinity, "accept_length": null, "max_concurrent_requests": 200, "generated_texts": ["NaN"]}`
	text := line + "\n\n" + line
	var got []*Result
	var lines []int
	err := parseJSONL(strings.NewReader(text), "ref.jsonl", func(line int, r *Result) error {
		got, lines = append(got, r), append(lines, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := &Result{Meta: Meta{
		Source: Log, Backend: "sglang", DatasetName: "random", RequestRate: Unlimited(),
		RandomInputLen: pointer(64), RandomOutputLen: pointer(16), RandomRangeRatio: pointer(0.0),
		Config: map[string]any{
			"tag": nil, "sharegpt_output_len": nil,
			"server_info": map[string]any{"model": `say "Infinity"`, "x": []any{"", "-inf"}},
		},
	}}
	want.Metrics.Set(Duration, 0.5943)
	want.Metrics.Set(Completed, 200)
	want.Metrics.Set(MaxConcurrentRequests, 200)
	if d := cmp.Diff([]*Result{want, want}, got, cmp.AllowUnexported(Metrics{})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if d := cmp.Diff([]int{1, 3}, lines); d != "" {
		t.Errorf("lines (-want +got):\n%s", d)
	}
}

// Objects may stand one after another on a line, and in arrays over any number of lines.
func TestDocuments(t *testing.T) {
	for text, want := range map[string]string{
		`{"a": "}{["}{"b": {}}` + "\n{}":                   `1:{"a": "}{["} 1:{"b": {}} 2:{}`,
		"[{\"a\":\n1},{}]\n\n [\n\n[{\"b\":[[]]}\n,]]\n{}": "1:{\"a\":\n1} 2:{} 6:{\"b\":[[]]} 8:{}",
		"[]":     "",
		"[\n]\n": "",
	} {
		var got []string
		err := Documents(strings.NewReader(text), "f", func(line int, text []byte) error {
			got = append(got, fmt.Sprintf("%d:%s", line, text))
			return nil
		})
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%q: %v, %q", text, err, got)
		}
	}
}

// What a client writes in a field of the description does not matter to the figures; NaN is not a number, 0 is one.
func TestForeignFields(t *testing.T) {
	text := `{"request_rate": 0, "backend": 1, "max_concurrency": -1, "seed": "x", "mean_ttft_ms": "12.5",
"p99_ttft_ms": NaN, "mean_itl_ms": "nan", "total_token_throughput": Infinity, "mean_e2el_ms": 0, "completed": 2.0,
"ttfts": [0.5, NaN, null, Infinity, "0.25"], "itls": [[0.5], null, [NaN, 1], []], "input_lens": [1, 2.0, null],
"errors": ["", null, false, {"code": 500}, "x"]}`
	var got *Result
	keep := func(_ int, r *Result) error { got = r; return nil }
	if err := parseJSONL(strings.NewReader(text), "f", keep); err != nil {
		t.Fatal(err)
	}
	want := &Result{Meta: Meta{Source: Log, Config: map[string]any{"request_rate": 0.0, "backend": 1.0,
		"max_concurrency": -1.0, "seed": "x"}}}
	want.Metrics.Set(MeanTTFT, 12.5)
	want.Metrics.Set(MeanE2E, 0)
	want.Metrics.Set(Completed, 2)
	nan := math.NaN()
	want.Details = &Details{TTFTs: []float64{0.5, nan, nan, nan, 0.25}, ITLs: [][]float64{{0.5}, nil, {nan, 1}, {}},
		InputLens: []int64{1, 2, 0}, Errors: []string{"", "", "", `{"code": 500}`, "x"}}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(Metrics{}), cmpopts.EquateNaNs()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		`{"completed": 1}` + "\nhello\n":   `f:2: expected a JSON object that begins with {, found "hello`,
		"{\n\"completed\": 1,\n\"a\" 2\n}": "f:3: invalid character '2' after object key",
		"\n{\"a\": {\n":                    "f:2: the JSON object that begins here has no end",
		`{"completed": 1.5}`:               "f:1: field completed: is 1.5, expected a whole number",
		`{"duration": "long"}`:             `f:1: field duration: is "long", expected a number`,
		`{"schema": "lorasim.result/9"}`:   `f:1: field schema: is "lorasim.result/9", expected "lorasim.result/1"`,
		`{"a": 1} x`:                       `f:1: expected a JSON object that begins with {, found "x"`,
		"[{\"a\": 1},\n[{}":                "f:1: the JSON array that begins here has no end",
		`[{}, 1]`:                          `f:1: expected a JSON object that begins with {, found "1]"`,
		"{}]":                              `f:1: expected a JSON object that begins with {, found "]"`,

		// lorasim's own
		`{"schema": "lorasim.result/1", "request_rate": 0}`:     `f:1: field request_rate: request rate "0": expected`,
		`{"schema": "lorasim.result/1", "backend": 1}`:          "f:1: field backend: json: cannot unmarshal number",
		`{"schema": "lorasim.result/1", "max_concurrency": -1}`: "f:1: field max_concurrency: is -1, expected",
	} {
		err := parseJSONL(strings.NewReader(text), "f", func(int, *Result) error { return nil })
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q:\n got %v\nwant %s", text, err, want)
		}
	}
	stop := fmt.Errorf("stop")
	if err := parseJSONL(strings.NewReader("{}"), "f", func(int, *Result) error { return stop }); err != stop {
		t.Errorf("yield's error came back as %v", err)
	}
}

// Whatever is read can be written and read again the same.
func FuzzParseJSONL(f *testing.F) {
	f.Add(`{"backend": "sglang", "request_rate": Infinity, "completed": 200, "duration": 1e3, "x": [NaN]}`)
	f.Add("{\n \"request_rate\": \"trace\", \"seed\": 1, \"config\": {\"a\": null}\n}\n{}")
	f.Add(`{"itls": [[0.1], []], "ttfts": [1], "input_lens": [1], "output_lens": [2], "errors": ["\u0000"], "extra": {"requests": 4}}`)
	f.Fuzz(func(t *testing.T, text string) {
		_ = parseJSONL(strings.NewReader(text), "f", func(_ int, r *Result) error {
			var b bytes.Buffer
			if err := r.WriteJSON(&b); err != nil {
				t.Fatalf("%q: cannot write what was read: %v", text, err)
			}
			var again *Result
			if err := parseJSONL(&b, "again", func(_ int, r *Result) error { again = r; return nil }); err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			r.Details = nil
			if d := cmp.Diff(r, again, cmp.AllowUnexported(Metrics{}), cmpopts.EquateEmpty()); d != "" {
				t.Fatalf("%q (-written +read):\n%s", text, d)
			}
			return nil
		})
	})
}

func randomScenario(rt *rapid.T) Scenario {
	s := Scenario{Summary: rapid.String().Draw(rt, "scenario")}
	if rapid.Bool().Draw(rt, "object") {
		s.Policy, s.PolicyOptions = "plan-and-route", map[string]string{"interval": rapid.String().Draw(rt, "interval")}
		s.Workers, s.Adapters = rapid.IntRange(0, 9).Draw(rt, "workers"), rapid.IntRange(0, 9).Draw(rt, "adapters")
		s.Profiles = []RanProfile{{Name: "p", Kind: "computed", Workers: 2, Engine: "vllm", AdapterSlots: 4}}
		s.Ranks, s.Seed = []RankCount{{8, 3}}, rapid.Ptr(rapid.Uint64(), true).Draw(rt, "scenario seed")
		s.Workload = &RanWorkload{
			Source: "generated", Requests: 5,
			Rate: rapid.SampledFrom([]Rate{0, 2.5, TraceRate, Unlimited()}).Draw(rt, "scenario rate"),
		}
		s.Settings = []SettingUsed{{"workload.drift", "30"}}
	}
	return s
}
