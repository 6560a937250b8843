// Package gateway is a reverse proxy that spreads the requests of any client of
// sglang or vLLM over several workers, by the policies of package router. Clients
// reach what runs the model for them, and nothing that changes a worker. Streams are passed through byte by byte as
// they come; what a request is for is read from its body, and nothing else of it is changed than the
// name of the model, where worker and client spell an adapter differently.
//
//	g, err := gateway.New(gateway.Config{Fleet: f})
//	err = http.Serve(listener, g)          // for clients
//	err = http.Serve(private, g.Admin())   // for operators
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

// Config describes a gateway.
type Config struct {
	Fleet *fleet.Fleet // started; its Run is the caller's business

	MaxBody int64 // bytes of a request's body in which its model is looked for; 0: 32 MiB
	// BodyMemory bounds the memory of all request bodies together, in bytes; 0: 256
	// MiB, or 8 times MaxBody if that is more.
	BodyMemory    int64
	MaxRequests   int           // requests in flight at most; 0: 10,000
	ClientTimeout time.Duration // longest time without progress of a client; 0: 30 s

	Retries   int           // other workers that a request is sent to before its first byte
	Keys      bearer.Keys   // of clients
	Allow     []string      // paths that clients may use beside the data plane; see ParseAllow
	FirstByte time.Duration // longest wait of a stream for its first byte; 0: no limit
	Idle      time.Duration // longest time between two reads of a reply; 0: no limit
	// QueueTimeout is the longest wait of a request for a place for its adapter on a
	// worker; 0: no limit.
	QueueTimeout time.Duration
	Access       *slog.Logger // gets a line for each request; nil: nothing

	AdminKeys  bearer.Keys
	AdminHosts []string     // names in the Host header of admin requests beside those of loopback
	LogDropped func() int64 // lines of the log that were dropped; nil: there is no log
	Build      metrics.Build
	// MaxAdapters and MaxWorkers bound the label values of metrics; 0: [metrics.DefaultMax].
	MaxAdapters, MaxWorkers int
}

// Gateway is an http.Handler.
type Gateway struct {
	cfg       Config
	workers   fleet.Config
	allowed   *allowlist
	metrics   *metrics.Metrics
	nextID    atomic.Int64
	transport *wire.Client
	silent    *log.Logger // of what the proxy says of connections that break

	mu       sync.Mutex
	closed   bool           // it takes no new requests
	inFlight int            // requests
	inside   sync.WaitGroup // the same
	bodies   *bodyMemory
	limited  bool // the server sets the first deadline of a body

	readsPrefixes bool // the policy looks at what prompts have in common
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

// Close closes the connections to workers that no request uses, and keeps none.
func (g *Gateway) Close() { g.transport.Close() }

// New returns a gateway.
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
		bodies: bodies, seed: maphash.MakeSeed(), silent: log.New(io.Discard, "", 0)}
	g.readsPrefixes = g.workers.Router != nil && g.workers.Router.ReadsPrefixes
	g.transport = wire.New(g.workers.Client)
	g.metrics.Register(wireCollector{g.transport})
	g.metrics.Retries(notLoaded, notSent, noReply, noAnswer, busy, notFound, badStatus)
	if g.allowed, err = g.newAllowlist(cfg.Allow); err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
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

// Why a request is not let in.
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

// leave is the end of a request that was let in.
func (g *Gateway) leave() {
	g.mu.Lock()
	g.inFlight--
	g.mu.Unlock()
	g.inside.Done()
}

// ServeHTTP implements http.Handler: it serves clients. What operators do is
// served by [Gateway.Admin].
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
