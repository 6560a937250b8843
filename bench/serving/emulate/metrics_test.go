package emulate

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"lorasim/router"
	"lorasim/router/epp"
	"lorasim/router/epp/scrape"
	"lorasim/sim/profile"
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
		api          API
		engine       scrape.Engine
		page         int // of the profile
		size, blocks int
	}{{VLLM, scrape.VLLM, 1, 16, 62}, {VLLM, scrape.VLLM, 8, 8, 125}, {SGLang, scrape.SGLang, 1, 1, 1000},
		{SGLang, scrape.SGLang, 64, 64, 15}} {
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
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(p.String()))
		if err != nil {
			if !strings.Contains(err.Error(), "UTF-8") && !strings.Contains(err.Error(), "invalid label value") {
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
