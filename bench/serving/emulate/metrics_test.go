package emulate

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lorasim/bench/serving/httpapi"
	"lorasim/router"
	"lorasim/router/epp"
	"lorasim/router/epp/scrape"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
)

// The page is that of vLLM's own code after the same steps, byte by byte.
func TestLoRAInfoIsVLLMs(t *testing.T) {
	steps, err := os.ReadFile("testdata/steps.txt")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/vllm.prom")
	if err != nil {
		t.Fatal(err)
	}
	var l loraInfo
	adapters := map[string]string{}
	for line := range strings.Lines(string(steps)) {
		fields := strings.Fields(line)
		if fields[0] == "#" {
			continue
		}
		at, err := strconv.ParseFloat(fields[0], 64)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range fields[1:] {
			request, adapter, _ := strings.Cut(e[1:], ":")
			if e[0] == '+' {
				adapters[request] = strings.TrimPrefix(adapter, "base")
				l.began(adapters[request])
			} else {
				l.ended(adapters[request])
			}
		}
		l.step(time.UnixMicro(int64(at * 1e6)))
	}
	var p page
	l.write(&p, 2)
	if got := p.String(); got != string(want) {
		t.Errorf("got\n%s\nexpected\n%s", got, want)
	}
}

// However many combinations there are, the newest stays and the page has a bound.
func TestLoRAInfoIsBounded(t *testing.T) {
	var l loraInfo
	for i := range 3 * maxListings {
		name := fmt.Sprint("a", i)
		l.began(name)
		l.step(time.UnixMilli(int64(i)))
		if newest := l.series[l.at[name]]; newest.names != name || len(l.series) > maxListings {
			t.Fatalf("after %d combinations: %d series, the newest is of %q", i+1, len(l.series), newest.names)
		}
		l.ended(name)
	}
}

// A picker reads the size and the number of the KV cache's blocks of both engines.
func TestPickerReadsBlocks(t *testing.T) {
	for _, c := range []struct {
		api          httpapi.Kind
		engine       scrape.Engine
		page         int // of the profile
		size, blocks int
	}{{httpapi.VLLM, scrape.VLLM, 1, 16, 62}, {httpapi.VLLM, scrape.VLLM, 8, 8, 125}, {httpapi.SGLang, scrape.SGLang,
		1, 1, 1000},
		{httpapi.SGLang, scrape.SGLang, 64, 64, 15}} {
		p := profile.Default()
		p.Memory.KVTokens, p.Engine.PageSize = 1000, c.page
		w, err := New(Config{Costs: p.Compile(), API: c.api, Home: router.Disk})
		if err != nil {
			t.Fatal(err)
		}
		rec := httptest.NewRecorder()
		w.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		w.Close()
		families, err := scrape.Parse(rec.Body.String())
		if err != nil {
			t.Fatal(err)
		}
		var e epp.Endpoint
		if scrape.Update(&e, families, c.engine); e.BlockSize != c.size || e.NumBlocks != c.blocks {
			t.Errorf("%s, pages of %d: a picker reads %d blocks of %d, expected %d of %d", c.api, c.page, e.NumBlocks,
				e.BlockSize, c.blocks, c.size)
		}
	}
}

func TestPythonFloat(t *testing.T) {
	for v, want := range map[float64]string{0: "0.0", 3: "3.0", 0.1: "0.1", 1e-5: "1e-05", 0.0001: "0.0001",
		999999: "999999.0", 1234567: "1.234567e+06", 1763911234.567891: "1.763911234567891e+09",
		math.Copysign(2.5, -1): "-2.5"} {
		if got := pythonFloat(v); got != want {
			t.Errorf("%v: %s, expected %s", v, got, want)
		}
	}
}

// FuzzPage: whatever names adapters have, the page parses, and a picker reads the same names.
func FuzzPage(f *testing.F) {
	f.Add("a", "b c")
	f.Add("\\", "\"\n")
	f.Fuzz(func(t *testing.T, a, b string) {
		var l loraInfo
		l.began(a)
		l.began(b)
		l.step(time.UnixMilli(1763911234567))
		var p page
		p.gauge("vllm:num_requests_running", "help", labels{{"model_name", a}}, 2)
		l.write(&p, 4)
		families, err := scrape.Parse(p.String())
		if err != nil {
			if !strings.Contains(err.Error(), "UTF-8") {
				t.Fatalf("%v:\n%s", err, p.String())
			}
			return
		}
		var e epp.Endpoint
		scrape.Update(&e, families, scrape.VLLM)
		if strings.Trim(a+b, " ,\t\n\r") != "" && e.MaxLora != 4 || e.Running != 2 {
			t.Errorf("read %+v of\n%s", e, p.String())
		}
	})
}

// TestPageLikeEngines compares the pages with recorded ones of running engines, whose values are set to 0: each
// recorded family is there, with the same help, type and series, buckets included.
func TestPageLikeEngines(t *testing.T) {
	for api, name := range map[httpapi.Kind]string{httpapi.VLLM: "vllm-0.32", httpapi.SGLang: "sglang-0.5.23"} {
		file := "testdata/" + name + ".metrics"
		synctest.Test(t, func(t *testing.T) {
			p := profile.Default()
			p.Engine.PrefixCache, p.Engine.ContextLength, p.Memory.KVTokens = true, 2048, 10000
			w, err := New(Config{Costs: p.Compile(), API: api, ModelName: "base", Home: router.Disk})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			for _, body := range []string{`{"prompt": [1, 2, 3], "max_tokens": 5}`,
				`{"prompt": [1, 2, 3], "max_tokens": 4, "stream": true}`} {
				w.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/v1/completions",
					strings.NewReader(body)))
			}
			time.Sleep(time.Second)
			rec := httptest.NewRecorder()
			w.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			page, lines := rec.Body.String(), 0
			for line := range strings.Lines(string(want)) {
				lines++
				line = strings.TrimSuffix(line, "0.0\n")
				if !strings.Contains("\n"+page, "\n"+line) {
					t.Errorf("%s: the page lacks %q", api, line)
				}
			}
			if lines < 100 {
				t.Errorf("%s: %d lines, expected at least 100", file, lines)
			}
			for _, want := range pageValues[api] {
				if !strings.Contains(page, "\n"+want+"\n") {
					t.Errorf("%s: the page lacks %q:\n%s", api, want, page)
				}
			}
		})
	}
}

// pageValues are of two requests with 3 prompt tokens each, of which one has 5 tokens and the other one, a stream, 4.
var pageValues = map[httpapi.Kind][]string{
	httpapi.VLLM: {`vllm:request_success_total{engine="0",finished_reason="length",model_name="base"} 2.0`,
		`vllm:request_prompt_tokens_bucket{engine="0",le="2.0",model_name="base"} 0.0`,
		`vllm:request_prompt_tokens_bucket{engine="0",le="5.0",model_name="base"} 2.0`,
		`vllm:request_generation_tokens_sum{engine="0",model_name="base"} 9.0`,
		`vllm:inter_token_latency_seconds_count{engine="0",model_name="base"} 7.0`,
		`vllm:time_to_first_token_seconds_count{engine="0",model_name="base"} 2.0`,
		`vllm:e2e_request_latency_seconds_count{engine="0",model_name="base"} 2.0`},
	httpapi.SGLang: {`sglang:num_requests_total{engine_type="unified",is_streaming="true",model_name="base"} 1.0`,
		`sglang:generation_tokens_total{engine_type="unified",is_streaming="true",model_name="base"} 4.0`,
		`sglang:generation_tokens_total{engine_type="unified",is_streaming="false",model_name="base"} 5.0`,
		`sglang:inter_token_latency_seconds_count{engine_type="unified",model_name="base"} 7.0`,
		`sglang:time_to_first_token_seconds_count{engine_type="unified",is_streaming="true",model_name="base"} 1.0`},
}

// A request that ends by a stop token, one that is aborted and one that is retracted are counted apart.
func TestEndings(t *testing.T) {
	m := newMeasures(boundsVLLM(100))
	for _, s := range []*stream{
		{stops: true, made: progress{status: record.OK}}, {made: progress{status: record.OK}},
		{made: progress{status: record.Aborted}}, {made: progress{status: record.Failed}},
	} {
		m.end(s, tick.FromSeconds(1))
	}
	if want := (ends{1, 1, 1, 1}); m.ended != want || m.flows[whole].requests != 2 {
		t.Errorf("%+v, %d requests, expected %+v and 2", m.ended, m.flows[whole].requests, want)
	}
	if got := m.flows[whole].e2e; got.sum != 2 || got.counts[3] != 2 { // up to 1 s
		t.Errorf("latencies %+v", got)
	}
	c := m.clone()
	if m.end(&stream{made: progress{status: record.OK}}, 0); c.flows[whole].e2e.counts[0] != 0 {
		t.Error("a copy changes with the original")
	}
	if want := []float64{1, 2, 5, 10, 20, 50, 100}; !slices.Equal(boundsVLLM(100).tokens, want) {
		t.Errorf("bounds %v, expected %v", boundsVLLM(100).tokens, want)
	}
}
