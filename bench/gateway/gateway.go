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
	closed bool           // it takes no new requests
	inside sync.WaitGroup // requests

	readsPrefixes bool // the policy looks at what prompts have in common
	seed          maphash.Seed
	seenMu        sync.Mutex
	seen          trace.Lately // guarded by seenMu
}

const defaultMaxBody = 32 << 20

// Close closes the connections to workers that no request uses, and keeps none.
func (g *Gateway) Close() { g.transport.Close() }

// New returns a gateway.
func New(cfg Config) (*Gateway, error) {
	if cfg.Fleet == nil || cfg.Fleet.Config().Client == nil {
		return nil, errors.New("gateway: a fleet with an HTTP client is needed")
	}
	cfg.MaxBody = cmp.Or(cfg.MaxBody, defaultMaxBody)
	g := &Gateway{cfg: cfg, workers: cfg.Fleet.Config(), mux: http.NewServeMux(), metrics: newMetrics(cfg.Fleet),
		seed: maphash.MakeSeed(), silent: log.New(io.Discard, "", 0)}
	g.readsPrefixes = g.workers.Router != nil && g.workers.Router.ReadsPrefixes
	for _, u := range g.workers.URLs {
		base, err := url.Parse(u)
		if err != nil {
			return nil, fmt.Errorf("gateway: %w", err)
		}
		g.urls = append(g.urls, base)
	}
	g.transport = wire.New(g.workers.Client)
	g.metrics.registry.MustRegister(wireCollector{g.transport})
	for path, serve := range map[string]http.HandlerFunc{"/": g.proxy, "GET /v1/models": g.models, "GET /health": g.health,
		"GET /health_generate": g.health, "POST /abort_request": g.abort} {
		g.mux.HandleFunc(path, serve)
	}
	for _, p := range everyWorker {
		g.mux.HandleFunc(p, g.all)
	}
	g.mux.Handle("GET /metrics", promhttp.HandlerFor(g.metrics.registry, promhttp.HandlerOpts{}))
	g.admin()
	return g, nil
}

// Drain makes the gateway take no new requests: they, and /health, are answered
// with status 503, while those in flight go on. The channel is closed once the
// last of them has ended and is in the access log.
func (g *Gateway) Drain() <-chan struct{} {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	empty := make(chan struct{})
	go func() { g.inside.Wait(); close(empty) }()
	return empty
}

func (g *Gateway) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// enter lets a request in, unless the gateway is closed.
func (g *Gateway) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.inside.Add(1)
	}
	return !g.closed
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
	g.serve(rw, r)
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
