package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lorasim/trace"
)

// Load loads an adapter on worker w for an operator, and returns when the load has ended. An unknown adapter becomes
// known to the fleet once the worker has loaded it. The path is where workers find the weights; "": as Config.Path
// says.
func (m *LoRAManager) Load(ctx context.Context, w int, name, path string) error {
	a, err := m.find(w, name)
	if errors.Is(err, errUnknownAdapter) && m.cfg.Extend != nil {
		return m.introduce(ctx, m.table.at(w), name, path)
	}
	if err != nil {
		return err
	}
	if known := m.catalog.path(a); path != "" && path != known {
		return fmt.Errorf("adapter %s is known with path %s: use another name for other weights", name, known)
	}
	m.table.mu.Lock()
	m.table.adopt(m.table.workers[w], a)
	m.table.workers[w].loras.rows[a].retryAt = time.Time{} // an operator may know that it works now
	m.table.mu.Unlock()
	return m.keep(ctx, w, a)
}

// introduce loads an unknown adapter and adds it to the fleet.
func (m *LoRAManager) introduce(ctx context.Context, k *worker, name, path string) error {
	if path == "" {
		path = m.cfg.Path(trace.Adapter{Name: name})
	}
	if !isName(name, maxName) || !isName(path, maxPath) {
		return fmt.Errorf("adapter %q at %q: expected names of at most %d and %d bytes without control characters",
			clean(name, 100), clean(path, 100), maxName, maxPath)
	}
	m.table.mu.Lock()
	fixed, why := k.health.info.RunTime == Off, k.health.info.whyFixed()
	m.table.mu.Unlock()
	if fixed {
		return fmt.Errorf("%s: %s", k.name, why)
	}
	ctx, cancel := context.WithTimeout(ctx, m.cfg.LoadLimit)
	defer cancel()
	load := func() error {
		return m.table.guard(k.index, func() error { return k.loadAdapter(ctx, name, path) })
	}
	begun := time.Now()
	err := load()
	if err != nil && isLimit(err) && m.loader.evict(ctx, k) {
		err = load()
	}
	unlock := m.table.lock()
	m.loader.note(k, Load{k.url, name, time.Since(begun), err})
	unlock()
	if err != nil {
		return fmt.Errorf("loading adapter %s on %s: %w", name, k.name, err)
	}
	return m.know(k, name, path)
}

// know adds an adapter to the fleet that a worker has just loaded.
func (m *LoRAManager) know(k *worker, name, path string) error {
	defer m.table.lock()()
	m.loader.discovery.takeIn(k, []model{{ID: name, Parent: k.baseModel(), Root: path}})
	a := m.catalog.lookup(name)
	if a < 0 {
		return fmt.Errorf("%s holds adapter %s, which cannot be used", k.name, name)
	}
	m.table.noteBase(k, name, k.health.info.Model)
	k.loras.add(a)
	k.loras.version++
	k.loras.updateSlots()
	k.places.settle()
	k.changed.notify()
	return nil
}
