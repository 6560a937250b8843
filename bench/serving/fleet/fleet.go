// Package fleet is a set of live workers as routers and planners know them: which of them
// are healthy, what runs where, which adapters are loaded. The live client and
// the gateway send the requests; the fleet picks the worker, keeps the books,
// polls the workers' own load signals, loads and unloads adapters through their
// administrative interfaces, and carries out plans.
//
//	f, err := fleet.New(cfg)
//	err = f.Start(ctx)                    // reach the workers, load what they start with
//	go f.Run(ctx)                         // probes and planning
//	w := f.Requests.Route(&req, -1)       // booked
//	err = f.LoRAs.Ensure(ctx, w, req.Adapter)
//	... send it; f.Requests.Tokens(&req, n, first) as tokens come ...
//	f.Requests.Left(&req)
//
// What is where:
//
//   - cluster.go: what all parts share, and the lock; worker.go: one worker
//   - requests.go, books.go: routing, and the requests on each worker
//   - adapters.go, loader.go, holdings.go: which adapters a worker holds, loads and unloads
//   - places.go, place_queue.go: requests that wait until a full worker has room for their adapter
//   - members.go: workers that join and leave
//   - health.go, discovery.go: probes, and what workers say of themselves
//   - outlier.go, eject.go, hung.go: ejection of workers that fail requests or hang
//   - plans.go: plans; status.go: the state of the workers for people and metrics
//   - engine.go, signals.go, check.go, bounds.go: the administrative interfaces of sglang and vLLM
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
	"time"

	"lorasim/internal/guard"
	"lorasim/router"
	"lorasim/trace"
)

// Connection is how workers are reached.
type Connection struct {
	URLs   []string     // base URLs of the workers at the start, as ParseURL returns them
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
	// Limits of each worker, used where the worker reports none; nil: unknown. Values of Stated that are not 0
	// override what workers report.
	Limits  []Limits
	Stated  Limits
	Outlier Outlier // when workers that fail are ejected
	// Extend makes a router for other workers or more adapters than Router knows, and returns the limits of the
	// workers (nil: unknown). workers are what they have told of themselves, by slot; zero where they have not. Where
	// Extend is set, workers can join and leave, and the fleet takes in adapters that workers hold and nobody has
	// named; nil: the set of workers is fixed, and such adapters are left alone.
	Extend func(workers []Info, adapters []trace.Adapter) (*router.Router, []Limits, error)
	// Plans gets a line for each plan that was made; nil: nothing.
	Plans *slog.Logger
	// Log receives faults and changes of state; nil: no log.
	Log func(format string, args ...any)
}

// withDefaults fills in what is 0 or nil.
func (c Config) withDefaults() Config {
	c.Speed = cmp.Or(c.Speed, 1)
	c.Poll = cmp.Or(c.Poll, time.Second)
	c.Timeout = cmp.Or(c.Timeout, 2*time.Second)
	c.LoadLimit = cmp.Or(c.LoadLimit, time.Minute)
	c.Outlier = c.Outlier.withDefaults()
	if c.Now == nil {
		start, speed := time.Now(), c.Speed
		c.Now = func() float64 { return time.Since(start).Seconds() * speed }
	}
	if c.Path == nil {
		c.Path = func(a trace.Adapter) string { return a.Name }
	}
	if c.Log == nil {
		c.Log = func(string, ...any) {}
	}
	return c
}

// poller is the policy, if it looks at workers on a timer.
func (c *Config) poller() (p router.Poller, ok bool) {
	if c.Router != nil {
		p, ok = c.Router.Policy.(router.Poller)
	}
	return p, ok
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

// Fleet is a set of workers. Its methods, and those of its parts, may be called from many goroutines.
type Fleet struct {
	*cluster
	Requests *Requests    // routing and books
	LoRAs    *LoRAManager // adapters

	discovery *discovery
	prober    *prober
	plans     *planRunner
	outliers  *detector
	members   *membership
}

// New prepares a fleet; nothing is sent yet.
func New(cfg Config) (*Fleet, error) {
	if len(cfg.URLs) == 0 {
		return nil, errors.New("fleet: no workers")
	}
	cfg = cfg.withDefaults()
	if p, ok := cfg.poller(); ok { // the policy looks more often than health needs
		cfg.Poll = min(cfg.Poll, time.Duration(p.Refresh()*float64(time.Second)))
	}
	c := newCluster(cfg)
	found := &discovery{c}
	load := &loader{c, found}
	loras := &LoRAManager{c, load, &placeServer{c, load}}
	plans := &planRunner{c, loras}
	outliers := &detector{cluster: c}
	probes := &prober{c, found, loras, &hangDetector{c, outliers}}
	return &Fleet{cluster: c, Requests: &Requests{cluster: c, outliers: outliers, plans: plans},
		LoRAs: loras, discovery: found, prober: probes, plans: plans, outliers: outliers,
		members: &membership{cluster: c, prober: probes}}, nil
}

// Start reaches the workers and gives them the adapters they start with. A
// worker that cannot be reached is down until a later probe finds it. It returns
// an error only if ctx ends.
func (f *Fleet) Start(ctx context.Context) error {
	if f.cfg.Extend != nil {
		f.discovery.all(ctx)
	}
	f.mu.Lock()
	workers := slices.Clone(f.workers)
	f.mu.Unlock()
	// all tell their base models before any of them gets an adapter
	failed := make([]bool, len(workers))
	for _, step := range []func(context.Context, *worker) error{f.prober.identify, f.prober.equip} {
		for i, err := range each(len(workers), func(i int) error {
			if failed[i] {
				return nil
			}
			return f.guard(i, func() error { return step(ctx, workers[i]) })
		}) {
			if err != nil {
				failed[i] = true
				f.cfg.Log("%s: %v", workers[i].name, err)
			}
		}
	}
	return ctx.Err()
}

// each does n things at once. A panic is an error of its own thing alone.
func each(n int, do func(i int) error) []error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = guard.Do(func() error { return do(i) }) })
	}
	wg.Wait()
	return errs
}

// Run probes the workers and plans until ctx ends.
func (f *Fleet) Run(ctx context.Context) {
	planner := f.Config().Router.Planner // one that replaces it has the same interval
	var wg sync.WaitGroup
	defer wg.Wait()
	if planner != nil {
		wg.Go(func() { f.plans.run(ctx, planner.Interval()) })
	}
	f.members.run(ctx)
}

// Close cancels the fleet's calls to workers and waits until they have ended. No other
// method may run during it or be called afterwards.
func (f *Fleet) Close() {
	f.tasks.cancel()
	f.tasks.Wait()
}

// Config is the configuration with its defaults, and the adapters and the router of
// now.
func (f *Fleet) Config() Config {
	defer f.lock()()
	cfg := f.cfg
	cfg.Adapters, cfg.Router = f.catalog.adapters, f.router
	return cfg
}

// Guard runs a piece of work that reads a worker's bytes. If it panics, the worker
// is marked down, as [Fleet.Panicked] does, and the panic is returned as an error.
func (f *Fleet) Guard(w int, do func() error) error { return f.guard(w, do) }

// Panicked logs and counts a panic while a worker's bytes were handled, which an error holds, and marks the worker down
// until it registers again; w < 0: no worker in particular. Other errors are none of its business.
func (f *Fleet) Panicked(w int, err error) {
	if p, ok := errors.AsType[*guard.Panic](err); ok {
		f.panicked(w, p)
	}
}

// Refused notes an error on the way to a worker. A worker that refuses connections is down at once.
func (f *Fleet) Refused(w int, err error) {
	defer f.lock()()
	f.refused(w, err)
}

// Abort asks a worker to abort the request with the given id.
func (f *Fleet) Abort(ctx context.Context, w int, rid string) error {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Timeout)
	defer cancel()
	return f.at(w).abort(ctx, rid)
}

// Drain makes a worker take no new requests, or take them again.
func (f *Fleet) Drain(w int, drain bool) error {
	defer f.lock()()
	if err := f.checkIndex(w); err != nil {
		return err
	}
	if f.workers[w].leaving {
		return fmt.Errorf("worker %d is leaving", w)
	}
	f.workers[w].view.Draining = drain
	return nil
}

// Adapters lists the adapters that the fleet knows; their places are those in
// Request.Adapter. It only ever grows.
func (f *Fleet) Adapters() []trace.Adapter {
	defer f.lock()()
	return f.catalog.adapters
}

// Lookup finds an adapter by name; -1: there is none.
func (f *Fleet) Lookup(name string) int32 {
	defer f.lock()()
	return f.catalog.lookup(name)
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
