// Package gateway is a reverse proxy that spreads the requests of any client of
// sglang or an OpenAI interface over several workers, by the policies of package
// router. Streams are passed through byte by byte as they come; what a request
// is for is read from its body, and nothing else of it is changed than the name
// of the model, where worker and client spell an adapter differently.
//
//	g, err := gateway.New(gateway.Config{Fleet: f, URLs: urls, Adapters: adapters, Client: client})
//	err = http.Serve(listener, g)
//
// It talks to the configured workers and to nobody else.
package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"

	"lorasim/bench/live/fleet"
	"lorasim/router"
)

// Config describes a gateway.
type Config struct {
	Fleet  *fleet.Fleet // started; its Run is the caller's business
	URLs   []string     // of its workers
	Client *http.Client
	Header http.Header // set on what is sent to workers
	Now    func() float64

	MaxBody   int64 // bytes of a request's body; 0: 32 MiB
	Retries   int   // other workers that a request is offered before its first byte
	APIKey    string
	FirstByte time.Duration // longest wait for it; 0: no limit
	Log       func(format string, args ...any)
	Access    *slog.Logger // gets a line for each request; nil: nothing
}

// Gateway is an http.Handler.
type Gateway struct {
	cfg     Config
	mux     *http.ServeMux
	metrics *metrics
	nextID  atomic.Int64
	gate    gate
}

const defaultMaxBody = 32 << 20

// New returns a gateway.
func New(cfg Config) (*Gateway, error) {
	if cfg.Fleet == nil || cfg.Client == nil || len(cfg.URLs) == 0 {
		return nil, errors.New("gateway: fleet, HTTP client and worker URLs are needed")
	}
	if cfg.MaxBody == 0 {
		cfg.MaxBody = defaultMaxBody
	}
	if cfg.Log == nil {
		cfg.Log = func(string, ...any) {}
	}
	if cfg.Now == nil {
		start := time.Now()
		cfg.Now = func() float64 { return time.Since(start).Seconds() }
	}
	g := &Gateway{cfg: cfg, mux: http.NewServeMux(), gate: gate{empty: make(chan struct{})}}
	g.metrics = newMetrics(cfg.Fleet)
	for _, p := range inference {
		g.mux.HandleFunc("POST "+p, g.serve)
	}
	for _, p := range []string{"/get_server_info", "/server_info", "/get_model_info", "/model_info", "/version"} {
		g.mux.HandleFunc("GET "+p, g.ask)
	}
	g.mux.HandleFunc("GET /v1/models", g.models)
	g.mux.HandleFunc("GET /health", g.health)
	g.mux.HandleFunc("GET /health_generate", g.health)
	g.mux.HandleFunc("POST /abort_request", g.abort)
	g.mux.Handle("GET /metrics", g.metrics.handler())
	g.admin()
	return g, nil
}

// inference are the endpoints whose requests are routed, by the adapter or model
// that they name: of both engines, and those that one of them has. Endpoints that
// change a worker are not among them.
var inference = []string{"/generate", "/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages",
	"/v1/embeddings", "/tokenize", "/detokenize", "/v1/tokenize", "/v1/detokenize", "/score", "/v1/score",
	"/rerank", "/v1/rerank", "/v2/rerank", "/classify", "/pooling"}

// ServeHTTP implements http.Handler.
func (g *Gateway) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if k := g.cfg.APIKey; k != "" && r.URL.Path != "/health" && r.Header.Get("Authorization") != "Bearer "+k {
		fail(rw, http.StatusUnauthorized, "the API key is missing or wrong")
		return
	}
	r.Body = http.MaxBytesReader(rw, r.Body, g.cfg.MaxBody)
	if g.cfg.Access == nil {
		g.mux.ServeHTTP(rw, r)
		return
	}
	g.logged(rw, r)
}

// fail answers with an error in the form of the engines and of OpenAI.
func fail(rw http.ResponseWriter, status int, text string) {
	writeJSON(rw, status, map[string]any{"error": map[string]any{"message": text, "type": http.StatusText(status), "code": status}})
}

func writeJSON(rw http.ResponseWriter, status int, v any) {
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	json.NewEncoder(rw).Encode(v) // what fails is the connection, which the client sees
}

// flight is one request on its way.
type flight struct {
	g       *Gateway
	rw      http.ResponseWriter
	r       *http.Request
	want    *want
	fr      fleet.Request
	adapter string // for metrics
	sent    time.Time
	begun   time.Time // first byte
	line    *line     // of the access log
}

// serve routes a request and passes it on.
func (g *Gateway) serve(rw http.ResponseWriter, r *http.Request) {
	if !g.gate.enter() {
		rw.Header().Set("Retry-After", "1")
		fail(rw, http.StatusServiceUnavailable, "shutting down")
		g.metrics.rejected.WithLabelValues("shutting down").Inc()
		return
	}
	if l, ok := rw.(*line); ok {
		l.written = g.gate.leave
	} else {
		defer g.gate.leave()
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		var big *http.MaxBytesError
		if errors.As(err, &big) {
			fail(rw, http.StatusRequestEntityTooLarge, err.Error())
			return
		}
		fail(rw, http.StatusBadRequest, err.Error())
		return
	}
	q, status, err := g.understand(r.URL.Path, body)
	if err != nil {
		fail(rw, status, err.Error())
		g.metrics.rejected.WithLabelValues(http.StatusText(status)).Inc()
		return
	}
	f := &flight{g: g, rw: rw, r: r, want: q, sent: time.Now(), adapter: "base", line: lineOf(rw)}
	if q.adapter >= 0 {
		f.adapter = g.cfg.Fleet.Adapters()[q.adapter].Name
	}
	f.line.adapter, f.line.prompt = f.adapter, q.prompt
	f.fr = fleet.Request{ID: g.nextID.Add(1), Adapter: q.adapter, Prompt: q.prompt, MaxNew: q.maxNew, Sent: g.cfg.Now()}
	f.fly()
}

// fly offers the request to one worker after the other until one answers.
func (f *flight) fly() {
	g := f.g
	tried, last := -1, "no worker is available"
	for try := 0; ; try++ {
		w := g.cfg.Fleet.Route(&f.fr, tried)
		if w == router.None {
			f.rw.Header().Set("Retry-After", "1")
			fail(f.rw, http.StatusServiceUnavailable, last)
			g.metrics.rejected.WithLabelValues(http.StatusText(http.StatusServiceUnavailable)).Inc()
			return
		}
		f.line.worker, f.line.tries = w, try+1
		done, reason := f.offer(w, try >= g.cfg.Retries)
		if done {
			return
		}
		if f.r.Context().Err() != nil {
			return // the client has gone
		}
		if last = reason; try >= g.cfg.Retries {
			fail(f.rw, http.StatusBadGateway, last)
			g.metrics.rejected.WithLabelValues(http.StatusText(http.StatusBadGateway)).Inc()
			return
		}
		g.metrics.retries.Inc()
		tried = w
	}
}

// offer sends the request to a worker and passes the answer on. It returns false
// and why if the worker did not take it and the client has seen nothing; with
// final it passes on whatever the worker answers.
func (f *flight) offer(w int, final bool) (done bool, reason string) {
	g := f.g
	defer g.cfg.Fleet.Left(&f.fr)
	ctx, cancel := context.WithCancel(f.r.Context())
	defer cancel()
	if err := g.cfg.Fleet.Ensure(ctx, w, f.want.adapter); err != nil {
		if errors.Is(err, syscall.ECONNREFUSED) {
			g.cfg.Fleet.Suspect(w, err, true)
		}
		return false, err.Error()
	}
	resp, err := f.send(ctx, cancel, w)
	if err != nil {
		if f.r.Context().Err() == nil {
			g.cfg.Fleet.Suspect(w, err, errors.Is(err, syscall.ECONNREFUSED))
			g.cfg.Log("worker %d: %v", w, err)
		}
		return false, "the worker did not answer"
	}
	defer resp.Body.Close()
	if !final && f.again(resp.StatusCode) {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<16)) // what is there of it is good enough for a message
		if f.want.adapter >= 0 && resp.StatusCode == http.StatusNotFound {
			g.cfg.Fleet.Forget(w, f.want.adapter)
		}
		return false, fleet.ErrorText(body)
	}
	f.pass(w, resp)
	return true, ""
}

// again says whether another worker, or a load of the adapter, may help.
func (f *flight) again(status int) bool {
	return status >= 500 && status != http.StatusNotImplemented || status == http.StatusTooManyRequests ||
		status == http.StatusNotFound && f.want.adapter >= 0
}

func (f *flight) send(ctx context.Context, cancel context.CancelFunc, w int) (*http.Response, error) {
	g := f.g
	body := f.want.bodyFor(g.cfg.Fleet.API(w), g.cfg.Fleet.Model(w), f.adapter)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.cfg.URLs[w]+f.r.URL.Path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	copyHeader(req.Header, f.r.Header)
	for k, v := range g.cfg.Header {
		req.Header[k] = v
	}
	if d := g.cfg.FirstByte; d > 0 {
		t := time.AfterFunc(d, cancel)
		defer t.Stop()
	}
	return g.cfg.Client.Do(req)
}

var dataMark = []byte("data:")

// pass copies an answer to the client as it comes.
func (f *flight) pass(w int, resp *http.Response) {
	g := f.g
	copyHeader(f.rw.Header(), resp.Header)
	f.rw.WriteHeader(resp.StatusCode)
	flusher, _ := f.rw.(http.Flusher)
	buf := make([]byte, 16<<10)
	tokens := 0
	for {
		n, err := resp.Body.Read(buf)
		if n > 0 {
			events := max(bytes.Count(buf[:n], dataMark), 1)
			g.cfg.Fleet.Tokens(&f.fr, events, tokens == 0)
			if tokens == 0 {
				f.begun = time.Now()
				f.line.firstByte = f.begun.Sub(f.sent)
				g.metrics.firstByte.Observe(f.begun.Sub(f.sent).Seconds())
			}
			tokens += events
			f.line.events = tokens
			if _, werr := f.rw.Write(buf[:n]); werr != nil {
				g.metrics.count(w, f.adapter, "client gone")
				return
			}
			if flusher != nil {
				flusher.Flush()
			}
		}
		switch {
		case err == nil:
			continue
		case errors.Is(err, io.EOF):
			g.metrics.count(w, f.adapter, http.StatusText(resp.StatusCode))
			if tokens > 0 && resp.StatusCode == http.StatusOK {
				g.cfg.Fleet.Finished(&f.fr, w, time.Since(f.begun).Seconds())
			}
			return
		}
		if f.r.Context().Err() != nil {
			g.metrics.count(w, f.adapter, "client gone")
			return
		}
		g.metrics.count(w, f.adapter, "broken")
		g.cfg.Fleet.Suspect(w, err, false)
		panic(http.ErrAbortHandler) // the client must not take what it has for the whole
	}
}

// hopByHop are headers of one connection (RFC 9110, 7.6.1).
var hopByHop = []string{"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade", "Content-Length"}

func copyHeader(to, from http.Header) {
	for k, v := range from {
		to[k] = append([]string(nil), v...)
	}
	for _, h := range hopByHop {
		to.Del(h)
	}
}
