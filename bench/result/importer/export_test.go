package importer

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lorasim/bench/result"
	"lorasim/sim/record"
	"lorasim/trace"
)

// exported is a run of a few requests, one of which failed.
func exported() *result.Result {
	return run(result.Meta{RequestRate: 1}, func(i int) int32 { return int32(2 + i%5) })
}

// run is one whose request i has so many output tokens.
func run(meta result.Meta, output func(i int) int32) *result.Result {
	c := result.NewCollector(result.Options{KeepRecords: true})
	for i := range 40 {
		q := newRecord(i, float64(i), float64(i)+0.1+0.01*float64(i%7), 0, float64(100+i), float64(output(i)))
		for j := range int(q.Output) - 1 {
			q.Gaps = append(q.Gaps, 0.02+0.001*float64(i%3+j))
		}
		q.Finish = q.FirstToken
		for _, g := range q.Gaps {
			q.Finish += g
		}
		q.Streamed = record.Streamed
		if i == 17 {
			q.Status, q.Error, q.FirstToken, q.Output, q.Gaps = record.Failed, "reset", math.NaN(), 0, nil
			q.Finish = q.Sent + 1
		}
		c.Done(&q)
		c.AddGaps(&q)
	}
	meta.Source, meta.Backend = result.Sim, "lorasim"
	return c.Result(meta, nil)
}

// reread exports a run and imports the file.
func reread(t *testing.T, form string, r *result.Result) (run *Imported, text []byte) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "x.json")
	if err := Export(form+":"+file, r); err != nil {
		t.Fatal(err)
	}
	runs, _, err := Files(t.Context(), trace.Files{}, []string{file})
	if err != nil || len(runs) != 1 {
		t.Fatalf("%s: %d runs, %v", form, len(runs), err)
	}
	text, err = os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return runs[0], text
}

// What is written is read back with the figures of the run, but for those that a
// benchmark defines in another way or does not have.
func TestExportIsReadBack(t *testing.T) {
	r := exported()
	for form, lacks := range map[string]string{
		"aiperf":         "max_output_tokens_per_s max_concurrent_requests total_input_text_tokens total_output_tokens_retokenized total_input_vision_tokens",
		"guidellm":       "tpot itl max_output_tokens_per_s total_input_text_tokens total_output_tokens_retokenized total_input_vision_tokens",
		"inference-perf": "std_ concurrency concurrent max_output_tokens_per_s total_input_text_tokens total_output_tokens_retokenized total_input_vision_tokens",
	} {
		read, _ := reread(t, form, r)
		compared := 0
		for m := range result.NumMetrics {
			other := false
			for _, part := range strings.Fields(lacks) {
				other = other || strings.Contains(m.String(), part)
			}
			want, ok := r.Metrics.Get(m)
			if !ok || other {
				continue
			}
			compared++
			if got, ok := read.Metrics.Get(m); !ok || math.Abs(got-want) > 1e-9*math.Abs(want) {
				t.Errorf("%s: %s is %v, expected %v", form, m, got, want)
			}
		}
		if compared < 20 {
			t.Errorf("%s: %d metrics compared", form, compared)
		}
		if e := read.Endings(); e == nil || e.Requests != 40 || e.Failed != 1 {
			t.Errorf("%s: ended %+v", form, e)
		}
	}
}

// GuideLLM's own definitions: the time of a token counts the first, and requests
// weigh by their tokens.
func TestGuideLLMDefinitions(t *testing.T) {
	r := exported()
	read, _ := reread(t, "guidellm", r)
	e2e, decode, tokens, later := 0.0, 0.0, 0.0, 0.0
	for _, q := range r.Records {
		if q.Status == record.OK {
			e2e, decode, tokens, later = e2e+q.E2E(), decode+q.Finish-q.FirstToken, tokens+float64(q.Output),
				later+float64(q.Output-1)
		}
	}
	for m, want := range map[result.ID]float64{result.MeanTPOT: 1000 * e2e / tokens,
		result.MeanITL: 1000 * decode / later} {
		if got, _ := read.Metrics.Get(m); math.Abs(got-want) > 1e-9*want {
			t.Errorf("%s is %v, expected %v", m, got, want)
		}
	}
	if len(read.Records) != 40 || read.Records[3].Prompt != 103 {
		t.Errorf("%d requests", len(read.Records))
	}
}

// A latency of which a run has no values is left out: every benchmark reports
// zeros as zeros. What a client without streams sees is the end of a request.
func TestExportWithoutLatencies(t *testing.T) {
	one := func(int) int32 { return 1 }
	several := func(int) int32 { return 5 }
	for name, c := range map[string]struct {
		run  *result.Result
		none []result.ID
	}{
		"one token each": {run(result.Meta{}, one), []result.ID{result.MeanITL, result.P99ITL, result.MaxITL}},
		"not streamed": {run(result.Meta{Streamed: record.NotStreamed}, several),
			[]result.ID{result.MeanTTFT, result.P99TTFT, result.MeanITL}},
	} {
		for form := range exports {
			read, _ := reread(t, form, c.run)
			for _, m := range c.none {
				if v, ok := read.Metrics.Get(m); ok {
					t.Errorf("%s, %s: %s is %v, expected none", name, form, m, v)
				}
			}
			if v, _ := read.Metrics.Get(result.MeanE2E); !(v > 100) {
				t.Errorf("%s, %s: mean E2E is %v ms", name, form, v)
			}
			if _, ok := read.Metrics.Get(result.MeanTPOT); ok && form != "guidellm" { // which counts the first token
				t.Errorf("%s, %s: has a TPOT", name, form)
			}
		}
	}
}

// GuideLLM's console, CSV and HTML need every metric of every status, and its
// reader every field of a strategy and a profile, if only null.
func TestGuideLLMIsWhole(t *testing.T) {
	for _, c := range []struct {
		meta                result.Meta
		strategy, limitedBy string // fields beside the type
	}{
		{result.Meta{RequestRate: result.Unlimited()}, "throughput", "max_concurrency"},
		{result.Meta{RequestRate: result.Unlimited(), MaxConcurrency: 8}, "concurrent", "streams"},
		{result.Meta{RequestRate: 3}, "constant", "rate max_concurrency"},
		{result.Meta{RequestRate: 3, MaxConcurrency: 8}, "constant", "rate max_concurrency"},
		{result.Meta{RequestRate: result.TraceRate}, "trace", ""},
	} {
		read, text := reread(t, "guidellm", run(c.meta, func(i int) int32 { return int32(1 + i) }))
		if read.RequestRate != c.meta.RequestRate || read.MaxConcurrency != c.meta.MaxConcurrency ||
			read.Strategy != c.strategy {
			t.Errorf("%s at %v with at most %d in flight, expected %s %v %d", read.Strategy, read.RequestRate,
				read.MaxConcurrency, c.strategy, c.meta.RequestRate, c.meta.MaxConcurrency)
		}
		var report struct {
			Config     struct{ Spec struct{ Profile object } }
			Benchmarks []struct {
				Config  struct{ Strategy object }
				Metrics map[string]json.RawMessage
			}
		}
		if err := json.Unmarshal(text, &report); err != nil {
			t.Fatal(err)
		}
		for _, field := range strings.Fields(c.limitedBy) {
			_, ofStrategy := report.Benchmarks[0].Config.Strategy[field]
			if _, ofProfile := report.Config.Spec.Profile[field]; !ofStrategy || !ofProfile {
				t.Errorf("%s: no %s", c.strategy, field)
			}
		}
		count := func(metric, status string) int {
			var m map[string]struct{ Count *int }
			if err := json.Unmarshal(report.Benchmarks[0].Metrics[metric], &m); err != nil || m[status].Count == nil {
				t.Fatalf("%s of %s: %v", metric, status, err)
			}
			return *m[status].Count
		}
		for _, metric := range strings.Fields(guideRest) {
			for _, status := range []string{"successful", "errored", "incomplete", "total"} {
				count(metric, status)
			}
		}
		if ok, bad, all := count("total_token_count", "successful"), count("total_token_count",
			"errored"), count("total_token_count", "total"); ok != 39 || bad != 1 || all != 40 {
			t.Errorf("tokens of %d, %d and %d requests, expected 39, 1 and 40", ok, bad, all)
		}
	}
}

func TestExportErrors(t *testing.T) {
	for spec, want := range map[string]string{
		"x":        `"x", expected FORMAT:FILE with a format of aiperf, guidellm, inference-perf`,
		"aiperf:":  `"aiperf:", expected FORMAT:FILE`,
		"aipref:f": `did you mean "aiperf"?`,
	} {
		if err := Export(spec, exported()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, expected %s", spec, err, want)
		}
	}
	r := exported()
	r.Records = nil
	file := filepath.Join(t.TempDir(), "x.json")
	if err := Export("aiperf:"+file, r); err == nil || !strings.Contains(err.Error(), "records") {
		t.Error(err)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("a file was left")
	}
}

// byHand is a run of three requests, of which one never ended.
func byHand() *result.Result {
	r := &result.Result{Records: []record.Request{
		newRecord(0, 5, 5.5, 9, 10, 3), newRecord(1, 3, 3.25, 4, 20, 1), newRecord(2, 4, math.NaN(), math.NaN(), 30, 0),
	}}
	r.Records[0].Cached, r.Records[2].Status = 4, record.Unfinished
	for m, v := range map[result.ID]float64{result.Completed: 2, result.MeanE2E: 2500, result.MeanTTFT: 375,
		result.MeanTPOT: 1750, result.MeanITL: 1750, result.MaxITL: 1900} {
		r.Metrics.Set(m, v)
	}
	r.Ended = &result.Endings{Requests: 3, Unfinished: 1}
	return r
}

// Times begin with the first request, and end with the last that ended, or with the
// run; a request that never ended is counted alone. Latencies have the extremes of
// the requests, in the unit of each benchmark.
func TestExportByHand(t *testing.T) {
	decode := func(form string, r *result.Result) (v any) {
		_, text := reread(t, form, r)
		if err := json.Unmarshal(text, &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	whole := byHand()
	whole.Metrics.Set(result.Duration, 8)
	for _, c := range []struct {
		form string
		r    *result.Result
		want map[string]float64
	}{
		{"guidellm", byHand(), map[string]float64{
			"benchmarks.0.start_time": 3, "benchmarks.0.end_time": 9, "benchmarks.0.duration": 6,
			"benchmarks.0.requests.successful.0.time_to_first_token_ms":  500,
			"benchmarks.0.metrics.request_latency.successful.min":        1,
			"benchmarks.0.metrics.request_latency.successful.max":        4,
			"benchmarks.0.metrics.time_to_first_token_ms.successful.min": 250,
			"benchmarks.0.metrics.time_to_first_token_ms.successful.max": 500,
			"benchmarks.0.metrics.request_totals.incomplete":             1,
		}},
		{"guidellm", whole, map[string]float64{"benchmarks.0.start_time": 3, "benchmarks.0.end_time": 11,
			"benchmarks.0.duration": 8}},
		{"aiperf", whole, map[string]float64{
			"request_latency.min": 1000, "request_latency.max": 4000, "request_latency.count": 2,
			"time_to_first_token.min": 250, "time_to_first_token.max": 500,
			"inter_token_latency.min": 1750, "inter_token_latency.max": 1750, "inter_token_latency.count": 1,
			"inter_chunk_latency.max": 1900,
		}},
		{"inference-perf", whole, map[string]float64{
			"successes.latency.request_latency.min": 1, "successes.latency.request_latency.max": 4,
			"successes.latency.time_to_first_token.max": 0.5,
			"successes.latency.inter_token_latency.max": 1.9, "successes.prompt_tokens.total": 30,
			"successes.prompt_tokens.cached": 4, "successes.prompt_tokens.uncached": 26,
			"failures.count": 1, "load_summary.count": 3,
		}},
	} {
		v := decode(c.form, c.r)
		for path, want := range c.want {
			if got := at(t, v, path); math.Abs(got-want) > 1e-9 {
				t.Errorf("%s: %s is %v, expected %v", c.form, path, got, want)
			}
		}
	}
	if read, _ := reread(t, "guidellm", byHand()); len(read.Records) != 2 || read.Records[1].TTFT() != 0.5 {
		t.Errorf("%+v", read.Records)
	}
}

// Reasons that are known, and one more for what they leave.
func TestFailures(t *testing.T) {
	known := result.Reason{Status: "failed", Reason: "reset", Count: 2}
	for _, c := range []struct {
		ended   *result.Endings
		n, more int64
	}{
		{nil, 0, 0}, {&result.Endings{Requests: 9, Failed: 2, Reasons: []result.Reason{known}}, 2, 0},
		{&result.Endings{Requests: 90, Failed: 2, Rejected: 4, Aborted: 8, Unfinished: 16,
			Reasons: []result.Reason{known}}, 30, 28},
	} {
		n, reasons := failures(&result.Result{Ended: c.ended})
		left := int64(0)
		for _, r := range reasons {
			if r != known {
				left += r.Count
			}
		}
		if n != c.n || left != c.more {
			t.Errorf("%+v: %d failures, %+v", c.ended, n, reasons)
		}
	}
}

// By hand: the mean of 4, 1 and 3 is 8/3, and of their squares 26/3; with weights 1,
// 2 and 5, 8 in all, 21/8 and 63/8.
func TestSummarize(t *testing.T) {
	for _, c := range []struct {
		weights []float64
		want    map[string]float64
	}{
		{nil, map[string]float64{"mean": 8.0 / 3, "variance": 26.0/3 - 64.0/9, "std_dev": math.Sqrt(14.0 / 9),
			"median": 3, "p25": 1, "p75": 4, "p90": 4, "min": 1, "max": 4, "count": 3, "total_sum": 8}},
		{[]float64{1, 2, 5}, map[string]float64{"mean": 21.0 / 8, "variance": 63.0/8 - 441.0/64, "median": 3, "p25": 1,
			"p75": 3, "p90": 4, "total_sum": 21, "count": 3}},
	} {
		s := summarize([]float64{4, 1, 3}, c.weights)
		for name, want := range c.want {
			v, ok := s[name]
			if !ok {
				v = s["percentiles"].(object)[name]
			}
			if n, is := v.(int); is {
				v = float64(n)
			}
			if got, _ := v.(float64); math.Abs(got-want) > 1e-12 {
				t.Errorf("weights %v: %s is %v, expected %v", c.weights, name, v, want)
			}
		}
	}
	if s := summarize(nil, nil); s["mean"] != 0.0 || s["std_dev"] != 0.0 || s["max"] != 0.0 {
		t.Errorf("of nothing: %v", s)
	}
}
