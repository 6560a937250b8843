package requestlog

import (
	"testing"
)

// Whatever a log holds, Read returns an error or a workload whose requests are in order and pass their check.
func FuzzRead(f *testing.F) {
	prompts, outputs := histograms()
	for _, m := range mutations() {
		f.Add([]byte(m.text))
	}
	for _, text := range []string{
		access(asJSON), access(asText), perf(false), perf(true), blis(),
		"time,adapter,prompt_tokens,output_tokens\n1,a,2,3\n", "ts;isl;osl\n2024-01-01;5;6\n", spans(),
		matrix(seriesOf(`"model_name":"a"`, 3, 20)) + prompts + outputs,
		`[{"time":1e18,"prompt_tokens":"1,000","completion_tokens":3.0}]`, "{\"a\":{\"b\":[{}]}}", "a|b\n\"", "[",
		"{}{}",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 1<<16 {
			return
		}
		w, report, err := Read(t.Context(), []string{write(t, "log", string(text))}, Options{MaxDrawn: 10_000})
		if err != nil {
			return
		}
		if int64(len(w.Requests)) != report.Kept || report.Kept > report.Rows {
			t.Errorf("%d requests, report %+v", len(w.Requests), report)
		}
		for i, r := range w.Requests {
			if err := r.Check(len(w.Adapters)); err != nil || r.ID != int64(i) || i > 0 &&
				r.Arrival < w.Requests[i-1].Arrival {
				t.Fatalf("request %d: %+v, %v", i, r, err)
			}
		}
	})
}
