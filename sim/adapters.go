package sim

import (
	"cmp"
	"math"
	"slices"

	"lorasim/internal/tick"
	"lorasim/router"
)

// adapterTable is what a worker knows of adapters. Its rows are the workload's
// adapters and, last, the base model, which takes a slot like an adapter but
// needs no loading.
type adapterTable struct {
	rows  []adapterRow
	slots []int32  // rows that hold a GPU slot or are being loaded into one
	hosts int      // adapters in host memory
	queue []ticket // loads that wait for their turn, the first one runs

	claimed  []int32 // rows that are active or being loaded, in no order
	unplaced int     // rows of these that hold no slot
	decoded  int64   // clock of the latest decode step
	pins     bool    // an adapter may be pinned
	batch    []int32 // rows of the step whose adapters are being placed
	draining []int32 // rows that make way for starving ones, see drain.go
	clock    int64   // order of uses and loads, for eviction
}

type adapterRow struct {
	active    int32 // requests in the batch or in a prefill step
	claim     int32 // index in adapterTable.claimed
	drainsFor int32 // the starving row that it makes way for, -1: none
	failures  int32 // loads that failed in a row

	slot     bool // holds a GPU slot, or is being loaded into one
	loading  bool
	paid     bool // the step being formed waits for its load already
	promised bool // some row drains for it
	fetch    bool // on its way to host memory, without a GPU slot
	leaving  bool // dropped as soon as no request there uses it

	used   int64 // clock of the latest step that had it in its batch, see lastUse
	loaded int64 // clock of its loading
	left   int64 // tokens that its longest running request may still generate; for the drainer

	loadFrom, loadTo tick.Ticks // its latest load beside the steps
}

// fetching says whether the adapter is on its way to the worker.
func (r *adapterRow) fetching() bool { return r.fetch || r.loading }

// initAdapters puts the adapters where the placement wants them: in host
// memory on the workers it names, else at Config.Home.
func (w *worker) initAdapters() {
	n := len(w.s.adapters)
	w.adapters = adapterTable{rows: make([]adapterRow, n+1)}
	for row := range w.adapters.rows {
		w.adapters.rows[row].drainsFor = -1
	}
	for a := range w.v.Adapters {
		w.v.Adapters[a].Tier = w.s.cfg.Home
	}
	put := func(a int32) {
		if w.hostRoom() && w.rankFits(a) {
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

// rankFits says whether an adapter fits into a GPU slot. sglang refuses to load
// one of a larger rank than max_lora_rank (LoRAMemoryPool.can_support in
// lora/mem_pool.py).
func (w *worker) rankFits(a int32) bool {
	return w.costs.Rank(w.s.adapters[a].Rank) <= w.eng.MaxLoraRank
}

// inHost says whether the weights of a row are in host memory or a slot, or are
// not needed. sglang's scheduler does not see a request before they are:
// they are fetched beside its steps. The other scheduler fetches within them.
func (w *worker) inHost(row int32) bool {
	return w.vllm || !w.isLoRA(row) || w.v.Adapters[row].Tier >= router.Host
}

// adapterReady says whether requests of a row can run without a load. An idle
// adapter's slot may be promised to a row of the step that is being formed.
func (w *worker) adapterReady(row int32) bool {
	r := &w.adapters.rows[row]
	return !r.loading && (r.active > 0 || r.slot && (!w.displaces() || w.slotObtainable(row)))
}

// pick chooses the waiting request that may be prefilled next, or -1. Those
// whose adapter finds no slot are passed over, and the queue goes on
// (Scheduler.can_schedule_lora_req in sglang's managers/scheduler.py).
func (w *worker) pick() int32 {
	if w.exec != nil && w.exec.row != unmerged {
		return w.pickMerged()
	}
	if w.rules.blocks {
		return w.pickBlocked()
	}
	for {
		i := w.queue.head
		if w.pickable(w.s.reqs[i].adapter) != i {
			i = w.queue.oldest(w.s.reqs, w.candidates(), w.pickable)
		}
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

// pickBlocked is pick under head_of_line block: the queue's first request whose
// weights are there decides, and where it has to wait everybody waits.
func (w *worker) pickBlocked() int32 {
	head := w.queue.head
	if !w.inHost(w.s.reqs[head].adapter) {
		if head = w.queue.oldest(w.s.reqs, w.queue.waiting, func(row int32) int32 {
			if !w.inHost(row) {
				return -1
			}
			return w.queue.byAdapter[row].head
		}); head < 0 {
			return -1
		}
	}
	row := w.s.reqs[head].adapter
	switch {
	case w.adapterReady(row):
		return head
	case w.adapters.rows[row].loading:
		if w.rules.blocking {
			return head
		}
		return -1
	case !w.slotObtainable(row):
		w.full = len(w.adapters.queue) == 0 // else the end of a load may make room
		return -1
	case w.mustWait(row):
		w.startLoad(row)
		return -1
	}
	return head
}

// pickable is the first waiting request of a row that may be picked, -1 if there
// is none.
func (w *worker) pickable(row int32) int32 {
	if !w.eligible(row) {
		return -1
	}
	return w.firstOf(row)
}

// eligible says whether requests of a row may be picked, a load permitting.
func (w *worker) eligible(row int32) bool {
	r := &w.adapters.rows[row]
	if r.active > 0 && !r.loading {
		return true
	}
	if !w.inHost(row) {
		return false
	}
	if r.loading {
		return w.rules.blocking
	}
	return w.adapterReady(row) || !r.slot && w.slotObtainable(row)
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

// mustWait says whether requests of a row wait for its load while others run
// (lora/lora_overlap_loader.py in sglang).
func (w *worker) mustWait(row int32) bool {
	return !w.rules.blocking && w.isLoRA(row) && !w.adapters.rows[row].slot
}

// slotObtainable says whether an idle row can run beside those that are
// running, chosen or being loaded (LoRAManager.validate_lora_batch in
// lora/lora_manager.py): idle ones make way unless they are pinned.
func (w *worker) slotObtainable(row int32) bool {
	t := &w.adapters
	n := len(t.claimed)
	if w.vllm && t.rows[len(t.rows)-1].active == 0 {
		n++ // the base model's slot is its own
	}
	if t.pins {
		for _, o := range t.slots {
			if r := &t.rows[o]; o != row && r.active == 0 && !r.loading && w.isLoRA(o) && w.v.Adapters[o].Pinned {
				n++
			}
		}
	}
	return n < w.eng.MaxLorasPerBatch
}

// stampRunning notes that a decode step had the running requests in its batch
// (LRUEvictionPolicy.mark_used in lora/eviction_policy.py). See lastUse.
func (w *worker) stampRunning() {
	w.adapters.clock++
	w.adapters.decoded = w.adapters.clock
}

// lastUse is the clock of the latest step that had a row in its batch. That of
// running ones is not entered at every decode step, but when they leave.
func (t *adapterTable) lastUse(r *adapterRow) int64 {
	if r.active > 0 && r.slot {
		return max(r.used, t.decoded)
	}
	return r.used
}

// victim is the index of the slot to evict for a step, -1 if there is none
// (LoRAMemoryPool.prepare_lora_batch in lora/mem_pool.py): the least recently
// used adapter, or the one loaded first, that is not in the step's batch, which
// is marked by the given clock; the base model's place only if there is no
// other. That may be the adapter of running requests where the step is a
// prefill: it comes back for the next decode step. With a clock below 0 only
// adapters that nobody uses are evicted.
func (w *worker) victim(batch int64) int {
	t := &w.adapters
	best := -1
	var bestKey int64
	for k, row := range t.slots {
		r := &t.rows[row]
		if r.used == batch || r.loading || r.active > 0 && batch < 0 {
			continue
		}
		key := t.lastUse(r)
		if w.rules.fifo {
			key = r.loaded
		}
		switch {
		case !w.isLoRA(row):
			if w.vllm {
				continue
			}
			key = math.MaxInt64
		case w.v.Adapters[row].Pinned:
			continue
		}
		if best < 0 || key < bestKey || key == bestKey && row < t.slots[best] {
			best, bestKey = k, key
		}
	}
	return best
}

// displaces says whether a prefill step may take the slots of running
// requests: where loads wait for the step, sglang looks at its batch alone.
func (w *worker) displaces() bool {
	return !w.vllm && w.exec == nil && w.rules.blocking
}

// placeAdapters gives the adapters of the prefill step that was just formed
// their slots; a mixed one has the running requests in its batch too. It
// returns the time of loads that no request has been told to wait for: of
// adapters whose slot was taken while they ran.
func (w *worker) placeAdapters(running bool) (load tick.Ticks) {
	t := &w.adapters
	t.clock++
	for _, c := range w.filling {
		t.rows[w.s.reqs[c.req].adapter].used = t.clock
	}
	if t.unplaced == 0 || !w.displaces() {
		return 0
	}
	t.clock++
	t.batch = t.batch[:0]
	for _, c := range w.filling {
		t.inBatch(w.s.reqs[c.req].adapter)
	}
	if running {
		w.runningInBatch()
	}
	return w.place()
}

// placeRunning is placeAdapters for a decode step.
func (w *worker) placeRunning() (load tick.Ticks) {
	t := &w.adapters
	if t.unplaced == 0 || !w.displaces() {
		return 0
	}
	t.clock++
	t.batch = t.batch[:0]
	w.runningInBatch()
	return w.place()
}

// runningInBatch enters the rows of the running requests into the batch.
func (w *worker) runningInBatch() {
	for _, row := range w.adapters.claimed {
		if w.ranks.rows[row].n > 0 {
			w.adapters.inBatch(row)
		}
	}
}

// inBatch enters a row into the batch that is to be placed: its rows are marked
// by the clock, t.batch has those without a slot.
func (t *adapterTable) inBatch(row int32) {
	if r := &t.rows[row]; r.used != t.clock {
		r.used = t.clock
		if !r.slot {
			t.batch = append(t.batch, row)
		}
	}
}

// place gives slots to the rows of t.batch: the base model
// first, then by row, where sglang goes by the adapters' random ids.
func (w *worker) place() (load tick.Ticks) {
	t := &w.adapters
	batch := t.clock
	slices.SortFunc(t.batch, func(a, b int32) int { return cmp.Compare((a+1)%int32(len(t.rows)), (b+1)%int32(len(t.rows))) })
	for _, row := range t.batch {
		if r := &t.rows[row]; w.isLoRA(row) && !r.paid {
			d := w.loadTime(row)
			w.countLoad(d)
			load += d
		}
		w.takeSlot(row, batch)
		if w.isLoRA(row) {
			w.fetchHost(row)
			w.setTier(row, router.GPU)
		}
	}
	return load
}

// takeSlot gives a row a GPU slot, evicting another if need be; the caller has
// made sure that there is one.
func (w *worker) takeSlot(row int32, batch int64) {
	t := &w.adapters
	if len(t.slots) >= w.eng.MaxLorasPerBatch {
		k := w.victim(batch)
		out := t.slots[k]
		t.slots[k] = t.slots[len(t.slots)-1]
		t.slots = t.slots[:len(t.slots)-1]
		o := &t.rows[out]
		o.used, o.slot = t.lastUse(o), false
		if o.active > 0 {
			t.unplaced++
		}
		if w.isLoRA(out) {
			w.setTier(out, router.Host)
			w.stats.Evictions++
			defer w.settle(out)
		}
	}
	t.slots = append(t.slots, row)
	t.clock++
	r := &t.rows[row]
	if r.active > 0 {
		t.unplaced--
	}
	r.slot, r.paid, r.loaded = true, false, t.clock
	w.countSlots()
}

// claim notes that a row is in use.
func (t *adapterTable) claim(row int32) {
	t.rows[row].claim = int32(len(t.claimed))
	t.claimed = append(t.claimed, row)
}

// unclaim notes that it no longer is.
func (t *adapterTable) unclaim(row int32) {
	last := t.claimed[len(t.claimed)-1]
	t.claimed[t.rows[row].claim] = last
	t.rows[last].claim = t.rows[row].claim
	t.claimed = t.claimed[:len(t.claimed)-1]
}

// countSlots tells routers how many slots are taken, and how many of these by
// adapters that nobody uses.
func (w *worker) countSlots() {
	t := &w.adapters
	w.v.SlotsUsed = len(t.slots)
	w.v.SlotsIdle = len(t.slots) - len(t.claimed) + t.unplaced
}

// fetchHost books host memory for an adapter that is not there yet.
func (w *worker) fetchHost(row int32) {
	if w.v.Adapters[row].Tier < router.Host && !w.adapters.rows[row].fetch {
		w.adapters.hosts++
		w.trimHost(row)
	}
}

// trimHost drops the least recently used adapters while there are more than
// host memory holds. The row that is coming stays. Under sglang so do those that
// requests wait for: unloading waits for them (TokenizerControlMixin.load_lora_adapter
// in managers/tokenizer_control_mixin.py), and the limit is exceeded meanwhile,
// there by the one adapter that was just loaded, here by all that requests have
// asked for, since loads do not wait for the unloading before them.
func (w *worker) trimHost(coming int32) {
	t := &w.adapters
	for w.eng.MaxLoadedLoras > 0 && t.hosts > w.eng.MaxLoadedLoras {
		out := w.hostVictim(coming)
		if out < 0 {
			return
		}
		if t.rows[out].slot {
			w.dropSlot(out)
			w.stats.Evictions++
		}
		w.setTier(out, w.s.cfg.Home)
		t.hosts--
	}
}

// hostVictim is the adapter that leaves host memory, and its GPU slot, next; -1
// if all are needed. vLLM looks at those without a slot first
// (LRUCacheLoRAModelManager.remove_oldest_adapter in lora/model_manager.py).
func (w *worker) hostVictim(coming int32) int32 {
	t, out := &w.adapters, int32(-1)
	for a := range int32(len(w.v.Adapters)) {
		st, r := &w.v.Adapters[a], &t.rows[a]
		if st.Tier < router.Host || st.Pinned || r.active > 0 || r.fetching() || a == coming {
			continue
		}
		if w.vllm && r.slot || !w.vllm && w.queue.byAdapter[a].at >= 0 {
			continue
		}
		if out < 0 || r.used < t.rows[out].used {
			out = a
		}
	}
	if w.vllm && out < 0 {
		if k := w.victim(-1); k >= 0 && t.slots[k] != coming {
			return t.slots[k]
		}
	}
	return out
}

// useAdapter makes the adapter of a request that enters a prefill step active.
// It returns the time the step has to wait for its load, and false if the load
// failed for good. The adapter gets its slot once the step is formed, or at
// once where loads do not wait for steps.
func (w *worker) useAdapter(i int32) (wait tick.Ticks, ok bool) {
	req := &w.s.reqs[i]
	row := req.adapter
	r := &w.adapters.rows[row]
	if r.loadTo > req.queued { // loaded beside the steps while the request waited
		if r.slot {
			wait = max(r.loadTo-w.s.now, 0)
		}
		req.cold += r.loadTo - max(r.loadFrom, req.queued)
	}
	if !r.slot && r.active == 0 && w.isLoRA(row) {
		d, ok := w.loadNow(row)
		if !ok {
			return wait + d, false
		}
		r.paid = true
		wait += d
		req.cold += d
	}
	if r.active++; r.active == 1 {
		if !r.loading {
			w.adapters.claim(row)
		}
		if !r.slot {
			w.adapters.unplaced++
		}
		w.countSlots()
	}
	if !r.slot && !w.displaces() {
		w.takeSlot(row, -1)
		if w.isLoRA(row) {
			w.fetchHost(row)
			w.setTier(row, router.GPU)
		}
	}
	w.adapters.clock++
	r.used = w.adapters.clock
	return wait, true
}

// deactivate drops one request of a row from the batch.
func (w *worker) deactivate(row int32) {
	t := &w.adapters
	r := &t.rows[row]
	if r.active > 1 {
		r.active--
		return
	}
	r.used, r.active = t.lastUse(r), 0
	if !r.loading {
		t.unclaim(row)
	}
	if !r.slot {
		t.unplaced--
	}
	w.countSlots()
}
