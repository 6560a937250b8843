// Package gateway implements a reverse proxy for clients of sglang and vLLM. It distributes requests over several
// workers by the policies of package router.
//
// Clients reach the endpoints that run the model for them, but none that changes a worker. The gateway connects only
// to the configured workers. It passes streams through byte by byte as they come. It reads the model and the adapter
// from the request's body. It changes requests and replies only to rename the model, if worker and client spell an
// adapter differently.
//
//	g, err := gateway.New(gateway.Config{Fleet: f})
//	err = http.Serve(listener, g)          // for clients
//	err = http.Serve(private, g.Admin())   // for operators
package gateway

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"lorasim/bench/serving/bearer"
	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/metrics"
	"lorasim/bench/serving/wire"
	"lorasim/internal/format"
	"lorasim/trace"
)

// A Config configures a [Gateway].
type Config struct {
	Fleet *fleet.Fleet // started; the caller also calls its Run

	MaxBody int64 // most bytes of a body in which the gateway searches for the model; 0: 32 MiB
	// BodyMemory is the limit of the memory of all request bodies together, bytes; 0: 256 MiB, or 8 times MaxBody if
	// that is more.
	BodyMemory    int64
	MaxRequests   int           // most requests in flight; 0: 10,000
	ClientTimeout time.Duration // longest time in which a client may send or take nothing; 0: 30 s

	Retries   int           // most other workers to which a request is sent before its first byte
	Keys      bearer.Keys   // keys of clients
	Allow     []string      // further paths that clients may use; see ParseAllow
	FirstByte time.Duration // longest wait of a stream for its first byte; 0: no limit
	Idle      time.Duration // longest time between two reads of a reply; 0: no limit
	// QueueTimeout is the longest wait of a request for a place for its adapter on a worker. 0: no limit.
	QueueTimeout time.Duration
	Access       *slog.Logger // receives one line per request; nil: no access log

	// AdminKeys are the keys of operators.
	AdminKeys  bearer.Keys
	AdminHosts []string     // further names allowed in the Host header of admin requests, besides loopback
	LogDropped func() int64 // returns the number of dropped log lines; nil: no such log
	Build      metrics.Build
	// MaxAdapters and MaxWorkers limit the values of the metrics' labels adapter and worker. 0: [metrics.DefaultMax].
	MaxAdapters, MaxWorkers int
}

// A Gateway is an http.Handler for clients. [Gateway.Admin] is the handler for operators.
type Gateway struct {
	cfg       Config
	workers   fleet.Config
	allowed   *allowlist
	metrics   *metrics.Metrics
	nextID    atomic.Int64
	transport *wire.Client

	mu       sync.Mutex
	closed   bool           // no new requests are let in
	inFlight int            // requests
	inside   sync.WaitGroup // the same
	bodies   *bodyMemory
	limited  bool // the server sets the first deadline of a body

	created       int64 // s since 1970: the models' field of that name
	readsPrefixes bool  // the policy compares the prefixes of prompts
	seed          maphash.Seed
	seenMu        sync.Mutex
	seen          trace.Lately // guarded by seenMu
}

// Defaults of Config.
const (
	defaultMaxBody       = 32 << 20
	defaultBodyMemory    = 256 << 20
	defaultMaxRequests   = 10000
	defaultClientTimeout = 30 * time.Second
)

// Close closes the idle connections to workers. It also makes other connections close after their requests.
func (g *Gateway) Close() { g.transport.Close() }

// New returns a gateway with the given configuration.
func New(cfg Config) (*Gateway, error) {
	if cfg.Fleet == nil || cfg.Fleet.Config().Client == nil {
		return nil, errors.New("gateway: a fleet with an HTTP client is needed")
	}
	cfg.MaxBody = cmp.Or(cfg.MaxBody, defaultMaxBody)
	cfg.BodyMemory = cmp.Or(cfg.BodyMemory, max(defaultBodyMemory, 8*cfg.MaxBody))
	cfg.MaxRequests = cmp.Or(cfg.MaxRequests, defaultMaxRequests)
	cfg.ClientTimeout = cmp.Or(cfg.ClientTimeout, defaultClientTimeout)
	bodies, err := newBodyMemory(cfg.BodyMemory, cfg.MaxBody)
	if err != nil {
		return nil, err
	}
	g := &Gateway{cfg: cfg, workers: cfg.Fleet.Config(), metrics: metrics.New(metrics.Config{Component: "gateway",
		Fleet: cfg.Fleet, Build: cfg.Build, MaxAdapters: cfg.MaxAdapters, MaxWorkers: cfg.MaxWorkers,
		LogDropped: cfg.LogDropped}),
		bodies: bodies, seed: maphash.MakeSeed(), created: time.Now().Unix()}
	g.readsPrefixes = g.workers.Router != nil && g.workers.Router.ReadsPrefixes
	g.transport = wire.New(g.workers.Client)
	g.metrics.Register(g.collectConnections)
	g.metrics.Retries(notLoaded, notSent, noReply, noAnswer, busy, changed, keyRefused, notFound, badStatus)
	if g.allowed, err = g.newAllowlist(cfg.Allow); err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	return g, nil
}

// Drain makes the gateway reject new requests. It answers them, and /health, with status 503; requests in flight go
// on. The returned channel is closed once the last request has ended and is in the access log.
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

// Errors of requests that are not let in.
var (
	errClosing = &refusal{http.StatusServiceUnavailable, "shutting down", 1}
	errFull    = &refusal{http.StatusServiceUnavailable, "too many requests are in flight", 1}
)

// enter lets a request in, unless the gateway is closed or full.
func (g *Gateway) enter() *refusal {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.closed:
		return errClosing
	case g.inFlight >= g.cfg.MaxRequests:
		return errFull
	}
	g.inFlight++
	g.inside.Add(1)
	return nil
}

// leave notes the end of a request that was let in.
func (g *Gateway) leave() {
	g.mu.Lock()
	g.inFlight--
	g.mu.Unlock()
	g.inside.Done()
}

// ServeHTTP serves clients. It implements http.Handler.
func (g *Gateway) ServeHTTP(rw http.ResponseWriter, r *http.Request) { g.serve(rw, r, g.data) }

// maxErrorText bounds the text of an error, characters.
const maxErrorText = 4000

// fail answers with an error in the form of the engines and of OpenAI.
func fail(rw http.ResponseWriter, status int, text string) {
	text = format.Clip(text, maxErrorText)
	writeJSON(rw, status, map[string]any{"error": map[string]any{"message": text, "type": http.StatusText(status),
		"code": status}})
}

func writeJSON(rw http.ResponseWriter, status int, v any) {
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	json.NewEncoder(rw).Encode(v) // what fails is the connection, which the client sees
}
