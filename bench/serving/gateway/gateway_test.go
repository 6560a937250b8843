package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"lorasim/bench/serving/bearer"
	"lorasim/bench/serving/emulate"
	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/gateway"
	"lorasim/bench/serving/httpapi"
	"lorasim/bench/serving/live"
	"lorasim/internal/memnet"
	"lorasim/router"
	_ "lorasim/router/builtin"
	"lorasim/sim/profile"
	"lorasim/trace"
)

func TestMain(m *testing.M) {
	if role := os.Getenv("GATEWAY_BENCHMARK"); role != "" {
		if err := playRole(role, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

const speed = 10

// fastProfile has steps of 10 ms, which take 1 ms here.
func fastProfile() *profile.Profile {
	p := profile.Default()
	p.Name = "base"
	p.Latency = profile.Latency{Decode: profile.Decode{BaseMs: 10}, Prefill: profile.Prefill{BaseMs: 10,
		FirstWaveFactor: 1},
		LoRA: profile.LoRA{Backend: profile.BackendNone}}
	p.Memory.KVTokens = 1 << 24
	p.Engine.MaxRunningRequests = 4096
	return &p
}

// memory is a test in a bubble of testing/synctest, with a network in memory.
type memory struct {
	*testing.T
	net    *memnet.Network
	client *http.Client // of the tests themselves
	hosts  int
}

func inMemory(t *testing.T, test func(t *memory)) {
	synctest.Test(t, func(t *testing.T) {
		// servers linger half a second over a request that they did not read
		t.Cleanup(func() { time.Sleep(time.Second) })
		n := memnet.New()
		client := live.NewHTTPClient(n.Transport())
		t.Cleanup(client.CloseIdleConnections)
		test(&memory{T: t, net: n, client: client})
	})
}

func (t *memory) serve(h http.Handler) *memnet.Host {
	t.hosts++
	return t.net.Serve(fmt.Sprintf("host%d", t.hosts), h)
}

type testWorker struct {
	*emulate.Worker
	srv  *memnet.Host
	down atomic.Bool
	seen atomic.Int64 // requests
	auth atomic.Value // of the last one: its Authorization
}

func newTestWorker(t *memory, api httpapi.Kind, adapters ...emulate.Adapter) *testWorker {
	t.Helper()
	return newModelWorker(t, api, "base", adapters...)
}

// newModelWorker is a worker of a base model.
func newModelWorker(t *memory, api httpapi.Kind, model string, adapters ...emulate.Adapter) *testWorker {
	t.Helper()
	w, err := emulate.New(emulate.Config{ModelName: model, Costs: fastProfile().Compile(), API: api, Speed: speed,
		Home: router.Disk, Adapters: adapters})
	if err != nil {
		t.Fatal(err)
	}
	tw := &testWorker{Worker: w}
	tw.srv = t.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if tw.down.Load() {
			panic(http.ErrAbortHandler)
		}
		if r.Method == http.MethodPost {
			tw.seen.Add(1)
			tw.auth.Store(r.Header.Get("Authorization"))
		}
		w.ServeHTTP(rw, r)
	}))
	t.Cleanup(func() {
		tw.srv.Kill()
		w.Close()
	})
	return tw
}

// newGateway starts a gateway before workers; adapters a and b.
func newGateway(t *memory, policy string, set func(*gateway.Config), workers ...*testWorker) *memnet.Host {
	t.Helper()
	srv, _ := startGateway(t, policy, nil, set, workers...)
	return srv
}

func startGateway(t *memory, policy string, setFleet func(*fleet.Config), set func(*gateway.Config),
	workers ...*testWorker) (*memnet.Host, *gateway.Gateway) {
	t.Helper()
	var urls []string
	for _, w := range workers {
		urls = append(urls, w.srv.URL)
	}
	adapters := []trace.Adapter{{Name: "a", Rank: 8}, {Name: "b", Rank: 16}}
	newRouter := func(infos []fleet.Info, adapters []trace.Adapter) (*router.Router, []fleet.Limits, error) {
		n := len(infos)
		spec := router.Spec{MaxRunning: 64, Slots: 8, Cost: profile.Model{Costs: fastProfile().Compile()}}
		rt, err := router.New(policy, router.Env{Workers: router.Alike(n, spec), Adapters: adapters})
		return rt, nil, err
	}
	rt, _, err := newRouter(make([]fleet.Info, len(urls)), adapters)
	if err != nil {
		t.Fatal(err)
	}
	client := live.NewHTTPClient(t.net.Transport())
	start := time.Now()
	fc := fleet.Config{Connection: fleet.Connection{URLs: urls, Client: client}, Router: rt, Adapters: adapters,
		Extend: newRouter,
		Now:    func() float64 { return time.Since(start).Seconds() },
		Poll:   20 * time.Millisecond, Timeout: 20 * time.Second}
	if setFleet != nil {
		setFleet(&fc)
	}
	f, err := fleet.New(fc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := f.Start(ctx); err != nil {
		t.Fatal(err)
	}
	cfg := gateway.Config{Fleet: f, Retries: 2, AdminHosts: []string{fmt.Sprintf("host%d", t.hosts+1)}}
	if set != nil {
		set(&cfg)
	}
	g, err := gateway.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); f.Run(ctx) }()
	srv := t.serve(gateway.Both(g))
	t.Cleanup(func() {
		srv.Kill()
		cancel()
		<-done
		f.Close()
		g.Close()
		client.CloseIdleConnections()
	})
	return srv, g
}

func post(t *memory, url string, body string) (int, string) {
	t.Helper()
	resp, err := t.client.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

func get(t *memory, url string) (int, string) {
	t.Helper()
	resp, err := t.client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// Clients of every interface reach workers of both kinds, whatever spelling of
// an adapter they use.
func TestInterfaces(t *testing.T) {
	inMemory(t, func(t *memory) {
		for _, api := range []httpapi.Kind{httpapi.SGLang, httpapi.VLLM} {
			srv := newGateway(t, "round-robin", nil, newTestWorker(t, api), newTestWorker(t, api))
			want := emulate.Text(emulate.Tokens("a", []int32{5, 6}, 4))
			for _, model := range []string{"a", "base:a"} {
				for _, stream := range []bool{false, true} {
					body := fmt.Sprintf(`{"model": %q, "prompt": [5, 6], "max_tokens": 4, "ignore_eos": true, "stream": %t}`, model, stream)
					status, text := post(t, srv.URL+"/v1/completions", body)
					if status != 200 || streamedText(text, stream) != want {
						t.Errorf("%s, model %s, stream %v: %d %s", api, model, stream, status, text)
					}
				}
			}
			status, text := post(t, srv.URL+"/v1/chat/completions",
				`{"model": "base", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}`)
			if status != 200 || !strings.Contains(text, "chat.completion") {
				t.Errorf("%s, chat: %d %s", api, status, text)
			}
			if api == httpapi.SGLang {
				status, text = post(t, srv.URL+"/generate",
					`{"input_ids": [5, 6], "lora_path": "a", "sampling_params": {"max_new_tokens": 4, "ignore_eos": true}}`)
				if status != 200 || !strings.Contains(text, want) {
					t.Errorf("generate: %d %s", status, text)
				}
				if status, text = get(t, srv.URL+"/get_model_info"); status != 200 ||
					!strings.Contains(text, "is_generation") {
					t.Errorf("model info: %d %s", status, text)
				}
			}
			if status, text = get(t, srv.URL+"/v1/models"); status != 200 || !strings.Contains(text, `"id":"base"`) ||
				!strings.Contains(text, `"id":"b"`) {
				t.Errorf("models: %d %s", status, text)
			}
		}
	})
}

// streamedText joins the text of an OpenAI completion.
func streamedText(reply string, stream bool) string {
	var text string
	for line := range strings.SplitSeq(reply, "\n") {
		if stream {
			var ok bool
			if line, ok = strings.CutPrefix(line, "data: "); !ok {
				continue
			}
		}
		var o struct {
			Choices []struct{ Text string }
		}
		if json.Unmarshal([]byte(line), &o) == nil {
			for _, c := range o.Choices {
				text += c.Text
			}
		}
	}
	return text
}

func TestRefusals(t *testing.T) {
	inMemory(t, func(t *memory) {
		w := newTestWorker(t, httpapi.SGLang)
		srv := newGateway(t, "round-robin", func(c *gateway.Config) { c.MaxBody = 1000 }, w)
		for _, c := range []struct {
			path, body string
			status     int
			say        string
		}{
			{"/generate", `{"text": "x", "lora_path": "nope"}`, 404, "known: base, a, b"},
			{"/v1/completions", `{"model": "nope", "prompt": "x"}`, 404, "known: base, a, b"},
			{"/v1/completions", `{"model": "base:nope", "prompt": "x"}`, 404, "nope"},
			{"/v1/completions", `{"model": "` + strings.Repeat("n", 500) + `"}`, 404, "unknown adapter or model \\\"" +
				strings.Repeat("n", 99) + "…"},
			{"/generate", `{"text": "` + strings.Repeat("x", 2000) + `"}`, 413,
				"too large: it names no model within its first 1000 bytes"},
			{"/admin/load", `{"adapter": "a"}`, 400, `field \"worker\" is missing`},
			{"/admin/load", `{"worker": 0}`, 400, `field \"adapter\" is missing`},
			{"/admin/load", `{"worker": 0, "adapter": 3}`, 400, "adapter is 3, expected the name of an adapter"},
			{"/admin/load", `{"worker": 0, "adapter": ""}`, 400, "expected the name of an adapter"},
			{"/admin/load", `{"worker": 7, "adapter": "a"}`, 400, "expected 0 to 0"},
			{"/admin/load", `{"worker": "0", "adapter": "a"}`, 400, "expected the index (from 0)"},
			{"/admin/load", `{"worker": -1, "adapter": "a"}`, 400, "expected the index (from 0)"},
			{"/admin/load", `{"worker": null, "adapter": "a"}`, 400, "expected the index (from 0)"},
			{"/admin/load", `{"worker": 0, "adaptor": "a"}`, 400,
				`unknown field \"adaptor\", did you mean \"adapter\"?`},
			{"/admin/unload", `{"worker": 0, "adapter": "zz"}`, 400, "unknown adapter"},
			{"/admin/unload", `{"worker": 0, "adapter": "a", "drain": true}`, 400, `unknown field \"drain\"`},
			{"/admin/drain", `{"worker": 0}`, 400, `field \"drain\" is missing`},
			{"/admin/drain", `{"drain": true}`, 400, `field \"worker\" is missing`},
			{"/admin/drain", `{"worker": 0, "drain": null}`, 400, "drain is null, expected true or false"},
			{"/admin/drain", `{"worker": 0, "drain": "true"}`, 400, "expected true or false"},
			{"/admin/drain", `{"worker": 1, "drain": true}`, 400, "expected 0 to 0"},
			{"/admin/drain", `null`, 400, "expected a JSON object with"},
			{"/admin/drain", `{"worker": 0, "drain": true} {}`, 400, "expected a JSON object with"},
			{"/load_lora_adapter", `{"lora_name": "x", "lora_path": "x"}`, 404, "not served to clients"},
			{"/sleep", ``, 404, "not served to clients"},
		} {
			if status, text := post(t, srv.URL+c.path, c.body); status != c.status || !strings.Contains(text, c.say) {
				t.Errorf("%s %.40s: %d %s, expected %d", c.path, c.body, status, text, c.status)
			}
		}
		if n := w.seen.Load(); n > 2 { // its two adapters were loaded
			t.Errorf("%d refused requests reached the worker", n-2)
		}
	})
}

// All workers down: 503 until one is back; one of two down: nobody notices.
func TestRecovery(t *testing.T) {
	inMemory(t, func(t *memory) {
		w0, w1 := newTestWorker(t, httpapi.SGLang), newTestWorker(t, httpapi.SGLang)
		srv := newGateway(t, "round-robin", nil, w0, w1)
		ask := func() int {
			status, _ := post(t, srv.URL+"/generate",
				`{"input_ids": [1], "lora_path": "a", "sampling_params": {"max_new_tokens": 2}}`)
			return status
		}
		w0.down.Store(true)
		for range 6 {
			if s := ask(); s != 200 {
				t.Fatalf("with one of two workers down: %d", s)
			}
		}
		w1.down.Store(true)
		eventually(t, "503 when all are down", func() bool { return ask() == 503 })
		const why = "no worker is available: worker 0 (http://host1) does not answer; worker 1 (http://host2) does not answer"
		if s, text := get(t, srv.URL+"/health"); s != 503 || !strings.Contains(text, why) {
			t.Errorf("health with all down: %d", s)
		}
		w1.down.Store(false)
		eventually(t, "recovery", func() bool { return ask() == 200 })
		if s, _ := get(t, srv.URL+"/health"); s != 200 {
			t.Errorf("health after the recovery: %d", s)
		}
	})
}

// eventually polls for a change that a health check has to notice.
func eventually(t *memory, what string, ok func() bool) {
	t.Helper()
	for range 500 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("no %s within 5 s", what)
}

func TestAdmin(t *testing.T) {
	inMemory(t, func(t *memory) {
		srv := newGateway(t, "round-robin", nil, newTestWorker(t, httpapi.SGLang), newTestWorker(t, httpapi.SGLang))
		if s, text := post(t, srv.URL+"/admin/unload", `{"worker": 1, "adapter": "a"}`); s != 200 {
			t.Fatalf("unload: %d %s", s, text)
		}
		eventually(t, "unload", func() bool {
			_, text := get(t, srv.URL+"/admin/workers")
			return strings.Count(text, `"adapters":["b"]`) == 1
		})
		if s, text := post(t, srv.URL+"/admin/load", `{"worker": 1, "adapter": "a"}`); s != 200 ||
			strings.Count(text, `"adapters":["a","b"]`) != 2 {
			t.Errorf("load: %d %s", s, text)
		}
		if s, text := post(t, srv.URL+"/admin/drain", `{"worker": 0, "drain": true}`); s != 200 ||
			strings.Count(text, `"draining":true`) != 1 {
			t.Errorf("drain: %d %s", s, text)
		}
		for range 4 {
			post(t, srv.URL+"/generate", `{"input_ids": [1], "sampling_params": {"max_new_tokens": 2}}`)
		}
		_, text := get(t, srv.URL+"/metrics")
		for _, line := range []string{
			`lorasim_gateway_requests_total{adapter="base",code="200",result="complete",worker="http://host2"} 4`,
			`lorasim_gateway_adapter_unloads_total 1`,
			`lorasim_gateway_requests_running{worker="http://host1"} 0`,
		} {
			if !strings.Contains(text, line+"\n") {
				t.Errorf("metrics lack %s:\n%s", line, text)
			}
		}
		if s, text := post(t, srv.URL+"/admin/drain", `{"worker": 0, "drain": false}`); s != 200 ||
			strings.Contains(text, `"draining":true`) {
			t.Errorf("end of the drain: %d %s", s, text)
		}
	})
}

func TestAPIKey(t *testing.T) {
	inMemory(t, func(t *memory) {
		w := newTestWorker(t, httpapi.SGLang)
		srv := newGateway(t, "round-robin", func(c *gateway.Config) { c.Keys = bearer.New("k") }, w)
		if s, _ := get(t, srv.URL+"/v1/models"); s != 401 {
			t.Errorf("without the key: %d", s)
		}
		// its own key is not for workers
		for url, sees := range map[string]string{srv.URL: "", newGateway(t, "round-robin", nil, w).URL: "Bearer k"} {
			for _, what := range []struct{ method, path, body string }{
				{"GET", "/v1/models", ""},
				{"POST", "/generate", `{"input_ids": [1], "sampling_params": {"max_new_tokens": 2}}`},
			} {
				req, _ := http.NewRequest(what.method, url+what.path, strings.NewReader(what.body))
				req.Header.Set("Authorization", "Bearer k")
				resp, err := t.client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if resp.StatusCode != 200 {
					t.Errorf("%s with the key: %d", what.path, resp.StatusCode)
				}
			}
			if got := w.auth.Load(); got != sees {
				t.Errorf("the worker saw the key %q, expected %q", got, sees)
			}
		}
	})
}

// A client that goes away ends its request on the worker.
func TestClientGone(t *testing.T) {
	inMemory(t, func(t *memory) {
		w := newTestWorker(t, httpapi.SGLang)
		srv := newGateway(t, "round-robin", nil, w)
		ctx, cancel := context.WithCancel(context.Background())
		req, _ := http.NewRequestWithContext(ctx, "POST", srv.URL+"/generate",
			strings.NewReader(`{"input_ids": [1], "stream": true, "sampling_params": {"max_new_tokens": 4000}}`))
		resp, err := t.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		cancel()
		resp.Body.Close()
		eventually(t, "end of the request on the worker", func() bool { return w.Running() == 0 })
	})
}

// 1,000 clients at a time, and the books are balanced afterwards.
func TestManyClients(t *testing.T) {
	inMemory(t, func(t *memory) {
		w0, w1 := newTestWorker(t, httpapi.SGLang), newTestWorker(t, httpapi.SGLang)
		srv := newGateway(t, "least-loaded", nil, w0, w1)
		var wg sync.WaitGroup
		var ok atomic.Int64
		for i := range 1000 {
			wg.Go(func() {
				body := fmt.Sprintf(`{"input_ids": [%d], "stream": true, "lora_path": "b", "sampling_params": {"max_new_tokens": 20, "ignore_eos": true}}`, i)
				resp, err := t.client.Post(srv.URL+"/generate", "application/json", strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				defer resp.Body.Close()
				data, err := io.ReadAll(resp.Body)
				if err == nil && bytes.HasSuffix(data, []byte("data: [DONE]\n\n")) &&
					bytes.Contains(data, []byte(emulate.Text(emulate.Tokens("b", []int32{int32(i)}, 20))+`"`)) {
					ok.Add(1)
				}
			})
		}
		wg.Wait()
		if ok.Load() != 1000 {
			t.Errorf("%d of 1000 replies are whole", ok.Load())
		}
		_, text := get(t, srv.URL+"/admin/workers")
		if strings.Count(text, `"running":0,"queued":0`) != 2 {
			t.Errorf("after all have ended: %s", text)
		}
	})
}

// BenchmarkToken measures the time per streamed token, direct and through the
// gateway, from a worker that takes no time itself.
func BenchmarkToken(b *testing.B) {
	source := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/generate" {
			io.WriteString(rw, "{}") // what the fleet asks for
			return
		}
		var q struct{ N int }
		json.NewDecoder(r.Body).Decode(&q)
		event := []byte("data: {\"text\": \" t1\", \"output_ids\": [1], \"meta_info\": {\"completion_tokens\": 1}}\n\n")
		for range q.N {
			rw.Write(event)
			rw.(http.Flusher).Flush()
		}
	}))
	defer source.Close()
	rt, err := router.New("round-robin", router.Env{Workers: router.Alike(1, router.Spec{})})
	if err != nil {
		b.Fatal(err)
	}
	client := live.NewHTTPClient(nil)
	f, err := fleet.New(fleet.Config{Connection: fleet.Connection{URLs: []string{source.URL}, API: httpapi.SGLang,
		Client: client}, Router: rt, Now: func() float64 { return 0 }})
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	if err := f.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	g, err := gateway.New(gateway.Config{Fleet: f})
	if err != nil {
		b.Fatal(err)
	}
	defer g.Close()
	proxy := httptest.NewServer(g)
	defer proxy.Close()
	defer client.CloseIdleConnections()
	for _, c := range []struct{ name, url string }{{"direct", source.URL}, {"gateway", proxy.URL}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			resp, err := client.Post(c.url+"/generate", "application/json",
				strings.NewReader(fmt.Sprintf(`{"N": %d}`, b.N)))
			if err != nil {
				b.Fatal(err)
			}
			defer resp.Body.Close()
			n, err := io.Copy(io.Discard, resp.Body)
			if err != nil || n < int64(b.N) {
				b.Fatal(n, err)
			}
		})
	}
}

// BenchmarkTokenLatency measures how long a token of a paced stream takes from
// the worker's write to the client's read.
func BenchmarkTokenLatency(b *testing.B) {
	start := time.Now()
	source := newPacedSource(start)
	defer source.Close()
	rt, err := router.New("round-robin", router.Env{Workers: router.Alike(1, router.Spec{})})
	if err != nil {
		b.Fatal(err)
	}
	client := live.NewHTTPClient(nil)
	defer client.CloseIdleConnections()
	f, err := fleet.New(fleet.Config{Connection: fleet.Connection{URLs: []string{source.URL}, API: httpapi.SGLang,
		Client: client}, Router: rt, Now: func() float64 { return 0 }})
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	if err := f.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	g, err := gateway.New(gateway.Config{Fleet: f})
	if err != nil {
		b.Fatal(err)
	}
	defer g.Close()
	proxy := httptest.NewServer(g)
	defer proxy.Close()
	for _, c := range []struct{ name, url string }{{"direct", source.URL}, {"gateway", proxy.URL}} {
		b.Run(c.name, func(b *testing.B) {
			resp, err := client.Post(c.url+"/generate", "application/json",
				strings.NewReader(fmt.Sprintf(`{"N": %d}`, b.N)))
			if err != nil {
				b.Fatal(err)
			}
			defer resp.Body.Close()
			lines := bufio.NewScanner(resp.Body)
			var sum time.Duration
			n := 0
			for lines.Scan() {
				var at int64
				if _, err := fmt.Sscanf(lines.Text(), "data: %d", &at); err == nil {
					sum += time.Since(start) - time.Duration(at)
					n++
				}
			}
			b.ReportMetric(float64(sum.Microseconds())/float64(max(n, 1)), "us-late/token")
		})
	}
}

// newPacedSource sends an event that states its time every 2 ms.
func newPacedSource(start time.Time) *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var q struct{ N int }
		if json.NewDecoder(r.Body).Decode(&q) != nil {
			io.WriteString(rw, "{}") // what the fleet asks for
		}
		for range q.N {
			time.Sleep(2 * time.Millisecond)
			fmt.Fprintf(rw, "data: %d\n\n", time.Since(start))
			rw.(http.Flusher).Flush()
		}
	}))
}
