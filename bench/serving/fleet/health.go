package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"

	"lorasim/internal/guard"
	"lorasim/router"
	"lorasim/trace"
)

// Start reaches the workers and gives them the adapters they start with. A
// worker that cannot be reached is down until a later probe finds it. It returns
// an error only if ctx ends.
func (f *Fleet) Start(ctx context.Context) error {
	if f.cfg.Extend != nil {
		f.discoverAll(ctx)
	}
	register := func(i int) error { return f.Guard(i, func() error { return f.register(ctx, i) }) }
	for i, err := range each(len(f.workers), register) {
		if err != nil {
			f.cfg.Log("%s: %v", f.workers[i].name, err)
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

// discoverAll takes in what the workers hold at the start, in their order.
func (f *Fleet) discoverAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Timeout)
	defer cancel()
	listed := make([][]model, len(f.workers))
	each(len(f.workers), func(i int) error { // one that fails is taken in later
		return f.Guard(i, func() (err error) {
			listed[i], err = f.workers[i].models(ctx)
			return err
		})
	})
	for i, k := range f.workers {
		f.Guard(i, func() error {
			defer f.lock()()
			f.takeIn(k, listed[i])
			return nil
		})
	}
}

// Run looks after the workers and plans until ctx ends.
func (f *Fleet) Run(ctx context.Context) {
	planner := f.Config().Router.Planner // one that replaces it has the same interval
	var wg sync.WaitGroup
	defer wg.Wait()
	if planner != nil {
		wg.Go(func() { f.planning(ctx, planner.Interval()) })
	}
	each(len(f.workers), func(i int) error {
		for range Ticks(ctx, f.cfg.Poll) {
			f.Guard(i, func() error { f.probe(ctx, i); return nil })
		}
		return nil
	})
}

// Close gives up what is under way and waits for its end; to be called when no
// other method is running or will be called.
func (f *Fleet) Close() {
	f.cancel()
	f.background.Wait()
}

// register takes a worker in: asks what it is and holds, loads what it lacks.
func (f *Fleet) register(ctx context.Context, w int) error {
	k := f.workers[w]
	ask, cancel := context.WithTimeout(ctx, f.cfg.Timeout)
	defer cancel()
	in, err := k.discover(ask)
	if err != nil {
		return err
	}
	listed, err := k.models(ask)
	if err != nil && !errors.Is(err, errTooLong) {
		return err
	}
	missing, placed := f.registered(k, w, in, listed, err)
	for _, a := range missing {
		if err := f.ensure(ctx, w, a, 0, Wait{}); err != nil {
			if !placed {
				break // as many as fit; the others when they are needed
			}
			f.cfg.Log("%s: %v", k.name, err)
		}
	}
	defer f.lock()()
	k.view.Up = true
	k.afterDown()
	return nil
}

// registered enters what a worker tells, and returns the adapters that it lacks.
func (f *Fleet) registered(k *worker, w int, in Info, listed []model, unlisted error) (missing []int32, placed bool) {
	defer f.lock()()
	f.unread(k, unlisted)
	k.known, k.failed, k.info = true, 0, in
	f.tell(k, in.Limits)
	k.changes++
	f.takeIn(k, listed)
	f.holds(k, listed)
	return f.missing(w), f.cfg.Router.Placement != nil
}

// missing lists the adapters that a worker is to start with and does not hold.
func (f *Fleet) missing(w int) (list []int32) {
	k := f.workers[w]
	if k.info.RunTime == Off {
		return nil
	}
	if place := f.cfg.Router.Placement; place != nil {
		return slices.DeleteFunc(slices.Clone(place[w]), func(a int32) bool { return k.adapters[a].held })
	}
	room := len(f.cfg.Adapters)
	if n := k.view.HostSlots; n > 0 {
		room = n - len(k.held)
	}
	for a, s := range k.adapters {
		if len(list) < room && !s.held {
			list = append(list, int32(a))
		}
	}
	return list
}

// tell enters the limits that a worker tells, where nobody has stated others; a
// contradiction is logged once. Called with mu held.
func (f *Fleet) tell(k *worker, l Limits) {
	s, v := &f.cfg.Stated, k.view
	enter(f, k, "running requests at most", l.MaxRunning, s.MaxRunning, &v.MaxRunning)
	enter(f, k, "adapter slots", l.Slots, s.Slots, &v.Slots)
	enter(f, k, "adapters at most", l.MaxLoaded, s.MaxLoaded, &v.HostSlots)
	enter(f, k, "KV tokens", l.KVCapacity, s.KVCapacity, &v.KVCapacity)
}

func enter[T int | int64](f *Fleet, k *worker, what string, told, stated T, to *T) {
	if told > 0 && stated > 0 && told != stated && !k.warned[what] {
		k.warned[what] = true
		f.cfg.Log("%s has %d %s; %d are stated, and count", k.name, told, what, stated)
	}
	if n := cmp.Or(stated, told); n > 0 {
		*to = n
	}
}

const mostLogged = 10 // names of adapters, at a time

// takeIn makes the fleet know the adapters that a worker lists and nobody has
// named so far, if Config.Extend allows it; called with mu held. The router is
// made anew, as policies and planners know a fixed set of adapters.
func (f *Fleet) takeIn(k *worker, listed []model) {
	if f.cfg.Extend == nil {
		return
	}
	all := slices.Clip(f.cfg.Adapters)
	added := map[string]bool{}
	for _, m := range listed {
		if m.Parent != "" && f.lookup(m.ID) < 0 && !added[m.ID] {
			added[m.ID] = true
			if len(all) < maxAdapters {
				all = append(all, trace.Adapter{Name: m.ID})
				f.roots[m.ID] = m.Root
			} else if !k.warned["adapters"] {
				k.warned["adapters"] = true
				f.cfg.Log("%s holds more adapters than the %d that can be known; the others are left alone", k.name, maxAdapters)
			}
		}
	}
	fresh := all[len(f.cfg.Adapters):]
	if len(fresh) == 0 {
		return
	}
	rt, err := f.cfg.Extend(all)
	if err != nil {
		f.cfg.Log("%s holds adapters that cannot be taken in: %v", k.name, err)
		return
	}
	for i, a := range fresh {
		if i == mostLogged {
			f.cfg.Log("%s holds %d more adapters", k.name, len(fresh)-mostLogged)
			break
		}
		f.cfg.Log("%s holds adapter %s", k.name, a.Name)
	}
	for i := range fresh {
		f.enter(all, int32(len(all)-len(fresh)+i))
	}
	for _, k := range f.workers {
		k.grow(len(fresh))
	}
	f.cfg.Adapters, f.cfg.Router, f.view.Adapters = all, rt, all
	f.outputs.Grow(len(fresh))
	if f.cfg.Staleness > 0 {
		f.stale = router.NewStale(f.cfg.Staleness) // its copies have the former size
	}
}

// grow makes room for n more adapters, which are not known to be there.
func (k *worker) grow(n int) {
	for range n {
		k.adapters = append(k.adapters, new(adapter))
		k.view.Adapters = append(k.view.Adapters, router.AdapterState{Tier: router.Disk})
	}
}

// holds notes which adapters a worker lists; called with mu held.
func (f *Fleet) holds(k *worker, listed []model) {
	there := make([]bool, len(k.adapters))
	for _, m := range listed {
		if a := f.lookup(m.ID); a >= 0 {
			there[a] = true
		}
	}
	for a, s := range k.adapters {
		s.lost = s.lost || s.held && !there[a]
		k.hold(int32(a), there[a])
	}
	k.settle()
	k.resetTiers()
}

// unread logs once that a worker's list of adapters is too long to read. It is used with
// those that the fleet loads itself. Called with mu held.
func (f *Fleet) unread(k *worker, err error) bool {
	if err != nil && !k.warned["list"] {
		k.warned["list"] = true
		f.cfg.Log("%s: %v: the adapters that it holds are unknown, but for those loaded from here", k.name, err)
	}
	return err != nil
}

// failureThreshold is the number of probes in a row that must fail before a worker
// that does not refuse connections counts as down.
const failureThreshold = 2

// probe asks a worker how it is, and what it holds. One that was down is taken in
// again.
func (f *Fleet) probe(ctx context.Context, w int) {
	k := f.workers[w]
	f.mu.Lock()
	known, own := k.known, len(k.requests)
	f.mu.Unlock()
	if !known {
		err := f.register(ctx, w)
		if err == nil {
			f.cfg.Log("%s is up", k.name)
		}
		f.watch(ctx, k, err)
		return
	}
	probe, cancel := context.WithTimeout(ctx, f.cfg.Timeout)
	defer cancel()
	l, err := k.load(probe)
	if ctx.Err() != nil {
		return
	}
	f.probed(k, l, own, err)
	f.watch(ctx, k, err)
	if err == nil {
		f.relist(probe, k)
	}
}

// probed enters what a probe found; own is the number of requests before it.
func (f *Fleet) probed(k *worker, l load, own int, err error) {
	defer f.lock()()
	if err == nil {
		k.failed, k.said = 0, l
		f.tell(k, l.Limits)
		k.foreign(l, max(own, len(k.requests)), f.cfg.Now())
	} else if k.failed++; k.failed >= failureThreshold || !errors.Is(err, context.DeadlineExceeded) {
		f.down(k, err)
	}
}

// relist asks a worker again what it holds, which others may have changed.
// What it says is not used if the fleet changed something meanwhile.
func (f *Fleet) relist(ctx context.Context, k *worker) {
	f.mu.Lock()
	before := k.changes
	f.mu.Unlock()
	listed, err := k.models(ctx)
	if err != nil && !errors.Is(err, errTooLong) {
		return // probes tell whether it is down
	}
	defer f.lock()()
	if f.unread(k, err) {
		return // what the fleet has loaded itself counts
	}
	if k.known && k.changes == before && k.calls == 0 {
		f.takeIn(k, listed)
		f.holds(k, listed)
	}
}

// Refused is told of an error on the way to a worker. A worker that refuses connections is down at once.
func (f *Fleet) Refused(w int, err error) {
	defer f.lock()()
	f.refused(w, err)
}

// refused is Refused with mu held.
func (f *Fleet) refused(w int, err error) {
	if errors.Is(err, syscall.ECONNREFUSED) {
		f.down(f.workers[w], err)
	}
}

// down notes that a worker is down; called with mu held.
func (f *Fleet) down(k *worker, err error) {
	if !k.view.Up && !k.known {
		return
	}
	k.view.Up, k.known, k.out.proven = false, false, false
	k.out.restarted = k.out.state == ejected && errors.Is(err, syscall.ECONNREFUSED)
	f.stats.Downs++
	k.foreign(load{}, 0, f.cfg.Now())
	k.said, k.lru = load{}, nil
	for a, s := range k.adapters {
		k.hold(int32(a), false)
		s.leaving = false
	}
	k.dismiss(func(*ticket) bool { return true }, fmt.Errorf("worker is down: %w", err))
	k.settle()
	k.refuses = false
	k.changes++
	k.resetTiers()
	k.notify()
	f.cfg.Log("%s is down: %v", k.name, err)
}
