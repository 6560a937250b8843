package metrics

import (
	"lorasim/bench/serving/fleet"
	"lorasim/router/promtext"
)

// fleetCollector exports the counts of the fleet.
type fleetCollector struct {
	prefix  string
	fleet   *fleet.Fleet
	workers *limited
}

// collect is a [Collector].
func (c *fleetCollector) collect(p *promtext.Page) {
	s := sender{c.prefix, p}
	status, stats := c.fleet.Status(), c.fleet.Stats()
	c.workersOf(status, s)
	s.count("adapter_unloads_total", "Adapters unloaded from workers.", float64(stats.Unloads))
	s.count("adapter_evictions_total", "Adapters unloaded because requests waited for a place.",
		float64(stats.Evictions))
	s.count("pending_total", "Requests that have waited for a place for their adapter.", float64(stats.PlaceWaits))
	s.count("pending_seconds_total", "Time that requests have waited for a place.", stats.PlaceWaitTime)
	s.count("pending_timeouts_total", "Requests that got no place in time.", float64(stats.PlaceTimeouts))
	s.count("pending_overflows_total", "Requests that found the queue for places full.", float64(stats.PlaceOverflows))
	plans, moves := &stats.Plans, int64(0)
	for _, n := range plans.Moves {
		moves += n
	}
	for result, n := range map[string]int64{"applied": plans.Applied, "dropped": plans.Dropped,
		"empty": max(plans.Made-plans.Applied-plans.Dropped, 0)} {
		s.page.Add(promtext.Counter, s.prefix+"plans_total", "Migration plans computed.", float64(n),
			promtext.Label{Name: "result", Value: result})
	}
	s.count("solver_seconds_total", "Time spent computing plans.", plans.SolveTime)
	s.count("migrations_total", "Requests that plans moved.", float64(moves))
	s.count("panics_total", "Panics recovered while a worker's bytes were handled.", float64(stats.Panics))
}

// workersOf sends the metrics of each worker. It adds up the workers beyond the limit.
func (c *fleetCollector) workersOf(status []fleet.WorkerState, s sender) {
	type sums struct {
		up, ejected, running, waiting, pending, loaded float64
		ejections                                      map[fleet.Reason]float64
	}
	of, order := map[string]*sums{}, []string{}
	for _, w := range status {
		url := c.workers.value(w.URL)
		x := of[url]
		if x == nil {
			x = &sums{ejections: map[fleet.Reason]float64{}}
			of[url], order = x, append(order, url)
		}
		x.up += number(w.Up)
		x.ejected += number(w.Ejected || w.Trial)
		x.running += float64(w.Running)
		x.waiting += float64(w.Queued)
		x.pending += float64(w.Pending)
		x.loaded += float64(w.Loaded)
		for _, why := range fleet.Reasons {
			x.ejections[why] += float64(w.Ejections[why])
		}
	}
	for _, url := range order {
		x, worker := of[url], promtext.Label{Name: "worker", Value: url}
		s.gauge("worker_up", "Whether a worker is healthy (1) or not (0).", x.up, worker)
		s.gauge("worker_ejected", "Whether a worker is ejected or on trial (1) or not (0).", x.ejected, worker)
		s.gauge("requests_running", "Requests whose reply has begun.", x.running, worker)
		s.gauge("requests_waiting", "Requests that wait for the first byte of their reply.", x.waiting, worker)
		s.gauge("requests_pending", "Requests that wait for a place for their adapter.", x.pending, worker)
		s.gauge("adapters_loaded", "Adapters that a worker holds.", x.loaded, worker)
		for _, why := range fleet.Reasons {
			s.page.Add(promtext.Counter, s.prefix+"ejections_total", "Ejections of a worker.", x.ejections[why], worker,
				promtext.Label{Name: "reason", Value: string(why)})
		}
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// sender adds samples under a prefix.
type sender struct {
	prefix string
	page   *promtext.Page
}

func (s sender) count(name, help string, v float64) {
	s.page.Add(promtext.Counter, s.prefix+name, help, v)
}

func (s sender) gauge(name, help string, v float64, of promtext.Label) {
	s.page.Add(promtext.Gauge, s.prefix+name, help, v, of)
}
