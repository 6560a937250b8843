package fleet

import (
	"cmp"
	"slices"
	"time"
)

// Stats counts what a fleet did beside serving requests.
type Stats struct {
	Loads, Unloads, FailedLoads int64
	Plans, Applied, Dropped     int64
	SolveTime                   float64 // s of wall time
	Moves                       int64   // requests that plans asked to move
	Downs                       int64   // times that a worker was found to be down
	Joins, Leaves               int64   // of workers
	Ejections                   int64   // times that a worker was ejected
	Panics                      int64   // recovered while a worker's bytes were handled
	Races                       Races

	Evictions      int64   // adapters unloaded because others waited for a place
	PlaceWaits     int64   // requests that have waited for a place
	PlaceWaitTime  float64 // s that they have waited
	PlaceTimeouts  int64   // of them: those whose time was over
	PlaceOverflows int64   // requests that found the queue full
}

// Load is a load of an adapter that has ended.
type Load struct {
	URL, Adapter string // of the worker; name
	Took         time.Duration
	Err          error // why it failed; nil: the worker holds the adapter
}

// OnLoad has f called at the end of each load. f must not block or call the fleet.
func (f *Fleet) OnLoad(call func(Load)) {
	defer f.lock()()
	f.onLoad = call
}

// noteLoad counts a load; called with mu held.
func (c *cluster) noteLoad(l Load) {
	if l.Err == nil {
		c.stats.Loads++
	} else {
		c.stats.FailedLoads++
	}
	if c.onLoad != nil {
		c.onLoad(l)
	}
}

// Up says how many workers are usable; of workers that are all ejected, how many would be.
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

// Model is the name of the base model that a worker serves, "" if it has not said.
func (f *Fleet) Model(w int) string {
	defer f.lock()()
	return f.workers[w].health.info.Model
}

// Models are the names of the base models that the workers serve, as far as they have said.
func (f *Fleet) Models() []string {
	defer f.lock()()
	return f.models()
}

// API is the interface that a worker has; Auto as long as it is unknown.
func (f *Fleet) API(w int) API { return f.at(w).kind() }

// Stats returns the counts so far.
func (f *Fleet) Stats() Stats {
	defer f.lock()()
	return f.stats
}

// WorkerState is one worker for people and metrics: what it told of itself, with
// the limits that count for the fleet, and how it is.
type WorkerState struct {
	Worker  int    `json:"worker"` // its index
	URL     string `json:"url"`
	Leaving bool   `json:"leaving"` // it leaves when its last request has ended
	Info
	Up       bool     `json:"up"`
	Draining bool     `json:"draining"`
	Running  int      `json:"running"`
	Queued   int      `json:"queued"`
	Deferred int      `json:"deferred"` // of those queued, by the worker's account, for want of an adapter slot
	Pending  int      `json:"pending"`  // of those queued: wait for a place for their adapter
	KVUsed   int64    `json:"kv_used"`  // tokens of the fleet's own requests
	Loaded   int      `json:"adapters_loaded"`
	Adapters []string `json:"adapters"` // those that are loaded; only of Workers
	OutlierState
}

// Workers tells how the workers are and which adapters they hold.
func (f *Fleet) Workers() []WorkerState {
	defer f.lock()()
	list := f.status()
	for i := range list {
		held := slices.Sorted(slices.Values(f.workers[list[i].Worker].loras.held))
		list[i].Adapters = make([]string, len(held))
		for j, a := range held {
			list[i].Adapters[j] = f.catalog.adapters[a].Name
		}
	}
	return list
}

// Status is Workers without the names of the adapters.
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
			Loaded: len(k.loras.held), OutlierState: f.outliers.state(k)}
		s.API, s.Limits = k.kind(), Limits{v.MaxRunning, v.Slots, v.KVCapacity, v.HostSlots}
		list = append(list, s)
	}
	return list
}
