package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/gateway"
)

// An error that comes as an event of a stream speaks against the worker if its code is one of the server's, as that of
// vLLM whose engine core is dead. What is wrong with a request ejects no worker, nor does a full queue. The client gets
// each event as it came, unless another worker can do better.
func TestErrorEvents(t *testing.T) {
	for _, c := range []struct {
		event   string
		ejected bool
		passed  bool // else another worker takes the request over
	}{
		{`{"error": {"message": "EngineCore encountered an issue.", "type": "InternalServerError", "param": null, "code": 500}}`, true, false},
		{`{"error":{"message":"lost","type":"x","code":502}}`, true, false},
		{`{"error":{"message":"The request queue is full.","type":"x","code":503}}`, false, false},
		{`{"error":{"message":"The input is longer than the model's context length","type":"invalid_request_error","code":400}}`, false, true},
		{`{"error":{"message":"of another form","code":"invalid"}}`, false, true},
		{`{"error":"a text"}`, false, true},
		{`{"choices":[{"text":"data: {\"error\": {\"code\": 500}}"}]}`, false, true}, // what a model wrote
	} {
		inMemory(t, func(t *memory) {
			var sent [2]int
			worker := func(i int, event string) *testWorker {
				w := &testWorker{srv: t.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodGet {
						tellTwo(rw, r)
						return
					}
					sent[i]++ // one request at a time
					rw.Header().Set("Content-Type", "text/event-stream")
					fmt.Fprintf(rw, "data: %s\n\ndata: [DONE]\n\n", event)
				}))}
				t.Cleanup(w.srv.Kill)
				return w
			}
			srv, _ := startGateway(t, "round-robin", func(c *fleet.Config) { c.Poll = time.Second },
				func(c *gateway.Config) {},
				worker(0, c.event), worker(1, `{"choices":[{"text":"well"}]}`))
			got := 0
			for range 60 {
				_, text := post(t, srv.URL+"/v1/completions", `{"model": "a", "prompt": "x", "stream": true}`)
				if strings.Contains(text, c.event) {
					got++
				}
				time.Sleep(10 * time.Millisecond)
			}
			_, text := get(t, srv.URL+"/admin/workers")
			if out := strings.Contains(text, `"ejected":true`); out != c.ejected {
				t.Errorf("%s: ejected %v, expected %v: %s", c.event, out, c.ejected, text)
			}
			if passed := got == sent[0]; passed != c.passed || !c.passed && got > 0 || !c.ejected && sent[0] < 20 ||
				c.ejected && sent[0] > 10 {
				t.Errorf("%s: the worker sent %d, the clients got %d", c.event, sent[0], got)
			}
		})
	}
}
