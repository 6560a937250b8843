package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"lorasim/bench/live/fleet"
	"lorasim/router"
	"lorasim/trace"
)

// first routes to the first usable worker, and counts what finishes.
type first struct{ finished atomic.Int64 }

func (*first) Route(_ router.Request, v *router.View) int {
	for i := range v.Workers {
		if v.Workers[i].Usable() {
			return i
		}
	}
	return router.None
}

func (p *first) Finished(router.Finished) { p.finished.Add(1) }

// scripted is a gateway to workers that answer requests as told. Loads of
// adapters succeed and are counted.
type scripted struct {
	*httptest.Server
	fleet  *fleet.Fleet
	policy *first
	access bytes.Buffer
	loads  atomic.Int64
}

func startScripted(t *testing.T, retries int, answers ...http.HandlerFunc) *scripted {
	t.Helper()
	s := &scripted{policy: &first{}}
	client := &http.Client{Transport: &http.Transport{}}
	var urls []string
	for _, a := range answers {
		w := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/load_lora_adapter" {
				s.loads.Add(1)
				return
			}
			a(rw, r)
		}))
		if a == nil {
			w.Close() // refuses connections
		}
		t.Cleanup(w.Close)
		urls = append(urls, w.URL)
	}
	f, err := fleet.New(fleet.Config{URLs: urls, API: fleet.SGLang, Client: client, Adapters: []trace.Adapter{{Name: "a"}},
		Router: &router.Router{Policy: s.policy}, Now: func() float64 { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	for w := range urls {
		f.Assume(w)
	}
	g, err := New(Config{Fleet: f, URLs: urls, Client: client, Retries: retries, Access: slog.New(slog.NewJSONHandler(&s.access, nil))})
	if err != nil {
		t.Fatal(err)
	}
	s.fleet = f
	s.Server = httptest.NewServer(g)
	t.Cleanup(func() { s.Server.Close(); f.Close(); client.CloseIdleConnections() })
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
		{"both fail: the last answer", 1, "", []http.HandlerFunc{status(500, "one"), status(502, "two")}, "502 two", 2, 2, 0},
		{"no retries: the first", 0, "", []http.HandlerFunc{status(500, "one"), ok}, "500 one", 1, 2, 0},
		{"refused", 1, "", []http.HandlerFunc{nil, ok}, "200 fine", 2, 1, 0},
		{"refused at the load", 1, "a", []http.HandlerFunc{nil, ok}, "200 fine", 2, 1, 1},
		{"refused, no retries", 0, "", []http.HandlerFunc{nil, ok}, `502 {"error":{"code":502,"message":"the worker did not answer"`, 1, 1, 0},
		{"all refuse", 2, "", []http.HandlerFunc{nil, nil}, `503 {"error":{"code":503,"message":"the worker did not answer"`, 2, 0, 0},
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
		if want := fmt.Sprintf("lorasim_gateway_retries_total %d\n", min(c.tries-1, c.retries)); c.up > 0 && !strings.Contains(s.metrics(t), want) {
			t.Errorf("%s: no %q", c.name, want)
		}
		s.Close()
		var line struct{ Tries, Worker int }
		if err := json.Unmarshal([]byte(strings.SplitN(s.access.String(), "\n", 2)[0]), &line); err != nil || line.Tries != c.tries || line.Worker != c.tries-1 {
			t.Errorf("%s: the log has %s", c.name, s.access.String())
		}
	}
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
	if m := s.metrics(t); !strings.Contains(m, `lorasim_gateway_requests_total{adapter="base",result="broken",worker="0"} 1`) || s.fleet.Up() != 2 || s.policy.finished.Load() != 0 {
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

func TestNeeds(t *testing.T) {
	f, err := fleet.New(fleet.Config{URLs: []string{"u"}})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	whole := Config{Fleet: f, Client: http.DefaultClient, URLs: []string{"u"}}
	if _, err := New(whole); err != nil {
		t.Error(err)
	}
	for i, edit := range []func(*Config){func(c *Config) { c.Fleet = nil }, func(c *Config) { c.Client = nil }, func(c *Config) { c.URLs = nil }} {
		c := whole
		if edit(&c); !fails(c) {
			t.Errorf("%d: no error", i)
		}
	}
}

func fails(c Config) bool {
	_, err := New(c)
	return err != nil
}
