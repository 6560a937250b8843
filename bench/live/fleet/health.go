package fleet

import (
	"cmp"
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
	k.known, k.missed = true, 0
	f.setInfo(w, in)
	k.changes++
	f.takeIn(w, ms)
	f.holds(w, ms)
	missing, placed := f.missing(w), f.cfg.Router.Placement != nil
	if in.RunTime == Off {
		missing = nil
	}
	f.mu.Unlock()
	for _, a := range missing {
		if err := f.ensure(ctx, w, a, 0); err != nil {
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

// setInfo enters what a worker tells of itself; called with mu held.
func (f *Fleet) setInfo(w int, in Info) {
	k := f.workers[w]
	k.info = in
	f.tell(w, in.Limits)
}

// tell enters the limits that a worker tells, where nobody has stated others; a
// contradiction is logged once. Called with mu held.
func (f *Fleet) tell(w int, l Limits) {
	k, v := f.workers[w], &f.view.Workers[w]
	enter := func(what string, told, stated int64, set func(n int64)) {
		if told > 0 && stated > 0 && told != stated && !k.warned[what] {
			k.warned[what] = true
			f.cfg.Log("worker %d (%s) has %d %s; %d are stated, and count", w, f.cfg.URLs[w], told, what, stated)
		}
		if n := cmp.Or(stated, told); n > 0 {
			set(n)
		}
	}
	s := &f.cfg.Stated
	enter("running requests at most", int64(l.MaxRunning), int64(s.MaxRunning), func(n int64) { v.MaxRunning = int(n) })
	enter("adapter slots", int64(l.Slots), int64(s.Slots), func(n int64) { v.Slots = int(n) })
	enter("adapters at most", int64(l.MaxLoaded), int64(s.MaxLoaded), func(n int64) { v.HostSlots = int(n) })
	enter("KV tokens", l.KVCapacity, s.KVCapacity, func(n int64) { v.KVCapacity = n })
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
	if n := f.view.Workers[w].HostSlots; n > 0 {
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
		k.missed, k.said = 0, l
		f.tell(w, l.Limits)
		f.foreign(w, l, max(own, len(k.acct.requests)))
	} else if k.missed++; k.missed >= misses || !errors.Is(err, context.DeadlineExceeded) {
		f.down(w, err)
	}
	f.mu.Unlock()
	if err == nil {
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
	k.said = load{}
	clear(k.held)
	k.changes++
	clear(k.leaving)
	k.acct.lru = nil
	f.resetTiers(w)
	k.drained.notify()
	f.cfg.Log("worker %d (%s) is down: %v", w, f.cfg.URLs[w], err)
}
