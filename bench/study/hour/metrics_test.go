package hour

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// vllmText is what vLLM 0.32 exports, as far as it counts here.
func TestScrapeName(t *testing.T) {
	for path, want := range map[string]struct {
		target string
		at     float64
	}{
		"gpu0-1772373600.txt":          {"gpu0", 1772373600},
		"gpu0-1772373600.862.txt":      {"gpu0", 1772373600.862},
		"s/gpu0-1772373600.862":        {"gpu0", 1772373600.862},
		"gpu1/1772373600500.prom":      {"gpu1", 1772373600.5},
		"gpu1/1772373600.5.metrics.gz": {"gpu1", 1772373600.5},
		"gpu2.txt":                     {"gpu2", 0},
	} {
		if target, at := scrapeName(path); target != want.target || at != want.at {
			t.Errorf("%s: target %q at %v, expected %q at %v", path, target, at, want.target, want.at)
		}
	}
}

func vllmText(running, waiting int, usage float64, slots, blocks int) string {
	return fmt.Sprintf(`# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} %d.0
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} %d.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} %g
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="%d"} 1.0
# TYPE vllm:lora_requests_info gauge
vllm:lora_requests_info{max_lora="%d",running_lora_adapters="a,b",waiting_lora_adapters="a,b"} 1.772373600e+09
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{le="0.5"} 3
vllm:time_to_first_token_seconds_bucket{le="+Inf"} 4
vllm:time_to_first_token_seconds_sum 2.5
vllm:time_to_first_token_seconds_count 4
`, running, waiting, usage, blocks, slots)
}

const sglangText = `# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{model_name="m",tp_rank="0"} 3.0
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{model_name="m",tp_rank="0"} 2.0
# TYPE sglang:max_total_num_tokens gauge
sglang:max_total_num_tokens{model_name="m",tp_rank="0"} 15163.0
# TYPE sglang:lora_pool_slots_total gauge
sglang:lora_pool_slots_total{model_name="m",tp_rank="0"} 4.0
`

// matrix is the answer of Prometheus to a range query of two workers.
const matrix = `{"status":"success","data":{"resultType":"matrix","result":[
{"metric":{"__name__":"vllm:num_requests_running","instance":"gpu0:8000"},"values":[[1000,"2"],[1015,"4"]]},
{"metric":{"__name__":"vllm:num_requests_running","instance":"gpu1:8000"},"values":[[1000,"6"],[1015,"NaN"]]},
{"metric":{"__name__":"vllm:num_requests_waiting","instance":"gpu0:8000"},"values":[[1000,"0"],[1015,"1"]]},
{"metric":{"__name__":"vllm:cache_config_info","instance":"gpu0:8000","num_gpu_blocks":"500","block_size":"16"},
 "values":[[1000,"1"]]}]}}`

func metricsOf(t *testing.T, files map[string]string) (*Metrics, error) {
	t.Helper()
	folder := t.TempDir()
	for name, text := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, path, []byte(text))
		if is, err := IsMetrics(t.Context(), path); err != nil || !is {
			t.Errorf("%s: %v, %v, expected metrics", name, is, err)
		}
	}
	return ReadMetrics(t.Context(), []string{folder})
}

func TestFacts(t *testing.T) {
	full := map[string]string{}
	for i := range 8 { // 12 running requests are the limit: they do not grow while others wait
		full[fmt.Sprintf("gpu0/%d.txt", 1772373600+i)] = vllmText(12, 1+i, 0.5, 4, 100)
		full[fmt.Sprintf("gpu1-%d.prom", 1772373600000+1000*i)] = vllmText(3, 0, 0.1, 4, 100)
	}
	for name, c := range map[string]struct {
		files map[string]string
		want  Facts
	}{
		"vllm": {full, Facts{Engine: "vllm", Workers: 2, Slots: 4, KVTokens: 1600, Running: 12, Full: true,
			InFlight: 12 + 4.5 + 3}},
		"sglang": {map[string]string{"gpu0.txt": sglangText, "gpu1.txt": sglangText}, Facts{Engine: "sglang",
			Workers: 2, Slots: 4, KVTokens: 15163, Running: 3, InFlight: math.NaN()}},
		"query": {map[string]string{"answer.json": matrix}, Facts{Engine: "vllm", Workers: 2, KVTokens: 8000,
			Running: 6, InFlight: 3.5 + 6}},
	} {
		m, err := metricsOf(t, c.files)
		if err != nil {
			t.Fatal(err)
		}
		got, err := m.Facts(0, math.Inf(1))
		if math.IsNaN(c.want.InFlight) && math.IsNaN(got.InFlight) {
			got.InFlight, c.want.InFlight = 0, 0
		}
		if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v, expected %+v", name, got, err, c.want)
		}
	}
	m, err := metricsOf(t, full)
	if err != nil {
		t.Fatal(err)
	}
	if f, err := m.Facts(1772373601, 1772373602); err != nil || f.InFlight != 12+2.5+3 {
		t.Errorf("two seconds: %+v, %v", f, err)
	}
}

func TestMetricsErrors(t *testing.T) {
	query := func(kind, result string) map[string]string {
		return map[string]string{"a.json": `{"status":"success","data":{"resultType":"` + kind + `","result":` +
			result + `}}`}
	}
	for want, files := range map[string]map[string]string{
		"worker gpu0 has 4 adapter slots, and gpu1 has 8": {"gpu0.txt": vllmText(1, 0, 0, 4, 100),
			"gpu1.txt": vllmText(1, 0, 0, 8, 100)},
		"worker gpu0 has 1600 tokens of KV cache": {"gpu0.txt": vllmText(1, 0, 0, 4, 100),
			"gpu1.txt": vllmText(1, 0, 0, 4, 200)},
		"of vllm and sglang workers":              {"gpu0.txt": vllmText(1, 0, 0, 4, 100), "gpu1.txt": sglangText},
		"no metrics of engines":                   {"gateway.txt": "# TYPE up gauge\nup 1\n"},
		"text format of Prometheus, line 2":       {"gpu0.txt": "# TYPE up gauge\nup one\n"},
		`resultType is "vector", expected matrix`: query("vector", "[]"),
		"is an error: bad_data: parse error": {
			"a.json": `{"status":"error","errorType":"bad_data","error":"parse error"}`},
		"has no __name__: query the metrics": query("matrix", `[{"metric":{},"values":[[1,"1"]]}]`),
		"the result is no matrix":            query("matrix", `[{"values":[1]}]`),
		"no values, expected":                query("matrix", "[]"),
	} {
		m, err := metricsOf(t, files)
		if err == nil {
			_, err = m.Facts(0, math.Inf(1))
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, expected %s", err, want)
		}
	}
	if _, err := ReadMetrics(t.Context(), []string{t.TempDir()}); err == nil || !strings.Contains(err.Error(),
		"expected scrapes named TARGET-EPOCH.txt") {
		t.Errorf("empty folder: %v", err)
	}
}

func TestIsMetrics(t *testing.T) {
	for text, want := range map[string]bool{
		"up 1\n": true, "a:b{c=\"d e\"} NaN 5\n": true, "time=2026-03-01T14:00:02Z level=INFO msg=request\n": false,
		`{"time":"2026-03-01T14:00:02Z","msg":"request"}`: false, "lorasim: listening on :8000\n": false, "": false,
	} {
		if got := looksLikeMetrics([]byte(text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// Whatever a file holds, reading it gives an error, or series whose facts can be computed.
func FuzzMetrics(f *testing.F) {
	few := common
	few.seconds = 30
	for _, text := range []string{vllmText(1, 2, 0.5, 4, 100), sglangText, matrix, string(few.matrix(f)), "up 1 2\n",
		"{}"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, add := range []func(*Metrics) error{
			func(m *Metrics) error { return m.addQuery(text) },
			func(m *Metrics) error { return m.addScrape(text, "gpu0", 5) },
		} {
			m := &Metrics{index: map[string]*series{}}
			if add(m) != nil {
				continue
			}
			facts, err := m.Facts(0, math.Inf(1))
			if err == nil && (facts.Workers < 1 || facts.Slots < 0 || facts.KVTokens < 0) {
				t.Fatalf("%q: %+v", text, facts)
			}
			m.sort()
			h, err := FromMetrics(m, time.Time{}, time.Time{}, 1)
			if err != nil {
				continue
			}
			for i, r := range h.workload.Requests {
				if err := r.Check(len(h.Adapters)); err != nil || r.ID != int64(i) {
					t.Fatalf("%q: request %d: %+v, %v", text, i, r, err)
				}
			}
		}
	})
}
