package requestlog

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lorasim/trace"
)

// Logs of bug reports. Each was once read as another workload, without an error.
func TestCases(t *testing.T) {
	for _, c := range []struct {
		files    string // of testdata/cases, in one folder
		requests int
		span     float64 // s from the first arrival to the last; 10 % off is allowed for drawn ones
		adapters string
		says     string // part of the report, or of the error if requests is 0
	}{
		{"hash-ids-in-seconds/seconds.jsonl", 3, 60, "", `column "timestamp", s since the log's origin`},
		{"hash-ids-in-seconds/qwen.jsonl", 5, 6.611, "", `column "timestamp", s since the log's origin`},
		{"nginx-request-time/access.jsonl", 12, 162.093, "a b c", "taken off column \"time_iso8601\""},
		{"nginx-request-time/requestTime.jsonl", 12, 115.909092, "", "taken off column \"timestamp\""},
		{"nginx-request-time/date_and_time_duration.jsonl", 12, 113.541092, "", "not used   time (a duration)"},
		{"number-names-lost/log.csv", 3, 2, "42 cust-a cust-b", ""},
		{"otel-agent-spans/otlp_agent.json", 10, 84.9, "support-bot", "5 spans are not counted"},
		{"otel-agent-spans/otlp_proxy.json", 1, 0, "sql", "1 spans are not counted"},
		{"prometheus-gap/rates.json prompts.json outputs.json", 1140, 22740, "a", "360 points are missing or NaN"},
		{"prometheus-gap/rate_nan.json prompts.json outputs.json", 1140, 4740, "a", "60 points are missing or NaN"},
		{"python-nan/nan.jsonl", 3, 2, "a b", ""},
		{"python-nan/nan1.jsonl", 2, 1, "a b", ""},
		{"success-zero/success01.csv", 2, 2, "a c", "dropped    1: the request failed (first: line 3)"},
		{"success-zero/status.csv", 1, 0, "d", "dropped    7: the request failed (first: line 2)"},
		{"success-zero/errcode.jsonl", 2, 1, "a b", "dropped    1: the request failed (first: line 3)"},
		{"units-in-names/unit_camel2.csv", 2, 0.25, "a b", "ms since the log's origin"},
		{"units-in-names/unit_ts.csv", 2, 0.25, "a b", "ms since the log's origin"},
		{"units-in-names/unit_min.csv", 2, 150, "a b", "min since the log's origin"},
		{"misleading-errors/envoy.jsonl", 2, 5, "sql support", "dropped    1: the request failed (first: line 2)"},
		{"misleading-errors/err.json", 0, 0, "",
			"the answer of Prometheus is an error: bad_data: exceeded maximum resolution"},
	} {
		t.Run(c.files, func(t *testing.T) {
			folder, names, _ := strings.Cut(c.files, "/")
			var paths []string
			for name := range strings.FieldsSeq(names) {
				paths = append(paths, filepath.Join("testdata", "cases", folder, name))
			}
			w, report, err := Read(t.Context(), paths, Options{})
			if c.requests == 0 {
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%v, expected %q", err, c.says)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			off := 0.0
			if folder == "prometheus-gap" {
				off = 0.1
			}
			last := w.Requests[len(w.Requests)-1].Arrival
			if math.Abs(float64(len(w.Requests)-c.requests)) > off*float64(c.requests) ||
				math.Abs(last-c.span) > 1e-6+off*c.span || namesOf(w) != c.adapters ||
				!strings.Contains(report.String(), c.says) {
				t.Errorf("%d requests over %v s of %q, expected %d over %v s of %q and %q:\n%s", len(w.Requests), last,
					namesOf(w), c.requests, c.span, c.adapters, c.says, report)
			}
		})
	}
}

// namesOf lists the adapters of a workload by name.
func namesOf(w *trace.Workload) string {
	var names []string
	for _, a := range w.Adapters {
		names = append(names, a.Name)
	}
	return strings.Join(slices.Sorted(slices.Values(names)), " ")
}

// Requests are drawn for the steps that have points, and for no other time.
func TestPrometheusGaps(t *testing.T) {
	folder := filepath.Join("testdata", "cases", "prometheus-gap")
	w, report, err := Read(t.Context(), []string{filepath.Join(folder, "rates.json"), filepath.Join(folder,
		"prompts.json"),
		filepath.Join(folder, "outputs.json")}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	begin := float64(report.Begin.UnixNano()) / 1e9
	for _, r := range w.Requests {
		at := begin + r.Arrival - 1_772_000_000
		if !(at >= 0 && at <= 540 || at >= 22_200-60 && at <= 22_740) {
			t.Fatal(fmt.Sprint("a request arrives at ", at, " s, where the query has no points"))
		}
	}
}
