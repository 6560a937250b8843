package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"lorasim/bench/serving/emulate"
	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/gateway"
	"lorasim/bench/serving/httpapi"
	"lorasim/internal/memnet"
	"lorasim/router"
	"lorasim/trace"
)

// newFullWorker is an emulated worker that holds so many adapters.
func newFullWorker(t *memory, api httpapi.Kind, places int) *testWorker {
	t.Helper()
	p := fastProfile()
	p.Engine.MaxLoadedLoras, p.Engine.MaxLorasPerBatch = places, places
	w, err := emulate.New(emulate.Config{Costs: p.Compile(), API: api, Home: router.Disk})
	if err != nil {
		t.Fatal(err)
	}
	tw := &testWorker{Worker: w}
	tw.srv = t.serve(w)
	t.Cleanup(func() { tw.srv.Kill(); w.Close() })
	return tw
}

// ask sends a request and returns its status, the time to wait that it was told, and
// what went wrong, "" for a whole answer.
func ask(t *memory, srv *memnet.Host, path, adapter string, tokens int, stream bool) (status int, after, wrong string) {
	body := fmt.Sprintf(`{"text": "x", "lora_path": %q, "stream": %v, "sampling_params": {"max_new_tokens": %d, "ignore_eos": true}}`, adapter, stream, tokens)
	if path != "/generate" {
		body = fmt.Sprintf(`{"prompt": "x", "model": %q, "stream": %v, "max_tokens": %d, "ignore_eos": true}`, adapter,
			stream, tokens)
	}
	resp, err := t.client.Post(srv.URL+path, "application/json", strings.NewReader(body))
	if err != nil {
		return 0, "", err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || strings.Contains(string(text), `"error"`) {
		wrong = fmt.Sprintf("%s, %v", text, err)
	}
	return resp.StatusCode, resp.Header.Get("Retry-After"), wrong
}

// Clients of more adapters than workers have places for are all served, also by two
// gateways that know nothing of each other.
func TestMoreAdaptersThanPlaces(t *testing.T) {
	for _, c := range []struct {
		api      httpapi.Kind
		path     string
		stream   bool
		gateways int
	}{
		{httpapi.SGLang, "/generate", true, 1}, {httpapi.SGLang, "/generate", true, 2},
		{httpapi.SGLang, "/generate", false, 2},
		{httpapi.SGLang, "/v1/completions", true, 2}, {httpapi.VLLM, "/v1/completions", true, 1},
		{httpapi.VLLM, "/v1/completions", true, 2},
	} {
		t.Run(fmt.Sprintf("%s %s stream=%v gateways=%d", c.api, c.path, c.stream, c.gateways), func(t *testing.T) {
			inMemory(t, func(t *memory) {
				workers := []*testWorker{newFullWorker(t, c.api, 2), newFullWorker(t, c.api, 2)}
				var wg sync.WaitGroup
				for range c.gateways {
					srv, _ := startGateway(t, "least-loaded", func(f *fleet.Config) {
						f.Adapters = trace.Names(6, []int{8})
						f.Poll = time.Second
					}, func(g *gateway.Config) {
						g.QueueTimeout = time.Minute
						if c.gateways > 1 {
							g.Retries = 10 // one in 20,000 requests loses its adapter to the other gateway three times
						}
					}, workers...)
					for client := range 12 {
						wg.Go(func() {
							for i := range 10 {
								if status, _, wrong := ask(t, srv, c.path, fmt.Sprintf("lora%d", (client+5*i)%6), 20,
									c.stream); wrong != "" {
									t.Errorf("request %d of client %d: %d %s", i, client, status, wrong)
								}
							}
						})
					}
				}
				wg.Wait()
			})
		})
	}
}

// A request that gets no place in time, or finds the queue full, is answered 503 with
// the time after which it may be worth another try.
func TestNoPlaceInTime(t *testing.T) {
	inMemory(t, func(t *memory) {
		w := newFullWorker(t, httpapi.SGLang, 1)
		srv, _ := startGateway(t, "least-loaded", func(f *fleet.Config) { f.MaxPending = 1 },
			func(g *gateway.Config) { g.QueueTimeout = 2 * time.Second }, w)
		var wg sync.WaitGroup
		wg.Go(func() {
			if status, _, wrong := ask(t, srv, "/generate", "a", 3000, true); wrong != "" {
				t.Errorf("the request that uses the place: %d %s", status, wrong)
			}
		})
		time.Sleep(time.Second)
		refused := func(text string) {
			begun := time.Now()
			status, after, wrong := ask(t, srv, "/generate", "b", 1, true)
			if s, err := strconv.Atoi(after); status != http.StatusServiceUnavailable || err != nil || s < 1 ||
				!strings.Contains(wrong, text) {
				t.Errorf("%d, Retry-After %q, %s after %v; expected 503 and %q", status, after, wrong,
					time.Since(begun), text)
			}
		}
		wg.Go(func() { refused("has no slot for adapter b in time") })
		time.Sleep(time.Second)
		refused("its queue is full: 1 requests wait")
		wg.Wait()
		if status, _, wrong := ask(t, srv, "/generate", "b", 1, true); wrong != "" {
			t.Errorf("when the place is free: %d %s", status, wrong)
		}
		resp, err := t.client.Get(srv.URL + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		for _, want := range []string{"pending_timeouts_total 1\n", "pending_overflows_total 1\n",
			"adapter_evictions_total 1\n", `requests_pending{worker="http://host1"} 0`} {
			if !strings.Contains(string(text), "lorasim_gateway_"+want) {
				t.Errorf("no %q in the metrics", want)
			}
		}
	})
}
