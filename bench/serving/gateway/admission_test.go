package gateway_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/httpapi"
	"lorasim/router"
	"lorasim/router/admission"
)

// What the router refuses is answered 429 with the time to wait, and no worker sees
// it; after that time the request is taken.
func TestRateLimit(t *testing.T) {
	inMemory(t, func(t *memory) {
		w := newTestWorker(t, httpapi.SGLang)
		limit := func(c *fleet.Config) {
			limit := admission.RateLimit{Rate: 0.2, Burst: 1}
			err := admission.Add(c.Router, admission.Shedding{}, limit, router.Env{Adapters: c.Adapters}, nil)
			if err != nil {
				t.Fatal(err)
			}
		}
		srv, _ := startGateway(t, "round-robin", limit, nil, w)
		ask := func(adapter string) (int, string) {
			body := `{"text": "x", "lora_path": "` + adapter + `", "sampling_params": {"max_new_tokens": 2}}`
			resp, err := t.client.Post(srv.URL+"/generate", "application/json", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			return resp.StatusCode, resp.Header.Get("Retry-After")
		}
		if status, _ := ask("a"); status != http.StatusOK {
			t.Fatalf("the first request: %d", status)
		}
		seen := w.seen.Load()
		if status, after := ask("a"); status != http.StatusTooManyRequests || after != "5" || w.seen.Load() != seen {
			t.Errorf("the second at once: %d, Retry-After %q, expected 429 and 5 s", status, after)
		}
		if status, _ := ask("b"); status != http.StatusOK {
			t.Errorf("another adapter: %d", status)
		}
		time.Sleep(5 * time.Second)
		if status, _ := ask("a"); status != http.StatusOK {
			t.Errorf("5 s later: %d", status)
		}
	})
}
