package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"lorasim/internal/guard"
	"lorasim/router"
)

// A table is the state machine of a fleet: the truth about each worker, and the view of the workers that the router
// sees. Its parts ask it, and change it, with mu held. It calls no server and starts no goroutine.
//
// Who locks: the methods of the table, of worker, and of the types inside worker never lock mu; their callers hold it.
// The exceptions are lock, unlocked, await, at, guard and panicked. The parts (Requests, LoRAManager, prober,
// discovery, loader, placeServer, planRunner, detector, hangDetector, membership) lock in their methods, except in
// those whose comment says "called with mu held". Nobody holds mu during a call to a server: await and unlocked release
// it meanwhile. After either of them, the worker may be gone, and everything that was read before may have changed.
//
// Order of locks: mu, then the lock of the catalog, of the journal or of a part.
type table struct {
	cfg     *Config // with its defaults; constant. Its Adapters and Router are those at the start.
	catalog *catalog
	journal *journal

	versions *rollouts

	mu tableMutex
	// workers has the workers by slot, and never shrinks. Invariants: workers[i].index == i; unless workers[i] is gone,
	// workers[i].view == &view.Workers[i].
	workers []*worker
	changes int64 // number of changes of the set of workers
	// processes is the number of processes that have been workers: the largest worker.id.
	processes int64
	mixed     bool     // the workers serve different base models; invariant: len(served) > 1
	served    []string // base models of the workers
	routing
	ready         signal // signals that a worker may hold another adapter, or be up
	downs, panics int64  // see Stats
}

// tasks are the loads, unloads and plans under way. They may outlive the requests that caused them, but not the fleet.
type tasks struct {
	sync.WaitGroup
	ctx    context.Context
	cancel context.CancelFunc
}

func newTasks() *tasks {
	t := new(tasks)
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

func newTable(cfg *Config, catalog *catalog, journal *journal) *table {
	n := len(cfg.URLs)
	t := &table{cfg: cfg, catalog: catalog, journal: journal, ready: signal{make(chan struct{})},
		routing: routing{router: cfg.Router,
			outputs: router.NewOutputs(len(cfg.Adapters)), history: router.NewHistory(remembered),
			view: router.View{Workers: make([]router.Worker, n, n+maxJoins), Adapters: cfg.Adapters}}}
	if cfg.Staleness > 0 {
		t.stale = router.NewStale(cfg.Staleness)
	}
	for i, url := range cfg.URLs {
		k := newWorker(cfg, url, i, &t.view.Workers[i])
		if cfg.Limits != nil {
			k.setLimits(cfg.Limits[i])
		}
		k.loras.grow(len(cfg.Adapters))
		t.processes++
		k.id = t.processes
		t.workers = append(t.workers, k)
	}
	return t
}

// lock locks the table and returns the function that unlocks it.
func (t *table) lock() (unlock func()) {
	t.mu.Lock()
	return t.mu.Unlock
}

// unlocked runs do without mu, which the caller holds, and takes mu again,
// also after a panic: the caller's own unlock would end the program otherwise.
func (t *table) unlocked(do func()) {
	t.mu.Unlock()
	defer t.mu.Lock()
	do()
}

// await waits until a channel is closed or the context ends; called with mu held, which it releases meanwhile.
func (t *table) await(ctx context.Context, done <-chan struct{}) error {
	t.mu.Unlock()
	defer t.mu.Lock()
	select {
	case <-done:
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}

// awaitAny waits until one of two channels is closed, the context ends, or the time is over; zero: no limit. Called
// with mu held, which it releases meanwhile.
func (t *table) awaitAny(ctx context.Context, until time.Time, a, b <-chan struct{}) error {
	t.mu.Unlock()
	defer t.mu.Lock()
	var late <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-a:
	case <-b:
	case <-late:
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}

// tick sets the view's clock to the present; called with mu held.
func (t *table) tick() { t.view.Now = max(t.view.Now, t.cfg.Now()) }

// wall returns the time of the latest tick in seconds of wall time. Called with mu held.
func (t *table) wall() float64 { return t.view.Now / t.cfg.Speed }

// fresh updates the view and returns the part of it that the router sees. Called with mu held.
func (t *table) fresh() *router.View {
	t.tick()
	for _, k := range t.workers {
		k.view.KVUsed = k.books.kv.Load()
		k.view.Age = t.view.Now - k.books.polled
		t.endEjection(k)
	}
	if t.stale != nil {
		return t.stale.Update(&t.view)
	}
	return &t.view
}

// endEjection begins the trial of a worker when its ejection is over. Called with mu held.
func (t *table) endEjection(k *worker) {
	if k.out.endEjection(t.wall()) {
		t.journal.add(EventTrial, "", "on trial: takes a few requests", k.index)
	}
}

// at returns the worker in a slot.
func (t *table) at(w int) *worker {
	defer t.lock()()
	return t.workers[w]
}

// checkIndex returns an error if there is no worker w; called with mu held.
func (t *table) checkIndex(w int) error {
	if w < 0 || w >= len(t.workers) {
		return fmt.Errorf("worker %d, expected 0 to %d", w, len(t.workers)-1)
	}
	if t.workers[w].gone {
		return fmt.Errorf("worker %d has left", w)
	}
	return nil
}

// maxStacks is how many panics of one worker are logged with their stacks.
const maxStacks = 3

// guard runs a piece of work that reads a worker's bytes. If it panics, the worker is marked down, and the panic is
// returned as an error. It must not be called with mu held.
func (t *table) guard(w int, do func() error) error {
	err := guard.Do(do)
	if p, ok := err.(*guard.Panic); ok { // itself: one that another guard returned is wrapped
		t.panicked(w, p)
	}
	return err
}

// panicked logs and counts a panic and marks the worker down; w < 0: no worker in particular.
func (t *table) panicked(w int, p *guard.Panic) {
	defer t.lock()()
	t.panics++
	name := "fleet"
	stack := t.panics <= maxStacks
	if w >= 0 {
		k := t.workers[w]
		k.health.panics++
		name, stack = k.name, k.health.panics <= maxStacks
		t.down(k, p)
	}
	if stack {
		t.cfg.Log("%s: %v\n%s", name, p, p.Stack)
	}
}

// refused marks a worker down if it refused a connection; called with mu held.
func (t *table) refused(w int, err error) {
	if errors.Is(err, syscall.ECONNREFUSED) {
		t.down(t.workers[w], err)
	}
}

// down marks a worker down; called with mu held.
func (t *table) down(k *worker, err error) {
	if !k.view.Up && !k.health.known {
		return
	}
	t.downs++
	k.down(err, t.cfg.Now())
	t.versions.down(k)
	t.journal.add(EventDown, "", fmt.Sprint("does not answer: ", err), k.index)
	t.cfg.Log("%s is down: %v", k.name, err)
}
