package importer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lorasim/bench/result"
	"lorasim/internal/shareddata"
	"lorasim/sim/record"
	"lorasim/trace"
)

// block is what a run prints, its rows by their labels.
func printed(t *testing.T, m *Imported) (rows map[string]string, below []string) {
	t.Helper()
	var b bytes.Buffer
	if err := m.Print(&b); err != nil {
		t.Fatal(err)
	}
	inside, after, _ := strings.Cut(b.String(), "\n"+result.BlockEnd()+"\n")
	rows = map[string]string{}
	for _, line := range strings.Split(inside, "\n") {
		if label, v, ok := strings.Cut(line, ":"); ok {
			rows[label] = strings.TrimSpace(v)
		}
	}
	return rows, strings.Split(strings.TrimSuffix(after, "\n"), "\n")
}

// at walks through decoded JSON: names of fields and indexes, with dots between.
func at(t *testing.T, v any, path string) float64 {
	t.Helper()
	for _, step := range strings.Split(path, ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i >= len(x) {
				t.Fatalf("%s: no element %s", path, step)
			}
			v = x[i]
		}
	}
	f, ok := v.(float64)
	if !ok {
		t.Fatalf("%s is %v, expected a number", path, v)
	}
	return f
}

// The block of a file that a real client wrote shows the figures that the file
// states, in milliseconds.
func TestRealClients(t *testing.T) {
	statistics := func(rows map[string]string, label, path string, stats ...string) {
		for _, s := range stats {
			name, field, _ := strings.Cut(s, "=")
			rows[name+" "+label+" (ms)"] = path + "." + field
		}
	}
	aiperf := map[string]string{
		"Successful requests": "request_count.avg", "Benchmark duration (s)": "benchmark_duration.avg",
		"Request throughput (req/s)": "request_throughput.avg",
		"Total input tokens":         "total_isl.avg", "Total generated tokens": "total_osl.avg",
		"Concurrency":                     "effective_concurrency.avg",
		"Input token throughput (tok/s)":  "input_token_throughput.avg",
		"Output token throughput (tok/s)": "output_token_throughput.avg",
		"Total token throughput (tok/s)":  "total_token_throughput.avg", "Max ITL (ms)": "inter_chunk_latency.max",
	}
	for label, path := range map[string]string{"E2E Latency": "request_latency", "TTFT": "time_to_first_token",
		"TPOT": "inter_token_latency", "ITL": "inter_chunk_latency"} {
		statistics(aiperf, label, path, "Mean=avg", "Median=p50", "P90=p90", "P95=p95", "P99=p99")
	}
	const first = "benchmarks.0.metrics."
	guide := map[string]string{
		"Successful requests": first + "request_totals.successful", "Benchmark duration (s)": "benchmarks.0.duration",
		"Request throughput (req/s)":      first + "requests_per_second.successful.mean",
		"Concurrency":                     first + "request_concurrency.successful.mean",
		"Input token throughput (tok/s)":  first + "prompt_tokens_per_second.successful.mean",
		"Output token throughput (tok/s)": first + "output_tokens_per_second.successful.mean",
		"Total token throughput (tok/s)":  first + "tokens_per_second.successful.mean",
		"Traffic request rate":            "benchmarks.0.config.strategy.rate",
		"Total input tokens":              first + "prompt_token_count.successful.total_sum",
		"Total generated tokens":          first + "output_token_count.successful.total_sum",
	}
	for label, path := range map[string]string{"TTFT": "time_to_first_token_ms", "TPOT": "time_per_output_token_ms",
		"ITL": "inter_token_latency_ms", "E2E Latency": "request_latency"} {
		statistics(guide, label, first+path+".successful", "Mean=mean", "Median=median", "P90=percentiles.p90",
			"P95=percentiles.p95", "P99=percentiles.p99")
	}
	vllm := map[string]string{
		"Successful requests": "completed", "Benchmark duration (s)": "duration",
		"Request throughput (req/s)":      "request_throughput",
		"Total token throughput (tok/s)":  "total_token_throughput",
		"Output token throughput (tok/s)": "output_throughput",
		"Mean TTFT (ms)":                  "mean_ttft_ms", "P99 TPOT (ms)": "p99_tpot_ms", "Median ITL (ms)": "median_itl_ms",
	}
	sglang := map[string]string{
		"Total token throughput (tok/s)": "total_throughput", "Mean E2E Latency (ms)": "mean_e2e_latency_ms",
		"P95 ITL (ms)": "p95_itl_ms", "Concurrency": "concurrency",
	}
	for file, want := range map[string]map[string]string{
		"aiperf_profile_export_aiperf.json": aiperf, "guidellm.json": guide, "vllm_bench_serve.json": vllm,
		"sglang_bench_serving.jsonl": sglang,
	} {
		t.Run(file, func(t *testing.T) {
			path := filepath.Join(shareddata.Path(t, "clients"), file)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var stated any
			if err := json.Unmarshal(text, &stated); err != nil {
				t.Fatal(err)
			}
			runs, _, err := Files(t.Context(), trace.Files{}, []string{path})
			if err != nil || len(runs) != 1 {
				t.Fatalf("%d runs, %v", len(runs), err)
			}
			rows, _ := printed(t, runs[0])
			for label, path := range want {
				v := at(t, stated, path)
				if strings.HasSuffix(path, "request_latency.successful") ||
					strings.Contains(path, "request_latency.successful.") {
					v *= 1000 // GuideLLM has seconds
				}
				got, err := strconv.ParseFloat(rows[label], 64)
				if err != nil || fmt.Sprintf("%.2f", got) != fmt.Sprintf("%.2f", v) {
					t.Errorf("row %q is %q, but the file states %v", label, rows[label], v)
				}
			}
		})
	}
}

// The requests of AIPerf are one run, whose figures are those of its own.
func TestRealAIPerfRequests(t *testing.T) {
	path := filepath.Join(shareddata.Path(t, "clients"), "aiperf_profile_export.jsonl")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	sum := map[string]float64{}
	for _, line := range lines {
		var r struct {
			Metrics map[string]struct{ Value any }
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"request_latency", "time_to_first_token", "inter_token_latency",
			"output_sequence_length"} {
			sum[name] += r.Metrics[name].Value.(float64)
		}
	}
	runs, _, err := Files(t.Context(), trace.Files{}, []string{path})
	if err != nil || len(runs) != 1 || len(runs[0].Records) != len(lines) {
		t.Fatalf("%d runs, %v", len(runs), err)
	}
	rows, _ := printed(t, runs[0])
	for label, name := range map[string]string{"Mean E2E Latency (ms)": "request_latency",
		"Mean TTFT (ms)": "time_to_first_token", "Mean TPOT (ms)": "inter_token_latency"} {
		if want := fmt.Sprintf("%.2f", sum[name]/float64(len(lines))); rows[label] != want {
			t.Errorf("row %q is %q, but the mean of %s is %s", label, rows[label], name, want)
		}
	}
	if want := fmt.Sprint(sum["output_sequence_length"]); rows["Total generated tokens"] != want {
		t.Errorf("%s tokens, but the requests have %s", rows["Total generated tokens"], want)
	}
}

// Files of each form, made by hand. want are some rows of the block, the lines
// below it, and how many requests are known.
func TestClients(t *testing.T) {
	const notTold = "note: not in the file: "
	const aiperfNote = "note: " + aiperfLatencies
	const guideNote = "note: " + guideTPOT
	const others = "note: latencies and throughputs cover only the other %d requests"
	type run struct {
		rows    map[string]string
		below   []string
		records int
	}
	guideMissing := notTold + "Input token throughput, Peak output token throughput, P90 TPOT, P95 TPOT, ITL"
	guideTail := "note: further percentiles of TTFT (ms): P5 30.00, P99.9 61.50"
	for file, want := range map[string][]run{
		"aiperf.json": {{ // units of all kinds, a concurrency limit, errors, cancelled
			rows: map[string]string{"Backend": "chat", "Traffic request rate": "inf", "Max request concurrency": "8",
				"Benchmark duration (s)": "2.00",
				"Mean E2E Latency (ms)":  "400.00", "P99 E2E Latency (ms)": "600.00", "Mean TPOT (ms)": "20.50",
				"Max ITL (ms)": "33.12", "P90 TTFT (ms)": ""},
			below: []string{"2 of 5 failed: 503 HTTPError no worker is available", fmt.Sprintf(others, 3),
				"note: further percentiles of E2E (ms): P25 300.00",
				notTold + "Input token throughput, Peak output token throughput, Peak concurrent requests, Concurrency, P90 TTFT, P95 TTFT, P90 TPOT, P95 TPOT, P99 TPOT, Median ITL, P90 ITL, P95 ITL",
				aiperfNote, "note: the run was cancelled"},
		}},
		"aiperf.jsonl": {{ // a warm-up, two requests (the second took 1 s), one refused, one cancelled
			rows: map[string]string{"Successful requests": "2", "Benchmark duration (s)": "1.50",
				"Total input tokens": "60", "Total generated tokens": "8",
				"Mean E2E Latency (ms)": "750.00", "P99 E2E Latency (ms)": "995.00", "Mean TTFT (ms)": "150.00",
				"Mean TPOT (ms)": "250.00", "Mean ITL (ms)": "240.00",
				"Max ITL (ms)": "400.00", "Median ITL (ms)": "200.00", "Peak output token throughput (tok/s)": ""},
			below: []string{"1 of 4 aborted: cancelled", "1 of 4 failed: 429 HTTPError too many",
				fmt.Sprintf(others, 2), notTold + "Peak output token throughput", aiperfNote},
			records: 4,
		}},
		"guidellm.json": {{
			rows: map[string]string{"Traffic request rate": "inf", "Max request concurrency": "1",
				"Mean E2E Latency (ms)": "400.00", "P95 E2E Latency (ms)": "550.00",
				"P99 TTFT (ms)": "60.00", "Mean TPOT (ms)": "22.50", "Mean ITL (ms)": "", "Total input tokens": "100",
				"Peak concurrent requests": "3"},
			below: []string{guideTail, guideMissing, guideNote}, records: 2,
		}, { // of four requests the file has two
			rows: map[string]string{"Traffic request rate": "2.5", "Max request concurrency": "not set",
				"Successful requests": "2"},
			below: []string{"1 of 4 failed: no reason known", "1 of 4 unfinished: no reason known",
				fmt.Sprintf(others, 2), guideTail, guideMissing, guideNote,
				"note: the file has 2 of the requests, a sample"},
			records: 2,
		}, { // the strategy where early versions have it
			rows:  map[string]string{"Traffic request rate": "inf", "Max request concurrency": "4"},
			below: []string{guideTail, guideMissing, guideNote},
		}},
		"vllm.json": {{ // the E2E latencies alone, and percentiles of one's own choice
			rows: map[string]string{"Traffic request rate": "inf", "Max request concurrency": "2",
				"Total token throughput (tok/s)": "17.00",
				"Mean E2E Latency (ms)":          "1000.00", "P90 E2E Latency (ms)": "1400.00",
				"P99 E2E Latency (ms)": "1490.00", "P99 TTFT (ms)": "", "Mean TPOT (ms)": ""},
			below: []string{"1 of 3 failed: no reason known", fmt.Sprintf(others, 2),
				"note: further percentiles of E2E (ms): P25 750.00",
				"note: further percentiles of TTFT (ms): P25 125.00, P99.9 199.90",
				notTold + "Input token throughput, Peak output token throughput, Peak concurrent requests, Concurrency, P90 TTFT, P95 TTFT, P99 TTFT, TPOT, ITL"},
		}, { // --save-detailed; what is stated goes before what can be computed
			rows: map[string]string{"Mean E2E Latency (ms)": "1000.00", "Mean TTFT (ms)": "150.00",
				"P99 TTFT (ms)": "199.00", "P90 TTFT (ms)": "190.00",
				"Mean TPOT (ms)": "375.00", "Mean ITL (ms)": "283.33", "Max ITL (ms)": "700.00",
				"Input token throughput (tok/s)": "15.00", "Concurrency": "0.50"},
			below: []string{"1 of 3 failed: Bad Gateway", fmt.Sprintf(others, 2)}, records: 3,
		}},
	} {
		t.Run(file, func(t *testing.T) {
			runs, _, err := Files(t.Context(), trace.Files{}, []string{filepath.Join("testdata", file)})
			if err != nil || len(runs) != len(want) {
				t.Fatalf("%d runs, %v", len(runs), err)
			}
			for i, w := range want {
				rows, below := printed(t, runs[i])
				for label, v := range w.rows {
					if rows[label] != v {
						t.Errorf("run %d: row %q is %q, expected %q", i, label, rows[label], v)
					}
				}
				if d := cmp.Diff(w.below, below); d != "" {
					t.Errorf("run %d, below the block (-want +got):\n%s", i, d)
				}
				if len(runs[i].Records) != w.records {
					t.Errorf("run %d has %d requests, expected %d", i, len(runs[i].Records), w.records)
				}
			}
		})
	}
}

// Requests come in the order in which they were sent, with times since the first
// arrival, and the models that they name.
func TestRecordsOfClients(t *testing.T) {
	runs, _, err := Files(t.Context(), trace.Files{}, []string{"testdata/guidellm.json", "testdata/vllm.json"})
	if err != nil {
		t.Fatal(err)
	}
	a, b := runs[0].Records[0], runs[0].Records[1]
	if a.Arrival != 0 || a.Sent != 0 || a.Finish != 0.25 || math.Abs(a.FirstToken-0.025) > 1e-6 || a.Prompt != 50 ||
		a.Output != 10 || a.Streamed != record.Streamed {
		t.Errorf("first request: %+v", a)
	}
	if b.Arrival != 0 || b.Sent != 0.5 || b.Finish != 1 || runs[0].Adapters[b.Adapter].Name != "code" ||
		runs[0].Adapters[a.Adapter].Name != "chat" {
		t.Errorf("second request: %+v, adapters %v", b, runs[0].Adapters)
	}
	vllm := runs[len(runs)-1].Records
	if q := vllm[1]; q.Sent != 0.5 || q.FirstToken != 0.7 || q.Finish != 2 || len(q.Gaps) != 2 ||
		q.Status != record.OK {
		t.Errorf("vLLM's second request: %+v", q)
	}
	if q := vllm[2]; q.Status != record.Failed || q.Error != "Bad Gateway" {
		t.Errorf("vLLM's third request: %+v", q)
	}
}

// Small files: how many requests are known, and some metrics, NaN where there is none.
func TestSmallFiles(t *testing.T) {
	nan := math.NaN()
	const aiperf = `{"metadata": {"request_start_ns": %d, "request_end_ns": %d}, "metrics": {"time_to_first_token": {"value": 100, "unit": "ms"}}, "error": %s}` + "\n"
	guide := func(fields string) string { return `{"benchmarks": [{"metrics": {}, ` + fields + `}]}` }
	phases := func(list string) string {
		return `{"aiperf_version": "1", "input_config": {"phases": [` + list +
			`, {"kind": "warmup", "type": "concurrency", "concurrency": 9}, {"type": ""}]}}`
	}
	for _, c := range []struct {
		text    string
		records int
		rate    result.Rate
		want    map[result.ID]float64
	}{
		{guide(`"start_time": 100, "end_time": 107.5`), 0, 0, map[result.ID]float64{result.Duration: 7.5}},
		{guide(`"start_time": 100, "end_time": 100`), 0, 0, map[result.ID]float64{result.Duration: nan}},
		{guide(`"duration": 3, "start_time": 100, "end_time": 107.5`), 0, 0,
			map[result.ID]float64{result.Duration: 3}},
		{guide(`"requests": {"successful": [{"request_start_time": 5, "request_end_time": 6}, {"request_start_time": 5}, {"request_end_time": 6},
			{"request_start_time": 6, "request_end_time": 5}, {"request_start_time": 6, "request_end_time": 6}]}`), 2, 0, nil},
		{`{"completed": 2, "latencies": [1, 3]}`, 0, 0, map[result.ID]float64{result.MeanE2E: 2000,
			result.P99E2E: 2980, result.TotalInputTokens: nan,
			result.MeanTTFT: nan, result.P99TPOT: nan, result.MaxITL: nan, result.Concurrency: nan}},
		// 30 days
		{`{"completed": 1, "latencies": [2592000]}`, 0, 0, map[result.ID]float64{result.MeanE2E: 2592e6}},
		// the first request failed; what succeeded began a second later
		{fmt.Sprintf(aiperf, 1_000_000_000, 9_000_000_000, `{"type": "x"}`) + fmt.Sprintf(aiperf, 2_000_000_000,
			4_000_000_000, "null"), 2, 0, map[result.ID]float64{result.Duration: 2, result.MeanTTFT: 100}},
		{phases(`{"kind": "profiling", "type": "poisson", "rate": 3}`), 0, 3, nil},
		{phases(`{"kind": "profiling", "type": "fixed_schedule"}`), 0, result.TraceRate, nil},
		{phases(`{"kind": "profiling", "type": "concurrency", "concurrency": 4}`), 0, result.Unlimited(), nil},
	} {
		runs, _, err := readResults(strings.NewReader(c.text), "f")
		if err != nil || len(runs) != 1 {
			t.Errorf("%s: %d runs, %v", c.text, len(runs), err)
			continue
		}
		if m := runs[0]; len(m.Records) != c.records || c.rate != 0 && m.RequestRate != c.rate {
			t.Errorf("%s: %d requests at %v", c.text, len(m.Records), m.RequestRate)
		}
		for m, want := range c.want {
			if got, ok := runs[0].Metrics.Get(m); ok == math.IsNaN(want) || ok && math.Abs(got-want) > 1e-9*want {
				t.Errorf("%s: %s is %v, expected %v", c.text, m, got, want)
			}
		}
	}
	runs, _, err := Files(t.Context(), trace.Files{}, []string{"testdata/guidellm.json"})
	if err != nil || runs[0].Client != "GuideLLM 0.8.1" {
		t.Errorf("%q, %v", runs[0].Client, err)
	}
	if runs, _, err = readResults(strings.NewReader(`{"benchmark_time_seconds": 5, "successes": {"count": 2}}`),
		"f"); err != nil || runs[0].Client != "inference-perf" {
		t.Errorf("%+v, %v", runs, err)
	}
}

// What requests do not tell is not derived from them.
func TestDerive(t *testing.T) {
	q := func(s record.Status, first float64, gaps ...float64) record.Request {
		r := newRecord(0, 1, first, 3, 10, 3)
		r.Status, r.Gaps = s, gaps
		return r
	}
	text := []result.ID{result.MeanTTFT, result.P99TTFT, result.MeanTPOT, result.P99TPOT}
	gaps := []result.ID{result.MeanITL, result.P99ITL, result.MaxITL, result.MaxOutputTokensPerS}
	for name, c := range map[string]struct {
		recs       []record.Request
		text, gaps bool
	}{
		"all":            {[]record.Request{q(record.OK, 2, 0.5, 0.5)}, true, true},
		"no gaps":        {[]record.Request{q(record.OK, 2)}, true, false},
		"no text":        {[]record.Request{q(record.OK, 1)}, false, false},
		"of failed ones": {[]record.Request{q(record.OK, 1), q(record.Failed, 2, 0.5, 0.5)}, false, false},
	} {
		m := &Imported{Result: &result.Result{}}
		ended := m.derive(c.recs, func(result.ID) bool { return true })
		if ended.Requests != int64(len(c.recs)) {
			t.Errorf("%s: %+v", name, ended)
		}
		has := map[result.ID]bool{result.Completed: true, result.MeanE2E: true, result.P99E2E: true,
			result.TotalOutputTokens: true, result.MaxConcurrentRequests: true,
			result.TotalInputTextTokens: false, result.TotalOutputTokensRetokenized: false}
		for _, k := range text {
			has[k] = c.text
		}
		for _, k := range gaps {
			has[k] = c.gaps
		}
		for k, want := range has {
			if m.Metrics.Has(k) != want {
				t.Errorf("%s: has %s: %v", name, k, !want)
			}
		}
	}
	m := &Imported{Result: &result.Result{}}
	m.Metrics.Set(result.Completed, 2)
	if ended := m.derive([]record.Request{q(record.OK, 2)},
		func(result.ID) bool { return true }); ended != nil || m.Metrics.Has(result.MeanE2E) {
		t.Errorf("of a sample: %+v", ended)
	}
}

func TestClientErrors(t *testing.T) {
	for text, want := range map[string]string{
		`{"a": 1}`:                                           `f:1: expected a result of AIPerf, GuideLLM, inference-perf, llmperf, locust, sglang, vLLM or lorasim: the object has none of their figures`,
		`{"benchmark_time_seconds": 1}`:                      `f:1: expected a result of`,
		`{"duration": 5, "path": "/v1"}`:                     `f:1: expected a result of`,
		`{"metadata": {}, "a": 1}`:                           `f:1: expected a result of`,
		`{"metadata": {"request_end_ns": 4}, "metrics": {}}`: `f:1: request_start_ns is missing`,
		`{"request_latency": {"unit": "weeks", "avg": 1}}`:   `f:1: field request_latency: unit is "weeks", expected ns, us, ms or sec`,
		`{"aiperf_version": "1", "request_count": {"unit": "requests", "avg": 1.5}}`:                                `f:1: field request_count: avg is 1.5, expected a whole number`,
		"{\"completed\": 1}\n{\"benchmarks\": [{}]}":                                                                `f:2: benchmarks[0] has no metrics, expected those of GuideLLM`,
		`{"metadata": {"request_start_ns": 5, "request_end_ns": 4}, "metrics": {}}`:                                 `f:1: it ends before it was sent (request_end_ns < request_start_ns)`,
		`{"metadata": {"request_start_ns": 5, "request_end_ns": 6}, "metrics": {"request_latency": {"unit": "h"}}}`: `f:1: unit is "h", expected ns, us, ms or sec`,
	} {
		if _, _, err := readResults(strings.NewReader(text), "f"); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s:\n got %v\nwant %s", text, err, want)
		}
	}
}

// Whatever is read can be printed, and its requests obey time.
func FuzzClients(f *testing.F) {
	paths, err := filepath.Glob("testdata/*.json*")
	if err != nil || len(paths) == 0 {
		f.Fatal("no seeds")
	}
	for _, p := range paths {
		text, err := os.ReadFile(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		runs, _, err := readResults(strings.NewReader("{"+strings.TrimPrefix(text, "{")), "f")
		if err != nil {
			return
		}
		var b bytes.Buffer
		for _, m := range runs {
			if err := m.Print(&b); err != nil {
				t.Fatal(err)
			}
			if err := m.WriteJSON(&b); err != nil {
				t.Fatal(err)
			}
			for _, r := range m.Records {
				if r.Sent < r.Arrival || r.Finish < r.Sent {
					t.Fatalf("%+v", r)
				}
			}
		}
	})
}
