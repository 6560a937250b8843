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
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"log"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"lorasim/bench/live/fleet"
	"lorasim/bench/live/wire"
	"lorasim/internal/suggest"
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

// Close closes the connections to workers that no request uses.
func (g *Gateway) Close() { g.transport.CloseIdle() }

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
	g.transport.Resend = true
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

// admin serves what is not a client's business: the state of the workers, and
// changes of it.
//
//	GET  /admin/workers
//	POST /admin/load    {"worker": 0, "adapter": "chat"}
//	POST /admin/unload  {"worker": 0, "adapter": "chat"}
//	POST /admin/drain   {"worker": 0, "drain": true}
func (g *Gateway) admin() {
	f := g.cfg.Fleet
	order(g, "load", "adapter", "the name of one", f.Load)
	order(g, "unload", "adapter", "the name of one", func(_ context.Context, w int, name string) error { return f.Unload(w, name) })
	order(g, "drain", "drain", "true or false", func(_ context.Context, w int, drain bool) error { return f.Drain(w, drain) })
	g.mux.HandleFunc("GET /admin/workers", g.answerWorkers)
}

// order serves a change of one worker: a JSON object of "worker" and one other
// field, neither of which may be left out, and answers how the workers are then.
func order[T any](g *Gateway, what, field, expected string, do func(ctx context.Context, w int, value T) error) {
	read := func(body []byte) (w int, value T, err error) {
		var values map[string]json.RawMessage
		if err := json.Unmarshal(body, &values); err != nil || values == nil {
			return 0, value, fmt.Errorf(`expected a JSON object with "worker" and %q`, field)
		}
		names := []string{"worker", field}
		for _, name := range slices.Sorted(maps.Keys(values)) {
			if !slices.Contains(names, name) {
				return 0, value, suggest.Unknown("field", name, names)
			}
		}
		for _, name := range names {
			if values[name] == nil {
				return 0, value, fmt.Errorf("field %q is missing", name)
			}
		}
		w = -1
		if json.Unmarshal(values["worker"], &w) != nil || w < 0 {
			return 0, value, fmt.Errorf("worker is %s, expected the index of one, from 0", values["worker"])
		}
		if raw := string(values[field]); raw == "null" || raw == `""` || json.Unmarshal([]byte(raw), &value) != nil {
			return 0, value, fmt.Errorf("%s is %s, expected %s", field, raw, expected)
		}
		return w, value, nil
	}
	g.mux.HandleFunc("POST /admin/"+what, func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, keep))
		if err == nil {
			var w int
			var value T
			if w, value, err = read(body); err == nil {
				err = do(r.Context(), w, value)
			}
		}
		if err != nil {
			fail(rw, http.StatusBadRequest, err.Error())
			return
		}
		g.answerWorkers(rw, r)
	})
}

func (g *Gateway) answerWorkers(rw http.ResponseWriter, _ *http.Request) {
	writeJSON(rw, http.StatusOK, map[string]any{"workers": g.cfg.Fleet.Workers()})
}

// health says whether requests can be served.
func (g *Gateway) health(rw http.ResponseWriter, _ *http.Request) {
	switch {
	case g.isClosed():
		fail(rw, http.StatusServiceUnavailable, "shutting down")
	case g.cfg.Fleet.Up() == 0:
		fail(rw, http.StatusServiceUnavailable, "no worker is available")
	}
}

// models lists the base models and the adapters.
func (g *Gateway) models(rw http.ResponseWriter, _ *http.Request) {
	list := []any{}
	var base any
	for i, name := range g.names() {
		entry := map[string]any{"id": name, "object": "model", "owned_by": "lorasim", "root": name, "parent": nil}
		if g.cfg.Fleet.Lookup(name) >= 0 {
			entry["parent"] = base
		} else if i == 0 {
			base = name
		}
		list = append(list, entry)
	}
	writeJSON(rw, http.StatusOK, map[string]any{"object": "list", "data": list})
}

// adminTimeout limits short calls to workers.
const adminTimeout = 10 * time.Second

// abort asks every worker to abort a request: which of them has it is known to
// its client alone.
func (g *Gateway) abort(rw http.ResponseWriter, r *http.Request) {
	var q struct {
		RID string `json:"rid"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(rw, r.Body, keep)).Decode(&q); err != nil || q.RID == "" {
		fail(rw, http.StatusBadRequest, `expected a JSON object with "rid"`)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), adminTimeout)
	defer cancel()
	failures := 0
	for w := range g.urls {
		if err := g.cfg.Fleet.Abort(ctx, w, q.RID); err != nil {
			failures++
		}
	}
	if failures == len(g.urls) {
		fail(rw, http.StatusBadGateway, fmt.Sprintf("none of %d workers took the abort", failures))
	}
}

// all passes a request on to every worker that is up, such as to empty caches. It
// answers as the first that fails, or the last.
func (g *Gateway) all(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, keep))
	if err != nil {
		fail(rw, http.StatusRequestEntityTooLarge, err.Error())
		return
	}
	status, header, text := http.StatusServiceUnavailable, http.Header{}, []byte("no worker is available")
	for w, s := range g.cfg.Fleet.Workers() {
		if !s.Up {
			continue
		}
		status, header, text = g.forward(r, w, body)
		if status/100 != 2 {
			text = fmt.Appendf(nil, "worker %d: %s", w, fleet.ErrorText(text))
			break
		}
	}
	if status/100 != 2 {
		fail(rw, status, string(text))
		return
	}
	rw.Header().Set("Content-Type", header.Get("Content-Type"))
	rw.WriteHeader(status)
	rw.Write(text) // what fails is the connection, which the client sees
}

// forward sends a short request to one worker.
func (g *Gateway) forward(r *http.Request, w int, body []byte) (int, http.Header, []byte) {
	req, err := http.NewRequestWithContext(r.Context(), r.Method, g.workers.URLs[w]+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		return http.StatusBadRequest, nil, []byte(err.Error())
	}
	req.Header.Set("Content-Type", r.Header.Get("Content-Type"))
	maps.Copy(req.Header, g.workers.Header)
	resp, err := g.transport.RoundTrip(req)
	if err != nil {
		return http.StatusBadGateway, nil, []byte("it did not answer")
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, keep))
	if err != nil {
		return http.StatusBadGateway, nil, []byte("its answer broke off")
	}
	return resp.StatusCode, resp.Header, text
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
	events    int  // of the answer, as many as tokens where one comes at a time
	inside    bool // it counts for Drain until the line is in the log
	streams   bool // the answer leaves as it comes: its length is not known
}

func (l *line) WriteHeader(status int) {
	l.status = status
	l.ResponseWriter.WriteHeader(status)
}

func (l *line) Write(p []byte) (int, error) {
	n, err := l.ResponseWriter.Write(p)
	l.bytes += int64(n)
	if l.streams && err == nil {
		err = l.flush()
	}
	return n, err
}

// flush is not for the proxy, which would send the header first, alone.
func (l *line) flush() error { return http.NewResponseController(l.ResponseWriter).Flush() }

// serve serves a request and writes its line, also if it breaks off.
func (g *Gateway) serve(rw http.ResponseWriter, r *http.Request) {
	l := &line{ResponseWriter: rw, worker: -1}
	begun := time.Now()
	whole := false
	defer func() {
		if l.inside {
			defer g.inside.Done()
		}
		if g.cfg.Access == nil {
			return
		}
		attrs := []slog.Attr{
			slog.String("client", r.RemoteAddr), slog.String("method", r.Method), slog.String("path", r.URL.Path),
			slog.Int("status", cmp.Or(l.status, http.StatusOK)), // where nothing was written
			slog.Int64("bytes", l.bytes), slog.Float64("duration_s", time.Since(begun).Seconds()),
		}
		if l.adapter != "" {
			attrs = append(attrs, slog.String("adapter", l.adapter), slog.Int("worker", l.worker), slog.Int("tries", l.tries),
				slog.Int("prompt_tokens", int(l.prompt)), slog.Int("events", l.events), slog.Float64("first_byte_s", l.firstByte.Seconds()))
		}
		if !whole || r.Context().Err() != nil {
			attrs = append(attrs, slog.Bool("broken_off", true))
		}
		g.cfg.Access.LogAttrs(r.Context(), slog.LevelInfo, "request", attrs...)
	}()
	g.mux.ServeHTTP(l, r)
	whole = true
}

// metrics are the gateway's own, in a registry of their own.
type metrics struct {
	registry  *prometheus.Registry
	requests  *prometheus.CounterVec
	rejected  *prometheus.CounterVec
	retries   prometheus.Counter
	firstByte prometheus.Histogram
}

func newMetrics(f *fleet.Fleet) *metrics {
	r := prometheus.NewRegistry()
	r.MustRegister(fleetCollector{f})
	make := promauto.With(r)
	return &metrics{
		registry: r,
		requests: make.NewCounterVec(prometheus.CounterOpts{Name: "lorasim_gateway_requests_total",
			Help: "Requests that a worker answered, by how that ended."}, []string{"worker", "adapter", "result"}),
		rejected: make.NewCounterVec(prometheus.CounterOpts{Name: "lorasim_gateway_rejected_total",
			Help: "Requests that no worker answered, by why."}, []string{"reason"}),
		retries: make.NewCounter(prometheus.CounterOpts{Name: "lorasim_gateway_retries_total",
			Help: "Times that a request was offered to another worker."}),
		firstByte: make.NewHistogram(prometheus.HistogramOpts{Name: "lorasim_gateway_first_byte_seconds",
			Help: "Time from a request's arrival to the first byte of its answer.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 16)}),
	}
}

// fleetCollector reads the fleet's own counts when it is asked.
type fleetCollector struct{ *fleet.Fleet }

// Describe implements prometheus.Collector.
func (c fleetCollector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c fleetCollector) Collect(ch chan<- prometheus.Metric) {
	send := func(kind prometheus.ValueType, name, help string, value float64, names []string, labels ...string) {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("lorasim_gateway_"+name, help, names, nil), kind, value, labels...)
	}
	gauge, count := prometheus.GaugeValue, prometheus.CounterValue
	worker := []string{"worker"}
	for i, w := range c.Workers() {
		up, index := 0.0, strconv.Itoa(i)
		if w.Up {
			up = 1
		}
		send(gauge, "worker_up", "Whether a worker is healthy.", up, []string{"worker", "url"}, index, w.URL)
		send(gauge, "running", "Requests that have begun to answer.", float64(w.Running), worker, index)
		send(gauge, "queued", "Requests that wait for their first byte.", float64(w.Queued), worker, index)
		send(gauge, "adapters_loaded", "Adapters that a worker holds.", float64(len(w.Adapters)), worker, index)
	}
	s := c.Stats()
	send(count, "adapter_loads_total", "Adapters loaded.", float64(s.Loads), nil)
	send(count, "adapter_unloads_total", "Adapters unloaded.", float64(s.Unloads), nil)
	send(count, "adapter_load_failures_total", "Loads that failed.", float64(s.FailedLoads), nil)
	for result, n := range map[string]int64{"applied": s.Applied, "dropped": s.Dropped, "empty": max(s.Plans-s.Applied-s.Dropped, 0)} {
		send(count, "plans_total", "Plans made, by what became of them.", float64(n), []string{"result"}, result)
	}
	send(count, "solver_seconds_total", "Time spent making plans.", s.SolveTime, nil)
	send(count, "migrations_total", "Requests that plans moved.", float64(s.Moves), nil)
}
