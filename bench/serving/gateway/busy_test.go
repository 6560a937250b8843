package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"lorasim/bench/serving/gateway"
)

// answering is a worker that answers each request with a status.
func answering(code int, retryAfter string) func(io.Writer, http.ResponseWriter, *http.Request) {
	return func(_ io.Writer, rw http.ResponseWriter, _ *http.Request) {
		if retryAfter != "" {
			rw.Header().Set("Retry-After", retryAfter)
		}
		rw.WriteHeader(code)
		fmt.Fprintf(rw, `{"error":{"message":"scripted","code":%d}}`, code)
	}
}

// A request returns to a worker only if no other can take it, the worker has not executed it, and has not asked for a
// pause. Then there is a pause before.
func TestWorkersTriedOnce(t *testing.T) {
	date := time.Date(2000, 1, 1, 0, 1, 0, 0, time.UTC).Format(http.TimeFormat) // tests begin at midnight
	for _, c := range []struct {
		code, workers, retries int
		after                  string
		seen                   string // requests of each worker
		paused                 bool
	}{
		{429, 1, 2, "7", "[1]", false},
		{503, 1, 2, "7", "[1]", false},
		{503, 1, 2, date, "[1]", false},
		{503, 2, 5, "7", "[1 1]", false},
		{503, 3, 1, "7", "[1 1 0]", false},
		{503, 1, 2, "", "[3]", true},
		{429, 2, 4, "0", "[3 2]", true},
		{500, 1, 2, "", "[1]", false},
		{500, 2, 5, "", "[1 1]", false},
		{502, 4, 5, "", "[1 1 0 0]", false},
	} {
		inMemory(t, func(t *memory) {
			var all []*testWorker
			for range c.workers {
				all = append(all, vllmLike(t, "base", answering(c.code, c.after)))
			}
			srv, _ := startGateway(t, "round-robin", nil, func(g *gateway.Config) { g.Retries = c.retries }, all...)
			begun := time.Now()
			resp, err := t.client.Post(srv.URL+"/v1/completions", "application/json",
				strings.NewReader(`{"model": "a", "prompt": "x"}`))
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			var seen []int64
			for _, w := range all {
				seen = append(seen, w.seen.Load())
			}
			took := time.Since(begun)
			after := resp.Header.Get("Retry-After")
			if fmt.Sprint(seen) != c.seen || resp.StatusCode != c.code || after != c.after ||
				!strings.Contains(string(text), "scripted") || took > time.Second || took > 0 != c.paused {
				t.Errorf("%d, Retry-After %q, %d retries: %v, expected %s; %d %q %s after %v", c.code, c.after,
					c.retries, seen, c.seen, resp.StatusCode, after, text, took)
			}
		})
	}
}

// All requests pass over a worker that has asked for a pause, for that time, while another one takes them.
func TestRetryAfterOfWorker(t *testing.T) {
	at := func(s int) string { return time.Date(2000, 1, 1, 0, 0, s, 0, time.UTC).Format(http.TimeFormat) }
	for _, after := range []string{"20", at(20)} {
		inMemory(t, func(t *memory) {
			busy := vllmLike(t, "base", answering(503, after))
			other := vllmLike(t, "base", func(_ io.Writer, rw http.ResponseWriter, _ *http.Request) {
				io.WriteString(rw, "{}")
			})
			srv, _ := startGateway(t, "round-robin", probing, nil, busy, other)
			for range 30 {
				if code, text := post(t, srv.URL+"/v1/completions", `{"model": "a", "prompt": "x"}`); code != 200 {
					t.Errorf("%d %s", code, text)
				}
				time.Sleep(500 * time.Millisecond)
			}
			if n := busy.seen.Load(); n != 1 {
				t.Errorf("the busy worker got %d requests in 15 s", n)
			}
			if after != "20" {
				return // its date is over soon
			}
			time.Sleep(6 * time.Second)
			post(t, srv.URL+"/v1/completions", `{"model": "a", "prompt": "x"}`)
			post(t, srv.URL+"/v1/completions", `{"model": "a", "prompt": "x"}`)
			if n := busy.seen.Load(); n != 2 {
				t.Errorf("after its pause, the busy worker got %d requests", n-1)
			}
			other.srv.Kill()
			time.Sleep(3 * time.Second)
			if code, _ := post(t, srv.URL+"/v1/completions", `{"model": "a", "prompt": "x"}`); code != 503 ||
				busy.seen.Load() != 3 {
				t.Errorf("without another worker: %d after %d requests", code, busy.seen.Load())
			}
		})
	}
}
