package sim

import (
	"lorasim/internal/tick"
	"lorasim/router"
)

// Waiting is a Watcher that tells how loaded the workers of a run were.
type Waiting struct{ queued, running float64 } // requests x s

// Watch implements Watcher.
func (w *Waiting) Watch(from, to tick.Ticks, v *router.View) {
	for i := range v.Workers {
		w.queued += float64(v.Workers[i].Queued) * (to - from).Seconds()
		w.running += float64(v.Workers[i].Running) * (to - from).Seconds()
	}
}

// Tier implements Watcher.
func (*Waiting) Tier(tick.Ticks, int, int32, router.Tier) {}

// Share is the share of their time at workers that requests wait, in the mean
// over the run: next to nothing as long as the workers keep up, next to all where
// a queue only grows.
func (w *Waiting) Share() float64 { return w.queued / max(w.queued+w.running, 1e-9) }
