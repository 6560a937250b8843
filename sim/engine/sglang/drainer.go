package sglang

import (
	"cmp"
	"fmt"
	"slices"

	"lorasim/sim/engine"
	"lorasim/sim/lora"
	"lorasim/sim/tick"
)

// drainer keeps requests that are passed over for want of a slot from waiting for ever: an adapter whose oldest request
// has waited for longer than lora_drain_wait_threshold is promised the slot of a running adapter, which then takes no
// more requests that would hold it up. It is sglang's (lora/lora_drainer.py, class LoRADrainer) and, as there, off by
// default.
type drainer struct {
	s        *Scheduler
	e        *engine.Engine
	on       bool
	wait     tick.Ticks                // the threshold
	draining map[int32]*engine.Adapter // by the index of an adapter that makes way: for whom
	order    []*engine.Adapter         // the adapters that make way
	promised map[int32]bool            // adapters for which another makes way
	left     map[int32]int64           // tokens that an adapter's longest running request may still generate
}

// drainTolerance is by how much a request may outlast a draining adapter's longest one (DRAIN_SCHEDULE_TOLERANCE).
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

// starvesAt is when the drainer has to look at the queue next: when the oldest request of an adapter without promise
// has waited for longer than the threshold, if there is a running adapter that could make way.
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

// due is the first instant at which an adapter with waiting requests starves.
func (d *drainer) due(a *engine.Adapter) tick.Ticks { return a.Head().QueuedAt + d.wait + 1 }

// updateDrainingState brings the drainer up to date before requests are picked (update_draining_state).
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

// updateAdapterStats notes, for each adapter of the batch, the largest number of tokens that one of its requests may
// still generate. It returns the adapters.
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

// updateDrainingLoras has running adapters drain for starving ones (_update_draining_loras): the longest wait first,
// each the running adapter that is done first and drains for no other. Of equals the first by index, where sglang
// leaves it to the order of a set.
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

// canSchedule is the first waiting request of an adapter that the drainer lets pass, nil if there is none
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

// check: an adapter drains for one other, which no other drains for.
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
