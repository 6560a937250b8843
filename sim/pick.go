package sim

import (
	"cmp"
	"slices"

	"lorasim/internal/tick"
	"lorasim/router"
	"lorasim/sim/engine/dlora"
)

// inHost says whether the weights of a row are in host memory or a slot, or are
// not needed. sglang's scheduler does not see a request before they are:
// they are fetched beside its steps. The other scheduler fetches within them.
func (w *worker) inHost(row int32) bool {
	return w.vllm || !w.isLoRA(row) || w.v.Adapters[row].Tier >= router.Host
}

// pick chooses the waiting request that may be prefilled next, nil: none. Those
// whose adapter finds no slot are passed over, and the queue goes on
// (Scheduler.can_schedule_lora_req in sglang's managers/scheduler.py).
func (w *worker) pick() *request {
	if w.exec != nil && w.exec.row != dlora.Unmerged {
		return w.pickMerged()
	}
	if w.blocks {
		return w.pickBlocked()
	}
	for {
		r := w.queue.head
		if w.ordering != asTheyCame || w.pickable(r.Adapter) != r {
			r = w.foremost(w.candidates(), w.pickable)
		}
		if r == nil || !w.mustWait(r.Adapter) {
			return r
		}
		w.startLoad(r.Adapter) // its requests wait; look for another
	}
}

// pickMerged is pick in a merged mode.
func (w *worker) pickMerged() *request {
	row := w.exec.row
	r := w.queue.of(row).head
	if r == nil || !w.eligible(row) {
		return nil
	}
	if w.mustWait(row) {
		w.startLoad(row)
		return nil
	}
	return r
}

// pickBlocked is pick under head_of_line block: the queue's first request whose
// weights are there decides, and where it has to wait everybody waits.
func (w *worker) pickBlocked() *request {
	head := w.queue.head
	if !w.inHost(head.Adapter) {
		if head = w.queue.oldest(w.queue.waiting, func(row int32) *request {
			if !w.inHost(row) {
				return nil
			}
			return w.queue.of(row).head
		}); head == nil {
			return nil
		}
	}
	row := head.Adapter
	switch loading := w.adapters.rows.of(row).loading; {
	case !w.eligible(row):
		if !loading {
			w.full = len(w.adapters.queue) == 0 // else the end of a load may make room
		}
		return nil
	case !loading && w.mustWait(row):
		w.startLoad(row)
		return nil
	}
	return head
}

// pickable is the first waiting request of a row that may be picked, nil if there
// is none.
func (w *worker) pickable(row int32) *request {
	if !w.eligible(row) {
		return nil
	}
	return w.firstOf(row)
}

// eligible says whether requests of a row may be picked, a load permitting. An
// idle adapter's slot may be promised to a row of the step that is being formed.
func (w *worker) eligible(row int32) bool {
	r := w.adapters.rows.of(row)
	switch {
	case r.active > 0 && !r.loading:
		return true
	case !w.inHost(row):
		return false
	case r.loading:
		return w.blocking
	}
	return r.slot && !w.displaces() || w.slotObtainable(row)
}

// candidates lists the rows among which those that are eligible and have
// requests waiting are found. Where no slot can be obtained, these are few: the
// rows that are in use.
func (w *worker) candidates() []int32 {
	t := &w.adapters
	if w.vllm || t.pins || len(t.claimed) < w.eng.MaxLorasPerBatch || len(t.claimed) > len(w.queue.waiting) {
		return w.queue.waiting
	}
	return t.claimed
}

// mustWait says whether requests of an eligible row wait for its load while
// others run (lora/lora_overlap_loader.py in sglang).
func (w *worker) mustWait(row int32) bool {
	return !w.blocking && w.isLoRA(row) && !w.adapters.rows.of(row).slot
}

// slotObtainable says whether an idle row can run beside those that are
// running, chosen or being loaded (LoRAManager.validate_lora_batch in
// lora/lora_manager.py): idle ones make way unless they are pinned.
func (w *worker) slotObtainable(row int32) bool {
	t := &w.adapters
	n := len(t.claimed)
	if w.vllm && t.rows.of(int32(len(w.s.adapters))).active == 0 {
		n++ // the base model's slot is its own
	}
	if t.pins {
		for _, o := range t.slots {
			if r := t.rows.of(o); o != row && r.active == 0 && !r.loading && w.isLoRA(o) && w.v.Adapters[o].Pinned {
				n++
			}
		}
	}
	return n < w.eng.MaxLorasPerBatch
}

// The drainer keeps requests that are passed over for want of a slot from
// waiting for ever: an adapter whose oldest request has waited for longer than
// lora_drain_wait_threshold is promised the slot of a running adapter, which
// then takes no more requests that would hold it up. It is sglang's
// (lora/lora_drainer.py, class LoRADrainer) and, as there, off by default.

// drainTolerance is by how much a request may outlast a draining adapter's
// longest one (DRAIN_SCHEDULE_TOLERANCE).
const drainTolerance = 1.2

func (w *worker) drainerOn() bool {
	return w.eng.LoraDrainWait > 0 && !w.blocks
}

// starvesAt is when the drainer has to look at the queue next: when the oldest
// request of an adapter without promise has waited for longer than the
// threshold, if there is a running adapter that could make way.
func (w *worker) starvesAt() tick.Ticks {
	t := &w.adapters
	at := tick.Never
	if !w.drainerOn() || w.full || w.queue.n == 0 || len(t.claimed) < w.eng.MaxLorasPerBatch ||
		!slices.ContainsFunc(t.slots, func(row int32) bool { return t.rows.of(row).active > 0 && t.rows.of(row).drainsFor < 0 }) {
		return at
	}
	for _, row := range w.queue.waiting {
		if !t.rows.of(row).promised {
			at = min(at, w.starves(row))
		}
	}
	return at
}

// starves is the first instant at which a row with waiting requests starves.
func (w *worker) starves(row int32) tick.Ticks {
	return w.queue.of(row).head.queued + tick.FromSeconds(w.eng.LoraDrainWait) + 1
}

// drain brings the drainer up to date before requests are picked
// (LoRADrainer.update_draining_state).
func (w *worker) drain() {
	t := &w.adapters
	if !w.drainerOn() || len(t.draining) == 0 && w.starvesAt() > w.s.loop.Now() {
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
		r := t.rows.of(row)
		t.rows.of(r.drainsFor).promised, r.drainsFor = false, -1
		return true
	})
}

// longestLeft notes, for each adapter of the batch, the largest number of
// tokens that one of its requests may still generate. It returns the adapters.
func (w *worker) longestLeft() (running []int32) {
	for _, e := range w.batch {
		q := e.Value
		r := q.row
		if !slices.Contains(running, q.Adapter) {
			running = append(running, q.Adapter)
			r.left = 0
		}
		r.left = max(r.left, int64(q.maxNew-q.generated)-(w.steps-q.Joined))
	}
	return running
}

// promise has running adapters drain for starving ones
// (LoRADrainer._update_draining_loras): the longest wait first, each the
// running adapter that is done first and drains for no other. Of equals the
// first row, where sglang leaves it to the order of a set.
func (w *worker) promise(running []int32) {
	t := &w.adapters
	starving := slices.DeleteFunc(slices.Clone(w.queue.waiting), func(row int32) bool {
		return t.rows.of(row).promised || w.starves(row) > w.s.loop.Now()
	})
	slices.SortFunc(starving, func(a, b int32) int {
		return cmp.Or(cmp.Compare(w.starves(a), w.starves(b)), cmp.Compare(a, b))
	})
	eligible := slices.DeleteFunc(slices.Clone(running), func(row int32) bool { return t.rows.of(row).drainsFor >= 0 })
	slices.SortFunc(eligible, func(a, b int32) int {
		return cmp.Or(cmp.Compare(t.rows.of(a).left, t.rows.of(b).left), cmp.Compare(a, b))
	})
	for k := range min(len(starving), len(eligible)) {
		t.rows.of(eligible[k]).drainsFor = starving[k]
		t.rows.of(starving[k]).promised = true
		t.draining = append(t.draining, eligible[k])
	}
}

// firstOf is the first waiting request of a row that the drainer lets pass, nil
// if there is none (LoRADrainer.can_schedule).
func (w *worker) firstOf(row int32) *request {
	q, r := w.queue.of(row).head, w.adapters.rows.of(row)
	if r.drainsFor >= 0 {
		for q != nil && float64(q.maxNew) > float64(float64(r.left)*drainTolerance) {
			q = q.links[ofAdapter].next
		}
	}
	return q
}
