package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/httpapi"
	"lorasim/router"
	"lorasim/trace"
)

// first routes to the first usable worker, and counts what finishes.
type first struct {
	router.Base
	finished atomic.Int64
	next     bool // to the one after the latest instead
	latest   int
}

func (p *first) Route(r router.Request, v *router.View) router.Decision {
	return router.To(p.pick(r, v))
}

func (p *first) pick(_ router.Request, v *router.View) int {
	for i := range v.Workers {
		if k := (i + p.latest) % len(v.Workers); v.Workers[k].Usable() {
			if p.next {
				p.latest = k + 1
			}
			return k
		}
	}
	return router.None
}

func (p *first) Note(e router.Event) error {
	if e.Kind == router.Finished {
		p.finished.Add(1)
	}
	return nil
}

// scripted is a gateway to workers that answer requests as told. Loads of
// adapters succeed and are counted.
type scripted struct {
	*httptest.Server
	workers []*httptest.Server
	fleet   *fleet.Fleet
	policy  *first
	access  bytes.Buffer
	loads   atomic.Int64
	header  http.Header // for workers
	g       *Gateway
}

// clientsOnly is a server without what is for operators.
func (s *scripted) clientsOnly(t *testing.T) *httptest.Server {
	srv := httptest.NewServer(s.g)
	t.Cleanup(srv.Close)
	return srv
}

// key sets the workers' key.
func (s *scripted) key(value string) { s.header.Set("Authorization", value) }

func startScripted(t *testing.T, retries int, answers ...http.HandlerFunc) *scripted {
	t.Helper()
	return startScriptedWith(t, retries, nil, answers...)
}

func startScriptedWith(t *testing.T, retries int, set func(*Config), answers ...http.HandlerFunc) *scripted {
	t.Helper()
	s := &scripted{policy: &first{}, header: http.Header{}}
	client := &http.Client{Transport: &http.Transport{}}
	var urls []string
	var servers []*httptest.Server
	var started atomic.Bool
	for _, a := range answers {
		w := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path == "/load_lora_adapter":
				s.loads.Add(1)
			case !started.Load(), r.Method == http.MethodGet &&
				(r.URL.Path == "/v1/models" || r.URL.Path == "/server_info"):
				io.WriteString(rw, "{}") // what the fleet asks for
			default:
				a(rw, r)
			}
		}))
		t.Cleanup(w.Close)
		urls, servers = append(urls, w.URL), append(servers, w)
	}
	f, err := fleet.New(fleet.Config{
		Connection: fleet.Connection{URLs: urls, API: httpapi.SGLang, Client: client, Header: s.header},
		Adapters:   []trace.Adapter{{Name: "a"}},
		Router: &router.Router{Policy: s.policy,
			Placement: make([][]int32, len(urls))}, Now: func() float64 { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Start(t.Context()); err != nil || f.Up() != len(urls) {
		t.Fatal(err, f.Up())
	}
	started.Store(true)
	s.workers = servers
	for i, a := range answers {
		if a == nil {
			servers[i].Close() // refuses connections
		}
	}
	cfg := Config{Fleet: f, Retries: retries, Access: slog.New(slog.NewJSONHandler(&s.access, nil))}
	if set != nil {
		set(&cfg)
	}
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.fleet, s.g = f, g
	s.Server = httptest.NewServer(Both(g))
	t.Cleanup(func() { s.Server.Close(); f.Close(); g.Close(); client.CloseIdleConnections() })
	return s
}

func (s *scripted) post(t *testing.T, adapter string) (int, string, error) {
	t.Helper()
	body, _ := json.Marshal(map[string]any{"text": "x", "lora_path": adapter})
	resp, err := s.Client().Post(s.URL+"/generate", "application/json", bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

func (s *scripted) metrics(t *testing.T) string {
	t.Helper()
	resp, err := s.Client().Get(s.URL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func status(code int, text string) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) {
		rw.WriteHeader(code)
		io.WriteString(rw, text)
	}
}

// Which answers go to the client, and after which another worker is asked.
func TestRetries(t *testing.T) {
	ok := status(200, "fine")
	for _, c := range []struct {
		name    string
		retries int
		adapter string
		workers []http.HandlerFunc
		want    string // status and body
		tries   int
		up      int // workers at the end
		loads   int64
	}{
		{"all well", 1, "", []http.HandlerFunc{ok, ok}, "200 fine", 1, 2, 0},
		{"an error", 1, "", []http.HandlerFunc{status(500, "bad"), ok}, "200 fine", 2, 2, 0},
		{"too busy", 1, "", []http.HandlerFunc{status(429, "busy"), ok}, "200 fine", 2, 2, 0},
		{"unavailable", 1, "", []http.HandlerFunc{status(503, "later"), ok}, "200 fine", 2, 2, 0},
		{"not implemented", 1, "", []http.HandlerFunc{status(501, "never"), ok}, "501 never", 1, 2, 0},
		{"the client's fault", 1, "", []http.HandlerFunc{status(400, "no"), ok}, "400 no", 1, 2, 0},
		{"nothing there", 1, "", []http.HandlerFunc{status(404, "what"), ok}, "404 what", 1, 2, 0},
		{"no such adapter there", 1, "a", []http.HandlerFunc{status(404, "what"), ok}, "200 fine", 2, 2, 2},
		{"both fail: the last answer", 1, "", []http.HandlerFunc{status(500, "one"), status(502, "two")}, "502 two", 2,
			2, 0},
		{"no retries: the first", 0, "", []http.HandlerFunc{status(500, "one"), ok}, "500 one", 1, 2, 0},
		{"refused", 1, "", []http.HandlerFunc{nil, ok}, "200 fine", 2, 1, 0},
		{"refused at the load", 1, "a", []http.HandlerFunc{nil, ok}, "200 fine", 2, 1, 1},
		{"refused, no retries", 0, "", []http.HandlerFunc{nil, ok},
			`502 {"error":{"code":502,"message":"the worker did not answer"`, 1, 1, 0},
		{"all refuse", 2, "", []http.HandlerFunc{nil, nil},
			`503 {"error":{"code":503,"message":"the worker did not answer"`, 2, 0, 0},
	} {
		s := startScripted(t, c.retries, c.workers...)
		code, text, err := s.post(t, c.adapter)
		if got := fmt.Sprintf("%d %s", code, text); err != nil || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s, %v; expected %s", c.name, got, err, c.want)
		}
		if s.fleet.Up() != c.up || s.loads.Load() != c.loads {
			t.Errorf("%s: %d workers are up, %d loads", c.name, s.fleet.Up(), s.loads.Load())
		}
		if got := s.policy.finished.Load(); got != map[bool]int64{true: 1}[code == 200] {
			t.Errorf("%s: %d finished", c.name, got)
		}
		if n := retriesIn(s.metrics(t)); n != min(c.tries-1, c.retries) {
			t.Errorf("%s: %d retries counted", c.name, n)
		}
		s.Close()
		var line struct{ Tries, Worker int }
		if err := json.Unmarshal([]byte(strings.SplitN(s.access.String(), "\n", 2)[0]), &line); err != nil ||
			line.Tries != c.tries || line.Worker != c.tries-1 {
			t.Errorf("%s: the log has %s", c.name, s.access.String())
		}
	}
}

// retriesIn adds up the retries of all reasons.
func retriesIn(metrics string) (n int) {
	lines := regexp.MustCompile(`(?m)^lorasim_gateway_retries_total\{.*\} (\d+)$`)
	for _, m := range lines.FindAllStringSubmatch(metrics, -1) {
		k, _ := strconv.Atoi(m[1])
		n += k
	}
	return n
}

// A worker that does not have what it should have is given it again; one that
// refused something else is not.
func TestForgets(t *testing.T) {
	for code, want := range map[int]bool{404: false, 503: true} {
		fails := atomic.Bool{}
		s := startScripted(t, 1, func(rw http.ResponseWriter, r *http.Request) {
			if fails.Load() {
				rw.WriteHeader(code)
			}
		}, status(200, ""))
		s.post(t, "a")
		fails.Store(true)
		s.post(t, "a")
		if has := len(s.fleet.Workers()[0].Adapters) == 1; has != want {
			t.Errorf("after %d the worker has the adapter: %v", code, has)
		}
	}
}

// An answer that breaks off does so at the client too, and is counted as broken;
// the worker is not down for it. An answer without a byte teaches nobody.
func TestBrokenAnswer(t *testing.T) {
	s := startScripted(t, 1, func(rw http.ResponseWriter, _ *http.Request) {
		io.WriteString(rw, "data: 1\n\n")
		rw.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}, status(200, "fine"))
	code, text, err := s.post(t, "")
	if code != 200 || text != "data: 1\n\n" || err == nil {
		t.Errorf("%d %q, %v; expected the beginning and an error", code, text, err)
	}
	if m := s.metrics(t); !strings.Contains(m,
		fmt.Sprintf(`lorasim_gateway_requests_total{adapter="base",code="200",result="broken",worker="%s"} 1`,
			s.fleet.URL(0))) || s.fleet.Up() != 2 ||
		s.policy.finished.Load() != 0 {
		t.Errorf("%d up, %d finished in\n%s", s.fleet.Up(), s.policy.finished.Load(), m)
	}

	s = startScripted(t, 0, status(200, ""))
	if code, text, err := s.post(t, ""); code != 200 || text != "" || err != nil || s.policy.finished.Load() != 0 {
		t.Errorf("%d %q, %v, %d finished", code, text, err, s.policy.finished.Load())
	}
}

// Events count as tokens, and a part of an answer counts as one at least.
func TestTokensOfAnswer(t *testing.T) {
	next := make(chan struct{})
	s := startScripted(t, 0, func(rw http.ResponseWriter, _ *http.Request) {
		for _, part := range []string{"data: 1\n\n", "data: 2\n\ndata: 3\n\n", "rest"} {
			io.WriteString(rw, part)
			rw.(http.Flusher).Flush()
			<-next
		}
	})
	resp, err := s.Client().Post(s.URL+"/generate", "application/json", strings.NewReader(`{"text": "x"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	buf := make([]byte, 100)
	for _, want := range []string{"data: 1\n\n", "data: 2\n\ndata: 3\n\n", "rest"} {
		n, err := resp.Body.Read(buf) // each part comes as soon as the worker sends it
		if string(buf[:n]) != want {
			t.Fatalf("%q, %v", buf[:n], err)
		}
		if w := s.fleet.Workers()[0]; w.Running != 1 || w.Queued != 0 {
			t.Errorf("%+v", w)
		}
		next <- struct{}{}
	}
	if _, err := resp.Body.Read(buf); err != io.EOF {
		t.Error(err)
	}
	s.Close()
	var line struct{ Events int }
	if err := json.Unmarshal(s.access.Bytes(), &line); err != nil || line.Events != 4 {
		t.Errorf("%v: %s", err, s.access.String())
	}
}

// What is allowed passes: method, path, query, body, headers but those of one
// connection, status and trailers.
func TestPassesAnything(t *testing.T) {
	var got *http.Request
	var body []byte
	allow := []string{"PUT /a/c", "/v1/responses/{id}", "DELETE /v1/responses/{id}", "PATCH /new",
		"OPTIONS /v1/completions"}
	s := startScriptedWith(t, 0, func(c *Config) { c.Allow = allow }, func(rw http.ResponseWriter, r *http.Request) {
		got = r.Clone(r.Context())
		body, _ = io.ReadAll(r.Body)
		h := rw.Header()
		h.Set("Trailer", "X-After")
		h.Set("X-Kept", "yes")
		h.Set("Connection", "X-Dropped")
		h.Set("X-Dropped", "yes")
		rw.WriteHeader(http.StatusTeapot)
		io.WriteString(rw, "answer")
		h.Set("X-After", "end")
	})
	for _, c := range []struct{ method, uri, body string }{
		{"PUT", "/a/c?x=1&y=%20", "not JSON"}, {"GET", "/v1/responses/r1?stream=true", ""},
		{"DELETE", "/v1/responses/r1", ""},
		{"POST", "/v1/audio/speech", `{"input": "x"}`}, {"PATCH", "/new", ""}, {"OPTIONS", "/v1/completions", ""},
	} {
		req, err := http.NewRequest(c.method, s.URL+c.uri, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"X-Own": {"1", "2"}, "Connection": {"X-Hop, Upgrade"}, "X-Hop": {"1"},
			"Upgrade": {"websocket"}, "Te": {"trailers"},
			"Proxy-Authorization": {"secret"}, "Accept-Encoding": {"br"}}
		resp, err := s.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusTeapot || string(text) != "answer" ||
			resp.Header.Get("X-Kept") != "yes" || resp.Header["X-Dropped"] != nil ||
			resp.Trailer.Get("X-After") != "end" {
			t.Errorf("%s %s: %d %q, %v, header %v, trailer %v", c.method, c.uri, resp.StatusCode, text, err,
				resp.Header, resp.Trailer)
		}
		if got.Method != c.method || got.RequestURI != c.uri || string(body) != c.body {
			t.Errorf("the worker got %s %s %q, expected %v", got.Method, got.RequestURI, body, c)
		}
		for name, want := range map[string]string{"X-Own": "[1 2]", "X-Hop": "[]", "Upgrade": "[]", "Connection": "[]",
			"Proxy-Authorization": "[]", "Te": "[trailers]", "Accept-Encoding": "[br]",
			"X-Forwarded-For": "[127.0.0.1]"} {
			if v := fmt.Sprint(append([]string{}, got.Header[name]...)); v != want {
				t.Errorf("%s %s: the worker got %s %s, expected %s", c.method, c.uri, name, v, want)
			}
		}
		if w := s.fleet.Workers()[0]; w.Running+w.Queued != 0 {
			t.Errorf("after %s %s: %+v", c.method, c.uri, w)
		}
	}
}

// Bytes pass as they are, whatever events they make.
func TestBytesOfStream(t *testing.T) {
	const stream = ": comment\r\ndata: 1\ndata: 2\n\nid: 5\r\rdata:\n\n\xff\x00data: [DONE]"
	s := startScripted(t, 0, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		for i := range len(stream) {
			io.WriteString(rw, stream[i:i+1])
			rw.(http.Flusher).Flush()
		}
	})
	if code, text, err := s.post(t, ""); code != 200 || text != stream || err != nil {
		t.Errorf("%d %q, %v; expected %q", code, text, err, stream)
	}
}

// A body longer than is kept for another try passes while it comes, and is offered
// once.
func TestLongBodyPasses(t *testing.T) {
	first := make(chan string, 1)
	var length atomic.Int64
	s := startScripted(t, 1, func(rw http.ResponseWriter, r *http.Request) {
		head := make([]byte, 20)
		io.ReadFull(r.Body, head)
		first <- string(head)
		n, _ := io.Copy(io.Discard, r.Body)
		length.Store(n + 20)
		rw.WriteHeader(http.StatusServiceUnavailable)
	}, status(200, "fine"))
	in, out := io.Pipe()
	go func() {
		io.WriteString(out, `{"lora_path":null,  "text": "`)
		io.WriteString(out, strings.Repeat("x", keep))
		if got := <-first; got != `{"lora_path":null,  ` { // it has arrived before the end was sent
			t.Errorf("the worker got %q", got)
		}
		io.WriteString(out, `"}`)
		out.Close()
	}()
	resp, err := s.Client().Post(s.URL+"/generate", "application/json", in)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable || length.Load() != keep+31 {
		t.Errorf("%d, the worker got %d bytes", resp.StatusCode, length.Load())
	}
}

// loopback is the address of a test's server.
var loopback = regexp.MustCompile(`127\.0\.0\.1:\d+`)

// A look-up that one worker does not know goes to the next, if its path names one
// thing among many; what concerns all workers goes to all.
func TestOtherWorkers(t *testing.T) {
	var asked atomic.Int64
	worker := func(code int, text string) http.HandlerFunc {
		return func(rw http.ResponseWriter, r *http.Request) { asked.Add(1); status(code, text)(rw, r) }
	}
	for _, c := range []struct {
		method, path string
		answers      [3]int
		want         string
		asked        int64
	}{
		{"GET", "/v1/responses/r1", [3]int{404, 200, 200}, "200 two", 2},
		{"GET", "/v1/responses/r1", [3]int{200, 200, 200}, "200 one", 1},
		{"GET", "/v1/responses/r1", [3]int{404, 404, 404}, "404 three", 3},
		{"POST", "/v1/responses/r1/cancel", [3]int{404, 404, 200}, "200 three", 3},
		{"GET", "/version", [3]int{400, 200, 200}, "400 one", 1}, {"GET", "/version", [3]int{404, 200, 200}, "404 one",
			1},
		{"POST", "/flush_cache", [3]int{200, 200, 200}, "200 three", 3},
		{"GET", "/flush_cache?timeout=1", [3]int{200, 200, 200}, "200 three", 3},
		{"POST", "/admin/start_profile", [3]int{200, 400, 200},
			`400 {"error":{"code":400,"message":"worker 1 (http://HOST): two"`, 2},
		{"POST", "/admin/flush_cache", [3]int{400, 200, 200},
			`400 {"error":{"code":400,"message":"worker 0 (http://HOST): one"`, 1},
		{"POST", "/start_profile", [3]int{200, 200, 200}, "404 ", 0}, {"GET", "/server_info", [3]int{200, 200, 200},
			"404 ", 0},
	} {
		asked.Store(0)
		s := startScriptedWith(t, 1, func(c *Config) {
			c.Allow = []string{"/flush_cache", "/v1/responses/{id}", "POST /v1/responses/{id}/cancel"}
		},
			worker(c.answers[0], "one"), worker(c.answers[1], "two"), worker(c.answers[2], "three"))
		req, _ := http.NewRequest(c.method, s.URL+c.path, nil)
		req.Header.Set("Content-Type", "application/json")
		resp, err := s.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		got := loopback.ReplaceAllString(fmt.Sprintf("%d %s", resp.StatusCode, text), "HOST")
		if !strings.HasPrefix(got, c.want) ||
			asked.Load() != c.asked {
			t.Errorf("%s %s, answers %v: %s after %d workers, expected %s after %d", c.method, c.path, c.answers, got,
				asked.Load(), c.want, c.asked)
		}
	}
}

// A path that no worker has says nothing of the adapter that a request names.
func TestNotServed(t *testing.T) {
	for _, text := range []string{`{"detail":"Not Found"}`, "404 page not found\n"} {
		s := startScripted(t, 1, status(404, text), status(200, ""))
		if code, got, err := s.post(t, "a"); code != 404 || got != text || err != nil {
			t.Errorf("%d %q, %v; expected 404 %q", code, got, err, text)
		}
		if len(s.fleet.Workers()[0].Adapters) != 1 {
			t.Errorf("%q: the worker is taken not to have the adapter", text)
		}
	}
}

func TestNeeds(t *testing.T) {
	for _, client := range []*http.Client{nil, http.DefaultClient} {
		f, err := fleet.New(fleet.Config{Connection: fleet.Connection{URLs: []string{"u"}, Client: client}})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := New(Config{Fleet: f}); (err != nil) != (client == nil) {
			t.Errorf("with the client %v: %v", client, err)
		}
	}
	if _, err := New(Config{}); err == nil {
		t.Error("no error without a fleet")
	}
}
