package sglang

import (
	"cmp"
	"fmt"
	"slices"

	"lorasim/sim/engine"
	"lorasim/sim/lora"
	"lorasim/sim/tick"
)

// drainer prevents that requests without a slot wait for ever. When the oldest request of an adapter has
// waited longer than lora_drain_wait_threshold, the adapter is promised the slot of a running adapter. The
// running adapter drains: it starts no more requests that would keep it running longer. It follows sglang
// (lora/lora_drainer.py, class LoRADrainer), and is off by default as there.
type drainer struct {
	s        *Scheduler
	e        *engine.Engine
	on       bool
	wait     tick.Ticks                // the threshold
	draining map[int32]*engine.Adapter // by index of a draining adapter: the starving adapter
	order    []*engine.Adapter         // the draining adapters
	promised map[int32]bool            // starving adapters for which another drains
	left     map[int32]int64           // tokens that an adapter's longest running request may still generate
}

// drainTolerance is the factor by which a request may be longer than the remaining tokens of a draining
// adapter's longest one (DRAIN_SCHEDULE_TOLERANCE).
const drainTolerance = 1.2

func newDrainer(s *Scheduler) drainer {
	d := drainer{s: s, e: s.e}
	if s.headOfLineBlock || s.modes != nil { // credits take its place
		return d
	}
	if d.on = s.profile.LoraDrainWait > 0; d.on {
		d.wait = tick.FromSeconds(s.profile.LoraDrainWait)
		d.draining, d.promised, d.left = map[int32]*engine.Adapter{}, map[int32]bool{}, map[int32]int64{}
	}
	return d
}

// starvesAt returns when the drainer must look at the queue next: when the oldest request of an adapter
// without promise exceeds the threshold, if a running adapter could drain; else never.
func (d *drainer) starvesAt() tick.Ticks {
	at := tick.Never
	canLeave := func(a *lora.Adapter) bool { return a.Active() && d.draining[a.Index] == nil }
	if !d.on || d.e.Gate.Full() || d.e.Queue.Len() == 0 || !d.e.LoRA.Full() ||
		!slices.ContainsFunc(d.e.LoRA.SlotAdapters(), canLeave) {
		return at
	}
	for _, a := range d.e.Queue.Adapters() {
		if !d.promised[a.Index] {
			at = min(at, d.due(a))
		}
	}
	return at
}

// due returns the first instant at which an adapter with waiting requests starves.
func (d *drainer) due(a *engine.Adapter) tick.Ticks { return a.Head().QueuedAt + d.wait + 1 }

// updateDrainingState updates the drainer before requests are chosen (update_draining_state).
func (d *drainer) updateDrainingState() {
	if !d.on || len(d.order) == 0 && d.starvesAt() > d.e.Loop.Now() {
		return
	}
	running := d.updateAdapterStats()
	if len(running) >= d.e.Profile.MaxLorasPerBatch {
		d.updateDrainingLoras(running)
	}
	d.order = slices.DeleteFunc(d.order, func(a *engine.Adapter) bool {
		if slices.Contains(running, a) {
			return false
		}
		delete(d.promised, d.draining[a.Index].Index)
		delete(d.draining, a.Index)
		return true
	})
}

// updateAdapterStats stores, for each adapter of the batch, the largest number of tokens that one of its
// requests may still generate. It returns the adapters.
func (d *drainer) updateAdapterStats() (running []*engine.Adapter) {
	for _, r := range d.s.runningReqs() {
		a := r.Row
		if !slices.Contains(running, a) {
			running = append(running, a)
			d.left[a.Index] = 0
		}
		d.left[a.Index] = max(d.left[a.Index], d.s.left(r))
	}
	return running
}

// updateDrainingLoras makes running adapters drain for starving ones (_update_draining_loras). The longest
// wait comes first. It gets the running adapter that ends first and does not drain yet. Ties are broken by
// index; sglang leaves them to the order of a set.
func (d *drainer) updateDrainingLoras(running []*engine.Adapter) {
	starving := slices.DeleteFunc(slices.Clone(d.e.Queue.Adapters()), func(a *engine.Adapter) bool {
		return d.promised[a.Index] || d.due(a) > d.e.Loop.Now()
	})
	slices.SortFunc(starving, func(a, b *engine.Adapter) int {
		return cmp.Or(cmp.Compare(d.due(a), d.due(b)), cmp.Compare(a.Index, b.Index))
	})
	drains := func(a *engine.Adapter) bool { return d.draining[a.Index] != nil }
	eligible := slices.DeleteFunc(slices.Clone(running), drains)
	slices.SortFunc(eligible, func(a, b *engine.Adapter) int {
		return cmp.Or(cmp.Compare(d.left[a.Index], d.left[b.Index]), cmp.Compare(a.Index, b.Index))
	})
	for k := range min(len(starving), len(eligible)) {
		d.draining[eligible[k].Index] = starving[k]
		d.promised[starving[k].Index] = true
		d.order = append(d.order, eligible[k])
	}
}

// canSchedule returns the first waiting request of an adapter that the drainer admits; nil: none
// (can_schedule).
func (d *drainer) canSchedule(a *engine.Adapter) *engine.Request {
	r := a.Head()
	if d.on && d.draining[a.Index] != nil {
		for r != nil && float64(r.MaxNew) > float64(float64(d.left[a.Index])*drainTolerance) {
			r = r.Next()
		}
	}
	return r
}

// check checks that an adapter drains for one other, and no other adapter drains for that one.
func (d *drainer) check() error {
	promised := map[int32]bool{}
	for _, a := range d.order {
		to := d.draining[a.Index]
		if to == nil || promised[to.Index] || !d.promised[to.Index] {
			return fmt.Errorf("sglang: adapter %d drains for none, or for the same as another", a.Index)
		}
		promised[to.Index] = true
	}
	if len(d.draining) != len(d.order) || len(d.promised) != len(promised) {
		return fmt.Errorf("sglang: %d adapters drain, listed are %d, for %d of %d", len(d.draining), len(d.order),
			len(promised), len(d.promised))
	}
	return nil
}
