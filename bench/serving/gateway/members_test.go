package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lorasim/bench/serving/httpapi"
)

// change asks for a change of the set of workers, and returns the workers after it, or the error.
func change(t *memory, method, url, body string) (status int, workers, text string) {
	t.Helper()
	req, err := http.NewRequest(method, url+"/admin/workers", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := t.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct {
		Workers []struct {
			Worker      int
			URL         string
			Up, Leaving bool
		}
		Error struct{ Message string }
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, w := range answer.Workers {
		list = append(list, fmt.Sprintf("%d %s %v %v", w.Worker, w.URL, w.Up, w.Leaving))
	}
	return resp.StatusCode, strings.Join(list, ", "), answer.Error.Message
}

func TestWorkersOverHTTP(t *testing.T) {
	inMemory(t, func(t *memory) {
		a, b := newTestWorker(t, httpapi.SGLang), newTestWorker(t, httpapi.VLLM)
		srv := newGateway(t, "least-loaded", nil, a)
		two := fmt.Sprintf("0 %s true false, 1 %s true false", a.srv.URL, b.srv.URL)
		for _, c := range []struct {
			method, body string
			status       int
			workers      string
			say          string
		}{
			{"POST", `{}`, 400, "", `field "url" is missing`},
			{"POST", `[]`, 400, "", "expected a JSON object with url"},
			{"POST", `{"url": "ftp://x"}`, 400, "", "expected http(s)://HOST:PORT"},
			{"POST", `{"urls": "x"}`, 400, "", `unknown field "urls", did you mean "url"?`},
			{"POST", fmt.Sprintf(`{"url": %q}`, b.srv.URL), 200, two, ""},
			{"POST", fmt.Sprintf(`{"url": %q}`, b.srv.URL), 409, "", "is a worker already"},
			{"DELETE", `{}`, 400, "", `field "worker" is missing`},
			{"DELETE", `{"worker": 5}`, 400, "", "expected 0 to 1"},
			{"DELETE", `{"worker": "http://nowhere"}`, 400, "", "no worker is at http://nowhere"},
			{"DELETE", `{"worker": 1, "now": 3}`, 400, "", "now"},
			{"DELETE", fmt.Sprintf(`{"url": %q}`, a.srv.URL), 200, "", ""},
		} {
			status, workers, text := change(t, c.method, srv.URL, c.body)
			if status != c.status || c.workers != "" && workers != c.workers || !strings.Contains(text, c.say) {
				t.Errorf("%s %s: %d %q %s, expected %d %q %s", c.method, c.body, status, workers, text, c.status,
					c.workers, c.say)
			}
		}
		time.Sleep(time.Second)
		if _, text := get(t, srv.URL+"/admin/workers"); strings.Contains(text, a.srv.URL) ||
			!strings.Contains(text, b.srv.URL) {
			t.Errorf("%s", text)
		}
		if status, text := post(t, srv.URL+"/v1/completions",
			`{"model": "a", "prompt": [1], "max_tokens": 3}`); status != 200 {
			t.Errorf("%d %s", status, text)
		}
		if _, text := get(t, srv.URL+"/metrics"); strings.Contains(text, a.srv.URL) ||
			!strings.Contains(text, fmt.Sprintf(`worker_up{worker="%s"} 1`, b.srv.URL)) {
			t.Errorf("%s", text)
		}
	})
}

// While workers join and leave every request is served, whatever the policy.
func TestNothingIsLostWhileWorkersChange(t *testing.T) {
	for _, policy := range []string{"round-robin", "plan-and-route", "static", "cache-aware"} {
		t.Run(policy, func(t *testing.T) {
			inMemory(t, func(t *memory) {
				first := newTestWorker(t, httpapi.SGLang)
				srv := newGateway(t, policy, nil, first)
				var clients sync.WaitGroup
				var done atomic.Int64
				stop := make(chan struct{})
				for c := range 8 {
					clients.Go(func() {
						for i := 0; ; i++ {
							select {
							case <-stop:
								return
							default:
							}
							body := fmt.Sprintf(`{"input_ids": [%d, %d], "lora_path": %q, "stream": %v,
								"sampling_params": {"max_new_tokens": 8, "ignore_eos": true}}`,
								c, i, []string{"a", "b"}[i%2], i%3 > 0)
							status, text := post(t, srv.URL+"/generate", body)
							if status != 200 || strings.Contains(text, `"error"`) {
								t.Errorf("%d %s", status, text)
								return
							}
							done.Add(1)
						}
					})
				}
				members := []*testWorker{first}
				for range 6 {
					w := newTestWorker(t, httpapi.SGLang)
					if status, _, text := change(t, "POST", srv.URL,
						fmt.Sprintf(`{"url": %q}`, w.srv.URL)); status != 200 {
						t.Fatalf("%d %s", status, text)
					}
					time.Sleep(100 * time.Millisecond)
					if status, _, text := change(t, "DELETE", srv.URL,
						fmt.Sprintf(`{"url": %q}`, members[len(members)-1].srv.URL)); status != 200 {
						t.Fatalf("%d %s", status, text)
					}
					members = append(members, w)
					time.Sleep(100 * time.Millisecond)
				}
				close(stop)
				clients.Wait()
				if done.Load() < 100 {
					t.Errorf("only %d requests", done.Load())
				}
				for i, w := range members {
					if w.seen.Load() < 5 {
						t.Errorf("worker %d got %d requests", i, w.seen.Load())
					}
				}
			})
		})
	}
}

// An adapter that nobody has named is added at run time: one worker loads it, and requests for it may go to any.
func TestAddedAdapter(t *testing.T) {
	for _, api := range []httpapi.Kind{httpapi.SGLang, httpapi.VLLM} {
		t.Run(string(api), func(t *testing.T) {
			inMemory(t, func(t *memory) {
				a, b := newTestWorker(t, api), newTestWorker(t, api)
				srv := newGateway(t, "round-robin", nil, a, b)
				ask := func() int {
					status, _ := post(t, srv.URL+"/v1/completions",
						`{"model": "fresh", "prompt": [1], "max_tokens": 3}`)
					return status
				}
				if status := ask(); status != 404 {
					t.Errorf("before: %d", status)
				}
				for _, c := range []struct {
					body   string
					status int
					say    string
				}{
					{`{"worker": 0, "adapter": "fresh", "path": 5}`, 400, "path is 5, expected a text"},
					{`{"worker": 0, "adapter": "fr\nesh"}`, 400, "without control characters"},
					{`{"worker": 0, "adapter": "fresh", "path": "weights/fresh-r16"}`, 200, `"fresh"`},
					{`{"worker": 0, "adapter": "fresh", "path": "weights/other"}`, 400,
						"is known with path weights/fresh-r16"},
					{`{"worker": 0, "adapter": "fresh"}`, 200, `"fresh"`},
				} {
					if status, text := post(t, srv.URL+"/admin/load", c.body); status != c.status ||
						!strings.Contains(text, c.say) {
						t.Errorf("%s: %d %s, expected %d", c.body, status, text, c.status)
					}
				}
				for range 4 {
					if status := ask(); status != 200 {
						t.Errorf("after: %d", status)
					}
				}
				_, text := get(t, b.srv.URL+"/v1/models")
				if !strings.Contains(text, "weights/fresh-r16") {
					t.Errorf("the other worker holds %s", text)
				}
			})
		})
	}
}
