package fleet

import (
	"context"
	"maps"
	"slices"
	"sync"

	"lorasim/router"
	"lorasim/trace"
)

// takeIn makes the fleet know the adapters that a worker lists and nobody has
// named so far, if Config.Extend allows it; called with mu held. The router is
// made anew, as policies and planners know a fixed set of adapters.
func (f *Fleet) takeIn(w int, listed []model) {
	if f.cfg.Extend == nil {
		return
	}
	all := slices.Clip(f.cfg.Adapters)
	for _, m := range listed {
		if m.Parent != "" && indexOf(all, m.ID) < 0 {
			all = append(all, trace.Adapter{Name: m.ID})
			f.roots[m.ID] = m.Root
		}
	}
	fresh := all[len(f.cfg.Adapters):]
	if len(fresh) == 0 {
		return
	}
	rt, err := f.cfg.Extend(all)
	if err != nil {
		f.cfg.Log("worker %d (%s) holds adapters that cannot be taken in: %v", w, f.cfg.URLs[w], err)
		return
	}
	for _, a := range fresh {
		f.ranks = append(f.ranks, a.Rank)
		f.cfg.Log("worker %d (%s) holds adapter %s", w, f.cfg.URLs[w], a.Name)
	}
	f.cfg.Adapters, f.cfg.Router, f.view.Adapters = all, rt, all
	f.outputs.Grow(len(fresh))
	for i := range f.view.Workers {
		v := &f.view.Workers[i]
		for range fresh {
			v.Adapters = append(v.Adapters, router.AdapterState{Tier: router.Disk})
		}
	}
	if f.cfg.Staleness > 0 {
		f.stale = router.NewStale(f.cfg.Staleness) // its copies have the former size
	}
}

// discoverAll takes in what the workers hold at the start, in their order.
func (f *Fleet) discoverAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Timeout)
	defer cancel()
	listed := make([][]model, len(f.workers))
	var wg sync.WaitGroup
	for i, k := range f.workers {
		wg.Go(func() { listed[i], _ = k.end.models(ctx) }) // one that fails is taken in later
	}
	wg.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range listed {
		f.takeIn(i, listed[i])
	}
}

// holds notes which adapters a worker lists; called with mu held.
func (f *Fleet) holds(w int, listed []model) {
	k := f.workers[w]
	before := maps.Clone(k.held)
	clear(k.held)
	for _, m := range listed {
		if a := indexOf(f.cfg.Adapters, m.ID); a >= 0 {
			k.held[a] = true
		}
	}
	for a := range before {
		if !k.held[a] {
			k.lost[a] = true
		}
	}
	f.resetTiers(w)
}

// relist asks a worker again what it holds, which others may have changed.
// What it says is not used if the fleet changed something meanwhile.
func (f *Fleet) relist(ctx context.Context, w int) {
	k := f.workers[w]
	f.mu.Lock()
	before := k.changes
	f.mu.Unlock()
	listed, err := k.end.models(ctx)
	if err != nil {
		return // looks at its health tell whether it is down
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if k.known && k.changes == before && len(k.loads) == 0 {
		f.takeIn(w, listed)
		f.holds(w, listed)
	}
}

// Adapters lists the adapters that the fleet knows; their places are those in
// Request.Adapter. It only ever grows.
func (f *Fleet) Adapters() []trace.Adapter {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cfg.Adapters
}

// Lookup finds an adapter by name; -1: there is none.
func (f *Fleet) Lookup(name string) int32 { return indexOf(f.Adapters(), name) }

func indexOf(adapters []trace.Adapter, name string) int32 {
	return int32(slices.IndexFunc(adapters, func(a trace.Adapter) bool { return a.Name == name }))
}

func (f *Fleet) nameOf(a int32) string { return f.Adapters()[a].Name }

// where is the name of an adapter and where workers find it.
func (f *Fleet) where(a int32) (name, path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	adapter := f.cfg.Adapters[a]
	if root := f.roots[adapter.Name]; root != "" {
		return adapter.Name, root
	}
	return adapter.Name, f.cfg.Path(adapter)
}
