package sim

import (
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
