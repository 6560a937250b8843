package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"lorasim/router"
	"lorasim/trace"
)

// adapter is what the fleet does with an adapter on one worker.
type adapter struct {
	held    bool  // the worker has loaded it
	at      int   // place in worker.held
	leaving bool  // to be unloaded once no request uses it
	lost    bool  // it went without the fleet's doing
	outside int   // booked requests that wait for a place, a load or an unload
	waiting int   // of outside: those that wait for a place, see places
	call    *call // under way; nil: none
	// yielding: it takes no new requests, so that another adapter gets its place
	yielding bool

	since   time.Time // when it was loaded, or first seen on the worker
	touched int64     // order of its latest use, by places.uses
}

// call is a load or unload under way.
type call struct {
	unload bool
	done   chan struct{}
	err    error
}

// Ensure makes sure that a worker holds the adapter of a request that is booked
// there, and loads it if need be. Where the worker has no place for it, the request
// waits (see places) until ctx ends. A worker that refuses connections is down.
func (f *Fleet) Ensure(ctx context.Context, w int, a int32) error {
	return f.EnsureWithin(ctx, w, a, Wait{})
}

// EnsureWithin is Ensure with a limit of the wait for a place; beyond it the error is a
// *NoPlace.
func (f *Fleet) EnsureWithin(ctx context.Context, w int, a int32, wait Wait) error {
	err := f.ensure(ctx, w, a, 1, wait)
	if errors.Is(err, syscall.ECONNREFUSED) {
		f.Refused(w, err)
	}
	return err
}

// ensure is Ensure on behalf of so many booked requests, which are known not to
// have reached the worker meanwhile. Without any it does not wait for a place.
func (f *Fleet) ensure(ctx context.Context, w int, a int32, booked int, wait Wait) error {
	if a == trace.BaseModel {
		return nil
	}
	defer f.lock()()
	k := f.workers[w]
	for s := k.adapters[a]; !s.held || s.call != nil || booked > 0 && s.yielding; {
		c := s.call
		if c == nil {
			if k.info.RunTime == Off {
				return fmt.Errorf("worker %d does not hold adapter %s and %s", w, f.cfg.Adapters[a].Name,
					k.info.whyFixed())
			}
			if booked > 0 && (s.yielding || k.crowded()) {
				return f.queueUp(ctx, w, a, booked, wait)
			}
			c = k.begin(a, false)
			f.background.Go(func() { f.load(w, a) })
		}
		s.outside += booked
		k.notify()
		err := f.await(ctx, c.done)
		if s.outside -= booked; err == nil && !c.unload { // that an unload fails is no failure
			err = c.err
		}
		if full := (errFull{}); booked > 0 && errors.As(err, &full) {
			return f.queueUp(ctx, w, a, booked, wait)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// await waits for a channel to be closed, or the context to end; called with mu
// held, which it gives up meanwhile.
func (f *Fleet) await(ctx context.Context, done <-chan struct{}) error {
	f.mu.Unlock()
	defer f.mu.Lock()
	select {
	case <-done:
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}

// keep loads an adapter that is to stay, though it may have been about to go.
func (f *Fleet) keep(ctx context.Context, w int, a int32) error {
	f.mu.Lock()
	f.workers[w].adapters[a].leaving = false
	f.mu.Unlock()
	return f.ensure(ctx, w, a, 0, Wait{})
}

// begin books a load or unload; called with Fleet.mu held, as end is.
func (k *worker) begin(a int32, unload bool) *call {
	c := &call{unload: unload, done: make(chan struct{})}
	k.adapters[a].call = c
	k.calls++
	k.changes++
	return c
}

// end finishes a load or unload.
func (k *worker) end(a int32, err error) {
	s := k.adapters[a]
	s.call.err = err
	close(s.call.done)
	s.call = nil
	k.calls--
	k.changes++
	k.settle()
	k.notify()
}

// load carries out a load. It outlives the request that wanted it, and takes at
// most Config.LoadLimit. If the worker is full it evicts an adapter, or, where
// requests wait that can queue for a place, returns errFull.
func (f *Fleet) load(w int, a int32) error {
	ctx, cancel := context.WithTimeout(f.ctx, f.cfg.LoadLimit)
	defer cancel()
	k := f.workers[w]
	f.mu.Lock()
	k.view.Adapters[a].Loading = true
	f.mu.Unlock()
	name, path := f.where(a)
	err := f.Guard(w, func() error {
		err := f.beforeLoad(ctx, k, a, name)
		if err == nil {
			err = k.loadAdapter(ctx, name, path)
		}
		if err == nil || !isLimit(err) {
			return err
		}
		if f.queues(k, a) {
			return errFull{err}
		}
		if f.evict(ctx, k) {
			err = k.loadAdapter(ctx, name, path)
		}
		return err
	})

	defer f.lock()()
	st := &k.view.Adapters[a]
	st.Loading = false
	full := errFull{}
	if err == nil {
		f.stats.Loads++
		k.hold(a, true)
		k.adapters[a].lost = false
		st.Tier = max(st.Tier, router.Host)
	} else if err = fmt.Errorf("loading adapter %s on worker %d: %w", name, w, err); !errors.As(err, &full) {
		f.stats.FailedLoads++
		if watcher, ok := f.cfg.Router.Policy.(router.LoadFailureObserver); ok {
			watcher.LoadFailed(router.Placement{Worker: int32(w), Adapter: a})
		}
	}
	k.end(a, err)
	if n := k.view.HostSlots; err == nil && n > 0 && len(k.held) > n {
		f.background.Go(func() { // sglang has dropped another: which one?
			ctx, cancel := context.WithTimeout(f.ctx, f.cfg.Timeout)
			defer cancel()
			f.Guard(w, func() error { f.relist(ctx, k); return nil })
		})
	}
	return err
}

// queues notes that a worker refused an adapter for want of a place, and says whether
// requests wait for the adapter, which can queue for one.
func (f *Fleet) queues(k *worker, a int32) bool {
	defer f.lock()()
	k.refuses = true
	k.refused()
	return k.adapters[a].outside > 0
}

// isLimit says whether a worker refused a load for want of room.
func isLimit(err error) bool {
	return mentions(strings.ToLower(err.Error()), "max_loaded", "at most", "limit", "exceed")
}

// hold notes whether the worker holds an adapter; called with mu held.
func (k *worker) hold(a int32, held bool) {
	s := k.adapters[a]
	if held && !s.held {
		s.at, k.held = len(k.held), append(k.held, a)
		s.since, s.touched = time.Now(), k.nextUse()
		if most := k.info.MaxLoaded; most > 0 && len(k.held) >= most {
			k.contested.Store(true)
		}
	} else if !held && s.held {
		last := k.held[len(k.held)-1]
		k.held[s.at], k.adapters[last].at = last, s.at
		k.held = k.held[:len(k.held)-1]
		k.yield(a, false)
	}
	s.held = held
}

// nextUse counts a use of an adapter; called with mu held.
func (k *worker) nextUse() int64 {
	k.uses++
	return k.uses
}

// free says whether the worker holds an adapter that no request of the fleet uses
// and nothing happens to; called with mu held.
func (k *worker) free(a int32) bool {
	st, s := &k.view.Adapters[a], k.adapters[a]
	return s.held && int(st.Running+st.Queued) == s.waiting && s.call == nil
}

// evict unloads the adapter that a worker has not used for longest and that no
// request uses; false if there is none or it stays.
func (f *Fleet) evict(ctx context.Context, k *worker) bool {
	f.mu.Lock()
	victim := f.leastRecent(k, nil)
	f.mu.Unlock()
	return victim >= 0 && f.unloadIdle(ctx, k, victim, func() bool { return true })
}

// unloadIdle unloads an adapter that no request of the fleet uses, once the
// worker says that no other does either; not if it is used or wanted is false
// by then. It returns whether the adapter has gone.
func (f *Fleet) unloadIdle(ctx context.Context, k *worker, a int32, wanted func() bool) bool {
	name, _ := f.where(a)
	still := func() bool { return k.free(a) && wanted() } // called with mu held
	if err := f.awaitIdle(ctx, k, name, certain, still); err != nil {
		f.cfg.Log("%s keeps adapter %s: %v", k.name, name, err)
		return false
	}
	return f.unload(ctx, k, a, name, still)
}

// unload unloads an adapter, unless still, called with mu held, is false.
func (f *Fleet) unload(ctx context.Context, k *worker, a int32, name string, still func() bool) bool {
	defer f.lock()()
	if !still() {
		return false
	}
	k.begin(a, true)
	var err error
	f.unlocked(func() { err = f.Guard(k.index, func() error { return k.unloadAdapter(ctx, name) }) })
	if err == nil {
		f.stats.Unloads++
		k.gone(a)
	} else {
		f.cfg.Log("unloading adapter %s on %s: %v", name, k.name, err)
	}
	k.end(a, err)
	return err == nil
}

// Release unloads an adapter as soon as no request of the fleet uses it there,
// unless one is booked there from now on.
func (f *Fleet) Release(w int, a int32) {
	k := f.workers[w]
	defer f.lock()()
	k.adapters[a].leaving = true
	f.background.Go(func() { f.Guard(w, func() error { f.release(k, a); return nil }) })
}

func (f *Fleet) release(k *worker, a int32) {
	defer f.lock()()
	for s := k.adapters[a]; s.leaving && s.held; {
		if k.free(a) {
			f.unlocked(func() {
				ctx, cancel := context.WithTimeout(f.ctx, f.cfg.LoadLimit)
				defer cancel()
				f.unloadIdle(ctx, k, a, func() bool { return s.leaving })
			})
			s.leaving = false
		} else if f.await(f.ctx, k.changed) != nil {
			return
		}
	}
}

// Load loads an adapter on a person's behalf, and returns when it is done.
func (f *Fleet) Load(ctx context.Context, w int, name string) error {
	a, err := f.find(w, name)
	if err != nil {
		return err
	}
	return f.keep(ctx, w, a)
}

// Unload drops an adapter once its requests have ended; it returns at once.
func (f *Fleet) Unload(w int, name string) error {
	a, err := f.find(w, name)
	if err == nil {
		f.Release(w, a)
	}
	return err
}

func (f *Fleet) find(w int, name string) (a int32, err error) {
	if err := f.inRange(w); err != nil {
		return 0, err
	}
	if a = f.Lookup(name); a < 0 {
		return 0, fmt.Errorf("unknown adapter %q", name)
	}
	return a, nil
}

// Forget notes that a worker turned out not to hold an adapter.
func (f *Fleet) Forget(w int, a int32) {
	defer f.lock()()
	f.workers[w].adapters[a].lost = true
	f.workers[w].gone(a)
}

// gone notes that an adapter is not held any more.
func (k *worker) gone(a int32) {
	k.hold(a, false)
	k.changes++
	k.view.Adapters[a].Tier = router.Disk
	k.slots()
}

// What is known of an adapter's use on a worker comes from the fleet's own books
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

var errUntold = errors.New("it does not tell which adapters its requests use")

// posted is how many of the fleet's requests the worker may have; called with mu
// held, as postedOf, which is of an adapter alone.
func (k *worker) posted() int {
	n := len(k.requests)
	for _, s := range k.adapters {
		n -= s.outside
	}
	return n
}

func (k *worker) postedOf(a int32) int {
	return int(k.view.Adapters[a].Running+k.view.Adapters[a].Queued) - k.adapters[a].outside
}

// awaitIdle probes a worker until so many probes in a row have found no request
// of an adapter, or until wanted, called with mu held, is false.
func (f *Fleet) awaitIdle(ctx context.Context, k *worker, name string, probes int, wanted func() bool) error {
	var last float64
	for idle := 0; ; {
		l, err := k.load(ctx)
		if err != nil {
			return err
		}
		if l.Busy == nil && k.kind() == VLLM {
			return errUntold
		}
		f.mu.Lock()
		others, stop := l.Running+l.Queued-k.posted(), !wanted()
		f.mu.Unlock()
		// those of others that have had no token, or whose engine names none, may use it
		hidden := others > 0 && (l.Queued > 0 || l.Busy == nil)
		switch {
		case stop:
			return nil
		case l.Busy[name] || hidden:
			idle = 0
		case l.Busy == nil || l.At > last || l.Running+l.Queued == 0:
			idle++
		}
		if idle >= probes {
			return nil
		}
		last = l.At
		if pause(ctx, between); ctx.Err() != nil {
			return fmt.Errorf("requests of others use it, or may: %w", context.Cause(ctx))
		}
	}
}

// beforeLoad waits until a load can do no harm: until the requests of a former
// load of the same name have ended, the fleet's own and others'.
func (f *Fleet) beforeLoad(ctx context.Context, k *worker, a int32, name string) error {
	if k.kind() != VLLM {
		return nil
	}
	f.mu.Lock()
	for k.postedOf(a) > 0 {
		if err := f.await(ctx, k.changed); err != nil {
			f.mu.Unlock()
			return err
		}
	}
	probes := 1
	if k.adapters[a].lost {
		probes = certain
	}
	f.mu.Unlock()
	if err := f.awaitIdle(ctx, k, name, probes, func() bool { return true }); !errors.Is(err, errUntold) {
		return err
	}
	return nil
}
