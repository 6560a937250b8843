package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"lorasim/bench/serving/httpapi"
	"lorasim/router"
	"lorasim/sim/record"
)

// Stats has counts of a fleet's actions other than serving requests.
type Stats struct {
	Loads, Unloads int64
	Workers        []record.Counters   // by slot, what the fleet counted; live runs add what the client did
	Plans          record.PlanCounters // as in the simulator; SolveTime is wall time
	Downs          int64               // changes of a worker to down
	Joins, Leaves  int64               // workers that joined and left
	Ejections      int64               // ejections of workers
	Panics         int64               // recovered panics in handling data of workers

	Evictions      int64   // adapters unloaded to make room for others
	PlaceWaits     int64   // requests that waited for a place
	PlaceWaitTime  float64 // total wait for places, s
	PlaceTimeouts  int64   // waits that exceeded their limit
	PlaceOverflows int64   // requests that found the queue for places full
}

// Total returns the sum of the workers' counts.
func (s *Stats) Total() (sum record.Counters) {
	for i := range s.Workers {
		sum.Add(&s.Workers[i])
	}
	return sum
}

// seconds returns a time with its unit.
func seconds(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%.1f ms", 1e3*d.Seconds())
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}

// Up returns the number of usable workers. If all workers that are up are ejected, it returns the number of those.
func (f *Fleet) Up() (n int) {
	defer f.lock()()
	up := 0
	for _, k := range f.workers {
		if !k.gone && k.view.Up && !k.view.Draining {
			up++
		}
	}
	return cmp.Or(usable(&f.view), up)
}

// Missing says what keeps the fleet from full service: workers that do not answer, take no new requests, or still load
// the adapters that they hold at the start.
func (f *Fleet) Missing() []string {
	defer f.lock()()
	list := []string{}
	for _, k := range f.workers {
		switch {
		case k.gone:
		case !k.view.Up:
			list = append(list, k.name+" does not answer")
		case k.health.unready != nil:
			list = append(list, fmt.Sprintf("%s takes no new requests: %v", k.name, k.health.unready))
		case k.view.Draining:
			list = append(list, k.name+" drains")
		case k.equipping > 0:
			list = append(list, fmt.Sprintf("%s still loads adapters: %d", k.name, k.equipping))
		}
	}
	return list
}

// Unavailable says that no worker can take a request, and what is missing.
func (f *Fleet) Unavailable() string {
	const most = 3 // of what is missing
	text, missing := "no worker is available", f.Missing()
	if n := len(missing); n > most {
		missing = append(missing[:most], fmt.Sprintf("%d more", n-most))
	}
	if len(missing) > 0 {
		text += ": " + strings.Join(missing, "; ")
	}
	return text
}

// Model returns the name of the base model of worker w, or "" if the worker has not reported it.
func (f *Fleet) Model(w int) string {
	defer f.lock()()
	return f.workers[w].health.info.Model
}

// Models returns the names of the base models that the workers have reported.
func (f *Fleet) Models() []string {
	defer f.lock()()
	return f.models()
}

// API returns the interface of worker w, or Auto as long as it is unknown.
func (f *Fleet) API(w int) httpapi.Kind { return f.at(w).kind() }

// Stats returns the counts so far.
func (f *Fleet) Stats() Stats {
	defer f.lock()()
	load, places := f.LoRAs.loader, f.LoRAs.places
	s := Stats{Plans: f.plans.book.Counters(), Loads: load.loads, Unloads: load.unloads}
	for _, k := range f.workers {
		s.Workers = append(s.Workers, *k.loras.counts)
	}
	s.Downs, s.Joins, s.Leaves, s.Ejections, s.Panics = f.downs, f.members.joins, f.members.leaves,
		f.outliers.ejections, f.panics
	s.Evictions, s.PlaceWaits, s.PlaceWaitTime, s.PlaceTimeouts, s.PlaceOverflows = places.evictions, places.waits,
		places.waited, places.timeouts, places.overflows
	return s
}

// A WorkerState is the state of one worker, for operators and metrics. Its Limits are those that take effect, which
// may differ from the reported ones.
type WorkerState struct {
	Worker  int    `json:"worker"` // index of the worker
	URL     string `json:"url"`
	Leaving bool   `json:"leaving"` // the worker leaves when its last request has ended
	Info
	Up       bool     `json:"up"`
	Draining bool     `json:"draining"`        // the worker gets no new requests
	Running  int      `json:"running"`         // running requests
	Queued   int      `json:"queued"`          // waiting requests
	Deferred int      `json:"deferred"`        // queued requests that lack an adapter slot, as the worker reports
	Pending  int      `json:"pending"`         // queued requests that wait for a place for their adapter
	KVUsed   int64    `json:"kv_used"`         // tokens of the fleet's own running requests
	Loaded   int      `json:"adapters_loaded"` // number of loaded adapters
	Adapters []string `json:"adapters"`        // names of the loaded adapters; set by [Fleet.Workers] only
	// InSlots has the names of the adapters in GPU slots: those that the worker reports, or else those used last. It is
	// set by [Fleet.Workers] only.
	InSlots []string `json:"adapters_in_slots"`
	LoadTimes
	OutlierState
}

// Workers returns the state of all workers, with the names of their adapters.
func (f *Fleet) Workers() []WorkerState {
	defer f.lock()()
	list := f.status()
	for i := range list {
		h := &f.workers[list[i].Worker].loras
		list[i].Adapters, list[i].InSlots = []string{}, []string{}
		for _, a := range slices.Sorted(slices.Values(h.held)) {
			list[i].Adapters = append(list[i].Adapters, f.catalog.name(a))
			if h.view.Adapters[a].Tier == router.GPU {
				list[i].InSlots = append(list[i].InSlots, f.catalog.name(a))
			}
		}
	}
	return list
}

// Status is [Fleet.Workers] without the names of the adapters.
func (f *Fleet) Status() []WorkerState {
	defer f.lock()()
	return f.status()
}

// status is Status with mu held.
func (f *Fleet) status() []WorkerState {
	list := make([]WorkerState, 0, len(f.workers))
	for _, k := range f.workers {
		if k.gone {
			continue
		}
		v, said := k.view, &k.health.said
		s := WorkerState{Worker: k.index, URL: k.url, Leaving: k.leaving, Info: k.health.info, Up: v.Up,
			Draining: v.Draining, Running: v.Running,
			Queued: v.Queued, Deferred: said.Deferred, Pending: len(k.places.tickets), KVUsed: k.books.kv.Load(),
			Loaded: len(k.loras.held), LoadTimes: said.Times, OutlierState: f.outliers.state(k)}
		s.API, s.Limits = k.kind(), Limits{v.MaxRunning, v.Slots, v.KVCapacity, v.HostSlots}
		list = append(list, s)
	}
	return list
}
