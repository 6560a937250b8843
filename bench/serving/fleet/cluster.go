package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"

	"lorasim/internal/guard"
	"lorasim/router"
	"lorasim/sim/record"
	"lorasim/trace"
)

// cluster is the state that the parts of a fleet share: the workers, the adapters, the router's view, and counts.
//
// One lock, mu, guards everything that changes, in the cluster and in its workers. The exceptions are atomics and
// engine, whose only state is atomics. Who locks:
//
//   - catalog, routing, worker and the types inside worker never lock. Their callers hold mu.
//   - The parts (Requests, LoRAManager, prober, discovery, loader, placeServer, planRunner, detector, hangDetector)
//     lock in their methods, except in those whose comment says "called with mu held".
//
// mu is never held during a call to a server: await and unlocked release it meanwhile.
type cluster struct {
	cfg   Config // with its defaults; constant. Its Adapters and Router are those at the start.
	tasks tasks

	mu      sync.Mutex
	workers []*worker // by slot; those that are gone included
	changes int64     // of the set of workers
	mixed   bool      // they serve different base models
	catalog catalog
	routing
	stats  Stats
	book   record.PlanBook
	events events
	onLoad func(Load) // called at the end of each load; may be nil
}

// tasks are the loads, unloads and plans under way. They may outlive the requests that caused them, but not the fleet.
type tasks struct {
	sync.WaitGroup
	ctx    context.Context
	cancel context.CancelFunc
}

func newCluster(cfg Config) *cluster {
	n := len(cfg.URLs)
	c := &cluster{cfg: cfg, catalog: newCatalog(cfg.Adapters, cfg.Path), routing: routing{router: cfg.Router,
		outputs: router.NewOutputs(len(cfg.Adapters)), history: router.NewHistory(remembered),
		view: router.View{Workers: make([]router.Worker, n, n+maxJoins), Adapters: cfg.Adapters}}}
	c.tasks.ctx, c.tasks.cancel = context.WithCancel(context.Background())
	if cfg.Staleness > 0 {
		c.stale = router.NewStale(cfg.Staleness)
	}
	for i, url := range cfg.URLs {
		k := newWorker(&cfg, url, i, &c.view.Workers[i])
		if cfg.Limits != nil {
			k.setLimits(cfg.Limits[i])
		}
		k.loras.grow(len(cfg.Adapters))
		c.workers = append(c.workers, k)
	}
	return c
}

// lock locks the cluster and returns the function that unlocks it.
func (c *cluster) lock() (unlock func()) {
	c.mu.Lock()
	return c.mu.Unlock
}

// unlocked runs do without mu, which the caller holds, and takes mu again,
// also after a panic: the caller's own unlock would end the program otherwise.
func (c *cluster) unlocked(do func()) {
	c.mu.Unlock()
	defer c.mu.Lock()
	do()
}

// await waits until a channel is closed or the context ends; called with mu held, which it releases meanwhile.
func (c *cluster) await(ctx context.Context, done <-chan struct{}) error {
	c.mu.Unlock()
	defer c.mu.Lock()
	select {
	case <-done:
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}

// tick sets the view's clock to the present; called with mu held.
func (c *cluster) tick() { c.view.Now = max(c.view.Now, c.cfg.Now()) }

// wall returns the time of the latest tick in seconds of wall time. Called with mu held.
func (c *cluster) wall() float64 { return c.view.Now / c.cfg.Speed }

// fresh updates the view and returns the part of it that the router sees. Called with mu held.
func (c *cluster) fresh() *router.View {
	c.tick()
	for _, k := range c.workers {
		k.view.KVUsed = k.books.kv.Load()
		k.view.Age = c.view.Now - k.books.polled
		c.endEjection(k)
	}
	if c.stale != nil {
		return c.stale.Update(&c.view)
	}
	return &c.view
}

// endEjection begins the trial of a worker when its ejection is over. Called with mu held.
func (c *cluster) endEjection(k *worker) {
	if k.out.endEjection(c.wall()) {
		c.events.add(EventTrial, "", "on trial: takes a few requests", k.index)
	}
}

// at returns the worker in a slot.
func (c *cluster) at(w int) *worker {
	defer c.lock()()
	return c.workers[w]
}

// checkIndex returns an error if there is no worker w; called with mu held.
func (c *cluster) checkIndex(w int) error {
	if w < 0 || w >= len(c.workers) {
		return fmt.Errorf("worker %d, expected 0 to %d", w, len(c.workers)-1)
	}
	if c.workers[w].gone {
		return fmt.Errorf("worker %d has left", w)
	}
	return nil
}

// maxStacks is how many panics of one worker are logged with their stacks.
const maxStacks = 3

// guard runs a piece of work that reads a worker's bytes. If it panics, the worker is marked down, and the panic is
// returned as an error. It must not be called with mu held.
func (c *cluster) guard(w int, do func() error) error {
	err := guard.Do(do)
	if p, ok := err.(*guard.Panic); ok { // itself: one that another guard returned is wrapped
		c.panicked(w, p)
	}
	return err
}

// panicked logs and counts a panic and marks the worker down; w < 0: no worker in particular.
func (c *cluster) panicked(w int, p *guard.Panic) {
	defer c.lock()()
	c.stats.Panics++
	name := "fleet"
	stack := c.stats.Panics <= maxStacks
	if w >= 0 {
		k := c.workers[w]
		k.health.panics++
		name, stack = k.name, k.health.panics <= maxStacks
		c.down(k, p)
	}
	if stack {
		c.cfg.Log("%s: %v\n%s", name, p, p.Stack)
	}
}

// refused marks a worker down if it refused a connection; called with mu held.
func (c *cluster) refused(w int, err error) {
	if errors.Is(err, syscall.ECONNREFUSED) {
		c.down(c.workers[w], err)
	}
}

// down marks a worker down; called with mu held.
func (c *cluster) down(k *worker, err error) {
	if !k.view.Up && !k.health.known {
		return
	}
	c.stats.Downs++
	k.down(err, c.cfg.Now())
	c.events.add(EventDown, "", fmt.Sprint("does not answer: ", err), k.index)
	c.cfg.Log("%s is down: %v", k.name, err)
}

// catalog has the adapters that the fleet knows. It never shrinks. An adapter's index is its place in the list.
type catalog struct {
	adapters []trace.Adapter
	index    map[string]int32  // by name; of two adapters with one name, the first
	roots    map[string]string // by name: paths of adapters that were found on workers
	bases    map[string]string // by name: base models that workers have reported
	pathOf   func(trace.Adapter) string
}

func newCatalog(adapters []trace.Adapter, pathOf func(trace.Adapter) string) catalog {
	c := catalog{index: map[string]int32{}, roots: map[string]string{}, bases: map[string]string{}, pathOf: pathOf}
	c.set(adapters)
	return c
}

// set replaces the list by one that begins with the same adapters.
func (c *catalog) set(all []trace.Adapter) {
	for a := len(c.adapters); a < len(all); a++ {
		if _, ok := c.index[all[a].Name]; !ok {
			c.index[all[a].Name] = int32(a)
		}
	}
	c.adapters = all
}

// lookup returns the index of an adapter; -1: unknown.
func (c *catalog) lookup(name string) int32 {
	if a, ok := c.index[name]; ok {
		return a
	}
	return -1
}

// rank returns the rank of a request's adapter, or 0 for the base model.
func (c *catalog) rank(a int32) int32 {
	if a == trace.BaseModel {
		return 0
	}
	return int32(c.adapters[a].Rank)
}

// path returns the path of an adapter's weights, as workers see it.
func (c *catalog) path(a int32) string {
	adapter := c.adapters[a]
	if root := c.roots[adapter.Name]; root != "" {
		return root
	}
	return c.pathOf(adapter)
}

// remembered is the number of latest requests from which a new router learns when it replaces another one.
const remembered = 2048

// routing has the router and its view of the workers.
type routing struct {
	router  *router.Router // replaced when a worker joins, and when adapters are added
	view    router.View
	outputs *router.Outputs
	stale   *router.Stale // nil: reports are current
	history *router.History
}

// expect fills in the expected output of a request, unless it is set.
func (r *routing) expect(q *Request) {
	if q.Expected == 0 {
		q.Expected = q.Output
		if q.Expected == 0 {
			q.Expected = r.outputs.Expect(q.Adapter, q.MaxNew)
		}
	}
}

// replace replaces the router by one for more adapters or other workers. The new router continues from the state of
// the old one. The argument joined is the slot of a worker that has joined, or -1.
func (r *routing) replace(rt *router.Router, all []trace.Adapter, joined int, staleness float64) {
	r.outputs.Grow(len(all) - len(r.view.Adapters))
	r.view.Adapters = all
	rt.Succeed(r.router, r.history, &r.view, joined)
	r.router = rt
	if staleness > 0 {
		r.stale = router.NewStale(staleness) // the old one holds copies for fewer adapters or other workers
	}
}
