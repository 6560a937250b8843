package importer

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"lorasim/bench/result"
)

// A knownRun is a run whose figures are known, to write in the formats of all clients.
type knownRun struct {
	requests []knownRequest
	flags    uint8
}

type knownRequest struct {
	sent, ttft float64   // s
	gaps       []float64 // s, one for each token but the first
	prompt     int
	failed     bool
}

// What clients do to their files.
const (
	withFailures uint8 = 1 << iota
	withNaN            // of a figure that the test does not check
	withUnknownKey
	withBadRow // in formats with a row for each request
	flagsEnd
)

func newKnownRun(seed uint64, flags uint8) *knownRun {
	rng := rand.New(rand.NewPCG(seed, 7))
	k := &knownRun{flags: flags}
	at := 0.0
	for i := range 4 + rng.IntN(8) {
		q := knownRequest{sent: at, ttft: 0.01 + rng.Float64(), prompt: 1 + rng.IntN(500)}
		for range 1 + rng.IntN(6) {
			q.gaps = append(q.gaps, 0.001+0.1*rng.Float64())
		}
		q.failed = flags&withFailures != 0 && i%3 == 1
		k.requests = append(k.requests, q)
		at += rng.Float64()
	}
	return k
}

func (q *knownRequest) e2e() float64 {
	sum := q.ttft
	for _, g := range q.gaps {
		sum += g
	}
	return sum
}

func (q *knownRequest) output() int { return len(q.gaps) + 1 }

// sum adds a value over the requests that succeeded.
func (k *knownRun) sum(of func(*knownRequest) float64) (sum float64) {
	for i := range k.requests {
		if q := &k.requests[i]; !q.failed {
			sum += of(q)
		}
	}
	return sum
}

func (k *knownRun) completed() float64 { return k.sum(func(*knownRequest) float64 { return 1 }) }
func (k *knownRun) failed() int        { return len(k.requests) - int(k.completed()) }
func (k *knownRun) mean(of func(*knownRequest) float64) float64 {
	return k.sum(of) / k.completed()
}
func (k *knownRun) duration() (end float64) {
	for i := range k.requests {
		if q := &k.requests[i]; !q.failed {
			end = max(end, q.sent+q.e2e())
		}
	}
	return end
}

// truth returns the figures that a file may state.
func (k *knownRun) truth() map[result.ID]float64 {
	tokens := func(q *knownRequest) float64 { return float64(q.output()) }
	prompts := func(q *knownRequest) float64 { return float64(q.prompt) }
	return map[result.ID]float64{
		result.Completed: k.completed(), result.TotalInputTokens: k.sum(prompts),
		result.TotalOutputTokens: k.sum(tokens),
		result.MeanE2E:           1000 * k.mean((*knownRequest).e2e),
		result.MeanTTFT:          1000 * k.mean(func(q *knownRequest) float64 { return q.ttft }),
	}
}

// entries returns the truth under the names of the JSON lines of vLLM or sglang.
func (k *knownRun) entries(names map[result.ID]string) map[string]any {
	out := map[string]any{"duration": k.duration()}
	for id, v := range k.truth() {
		name := id.String()
		if other := names[id]; other != "" {
			name = other
		}
		out[name] = v
	}
	if k.flags&withUnknownKey != 0 {
		out["new_in_2027"] = map[string]any{"a": []any{1, nil}}
	}
	return out
}

// text writes a value as Python does, with NaN where the run has one.
func (k *knownRun) text(v any, nan string) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	if k.flags&withNaN != 0 {
		return strings.Replace(string(text), "{", `{"`+nan+`": NaN, `, 1)
	}
	return string(text)
}

var vllmNames = map[result.ID]string{result.MeanE2E: "mean_e2el_ms"}

// vllm is a result of vllm bench serve. detailed adds the arrays of --save-detailed, in which E2E is TTFT and gaps.
func (k *knownRun) vllm(failedKey, detailed, latencies bool) map[string]any {
	out := k.entries(vllmNames)
	out["tokenizer_id"], out["num_prompts"], out["request_rate"] = "m", len(k.requests), "inf"
	if failedKey {
		out["failed"] = k.failed()
	}
	if !detailed {
		return out
	}
	delete(out, "mean_e2el_ms")
	var inputs, outputs []int
	var starts, ttfts, all []float64
	var itls [][]float64
	var errs []string
	for i := range k.requests {
		q := k.requests[i]
		if inputs, starts = append(inputs, q.prompt), append(starts, 1000+q.sent); q.failed {
			outputs, ttfts, itls = append(outputs, 0), append(ttfts, 0), append(itls, []float64{})
			errs, all = append(errs, "Bad Gateway"), append(all, 0)
			continue
		}
		outputs, ttfts, itls = append(outputs, q.output()), append(ttfts, q.ttft), append(itls, q.gaps)
		errs, all = append(errs, ""), append(all, q.e2e())
	}
	out["input_lens"], out["output_lens"], out["start_times"], out["ttfts"] = inputs, outputs, starts, ttfts
	out["itls"], out["errors"] = itls, errs
	if latencies {
		out["latencies"] = all
	}
	return out
}

// block is the block of vLLM, with the row of failures or, before 2025-09, with the arguments alone.
func (k *knownRun) block(old bool) string {
	t := k.truth()
	var b strings.Builder
	row := func(label string, v float64) { fmt.Fprintf(&b, "%-40s %-10.2f\n", label, v) }
	count := func(label string, v float64) { fmt.Fprintf(&b, "%-40s %-10.0f\n", label, v) }
	fmt.Fprintf(&b, "Namespace(num_prompts=%d, request_rate=inf)\n%s", len(k.requests), head)
	count("Successful requests:", t[result.Completed])
	if !old {
		count("Failed requests:", float64(k.failed()))
	}
	count("Total input tokens:", t[result.TotalInputTokens])
	count("Total generated tokens:", t[result.TotalOutputTokens])
	if k.flags&withUnknownKey != 0 {
		row("New in 2027:", 1)
	}
	row("Total Token throughput (tok/s):", 5)
	row("Mean TTFT (ms):", t[result.MeanTTFT])
	if k.flags&withNaN != 0 {
		b.WriteString("P99 TTFT (ms):                           nan       \n")
	}
	row("Mean E2EL (ms):", t[result.MeanE2E])
	return b.String() + foot
}

// lines writes an object for each request.
func (k *knownRun) lines(nan, bad string, one func(i int, q *knownRequest) map[string]any) string {
	var b strings.Builder
	for i := range k.requests {
		b.WriteString(k.text(one(i, &k.requests[i]), nan) + "\n")
		if i == 1 && k.flags&withBadRow != 0 {
			b.WriteString(bad + "\n")
		}
	}
	return b.String()
}

func unit(v any, unit string) map[string]any { return map[string]any{"value": v, "unit": unit} }

func (k *knownRun) aiperfRequests() string {
	bad := `{"metadata": {"request_start_ns": 9, "request_end_ns": 8}, "metrics": {}}`
	return k.lines("x", bad, func(_ int, q *knownRequest) map[string]any {
		start := 1e9 * (1000 + q.sent)
		out := map[string]any{"metadata": map[string]any{"request_start_ns": int64(start),
			"request_end_ns": int64(start + 1e9*q.e2e())}}
		if q.failed {
			out["error"], out["metrics"] = map[string]any{"code": 500, "message": "x"}, map[string]any{}
			return out
		}
		out["metrics"] = map[string]any{"request_latency": unit(1000*q.e2e(), "ms"),
			"time_to_first_token": unit(1000*q.ttft, "ms"), "inter_chunk_latency": unit(q.gaps, "s"),
			"input_sequence_length": unit(q.prompt, "tokens"), "output_sequence_length": unit(q.output(), "tokens")}
		return out
	})
}

// aiperf is a summary of AIPerf, or, old, of GenAI-Perf, whose numbers are texts in ns.
func (k *knownRun) aiperf(old bool) string {
	t := k.truth()
	of := func(v float64, unit string) map[string]any { return map[string]any{"avg": v, "unit": unit} }
	out := map[string]any{"request_count": of(t[result.Completed], "requests"),
		"error_request_count":   of(float64(k.failed()), "requests"),
		"input_sequence_length": of(t[result.TotalInputTokens]/t[result.Completed], "tokens"),
		"total_osl":             of(t[result.TotalOutputTokens], "tokens"),
		"request_latency":       of(t[result.MeanE2E], "ms"), "time_to_first_token": of(t[result.MeanTTFT], "ms")}
	if old {
		text := func(v float64) map[string]any { return map[string]any{"avg": fmt.Sprint(v * 1e6), "unit": "ns"} }
		out["request_latency"], out["time_to_first_token"] = text(t[result.MeanE2E]), text(t[result.MeanTTFT])
	}
	if k.flags&withUnknownKey != 0 {
		out["input_config"] = map[string]any{"endpoint": "v1/chat", "loadgen": []any{}}
	}
	return k.text(out, "benchmark_id")
}

func (k *knownRun) aiperfTable() string {
	t := k.truth()
	return fmt.Sprintf("Metric,avg,min,max\nRequest Latency (ms),\"%s\",1,2\nTime to First Token (ms),%g,,\n\n"+
		"Metric,Value\nRequest Count,%g\nError Request Count,%d\n", withCommas(t[result.MeanE2E]), t[result.MeanTTFT],
		t[result.Completed], k.failed())
}

// withCommas writes a number with a comma after the thousands.
func withCommas(v float64) string {
	s := fmt.Sprintf("%.4f", v)
	if point := strings.Index(s, "."); point > 3 {
		return s[:point-3] + "," + s[point-3:]
	}
	return s
}

func (k *knownRun) guide(old bool) string {
	t := k.truth()
	of := func(v float64, total float64) map[string]any {
		return map[string]any{"successful": map[string]any{"mean": v, "count": t[result.Completed], "total_sum": total}}
	}
	metrics := map[string]any{"request_latency": of(t[result.MeanE2E]/1000, 0),
		"time_to_first_token_ms": of(t[result.MeanTTFT], 0), "prompt_token_count": of(0, t[result.TotalInputTokens]),
		"output_token_count": of(0, t[result.TotalOutputTokens])}
	totals := map[string]any{"successful": t[result.Completed], "errored": k.failed(), "incomplete": 0}
	bench := map[string]any{"metrics": metrics}
	if old {
		bench["run_stats"] = map[string]any{"requests_made": totals}
	} else {
		metrics["request_totals"] = totals
	}
	if k.flags&withUnknownKey != 0 {
		bench["config"] = []any{1}
	}
	return k.text(map[string]any{"benchmarks": []any{bench}}, "x")
}

func (k *knownRun) perf(old bool) string {
	t := k.truth()
	of := func(v float64) map[string]any { return map[string]any{"mean": v / 1000} }
	ok := map[string]any{"count": t[result.Completed], "latency": map[string]any{
		"request_latency": of(t[result.MeanE2E]), "time_to_first_token": of(t[result.MeanTTFT]),
		"inter_token_latency": nil}}
	out := map[string]any{"successes": ok, "failures": map[string]any{"count": k.failed()},
		"load_summary": map[string]any{"count": len(k.requests)}}
	if old {
		ok["prompt_len"] = map[string]any{"mean": t[result.TotalInputTokens] / t[result.Completed]}
	} else {
		out["benchmark_time_seconds"] = k.duration()
		ok["prompt_tokens"] = map[string]any{"total": t[result.TotalInputTokens]}
		ok["output_tokens"] = map[string]any{"total": t[result.TotalOutputTokens]}
	}
	return k.text(out, "x")
}

func (k *knownRun) perfRequests() string {
	bad := `{"start_time": 1001, "end_time": 1000.5, "info": {}, "request": ""}`
	text := k.lines("x", bad, func(_ int, q *knownRequest) map[string]any {
		times := []float64{1000 + q.sent + q.ttft}
		for _, g := range q.gaps {
			times = append(times, times[len(times)-1]+g)
		}
		out := map[string]any{"start_time": 1000 + q.sent, "end_time": 1000 + q.sent + q.e2e(), "request": "{}",
			"info": map[string]any{"request_metrics": map[string]any{"text": map[string]any{"input_tokens": q.prompt}},
				"response_metrics": map[string]any{"output_tokens": q.output(), "output_token_times": times}}}
		if q.failed {
			out["error"] = map[string]any{"error_type": "x"}
		}
		return out
	})
	return "[" + strings.ReplaceAll(strings.TrimSpace(text), "\n", ",\n") + "]"
}

func (k *knownRun) llmperf() string {
	t := k.truth()
	return k.text(map[string]any{"results_num_requests_started": len(k.requests),
		"results_num_completed_requests": t[result.Completed], "results_number_errors": k.failed(),
		"results_end_to_end_latency_s_mean": t[result.MeanE2E] / 1000, "results_ttft_s_mean": t[result.MeanTTFT] / 1000,
		"results_number_input_tokens_mean": t[result.TotalInputTokens] / t[result.Completed],
		"results_ttft_s_min":               "0.1", "results_error_code_frequency": "{}"}, "x")
}

func (k *knownRun) llmperfRequests() string {
	bad := `{"end_to_end_latency_s": -1, "ttft_s": 0.1, "number_output_tokens": 3, "error_code": null}`
	return k.lines("x", bad, func(_ int, q *knownRequest) map[string]any {
		if q.failed {
			return map[string]any{"error_code": 500, "number_output_tokens": 0}
		}
		return map[string]any{"end_to_end_latency_s": q.e2e(), "ttft_s": q.ttft, "error_code": nil,
			"number_input_tokens": q.prompt, "number_output_tokens": q.output()}
	})
}

// knownFormats write a run in each format of each client.
var knownFormats = []struct {
	name  string
	write func(*knownRun) string
	rows  bool // one for each request
}{
	{name: "vllm", write: func(k *knownRun) string { return k.text(k.vllm(true, false, false), "p99_ttft_ms") }},
	{name: "vllm before failed", write: func(k *knownRun) string {
		return k.text(k.vllm(false, false, false), "p99_ttft_ms")
	}},
	{name: "vllm detailed", write: func(k *knownRun) string { return k.text(k.vllm(true, true, false), "rtfx") }},
	{name: "vllm latencies", write: func(k *knownRun) string { return k.text(k.vllm(false, true, true), "rtfx") }},
	{name: "vllm sweep", write: func(k *knownRun) string {
		return "[\n" + k.text(k.vllm(true, false, false), "rtfx") + "\n]"
	}},
	{name: "vllm sweep table", write: func(k *knownRun) string {
		t := k.truth()
		return fmt.Sprintf(",completed,failed,duration,mean_ttft_ms,mean_e2el_ms,p99_itl_ms\n0,%g,%d,%g,%g,%g,nan\n",
			t[result.Completed], k.failed(), k.duration(), t[result.MeanTTFT], t[result.MeanE2E])
	}},
	{name: "vllm block", write: func(k *knownRun) string { return k.block(false) }},
	{name: "vllm block before failed", write: func(k *knownRun) string { return k.block(true) }},
	{name: "sglang", write: func(k *knownRun) string {
		out := k.entries(nil)
		out["errors"] = append(make([]string, len(k.requests)-k.failed()), strings.Fields(strings.Repeat("x ",
			k.failed()))...)
		return k.text(out, "accept_length")
	}},
	{name: "aiperf requests", write: (*knownRun).aiperfRequests, rows: true},
	{name: "aiperf", write: func(k *knownRun) string { return k.aiperf(false) }},
	{name: "genai-perf", write: func(k *knownRun) string { return k.aiperf(true) }},
	{name: "aiperf table", write: (*knownRun).aiperfTable},
	{name: "guidellm", write: func(k *knownRun) string { return k.guide(false) }},
	{name: "guidellm before 0.4", write: func(k *knownRun) string { return k.guide(true) }},
	{name: "inference-perf", write: func(k *knownRun) string { return k.perf(false) }},
	{name: "inference-perf before 0.5", write: func(k *knownRun) string { return k.perf(true) }},
	{name: "inference-perf requests", write: (*knownRun).perfRequests, rows: true},
	{name: "llmperf", write: (*knownRun).llmperf},
	{name: "llmperf requests", write: (*knownRun).llmperfRequests, rows: true},
	{name: "locust table", write: func(k *knownRun) string {
		return fmt.Sprintf("Type,Name,Request Count,Failure Count,Median Response Time\n,Aggregated,%d,%d,5\n",
			len(k.requests), k.failed())
	}},
}

// checkKnown writes a known run in a format and reads it: every figure that the reader gives is the true one, the
// failures are all there, and a bad row costs one row.
func checkKnown(t *testing.T, seed uint64, format int, flags uint8) {
	f := knownFormats[format]
	k := newKnownRun(seed, flags)
	text := f.write(k)
	runs, _, err := readResults(strings.NewReader(text), "f")
	if err != nil || len(runs) != 1 {
		t.Fatalf("%s, flags %d: %d runs, %v\n%s", f.name, flags, len(runs), err, text)
	}
	m := runs[0]
	for id, want := range k.truth() {
		got, ok := m.Metrics.Get(id)
		if ok && math.Abs(got-want) > 0.006+1e-5*want {
			t.Errorf("%s, flags %d: %s is %v, want %v\n%s", f.name, flags, id, got, want, text)
		}
		must := id == result.Completed || id == result.MeanE2E && !strings.HasPrefix(f.name, "locust")
		if must && !ok {
			t.Errorf("%s, flags %d: no %s\n%s", f.name, flags, id, text)
		}
	}
	failed := int64(0)
	if e := m.Endings(); e != nil {
		failed = e.Unsuccessful()
	}
	if failed != int64(k.failed()) {
		t.Errorf("%s, flags %d: %d failures, want %d\n%s", f.name, flags, failed, k.failed(), text)
	}
	if bad := f.rows && flags&withBadRow != 0; bad != (m.Left.Rows() == 1) {
		t.Errorf("%s, flags %d: left out: %v\n%s", f.name, flags, m.Left.Lines(), text)
	}
	for i := range m.Records {
		if r := &m.Records[i]; i < len(k.requests) && math.Abs(r.Sent-k.requests[i].sent) > 1e-6 {
			t.Errorf("%s, flags %d: request %d was sent at %v, want %v\n%s", f.name, flags, i, r.Sent,
				k.requests[i].sent, text)
		}
	}
}

func TestKnownRuns(t *testing.T) {
	for format := range knownFormats {
		for flags := range flagsEnd {
			for seed := range uint64(3) {
				checkKnown(t, seed, format, flags)
			}
		}
	}
}

func FuzzKnownRuns(f *testing.F) {
	for format := range knownFormats {
		f.Add(uint64(5), uint8(format), uint8(0xff))
	}
	f.Fuzz(func(t *testing.T, seed uint64, format, flags uint8) {
		checkKnown(t, seed, int(format)%len(knownFormats), flags%flagsEnd)
	})
}
