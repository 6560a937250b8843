// Package fleet is a set of live workers as routers and planners know them: who
// is healthy, what runs where, which adapters are loaded. The live client and
// the gateway send the requests; the fleet picks the worker, keeps the books,
// polls the workers' own load signals, loads and unloads adapters through their
// administrative interfaces, and carries out plans.
//
//	f, err := fleet.New(cfg)
//	err = f.Start(ctx)             // reach the workers, load what they start with
//	go f.Run(ctx)                  // probes and planning
//	w := f.Route(&req, -1)         // booked
//	err = f.Ensure(ctx, w, req.Adapter)
//	... send it; f.Tokens(&req, n, first) as tokens come ...
//	f.Left(&req)
package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"lorasim/router"
	"lorasim/trace"
)

// Connection is how workers are reached.
type Connection struct {
	URLs   []string     // base URLs, one for each worker, as ParseURL returns them
	API    API          // "": Auto
	Client *http.Client // for administration; streams of requests are the owner's business
	Header http.Header  // sent with every call
}

// Config describes a fleet.
type Config struct {
	Connection
	Router   *router.Router
	Adapters []trace.Adapter
	// Path is where a worker finds the weights of an adapter; nil: its name.
	Path func(a trace.Adapter) string
	// Now is the time in seconds since the start; it may run faster than the
	// wall clock. nil: since New, by Speed.
	Now       func() float64
	Speed     float64       // of Now against the wall clock; 0: 1
	Poll      time.Duration // between two probes of a worker; 0: 1 s
	Timeout   time.Duration // of a probe, 0: 2 s
	LoadLimit time.Duration // of loading or unloading an adapter, 0: 60 s
	// MaxPending is the number of requests that may wait for a place on a worker; 0: no
	// limit.
	MaxPending int
	Staleness  float64 // age up to which workers' reports may lag, s: router.Stale
	// Limits stand for what a worker does not tell of itself; nil: not known.
	// Stated stand for what it tells, too, where they are not 0.
	Limits  []Limits
	Stated  Limits
	Outlier Outlier // when workers that fail are ejected
	// Extend makes a router for more adapters than Router knows. Where it is set,
	// the fleet takes in adapters that workers hold and nobody has named; nil:
	// those are left alone.
	Extend func(adapters []trace.Adapter) (*router.Router, error)
	// Plans gets a line for each plan that was made; nil: nothing.
	Plans *slog.Logger
	// Log is told of what goes wrong and of changes; nil: nothing.
	Log func(format string, args ...any)
}

// Limits are those of one worker.
type Limits struct {
	MaxRunning int   `json:"max_running_requests"`
	Slots      int   `json:"adapter_slots"`
	KVCapacity int64 `json:"kv_tokens"`
	MaxLoaded  int   `json:"max_loaded_loras"` // adapters that it holds; 0: no limit
}

// bounded leaves out what cannot be.
func (l Limits) bounded() Limits {
	return Limits{within(l.MaxRunning, maxRequests), within(l.Slots, maxSlots), within(l.KVCapacity, maxKV),
		within(l.MaxLoaded, maxHeld)}
}

// Fleet is a set of workers. Its methods may be called from many goroutines.
type Fleet struct {
	cfg     Config
	workers []*worker

	mu      sync.Mutex        // also guards Adapters and Router of cfg
	index   map[string]int32  // of adapters, by name
	roots   map[string]string // where adapters lie that were found on workers
	outputs *router.Outputs
	view    router.View
	stale   *router.Stale
	stats   Stats
	masked  []bool // by worker: what mask has hidden

	// loads, unloads and plans under way outlive what asked for them
	ctx        context.Context
	cancel     context.CancelFunc
	background sync.WaitGroup
}

// worker is one worker and what the fleet does with it. Its view is that of the
// same index in Fleet.view.
type worker struct {
	*engine
	index int
	name  string // in messages
	view  *router.Worker

	requests map[int64]*Request // the fleet's own
	kv       atomic.Int64       // tokens of theirs
	lru      []int32            // adapters in the order of their latest use, the latest first
	// requests of others, by the worker's own account, and when that was read
	foreignRunning, foreignQueued int
	polled                        float64

	info      Info
	said      load            // of its load, at the latest probe
	known     bool            // it has told of itself since it was last down
	failed    int             // probes in a row
	panics    int             // while its bytes were handled
	warned    map[string]bool // limits whose contradiction is logged
	adapters  []*adapter      // by index
	held      []int32         // adapters with held, in no order
	calls     int             // adapters with a call under way
	contested atomic.Bool     // see Contested
	places
	out     outliers
	heard   atomic.Uint64 // pieces of replies that have come from it
	changed chan struct{} // closed by the next change of calls and requests
	changes int           // of calls, what is held, and known
}

// notify wakes those who wait for something to change; called with Fleet.mu held.
func (k *worker) notify() {
	close(k.changed)
	k.changed = make(chan struct{})
}

// Stats counts what a fleet did beside serving requests.
type Stats struct {
	Loads, Unloads, FailedLoads int64
	Plans, Applied, Dropped     int64
	SolveTime                   float64 // s of wall time
	Moves                       int64   // requests that plans asked to move
	Downs                       int64   // times that a worker was found to be down
	Ejections                   int64   // times that a worker was ejected
	Panics                      int64   // recovered while a worker's bytes were handled

	Evictions      int64   // adapters unloaded because others waited for a place
	PlaceWaits     int64   // requests that have waited for a place
	PlaceWaitTime  float64 // s that they have waited
	PlaceTimeouts  int64   // of them: those whose time was over
	PlaceOverflows int64   // requests that found the queue full
}

// New prepares a fleet; nothing is sent yet.
func New(cfg Config) (*Fleet, error) {
	if len(cfg.URLs) == 0 {
		return nil, errors.New("fleet: no workers")
	}
	cfg.Speed = cmp.Or(cfg.Speed, 1)
	cfg.Poll = cmp.Or(cfg.Poll, time.Second)
	cfg.Timeout = cmp.Or(cfg.Timeout, 2*time.Second)
	cfg.LoadLimit = cmp.Or(cfg.LoadLimit, time.Minute)
	if cfg.Now == nil {
		start := time.Now()
		cfg.Now = func() float64 { return time.Since(start).Seconds() * cfg.Speed }
	}
	cfg.Outlier = cfg.Outlier.withDefaults()
	if cfg.Path == nil {
		cfg.Path = func(a trace.Adapter) string { return a.Name }
	}
	if cfg.Log == nil {
		cfg.Log = func(string, ...any) {}
	}
	f := &Fleet{cfg: cfg, index: map[string]int32{}, roots: map[string]string{},
		outputs: router.NewOutputs(len(cfg.Adapters)),
		masked:  make([]bool, len(cfg.URLs)),
		view:    router.View{Workers: make([]router.Worker, len(cfg.URLs)), Adapters: cfg.Adapters}}
	for a := range cfg.Adapters {
		f.enter(cfg.Adapters, int32(a))
	}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	if cfg.Staleness > 0 {
		f.stale = router.NewStale(cfg.Staleness)
	}
	for i, url := range cfg.URLs {
		k := &worker{engine: newEngine(&cfg.Connection, i), index: i, name: fmt.Sprintf("worker %d (%s)", i, url),
			view:     &f.view.Workers[i],
			requests: map[int64]*Request{}, warned: map[string]bool{}, changed: make(chan struct{})}
		f.workers = append(f.workers, k)
		if cfg.Limits != nil {
			l := cfg.Limits[i]
			k.view.MaxRunning, k.view.Slots, k.view.KVCapacity, k.view.HostSlots = l.MaxRunning, l.Slots, l.KVCapacity,
				l.MaxLoaded
		}
		k.grow(len(cfg.Adapters))
	}
	return f, nil
}

// lock locks the fleet and returns what unlocks it.
func (f *Fleet) lock() (unlock func()) {
	f.mu.Lock()
	return f.mu.Unlock
}

// Config is the configuration with its defaults, and the adapters and the router of
// now.
func (f *Fleet) Config() Config {
	defer f.lock()()
	return f.cfg
}

// Up says how many workers are usable; of workers that are all ejected, how many would be.
func (f *Fleet) Up() (n int) {
	defer f.lock()()
	up := 0
	for _, k := range f.workers {
		if k.view.Up && !k.view.Draining {
			up++
		}
	}
	return cmp.Or(usable(&f.view), up)
}

// Model is the name of the base model that a worker serves, "" if it has not said.
func (f *Fleet) Model(w int) string {
	defer f.lock()()
	return f.workers[w].info.Model
}

// API is the interface that a worker has; Auto as long as it is not known.
func (f *Fleet) API(w int) API { return f.workers[w].kind() }

// Abort asks a worker to abort the request with the given id.
func (f *Fleet) Abort(ctx context.Context, w int, rid string) error {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Timeout)
	defer cancel()
	return f.workers[w].abort(ctx, rid)
}

// Stats returns the counts so far.
func (f *Fleet) Stats() Stats {
	defer f.lock()()
	return f.stats
}

// WorkerState is one worker for people and metrics: what it told of itself, with
// the limits that count for the fleet, and how it is.
type WorkerState struct {
	URL string `json:"url"`
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
	for i, k := range f.workers {
		held := slices.Clone(k.held)
		slices.Sort(held)
		list[i].Adapters = make([]string, len(held))
		for j, a := range held {
			list[i].Adapters[j] = f.cfg.Adapters[a].Name
		}
	}
	return list
}

// Status is Workers without the names of the adapters, of which there may be many.
func (f *Fleet) Status() []WorkerState {
	defer f.lock()()
	return f.status()
}

func (f *Fleet) status() []WorkerState {
	list := make([]WorkerState, len(f.workers))
	for i, k := range f.workers {
		v := k.view
		list[i] = WorkerState{URL: f.cfg.URLs[i], Info: k.info, Up: v.Up, Draining: v.Draining, Running: v.Running,
			Queued:   v.Queued,
			Deferred: k.said.Deferred, Pending: len(k.queue), KVUsed: k.kv.Load(), Loaded: len(k.held)}
		list[i].OutlierState = f.outlierState(k)
		list[i].API, list[i].Limits = k.kind(), Limits{v.MaxRunning, v.Slots, v.KVCapacity, v.HostSlots}
	}
	return list
}

// Drain makes a worker take no new requests, or take them again.
func (f *Fleet) Drain(w int, drain bool) error {
	defer f.lock()()
	if err := f.inRange(w); err != nil {
		return err
	}
	f.workers[w].view.Draining = drain
	return nil
}

func (f *Fleet) inRange(w int) error {
	if w < 0 || w >= len(f.workers) {
		return fmt.Errorf("worker %d, expected 0 to %d", w, len(f.workers)-1)
	}
	return nil
}

// Adapters lists the adapters that the fleet knows; their places are those in
// Request.Adapter. It only ever grows.
func (f *Fleet) Adapters() []trace.Adapter {
	defer f.lock()()
	return f.cfg.Adapters
}

// Lookup finds an adapter by name; -1: there is none.
func (f *Fleet) Lookup(name string) int32 {
	defer f.lock()()
	return f.lookup(name)
}

// lookup is Lookup with mu held.
func (f *Fleet) lookup(name string) int32 {
	if a, ok := f.index[name]; ok {
		return a
	}
	return -1
}

// enter makes an adapter known by its name; the first of a name counts.
func (f *Fleet) enter(all []trace.Adapter, a int32) {
	if _, ok := f.index[all[a].Name]; !ok {
		f.index[all[a].Name] = a
	}
}

// where is the name of an adapter and where workers find it.
func (f *Fleet) where(a int32) (name, path string) {
	defer f.lock()()
	adapter := f.cfg.Adapters[a]
	if root := f.roots[adapter.Name]; root != "" {
		return adapter.Name, root
	}
	return adapter.Name, f.cfg.Path(adapter)
}

// Ticks yields the time every so often until ctx ends.
func Ticks(ctx context.Context, every time.Duration) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		t := time.NewTicker(every)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-t.C:
				if !yield(now) {
					return
				}
			}
		}
	}
}
