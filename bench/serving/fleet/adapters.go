package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"

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
// not wait for a place.
func (m *LoRAManager) ensure(ctx context.Context, k *worker, a int32, booked int, wait Wait) error {
	if a == trace.BaseModel {
		return nil
	}
	defer m.table.lock()()
	if k.gone {
		return ErrLeft
	}
	if err := m.table.fits(k, a); err != nil {
		return err
	}
	for s := k.loras.rows[a]; !s.held || s.call != nil || booked > 0 && s.yielding; {
		c := s.call
		if c == nil {
			if k.health.info.RunTime == Off {
				return fmt.Errorf("worker %d does not hold adapter %s and %s", k.index, m.catalog.name(a),
					k.health.info.whyFixed())
			}
			if booked > 0 && (s.yielding || k.places.crowded()) {
				return m.places.wait(ctx, k, a, booked, wait)
			}
			c = k.loras.begin(a, false)
			m.tasks.Go(func() { m.loader.load(k, a) })
		}
		s.outside += booked
		k.changed.notify()
		err := m.table.await(ctx, c.done)
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
	return nil
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
func (m *LoRAManager) Release(w int, a int32) {
	k := m.table.at(w)
	defer m.table.lock()()
	k.loras.rows[a].leaving = true
	m.tasks.Go(func() { m.table.guard(w, func() error { m.release(k, a); return nil }) })
}

func (m *LoRAManager) release(k *worker, a int32) {
	defer m.table.lock()()
	if k.gone {
		return
	}
	for s := k.loras.rows[a]; s.leaving && s.held; {
		if k.loras.idle(a) {
			m.table.unlocked(func() {
				ctx, cancel := context.WithTimeout(m.tasks.ctx, m.cfg.LoadLimit)
				defer cancel()
				m.loader.unloadIdle(ctx, k, a, func() bool { return s.leaving })
			})
			s.leaving = false
		} else if m.table.await(m.tasks.ctx, k.changed.ch) != nil {
			return
		}
	}
}

// Unload unloads an adapter from worker w once the adapter's requests have ended. It returns at once.
func (m *LoRAManager) Unload(w int, name string) error {
	a, err := m.find(w, name)
	if err == nil {
		m.Release(w, a)
	}
	return err
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
