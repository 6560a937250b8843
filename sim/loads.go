package sim

import (
	"slices"

	"lorasim/internal/record"
	"lorasim/internal/tick"
	"lorasim/router"
)

// ticket is a load beside the steps.
type ticket struct {
	row  int32
	slot bool       // into the GPU slot that it holds already; else to host memory
	ends tick.Ticks // when it is done
}

// loadNow is the time to load an adapter into a slot while no step runs; a load
// that fails is tried again, until it has failed too often.
func (w *worker) loadNow(row int32) (total tick.Ticks, ok bool) {
	wait := w.loadTime(row)
	r := w.adapters.rows.of(row)
	if r.fetch { // what is under way counts
		wait += max(r.loadTo-w.s.loop.Now(), 0)
	}
	for range maxFailures {
		if total += wait; !w.loadFails() {
			w.countLoad(total)
			r.failures = 0
			return total, true
		}
	}
	w.failWaiting(row, w.s.loop.Now()+total)
	return total, false
}

// maxFailures is how often a load is tried before the requests that wait for
// the adapter fail.
const maxFailures = 10

// failWaiting fails the requests that wait for an adapter that does not load.
func (w *worker) failWaiting(row int32, at tick.Ticks) {
	for r := w.queue.of(row).head; r != nil; r = w.queue.of(row).head {
		w.dequeue(r)
		w.count(r, -1)
		w.s.finish(r, record.Failed, "its adapter does not load", at+w.costs.Overhead)
	}
	w.adapters.rows.of(row).failures = 0
	w.settle(row)
	w.roomMade()
}

// loadFails draws whether a load fails, and counts it.
func (w *worker) loadFails() bool {
	p := w.s.cfg.LoadFailures
	if p <= 0 || w.s.rng.Float64() >= p {
		return false
	}
	w.stats.Failures++
	return true
}

// loadTime is how long a load into a GPU slot takes.
func (w *worker) loadTime(row int32) tick.Ticks {
	tier := w.v.Adapters[row].Tier
	if w.adapters.rows.of(row).fetch {
		tier = router.Host // by the time it is its turn
	}
	return w.costs.Load(w.s.adapters[row].Rank, tier)
}

func (w *worker) countLoad(t tick.Ticks) {
	w.stats.Loads++
	w.stats.LoadTime += t
}

// startLoad starts or queues the load of an adapter into a GPU slot beside the
// steps; the caller has made sure that it can get one.
func (w *worker) startLoad(row int32) {
	t := &w.adapters
	r := t.rows.of(row)
	t.clock++
	r.used = t.clock
	w.takeSlot(row, -1)
	takes := w.loadTime(row)
	w.fetchHost(row)
	w.countLoad(takes)
	r.loading, w.v.Adapters[row].Loading = true, true
	w.index(row)
	t.claimed = append(t.claimed, row)
	w.countSlots()
	w.enqueueLoad(row, true, takes)
}

// startFetch starts or queues bringing an adapter to host memory, unless it is
// there or on its way.
func (w *worker) startFetch(row int32) {
	if r := w.adapters.rows.of(row); w.v.Adapters[row].Tier < router.Host && !r.fetching() {
		rank := w.s.adapters[row].Rank
		takes := w.costs.Load(rank, w.v.Adapters[row].Tier) - w.costs.Load(rank, router.Host)
		w.fetchHost(row)
		r.fetch = true
		w.enqueueLoad(row, false, takes)
	}
}

// fetchMissing is startFetch for an adapter that requests wait for.
func (w *worker) fetchMissing(row int32) {
	if !w.inHost(row) {
		w.startFetch(row)
	}
}

// enqueueLoad books the loader, which does one thing at a time.
func (w *worker) enqueueLoad(row int32, slot bool, takes tick.Ticks) {
	t := &w.adapters
	r := t.rows.of(row)
	r.loadFrom = w.s.loop.Now()
	if n := len(t.queue); n > 0 {
		r.loadFrom = t.queue[n-1].ends
	}
	r.loadTo = r.loadFrom + takes
	if t.queue = append(t.queue, ticket{row, slot, r.loadTo}); len(t.queue) == 1 {
		w.s.loop.Set(&t.timer, r.loadTo)
	}
}

// endLoad ends the load under way and starts the next.
func (w *worker) endLoad() {
	t := &w.adapters
	k := t.queue[0]
	if t.queue = slices.Delete(t.queue, 0, 1); len(t.queue) > 0 {
		w.s.loop.Set(&t.timer, t.queue[0].ends)
	}
	r, failed := t.rows.of(k.row), w.loadFails()
	tier := max(w.v.Adapters[k.row].Tier, router.Host) // it may have got a slot meanwhile
	if k.slot {
		tier = router.GPU
		r.loading = false
		w.v.Adapters[k.row].Loading = false
		w.index(k.row)
		if r.active == 0 {
			t.claimed = without(t.claimed, k.row)
			w.countSlots()
		}
	} else {
		r.fetch = false
	}
	if failed {
		w.loadFailed(k)
	} else {
		if k.slot {
			r.failures = 0
		}
		w.setTier(k.row, tier)
	}
	w.settle(k.row)
	if w.phase == idle {
		w.trimHost(-1)
	}
	switch {
	case w.queue.n == 0:
	case w.vllm || w.blocks:
		w.roomMade()
	default:
		w.wake()
	}
}

// loadFailed undoes a load that failed. Requests that wait for the adapter try
// again; the router is told.
func (w *worker) loadFailed(k ticket) {
	t := &w.adapters
	r := t.rows.of(k.row)
	if r.active > 0 || !k.slot && r.slot {
		// a step has counted on it: by its end a second try has succeeded
		w.setTier(k.row, router.GPU)
		return
	}
	if k.slot {
		w.dropSlot(k.row)
	}
	if w.v.Adapters[k.row].Tier < router.Host {
		t.hosts--
	}
	if r.failures++; r.failures >= maxFailures {
		w.failWaiting(k.row, w.s.loop.Now())
	}
	if w.queue.has(k.row) {
		w.fetchMissing(k.row)
	}
	w.tellLoadFailed(k.row)
}

func (w *worker) tellLoadFailed(row int32) {
	if w.s.plan.watcher != nil {
		w.s.plan.watcher.LoadFailed(router.Placement{Worker: int32(w.id), Adapter: row})
	}
}

// bring makes an adapter come to the worker because a plan says so: to host
// memory, and to a GPU slot if one is free.
func (w *worker) bring(row int32) {
	r := w.adapters.rows.of(row)
	r.leaving = false
	switch {
	case !w.rankFits(row):
		w.tellLoadFailed(row)
	case r.slot || r.active > 0 || r.fetching():
	case len(w.adapters.slots)+w.adapters.unplaced < w.eng.MaxLorasPerBatch:
		w.startLoad(row)
	default:
		w.startFetch(row)
	}
}

// release makes an adapter go as soon as nobody needs it.
func (w *worker) release(row int32) {
	w.adapters.rows.of(row).leaving = true
	w.settle(row)
}

// settle drops an adapter that is to go once no request on the worker uses it.
func (w *worker) settle(row int32) {
	r := w.adapters.rows.of(row)
	if !r.leaving || r.active > 0 || r.fetching() || w.queue.has(row) || !w.isLoRA(row) {
		return
	}
	r.leaving = false
	if r.slot {
		w.dropSlot(row)
		w.roomMade()
	}
	if w.v.Adapters[row].Tier >= router.Host {
		w.adapters.hosts--
		w.setTier(row, w.s.cfg.Home)
	}
}

// prefetch starts loading the adapter of a request that has just come, if that
// costs no other waiting request its adapter.
func (w *worker) prefetch(row int32) {
	t := &w.adapters
	if r := t.rows.of(row); !w.isLoRA(row) || r.slot || r.active > 0 || r.fetch {
		return
	}
	if len(t.slots)+t.unplaced >= w.eng.MaxLorasPerBatch {
		if !w.slotObtainable(row) {
			return
		}
		if k := w.victim(-1); k < 0 || w.queue.has(t.slots[k]) {
			return
		}
	}
	w.startLoad(row)
}
