package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"lorasim/router"
	"lorasim/trace"
)

// A LoRAManager loads and unloads adapters for requests, operators and plans.
type LoRAManager struct {
	cfg     *Config
	tasks   *tasks
	table   *table
	catalog *catalog
	loader  *loader
	places  *placeServer

	rollouts *rollouts
}

// Ensure loads adapter a on worker w unless the worker holds it already. A request with the adapter must be booked on
// w. If the worker has no place for the adapter, the request waits until ctx ends (see places.go). A worker that
// refuses connections is down.
func (m *LoRAManager) Ensure(ctx context.Context, w int, a int32) error {
	return m.EnsureWithin(ctx, w, a, Wait{})
}

// EnsureWithin is Ensure with a limit on the wait for a place. When the wait exceeds it, the error is a [*NoPlace].
func (m *LoRAManager) EnsureWithin(ctx context.Context, w int, a int32, wait Wait) error {
	err := m.ensure(ctx, m.table.at(w), a, 1, wait)
	if errors.Is(err, syscall.ECONNREFUSED) {
		defer m.table.lock()()
		m.table.refused(w, err)
	}
	return err
}

// ensure is Ensure for a number of booked requests, which have not been sent to the worker yet. With booked 0 it does
// not wait for a place, and it waits for calls without limit.
func (m *LoRAManager) ensure(ctx context.Context, k *worker, a int32, booked int, wait Wait) error {
	if a == trace.BaseModel {
		return nil
	}
	defer m.table.lock()()
	for s := k.loras.rows[a]; ; {
		if k.gone {
			return k.cause
		}
		if err := m.table.fits(k, a); err != nil {
			return err
		}
		if s.held && s.call == nil && !(booked > 0 && s.yielding) {
			return nil
		}
		c := s.call
		if c == nil {
			if k.health.info.RunTime == Off {
				return fmt.Errorf("worker %d does not hold adapter %s and %s", k.index, m.catalog.name(a),
					k.health.info.whyFixed())
			}
			if booked > 0 && (s.yielding || k.places.crowded()) {
				return m.places.wait(ctx, k, a, booked, wait)
			}
			if s.resting() {
				if booked > 0 && isFull(s.failure) { // a place may become free before the pause is over
					return m.places.wait(ctx, k, a, booked, wait)
				}
				return cmp.Or(context.Cause(ctx), s.failure)
			}
			c = k.loras.begin(a, false)
			m.tasks.Go(func() { m.loader.load(k, a) })
		}
		s.outside += booked
		k.changed.notify()
		err := m.awaitCall(ctx, k, a, c, booked, wait)
		if s.outside -= booked; err == nil && !c.unload { // that an unload fails is no failure
			err = c.err
		}
		if booked > 0 && isFull(err) {
			return m.places.wait(ctx, k, a, booked, wait)
		}
		if err != nil {
			return err
		}
	}
}

// patience is the time for which a request waits for a load or unload though another worker could serve it.
const patience = time.Second

// awaitCall waits until a call for an adapter has ended. A booked request waits no longer than its limit, and after
// some time it leaves if another worker can serve it. Called with mu held.
func (m *LoRAManager) awaitCall(ctx context.Context, k *worker, a int32, c *call, booked int, wait Wait) error {
	if booked == 0 {
		return m.table.await(ctx, c.done)
	}
	begun := time.Now()
	for {
		until := begun.Add(patience)
		patient := time.Now().Before(until)
		if !patient {
			if m.elsewhere(k, a, c) {
				return fmt.Errorf("worker %d is slow to %s adapter %s, and another worker serves it", k.index, c,
					m.catalog.name(a))
			}
			until = wait.Until
		}
		if limit := wait.Until; !limit.IsZero() && !time.Now().Before(limit) {
			no := m.places.noPlace(k, a, true)
			no.Call = c.String()
			return no
		} else if !limit.IsZero() && limit.Before(until) {
			until = limit
		}
		select {
		case <-c.done:
			return context.Cause(ctx)
		default:
		}
		if err := m.table.awaitAny(ctx, until, c.done, m.table.ready.ch); err != nil {
			return err
		}
	}
}

// elsewhere reports whether another worker can serve a request that waits for a call: one that holds the adapter or,
// where this worker unloads it, one that may load it. Called with mu held.
func (m *LoRAManager) elsewhere(k *worker, a int32, c *call) bool {
	return slices.ContainsFunc(m.table.workers, func(o *worker) bool {
		return o != k && !o.gone && o.view.Usable() && m.table.fits(o, a) == nil &&
			(o.loras.ready(a) || c.unload && o.health.info.RunTime != Off && !o.loras.rows[a].resting())
	})
}

// keep loads an adapter that is to stay. It cancels a pending unload of the adapter.
func (m *LoRAManager) keep(ctx context.Context, w int, a int32) error {
	k := m.table.at(w)
	m.table.mu.Lock()
	k.loras.rows[a].leaving = false
	m.table.mu.Unlock()
	return m.ensure(ctx, k, a, 0, Wait{})
}

// keepAll loads the adapters of a plan, all or none.
func (m *LoRAManager) keepAll(ctx context.Context, loads []router.Placement) error {
	m.table.mu.Lock()
	fresh := slices.DeleteFunc(slices.Clone(loads),
		func(l router.Placement) bool { return m.table.workers[l.Worker].loras.rows[l.Adapter].held })
	m.table.mu.Unlock()
	load := func(i int) error { return m.keep(ctx, int(loads[i].Worker), loads[i].Adapter) }
	err := errors.Join(each(len(loads), load)...)
	if err != nil {
		for _, l := range fresh {
			m.Release(int(l.Worker), l.Adapter)
		}
	}
	return err
}

// Release unloads adapter a from worker w as soon as no request of the fleet uses it there. A request booked on w
// meanwhile cancels the unload.
func (m *LoRAManager) Release(w int, a int32) { m.releaseLater(m.table.at(w), a) }

// releaseLater is Release. The channel gets the result.
func (m *LoRAManager) releaseLater(k *worker, a int32) <-chan error {
	defer m.table.lock()()
	k.loras.rows[a].leaving = true
	result := make(chan error, 1)
	m.tasks.Go(func() { result <- m.table.guard(k.index, func() error { return m.release(k, a) }) })
	return result
}

// errKept is the error of an unload that did not take place because a request came that needs the adapter.
var errKept = errors.New("a request needs the adapter")

func (m *LoRAManager) release(k *worker, a int32) error {
	defer m.table.lock()()
	for s := k.loras.rows[a]; !k.gone && s.held; {
		if !s.leaving {
			return errKept
		}
		if !k.loras.idle(a) {
			if err := m.table.await(m.tasks.ctx, k.changed.ch); err != nil {
				return err
			}
			continue
		}
		var err error
		m.table.unlocked(func() {
			ctx, cancel := context.WithTimeout(m.tasks.ctx, m.cfg.LoadLimit)
			defer cancel()
			err = m.loader.unloadIdle(ctx, k, a, func() bool { return s.leaving })
		})
		s.leaving = false
		return err
	}
	return nil
}

// ErrPending means that an unload was not over when the caller's context ended. It goes on.
var ErrPending = errors.New("the unload is under way")

// Unload unloads an adapter from worker w once the adapter's requests have ended, and returns when it is gone. If ctx
// ends before, the error is [ErrPending] with what the unload waits for.
func (m *LoRAManager) Unload(ctx context.Context, w int, name string) error {
	a, err := m.find(w, name)
	if err != nil {
		return err
	}
	k := m.table.at(w)
	select {
	case err := <-m.releaseLater(k, a):
		return err
	case <-ctx.Done():
	}
	defer m.table.lock()()
	if n := k.books.uses(a); n > 0 {
		return fmt.Errorf("%w: requests for adapter %s in flight on worker %d: %d", ErrPending, name, w, n)
	}
	return fmt.Errorf("%w: worker %d has not answered yet", ErrPending, w)
}

var errUnknownAdapter = errors.New("unknown adapter")

func (m *LoRAManager) find(w int, name string) (a int32, err error) {
	defer m.table.lock()()
	if err := m.table.checkIndex(w); err != nil {
		return 0, err
	}
	if a = m.catalog.lookup(name); a < 0 {
		return 0, fmt.Errorf("%w %q", errUnknownAdapter, name)
	}
	return a, nil
}

// Forget notes that worker w does not hold adapter a, contrary to what the fleet assumed.
func (m *LoRAManager) Forget(w int, a int32) {
	defer m.table.lock()()
	h := &m.table.workers[w].loras
	h.rows[a].lost = true
	h.gone(a)
}

// Contested reports whether adapters may leave worker w without an action of the fleet: the worker is full, and other
// clients may load adapters there.
func (m *LoRAManager) Contested(w int) bool { return m.table.at(w).loras.contested.Load() }
