package scenario

import (
	"math"
	"slices"
	"strings"
	"testing"

	"lorasim/internal/shareddata"
	"lorasim/internal/testutil"
	"lorasim/trace"
	"lorasim/trace/requestlog"
)

// Files of benchmark clients become workloads: with their own times where they state them, else at the run's rate.
func TestReadLogOfClients(t *testing.T) {
	const lists = `"input_lens": [20, 40, 30], "output_lens": [5, 3, 2], "ttfts": [0.1, 0.2, 0.1], "itls": [[0.1], [0.2], []], ` +
		`"errors": ["", "", "Bad Gateway"], "generated_texts": ["", "", ""]`
	const figures = `"backend": "sglang", "completed": 2, "duration": 4.0, "request_rate": 2.0, "total_input_tokens": 60, `
	for name, c := range map[string]struct{ text, note string }{
		"vllm": {`{` + figures + lists + `, "latencies": [0.5, 1.5, 0], "start_times": [1000.25, 1000.75, 1001.0]}`,
			""},
		"sglang": {`{` + figures + lists + `}`, "drawn with seed 3 as a Poisson process at its request rate (2.0/s)"},
	} {
		w, report, err := ReadLog(t.Context(), []string{testutil.File(t, name+".json", c.text)},
			requestlog.Options{Seed: 3})
		if err != nil {
			t.Fatal(name, err)
		}
		if len(w.Requests) != 2 || report.Rows != 3 || report.Kept != 2 ||
			!strings.Contains(strings.Join(report.Assumed, ""), c.note) {
			t.Fatalf("%s: %+v, %+v", name, w, report)
		}
		a, b := w.Requests[0], w.Requests[1]
		want := trace.Request{ID: 1, Arrival: 0.5, Adapter: a.Adapter, Prompt: 40, Output: 3}
		if name == "sglang" {
			want.Arrival = b.Arrival
		}
		if a.Arrival != 0 || a.Prompt != 20 || a.Output != 5 || b != want || !(b.Arrival > 0) ||
			math.IsInf(b.Arrival, 0) {
			t.Errorf("%s: %+v, %+v, expected %+v", name, a, b, want)
		}
	}
	const totals = `{` + figures + `"mean_ttft_ms": 5}`
	for text, want := range map[string]string{
		totals:                         "save them too (bench_serving --output-file FILE --output-details",
		strings.Repeat(totals+"\n", 2): "holds the results of 2 runs, expected the requests of one",
		`{"benchmark_time_seconds": 5, "successes": {"count": 3}}`: "per_request_lifecycle_metrics.json",
	} {
		_, _, err := ReadLog(t.Context(), []string{testutil.File(t, "totals.json", text)}, requestlog.Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, expected %q", err, want)
		}
	}
}

// The files in which clients of real runs saved their requests become workloads; their summaries say where the
// requests are.
func TestReadLogOfRealClients(t *testing.T) {
	for name, want := range map[string]string{
		"aiperf_profile_export.jsonl": "requests of AIPerf", "guidellm.json": "requests of GuideLLM 0.8.1",
	} {
		w, report, err := ReadLog(t.Context(), []string{shareddata.Path(t, "clients/"+name)}, requestlog.Options{})
		if err != nil || report.Format != want || len(w.Requests) < 5 || report.Kept != report.Rows {
			t.Errorf("%s: %v, %+v", name, err, report)
		}
	}
	summary := shareddata.Path(t, "clients/aiperf_profile_export_aiperf.json")
	_, _, err := ReadLog(t.Context(), []string{summary}, requestlog.Options{})
	if err == nil || !strings.Contains(err.Error(), "profile_export.jsonl") {
		t.Error(err)
	}
}

// --workload takes a log as trace import does; what a saved workload can do works on it as well.
func TestLogAsWorkload(t *testing.T) {
	log := "created,tenant,prompt_tokens,completion_tokens\n" +
		"2024-05-16T09:00:02Z,b,10,20\n2024-05-16T09:00:00Z,a,30,40\n2024-05-16T09:00:01Z,a,0,40\n"
	sc := Default()
	sc.Workload.File = testutil.File(t, "log.csv", log)
	sc.Workload.RateScale = 2
	var says []string
	sc.LogRead = func(path string, r *requestlog.Report) { says = r.Short(path) }
	w := collected(t, &sc)
	if len(w.Requests) != 2 || w.Requests[1].Arrival != 1 || w.Requests[0].Prompt != 30 ||
		!slices.Contains(says, "dropped 1: no prompt tokens (first: line 4)") {
		t.Errorf("%+v, %q", w, says)
	}
	sc.Workload.File = testutil.File(t, "base.csv",
		strings.NewReplacer("tenant", "model", "Z,b,", "Z,x,", "Z,a,", "Z,x,").Replace(log))
	collected(t, &sc)
	want := "lorasim trace import " + sc.Workload.File + " -o w.parquet --columns base=model"
	if !slices.ContainsFunc(says, func(line string) bool { return strings.HasSuffix(line, want) }) {
		t.Errorf("%q, expected %s", says, want)
	}
}
