package importer

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lorasim/bench/result"
	"lorasim/internal/record"
)

// exported is a run of a few requests, one of which failed.
func exported() *result.Result {
	c := result.NewCollector(result.Options{KeepRecords: true})
	for i := range 40 {
		q := newRecord(i, float64(i), float64(i)+0.1+0.01*float64(i%7), 0, float64(100+i), float64(2+i%5))
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
	return c.Result(result.Meta{Source: result.Sim, Backend: "lorasim", RequestRate: 1}, nil)
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
		file := filepath.Join(t.TempDir(), "x.json")
		if err := Export(form+":"+file, r); err != nil {
			t.Fatal(err)
		}
		runs, _, err := Files([]string{file})
		if err != nil || len(runs) != 1 {
			t.Fatalf("%s: %d runs, %v", form, len(runs), err)
		}
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
			if got, ok := runs[0].Metrics.Get(m); !ok || math.Abs(got-want) > 1e-9*math.Abs(want) {
				t.Errorf("%s: %s is %v, expected %v", form, m, got, want)
			}
		}
		if compared < 20 {
			t.Errorf("%s: %d metrics compared", form, compared)
		}
		if e := runs[0].Endings(); e == nil || e.Requests != 40 || e.Failed != 1 {
			t.Errorf("%s: ended %+v", form, e)
		}
	}
}

// GuideLLM's own definitions: the time of a token counts the first, and requests
// weigh by their tokens.
func TestGuideLLMDefinitions(t *testing.T) {
	r := exported()
	file := filepath.Join(t.TempDir(), "x.json")
	if err := Export("guidellm:"+file, r); err != nil {
		t.Fatal(err)
	}
	runs, _, err := Files([]string{file})
	if err != nil {
		t.Fatal(err)
	}
	e2e, decode, tokens, later := 0.0, 0.0, 0.0, 0.0
	for _, q := range r.Records {
		if q.Status == record.OK {
			e2e, decode, tokens, later = e2e+q.E2E(), decode+q.Finish-q.FirstToken, tokens+float64(q.Output), later+float64(q.Output-1)
		}
	}
	for m, want := range map[result.Metric]float64{result.MeanTPOT: 1000 * e2e / tokens, result.MeanITL: 1000 * decode / later} {
		if got, _ := runs[0].Metrics.Get(m); math.Abs(got-want) > 1e-9*want {
			t.Errorf("%s is %v, expected %v", m, got, want)
		}
	}
	if len(runs[0].Records) != 40 || runs[0].Records[3].Prompt != 103 {
		t.Errorf("%d requests", len(runs[0].Records))
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
