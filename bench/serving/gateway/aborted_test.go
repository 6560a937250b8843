package gateway_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"lorasim/bench/serving/emulate"
	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/gateway"
	"lorasim/bench/serving/httpapi"
)

// endingWorkers are two vLLM workers that run four requests each, and whose requests end so on SIGTERM.
func endingWorkers(t *memory, ending emulate.Ending) (ws [2]*testWorker) {
	t.Helper()
	p := fastProfile()
	p.Engine.MaxRunningRequests = 4
	for i := range ws {
		w, err := emulate.New(emulate.Config{ModelName: "base", Costs: p.Compile(), API: httpapi.VLLM, Speed: speed,
			Ending: ending, Adapters: []emulate.Adapter{{Name: "a", Path: "a"}, {Name: "b", Path: "b"}}})
		if err != nil {
			t.Fatal(err)
		}
		ws[i] = &testWorker{Worker: w, srv: t.serve(w)}
		t.Cleanup(func() { ws[i].srv.Kill(); w.Close() })
	}
	return ws
}

// endOf says how a request for 120 tokens ended in one of vLLM's forms.
func endOf(t *memory, url, path string, stream bool) string {
	input := `"prompt": "hello"`
	if path != "/v1/completions" {
		input = `"messages": [{"role": "user", "content": "hello"}]`
	}
	resp, err := t.client.Post(url+path, "application/json", strings.NewReader(
		fmt.Sprintf(`{"model": "a", %s, "max_tokens": 120, "ignore_eos": true, "stream": %t}`, input, stream)))
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	text := string(data)
	switch ends := strings.Contains(text, `"finish_reason":"length"`) || strings.Contains(text,
		`"stop_reason":"max_tokens"`); {
	case resp.StatusCode != http.StatusOK:
		return fmt.Sprint("status ", resp.StatusCode, text)
	case stream && strings.Contains(text, `"error"`):
		return "told"
	case err == nil && ends && strings.Count(text, "t") >= 120:
		return "whole"
	}
	return fmt.Sprintf("%v: %.300s", err, text[max(0, len(text)-300):])
}

// A vLLM worker gets SIGTERM under load. However its requests end there, clients get whole replies, or streams that end
// with an error; and the worker can end.
func TestSigtermOfVLLM(t *testing.T) {
	for _, ending := range []emulate.Ending{emulate.Abort, emulate.Fail, emulate.Silence} {
		for _, path := range []string{"/v1/completions", "/v1/chat/completions", "/v1/messages"} {
			for _, stream := range []bool{true, false} {
				t.Run(fmt.Sprint(ending, path, stream), func(t *testing.T) {
					inMemory(t, func(t *memory) { sigterm(t, ending, path, stream) })
				})
			}
		}
	}
}

func sigterm(t *memory, ending emulate.Ending, path string, stream bool) {
	ws := endingWorkers(t, ending)
	srv, _ := startGateway(t, "round-robin", func(c *fleet.Config) { c.Poll = time.Second }, func(c *gateway.Config) {
		c.FirstByte, c.Idle = 5*time.Minute, time.Minute
	}, ws[0], ws[1])
	const n = 16 // half of them on either worker, and half of those in the queue
	var mu sync.Mutex
	var wg sync.WaitGroup
	ends := map[string]int{}
	for range n {
		wg.Go(func() {
			end := endOf(t, srv.URL, path, stream)
			mu.Lock()
			defer mu.Unlock()
			ends[end]++
		})
	}
	time.Sleep(30 * time.Millisecond)
	begun := time.Now()
	gone := make(chan time.Duration, 1)
	ws[0].Drain(t.Context())
	go func() {
		ws[0].srv.Shutdown(t.Context())
		gone <- time.Since(begun)
	}()
	for range 6 {
		if end := endOf(t, srv.URL, path, stream); end != "whole" {
			t.Errorf("a later request: %s", end)
		}
	}
	wg.Wait()
	told := 0
	if stream {
		told = 4 // that had begun
	}
	if ends["whole"] != n-told || ends["told"] != told {
		t.Errorf("%v, expected %d whole and %d told", ends, n-told, told)
	}
	if took := <-gone; took > 15*time.Second {
		t.Errorf("the worker ended after %v", took)
	}
}

// Replies of /v1/responses tell of an abort only if they have no token: requests that waited at the worker that ended,
// and later ones, are served by the other worker. What had begun looks whole.
func TestSigtermOfResponses(t *testing.T) {
	for _, stream := range []bool{true, false} {
		t.Run(fmt.Sprint(stream), func(t *testing.T) {
			inMemory(t, func(t *memory) {
				ws := endingWorkers(t, emulate.Abort)
				srv, _ := startGateway(t, "round-robin", nil, nil, ws[0], ws[1])
				ask := func() {
					status, text := post(t, srv.URL+"/v1/responses",
						fmt.Sprintf(`{"model": "a", "input": "hello", "max_output_tokens": 120, "stream": %t}`, stream))
					if status != http.StatusOK || !strings.Contains(text, `"output_tokens":`) ||
						strings.Contains(text, `"output_tokens":0`) || strings.Contains(text, `"error":{`) {
						t.Errorf("%d: %s", status, text)
					}
				}
				var wg sync.WaitGroup
				for range 16 {
					wg.Go(ask)
				}
				time.Sleep(30 * time.Millisecond)
				ws[0].Drain(t.Context())
				for range 6 {
					ask()
				}
				wg.Wait()
			})
		})
	}
}

// fakeCompletions is a vLLM worker whose completions a test answers.
func fakeCompletions(t *memory, answer http.HandlerFunc) *testWorker {
	w := newTestWorker(t, httpapi.VLLM)
	real := w.Worker
	w.srv.Kill()
	w.srv = t.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/completions" || r.URL.Path == "/v1/responses" {
			answer(rw, r)
			return
		}
		real.ServeHTTP(rw, r)
	}))
	return w
}

// The event of an abort may come in two pieces. The client learns of it wherever it is cut.
func TestAbortInTwoPieces(t *testing.T) {
	abortInTwoPieces(t, `{"model": "base", "prompt": "x", "stream": true}`, "/v1/completions",
		`data: {"model":"base","choices":[{"index":0,"text":"a","finish_reason":null}]}`+"\n\n",
		`data: {"model":"base","choices":[{"index":0,"text":"","finish_reason":"abort"}]}`+"\n\n", "data: [DONE]\n\n")
	abortInTwoPieces(t, `{"model": "base", "input": "x", "stream": true}`, "/v1/responses",
		`data: {"type":"response.output_text.delta","delta":"a"}`+"\n\n", // gpt-oss
		`data: {"type":"response.completed","response":{"service_tier":"priority","status":"cancelled","usage":null}}`+"\n\n",
		"data: [DONE]\n\n")
}

func abortInTwoPieces(t *testing.T, body, path, begun, end, rest string) {
	inMemory(t, func(t *memory) {
		cut := 0
		end += rest
		srv, _ := startGateway(t, "round-robin", nil, nil, fakeCompletions(t,
			func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header().Set("Content-Type", "text/event-stream")
				for _, piece := range []string{begun, end[:cut], end[cut:]} {
					io.WriteString(rw, piece)
					rw.(http.Flusher).Flush()
					time.Sleep(time.Millisecond)
				}
			}))
		for cut = range len(end) - len(rest) {
			resp, err := t.client.Post(srv.URL+path, "application/json", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err == nil || !strings.Contains(string(text), `"error":`) || strings.Contains(string(text), "[DONE]") {
				t.Fatalf("cut at %d: %v, %s", cut, err, text)
			}
		}
	})
}

// A long reply that is no stream is on its way before its end has come.
func TestLongReplyAborted(t *testing.T) {
	inMemory(t, func(t *memory) {
		srv, _ := startGateway(t, "round-robin", nil, nil, fakeCompletions(t,
			func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header().Set("Content-Type", "application/json")
				io.WriteString(rw, `{"model":"base","choices":[{"index":0,"text":"`+strings.Repeat("a", 1<<17)+
					`","finish_reason":"abort"}]}`)
			}))
		resp, err := t.client.Post(srv.URL+"/v1/completions", "application/json",
			strings.NewReader(`{"model": "base", "prompt": "x"}`))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if text, err := io.ReadAll(resp.Body); err == nil {
			t.Errorf("the reply looks whole: %s", text[len(text)-40:])
		}
	})
}

// A reply of several choices of which one was aborted is not whole either.
func TestOneOfSeveralAborted(t *testing.T) {
	inMemory(t, func(t *memory) {
		var asked int
		worker := func(finish string) *testWorker {
			return fakeCompletions(t, func(rw http.ResponseWriter, _ *http.Request) {
				asked++
				rw.Header().Set("Content-Type", "application/json")
				json.NewEncoder(rw).Encode(map[string]any{"model": "base", "choices": []any{
					map[string]any{"text": `"finish_reason":"abort"`, "finish_reason": "length"},
					map[string]any{"text": "b", "finish_reason": finish}}})
			})
		}
		srv, _ := startGateway(t, "round-robin", nil, nil, worker("abort"), worker("stop"))
		for range 4 {
			status, text := post(t, srv.URL+"/v1/completions", `{"model": "base", "prompt": "x", "n": 2}`)
			if status != 200 || !strings.Contains(text, `"finish_reason":"stop"`) {
				t.Errorf("%d %s", status, text)
			}
		}
		if asked != 5 {
			t.Errorf("%d requests to workers, expected 4 of which the first was sent again", asked)
		}
	})
}
