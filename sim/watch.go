package sim

import (
	"fmt"

	"lorasim/internal/record"
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

// DoneObserver is an observer that wants to see requests end.
type DoneObserver interface {
	// Done is that of record.Observer.
	Done(r *record.Request)
}

// others lists who wants to see what, beside the observer of every token.
type others struct {
	ends     []DoneObserver
	watchers []Watcher
	plans    []PlanObserver
}

// add asks every observer of a configuration for what it can.
func (o *others) add(cfg Config) error {
	for i, x := range append([]any{cfg.Observer}, cfg.Others...) {
		d, done := x.(DoneObserver)
		if done && i > 0 {
			o.ends = append(o.ends, d)
		}
		w, watches := x.(Watcher)
		if watches {
			o.watchers = append(o.watchers, w)
		}
		p, plans := x.(PlanObserver)
		if plans {
			o.plans = append(o.plans, p)
		}
		if !done && !watches && !plans {
			return fmt.Errorf("sim: a %T observes nothing: expected a DoneObserver, Watcher or PlanObserver", x)
		}
	}
	return nil
}

// watch tells the watchers of the time from s.now to the next event.
func (s *sim) watch(until tick.Ticks) {
	if until > s.now {
		for _, w := range s.others.watchers {
			w.Watch(s.now, until, &s.view)
		}
	}
}

// setTier enters where a worker finds the weights of an adapter.
func (w *worker) setTier(a int32, t router.Tier) {
	st := &w.v.Adapters[a]
	if st.Tier != t {
		for _, o := range w.s.others.watchers {
			o.Tier(w.s.now, w.id, a, t)
		}
	}
	st.Tier = t
}
