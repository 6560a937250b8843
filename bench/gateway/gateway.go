// Package gateway is a reverse proxy that spreads the requests of any client of
// sglang or vLLM over several workers, by the policies of package router, whatever
// the workers serve. Streams are passed through byte by byte as they come; what a
// request is for is read from its body, and nothing else of it is changed than the
// name of the model, where worker and client spell an adapter differently.
//
//	g, err := gateway.New(gateway.Config{Fleet: f})
//	err = http.Serve(listener, g)
//
// It talks to the configured workers and to nobody else.
package gateway

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"lorasim/bench/live/fleet"
	"lorasim/bench/live/wire"
	"lorasim/trace"
)

// Config describes a gateway.
type Config struct {
	Fleet *fleet.Fleet // started; its Run is the caller's business

	MaxBody   int64 // bytes of a request's body in which its model is looked for; 0: 32 MiB
	Retries   int   // other workers that a request is sent to before its first byte
	APIKey    string
	FirstByte time.Duration // longest wait for it; 0: no limit
	Access    *slog.Logger  // gets a line for each request; nil: nothing
}

// Gateway is an http.Handler.
type Gateway struct {
	cfg       Config
	workers   fleet.Config
	urls      []*url.URL // of the workers
	mux       *http.ServeMux
	metrics   *metrics
	nextID    atomic.Int64
	transport *wire.Client
	silent    *log.Logger // of what the proxy says of connections that break

	mu     sync.Mutex
	closed bool          // it takes no new requests
	inside int           // requests, and one more until it is closed
	empty  chan struct{} // closed when there are none

	readsPrefixes bool // the policy looks at what prompts have in common
	seed          maphash.Seed
	seenMu        sync.Mutex
	seen          trace.Lately // guarded by seenMu
}

const defaultMaxBody = 32 << 20

// Close closes the connections to workers that no request uses.
func (g *Gateway) Close() { g.transport.CloseIdle() }

// New returns a gateway.
func New(cfg Config) (*Gateway, error) {
	if cfg.Fleet == nil || cfg.Fleet.Config().Client == nil {
		return nil, errors.New("gateway: a fleet with an HTTP client is needed")
	}
	cfg.MaxBody = cmp.Or(cfg.MaxBody, defaultMaxBody)
	g := &Gateway{cfg: cfg, workers: cfg.Fleet.Config(), mux: http.NewServeMux(), metrics: newMetrics(cfg.Fleet),
		inside: 1, empty: make(chan struct{}), seed: maphash.MakeSeed(), silent: log.New(io.Discard, "", 0)}
	g.readsPrefixes = g.workers.Router != nil && g.workers.Router.ReadsPrefixes
	for _, u := range g.workers.URLs {
		base, err := url.Parse(u)
		if err != nil {
			return nil, fmt.Errorf("gateway: %w", err)
		}
		g.urls = append(g.urls, base)
	}
	g.transport = wire.New(g.workers.Client)
	g.mux.HandleFunc("/", g.proxy)
	for _, p := range everyWorker {
		g.mux.HandleFunc(p, g.all)
	}
	g.mux.HandleFunc("GET /v1/models", g.models)
	g.mux.HandleFunc("GET /health", g.health)
	g.mux.HandleFunc("GET /health_generate", g.health)
	g.mux.HandleFunc("POST /abort_request", g.abort)
	g.mux.Handle("GET /metrics", promhttp.HandlerFor(g.metrics.registry, promhttp.HandlerOpts{}))
	g.admin()
	return g, nil
}

// Drain makes the gateway take no new requests: they, and /health, are answered
// with status 503, while those in flight go on. The channel is closed once the
// last of them has ended and is in the access log.
func (g *Gateway) Drain() <-chan struct{} {
	g.mu.Lock()
	first := !g.closed
	g.closed = true
	g.mu.Unlock()
	if first {
		g.leave()
	}
	return g.empty
}

// enter lets a request in, unless the gateway is closed.
func (g *Gateway) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.inside++
	}
	return !g.closed
}

func (g *Gateway) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside--; g.inside == 0 {
		close(g.empty)
	}
}

// everyWorker are requests that clients make of a server between runs.
var everyWorker = []string{"/flush_cache", "/reset_prefix_cache", "/reset_mm_cache", "/reset_encoder_cache", "/start_profile", "/stop_profile"}

// oneWorker are the beginnings of endpoints of both engines that change a worker:
// made of whichever comes first they do harm.
var oneWorker = []string{"/load_lora", "/unload_lora", "/v1/load_lora", "/v1/unload_lora", "/adapters", "/sleep", "/wake_up", "/pause", "/resume", "/continue_generation",
	"/release", "/abort_requests", "/collective_rpc", "/set_", "/scale_", "/slow_down", "/pd_role_switch", "/configure_logging", "/freeze_gc", "/hicache", "/dumper",
	"/update_weight", "/init_weight", "/begin_weight", "/end_weight", "/start_weight", "/start_draft", "/finish_weight", "/destroy_weight", "/send_weight", "/shutdown"}

func changesWorker(path string) bool {
	return slices.ContainsFunc(oneWorker, func(start string) bool { return strings.HasPrefix(path, start) })
}

// ServeHTTP implements http.Handler.
func (g *Gateway) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if k := g.cfg.APIKey; k != "" && r.URL.Path != "/health" && r.Header.Get("Authorization") != "Bearer "+k {
		fail(rw, http.StatusUnauthorized, "the API key is missing or wrong")
		return
	}
	if changesWorker(r.URL.Path) {
		fail(rw, http.StatusNotFound, r.URL.Path+" changes a worker and is not passed on; see /admin/workers")
		return
	}
	if g.cfg.Access == nil {
		g.mux.ServeHTTP(rw, r)
	} else {
		g.logged(rw, r)
	}
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

// line is what the access log says of a request; the handlers fill it in.
type line struct {
	http.ResponseWriter
	status    int
	bytes     int64
	adapter   string // "": the request was not routed
	worker    int    // that answered last, -1: none
	tries     int
	prompt    int32 // tokens, estimated from text
	firstByte time.Duration
	events    int    // of the answer, as many as tokens where one comes at a time
	written   func() // called once the line is in the log; nil: nothing
}

func (l *line) WriteHeader(status int) {
	l.status = status
	l.ResponseWriter.WriteHeader(status)
}

func (l *line) Write(p []byte) (int, error) {
	if l.status == 0 {
		l.status = http.StatusOK
	}
	n, err := l.ResponseWriter.Write(p)
	l.bytes += int64(n)
	return n, err
}

// Unwrap is for http.ResponseController.
func (l *line) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// logged serves a request and writes its line, also if it breaks off.
func (g *Gateway) logged(rw http.ResponseWriter, r *http.Request) {
	l := &line{ResponseWriter: rw, worker: -1}
	begun := time.Now()
	whole := false
	defer func() {
		if l.status == 0 {
			l.status = http.StatusOK // nothing was written
		}
		attrs := []slog.Attr{
			slog.String("client", r.RemoteAddr), slog.String("method", r.Method), slog.String("path", r.URL.Path),
			slog.Int("status", l.status), slog.Int64("bytes", l.bytes), slog.Float64("duration_s", time.Since(begun).Seconds()),
		}
		if l.adapter != "" {
			attrs = append(attrs, slog.String("adapter", l.adapter), slog.Int("worker", l.worker), slog.Int("tries", l.tries),
				slog.Int("prompt_tokens", int(l.prompt)), slog.Int("events", l.events), slog.Float64("first_byte_s", l.firstByte.Seconds()))
		}
		if !whole || r.Context().Err() != nil {
			attrs = append(attrs, slog.Bool("broken_off", true))
		}
		g.cfg.Access.LogAttrs(r.Context(), slog.LevelInfo, "request", attrs...)
		if l.written != nil {
			l.written()
		}
	}()
	g.mux.ServeHTTP(l, r)
	whole = true
}
