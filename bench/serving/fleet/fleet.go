// Package fleet manages a set of live workers for programs that send requests, such as the live client and the gateway.
// A [Fleet] does everything but the sending:
//
//   - it routes requests by a policy and books them on workers;
//   - it probes the health and load of the workers, and ejects workers that fail;
//   - it loads and unloads adapters through the workers' administrative interfaces;
//   - it carries out plans.
//
// A typical use:
//
//	f, err := fleet.New(cfg)
//	err = f.Start(ctx)                    // reach the workers, load their first adapters
//	go f.Run(ctx)                         // probes and planning
//	w := f.Requests.Route(&req)           // booked
//	err = f.LoRAs.Ensure(ctx, w, req.Adapter)
//	... send it; f.Requests.Tokens(&req, n, first) as tokens come ...
//	f.Requests.Left(&req)
//
// Files:
//
//   - table.go, worker.go: the truth about each worker, and its lock; routing.go: the router; catalog.go: the adapters
//   - requests.go, books.go: routing, and the requests on each worker
//   - adapters.go, loader.go, holdings.go: the adapters of each worker, loads and unloads
//   - versions.go: new versions of adapters
//   - places.go, place_queue.go: requests that wait until a full worker has room for their adapter
//   - members.go: workers that join and leave
//   - health.go, discovery.go: probes, and the information that workers report
//   - outlier.go, eject.go, hung.go, postpone.go: workers that fail requests, hang, or ask for a pause
//   - plans.go: plans; status.go: the state of the workers for operators and metrics
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

	"lorasim/bench/serving/httpapi"
	"lorasim/internal/guard"
	"lorasim/router"
	"lorasim/trace"
)

// A Connection has the parameters of calls to workers.
type Connection struct {
	URLs   []string     // base URLs of the workers at the start, as ParseURL returns them
	API    httpapi.Kind // administrative interface; "": Auto
	Client *http.Client // for administrative calls; the caller sends the requests
	Header http.Header  // sent with every call
}

// A Config configures a [Fleet].
type Config struct {
	Connection
	// Router routes requests to the workers.
	Router *router.Router
	// Adapters are the adapters known at the start. An index into it is a Request's Adapter.
	Adapters []trace.Adapter
	// Path returns the path of an adapter's weights, as workers see it. nil: the adapter's name.
	Path func(a trace.Adapter) string
	// Now returns the time since the start, s. It may run faster than the wall clock. nil: the time since [New],
	// multiplied by Speed.
	Now       func() float64
	Speed     float64       // seconds of Now per second of wall time; 0: 1
	Poll      time.Duration // interval between two probes of a worker; 0: 1 s
	Timeout   time.Duration // time limit of a probe; 0: 2 s
	LoadLimit time.Duration // time limit of a load or unload; 0: 60 s
	// MaxPending is the largest number of requests that wait for a place on one worker. 0: no limit.
	MaxPending int
	Staleness  float64 // largest age of the workers' reports, s; see router.Stale
	// Limits has the limits of each worker. A limit takes effect where the worker reports none. nil: unknown.
	Limits []Limits
	// Stated has limits for all workers. Values other than 0 override those that workers report.
	Stated  Limits
	Outlier Outlier // rules for the ejection of workers that fail
	// Aliases are other names of base models: workers of the value also get requests for the key, and hold its
	// adapters.
	Aliases map[string]string
	// Push says how new versions of adapters come to the workers; nil: as [push.Default] says, without a bound.
	Push *Push
	// Extend makes a router for other workers or more adapters than those of Router. It also returns the limits of the
	// workers; nil: unknown. The argument workers has the information that the workers reported, by slot; it is zero
	// for those that have not reported yet.
	//
	// With Extend, workers can join and leave, and the fleet takes in unknown adapters that workers hold. With nil the
	// set of workers is fixed, and the fleet ignores such adapters.
	Extend func(workers []Info, adapters []trace.Adapter) (*router.Router, []Limits, error)
	// Plans receives one line for each plan. nil: no log.
	Plans *slog.Logger
	// Log receives faults and changes of state. nil: no log.
	Log func(format string, args ...any)
}

// withDefaults replaces values that are 0 or nil by their defaults.
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

// Limits are the limits of one worker. 0: unknown, except for MaxLoaded.
type Limits struct {
	MaxRunning int   `json:"max_running_requests"` // most running requests
	Slots      int   `json:"adapter_slots"`        // adapter slots in GPU memory
	KVCapacity int64 `json:"kv_tokens"`            // size of the KV cache, tokens
	MaxLoaded  int   `json:"max_loaded_loras"`     // most adapters in host memory; 0: no limit
}

// bounded returns the limits with impossible values replaced by 0.
func (l Limits) bounded() Limits {
	return Limits{within(l.MaxRunning, maxRequests), within(l.Slots, maxSlots), within(l.KVCapacity, maxKV),
		within(l.MaxLoaded, maxHeld)}
}

// A Fleet is a set of workers. Its methods, and those of Requests and LoRAs, are safe for concurrent use.
type Fleet struct {
	*table
	tasks    *tasks
	Requests *Requests    // routes and books requests
	LoRAs    *LoRAManager // loads and unloads adapters

	discovery *discovery
	prober    *prober
	plans     *planRunner
	outliers  *detector
	members   *membership
}

// New returns a fleet for a configuration. It contacts no worker; [Fleet.Start] does.
func New(cfg Config) (*Fleet, error) {
	if len(cfg.URLs) == 0 {
		return nil, errors.New("fleet: no workers")
	}
	cfg = cfg.withDefaults()
	if rt := cfg.Router; rt != nil && rt.Poll > 0 { // the policy looks more often than health needs
		cfg.Poll = min(cfg.Poll, time.Duration(rt.Poll*float64(time.Second)))
	}
	c, j, tasks := newCatalog(cfg.Adapters, cfg.Path), new(journal), newTasks()
	t := newTable(&cfg, c, j)
	found := &discovery{cfg: &cfg, table: t, catalog: c, journal: j}
	load := &loader{cfg: &cfg, tasks: tasks, table: t, catalog: c, journal: j, discovery: found}
	places := &placeServer{cfg: &cfg, tasks: tasks, table: t, catalog: c, loader: load}
	t.versions = &rollouts{cfg: &cfg, tasks: tasks, table: t, loader: load}
	loras := &LoRAManager{&cfg, tasks, t, c, load, places, t.versions}
	plans := &planRunner{cfg: &cfg, tasks: tasks, table: t, catalog: c, journal: j, loras: loras}
	outliers := &detector{cfg: &cfg, table: t, catalog: c, journal: j}
	probes := &prober{&cfg, tasks, t, found, loras, &hangDetector{&cfg, t, j, outliers}}
	found.renewed = probes.equipLater
	members := &membership{cfg: &cfg, tasks: tasks, table: t, catalog: c, journal: j, prober: probes}
	requests := &Requests{cfg: &cfg, table: t, catalog: c, outliers: outliers, plans: plans,
		inquirer: &inquirer{cfg: &cfg, tasks: tasks, table: t, discovery: found,
			next: map[*worker]*inquiry{}, asked: map[*worker]*inquiry{}}}
	return &Fleet{t, tasks, requests, loras, found, probes, plans, outliers, members}, nil
}

// Start contacts the workers and loads their first adapters. A worker that cannot be reached is down until a later
// probe succeeds. Start returns an error only if ctx ends.
func (f *Fleet) Start(ctx context.Context) error {
	up := f.identify(ctx)
	for i, err := range each(len(up), func(i int) error {
		return f.guard(up[i].index, func() error { return f.prober.equip(ctx, up[i]) })
	}) {
		if err != nil {
			f.cfg.Log("%s: %v", up[i].name, err)
		}
	}
	return ctx.Err()
}

// Begin is Start, but returns while the adapters are still loaded: as soon as each worker has been asked once for its
// identity. A worker gets requests from its answer on.
func (f *Fleet) Begin(ctx context.Context) error {
	for _, k := range f.identify(ctx) {
		f.prober.equipLater(k)
	}
	return ctx.Err()
}

// identify asks all workers for their identity, and returns those that answer. It knows the base models of all workers
// before it loads an adapter on one of them.
func (f *Fleet) identify(ctx context.Context) (up []*worker) {
	if f.cfg.Extend != nil {
		f.discovery.all(ctx)
	}
	f.mu.Lock()
	workers := slices.Clone(f.workers)
	f.mu.Unlock()
	for i, err := range each(len(workers), func(i int) error {
		return f.guard(i, func() (err error) {
			workers[i], err = f.prober.identify(ctx, workers[i])
			return err
		})
	}) {
		if err != nil {
			f.cfg.Log("%s: %v", workers[i].name, err)
			continue
		}
		up = append(up, workers[i])
	}
	return up
}

// each runs do for 0 to n-1 concurrently and returns the errors by index. A panic becomes the error of its own call.
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
	rt := f.Config().Router // one that replaces it has the same intervals
	var wg sync.WaitGroup
	defer wg.Wait()
	if rt.Planner != nil {
		wg.Go(func() { f.plans.run(ctx, rt.Planner.Interval()) })
	}
	if rt.Poll > 0 {
		wg.Go(func() { f.Requests.poll(ctx, rt.Poll) })
	}
	f.members.run(ctx)
}

// Close cancels the fleet's calls to workers and waits until they have ended. No other method may run at the same time
// or later.
func (f *Fleet) Close() {
	f.tasks.cancel()
	f.tasks.Wait()
}

// Config returns the configuration with its defaults filled in. Its Adapters and Router are the current ones.
func (f *Fleet) Config() Config {
	defer f.lock()()
	cfg := *f.cfg
	cfg.Adapters, cfg.Router = f.catalog.list(), f.router
	return cfg
}

// Guard calls do, which handles data received from worker w. If do panics, Guard marks the worker down, as
// [Fleet.Panicked] does, and returns the panic as an error.
func (f *Fleet) Guard(w int, do func() error) error { return f.guard(w, do) }

// Panicked handles a panic that err holds: it logs and counts the panic, and marks worker w down until it registers
// again. The data of worker w caused the panic; w < 0: no particular worker. Panicked ignores errors without a panic.
func (f *Fleet) Panicked(w int, err error) {
	if p, ok := errors.AsType[*guard.Panic](err); ok {
		f.panicked(w, p)
	}
}

// Refused notes an error of a connection to worker w. A worker that refuses connections is down at once.
func (f *Fleet) Refused(w int, err error) {
	defer f.lock()()
	f.refused(w, err)
}

// Abort sends worker w an abort of the request with the id rid. The error is [ErrNoAbort] if the worker's interface
// has no such call.
func (f *Fleet) Abort(ctx context.Context, w int, rid string) error {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Timeout)
	defer cancel()
	return f.at(w).abort(ctx, rid)
}

// Drain stops new requests to worker w if drain is true, and permits them again if it is false.
func (f *Fleet) Drain(w int, drain bool) error {
	defer f.lock()()
	if err := f.checkIndex(w); err != nil {
		return err
	}
	if f.workers[w].leaving {
		return fmt.Errorf("worker %d is leaving", w)
	}
	if k := f.workers[w]; k.drained != drain {
		k.drained = drain
		k.drain()
		f.journal.add(EventDrain, "", map[bool]string{true: "drains: no new requests",
			false: "takes new requests again"}[drain], w)
	}
	return nil
}

// Adapters returns the adapters that the fleet knows. An adapter's index is its Request.Adapter. The list never
// shrinks or changes its order.
func (f *Fleet) Adapters() []trace.Adapter {
	return f.catalog.list()
}

// Root returns the path of an adapter's weights, as the workers see it.
func (f *Fleet) Root(a int32) string {
	return f.catalog.path(a)
}

// Lookup returns the index of the adapter with the given name, or -1 if there is none.
func (f *Fleet) Lookup(name string) int32 {
	return f.catalog.lookup(name)
}

// Ticks returns an iterator that yields the time at the given interval until ctx ends.
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
