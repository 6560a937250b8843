package gateway_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lorasim/bench/serving/faultworker"
	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/gateway"
	"lorasim/internal/memnet"
	"lorasim/router"
)

// faulty starts workers of which the first has a fault, and a gateway before them.
func faulty(t *memory, policy string, n int, rule faultworker.Rule, set func(*gateway.Config)) (*memnet.Host,
	[]*faultworker.Worker) {
	t.Helper()
	var ws []*faultworker.Worker
	var front []*testWorker
	for i := range n {
		w, err := faultworker.New(faultworker.Config{Adapters: []string{"a", "b"}, Token: 10 * time.Millisecond,
			Name: fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		srv := t.serve(w)
		t.Cleanup(func() { w.Close(); srv.Kill() })
		ws, front = append(ws, w), append(front, &testWorker{srv: srv})
	}
	if err := ws[0].Break(rule); err != nil {
		t.Fatal(err)
	}
	srv, _ := startGateway(t, policy, func(c *fleet.Config) {
		c.Poll, c.Timeout, c.Outlier.SlowStart = time.Second,
			2*time.Second, 32
	},
		func(c *gateway.Config) {
			c.FirstByte, c.Idle = 5*time.Minute, time.Minute
			if set != nil {
				set(c)
			}
		}, front...)
	return srv, ws
}

// askTokens has so many clients send n streamed requests in all, and counts those that did not end well, and how.
func askTokens(t *memory, url string, clients, n, tokens int) (lost int, ends map[string]int) {
	t.Helper()
	ends = map[string]int{}
	var mu sync.Mutex
	var next atomic.Int64
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for {
				i := next.Add(1)
				if i > int64(n) {
					return
				}
				end := askStream(t, url,
					fmt.Sprintf(`{"model": %q, "prompt": "hello %d", "max_tokens": %d, "stream": true}`,
						string("ab"[i%2]), i, tokens))
				mu.Lock()
				ends[end]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return n - ends["whole"], ends
}

// askStream says how a stream ended: whole, told (by an event, and the connection broke), or otherwise.
func askStream(t *memory, url, body string) string {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/completions", strings.NewReader(body))
	if err != nil {
		return err.Error()
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Request-Id", fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(body)))) // workers count by it
	resp, err := t.client.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	events := strings.Split(strings.TrimSuffix(string(text), "\n\n"), "\n\n")
	var last struct {
		Error struct {
			Message, Type string
			Code          int
		}
	}
	switch data := strings.TrimPrefix(events[len(events)-1], "data: "); {
	case resp.StatusCode != 200:
		return fmt.Sprint(resp.StatusCode)
	case err == nil && data == "[DONE]":
		return "whole"
	case err != nil && json.Unmarshal([]byte(data), &last) == nil && last.Error.Message != "" && last.Error.Code == 502:
		return "told"
	}
	return fmt.Sprintf("%v: %s", err, text)
}

// One of three workers resets each stream after a token. Whatever the policy, at most 40 requests are lost, 60 at a
// time.
func TestHalfDeadWorker(t *testing.T) {
	for i, p := range router.List() {
		if underRace && i%4 > 0 {
			continue
		}
		policy := p.Name
		switch policy {
		case "explicit":
			policy = "explicit:map=rest@all"
		case "script":
			policy = "script:file=../../../scenarios/policies/least-loaded.star"
		}
		t.Run(policy, func(t *testing.T) {
			inMemory(t, func(t *memory) {
				const n = 300 // 40 at most are lost before the ejection; all that comes after it goes well
				srv, ws := faulty(t, policy, 3, faultworker.Rule{On: faultworker.Generate, Do: faultworker.Reset,
					Tokens: 1}, nil)
				lost, ends := askTokens(t, srv.URL, 60, n, 16)
				if lost > 40 || ends["told"] != lost {
					t.Errorf("lost %d of %d: %v", lost, n, ends)
				}
				sent := ws[0].Book().Totals().Executed
				if sent > 41 {
					t.Errorf("the bad worker got %d requests", sent)
				}
				if sent == 0 {
					return // by its hashes, neither adapter belongs there
				}
				if _, text := get(t, srv.URL+"/metrics"); !strings.Contains(text,
					`lorasim_gateway_ejections_total{reason="consecutive_failures",worker="http://host1"} 1`) ||
					!strings.Contains(text, `lorasim_gateway_worker_ejected{worker="http://host1"} 1`) ||
					!strings.Contains(text, `lorasim_gateway_worker_ejected{worker="http://host2"} 0`) {
					t.Errorf("metrics: %s", text)
				}
				if _, text := get(t, srv.URL+"/admin/workers"); !strings.Contains(text, `"ejected":true`) ||
					!strings.Contains(text, `"ejection_reason":"consecutive_failures"`) {
					t.Errorf("workers: %s", text)
				}
			})
		})
	}
}

// errorInStream is a reply of status 200 with an event that tells of an error.
func errorInStream(text string) faultworker.Rule {
	return faultworker.Rule{On: faultworker.Generate, Do: faultworker.Answer,
		Header: "Content-Type: text/event-stream\r\n",
		Text:   "data: {\"error\": " + text + "}\n\ndata: [DONE]\n\n"}
}

// A worker that tells in streams of an error of its own is ejected; what it tells of what
// is wrong with the request does not count.
func TestErrorInStream(t *testing.T) {
	for text, ejected := range map[string]bool{`{"message": "CUDA error", "code": 500}`: true,
		`{"message": "too long"}`: false, `{"message": "too long", "code": 400}`: false,
		`"too long"`: false, `{"code": "x"}`: false} {
		inMemory(t, func(t *memory) {
			srv, _ := faulty(t, "least-loaded", 3, errorInStream(text), nil)
			askTokens(t, srv.URL, 20, 200, 16)
			if _, state := get(t, srv.URL+"/admin/workers"); strings.Contains(state, `"ejected":true`) != ejected {
				t.Errorf("%s: ejected is not %v: %s", text, ejected, state)
			}
		})
	}
}

// What other faults cost.
func TestFaultyWorker(t *testing.T) {
	for _, c := range []struct {
		name string
		rule faultworker.Rule
		lost int // of 500, at most; of a third of them without ejection
		sent int // requests that the bad worker executes, at most
	}{
		{"ends streams early", faultworker.Rule{Do: faultworker.Cut, Tokens: 2}, 40, 40},
		{"sends no JSON", faultworker.Rule{Do: faultworker.Garbage}, 40, 40},
		{"sends no HTTP", faultworker.Rule{Do: faultworker.NotHTTP}, 0, 40},
		{"drops connections", faultworker.Rule{Do: faultworker.Drop}, 0, 40},
		{"answers 500", faultworker.Rule{Do: faultworker.Answer, Status: 500}, 0, 0},
		{"answers 204", faultworker.Rule{Do: faultworker.Answer, Status: 204}, 0, 0},
		{"redirects", faultworker.Rule{Do: faultworker.Redirect, Text: "http://other/"}, 0, 0},
		{"fails every other", faultworker.Rule{Do: faultworker.Reset, Tokens: 1, Share: 0.5}, 40, 80},
		{"fails one in three", faultworker.Rule{Do: faultworker.Reset, Tokens: 1, Share: 0.34}, 40, 120},
		{"fails one adapter", faultworker.Rule{Do: faultworker.Reset, Tokens: 1, Mark: `"base:a"`}, 40, 1000},
	} {
		t.Run(c.name, func(t *testing.T) {
			inMemory(t, func(t *memory) {
				c.rule.On = faultworker.Generate
				srv, ws := faulty(t, "least-loaded", 3, c.rule, nil)
				lost, ends := askTokens(t, srv.URL, 60, 500, 16)
				if lost > c.lost {
					t.Errorf("lost %d, expected at most %d: %v", lost, c.lost, ends)
				}
				sent := ws[0].Book().Totals().Executed
				if sent > c.sent {
					t.Errorf("the bad worker executed %d requests, expected at most %d", sent, c.sent)
				}
				if c.rule.Mark != "" && sent < 100 {
					t.Errorf("the worker executed %d requests, and is good for the other adapter", sent)
				}
			})
		})
	}
}

// A client whose requests fail on every worker ejects none that serves others.
func TestHostileClient(t *testing.T) {
	for _, retries := range []int{0, 2} {
		inMemory(t, func(t *memory) {
			poison := faultworker.Rule{On: faultworker.Generate, Mark: "poison", Do: faultworker.Answer, Status: 500}
			srv, ws := faulty(t, "round-robin", 3, poison, func(c *gateway.Config) { c.Retries = retries })
			for _, w := range ws[1:] {
				if err := w.Break(poison); err != nil {
					t.Fatal(err)
				}
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				for range 250 {
					post(t, srv.URL+"/v1/completions", `{"model": "a", "prompt": "poison"}`)
					time.Sleep(10 * time.Millisecond)
				}
			})
			lost, ends := askTokens(t, srv.URL, 20, 500, 16)
			wg.Wait()
			if lost > 0 {
				t.Errorf("retries %d: lost %d: %v", retries, lost, ends)
			}
			_, text := get(t, srv.URL+"/admin/workers")
			out := strings.Count(text, `"ejected":true`)
			if out > 1 {
				t.Errorf("retries %d: %d of three workers are ejected: %s", retries, out, text)
			}
		})
	}
}

// tellTwo answers as a worker of vLLM without metrics that holds the adapters a and b.
func tellTwo(rw http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/health":
	case "/v1/models":
		io.WriteString(rw, `{"data":[{"id":"base"},{"id":"a","parent":"base"},{"id":"b","parent":"base"}]}`)
	default:
		http.NotFound(rw, r)
	}
}

// A stream that says nothing for longer than the idle timeout is cut with an event; one that is slow, or that waits
// long for its first byte, or whose client is slow, is not.
func TestIdleTimeout(t *testing.T) {
	inMemory(t, func(t *memory) {
		pause := 30 * time.Second
		w := &testWorker{srv: t.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if r.Method == http.MethodGet {
				tellTwo(rw, r)
				return
			}
			rw.Header().Set("Content-Type", "text/event-stream")
			flush := func(text string) { io.WriteString(rw, text); rw.(http.Flusher).Flush() }
			say := func(text string) { flush(fmt.Sprintf("data: {\"choices\":[{\"text\":%q}]}\n\n", text)) }
			switch {
			case bytes.Contains(body, []byte("long prefill")):
				rw.(http.Flusher).Flush()
				time.Sleep(4 * time.Minute)
			case bytes.Contains(body, []byte("heartbeats")):
				say("one")
				for range 10 {
					time.Sleep(pause)
					flush(": still here\n\n")
				}
			case bytes.Contains(body, []byte("half an event")):
				flush("data: {\"choices\":[{\"te")
				<-r.Context().Done()
				return
			case bytes.Contains(body, []byte("hangs")):
				say("one")
				<-r.Context().Done()
				return
			}
			for range 3 {
				say("tok")
				time.Sleep(pause)
			}
			flush("data: [DONE]\n\n")
		}))}
		t.Cleanup(w.srv.Kill)
		srv, _ := startGateway(t, "least-loaded", func(c *fleet.Config) { c.Poll = time.Second },
			func(c *gateway.Config) { c.FirstByte, c.Idle = 5*time.Minute, time.Minute }, w)
		for prompt, want := range map[string]string{"slow": "whole", "long prefill": "whole", "heartbeats": "whole",
			"hangs": "told", "half an event": "told"} {
			begun := time.Now()
			if got := askStream(t, srv.URL, fmt.Sprintf(`{"model": "a", "prompt": %q, "stream": true}`,
				prompt)); got != want {
				t.Errorf("%s: %s, expected %s", prompt, got, want)
			}
			if took := time.Since(begun); want != "whole" && (took < time.Minute || took > 62*time.Second) {
				t.Errorf("%s: cut after %v", prompt, took)
			}
		}
	})
}

// A slow client is none of the worker's faults.
func TestSlowClient(t *testing.T) {
	inMemory(t, func(t *memory) {
		patient := func(c *gateway.Config) { c.ClientTimeout = time.Hour }
		srv, _ := faulty(t, "least-loaded", 1, faultworker.Rule{}, patient)
		resp, err := t.client.Post(srv.URL+"/v1/completions", "application/json",
			strings.NewReader(`{"model": "a", "prompt": "x", "max_tokens": 2000, "stream": true}`))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		time.Sleep(10 * time.Minute) // pipes hold nothing, so that the gateway waits
		text, err := io.ReadAll(resp.Body)
		if err != nil || !bytes.HasSuffix(text, []byte("data: [DONE]\n\n")) {
			t.Errorf("%v: ...%s", err, text[max(0, len(text)-100):])
		}
	})
}

// A worker that stops in the middle costs what it has begun to answer; what has had no byte goes on elsewhere, within
// the retries.
func TestHungWorker(t *testing.T) {
	inMemory(t, func(t *memory) {
		srv, ws := faulty(t, "round-robin", 2, faultworker.Rule{}, nil)
		var wg sync.WaitGroup
		var lost int
		var ends map[string]int
		begun := time.Now()
		wg.Go(func() { lost, ends = askTokens(t, srv.URL, 30, 800, 16) })
		time.Sleep(time.Second)
		ws[0].Freeze()
		wg.Wait()
		if lost > 30 || ends["told"] != lost {
			t.Errorf("lost %d: %v", lost, ends)
		}
		if took := time.Since(begun); took > 40*time.Second {
			t.Errorf("it took %v", took)
		}
		ws[0].Thaw()
		synctest.Wait()
	})
}
