package fleet

import (
	"context"
	"fmt"
	"path"
	"slices"

	"lorasim/trace"
)

// discovery finds out the identity of the workers and the adapters that they hold. It adds unknown adapters to the
// fleet.
type discovery struct {
	cfg     *Config
	table   *table
	catalog *catalog
	journal *journal
	renewed func(k *worker) // called with mu held when a worker has taken the place of another one
}

// all adds the adapters that the workers hold at the start, in the order of the workers.
func (d *discovery) all(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	listed := make([][]model, len(d.table.workers))
	each(len(d.table.workers), func(i int) error { // one that fails is taken in later
		return d.table.guard(i, func() (err error) {
			listed[i], err = d.table.workers[i].models(ctx)
			return err
		})
	})
	for i, k := range d.table.workers {
		d.table.guard(i, func() error {
			defer d.table.lock()()
			d.takeIn(k, d.table.versions.listed(k, listed[i]))
			return nil
		})
	}
}

// enter notes the adapters in a worker's list. Called with mu held.
func (d *discovery) enter(k *worker, listed []model) {
	listed = d.table.versions.listed(k, listed)
	d.takeIn(k, listed)
	n := len(d.catalog.list())
	there, listedThere := make([]bool, n), make([]bool, n) // there: with the weights that the fleet knows
	for _, m := range listed {
		if m.Parent != "" {
			d.table.noteBase(k, m.ID, k.health.info.Model)
		}
		if a := d.catalog.lookup(m.ID); a >= 0 {
			listedThere[a] = true
			there[a] = d.samePath(k, a, m.Root)
		}
	}
	for a, s := range k.loras.rows {
		if !listedThere[a] {
			s.foreign = ""
		}
	}
	k.loras.listed(func(a int32) bool { return there[a] })
	k.places.settle()
	d.table.ready.notify()
}

// samePath reports whether a worker that lists an adapter from a path holds the weights that the fleet knows by the
// name: those from the path that the workers which hold it tell. Other weights are not used. Called with mu held.
func (d *discovery) samePath(k *worker, a int32, root string) bool {
	s, name := k.loras.rows[a], d.catalog.name(a)
	told := d.catalog.root(name)
	others := slices.ContainsFunc(d.table.workers, func(o *worker) bool {
		return o != k && !o.gone && o.loras.rows[a].held
	})
	if root == "" || told == "" || !others || path.Clean(root) == path.Clean(told) {
		if root != "" && (told == "" || !others) {
			d.catalog.setRoot(name, root)
		}
		s.foreign = ""
		return true
	}
	if s.foreign != root {
		text := fmt.Sprintf("holds adapter %s from %s, and others hold it from %s: it is not used there", name, root,
			told)
		d.journal.add(EventNotLoad, name, text, k.index)
		d.cfg.Log("%s %s", k.name, text)
	}
	s.foreign = root
	return false
}

// unread reports whether a worker's list of adapters could not be read, and logs it once. Such a worker is used with
// the adapters that the fleet loads itself. Called with mu held.
func (d *discovery) unread(k *worker, err error) bool {
	if err != nil && k.health.first("list") {
		d.cfg.Log("%s: %v: its adapters are unknown, except those loaded by this process", k.name, err)
	}
	return err != nil
}

const mostLogged = 10 // names of adapters, at a time

// takeIn adds the unknown adapters in a worker's list to the fleet, if Config.Extend is set. It replaces the router,
// because policies and planners have a fixed set of adapters. Called with mu held.
func (d *discovery) takeIn(k *worker, listed []model) {
	if d.cfg.Extend == nil {
		return
	}
	fresh := d.unknown(k, listed)
	if len(fresh) == 0 {
		return
	}
	all := slices.Clip(d.catalog.list())
	for _, m := range fresh {
		all = append(all, trace.Adapter{Name: m.ID})
	}
	rt, _, err := d.cfg.Extend(d.table.infos(), all)
	if err != nil {
		d.cfg.Log("%s holds adapters that cannot be used: %v", k.name, err)
		return
	}
	d.catalog.set(all)
	for i, m := range fresh {
		d.catalog.setRoot(m.ID, m.Root)
		if i < mostLogged {
			d.cfg.Log("%s holds adapter %s", k.name, m.ID)
		}
	}
	if n := len(fresh) - mostLogged; n > 0 {
		d.cfg.Log("%s holds %d more adapters", k.name, n)
	}
	for _, k := range d.table.workers {
		k.loras.grow(len(fresh))
	}
	d.table.replace(rt, all, -1, d.cfg.Staleness)
}

// unknown returns the adapters in a worker's list that the fleet does not know, up to the limit of the fleet. Called
// with mu held.
func (d *discovery) unknown(k *worker, listed []model) (fresh []model) {
	added := map[string]bool{}
	for _, m := range listed {
		if m.Parent == "" || d.catalog.lookup(m.ID) >= 0 || added[m.ID] {
			continue
		}
		added[m.ID] = true
		if len(d.catalog.list())+len(fresh) < maxAdapters {
			fresh = append(fresh, m)
		} else if k.health.first("adapters") {
			d.cfg.Log("%s holds more than %d adapters; the others are ignored", k.name,
				maxAdapters)
		}
	}
	return fresh
}
