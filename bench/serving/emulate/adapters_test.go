package emulate_test

import (
	"bytes"
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lorasim/bench/serving/emulate"
	"lorasim/bench/serving/httpapi"
)

// The path of an adapter says how its storage behaves. While a load waits for it, the adapter is not there, and other
// adapters serve.
func TestStorage(t *testing.T) {
	for _, api := range []httpapi.Kind{httpapi.VLLM, httpapi.SGLang} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorker(t, emulate.Config{API: api, ModelName: "base", Adapters: []emulate.Adapter{{Name: "a"}}})
			defer w.Close()
			path := map[httpapi.Kind]string{httpapi.VLLM: "/v1/load_lora_adapter",
				httpapi.SGLang: "/load_lora_adapter"}[api]
			load := func(name, at string) *timedWriter {
				return post(w, path, map[string]any{"lora_name": name, "lora_path": at})
			}
			lists := func(name string) bool {
				return strings.Contains(get(w, "/v1/models").Body.String(), `"id":"`+name+`"`)
			}
			ended := make(chan *timedWriter, 1)
			go func() { ended <- load("slow", "adapters/slow?load=20s") }()
			time.Sleep(10 * time.Second)
			if model := map[httpapi.Kind]string{httpapi.VLLM: "a", httpapi.SGLang: "base:a"}[api]; lists("slow") ||
				post(w, "/v1/completions", map[string]any{"model": model, "prompt": "x", "max_tokens": 2}).Code != 200 {
				t.Errorf("%s: the load has ended before its time, or nothing else is served", api)
			}
			if rec := <-ended; rec.Code != 200 || rec.at[0] < 20*time.Second || rec.at[0] > 21*time.Second ||
				!lists("slow") {
				t.Errorf("%s: the slow load: %d after %v", api, rec.Code, rec.at)
			}
			ctx, cancel := context.WithCancel(t.Context())
			body := bytes.NewReader([]byte(`{"lora_name": "hung", "lora_path": "adapters/hung?load=hang"}`))
			gone := make(chan bool)
			go func() {
				w.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "POST", path, body))
				close(gone)
			}()
			time.Sleep(time.Hour)
			select {
			case <-gone:
				t.Errorf("%s: a load that hangs has ended", api)
			default:
			}
			cancel()
			<-gone
			if rec := load("hung", "adapters/hung"); rec.Code != 200 || !lists("hung") {
				t.Errorf("%s: a load after one that hung: %d %s", api, rec.Code, rec.Body)
			}
			if rec := load("gone", "adapters/gone?load=missing"); rec.Code == 200 || lists("gone") {
				t.Errorf("%s: a load from where nothing is: %d %s", api, rec.Code, rec.Body)
			}
		})
	}
}

// The times of loads are metrics: into host memory, and from there into a GPU slot.
func TestLoadTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker(t, emulate.Config{API: httpapi.VLLM, ModelName: "base"})
		defer w.Close()
		post(w, "/v1/load_lora_adapter", map[string]any{"lora_name": "a", "lora_path": "adapters/a?load=5s"})
		if rec := post(w, "/v1/completions", map[string]any{"model": "a", "prompt": "x",
			"max_tokens": 2}); rec.Code != 200 {
			t.Fatalf("%d %s", rec.Code, rec.Body)
		}
		time.Sleep(time.Second)
		page := get(w, "/metrics").Body.String()
		for _, want := range []string{`vllm:lora_adapter_load_seconds_bucket{engine="0",le="5.0",transition="load"} 0.0`,
			`vllm:lora_adapter_load_seconds_bucket{engine="0",le="10.0",transition="load"} 1.0`,
			`vllm:lora_adapter_load_seconds_count{engine="0",transition="activate"} 1.0`,
			`vllm:max_gpu_lora_adapters{engine="0"} `} {
			if !strings.Contains(page, "\n"+want) {
				t.Errorf("the metrics lack %q:\n%s", want, page)
			}
		}
	})
}
