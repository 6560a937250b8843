package gateway_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"lorasim/bench/serving/emulate"
	"lorasim/bench/serving/httpapi"
	"lorasim/internal/memnet"
)

// liar puts something in front of a worker that asks it for another model than clients do, while a name is set.
func liar(t *memory, w *testWorker) (name *atomic.Value) {
	name = &atomic.Value{}
	name.Store("")
	srv := t.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		to := name.Load().(string)
		if to != "" && r.Method == http.MethodPost && !strings.Contains(r.URL.Path, "lora") {
			body, _ := io.ReadAll(r.Body)
			for _, from := range []string{"base:a", "base", "a"} {
				body = bytes.Replace(body, fmt.Appendf(nil, `"model":%q`, from), fmt.Appendf(nil, `"model":%q`, to), 1)
			}
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		}
		w.ServeHTTP(rw, r)
	}))
	t.Cleanup(w.srv.Kill) // of the worker itself, which ends what stands in w.srv
	w.srv = srv
	return name
}

// A worker that serves another model than it was asked for, in whatever form of reply: the client gets the reply of
// another worker or, if there is none, an error. The gateway asks the worker who it is.
func TestReplyOfAnotherModel(t *testing.T) {
	forms := map[string]string{
		"/v1/completions":      `{"model":%q,"prompt":"x","max_tokens":2,"stream":%t}`,
		"/v1/chat/completions": `{"model":%q,"messages":[{"role":"user","content":"x"}],"max_tokens":2,"stream":%t}`,
		"/v1/messages":         `{"model":%q,"messages":[{"role":"user","content":"x"}],"max_tokens":2,"stream":%t}`,
		"/v1/responses":        `{"model":%q,"input":"x","max_output_tokens":2,"stream":%t}`,
	}
	for _, api := range []httpapi.Kind{httpapi.VLLM, httpapi.SGLang} {
		for path, form := range forms {
			for _, c := range []struct {
				ask, answer string
				streams     bool
			}{{"a", "base", false}, {"a", "base", true}, {"base", "a", false}, {"base", "a", true}} {
				if api == httpapi.SGLang && path == "/v1/responses" && c.ask == "a" {
					continue // sglang serves no adapters there
				}
				t.Run(fmt.Sprintf("%s%s, %s, stream %t", api, path, c.ask, c.streams), func(t *testing.T) {
					inMemory(t, func(t *memory) {
						a := []emulate.Adapter{{Name: "a", Path: "a-r8"}}
						bad, good := newTestWorker(t, api, a...), newTestWorker(t, api, a...)
						model := liar(t, bad)
						srv, _ := startGateway(t, "round-robin", probing, nil, bad, good)
						body := fmt.Sprintf(form, c.ask, c.streams)
						if status, text := post(t, srv.URL+path, body); status != 200 {
							t.Fatalf("%d %s", status, text)
						}
						if model.Store(c.answer); api == httpapi.SGLang && c.answer == "a" {
							model.Store("base:a")
						}
						askLiar(t, srv, path, body, c.ask, 8)
						if _, text := get(t, srv.URL+"/metrics"); !strings.Contains(text,
							`lorasim_gateway_retries_total{reason="model"}`) {
							t.Error("no retry is counted")
						}
						good.srv.Kill()
						for range 3 {
							if status, text := post(t, srv.URL+path, body); status < 500 {
								t.Errorf("%d %s without another worker", status, text)
							}
						}
					})
				})
			}
		}
	}
}

// askLiar sends requests, which all succeed with the model that they name.
func askLiar(t *memory, srv *memnet.Host, path, body, model string, n int) {
	t.Helper()
	for range n {
		status, text := post(t, srv.URL+path, body)
		if status != 200 || !strings.Contains(strings.ReplaceAll(text, " ", ""), fmt.Sprintf(`"model":%q`, model)) {
			t.Errorf("%d %s, expected model %s", status, text, model)
		}
	}
}
