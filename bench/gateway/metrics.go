package gateway

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"lorasim/bench/live/fleet"
)

// metrics are the gateway's own, in a registry of their own.
type metrics struct {
	registry  *prometheus.Registry
	requests  *prometheus.CounterVec
	rejected  *prometheus.CounterVec
	retries   prometheus.Counter
	firstByte prometheus.Histogram
}

func newMetrics(f *fleet.Fleet) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lorasim_gateway_requests_total",
			Help: "Requests that a worker answered, by how that ended."}, []string{"worker", "adapter", "result"}),
		rejected: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lorasim_gateway_rejected_total",
			Help: "Requests that no worker answered, by why."}, []string{"reason"}),
		retries: prometheus.NewCounter(prometheus.CounterOpts{Name: "lorasim_gateway_retries_total",
			Help: "Times that a request was offered to another worker."}),
		firstByte: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "lorasim_gateway_first_byte_seconds",
			Help: "Time from a request's arrival to the first byte of its answer.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 16)}),
	}
	m.registry.MustRegister(m.requests, m.rejected, m.retries, m.firstByte, &fleetCollector{f})
	return m
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

func (m *metrics) count(w int, adapter, result string) {
	m.requests.WithLabelValues(strconv.Itoa(w), adapter, result).Inc()
}

// fleetCollector reads the fleet's own counts when it is asked.
type fleetCollector struct{ f *fleet.Fleet }

var (
	descUp      = prometheus.NewDesc("lorasim_gateway_worker_up", "Whether a worker is healthy.", []string{"worker", "url"}, nil)
	descRunning = prometheus.NewDesc("lorasim_gateway_running", "Requests that have begun to answer.", []string{"worker"}, nil)
	descQueued  = prometheus.NewDesc("lorasim_gateway_queued", "Requests that wait for their first byte.", []string{"worker"}, nil)
	descLoaded  = prometheus.NewDesc("lorasim_gateway_adapters_loaded", "Adapters that a worker holds.", []string{"worker"}, nil)
	descLoads   = prometheus.NewDesc("lorasim_gateway_adapter_loads_total", "Adapters loaded.", nil, nil)
	descUnloads = prometheus.NewDesc("lorasim_gateway_adapter_unloads_total", "Adapters unloaded.", nil, nil)
	descFailed  = prometheus.NewDesc("lorasim_gateway_adapter_load_failures_total", "Loads that failed.", nil, nil)
	descPlans   = prometheus.NewDesc("lorasim_gateway_plans_total", "Plans made, by what became of them.", []string{"result"}, nil)
	descSolve   = prometheus.NewDesc("lorasim_gateway_solver_seconds_total", "Time spent making plans.", nil, nil)
	descMoves   = prometheus.NewDesc("lorasim_gateway_migrations_total", "Requests that plans moved.", nil, nil)
)

func (c *fleetCollector) Describe(ch chan<- *prometheus.Desc) {
	prometheus.DescribeByCollect(c, ch)
}

func (c *fleetCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	for i, w := range c.f.Workers() {
		up := 0.0
		if w.Up {
			up = 1
		}
		index := strconv.Itoa(i)
		gauge(descUp, up, index, w.URL)
		gauge(descRunning, float64(w.Running), index)
		gauge(descQueued, float64(w.Queued), index)
		gauge(descLoaded, float64(len(w.Adapters)), index)
	}
	s := c.f.Stats()
	count(descLoads, float64(s.Loads))
	count(descUnloads, float64(s.Unloads))
	count(descFailed, float64(s.FailedLoads))
	count(descPlans, float64(s.Applied), "applied")
	count(descPlans, float64(s.Dropped), "dropped")
	count(descPlans, float64(max(s.Plans-s.Applied-s.Dropped, 0)), "empty")
	count(descSolve, s.SolveTime)
	count(descMoves, float64(s.Moves))
}
