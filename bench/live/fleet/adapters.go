package fleet

import (
	"context"
	"fmt"
	"strings"

	"lorasim/router"
	"lorasim/trace"
)

// Ensure makes sure that a worker holds the adapter of a request that is booked
// there, and loads it if need be. A worker that is full gives up the adapter that
// it has not used for longest.
func (f *Fleet) Ensure(ctx context.Context, w int, a int32) error {
	return f.ensure(ctx, w, a, 1)
}

// ensure is Ensure on behalf of so many booked requests, which are known not to
// have reached the worker meanwhile.
func (f *Fleet) ensure(ctx context.Context, w int, a int32, booked int) error {
	if a == trace.BaseModel {
		return nil
	}
	k := f.workers[w]
	for {
		f.mu.Lock()
		c := k.loads[a]
		if c == nil {
			if k.held[a] {
				f.mu.Unlock()
				return nil
			}
			if k.info.RunTime == Off {
				defer f.mu.Unlock()
				return fmt.Errorf("worker %d does not hold adapter %s and %s", w, f.cfg.Adapters[a].Name, k.info.whyFixed())
			}
			c = f.begin(w, a, false)
			f.background.Go(func() { f.load(w, a, c) })
		}
		k.outside[a] += booked
		k.drained.notify()
		f.mu.Unlock()
		err := await(ctx, c)
		f.mu.Lock()
		if k.outside[a] -= booked; k.outside[a] == 0 {
			delete(k.outside, a)
		}
		f.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// await waits for the end of a load or unload; that an unload fails is no failure.
func await(ctx context.Context, c *call) error {
	select {
	case <-c.done:
		if c.unload {
			return nil
		}
		return c.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// keep loads an adapter that is to stay, though it may have been about to go.
func (f *Fleet) keep(ctx context.Context, w int, a int32) error {
	f.mu.Lock()
	delete(f.workers[w].leaving, a)
	f.mu.Unlock()
	return f.ensure(ctx, w, a, 0)
}

// begin books a load or unload; called with mu held.
func (f *Fleet) begin(w int, a int32, unload bool) *call {
	c := &call{unload: unload, done: make(chan struct{})}
	f.workers[w].loads[a] = c
	f.workers[w].changes++
	return c
}

// load carries out a load. It outlives the request that wanted it, and takes at
// most Config.LoadLimit.
func (f *Fleet) load(w int, a int32, c *call) {
	ctx, cancel := context.WithTimeout(f.ctx, f.cfg.LoadLimit)
	defer cancel()
	f.mu.Lock()
	f.view.Workers[w].Adapters[a].Loading = true
	f.mu.Unlock()
	begun := f.cfg.Now()
	name, path := f.where(a)
	err := f.beforeLoad(ctx, w, a)
	if err == nil {
		err = f.workers[w].end.loadAdapter(ctx, name, path)
	}
	if err != nil && isLimit(err) && f.evict(ctx, w) {
		err = f.workers[w].end.loadAdapter(ctx, name, path)
	}
	if err != nil {
		err = fmt.Errorf("loading adapter %s on worker %d: %w", name, w, err)
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	f.view.Workers[w].Adapters[a].Loading = false
	if err == nil {
		f.stats.Loads++
		f.stats.LoadTime += f.cfg.Now() - begun
		f.workers[w].held[a] = true
		delete(f.workers[w].lost, a)
		f.view.Workers[w].Adapters[a].Tier = max(f.view.Workers[w].Adapters[a].Tier, router.Host)
	} else {
		f.stats.FailedLoads++
		if watcher, ok := f.cfg.Router.Policy.(router.LoadWatcher); ok {
			watcher.LoadFailed(router.Placement{Worker: int32(w), Adapter: a})
		}
	}
	f.end(w, a, c, err)
	if n := f.view.Workers[w].HostSlots; err == nil && n > 0 && len(f.workers[w].held) > n {
		f.background.Go(func() { // sglang has dropped another: which one?
			ctx, cancel := context.WithTimeout(f.ctx, f.cfg.Timeout)
			defer cancel()
			f.relist(ctx, w)
		})
	}
}

// end finishes a load or unload; called with mu held.
func (f *Fleet) end(w int, a int32, c *call, err error) {
	delete(f.workers[w].loads, a)
	f.workers[w].changes++
	c.err = err
	close(c.done)
}

// isLimit says whether a worker refused a load for want of room.
func isLimit(err error) bool {
	text := strings.ToLower(err.Error())
	return strings.Contains(text, "max_loaded") || strings.Contains(text, "at most") || strings.Contains(text, "limit") || strings.Contains(text, "exceed")
}

// evict unloads the adapter that a worker has not used for longest and that no
// request uses; false if there is none or it stays.
func (f *Fleet) evict(ctx context.Context, w int) bool {
	f.mu.Lock()
	k := f.workers[w]
	victim, age := int32(-1), -1
	for a := range f.view.Workers[w].Adapters {
		st := &f.view.Workers[w].Adapters[a]
		if !k.held[int32(a)] || st.Running+st.Queued > 0 || st.Pinned || k.loads[int32(a)] != nil {
			continue
		}
		if n := f.lastUse(w, int32(a)); n > age {
			victim, age = int32(a), n
		}
	}
	f.mu.Unlock()
	return victim >= 0 && f.unloadIdle(ctx, w, victim, func() bool { return true })
}

// unloadIdle unloads an adapter that no request of the fleet uses, once the
// worker says that no other does either; not if it is used or still is false
// by then. It returns whether the adapter has gone.
func (f *Fleet) unloadIdle(ctx context.Context, w int, a int32, still func() bool) bool {
	k := f.workers[w]
	free := func() bool { // called with mu held
		st := &f.view.Workers[w].Adapters[a]
		return k.held[a] && st.Running+st.Queued == 0 && k.loads[a] == nil && still()
	}
	if err := f.awaitIdle(ctx, w, a, certain, free); err != nil {
		f.cfg.Log("worker %d (%s) keeps adapter %s: %v", w, f.cfg.URLs[w], f.nameOf(a), err)
		return false
	}
	f.mu.Lock()
	if !free() {
		f.mu.Unlock()
		return false
	}
	c := f.begin(w, a, true)
	f.mu.Unlock()
	f.unload(ctx, w, a, c)
	return c.err == nil
}

// lastUse is how many other adapters were used since.
func (f *Fleet) lastUse(w int, a int32) int {
	for i, b := range f.workers[w].acct.lru {
		if a == b {
			return i
		}
	}
	return len(f.cfg.Adapters)
}

// unload carries out an unload that begin booked.
func (f *Fleet) unload(ctx context.Context, w int, a int32, c *call) {
	name, _ := f.where(a)
	err := f.workers[w].end.unloadAdapter(ctx, name)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		f.stats.Unloads++
		delete(f.workers[w].held, a)
		f.view.Workers[w].Adapters[a].Tier = router.Disk
		f.slots(w)
	} else {
		err = fmt.Errorf("unloading adapter %s on worker %d: %w", name, w, err)
		f.cfg.Log("%v", err)
	}
	f.end(w, a, c, err)
}

// Release unloads an adapter as soon as no request of the fleet uses it there,
// unless one is booked there from now on.
func (f *Fleet) Release(w int, a int32) {
	f.mu.Lock()
	f.workers[w].leaving[a] = true
	f.mu.Unlock()
	f.background.Go(func() { f.release(f.ctx, w, a) })
}

func (f *Fleet) release(ctx context.Context, w int, a int32) {
	k := f.workers[w]
	wanted := func() bool { return k.leaving[a] } // called with mu held
	for {
		f.mu.Lock()
		st := &f.view.Workers[w].Adapters[a]
		if !wanted() || !k.held[a] {
			f.mu.Unlock()
			return
		}
		if st.Running+st.Queued == 0 && k.loads[a] == nil {
			f.mu.Unlock()
			ctx, cancel := context.WithTimeout(ctx, f.cfg.LoadLimit)
			f.unloadIdle(ctx, w, a, wanted)
			cancel()
			f.mu.Lock()
			delete(k.leaving, a)
			f.mu.Unlock()
			return
		}
		wait := k.drained.wait()
		if c := k.loads[a]; c != nil {
			wait = c.done
		}
		f.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return
		}
	}
}

// Load and Unload change what a worker holds on a person's behalf, and return
// when it is done.
func (f *Fleet) Load(ctx context.Context, w int, name string) error {
	a, err := f.check(w, name)
	if err != nil {
		return err
	}
	return f.keep(ctx, w, a)
}

// Unload drops an adapter once its requests have ended; it returns at once.
func (f *Fleet) Unload(w int, name string) error {
	a, err := f.check(w, name)
	if err != nil {
		return err
	}
	f.Release(w, a)
	return nil
}

func (f *Fleet) check(w int, name string) (int32, error) {
	if w < 0 || w >= len(f.workers) {
		return 0, fmt.Errorf("worker %d, expected 0 to %d", w, len(f.workers)-1)
	}
	a := f.Lookup(name)
	if a < 0 {
		return 0, fmt.Errorf("unknown adapter %q", name)
	}
	return a, nil
}
