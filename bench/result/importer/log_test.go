package importer

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lorasim/bench/result"
	"lorasim/sim/record"
	"lorasim/trace"
)

const head = "============ Serving Benchmark Result ============\n"
const foot = "==================================================\n"

func warningTexts(ws []Warning) (texts []string) {
	for _, w := range ws {
		texts = append(texts, w.String())
	}
	return texts
}

// What may go wrong in a log, and what becomes of it.
func TestLogs(t *testing.T) {
	const backend = "Backend:                                 sglang    \n"
	const completed = "Successful requests:                     7         \n"
	for _, c := range []struct {
		name     string
		log      string
		printed  string // of all runs; "": as the blocks stand in the log
		warnings []string
	}{
		{name: "plain", log: "x\n\n" + head + backend + completed + foot + "y\n", printed: "\n" + head + backend +
			completed + foot},
		{
			name: "progress bars with carriage returns, line ends of Windows",
			log: "\ufeff  0%| | 0/2 [00:00<?, ?it/s]\r 50%|█ | 1/2\r\n\r\n" + strings.ReplaceAll(head+backend, "\n",
				"\r\n") + "100%|██| 2/2 [00:01<00:00, 1.71s/it]\r\n" + completed + foot,
			printed: "\n" + head + backend + completed + foot,
		},
		{
			name: "no line end at the end", log: head + completed + strings.TrimSuffix(foot, "\n"),
			printed: "\n" + head + completed + foot,
		},
		{
			name: "cut short by the end of the file", log: "\n" + head + backend + completed,
			warnings: []string{"log:2: the block that begins here is cut short by the end of the file"},
		},
		{
			name: "cut short by another block", log: "\n" + head + backend + "\n" + head + completed + foot,
			printed:  "\n" + head + backend + "\n" + head + completed + foot,
			warnings: []string{"log:2: the block that begins here is cut short before line 5"},
		},
		{
			name: "cut short by the next run", log: head + backend + "Namespace(seed=3)\n" + head + completed + foot,
			printed:  "\n" + head + backend + "\n" + head + completed + foot,
			warnings: []string{"log:1: the block that begins here is cut short before line 3"},
		},
		{
			name:    "unknown row and section",
			log:     head + backend + "Failed requests:                         3         \n-------------Speculative Decoding---------------\n" + completed + foot,
			printed: "\n" + head + backend + "Failed requests:                         3         \n-------------Speculative Decoding---------------\n" + completed + foot,
		},
		{
			name:    "rows that would not print like this",
			log:     head + "Successful requests: 7\nMean TTFT (ms):                          1.5       \nMean ITL (ms):                           nan       \n" + completed + foot,
			printed: "\n" + head + "Successful requests: 7\nMean TTFT (ms):                          1.5       \nMean ITL (ms):                           nan       \n" + completed + foot,
			warnings: []string{
				`log:4: row "Mean ITL (ms):": the value is nan: unknown`,
				`log:5: second row "Successful requests:", kept as it is`,
			},
		},
		{
			name:     "one line of noise",
			log:      head + backend + "INFO server says hello\n" + completed + foot,
			printed:  "\n" + head + backend + completed + foot,
			warnings: []string{`log:3: not a row of the block: "INFO server says hello"`},
		},
		{
			name: "arguments that make no sense", log: "Namespace(a=, b=2)\n" + head + completed + foot,
			printed:  "\n" + head + completed + foot,
			warnings: []string{"log:1: argument list not understood: character 3: expected the value of a and a comma or ) behind it"},
		},
	} {
		runs, warnings, err := readResults(strings.NewReader(c.log), "log")
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if d := cmp.Diff(c.warnings, warningTexts(warnings)); d != "" {
			t.Errorf("%s: warnings (-want +got):\n%s", c.name, d)
		}
		var b bytes.Buffer
		for _, r := range runs {
			if err := r.Print(&b); err != nil {
				t.Fatal(err)
			}
		}
		want := c.printed
		if want == "" {
			want = c.log
		}
		if d := cmp.Diff(want, b.String()); d != "" {
			t.Errorf("%s: printed (-want +got):\n%s", c.name, d)
		}
		if v, ok := runs[len(runs)-1].Metrics.Get(result.Completed); !ok || v != 7 {
			t.Errorf("%s: completed = %v, %v", c.name, v, ok)
		}
	}
}

// A block without an end does not swallow the rest of the log.
func TestNoiseEndsBlock(t *testing.T) {
	log := head + "Successful requests:                     7\n" +
		strings.Repeat("INFO:     127.0.0.1 - \"POST /generate\"\n", 100) + head +
		"Successful requests:                     8\n" + foot
	runs, warnings, err := readResults(strings.NewReader(log), "log")
	if err != nil || len(runs) != 2 || !runs[0].Truncated || runs[1].Truncated || len(warnings) != maxNoise+1 {
		t.Fatalf("%d runs, %d warnings, %v", len(runs), len(warnings), err)
	}
	if w := warnings[maxNoise].String(); w != "log:1: the block that begins here is cut short before line 11" {
		t.Errorf("last warning: %s", w)
	}
}

// What belongs to one run does not leak into the next; headers of a section do.
func TestContext(t *testing.T) {
	block := head + "Successful requests:                     7\n" + foot
	log := "[组合] SERVER=a  CLIENT=b\n# request rate: 8\nbenchmark_args=Namespace(port=None, seed=2)\nNamespace(port=1, seed=2, max_concurrency=4, backend='vllm')\n" +
		"#Input tokens: 10\n#Output tokens: 20\n 0%| | 0/9 [00:00<?, ?it/s][1, 2, 6]\nlast arrival: 2.5\n" + block +
		block
	runs, warnings, err := readResults(strings.NewReader(log), "log")
	if err != nil || len(runs) != 2 || len(warnings) > 0 {
		t.Fatalf("%d runs, %v, %v", len(runs), warnings, err)
	}
	want := Context{Server: "a", Client: "b", SectionRate: "8", InputTokens: 10, OutputTokens: 20,
		ModelCounts: []int64{1, 2, 6}, LastArrival: 2.5}
	if d := cmp.Diff(want, runs[0].Context); d != "" {
		t.Errorf("first run (-want +got):\n%s", d)
	}
	if r := runs[0]; r.Config["port"] != int64(1) || *r.Seed != 2 || r.MaxConcurrency != 4 || r.Backend != "vllm" {
		t.Errorf("first run: %+v", r.Meta)
	}
	if d := cmp.Diff(Context{Server: "a", Client: "b", SectionRate: "8"}, runs[1].Context); d != "" {
		t.Errorf("second run (-want +got):\n%s", d)
	}
	if r := runs[1]; r.Config != nil || r.Seed != nil {
		t.Errorf("second run: %+v", r.Meta)
	}
}

// A row of the block goes before the argument of the same name.
func TestNoLimitRowWins(t *testing.T) {
	log := "Namespace(max_concurrency=4)\n" + head + "Max request concurrency:                 not set   \n" + foot
	runs, _, err := readResults(strings.NewReader(log), "log")
	if err != nil || runs[0].MaxConcurrency != 0 {
		t.Errorf("%v, %+v", err, runs)
	}
}

func TestJSONLines(t *testing.T) {
	text := "\n{\"backend\": \"sglang\", \"request_rate\": Infinity, \"completed\": 5, \"duration\": 2.5}\n{\"completed\": 6}\n"
	runs, _, err := readResults(strings.NewReader(text), "out.jsonl")
	if err != nil || len(runs) != 2 || runs[0].Line != 2 || runs[1].Line != 3 {
		t.Fatalf("%v, %+v", err, runs)
	}
	const rest = "Total input tokens, Total generated tokens, Request throughput, Input token throughput, Output token throughput, " +
		"Peak output token throughput, Peak concurrent requests, Total token throughput, Concurrency, E2E Latency, TTFT, TPOT, ITL"
	want := [][]string{{"not in the file: " + rest}, {"not in the file: Benchmark duration, " + rest}}
	if d := cmp.Diff(want, [][]string{runs[0].remarks(), runs[1].remarks()}); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	var b bytes.Buffer
	if err := runs[0].Print(&b); err != nil ||
		!strings.Contains(b.String(), "Successful requests:                     5         \n") {
		t.Errorf("%v, printed:\n%s", err, b.String())
	}
}

func TestReadErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                                    "f: the file is empty",
		"hello\n":                             `f: no result found: expected a block that begins with "============ Serving Benchmark Result ============", or a file of AIPerf, `,
		"{\"completed\": 1}\n{\"completed\":": "f:2: the JSON object that begins here has no end",
		"\n" + strings.Repeat("x", maxLine+1): "f:2: the line is longer than 1048576 bytes: expected a text file",
	} {
		if _, _, err := readResults(strings.NewReader(text), "f"); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.40q:\n got %v\nwant %s", text, err, want)
		}
	}
	if _, _, err := Files(t.Context(), trace.Files{}, []string{"testdata/no such file"}); err == nil {
		t.Error("no error for a file that is not there")
	}
}

// Each layout is recognised from what WriteBlock prints.
func TestLayoutRecognised(t *testing.T) {
	r := &result.Result{Meta: result.Meta{Backend: "sglang", RequestRate: 2}}
	for m := range result.NumMetrics {
		r.Metrics.Set(m, float64(m))
	}
	for _, l := range result.Layouts() {
		var b bytes.Buffer
		if err := r.WriteBlock(&b, l); err != nil {
			t.Fatal(err)
		}
		runs, warnings, err := readResults(bytes.NewReader(b.Bytes()), "log")
		if err != nil || len(warnings) > 0 || runs[0].Layout != l {
			t.Errorf("%s: recognised as %v, %v, %v", l, runs[0].Layout, warnings, err)
		}
	}
}

// Whatever a log holds: no crash, and a block that is printed reads again as
// the same rows.
func FuzzLog(f *testing.F) {
	f.Add(head + "Backend:                                 sglang    \nSuccessful requests:                     7\n" +
		foot)
	f.Add("[组合] SERVER=a  CLIENT=b\nNamespace(a='x', b=[1, inf])\r 0%| | 0/9 [00:00<?, ?it/s][1, 2]\r\n" + head +
		"Foo:   1\n----x----\nnoise\n")
	f.Add("# request rate = 2\n" + head + "Max request concurrency:                 not set   \nMedian TPOT (ms):                        -0.00     \nMedian TPOT (ms):   1e300\n" + foot)
	f.Add(`{"completed": 1}`)
	f.Fuzz(func(t *testing.T, text string) {
		runs, _, err := readResults(strings.NewReader(text), "f")
		if err != nil {
			return
		}
		for _, r := range runs {
			var b bytes.Buffer
			if err := r.Print(&b); err != nil {
				t.Fatal(err)
			}
			if r.Layout == "" {
				continue
			}
			again, _, err := readResults(&b, "again")
			if err != nil || len(again) != 1 {
				t.Fatalf("%q: printed block gives %d runs, %v", text, len(again), err)
			}
			if d := cmp.Diff(r.Block, again[0].Block); d != "" {
				t.Fatalf("%q: rows (-first +again):\n%s", text, d)
			}
			if r.Metrics != again[0].Metrics || r.Truncated != again[0].Truncated || r.Layout != again[0].Layout {
				t.Fatalf("%q: %+v, again %+v", text, r, again[0])
			}
		}
	})
}

// Lines below a block say how requests ended, and arguments how many there were.
func TestEndings(t *testing.T) {
	block := head + "Successful requests:                     7\n" + foot
	for _, c := range []struct {
		log  string
		want *result.Endings
	}{
		{block, nil},
		{"2 of 9 rejected: too long\n" + block, nil},
		{block + "1 of 10 failed: reset\n2 of 10 rejected: too long: 4096\nnote: more\n",
			&result.Endings{Requests: 10, Failed: 1, Rejected: 2,
				Reasons: []result.Reason{{Status: "failed", Reason: "reset", Count: 1},
					{Status: "rejected", Reason: "too long: 4096", Count: 2}}}},
		{block + "1 of 8 failed: reset\n12 of 20 not sent: the run was stopped\n",
			&result.Endings{Requests: 8, Failed: 1, Unsent: 12,
				Reasons: []result.Reason{{Status: "failed", Reason: "reset", Count: 1}}}},
		{"Namespace(num_prompts=9, use_trace=False)\n" + block, &result.Endings{Requests: 9, Failed: 2}},
		{"Namespace(num_prompts=9, use_trace=False)\n" + block + "2 of 9 aborted: x\n",
			&result.Endings{Requests: 9, Aborted: 2,
				Reasons: []result.Reason{{Status: "aborted", Reason: "x", Count: 2}}}},
		{"Namespace(num_prompts=9, use_trace=True)\n" + block, nil},
		{"Namespace(num_prompts=6)\n" + block, nil},
	} {
		runs, _, err := readResults(strings.NewReader(c.log), "log")
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(c.want, runs[0].Endings()); d != "" {
			t.Errorf("%s(-want +got):\n%s", c.log, d)
		}
	}
}

// The multi-worker LoRA benchmark did not stream, the others did.
func TestStreamingOfRealLogs(t *testing.T) {
	for name, runs := range realLogs(t) {
		want := record.Streamed
		if strings.HasPrefix(filepath.Base(name), "lora_") {
			want = record.NotStreamed
		}
		for _, r := range runs {
			if r.Streamed != want {
				t.Errorf("%s:%d: streamed %q, want %q", name, r.Line, r.Streamed, want)
			}
		}
	}
}
