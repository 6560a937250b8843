package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"lorasim/bench/serving/httpapi"
)

// loader carries out loads and unloads.
type loader struct {
	cfg       *Config
	tasks     *tasks
	table     *table
	catalog   *catalog
	journal   *journal
	discovery *discovery

	// guarded by the lock of the table
	onLoad         func(Load) // called at the end of each load; nil: no calls
	loads, unloads int64      // see Stats
}

// A Load is the load of an adapter, after its end.
type Load struct {
	URL, Adapter string        // URL of the worker; name of the adapter
	Took         time.Duration // time of the load
	Err          error         // cause of a failure; nil: the worker holds the adapter
}

// OnLoad registers a function to be called at the end of each load. The function must not block or call the fleet.
func (f *Fleet) OnLoad(call func(Load)) {
	defer f.lock()()
	f.LoRAs.loader.onLoad = call
}

// note counts the load of an adapter on a worker; called with mu held.
func (l *loader) note(k *worker, x Load) {
	if x.Err == nil {
		l.loads++
		l.journal.add(EventLoad, x.Adapter, fmt.Sprintf("%s loaded in %s", x.Adapter, seconds(x.Took)), k.index)
	} else {
		k.loras.counts.FailedLoads++
		l.journal.add(EventNotLoad, x.Adapter, fmt.Sprintf("%s not loaded: %v", x.Adapter, x.Err), k.index)
	}
	if l.onLoad != nil {
		l.onLoad(x)
	}
}

// load runs a load that has begun (holdings.begin). It outlives the request that caused it, and takes at most
// Config.LoadLimit. If the worker is full, it evicts an adapter, unless requests wait for the adapter: they can queue
// for a place. The error of a full worker is an errFull. If requests wait, it is no failure.
func (l *loader) load(k *worker, a int32) error {
	ctx, cancel := context.WithTimeout(l.tasks.ctx, l.cfg.LoadLimit)
	defer cancel()
	l.table.mu.Lock()
	k.view.Adapters[a].Loading = true
	l.table.mu.Unlock()
	begun := time.Now()
	err := l.table.guard(k.index, func() error { return l.tryLoad(ctx, k, a) })

	defer l.table.lock()()
	k.view.Adapters[a].Loading = false
	queues := isFull(err) && k.loras.rows[a].outside > 0
	if !queues {
		l.note(k, Load{k.url, l.catalog.name(a), time.Since(begun), err})
		l.table.emitLoad(k, a, time.Since(begun))
	}
	switch {
	case k.gone:
		err = k.cause
	case err == nil:
		k.loras.loaded(a)
		l.table.noteBase(k, l.catalog.name(a), k.health.info.Model)
		l.table.ready.notify()
	default:
		err = fmt.Errorf("loading adapter %s on worker %d: %w", l.catalog.name(a), k.index, err)
		if !queues && l.tasks.ctx.Err() == nil {
			k.loras.rows[a].rest(err)
		}
	}
	k.end(a, err)
	l.table.versions.ended()
	if n := k.view.HostSlots; err == nil && n > 0 && len(k.loras.held) > n {
		l.tasks.Go(func() { l.relist(k) }) // sglang has evicted another: which one?
	}
	return err
}

// tryLoad asks the worker to load an adapter, and once more after an eviction.
func (l *loader) tryLoad(ctx context.Context, k *worker, a int32) error {
	name, path := l.namePath(k, a)
	err := l.beforeLoad(ctx, k, a)
	if err == nil {
		err = k.loadAdapter(ctx, name, path)
	}
	if err == nil || !isLimit(err) {
		return err
	}
	if l.canQueue(k, a) {
		return errFull{err}
	}
	if l.evict(ctx, k) {
		err = k.loadAdapter(ctx, name, path)
	}
	if err != nil && isLimit(err) {
		return errFull{err} // for requests that have come since
	}
	return err
}

// isLimit reports whether a worker refused a load because it had no room.
func isLimit(err error) bool {
	return mentions(strings.ToLower(err.Error()), "max_loaded", "at most", "limit", "exceed")
}

// namePath returns the name of an adapter on a worker, and the path of its weights: of the version that the worker
// serves, or will load.
func (l *loader) namePath(k *worker, a int32) (name, path string) {
	defer l.table.lock()()
	path = l.table.versions.path(k, a)
	return l.table.versions.name(k, a), path
}

// canQueue notes that a worker refused an adapter because it had no place. It reports whether requests wait for the
// adapter, which can queue for a place.
func (l *loader) canQueue(k *worker, a int32) bool {
	defer l.table.lock()()
	k.places.full.refuses = true
	k.places.refused()
	return k.loras.rows[a].outside > 0
}

// relist updates the list of the worker's adapters.
func (l *loader) relist(k *worker) {
	ctx, cancel := context.WithTimeout(l.tasks.ctx, l.cfg.Timeout)
	defer cancel()
	l.table.guard(k.index, func() error { return l.discovery.ask(ctx, k, false) })
}

// leastRecent returns the adapter to evict: the least recently used one that is neither pinned nor in use, by the
// fleet's requests or by busy; -1: none. If other clients send requests, too, the adapter must have had its place for
// a while, because the fleet does not see their use. Called with mu held.
func (l *loader) leastRecent(k *worker, busy map[string]bool) int32 {
	return k.loras.leastRecent(func(a int32) bool {
		return busy[l.table.versions.name(k, a)] || k.books.shared() && time.Since(k.loras.rows[a].since) < hold
	})
}

// evict unloads the least recently used adapter that no request uses. It returns false if there is none or it stays.
func (l *loader) evict(ctx context.Context, k *worker) bool {
	l.table.mu.Lock()
	victim := l.leastRecent(k, nil)
	l.table.mu.Unlock()
	return victim >= 0 && l.unloadIdle(ctx, k, victim, func() bool { return true }) == nil
}

// unloadIdle unloads an adapter that no request of the fleet uses, once the worker reports no other request for it. It
// unloads nothing if a request uses the adapter meanwhile, or if wanted returns false; wanted is called with mu held.
// Without an error, the adapter is gone.
func (l *loader) unloadIdle(ctx context.Context, k *worker, a int32, wanted func() bool) error {
	still := func() bool { return k.loras.idle(a) && wanted() }
	if err := l.awaitIdle(ctx, k, a, certain, still); err != nil {
		name, _ := l.namePath(k, a)
		l.cfg.Log("%s keeps adapter %s: %v", k.name, name, err)
		return fmt.Errorf("%s keeps adapter %s: %w", k.name, name, err)
	}
	return l.unload(ctx, k, a, still)
}

// unload unloads an adapter, unless still, called with mu held, returns false.
func (l *loader) unload(ctx context.Context, k *worker, a int32, still func() bool) error {
	defer l.table.lock()()
	if !still() {
		return errKept
	}
	k.loras.begin(a, true)
	name := l.table.versions.name(k, a)
	var err error
	l.table.unlocked(func() { err = l.table.guard(k.index, func() error { return k.unloadAdapter(ctx, name) }) })
	if err == nil {
		l.unloads++
		l.journal.add(EventUnload, name, name+" unloaded", k.index)
		k.loras.gone(a)
	} else {
		l.cfg.Log("unloading adapter %s on %s: %v", name, k.name, err)
	}
	k.end(a, err)
	if err != nil {
		return fmt.Errorf("unloading adapter %s on %s: %w", name, k.name, err)
	}
	return nil
}

// The fleet knows the use of an adapter on a worker from its own books
// and, as others may send requests there too, from the worker.
//
// vLLM 0.32 dies if a name is loaded again while requests of its former load go
// on: the new load gets another number, the requests of both count as one adapter
// where its batch is made ready, and once the former's weights have left their
// slot a lookup fails (KeyError in convert_mapping). Its unload does not wait, so
// the fleet does, before an unload and before a load. sglang waits by itself, but
// loads nothing meanwhile.

const (
	// certain is the number of probes in a row that must find an adapter unused. An
	// engine tells of an abort before its last step with the request is over, and
	// of a request only from its first token on.
	certain = 3
	between = 20 * time.Millisecond // probes
)

var errUntold = errors.New("it does not report which adapters its requests use")

// awaitIdle probes a worker until the given number of probes in a row have found no request
// of an adapter, or until wanted, called with mu held, is false.
func (l *loader) awaitIdle(ctx context.Context, k *worker, a int32, probes int, wanted func() bool) error {
	name, _ := l.namePath(k, a)
	var last float64
	for idle := 0; ; {
		said, err := k.load(ctx)
		if err != nil {
			return err
		}
		if said.Busy == nil && k.kind() == httpapi.VLLM {
			return errUntold
		}
		l.table.mu.Lock()
		others, stop := said.Running+said.Queued-k.posted(), !wanted()
		l.table.mu.Unlock()
		// requests of others that have had no token, or whose engine names no adapters, may use it
		hidden := others > 0 && (said.Queued > 0 || said.Busy == nil)
		switch {
		case stop:
			return nil
		case said.Busy[name] || hidden:
			idle = 0
		case said.Busy == nil || said.At > last || said.Running+said.Queued == 0:
			idle++
		}
		if idle >= probes {
			return nil
		}
		last = said.At
		if pause(ctx, between); ctx.Err() != nil {
			return fmt.Errorf("requests of other clients use it, or may: %w", context.Cause(ctx))
		}
	}
}

// beforeLoad waits until a load is safe: until the requests of an earlier load of the same name have ended, the
// fleet's own and others'.
func (l *loader) beforeLoad(ctx context.Context, k *worker, a int32) error {
	if k.kind() != httpapi.VLLM {
		return nil
	}
	probes, err := l.awaitOwn(ctx, k, a)
	if err != nil {
		return err
	}
	if err := l.awaitIdle(ctx, k, a, probes, func() bool { return true }); !errors.Is(err, errUntold) {
		return err
	}
	return nil
}

// awaitOwn waits until the worker has none of the fleet's requests for an adapter. It returns the number of probes
// that must find no request of others.
func (l *loader) awaitOwn(ctx context.Context, k *worker, a int32) (probes int, err error) {
	defer l.table.lock()()
	for k.loras.posted(a) > 0 {
		if err := l.table.await(ctx, k.changed.ch); err != nil {
			return 0, err
		}
	}
	if k.loras.rows[a].lost {
		return certain, nil
	}
	return 1, nil
}
