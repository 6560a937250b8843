package gateway_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lorasim/bench/serving/emulate"
	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/gateway"
	"lorasim/bench/serving/httpapi"
	"lorasim/router"
)

// openStream starts a request of n tokens and returns once it answers.
func openStream(t *memory, url string, n string) (*http.Response, *bufio.Reader) {
	t.Helper()
	resp, err := t.client.Post(url+"/generate", "application/json",
		strings.NewReader(
			`{"input_ids": [1], "stream": true, "lora_path": "a", "sampling_params": {"ignore_eos": true, "max_new_tokens": `+n+`}}`))
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(resp.Body)
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return resp, lines
}

// A gateway that is going says so, takes nothing new, and lets streams end.
func TestDrain(t *testing.T) {
	inMemory(t, func(t *memory) {
		srv, g := startGateway(t, "round-robin", nil, nil, newTestWorker(t, httpapi.SGLang))
		resp, lines := openStream(t, srv.URL, "200")
		defer resp.Body.Close()
		if s, _ := get(t, srv.URL+"/health"); s != 200 {
			t.Errorf("health before: %d", s)
		}
		idle := g.Drain()
		select {
		case <-idle:
			t.Error("idle with a stream in flight")
		default:
		}
		for _, path := range []string{"/health", "/health_generate"} {
			if s, text := get(t, srv.URL+path); s != 503 || !strings.Contains(text, "shutting down") {
				t.Errorf("%s: %d %s", path, s, text)
			}
		}
		again, err := t.client.Post(srv.URL+"/generate", "application/json", strings.NewReader(`{"input_ids": [1]}`))
		if err != nil {
			t.Fatal(err)
		}
		again.Body.Close()
		if again.StatusCode != 503 || again.Header.Get("Retry-After") != "1" {
			t.Errorf("a new request: %d, Retry-After %q", again.StatusCode, again.Header.Get("Retry-After"))
		}
		rest, err := io.ReadAll(lines)
		if err != nil || !bytes.HasSuffix(rest, []byte("data: [DONE]\n\n")) {
			t.Errorf("the stream did not end well: %v, ...%q", err, rest[max(0, len(rest)-50):])
		}
		select {
		case <-idle:
		case <-time.After(time.Second):
			t.Error("not idle after the stream has ended")
		}
		<-g.Drain() // once more does no harm
	})
}

func TestDrainIdle(t *testing.T) {
	inMemory(t, func(t *memory) {
		_, g := startGateway(t, "round-robin", nil, nil, newTestWorker(t, httpapi.SGLang))
		idle := g.Drain()
		synctest.Wait()
		select {
		case <-idle:
		default:
			t.Error("a gateway without requests is not idle")
		}
	})
}

// The gateway serves adapters that workers hold when it starts, and those that
// they are given later by others, on every worker; and notes what they drop.
func TestDiscovery(t *testing.T) {
	inMemory(t, func(t *memory) {
		for _, api := range []httpapi.Kind{httpapi.SGLang, httpapi.VLLM} {
			for _, staleness := range []float64{0, 0.01} {
				w0 := newTestWorker(t, api, emulate.Adapter{Name: "c", Path: "/adapters/c-r8"})
				w1 := newTestWorker(t, api)
				srv, _ := startGateway(t, "dlora_period_mig:interval=0.05",
					func(c *fleet.Config) { c.Staleness = staleness }, nil, w0, w1)
				ask := func(name string) int {
					status, _ := post(t, srv.URL+"/v1/completions",
						`{"model": "`+name+`", "prompt": [5, 6], "max_tokens": 4}`)
					return status
				}
				if s := ask("c"); s != 200 {
					t.Errorf("%s: an adapter that a worker has: %d", api, s)
				}
				if s := ask("d"); s != 404 {
					t.Errorf("%s: an adapter that nobody has: %d", api, s)
				}
				prefix := map[httpapi.Kind]string{httpapi.SGLang: "", httpapi.VLLM: "/v1"}[api]
				if s, text := post(t, w1.srv.URL+prefix+"/load_lora_adapter",
					`{"lora_name": "d", "lora_path": "/adapters/d-r16"}`); s != 200 {
					t.Fatalf("%s: load on the worker: %d %s", api, s, text)
				}
				eventually(t, "adapter d", func() bool { return ask("d") == 200 })
				if _, text := get(t, srv.URL+"/v1/models"); !strings.Contains(text, `"id":"c"`) ||
					!strings.Contains(text, `"id":"d"`) || strings.Count(text, `"parent":"base"`) != 4 {
					t.Errorf("%s: models %s", api, text)
				}
				// it is loaded on the other worker from the same place
				if s, text := post(t, srv.URL+"/admin/load", `{"worker": 0, "adapter": "d"}`); s != 200 {
					t.Errorf("%s: load of d elsewhere: %d %s", api, s, text)
				}
				if _, text := get(t, w0.srv.URL+"/v1/models"); !strings.Contains(text, `"root":"/adapters/d-r16"`) {
					t.Errorf("%s: the other worker has %s", api, text)
				}
				held := func(want bool) func() bool {
					return func() bool {
						var state struct {
							Workers []struct{ Adapters []string }
						}
						_, text := get(t, srv.URL+"/admin/workers")
						if err := json.Unmarshal([]byte(text), &state); err != nil {
							t.Fatal(err)
						}
						return slices.Contains(state.Workers[1].Adapters, "d") == want
					}
				}
				eventually(t, "holding of d", held(true))
				if s, text := post(t, w1.srv.URL+prefix+"/unload_lora_adapter", `{"lora_name": "d"}`); s != 200 {
					t.Fatalf("%s: unload on the worker: %d %s", api, s, text)
				}
				eventually(t, "knowledge that d is gone", held(false))
				if s := ask("d"); s != 200 {
					t.Errorf("%s: d after one worker dropped it: %d", api, s)
				}
			}
		}
	})
}

// syncBuffer collects a log that several goroutines write.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) lines(t testing.TB, msg string) (list []map[string]any) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for line := range strings.Lines(s.b.String()) {
		m := map[string]any{}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if m["msg"] == msg {
			list = append(list, m)
		}
	}
	return list
}

func TestAccessLog(t *testing.T) {
	inMemory(t, func(t *memory) {
		var log syncBuffer
		logger := slog.New(slog.NewJSONHandler(&log, nil))
		w := newTestWorker(t, httpapi.SGLang)
		plans := &script{plans: []*router.Plan{
			nil,
			{Reason: "one", Load: []router.Placement{{Worker: 0, Adapter: 1}},
				Unload: []router.Placement{{Worker: 0, Adapter: 1}}},
			{Reason: "two", Load: []router.Placement{{Worker: 9, Adapter: 1}}},
			{Reason: "three"},
			{Reason: "four", Move: []router.Move{{ID: 77, From: 1, To: 0}}},
		}}
		setFleet := func(c *fleet.Config) { c.Plans, c.Router.Planner = logger, plans }
		srv, _ := startGateway(t, "round-robin", setFleet,
			func(c *gateway.Config) { c.Access = logger }, newTestWorker(t, httpapi.SGLang), w)
		w.down.Store(true) // whatever goes there is tried again
		for range 4 {
			if s, _ := post(t, srv.URL+"/generate",
				`{"input_ids": [1, 2, 3], "lora_path": "a", "stream": true, "sampling_params": {"max_new_tokens": 5, "ignore_eos": true}}`); s != 200 {
				t.Fatal(s)
			}
		}
		get(t, srv.URL+"/health")
		post(t, srv.URL+"/generate", `{"lora_path": "nope"}`)
		resp, _ := openStream(t, srv.URL, "3000")
		resp.Body.Close() // the client goes away
		eventually(t, "last line", func() bool { return len(log.lines(t, "request")) == 7 })
		lines := log.lines(t, "request")
		for i, want := range []map[string]any{
			{"path": "/generate", "method": "POST", "status": 200., "adapter": "a", "worker": 0.,
				"url": "http://host2", "prompt_tokens": 3., "output_tokens": 5.},
			{}, {}, {},
			{"path": "/health", "method": "GET", "status": 200., "adapter": nil, "worker": nil},
			{"path": "/generate", "status": 404., "adapter": nil},
			{"path": "/generate", "status": 200., "adapter": "a", "broken_off": true},
		} {
			for k, v := range want {
				if lines[i][k] != v {
					t.Errorf("line %d: %s is %v, expected %v", i, k, lines[i][k], v)
				}
			}
			if d, ok := lines[i]["duration_s"].(float64); !ok || d < 0 || lines[i]["client"] == "" ||
				lines[i]["time"] == "" {
				t.Errorf("line %d: %v", i, lines[i])
			}
		}
		for i, l := range lines[:4] {
			first, _ := l["first_byte_s"].(float64)
			if n := l["events"].(float64); n < 1 || n > 6 || l["bytes"].(float64) < 100 || first <= 0 ||
				first > l["duration_s"].(float64) || l["broken_off"] != nil {
				t.Errorf("line %d: %v", i, l)
			}
		}
		eventually(t, "plans", func() bool { return len(log.lines(t, "plan")) == 4 })
		_, metrics := get(t, srv.URL+"/metrics")
		// one that only moves is applied
		for _, line := range []string{`{result="applied"} 2`, `{result="dropped"} 1`, `{result="empty"} 1`} {
			if !strings.Contains(metrics, "lorasim_gateway_plans_total"+line+"\n") {
				t.Errorf("metrics lack %s", line)
			}
		}
		for i, want := range []map[string]any{
			{"result": "applied", "reason": "one", "load": "[b@http://host2]",
				"unload": "[b@http://host2]", "moves": 0., "error": nil},
			{"result": "dropped", "reason": "two", "load": "[b@9]",
				"error": "adapter 1 on worker 9: no such adapter or worker"},
			{"result": "nothing to do", "reason": "three", "load": "[]", "unload": "[]"},
			{"result": "applied", "reason": "four", "moves": 1.},
		} {
			got := log.lines(t, "plan")[i]
			for k, v := range want {
				if list, ok := got[k].([]any); ok {
					got[k] = fmt.Sprint(list)
				}
				if got[k] != v {
					t.Errorf("plan %d: %s is %v, expected %v", i, k, got[k], v)
				}
			}
		}
	})
}

// script is a planner with a list of plans.
type script struct {
	router.Base
	plans []*router.Plan
}

func (s *script) Interval() float64           { return 0.02 }
func (s *script) Applied(*router.Plan, error) {}
func (s *script) Begin(*router.PlannerInput) *router.Pending {
	if len(s.plans) == 0 {
		return nil
	}
	p := s.plans[0]
	s.plans = s.plans[1:]
	return router.Ready(p)
}

// Endpoints that only engines know are passed on, by the adapter they name, and
// what a worker says is passed back.
func TestOtherEndpoints(t *testing.T) {
	inMemory(t, func(t *memory) {
		var mu sync.Mutex
		var got []string
		source := t.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			mu.Lock()
			defer mu.Unlock()
			switch r.URL.Path {
			case "/version":
				io.WriteString(rw, "{}")
			case "/v1/models":
				io.WriteString(rw,
					`{"data":[{"id":"m","parent":null},{"id":"a","parent":"m"},{"id":"b","parent":"m"}]}`)
			case "/metrics":
			case "/tokenize", "/v1/embeddings":
				got = append(got, r.URL.Path+" "+string(body))
				io.WriteString(rw, "answer to "+r.URL.Path)
			case "/server_info", "/get_server_info", "/v1/load_lora_adapter", "/health", "/ready":
				// what this one has not
				http.NotFound(rw, r)
			default:
				got = append(got, r.URL.Path)
				http.Error(rw, "not here", http.StatusNotFound)
			}
		}))
		defer source.Kill()
		srv := newGateway(t, "round-robin", nil, &testWorker{srv: source})
		for _, c := range []struct {
			path, body string
			status     int
			answer     string
		}{
			{"/tokenize", `{"prompt":"x"}`, 200, "answer to /tokenize"},
			{"/v1/embeddings", `{"model":"a","input":"x"}`, 200, "answer to /v1/embeddings"},
			{"/v1/embeddings", `{"model":"nope","input":"x"}`, 404, "known: m, a, b"},
			{"/v1/rerank", `{"model":"m"}`, 404, "not here"},
		} {
			if s, text := post(t, srv.URL+c.path, c.body); s != c.status || !strings.Contains(text, c.answer) {
				t.Errorf("%s %s: %d %s", c.path, c.body, s, text)
			}
		}
		// what none of the workers has is 404, which tells a client what they are
		if status, text := get(t, srv.URL+"/server_info"); status != http.StatusNotFound {
			t.Errorf("/server_info: %d %s", status, text)
		}
		mu.Lock()
		defer mu.Unlock()
		if want := []string{`/tokenize {"prompt":"x"}`, `/v1/embeddings {"model":"a","input":"x"}`,
			"/v1/rerank"}; !slices.Equal(got, want) {
			t.Errorf("the worker got %q, expected %q", got, want)
		}
	})
}
