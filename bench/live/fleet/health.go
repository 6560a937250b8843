package fleet

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Start reaches the workers and gives them the adapters they start with. A
// worker that cannot be reached is down until a later look finds it. It returns
// an error only if a worker answers and cannot be used, or ctx ends.
func (f *Fleet) Start(ctx context.Context) error {
	if f.cfg.Extend != nil {
		f.discoverAll(ctx)
	}
	var wg sync.WaitGroup
	errs := make([]error, len(f.workers))
	for i := range f.workers {
		wg.Go(func() { errs[i] = f.welcome(ctx, i) })
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			f.cfg.Log("worker %d (%s): %v", i, f.cfg.URLs[i], err)
		}
	}
	return ctx.Err()
}

// AwaitAll looks at the workers that are down until all are up, at most for the
// given time, and returns how many are not.
func (f *Fleet) AwaitAll(ctx context.Context, limit time.Duration) int {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	t := time.NewTicker(min(f.cfg.Poll, 200*time.Millisecond))
	defer t.Stop()
	for {
		missing := 0
		for i := range f.workers {
			f.mu.Lock()
			known := f.workers[i].known
			f.mu.Unlock()
			if !known && f.welcome(ctx, i) != nil {
				missing++
			}
		}
		if missing == 0 {
			return 0
		}
		select {
		case <-ctx.Done():
			return missing
		case <-t.C:
		}
	}
}

// welcome takes a worker in: asks what it is and holds, loads what it lacks.
func (f *Fleet) welcome(ctx context.Context, w int) error {
	k := f.workers[w]
	look, cancel := context.WithTimeout(ctx, f.cfg.Timeout)
	defer cancel()
	in, err := k.end.discover(look)
	if err != nil {
		return err
	}
	ms, err := k.end.models(look)
	if err != nil {
		return err
	}
	f.mu.Lock()
	k.info, k.known, k.missed = in, true, 0
	f.setInfo(w, in)
	k.changes++
	f.takeIn(w, ms)
	f.holds(w, ms)
	missing, placed := f.missing(w), f.cfg.Router.Placement != nil
	f.mu.Unlock()
	for _, a := range missing {
		if err := f.Ensure(ctx, w, a); err != nil {
			if !placed {
				break // as many as fit; the others when they are needed
			}
			f.cfg.Log("worker %d (%s): %v", w, f.cfg.URLs[w], err)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.view.Workers[w].Up = true
	return nil
}

func (f *Fleet) setInfo(w int, in info) {
	v := &f.view.Workers[w]
	if in.MaxRunning > 0 {
		v.MaxRunning = in.MaxRunning
	}
	if in.Slots > 0 {
		v.Slots = in.Slots
	}
	if in.KVCapacity > 0 {
		v.KVCapacity = in.KVCapacity
	}
	v.HostSlots = in.MaxLoaded
}

// missing lists the adapters that a worker is to start with and does not hold.
func (f *Fleet) missing(w int) []int32 {
	var list []int32
	if place := f.cfg.Router.Placement; place != nil {
		for _, a := range place[w] {
			if !f.workers[w].held[a] {
				list = append(list, a)
			}
		}
		return list
	}
	room := len(f.cfg.Adapters)
	if n := f.workers[w].info.MaxLoaded; n > 0 {
		room = n - len(f.workers[w].held)
	}
	for a := range int32(len(f.cfg.Adapters)) {
		if len(list) < room && !f.workers[w].held[a] {
			list = append(list, a)
		}
	}
	return list
}

// Run looks after the workers and plans until ctx ends.
func (f *Fleet) Run(ctx context.Context) {
	f.mu.Lock()
	planner := f.cfg.Router.Planner // one that replaces it has the same interval
	f.mu.Unlock()
	var wg sync.WaitGroup
	for i := range f.workers {
		wg.Go(func() { f.watch(ctx, i) })
	}
	if planner != nil {
		wg.Go(func() { f.planning(ctx, planner.Interval()) })
	}
	wg.Wait()
}

// Close gives up what is under way and waits for its end; to be called when no
// other method is running or will be called.
func (f *Fleet) Close() {
	f.cancel()
	f.background.Wait()
}

// watch looks at one worker again and again.
func (f *Fleet) watch(ctx context.Context, w int) {
	t := time.NewTicker(f.cfg.Poll)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			f.look(ctx, w)
		}
	}
}

// misses is the number of looks in a row that must fail before a worker that
// does not refuse connections counts as down.
const misses = 2

// look asks a worker how it is. One that was down is taken in again.
func (f *Fleet) look(ctx context.Context, w int) {
	k := f.workers[w]
	f.mu.Lock()
	known, own := k.known, len(k.acct.requests)
	f.mu.Unlock()
	if !known {
		if err := f.welcome(ctx, w); err == nil {
			f.cfg.Log("worker %d (%s) is up", w, f.cfg.URLs[w])
		}
		return
	}
	look, cancel := context.WithTimeout(ctx, f.cfg.Timeout)
	defer cancel()
	l, err := k.end.loads(look)
	if ctx.Err() != nil {
		return
	}
	f.mu.Lock()
	if err == nil {
		k.missed = 0
		f.foreign(w, l, max(own, len(k.acct.requests)))
	} else if k.missed++; k.missed >= misses || !errors.Is(err, context.DeadlineExceeded) {
		f.down(w, err)
	}
	f.mu.Unlock()
	if err == nil && f.cfg.Extend != nil {
		f.relist(look, w)
	}
}

// Suspect is told that a request failed on a worker in a way that may mean the
// worker is down; with refused it certainly is.
func (f *Fleet) Suspect(w int, err error, refused bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if refused {
		f.down(w, err)
		return
	}
	f.workers[w].missed++
}

// down notes that a worker is down; called with mu held.
func (f *Fleet) down(w int, err error) {
	k := f.workers[w]
	if !f.view.Workers[w].Up && !k.known {
		return
	}
	f.view.Workers[w].Up = false
	k.known = false
	f.stats.Downs++
	f.foreign(w, load{}, 0)
	clear(k.held)
	k.changes++
	clear(k.leaving)
	k.acct.lru = nil
	f.resetTiers(w)
	k.drained.notify()
	f.cfg.Log("worker %d (%s) is down: %v", w, f.cfg.URLs[w], err)
}
