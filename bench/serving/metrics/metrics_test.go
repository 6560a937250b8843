package metrics

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lorasim/bench/serving/fleet"
	"lorasim/router"
	_ "lorasim/router/builtin"
	"lorasim/trace"
)

// newMetrics are metrics of a fleet of workers that nobody has asked yet.
func newMetrics(t testing.TB, workers int, c Config) *Metrics {
	t.Helper()
	var urls []string
	for i := range workers {
		urls = append(urls, fmt.Sprintf("http://10.0.0.%d:8000", i+1))
	}
	adapters := []trace.Adapter{{Name: "a", Rank: 8}}
	rt, err := router.New("round-robin", router.Env{Adapters: adapters,
		Workers: router.Alike(workers, router.Spec{MaxRunning: 1, Slots: 1})})
	if err != nil {
		t.Fatal(err)
	}
	f, err := fleet.New(fleet.Config{Connection: fleet.Connection{URLs: urls, Client: http.DefaultClient},
		Router: rt, Adapters: adapters})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	c.Component, c.Fleet = "gateway", f
	return New(c)
}

// scrape is a page of metrics.
func scrape(m *Metrics) string {
	rec := httptest.NewRecorder()
	m.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	return rec.Body.String()
}

// However many adapters, workers and codes there are, the number of series has a bound, and sums stay right.
func TestLabelLimits(t *testing.T) {
	const workers, limit, n = 5, 3, 1000
	m := newMetrics(t, workers, Config{MaxAdapters: limit, MaxWorkers: limit})
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := g; i < n; i += 4 {
				m.Ended(Request{Worker: fmt.Sprintf("http://10.0.0.%d:8000", i%workers+1),
					Adapter: fmt.Sprint("lora", i), Code: 200, Result: Complete, Prompt: 2, Output: -1,
					Duration: time.Second})
			}
		})
	}
	wg.Wait()
	series, total := 0, 0
	for line := range strings.Lines(scrape(m)) {
		var v int
		if rest, ok := strings.CutPrefix(line, "lorasim_gateway_prompt_tokens_total{"); ok {
			fmt.Sscan(rest[strings.LastIndexByte(rest, ' '):], &v)
			series++
			total += v
		}
	}
	if most := (limit + 1) * (limit + 1); series > most || series < limit || total != 2*n {
		t.Errorf("%d series with %d tokens, expected at most %d series with %d", series, total, most, 2*n)
	}
	if up := strings.Count(scrape(m), "lorasim_gateway_worker_up{"); up != limit+1 {
		t.Errorf("%d series of worker_up, expected %d", up, limit+1)
	}
}

func TestLabels(t *testing.T) {
	for status, want := range map[int]string{0: "none", 200: "200", 499: "499", 503: "503", 799: other, -1: other} {
		if got := codeLabel(status); got != want {
			t.Errorf("status %d: %s, expected %s", status, got, want)
		}
	}
	l := newLimited(2)
	var got []string
	for _, v := range []string{"a", "other", "b\xff", "c", "a", "b\xff"} {
		got = append(got, l.value(v))
	}
	if want := []string{"a", "other", "b\uFFFD", "other", "a", "b\uFFFD"}; !slices.Equal(got, want) {
		t.Errorf("%q, expected %q", got, want)
	}
	if gone := l.keep(func(v string) bool { return v == "a" }); !slices.Equal(gone, []string{"b\uFFFD"}) {
		t.Errorf("gone: %q", gone)
	}
	if v := l.value("c"); v != "c" {
		t.Errorf("%s, expected the value that is free again", v)
	}
}

// The version is in the labels of lorasim_build_info; adapters and loads appear under the worker's URL.
func TestBuildInfo(t *testing.T) {
	m := newMetrics(t, 1, Config{Build: Build{"v1.2.3", "abc"}})
	m.Routed("http://10.0.0.1:8000", "", true)
	m.Routed("http://10.0.0.1:8000", "a", false)
	text := scrape(m)
	for _, want := range []string{`lorasim_build_info{component="gateway",goversion="go`,
		`revision="abc",version="v1.2.3"} 1`,
		`lorasim_gateway_adapter_misses_total{adapter="a",worker="http://10.0.0.1:8000"} 1`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if strings.Contains(text, "adapter_hits_total{") {
		t.Error("a request for a base model counts as a hit")
	}
}

func BenchmarkEnded(b *testing.B) {
	m := newMetrics(b, 1, Config{})
	b.ReportAllocs()
	for b.Loop() {
		m.Ended(Request{Worker: "http://10.0.0.1:8000", Adapter: "a", Code: 200, Result: Complete, Prompt: 9, Output: 9,
			Duration: time.Second})
	}
}
