package sim

import (
	"lorasim/internal/tick"
	"lorasim/router"
)

// Watcher is an observer that wants to see the workers over time.
type Watcher interface {
	// Watch tells how the workers were from one instant to another, between
	// which nothing changed but KV caches growing. The view is only valid
	// during the call; the calls leave no gap.
	Watch(from, to tick.Ticks, v *router.View)
	// Tier tells that an adapter is now found in another tier of a worker. What
	// changes before the first Watch is in that one's view.
	Tier(at tick.Ticks, worker int, adapter int32, t router.Tier)
}

// watch tells a watcher of the time from s.now to the next event.
func (s *sim) watch(until tick.Ticks) {
	if s.watcher != nil && until > s.now {
		s.watcher.Watch(s.now, until, &s.view)
	}
}

// setTier enters where a worker finds the weights of an adapter.
func (w *worker) setTier(a int32, t router.Tier) {
	st := &w.v.Adapters[a]
	if w.s.watcher != nil && st.Tier != t {
		w.s.watcher.Tier(w.s.now, w.id, a, t)
	}
	st.Tier = t
}
