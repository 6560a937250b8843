package requestlog

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// matrix is the answer to a range query.
func matrix(series ...string) string {
	return `{"status":"success","data":{"resultType":"matrix","result":[` + strings.Join(series, ",") + `]}}`
}

func seriesOf(labels string, values ...any) string {
	var list []string
	for i, v := range values {
		list = append(list, fmt.Sprintf(`[%d,"%v"]`, 1_700_000_000+100*i, v))
	}
	return `{"metric":{` + labels + `},"values":[` + strings.Join(list, ",") + `]}`
}

// histograms of prompts of 100 to 200 tokens, and of outputs: "a" at most 10, "b" 500 to 1000 tokens.
func histograms() (prompts, outputs string) {
	le := func(name, adapter, bound string, n int) string {
		return seriesOf(fmt.Sprintf(`"__name__":"%s","model_name":"%s","le":"%s"`, name, adapter, bound), 0, n)
	}
	p, o := "vllm:request_prompt_tokens_bucket", "vllm:request_generation_tokens_bucket"
	prompts = matrix(le(p, "a", "100", 0), le(p, "a", "200", 5), le(p, "a", "+Inf", 5))
	outputs = matrix(le(o, "a", "10", 7), le(o, "a", "500", 7), le(o, "a", "1000", 7),
		le(o, "b", "10", 0), le(o, "b", "500", 0), le(o, "b", "1000", 3), le(o, "b", "+Inf", 3))
	return prompts, outputs
}

// A workload drawn from range queries has their rates in each interval, and lengths within their buckets. The numbers
// of requests are within 4 standard deviations of their means.
func TestPrometheus(t *testing.T) {
	prompts, outputs := histograms()
	for name, rates := range map[string]string{
		// 20/s in the first 100 s and nothing in the next of "a"; 5/s of "b"
		"rate": matrix(seriesOf(`"model_name":"a"`, 3, 20, 0), seriesOf(`"model_name":"b"`, "NaN", 5, 5)),
		// the same as counters; that of "b" began anew in between
		"counter": matrix(seriesOf(`"__name__":"vllm:request_success_total","model_name":"a"`, 1000, 3000, 3000),
			seriesOf(`"__name__":"vllm:request_success_total","model_name":"b"`, 700, 1200, 500)),
	} {
		w, report, err := Read(t.Context(), []string{write(t, "r.json", rates), write(t, "p.json", prompts),
			write(t, "o.json", outputs)},
			Options{Seed: 5})
		if err != nil {
			t.Fatal(name, err)
		}
		var n [2][2]float64 // by adapter and interval
		begin := float64(report.Begin.UnixNano()) / 1e9
		for i, r := range w.Requests {
			b := w.Adapters[r.Adapter].Name == "b"
			if r.Prompt < 101 || r.Prompt > 200 || b && (r.Output < 501 || r.Output > 1000) || !b && r.Output > 10 ||
				i > 0 && r.Arrival < w.Requests[i-1].Arrival {
				t.Fatalf("%s: %+v of %v", name, r, w.Adapters)
			}
			k := 0
			if b {
				k = 1
			}
			n[k][min(int((r.Arrival+begin-1_700_000_000)/100), 1)]++
		}
		want := [2][2]float64{{2000, 0}, {500, 500}}
		for k := range n {
			for i := range n[k] {
				if math.Abs(n[k][i]-want[k][i]) > 4*math.Sqrt(want[k][i]) {
					t.Errorf("%s: %v requests, expected %v by the queries", name, n, want)
				}
			}
		}
	}
}

func TestPrometheusErrors(t *testing.T) {
	prompts, outputs := histograms()
	rates := matrix(seriesOf(`"model_name":"a"`, 3, 20))
	bare := matrix(seriesOf(`"le":"10"`, 0, 1))
	for _, c := range []struct {
		files []string
		want  string
	}{
		{[]string{rates, prompts}, "no range query holds a histogram of output tokens"},
		{[]string{rates, outputs}, "no range query holds a histogram of prompt tokens"},
		{[]string{prompts, outputs}, "no range query holds rates of requests"},
		{[]string{rates, prompts, bare}, "does not say whether it counts prompt or output tokens"},
		{[]string{`{"data":{"resultType":"vector","result":[]}}`}, "the result is a vector, expected a matrix"},
		{[]string{rates, "time,prompt_tokens,output_tokens\n1,2,3\n"}, "cannot be one workload"},
	} {
		var paths []string
		for i, text := range c.files {
			paths = append(paths, write(t, fmt.Sprint(i), text))
		}
		if _, _, err := Read(t.Context(), paths, Options{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, expected %q", err, c.want)
		}
	}
}
