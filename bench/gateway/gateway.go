// Package gateway is a reverse proxy that spreads the requests of any client of
// sglang or vLLM over several workers, by the policies of package router, whatever
// the workers serve. Streams are passed through byte by byte as they come; what a
// request is for is read from its body, and nothing else of it is changed than the
// name of the model, where worker and client spell an adapter differently.
//
//	g, err := gateway.New(gateway.Config{Fleet: f, URLs: urls, Adapters: adapters, Client: client})
//	err = http.Serve(listener, g)
//
// It talks to the configured workers and to nobody else.
package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"lorasim/bench/live/fleet"
	"lorasim/bench/live/wire"
)

// Config describes a gateway.
type Config struct {
	Fleet  *fleet.Fleet // started; its Run is the caller's business
	URLs   []string     // of its workers
	Client *http.Client
	Header http.Header // set on what is sent to workers
	Now    func() float64

	MaxBody   int64 // bytes of a request's body in which its model is looked for; 0: 32 MiB
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

	urls      []*url.URL // of the workers
	transport *wire.Client
	silent    *log.Logger // of what the proxy says of connections that break
}

const defaultMaxBody = 32 << 20

// Close closes the connections to workers that no request uses.
func (g *Gateway) Close() { g.transport.CloseIdle() }

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
	g := &Gateway{cfg: cfg, mux: http.NewServeMux(), gate: gate{empty: make(chan struct{})}, silent: log.New(io.Discard, "", 0)}
	g.metrics = newMetrics(cfg.Fleet)
	for _, u := range cfg.URLs {
		base, err := url.Parse(u)
		if err != nil {
			return nil, fmt.Errorf("gateway: %w", err)
		}
		g.urls = append(g.urls, base)
	}
	g.transport = wire.New(cfg.Client)
	g.mux.HandleFunc("/", g.pass)
	for _, p := range everyWorker {
		g.mux.HandleFunc(p, g.all)
	}
	g.mux.HandleFunc("GET /v1/models", g.models)
	g.mux.HandleFunc("GET /health", g.health)
	g.mux.HandleFunc("GET /health_generate", g.health)
	g.mux.HandleFunc("POST /abort_request", g.abort)
	g.mux.Handle("GET /metrics", g.metrics.handler())
	g.admin()
	return g, nil
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
