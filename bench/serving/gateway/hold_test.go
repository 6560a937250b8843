package gateway_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/gateway"
)

// listModels lists a base model with the adapters a and b, as both engines do.
func listModels(w io.Writer, model string) {
	fmt.Fprintf(w, `{"object":"list","data":[{"id":%q,"object":"model","created":1,"max_model_len":4096},
		{"id":"a","object":"model","created":1,"parent":%[1]q,"root":"/a"},
		{"id":"b","object":"model","created":1,"parent":%[1]q,"root":"/b"}]}`, model)
}

// vllmLike starts a worker that answers as vLLM does what the fleet asks for, and requests by a function. The function
// gets a writer whose bytes leave at once.
func vllmLike(t *memory, model string, reply func(w io.Writer, rw http.ResponseWriter, r *http.Request)) *testWorker {
	t.Helper()
	w := &testWorker{}
	w.srv = t.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost:
			w.seen.Add(1)
			reply(flushed{rw}, rw, r)
		case r.URL.Path == "/version":
			io.WriteString(rw, `{"version":"0.32.0"}`)
		case r.URL.Path == "/v1/models":
			listModels(rw, model)
		case r.URL.Path == "/metrics":
			io.WriteString(rw, "vllm:num_requests_running{model_name=\"base\"} 0\nvllm:num_requests_waiting{} 0\n")
		case r.URL.Path == "/health":
		default:
			http.NotFound(rw, r)
		}
	}))
	t.Cleanup(w.srv.Kill)
	return w
}

type flushed struct{ http.ResponseWriter }

func (f flushed) Write(p []byte) (int, error) {
	n, err := f.ResponseWriter.Write(p)
	f.ResponseWriter.(http.Flusher).Flush()
	return n, err
}

// beginStream sends the header of a stream, as vLLM does before the first token.
func beginStream(rw http.ResponseWriter) {
	rw.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	rw.WriteHeader(http.StatusOK)
	rw.(http.Flusher).Flush()
}

const (
	roleEvent = "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n"
	whole     = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"well\"}}]}\n\ndata: [DONE]\n\n"
	chat      = `{"model": "a", "messages": [{"role": "user", "content": "x"}], "stream": true}`
)

// probing sets how often workers are probed in these tests.
func probing(c *fleet.Config) { c.Poll, c.Timeout = time.Second, 2*time.Second }

// Streams that have had no content when their worker ends go to another one, whatever the worker has sent before and
// however it ends. No client sees anything of it.
func TestStreamsWithoutContentGoOn(t *testing.T) {
	for before, text := range map[string]string{"the header": "", "comments": ": still here\n\n: still here\n\n",
		"a role": roleEvent, "both": ":\n\n" + roleEvent,
		"the start of a message": "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{}}\n\n"} {
		for end, do := range map[string]func(t *memory, srv string, w *testWorker){
			"kill": func(_ *memory, _ string, w *testWorker) { w.srv.Kill() },
			"stop": func(_ *memory, _ string, w *testWorker) { w.srv.Freeze() },
			"remove now": func(t *memory, srv string, _ *testWorker) {
				change(t, "DELETE", srv, `{"worker": 0, "now": true}`)
			},
			"cut": nil,
		} {
			t.Run(before+", "+end, func(t *testing.T) {
				inMemory(t, func(t *memory) {
					cut := make(chan struct{})
					bad := vllmLike(t, "base", func(w io.Writer, rw http.ResponseWriter, r *http.Request) {
						beginStream(rw)
						io.WriteString(w, text)
						select {
						case <-cut:
							panic(http.ErrAbortHandler)
						case <-r.Context().Done():
						}
					})
					good := vllmLike(t, "base", func(w io.Writer, rw http.ResponseWriter, r *http.Request) {
						beginStream(rw)
						time.Sleep(time.Second)
						io.WriteString(w, roleEvent+whole)
					})
					srv, _ := startGateway(t, "round-robin", probing, nil, bad, good)
					var wg sync.WaitGroup
					for range 10 {
						wg.Go(func() {
							if code, got := post(t, srv.URL+"/v1/chat/completions", chat); code != 200 ||
								got != roleEvent+whole {
								t.Errorf("%d %q", code, got)
							}
						})
					}
					time.Sleep(2 * time.Second)
					if do == nil {
						close(cut)
					} else {
						do(t, srv.URL, bad)
					}
					wg.Wait()
					if bad.seen.Load() != 5 || good.seen.Load() != 10 {
						t.Errorf("the workers got %d and %d requests, expected 5 and 10", bad.seen.Load(),
							good.seen.Load())
					}
				})
			})
		}
	}
}

// A worker that fails after content has been sent cuts the stream, as before.
func TestStreamsWithContentDoNotGoOn(t *testing.T) {
	inMemory(t, func(t *memory) {
		bad := vllmLike(t, "base", func(w io.Writer, rw http.ResponseWriter, r *http.Request) {
			beginStream(rw)
			io.WriteString(w, roleEvent+strings.TrimSuffix(whole, "data: [DONE]\n\n"))
			panic(http.ErrAbortHandler)
		})
		good := vllmLike(t, "base", func(w io.Writer, rw http.ResponseWriter, r *http.Request) { beginStream(rw) })
		srv, _ := startGateway(t, "round-robin", probing, nil, bad, good)
		if got := askStream(t, srv.URL, chat); got != "told" || good.seen.Load() != 0 {
			t.Errorf("%s; the other worker got %d requests", got, good.seen.Load())
		}
	})
}

// Content passes at once, byte by byte after the first event, and the header comes with it.
func TestContentIsNotDelayed(t *testing.T) {
	inMemory(t, func(t *memory) {
		w := vllmLike(t, "base", func(w io.Writer, rw http.ResponseWriter, r *http.Request) {
			beginStream(rw)
			time.Sleep(3 * time.Second)
			io.WriteString(w, roleEvent)
			for _, c := range []byte(whole) {
				time.Sleep(time.Second)
				w.Write([]byte{c})
			}
		})
		srv, _ := startGateway(t, "round-robin", probing, nil, w)
		begun := time.Now()
		resp, err := t.client.Post(srv.URL+"/v1/chat/completions", "application/json", strings.NewReader(chat))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		event := strings.Index(whole, "\n") // the first event ends with the line
		for n := range len(whole) {
			var b [1]byte
			if n == 0 {
				io.ReadFull(resp.Body, make([]byte, len(roleEvent)))
			}
			if _, err := io.ReadFull(resp.Body, b[:]); err != nil || b[0] != whole[n] {
				t.Fatalf("byte %d: %q, %v", n, b, err)
			}
			if late := time.Since(begun) - time.Duration(4+max(n, event))*time.Second; late != 0 {
				t.Fatalf("byte %d comes %v late", n, late)
			}
		}
	})
}

// After 5 s the client gets the header of a stream that has no content yet, and the worker's comments as they come. The
// stream can still go on elsewhere. If no worker serves it, the stream ends with an event and breaks.
func TestEarlyHeader(t *testing.T) {
	for _, c := range []struct {
		name  string
		other func(w io.Writer, rw http.ResponseWriter, r *http.Request)
		want  string
	}{
		{"another worker goes on", func(w io.Writer, rw http.ResponseWriter, _ *http.Request) {
			beginStream(rw)
			io.WriteString(w, roleEvent+whole)
		}, roleEvent + whole},
		{"another worker refuses", func(_ io.Writer, rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", "application/json")
			rw.WriteHeader(http.StatusBadRequest)
			io.WriteString(rw, `{"error":{"message":"too long","code":400}}`)
		}, `data: {"error":{"code":400,"message":"too long","type":"BadRequest"}}` + "\n\n"},
		{"another worker fails, too", func(_ io.Writer, rw http.ResponseWriter, _ *http.Request) {
			panic(http.ErrAbortHandler)
		}, `data: {"error":{"code":502,"message":"the worker did not answer","type":"BadGateway"}}` + "\n\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inMemory(t, func(t *memory) {
				bad := vllmLike(t, "base", func(w io.Writer, rw http.ResponseWriter, r *http.Request) {
					rw.Header().Set("X-Of-Worker", "yes")
					beginStream(rw)
					for range 4 {
						io.WriteString(w, ": still here\n\n")
						time.Sleep(2 * time.Second)
					}
					io.WriteString(w, roleEvent)
					panic(http.ErrAbortHandler)
				})
				srv, _ := startGateway(t, "round-robin", probing, nil, bad, vllmLike(t, "base", c.other))
				begun := time.Now()
				resp, err := t.client.Post(srv.URL+"/v1/chat/completions", "application/json", strings.NewReader(chat))
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				if at := time.Since(begun); at != 5*time.Second || resp.StatusCode != 200 ||
					resp.Header.Get("Content-Type") != "text/event-stream; charset=utf-8" ||
					resp.Header.Get("X-Of-Worker") != "yes" {
					t.Errorf("the header %d %v comes after %v", resp.StatusCode, resp.Header, at)
				}
				in := bufio.NewReader(resp.Body)
				if line, err := in.ReadString('\n'); line != ": still here\n" || time.Since(begun) != 6*time.Second {
					t.Errorf("%q, %v after %v", line, err, time.Since(begun))
				}
				rest, err := io.ReadAll(in)
				rest = bytes.ReplaceAll(rest, []byte(": still here\n\n"), nil)
				if broke := err != nil; broke != !strings.Contains(c.want, "DONE") ||
					strings.TrimLeft(string(rest), "\n") != c.want {
					t.Errorf("%q, %v; expected %q", rest, err, c.want)
				}
			})
		})
	}
}

// A reply that is no stream reaches the client whole, or from another worker.
func TestWholeReplies(t *testing.T) {
	reply := `{"choices":[{"text":"` + strings.Repeat("x", 30_000) + `"}]}`
	for _, chunked := range []bool{false, true} {
		for _, sent := range []int{0, 1, 10_000, len(reply) - 1} {
			inMemory(t, func(t *memory) {
				bad := vllmLike(t, "base", func(w io.Writer, rw http.ResponseWriter, _ *http.Request) {
					rw.Header().Set("Content-Type", "application/json")
					if !chunked {
						rw.Header().Set("Content-Length", fmt.Sprint(len(reply)))
					}
					io.WriteString(w, reply[:sent])
					time.Sleep(time.Second)
					panic(http.ErrAbortHandler)
				})
				good := vllmLike(t, "base", func(_ io.Writer, rw http.ResponseWriter, _ *http.Request) {
					rw.Header().Set("Content-Type", "application/json")
					io.WriteString(rw, reply)
				})
				srv, _ := startGateway(t, "round-robin", probing, nil, bad, good)
				code, text := post(t, srv.URL+"/v1/completions", `{"model": "a", "prompt": "x"}`)
				if code != 200 || text != reply || bad.seen.Load() != 1 || good.seen.Load() != 1 {
					t.Errorf("%d bytes sent, chunked %v: %d, %d bytes; the workers got %d and %d requests", sent,
						chunked, code, len(text), bad.seen.Load(), good.seen.Load())
				}
			})
		}
	}
}

// A request that makes each worker fail before the first content reaches two of them.
func TestHeldAtMostTwice(t *testing.T) {
	inMemory(t, func(t *memory) {
		var asked atomic.Int64
		var all []*testWorker
		for range 4 {
			all = append(all, vllmLike(t, "base", func(w io.Writer, rw http.ResponseWriter, _ *http.Request) {
				asked.Add(1)
				beginStream(rw)
				io.WriteString(w, roleEvent)
				panic(http.ErrAbortHandler)
			}))
		}
		srv, _ := startGateway(t, "round-robin", probing, func(c *gateway.Config) { c.Retries = 3 }, all...)
		if code, text := post(t, srv.URL+"/v1/chat/completions", chat); code != 502 || asked.Load() != fleet.MaxLost {
			t.Errorf("%d %s after %d workers", code, text, asked.Load())
		}
		synctest.Wait()
		if _, text := get(t, srv.URL+"/metrics"); !strings.Contains(text,
			`lorasim_gateway_retries_total{reason="no_reply"} 1`) {
			t.Errorf("metrics: %s", text)
		}
	})
}
