package llm_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"lorasim/internal/testutil"
	"lorasim/trace"
	"lorasim/trace/llm"
)

// read reads a whole trace.
func read(format llm.Format, path string, o llm.Options) ([]trace.Request, llm.Stats, error) {
	r, err := llm.Open(context.Background(), format, path, o)
	if err != nil {
		return nil, llm.Stats{}, err
	}
	defer r.Close()
	w, err := trace.Collect(r)
	if err != nil {
		return nil, r.Stats(), err
	}
	return w.Requests, r.Stats(), nil
}

// request is a request of the base model.
func request(id int64, arrival float64, prompt, output int32) trace.Request {
	return trace.Request{ID: id, Arrival: arrival, Adapter: trace.BaseModel, Prompt: prompt, Output: output}
}

// told gives a request a text of blocks.
func told(r trace.Request, block int32, ids ...int64) trace.Request {
	for i, id := range ids {
		r.Text = &trace.Text{Parent: r.Text, Start: int32(i) * block, Block: block, ID: id}
	}
	return r
}

const (
	azure2023 = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n" +
		"2023-11-16 23:59:59.9799600,374,44\r\n" +
		"2023-11-17 00:00:00.0000001,396,109\r\n" +
		"2023-11-17 00:00:01.9799600,879,55" // the file has no line end at its end
	burst1 = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n" +
		"5,ChatGPT,472,18,490,Conversation log\n" +
		"45,ChatGPT,1087,0,1087,Conversation log\n" +
		"45,GPT-4,0,0,0,API log\n" +
		"118,GPT-4,417,276,693,Conversation log\n"
	mooncake3 = `{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2]}` + "\n" +
		`{"timestamp": 3000, "input_length": 7322, "output_length": 490, "hash_ids": []}` + "\n" +
		`{"output_length": 5, "hash_ids": [4], "timestamp": 3000.5, "input_length": 1}` + "\n"
)

func TestFormats(t *testing.T) {
	for _, c := range []struct {
		name    string
		format  llm.Format
		content string
		want    []trace.Request
	}{
		{"azure 2023", llm.AzureLLM, azure2023, []trace.Request{
			request(0, 0, 374, 44), request(1, 0.0200401, 396, 109), request(2, 2, 879, 55),
		}},
		{"azure 2024", llm.AzureLLM, "TIMESTAMP,ContextTokens,GeneratedTokens\n" +
			"2024-05-12 00:00:00+00:00,1,2\n2024-05-12 00:00:00.009930+00:00,3,4\n2024-05-12 02:00:01+02:00,5,6\n",
			[]trace.Request{
				request(0, 0, 1, 2), request(1, 0.00993, 3, 4), request(2, 1, 5, 6),
			}},
		{"azure 2025", llm.AzureLLM, "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n" +
			"2024-10-15T23:59:59.5Z,2,900,120\n2024-10-16T00:00:00.25Z,0,30,1\n", []trace.Request{
			request(0, 0, 900, 120), request(1, 0.75, 30, 1),
		}},
		{"burstgpt 1", llm.BurstGPT, burst1, []trace.Request{request(0, 0, 472, 18), request(1, 113, 417, 276)}},
		{"burstgpt 3", llm.BurstGPT,
			"Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n" +
				"19440110.0,1722ac82,43,GPT-4,906,446,1352,Conversation log\n19440161.5,,2,ChatGPT,36,29,65,API log\n",
			[]trace.Request{
				request(0, 0, 906, 446), request(1, 51.5, 36, 29),
			}},
		{"mooncake of AIPerf", llm.Mooncake, strings.ReplaceAll(mooncake3, "{", `{"session_id": "a", "delay": null, `),
			[]trace.Request{
				told(request(0, 0, 6758, 500), 512, 0, 1, 2), request(1, 3, 7322, 490),
				told(request(2, 3.0005, 1, 5), 512, 4),
			}},
		{"mooncake", llm.Mooncake, mooncake3, []trace.Request{
			told(request(0, 0, 6758, 500), 512, 0, 1, 2), request(1, 3, 7322, 490),
			told(request(2, 3.0005, 1, 5), 512, 4),
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, _, err := read(c.format, testutil.File(t, "trace", c.content), llm.Options{})
			if diff := cmp.Diff(c.want, got, cmpopts.IgnoreUnexported(trace.Text{})); err != nil || diff != "" {
				t.Errorf("error %v, difference:\n%s", err, diff)
			}
		})
	}
}

// TestQwen reads a sample of the published form; equal beginnings are one text.
func TestQwen(t *testing.T) {
	got, _, err := read(llm.QwenBailian, "testdata/qwen_sample.jsonl", llm.Options{})
	want := []trace.Request{
		told(request(0, 0, 33, 7), 16, 0, 1, 2), told(request(1, 1.25, 48, 90), 16, 0, 3, 4),
		told(request(2, 60.864, 64, 1), 16, 0, 1, 5, 6),
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(trace.Text{})); err != nil || diff != "" {
		t.Fatalf("error %v, difference:\n%s", err, diff)
	}
	if a, b := got[0].Text.Common(got[2].Text), got[1].Text.Common(got[2].Text); a != 32 || b != 16 {
		t.Errorf("prompts have %d and %d tokens in common, expected 32 and 16", a, b)
	}
}

// TestSevenDigits: 100 ns steps over a week stay exact to 1e-9 s.
func TestSevenDigits(t *testing.T) {
	content := "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-12 00:00:00.0000000,1,1\n"
	var want []float64
	for i := range 1000 {
		tick := int64(i)*6_048_000_001 + 3 // of 100 ns
		day, rest := tick/864_000_000_000, tick%864_000_000_000
		second := rest / 10_000_000
		content += fmt.Sprintf("2024-05-%02d %02d:%02d:%02d.%07d,1,1\n",
			12+day, second/3600, second/60%60, second%60, rest%10_000_000)
		want = append(want, float64(tick)/1e7)
	}
	got, _, err := read(llm.AzureLLM, testutil.File(t, "trace", content), llm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range want {
		if math.Abs(got[i+1].Arrival-w) > 1e-9 {
			t.Fatalf("row %d arrives at %.9f, expected %.9f", i, got[i+1].Arrival, w)
		}
	}
}

func TestFailedRequests(t *testing.T) {
	path := testutil.File(t, "trace", burst1)
	_, stats, err := read(llm.BurstGPT, path, llm.Options{})
	if err != nil || stats.Failed != 2 || stats.Requests != 2 || stats.Bad != 0 {
		t.Errorf("%+v, %v; expected 2 failed of 4", stats, err)
	}
}

func TestAdapters(t *testing.T) {
	adapters := trace.Names(2, nil)
	n := int32(0)
	got, _, err := read(llm.AzureLLM, testutil.File(t, "trace", azure2023), llm.Options{
		Adapters: adapters,
		Assign:   func() int32 { n++; return n%3 - 1 },
	})
	if err != nil || got[0].Adapter != 0 || got[1].Adapter != 1 || got[2].Adapter != -1 || n != 3 {
		t.Errorf("%v, %v after %d assignments", got, err, n)
	}
	path := testutil.File(t, "trace", burst1)
	_, _, err = read(llm.BurstGPT, path, llm.Options{Adapters: adapters, Assign: func() int32 { return 2 }})
	if err == nil || !strings.Contains(err.Error(), "adapter is 2, expected -1 (base model) to 1") {
		t.Errorf("error %v", err)
	}
}

func TestWindow(t *testing.T) {
	content := "Timestamp,Request tokens,Response tokens\n"
	for i := range 10 {
		content += fmt.Sprintf("%d,%d,1\n", 100+10*i, 1+i)
	}
	path := testutil.File(t, "trace", content)
	got, _, err := read(llm.BurstGPT, path, llm.Options{Start: 15, End: 40})
	want := []trace.Request{request(0, 5, 3, 1), request(1, 15, 4, 1)}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error %v, difference:\n%s", err, diff)
	}
	for o, want := range map[[2]float64]string{
		{91, 0}:  "no request in the window from 91 s; the last row read is at 90.000 s",
		{11, 19}: "no request in the window from 11 s; the last row read is at 20.000 s",
	} {
		if _, _, err = read(llm.BurstGPT, path, llm.Options{Start: o[0], End: o[1]}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("window %v: error %v, expected %s", o, err, want)
		}
	}
}

func TestOrder(t *testing.T) {
	path := testutil.File(t, "trace",
		"Timestamp,Request tokens,Response tokens\n10,1,1\n12.5,2,1\n11,3,1\n10,4,1\n9,5,0\n")
	_, _, err := read(llm.BurstGPT, path, llm.Options{SkipBadRows: true})
	if want := path + ":4: row is 1.5s earlier than the one before"; err == nil ||
		!strings.HasPrefix(err.Error(), want) {
		t.Errorf("error %v, expected %s", err, want)
	}
	// The first row in time counts, even if the request failed.
	got, stats, err := read(llm.BurstGPT, path, llm.Options{Sort: true})
	want := []trace.Request{request(0, 1, 1, 1), request(1, 1, 4, 1), request(2, 2, 3, 1), request(3, 3.5, 2, 1)}
	if diff := cmp.Diff(want, got); err != nil || diff != "" || stats.Failed != 1 {
		t.Errorf("error %v, %+v, difference:\n%s", err, stats, diff)
	}
	got, _, err = read(llm.BurstGPT, path, llm.Options{Sort: true, Start: 1, End: 2})
	if diff := cmp.Diff([]trace.Request{request(0, 0, 1, 1), request(1, 0, 4, 1)}, got); err != nil || diff != "" {
		t.Errorf("error %v, difference:\n%s", err, diff)
	}
}

func TestSkipBadRows(t *testing.T) {
	path := testutil.File(t, "trace", "TIMESTAMP,ContextTokens,GeneratedTokens\n"+
		"2023-11-16 18:15:46,1,1\nrubbish\n2023-11-16 18:15:47,x,1\n2023-11-16 18:15:48,0,1\n2023-11-16 18:15:49,2,2\n")
	got, stats, err := read(llm.AzureLLM, path, llm.Options{SkipBadRows: true})
	if err != nil || len(got) != 2 || stats.Bad != 3 || stats.Requests != 2 {
		t.Fatalf("%d requests, %+v, %v", len(got), stats, err)
	}
}

func TestRowErrors(t *testing.T) {
	azure := "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,1,1\n"
	burst := "Timestamp,Request tokens,Response tokens\n1,1,1\n"
	moon := `{"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": []}` + "\n"
	for _, c := range []struct {
		format        llm.Format
		content, want string
	}{
		{llm.AzureLLM, "", ": file is empty"},
		{llm.AzureLLM, "TIMESTAMP,ContextTokens\n",
			`:1: no column "GeneratedTokens"; the file has TIMESTAMP,ContextTokens`},
		{llm.AzureLLM, "TIMESTAMP,ContextTokens,GeneratedTokens\n", ": empty trace"},
		{llm.AzureLLM, azure + "2023-11-16 18:15:47,-3,1\n", `:3: column "ContextTokens": -3 is negative`},
		{llm.AzureLLM, azure + "2023-11-16 18:15:47,3,1.5\n",
			`:3: column "GeneratedTokens": "1.5" is not a whole number`},
		{llm.AzureLLM, azure + "2023-11-16 18:15:47,3,0\n", `:3: column "GeneratedTokens": is 0, expected >= 1 token`},
		{llm.AzureLLM, azure + "2023-11-16 18:15:47,3,3000000000\n",
			`:3: column "GeneratedTokens": 3000000000 is too large`},
		{llm.AzureLLM, azure + "2023-02-29 18:15:47,3,1\n",
			`:3: column "TIMESTAMP": "2023-02-29 18:15:47" is not a time stamp`},
		{llm.BurstGPT, azure, `:1: no column "Timestamp"`},
		{llm.BurstGPT, burst + "2,3\n", ":3: row has 2 fields, expected 3"},
		{llm.BurstGPT, burst + "-2,3,1\n", `:3: column "Timestamp": -2 is negative`},
		{llm.BurstGPT, burst + "2,0,1\n", `:3: column "Request tokens": is 0`},
		{llm.BurstGPT, burst + "2,1,-1\n", `:3: column "Response tokens": -1 is negative`},
		{llm.BurstGPT, "Timestamp,Request tokens,Response tokens\n1,1,0\n",
			"holds no request (left out: 0 bad, 1 failed)"},
		{llm.Mooncake, "", ": empty trace"},
		{llm.Mooncake, moon + `{"timestamp": 1, "input_length": 1, "output_length": 1}`,
			`:2: column "hash_ids": is missing`},
		{llm.Mooncake, moon + `{"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": 3}`,
			`:2: column "hash_ids": is "3", expected an array`},
		{llm.Mooncake, moon + `{"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": [1.5]}`,
			`:2: column "hash_ids": expected an array of whole`},
		{llm.Mooncake, moon + `{"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": [1234567890123456]}`,
			`:2: column "hash_ids": expected an array of whole numbers of up to 15`},
		{llm.Mooncake, moon + `{"timestamp": 1, "input_length": 512, "output_length": 1, "hash_ids": [1, 2]}`,
			`:2: column "hash_ids": 2 ids for 512 tokens, expected at most 1`},
		{llm.Mooncake, moon + `{"timestamp": 1, "input_length": "1", "output_length": 1, "hash_ids": []}`,
			`:2: column "input_length": "\"1\"" is not a whole number`},
		{llm.Mooncake, moon + `{"timestamp": 1, "timestamp": 1}`, `:2: column "timestamp": appears twice`},
		{llm.Mooncake, moon + `{"delay": 1, "session_id": "a", "input_length": 1, "output_length": 1, "hash_ids": [1]}`,
			`:2: column "timestamp": is missing`},
		{llm.Mooncake, moon + `{"timestamp": 1`, ":2: JSON object ends too early"},
		{llm.Mooncake, moon + `{"timestamp": 0.5, "input_length": 1, "output_length": 1, "hash_ids": []}`,
			":2: row is 500µs earlier"},
		{"azure", azure,
			`unknown trace format "azure", did you mean "azure_llm"? (known: azure_llm, burstgpt, mooncake`},
	} {
		path := testutil.File(t, "trace", c.content)
		_, _, err := read(c.format, path, llm.Options{})
		if err == nil || !strings.Contains(err.Error(), c.want) ||
			c.format != "azure" && !strings.HasPrefix(err.Error(), path+":") {
			t.Errorf("%s %.80q: error %v, expected %s%s", c.format, c.content, err, path, c.want)
		}
	}
}

// A window may lie anywhere within a century.
func TestFarWindow(t *testing.T) {
	_, _, err := read(llm.BurstGPT, testutil.File(t, "trace", burst1), llm.Options{Start: 99 * 365 * 86400})
	if err == nil || !strings.Contains(err.Error(), "no request in the window") {
		t.Errorf("99 years: error %v", err)
	}
}

func TestGzipAndFolder(t *testing.T) {
	packed := testutil.Gzip(t, azure2023)
	path := testutil.File(t, "AzureLMMInferenceTrace_multimodal.csv.gz", packed)
	for _, p := range []string{path, filepath.Dir(path)} {
		got, _, err := read(llm.AzureLLM, p, llm.Options{})
		if err != nil || len(got) != 3 {
			t.Errorf("%s: %d requests, %v", p, len(got), err)
		}
	}
	_, _, err := read(llm.BurstGPT, filepath.Dir(path), llm.Options{})
	if err == nil || !strings.Contains(err.Error(), "no file here matches BurstGPT*.csv") {
		t.Errorf("error %v", err)
	}
	cut := testutil.File(t, "cut.csv.gz", packed[:len(packed)-12])
	_, _, err = read(llm.AzureLLM, cut, llm.Options{SkipBadRows: true})
	if err == nil || !strings.HasPrefix(err.Error(), cut+":") ||
		!strings.Contains(err.Error(), "gzip file is truncated") {
		t.Errorf("error %v, expected a truncated file even where bad rows are skipped", err)
	}
	none := filepath.Join(t.TempDir(), "none")
	if _, _, err := read(llm.AzureLLM, none, llm.Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, expected that the file does not exist", err)
	}
}
