package importer

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"

	"lorasim/bench/result"
	"lorasim/trace"
)

// What files of other people hold, which earlier versions refused or read wrong.
func TestCases(t *testing.T) {
	for file, want := range map[string]struct {
		metrics  []map[result.ID]float64 // of each run
		failed   int64                   // of the first run
		records  int
		warnings []string
		err      string
	}{
		"vllm_new.log": {metrics: []map[result.ID]float64{{result.Completed: 97, result.TotalThroughput: 750,
			result.MaxConcurrentRequests: 20, result.MeanE2E: 540, result.MedianE2E: 538, result.P99E2E: 700,
			result.P90TTFT: 80, result.MaxOutputTokensPerS: 400, result.MeanITL: math.NaN(), result.MedianITL: 9,
			result.P99ITL: math.NaN()}}, failed: 3, warnings: []string{
			`vllm_new.log:24: row "Mean ITL (ms):": the value is nan: unknown`,
			`vllm_new.log:26: row "P99 ITL (ms):": the value is inf: unknown`}},
		"vllm_old.log": {metrics: []map[result.ID]float64{{result.Completed: 100, result.TotalThroughput: 750,
			result.MeanE2E: 540, result.P99E2E: 700, result.MeanITL: 10}}},
		"start-times-without-latencies_detailed.json": {records: 6,
			metrics: []map[result.ID]float64{{result.Completed: 6, result.MeanE2E: 443.708447}}},
		"sweep-array_summary.json": {metrics: []map[result.ID]float64{
			{result.Completed: 8, result.MaxConcurrentRequests: 6},
			{result.Completed: 8, result.MaxOutputTokensPerS: 85}}},
		"inference-perf-before-0.5_summary_lifecycle_metrics.json": {metrics: []map[result.ID]float64{{
			result.Completed: 1000, result.Duration: 1000 / 86.942, result.RequestThroughput: 86.942,
			result.InputThroughput: 17744.984, result.TotalThroughput: 23167.324, result.MeanE2E: 4291,
			result.MedianTTFT: 3955, result.P99ITL: 62, result.MaxITL: 102, result.TotalInputTokens: 279619}}},
		"a_zero.jsonl.gz": {records: 12, metrics: []map[result.ID]float64{{result.Completed: 12}}},
		"a_neg.jsonl.gz": {records: 11, metrics: []map[result.ID]float64{{result.Completed: 11}}, warnings: []string{
			"a_neg.jsonl.gz:3: left out: it ends before it was sent (request_end_ns < request_start_ns)"}},
		"envoy.jsonl": {err: "the object has none of their figures"},
		"err.json":    {err: "the object has none of their figures"},
	} {
		t.Run(file, func(t *testing.T) {
			path := filepath.Join("testdata", "cases", file)
			runs, warnings, err := Files(t.Context(), trace.Files{}, []string{path})
			if err != nil || want.err != "" {
				if want.err == "" || err == nil || !strings.Contains(err.Error(), want.err) {
					t.Errorf("%v, expected an error with %q", err, want.err)
				}
				return
			}
			var texts []string
			for _, w := range warnings {
				texts = append(texts, strings.TrimPrefix(w.String(), filepath.Dir(path)+"/"))
			}
			if d := cmp.Diff(want.warnings, texts); d != "" {
				t.Errorf("warnings (-want +got):\n%s", d)
			}
			if len(runs) != len(want.metrics) || len(runs[0].Records) != want.records {
				t.Fatalf("%d runs, the first with %d requests", len(runs), len(runs[0].Records))
			}
			for i, metrics := range want.metrics {
				for id, v := range metrics {
					got, ok := runs[i].Metrics.Get(id)
					if ok == math.IsNaN(v) || ok && math.Abs(got-v) > 1e-6*v {
						t.Errorf("run %d: %s is %v, %v; expected %v", i, id, got, ok, v)
					}
				}
			}
			if e := runs[0].Endings(); e != nil && e.Failed != want.failed || e == nil && want.failed > 0 {
				t.Errorf("%+v, expected %d failures", e, want.failed)
			}
		})
	}
}

// However a file states failures, the run has them.
func TestFailuresInEverySpelling(t *testing.T) {
	const latency = `"request_latency": {"unit": "ms", "avg": 5}`
	for want, texts := range map[string][]string{
		"3 of 10": {
			`{"completed": 7, "failed": 3}`,
			`{"completed": 7, "failed": 3.0}`,
			`{"completed": 7, "failed": "3"}`,
			`{"completed": 7, "num_prompts": 10}`,
			`{"completed": 7, "errors": ["", "x", null, "y", {"code": 1}]}`,
			`{"completed": 7, "errors": 3}`,
			`{"completed": 7, "errors": {"429": 1, "500": 2}}`,
			`{"completed": 7, "failures": {"count": 3}}`,
			`{"completed": 7, "num_failed_requests": 3}`,
			`{"completed": 7, "error_rate": 0.3}`,
			`{"completed": 7, "success_rate": 70, "total_requests": 10}`,
			`{` + latency + `, "request_count": {"unit": "requests", "avg": 7},
				"error_request_count": {"avg": 3}}`,
			`{` + latency + `, "request_count": {"avg": "7"},
				"error_summary": [{"error_details": 5, "count": "3"}]}`,
			`{"successes": {"count": 7}, "failures": {"count": 3}}`,
			`{"successes": {"count": 7}, "failures": {"count": "3"}}`,
			`{"successes": {"count": 7}, "load_summary": {"count": 10}}`,
			`{"results_num_completed_requests": 7, "results_number_errors": 3}`,
			`{"results_num_completed_requests": 7, "results_num_requests_started": 10}`,
			`[{"name": "a", "num_requests": 4, "num_failures": 1, "response_times": {}}, {"name": "b", "num_requests": 6,
			"num_failures": 2, "response_times": {"5": 6}}]`,
			"Type,Name,Request Count,Failure Count\n,Aggregated,10,3\n",
			`{"benchmarks": [{"metrics": {"request_totals": {"successful": 7, "errored": 3, "incomplete": 0}}}]}`,
			`{"benchmarks": [{"metrics": {}, "run_stats": {"requests_made": {"successful": 7, "errored": 3}}}]}`,
			`{"benchmarks": [{"metrics": {}, "run_stats": {"total_successful": 7, "total_errored": "3"}}]}`,
			head + "Successful requests:                     7\nFailed requests:                         3\n" + foot,
			"Namespace(num_prompts=10)\n" + head + "Successful requests:                     7\n" + foot,
		},
		"0 of 7": {
			`{"completed": 7, "num_prompts": 10, "failed": 0}`,
			`{"completed": 7, "errors": ["", ""]}`,
		},
		"1 of 8": {
			`{"completed": 7, "num_prompts": 10, "failed": 1}`,
		},
		"unknown": {
			`{"completed": 7}`,
			`{"completed": 7, "failed": -1}`,
			`{"completed": 7, "failed": "many"}`,
		},
		"10 of 10": {
			`{"completed": 0, "num_prompts": 10}`,
		},
	} {
		for _, text := range texts {
			runs, _, err := readResults(strings.NewReader(text), "f")
			if err != nil {
				t.Errorf("%s: %v", text, err)
				continue
			}
			got := "unknown"
			if e := runs[0].Endings(); e != nil {
				got = fmt.Sprintf("%d of %d", e.Unsuccessful(), e.Requests)
			}
			if got != want {
				t.Errorf("%s:\n%s failed, expected %s", text, got, want)
			}
		}
	}
}

// A line that is cut short costs its request, in the middle of a file and at its end. A result that is cut short is an
// error.
func TestCutShort(t *testing.T) {
	whole := newKnownRun(1, 0).aiperfRequests()
	lines := strings.SplitAfter(whole, "\n")
	middle := append([]string{}, lines...)
	middle[1] = middle[1][:len(middle[1])/2] + "\n"
	for name, text := range map[string]string{"middle": strings.Join(middle, ""), "end": whole[:len(whole)-20]} {
		runs, _, err := readResults(strings.NewReader(text), "f")
		if err != nil || len(runs) != 1 || len(runs[0].Records) != len(lines)-2 || runs[0].Left.Rows() != 1 {
			t.Errorf("%s: %d runs, %v", name, len(runs), err)
		}
	}
	line := `{"completed": 1, "duration": 2}`
	_, _, err := readResults(strings.NewReader(line+"\n"+line[:20]), "f")
	if err == nil || err.Error() != "f:2: the JSON object that begins here has no end" {
		t.Error(err)
	}
}

// A shell may write UTF-16.
func TestUTF16(t *testing.T) {
	for name, text := range map[string]string{"json": `{"completed": 7}`,
		"log": head + "Successful requests:                     7\n" + foot} {
		var b strings.Builder
		for _, u := range utf16.Encode([]rune("\ufeff" + text)) {
			b.Write([]byte{byte(u), byte(u >> 8)})
		}
		runs, _, err := readResults(strings.NewReader(b.String()), "f")
		if err != nil || len(runs) != 1 {
			t.Errorf("%s: %d runs, %v", name, len(runs), err)
		} else if n, _ := runs[0].Metrics.Get(result.Completed); n != 7 {
			t.Errorf("%s: %v requests", name, n)
		}
	}
}
