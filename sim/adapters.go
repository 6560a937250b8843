package sim

import (
	"lorasim/internal/record"
	"lorasim/internal/tick"
	"lorasim/router"
	"lorasim/sim/profile"
)

// adapterTable is what a worker knows of adapters. Its rows are the workload's
// adapters and, last, the base model, which takes a slot like an adapter but
// needs no loading.
type adapterTable struct {
	rows  []adapterRow
	slots []int32  // rows that hold a GPU slot or are being loaded into one
	hosts int      // adapters in host memory
	queue []ticket // loads that wait for their turn, the first one runs
	// drained is the row that makes way for a starving request; its own
	// waiting requests are passed over. -1: none.
	drained int32
	clock   int64 // order of uses, for eviction
}

type adapterRow struct {
	active  int32 // requests in the batch or in a prefill step
	slot    bool  // holds a GPU slot, or is being loaded into one
	loading bool
	used    int64 // clock of its latest use
	loaded  int64 // clock of its loading

	loadFrom, loadTo tick.Ticks // its latest load beside the steps

	failures int // loads that failed in a row

	fetch   bool // on its way to host memory, without a GPU slot
	leaving bool // dropped as soon as no request there uses it
}

// fetching says whether the adapter is on its way to the worker.
func (r *adapterRow) fetching() bool { return r.fetch || r.loading }

// ticket is a load beside the steps.
type ticket struct {
	row  int32
	slot bool       // into the GPU slot that it holds already; else to host memory
	ends tick.Ticks // when it is done
}

// initAdapters puts the adapters where the placement wants them: in host
// memory on the workers it names, else at Config.Home.
func (w *worker) initAdapters() {
	n := len(w.s.adapters)
	w.adapters = adapterTable{rows: make([]adapterRow, n+1), drained: -1}
	for a := range w.v.Adapters {
		w.v.Adapters[a].Tier = w.s.cfg.Home
	}
	put := func(a int32) {
		if w.hostRoom() {
			w.v.Adapters[a].Tier = router.Host
			w.adapters.hosts++
		}
	}
	if place := w.s.cfg.Router.Placement; place != nil {
		for _, a := range place[w.id] {
			put(a)
		}
		return
	}
	for a := range int32(n) {
		put(a)
	}
}

func (w *worker) hostRoom() bool {
	return w.eng.MaxLoadedLoras == 0 || w.adapters.hosts < w.eng.MaxLoadedLoras
}

// ready says whether requests of a row can run at once.
func (w *worker) adapterReady(row int32) bool {
	r := &w.adapters.rows[row]
	return r.slot && !r.loading && row != w.adapters.drained
}

// pick chooses the waiting request that may be prefilled next, or -1.
func (w *worker) pick() int32 {
	if w.exec != nil && w.exec.row != unmerged {
		return w.pickMerged()
	}
	head := w.queue.head
	row := w.s.reqs[head].adapter
	if w.adapterReady(row) {
		return head
	}
	if w.eng.HeadOfLine == profile.HeadOfLineBlock {
		return w.pickBlocked(head, row)
	}
	for {
		i := w.queue.oldest(w.s.reqs, w.eligible)
		if i < 0 {
			return -1
		}
		row := w.s.reqs[i].adapter
		if w.adapterReady(row) || !w.mustWait(row) {
			return i
		}
		w.startLoad(row) // its requests wait; look for another
	}
}

// pickBlocked decides about a queue's head whose adapter is not ready: behind
// it everybody waits.
func (w *worker) pickBlocked(head, row int32) int32 {
	if w.adapters.rows[row].slot { // being loaded
		if w.eng.AdapterLoading == profile.LoadBlocking {
			return head
		}
		return -1
	}
	if !w.slotObtainable() {
		w.full = len(w.adapters.queue) == 0 // else the end of a load may make room
		return -1
	}
	if w.mustWait(row) {
		w.startLoad(row)
		return -1
	}
	return head
}

// eligible says whether requests of a row may be picked, a load permitting.
func (w *worker) eligible(row int32) bool {
	r := &w.adapters.rows[row]
	if row == w.adapters.drained {
		return false
	}
	if r.loading {
		return w.eng.AdapterLoading == profile.LoadBlocking
	}
	return r.slot || w.slotObtainable()
}

// mustWait says whether requests of a row wait for its load while others run.
func (w *worker) mustWait(row int32) bool {
	return w.eng.AdapterLoading == profile.LoadOverlapped && w.isLoRA(row) && !w.adapters.rows[row].slot
}

// slotObtainable says whether a further adapter can get a GPU slot now.
func (w *worker) slotObtainable() bool {
	return len(w.adapters.slots) < w.eng.MaxLorasPerBatch || w.victim() >= 0
}

// victim is the index of the slot to evict, -1 if all are in use.
func (w *worker) victim() int {
	best := -1
	var bestKey int64
	for k, row := range w.adapters.slots {
		r := &w.adapters.rows[row]
		if r.active > 0 || r.loading || w.isLoRA(row) && w.v.Adapters[row].Pinned || w.vllm && !w.isLoRA(row) {
			continue
		}
		key := r.used
		if w.eng.AdapterEviction == profile.EvictFIFO {
			key = r.loaded
		}
		if row == w.adapters.drained {
			key = -1 // it was drained for this
		}
		if best < 0 || key < bestKey {
			best, bestKey = k, key
		}
	}
	return best
}

// takeSlot gives a row a GPU slot, evicting another if need be; the caller has
// made sure that there is one.
func (w *worker) takeSlot(row int32) {
	t := &w.adapters
	if len(t.slots) >= w.eng.MaxLorasPerBatch {
		k := w.victim()
		out := t.slots[k]
		t.slots[k] = t.slots[len(t.slots)-1]
		t.slots = t.slots[:len(t.slots)-1]
		t.rows[out].slot = false
		w.v.SlotsIdle--
		if w.isLoRA(out) {
			w.setTier(out, router.Host)
			w.stats.Evictions++
			defer w.settle(out)
		}
		if out == t.drained {
			t.drained = -1
		}
	}
	t.slots = append(t.slots, row)
	t.clock++
	t.rows[row].slot, t.rows[row].loaded, t.rows[row].used = true, t.clock, t.clock
	w.v.SlotsUsed = len(t.slots)
	w.v.SlotsIdle++ // until it loads or runs
	w.endDrain()
}

// fetchHost books host memory for an adapter that is not there yet, dropping
// the least recently used one without a slot if host memory is full.
func (w *worker) fetchHost(row int32) {
	if w.v.Adapters[row].Tier >= router.Host || w.adapters.rows[row].fetch {
		return
	}
	t := &w.adapters
	t.hosts++
	if w.eng.MaxLoadedLoras == 0 || t.hosts <= w.eng.MaxLoadedLoras {
		return
	}
	// the row has its slot already and there are at least as many host places
	// as slots, so that some other adapter lies in host memory alone
	out := int32(-1)
	for a := range int32(len(w.v.Adapters)) {
		st := &w.v.Adapters[a]
		if st.Tier == router.Host && !t.rows[a].slot && !st.Pinned && (out < 0 || t.rows[a].used < t.rows[out].used) {
			out = a
		}
	}
	if out >= 0 {
		w.setTier(out, w.s.cfg.Home)
		t.hosts--
	}
}

// useAdapter makes the adapter of a request that enters a prefill step active.
// It returns the time the step has to wait for its load, and false if the load
// failed for good.
func (w *worker) useAdapter(i int32) (wait tick.Ticks, ok bool) {
	req := &w.s.reqs[i]
	row := req.adapter
	r := &w.adapters.rows[row]
	switch {
	case !r.slot:
		w.takeSlot(row)
		if w.isLoRA(row) {
			if wait, ok = w.loadNow(row); !ok {
				return wait, false
			}
			req.cold += wait
		}
	case r.loadTo > req.queued: // loaded beside the steps while the request waited
		wait = max(r.loadTo-w.s.now, 0)
		req.cold += r.loadTo - max(r.loadFrom, req.queued)
	}
	w.adapters.clock++
	r.used = w.adapters.clock
	if r.active++; r.active == 1 && !r.loading {
		w.v.SlotsIdle--
	}
	return wait, true
}

// deactivate drops one request of a row from the batch.
func (w *worker) deactivate(row int32) {
	r := &w.adapters.rows[row]
	if r.active--; r.active == 0 && !r.loading {
		w.v.SlotsIdle++
	}
}

// loadNow loads an adapter into the slot that it has been given while no step
// runs. It returns the time that takes; a load that fails is tried again, until
// it has failed too often.
func (w *worker) loadNow(row int32) (total tick.Ticks, ok bool) {
	wait := w.loadTime(row)
	r := &w.adapters.rows[row]
	if r.fetch { // what is under way counts
		wait += max(r.loadTo-w.s.now, 0)
	}
	for range maxFailures {
		total += wait
		if !w.loadFails() {
			w.fetchHost(row)
			w.setTier(row, router.GPU)
			w.countLoad(total)
			r.failures = 0
			return total, true
		}
	}
	w.dropSlot(row)
	w.failWaiting(row, w.s.now+total)
	return total, false
}

// maxFailures is how often a load is tried before the requests that wait for
// the adapter fail.
const maxFailures = 10

// failWaiting fails the requests that wait for an adapter that does not load.
func (w *worker) failWaiting(row int32, at tick.Ticks) {
	for i := w.queue.byAdapter[row].head; i >= 0; i = w.queue.byAdapter[row].head {
		w.dequeue(i)
		w.leave(i)
		w.s.finish(i, record.Failed, "its adapter does not load", at+w.costs.Overhead)
	}
	w.adapters.rows[row].failures = 0
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
	if w.adapters.rows[row].fetch {
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
	w.takeSlot(row)
	takes := w.loadTime(row)
	w.fetchHost(row)
	w.countLoad(takes)
	w.adapters.rows[row].loading = true
	w.v.SlotsIdle--
	w.v.Adapters[row].Loading = true
	w.enqueueLoad(row, true, takes)
}

// startFetch starts or queues bringing an adapter to host memory.
func (w *worker) startFetch(row int32) {
	rank := w.s.adapters[row].Rank
	takes := w.costs.Load(rank, w.v.Adapters[row].Tier) - w.costs.Load(rank, router.Host)
	w.fetchHost(row)
	w.adapters.rows[row].fetch = true
	w.enqueueLoad(row, false, takes)
}

// enqueueLoad books the loader, which does one thing at a time.
func (w *worker) enqueueLoad(row int32, slot bool, takes tick.Ticks) {
	t := &w.adapters
	r := &t.rows[row]
	r.loadFrom = w.s.now
	if n := len(t.queue); n > 0 {
		r.loadFrom = t.queue[n-1].ends
	}
	r.loadTo = r.loadFrom + takes
	t.queue = append(t.queue, ticket{row, slot, r.loadTo})
	if len(t.queue) == 1 {
		w.s.timers.set(w.loadTimer(), r.loadTo)
	}
}

func (w *worker) loadTimer() int { return len(w.s.workers) + w.id }

// endLoad ends the load under way and starts the next.
func (w *worker) endLoad() {
	t := &w.adapters
	k := t.queue[0]
	t.queue = append(t.queue[:0], t.queue[1:]...)
	r := &t.rows[k.row]
	if len(t.queue) > 0 {
		w.s.timers.set(w.loadTimer(), t.queue[0].ends)
	}
	failed := w.loadFails()
	if k.slot {
		r.loading = false
		w.v.Adapters[k.row].Loading = false
		if r.active == 0 {
			w.v.SlotsIdle++
		}
	} else {
		r.fetch = false
	}
	switch {
	case !failed && k.slot:
		r.failures = 0
		w.setTier(k.row, router.GPU)
	case !failed:
		w.setTier(k.row, max(w.v.Adapters[k.row].Tier, router.Host)) // it may have got a slot meanwhile
	default:
		w.loadFailed(k)
	}
	w.settle(k.row)
	if w.queue.n > 0 {
		w.roomMade()
	}
}

// loadFailed undoes a load that failed. Requests that wait for the adapter try
// again; the router is told.
func (w *worker) loadFailed(k ticket) {
	t := &w.adapters
	r := &t.rows[k.row]
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
		w.failWaiting(k.row, w.s.now)
	}
	if w.s.plan.watcher != nil {
		w.s.plan.watcher.LoadFailed(router.Placement{Worker: int32(w.id), Adapter: k.row})
	}
}

// dropSlot takes the GPU slot from a row that no request uses.
func (w *worker) dropSlot(row int32) {
	t := &w.adapters
	for k, r := range t.slots {
		if r == row {
			t.slots[k] = t.slots[len(t.slots)-1]
			t.slots = t.slots[:len(t.slots)-1]
			break
		}
	}
	t.rows[row].slot = false
	w.v.SlotsIdle--
	w.v.SlotsUsed = len(t.slots)
	if row == t.drained {
		t.drained = -1
	}
}

// bring makes an adapter come to the worker because a plan says so: to host
// memory, and to a GPU slot if one is free.
func (w *worker) bring(row int32) {
	r := &w.adapters.rows[row]
	r.leaving = false
	switch {
	case r.slot || r.fetching():
	case len(w.adapters.slots) < w.eng.MaxLorasPerBatch:
		w.startLoad(row)
	case w.v.Adapters[row].Tier < router.Host:
		w.startFetch(row)
	}
}

// release makes an adapter go as soon as nobody needs it.
func (w *worker) release(row int32) {
	w.adapters.rows[row].leaving = true
	w.settle(row)
}

// settle drops an adapter that is to go once no request on the worker uses it.
func (w *worker) settle(row int32) {
	r := &w.adapters.rows[row]
	if !r.leaving || r.active > 0 || r.fetching() || w.queue.byAdapter[row].at >= 0 || !w.isLoRA(row) {
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
	if !w.isLoRA(row) || t.rows[row].slot || t.rows[row].fetch {
		return
	}
	if len(t.slots) >= w.eng.MaxLorasPerBatch {
		if k := w.victim(); k < 0 || w.queue.byAdapter[t.slots[k]].at >= 0 {
			return
		}
	}
	w.startLoad(row)
}

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
