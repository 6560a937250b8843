package sim

import (
	"lorasim/internal/tick"
	"lorasim/sim/profile"
)

// starving returns the request that has waited longest among those whose
// adapter has no slot, -1: none.
func (w *worker) starving() int32 {
	return w.queue.oldest(w.s.reqs, func(row int32) bool { return !w.adapters.rows[row].slot })
}

func (w *worker) patience() tick.Ticks { return tick.FromSeconds(w.eng.StarvationS) }

// starvesAt is when guard has to look at the queue next.
func (w *worker) starvesAt() tick.Ticks {
	if w.eng.HeadOfLine != profile.HeadOfLineSkip || w.eng.StarvationS <= 0 || w.full ||
		w.queue.n == 0 || w.adapters.drained >= 0 || w.slotObtainable() {
		return tick.Never
	}
	i := w.starving()
	if i < 0 {
		return tick.Never
	}
	return w.s.reqs[i].queued + w.patience()
}

// endDrain lets the drained adapter have new requests again once nobody waits
// for a slot any more.
func (w *worker) endDrain() {
	if w.adapters.drained >= 0 && w.starving() < 0 {
		w.adapters.drained = -1
	}
}

// guard keeps requests that are passed over for want of a slot from starving:
// once one has waited for longer than the profile's patience, the adapter with
// the least remaining work gets no new requests until its slot is free.
func (w *worker) guard() {
	t := &w.adapters
	if w.endDrain(); t.drained >= 0 || w.starvesAt() > w.s.now {
		return
	}
	work := make(map[int32]int64, len(t.slots))
	for _, j := range w.batch {
		r := &w.s.reqs[j]
		work[r.adapter] += int64(r.maxNew-r.generated) - (w.steps - r.joinStep)
	}
	for _, row := range t.slots {
		r := &t.rows[row]
		if r.active == 0 || r.loading || w.isLoRA(row) && w.v.Adapters[row].Pinned {
			continue
		}
		if d := t.drained; d < 0 || work[row] < work[d] || work[row] == work[d] && r.loaded < t.rows[d].loaded {
			t.drained = row
		}
	}
}
