package sim

import (
	"cmp"
	"slices"

	"lorasim/internal/tick"
)

// The drainer keeps requests that are passed over for want of a slot from
// waiting for ever: an adapter whose oldest request has waited for longer than
// lora_drain_wait_threshold is promised the slot of a running adapter, which
// then takes no more requests that would hold it up. It is sglang's
// (lora/lora_drainer.py, class LoRADrainer) and, as there, off by default.

// drainTolerance is by how much a request may outlast a draining adapter's
// longest one (DRAIN_SCHEDULE_TOLERANCE).
const drainTolerance = 1.2

func (w *worker) drainerOn() bool {
	return w.eng.LoraDrainWait > 0 && !w.rules.blocks
}

// starvesAt is when the drainer has to look at the queue next: when the oldest
// request of an adapter without promise has waited for longer than the
// threshold, if there is a running adapter that could make way. The drainer is
// on.
func (w *worker) starvesAt() tick.Ticks {
	t := &w.adapters
	if w.full || w.queue.n == 0 || len(t.claimed) < w.eng.MaxLorasPerBatch {
		return tick.Never
	}
	if !slices.ContainsFunc(t.slots, func(row int32) bool { return t.rows[row].active > 0 && t.rows[row].drainsFor < 0 }) {
		return tick.Never
	}
	at := tick.Never
	for _, row := range w.queue.waiting {
		if !t.rows[row].promised {
			at = min(at, w.starves(row))
		}
	}
	return at
}

// starves is the first instant at which a row with waiting requests starves.
func (w *worker) starves(row int32) tick.Ticks {
	return w.s.reqs[w.queue.byAdapter[row].head].queued + tick.FromSeconds(w.eng.LoraDrainWait) + 1
}

// drain brings the drainer up to date before requests are picked
// (LoRADrainer.update_draining_state).
func (w *worker) drain() {
	t := &w.adapters
	if !w.drainerOn() || len(t.draining) == 0 && w.starvesAt() > w.s.now {
		return
	}
	running := w.longestLeft()
	if len(running) >= w.eng.MaxLorasPerBatch {
		w.promise(running)
	}
	t.draining = slices.DeleteFunc(t.draining, func(row int32) bool {
		if slices.Contains(running, row) {
			return false
		}
		r := &t.rows[row]
		t.rows[r.drainsFor].promised, r.drainsFor = false, -1
		return true
	})
}

// longestLeft notes, for each adapter of the batch, the largest number of
// tokens that one of its requests may still generate. It returns the adapters.
func (w *worker) longestLeft() (running []int32) {
	t := &w.adapters
	for _, i := range w.batch {
		q := &w.s.reqs[i]
		r := &t.rows[q.adapter]
		if !slices.Contains(running, q.adapter) {
			running = append(running, q.adapter)
			r.left = 0
		}
		r.left = max(r.left, int64(q.maxNew-q.generated)-(w.steps-q.joinStep))
	}
	return running
}

// promise has running adapters drain for starving ones
// (LoRADrainer._update_draining_loras): the longest wait first, each the
// running adapter that is done first and drains for no other. Of equals the
// first row, where sglang leaves it to the order of a set.
func (w *worker) promise(running []int32) {
	t := &w.adapters
	var starving []int32
	for _, row := range w.queue.waiting {
		if !t.rows[row].promised && w.starves(row) <= w.s.now {
			starving = append(starving, row)
		}
	}
	slices.SortFunc(starving, func(a, b int32) int {
		return cmp.Or(cmp.Compare(w.starves(a), w.starves(b)), cmp.Compare(a, b))
	})
	eligible := slices.DeleteFunc(slices.Clone(running), func(row int32) bool { return t.rows[row].drainsFor >= 0 })
	slices.SortFunc(eligible, func(a, b int32) int {
		return cmp.Or(cmp.Compare(t.rows[a].left, t.rows[b].left), cmp.Compare(a, b))
	})
	for k := range min(len(starving), len(eligible)) {
		t.rows[eligible[k]].drainsFor = starving[k]
		t.rows[starving[k]].promised = true
		t.draining = append(t.draining, eligible[k])
	}
}

// firstOf is the first waiting request of a row that the drainer lets pass, -1
// if there is none (LoRADrainer.can_schedule).
func (w *worker) firstOf(row int32) int32 {
	i, r := w.queue.byAdapter[row].head, &w.adapters.rows[row]
	if r.drainsFor < 0 {
		return i
	}
	for i >= 0 && float64(w.s.reqs[i].maxNew) > float64(float64(r.left)*drainTolerance) {
		i = w.s.reqs[i].anext
	}
	return i
}
