package gateway

import (
	"bytes"
	"cmp"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/wire"
	"lorasim/internal/format"
)

// line is what the access log says of a request; the handlers fill it in.
type line struct {
	http.ResponseWriter
	status    int
	bytes     int64
	adapter   string // "": the request was not routed
	worker    int    // that answered last, -1: none
	url       string // its own
	tries     int
	prompt    int32 // tokens, as the worker says, else estimated from text
	output    int64 // tokens; -1: not known
	firstByte time.Duration
	events    int  // of the answer, as many as tokens where one comes at a time
	inside    bool // it counts for Drain until the line is in the log
	streams   bool // the answer leaves as it comes: its length is not known
	patience  time.Duration
	extended  time.Time // when the client was last given patience to take more of the answer
}

// told takes the numbers of tokens of an answer that has come to its end. A stream that does not say them has as many
// as events, but for [DONE].
func (l *line) told(a *answer) {
	if a.usage.prompt >= 0 {
		l.prompt = int32(min(a.usage.prompt, math.MaxInt32))
	}
	switch l.output = a.usage.output; {
	case l.output < 0 && a.form == tokenForm:
		l.output = int64(a.events)
		if bytes.Contains(a.tail[:], doneMark) {
			l.output--
		}
	}
}

func (l *line) WriteHeader(status int) {
	l.extend()
	l.status = status
	l.ResponseWriter.WriteHeader(status)
}

// extend gives the client time to take what is written next. A client that takes
// nothing would keep its request running on the worker.
func (l *line) extend() {
	if now := time.Now(); now.Sub(l.extended) > l.patience/4 {
		l.extended = now
		// without deadlines: no limit
		http.NewResponseController(l.ResponseWriter).SetWriteDeadline(now.Add(l.patience))
	}
}

func (l *line) Write(p []byte) (int, error) {
	l.extend()
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
func (g *Gateway) serve(rw http.ResponseWriter, r *http.Request, handle http.HandlerFunc) {
	l := &line{ResponseWriter: rw, worker: -1, output: -1, patience: g.cfg.ClientTimeout}
	begun := time.Now()
	whole := false
	defer func() {
		l.extend() // for what the server still writes
		if l.inside {
			defer g.leave()
		}
		if g.cfg.Access == nil {
			return
		}
		attrs := []slog.Attr{
			slog.String("client", r.RemoteAddr), slog.String("method", format.Clip(r.Method, 20)),
			slog.String("path", format.Clip(r.URL.Path, 200)),
			slog.Int("status", cmp.Or(l.status, http.StatusOK)), // where nothing was written
			slog.Int64("bytes", l.bytes), slog.Float64("duration_s", time.Since(begun).Seconds()),
		}
		if l.adapter != "" {
			attrs = append(attrs, slog.String("adapter", l.adapter), slog.Int("worker", l.worker),
				slog.String("url", l.url), slog.Int("tries", l.tries), slog.Int("prompt_tokens", int(l.prompt)))
			if l.output >= 0 {
				attrs = append(attrs, slog.Int64("output_tokens", l.output))
			}
			attrs = append(attrs, slog.Int("events", l.events), slog.Float64("first_byte_s", l.firstByte.Seconds()))
		}
		if !whole || r.Context().Err() != nil {
			attrs = append(attrs, slog.Bool("broken_off", true))
		}
		g.cfg.Access.LogAttrs(r.Context(), slog.LevelInfo, "request", attrs...)
	}()
	handle(l, r)
	whole = true
}

// metrics are the gateway's own, in a registry of their own.
type metrics struct {
	registry  *prometheus.Registry
	requests  *prometheus.CounterVec
	rejected  *prometheus.CounterVec
	retries   *prometheus.CounterVec
	firstByte prometheus.Histogram

	fleet *fleet.Fleet
	mu    sync.Mutex
	known []string // URLs of the workers at the latest look
}

// forget drops the counts of workers that have left, so that they do not pile up.
func (m *metrics) forget() {
	var now []string
	for _, s := range m.fleet.Status() {
		now = append(now, s.URL)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, u := range m.known {
		if !slices.Contains(now, u) {
			m.requests.DeletePartialMatch(prometheus.Labels{"worker": u})
		}
	}
	m.known = now
}

func newMetrics(f *fleet.Fleet, logDropped func() int64) *metrics {
	r := prometheus.NewRegistry()
	r.MustRegister(fleetCollector{f})
	make := promauto.With(r)
	if logDropped != nil {
		make.NewCounterFunc(prometheus.CounterOpts{Name: "lorasim_gateway_log_lines_dropped_total",
			Help: "Lines of the log that were dropped because nobody reads it."},
			func() float64 { return float64(logDropped()) })
	}
	return &metrics{
		registry: r, fleet: f,
		requests: make.NewCounterVec(prometheus.CounterOpts{Name: "lorasim_gateway_requests_total",
			Help: "Requests that a worker answered, by how that ended."}, []string{"worker", "adapter", "result"}),
		rejected: make.NewCounterVec(prometheus.CounterOpts{Name: "lorasim_gateway_rejected_total",
			Help: "Requests that no worker answered, by why."}, []string{"reason"}),
		retries: make.NewCounterVec(prometheus.CounterOpts{Name: "lorasim_gateway_retries_total",
			Help: "Times that a request was offered to another worker, by why."}, []string{"reason"}),
		firstByte: make.NewHistogram(prometheus.HistogramOpts{Name: "lorasim_gateway_first_byte_seconds",
			Help:    "Time from a request's arrival to the first byte of its answer.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 16)}),
	}
}

// wireCollector reads the counts of connections to workers when it is asked.
type wireCollector struct{ *wire.Client }

// Describe implements prometheus.Collector.
func (c wireCollector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c wireCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.Stats()
	opened := prometheus.NewDesc("lorasim_gateway_connections_opened_total", "Connections opened to workers.", nil, nil)
	closed := prometheus.NewDesc("lorasim_gateway_connections_closed_total",
		"Idle connections closed: by the worker (stale), for bytes that no request asked for (unasked), for age or number (expired).", []string{"reason"}, nil)
	ch <- prometheus.MustNewConstMetric(opened, prometheus.CounterValue, float64(s.Opened))
	for reason, n := range map[string]int64{"stale": s.Stale, "unasked": s.Unasked, "expired": s.Expired} {
		ch <- prometheus.MustNewConstMetric(closed, prometheus.CounterValue, float64(n), reason)
	}
}

// fleetCollector reads the fleet's own counts when it is asked.
type fleetCollector struct{ *fleet.Fleet }

// Describe implements prometheus.Collector.
func (c fleetCollector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c fleetCollector) Collect(ch chan<- prometheus.Metric) {
	send := func(kind prometheus.ValueType, name, help string, value float64, names []string, labels ...string) {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("lorasim_gateway_"+name, help, names, nil), kind, value,
			labels...)
	}
	gauge, count := prometheus.GaugeValue, prometheus.CounterValue
	worker := []string{"worker"} // its URL: an index may be another worker's later
	for _, w := range c.Status() {
		up, index := 0.0, w.URL
		if w.Up {
			up = 1
		}
		send(gauge, "worker_up", "Whether a worker is healthy.", up, worker, index)
		out := 0.0
		if w.Ejected || w.Trial {
			out = 1
		}
		send(gauge, "worker_ejected", "Whether a worker is out of service because it failed requests, trials included.",
			out, worker, index)
		for _, why := range fleet.Reasons {
			send(count, "ejections_total", "Times that a worker was ejected, by why.", float64(w.Ejections[why]),
				[]string{"worker", "reason"}, index, string(why))
		}
		send(gauge, "running", "Requests that have begun to answer.", float64(w.Running), worker, index)
		send(gauge, "queued", "Requests that wait for their first byte.", float64(w.Queued), worker, index)
		send(gauge, "adapters_loaded", "Adapters that a worker holds.", float64(w.Loaded), worker, index)
		send(gauge, "pending", "Requests that wait for a place for their adapter.", float64(w.Pending), worker, index)
	}
	s := c.Stats()
	send(count, "adapter_loads_total", "Adapters loaded.", float64(s.Loads), nil)
	send(count, "adapter_unloads_total", "Adapters unloaded.", float64(s.Unloads), nil)
	send(count, "adapter_evictions_total", "Adapters unloaded because requests waited for a place.",
		float64(s.Evictions), nil)
	send(count, "pending_total", "Requests that have waited for a place for their adapter.", float64(s.PlaceWaits), nil)
	send(count, "pending_seconds_total", "Time that requests have waited for a place.", s.PlaceWaitTime, nil)
	send(count, "pending_timeouts_total", "Requests that got no place in time.", float64(s.PlaceTimeouts), nil)
	send(count, "pending_overflows_total", "Requests that found the queue for places full.", float64(s.PlaceOverflows),
		nil)
	send(count, "adapter_load_failures_total", "Loads that failed.", float64(s.FailedLoads), nil)
	for result, n := range map[string]int64{"applied": s.Applied, "dropped": s.Dropped,
		"empty": max(s.Plans-s.Applied-s.Dropped, 0)} {
		send(count, "plans_total", "Plans made, by what became of them.", float64(n), []string{"result"}, result)
	}
	send(count, "solver_seconds_total", "Time spent making plans.", s.SolveTime, nil)
	c.races(&s.Races, send)
	send(count, "panics_total", "Panics recovered while a worker's bytes were handled.", float64(s.Panics), nil)
	send(count, "migrations_total", "Requests that plans moved.", float64(s.Moves), nil)
}

// races sends what the policy auto has chosen by simulation, and how far its predictions were right.
func (c fleetCollector) races(r *fleet.Races, send func(kind prometheus.ValueType, name, help string, value float64,
	names []string, labels ...string)) {
	send(prometheus.CounterValue, "races_total", "Simulated races among policies.", float64(r.Count), nil)
	send(prometheus.CounterValue, "race_changes_total", "Races after which another policy routes.",
		float64(r.Changes), nil)
	send(prometheus.CounterValue, "race_failures_total", "Races that the simulation of the cluster could not run.",
		float64(r.Failed), nil)
	send(prometheus.CounterValue, "race_seconds_total", "Time spent in races.", r.Time, nil)
	if r.Chosen != "" {
		send(prometheus.GaugeValue, "race_policy", "The policy that routes since the latest race.", 1,
			[]string{"policy"}, r.Chosen)
	}
	for _, s := range c.Status() {
		if s.Worker < len(r.Slower) {
			send(prometheus.GaugeValue, "race_step_time_factor", "Measured step times relative to the profile.",
				r.Slower[s.Worker], []string{"worker"}, s.URL)
		}
	}
	if m := r.Compared; m != nil {
		for _, x := range []struct {
			name, help          string
			predicted, measured float64
		}{{"race_e2e_seconds", "Mean E2E latency: prediction of the race before the latest, and measurement.",
			m.PredictedE2E, m.E2E}, {"race_ttft_seconds",
			"Mean TTFT: prediction of the race before the latest, and measurement.", m.PredictedTTFT, m.TTFT}} {
			send(prometheus.GaugeValue, x.name, x.help, x.predicted, []string{"from"}, "predicted")
			send(prometheus.GaugeValue, x.name, x.help, x.measured, []string{"from"}, "measured")
		}
	}
}
