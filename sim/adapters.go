package sim

import (
	"cmp"
	"math"
	"slices"

	"lorasim/internal/tick"
	"lorasim/router"
	"lorasim/sim/event"
)

// adapterTable is what a worker knows of adapters. Its rows are the workload's
// adapters and, last, the base model, which takes a slot like an adapter but
// needs no loading.
type adapterTable struct {
	rows  *adapterRows
	slots []int32 // rows that hold a GPU slot or are being loaded into one
	hosts int     // adapters in host memory
	// Those that are there already, in no order, where it does not hold all.
	hosted []int32
	queue  []ticket    // loads that wait for their turn, the first one runs
	timer  event.Timer // of its end

	claimed  []int32 // rows that are active or being loaded, in no order
	unplaced int     // rows of these that hold no slot
	decoded  int64   // clock of the latest decode step
	pins     bool    // an adapter may be pinned
	batch    []int32 // rows of the step whose adapters are being placed
	draining []int32 // rows that make way for starving ones, see pick.go
	clock    int64   // order of uses and loads, for eviction
}

type adapterRow struct {
	queue adapterQueue
	ranks rankRow

	active    int32 // requests in the batch or in a prefill step
	drainsFor int32 // the starving row that it makes way for, -1: none
	failures  int32 // loads that failed in a row

	slot     bool // holds a GPU slot, or is being loaded into one
	loading  bool
	paid     bool // the step being formed waits for its load already
	promised bool // some row drains for it
	fetch    bool // on its way to host memory, without a GPU slot
	leaving  bool // dropped as soon as no request there uses it
	known    bool // the front end has seen a request of it

	used   int64 // clock of the latest step that had it in its batch, see lastUse
	loaded int64 // clock of its loading
	served service
	left   int64 // tokens that its longest running request may still generate; for the drainer

	loadFrom, loadTo tick.Ticks // its latest load beside the steps
}

// adapterRows is the rows of a worker. A run has workers times adapters of them, and
// a worker meets few of many adapters: its rows come into being one by one.
type adapterRows struct {
	at   []int32 // by row: 1 + its index in met, 0: not met yet
	met  []*adapterRow
	rank func(row int32) int32 // as the worker counts it
}

func newAdapterRows(n int, rank func(row int32) int32) *adapterRows {
	return &adapterRows{at: make([]int32, n), rank: rank}
}

// of is a row; it stays where it is.
func (t *adapterRows) of(row int32) *adapterRow {
	if i := t.at[row]; i > 0 {
		return t.met[i-1]
	}
	return t.meet(row)
}

func (t *adapterRows) meet(row int32) *adapterRow {
	r := &adapterRow{drainsFor: -1}
	r.queue.list.of, r.queue.at, r.ranks.rank = ofAdapter, -1, t.rank(row)
	t.met = append(t.met, r)
	t.at[row] = int32(len(t.met))
	return r
}

// fetching says whether the adapter is on its way to the worker.
func (r *adapterRow) fetching() bool { return r.fetch || r.loading }

// initAdapters puts the adapters where the placement wants them: in host
// memory on the workers it names, else at Config.Home.
func (w *worker) initAdapters() {
	n := len(w.s.adapters)
	w.adapters.rows = newAdapterRows(n+1, func(row int32) int32 {
		if !w.isLoRA(row) {
			return 0
		}
		return int32(w.costs.Rank(w.s.adapters[row].Rank))
	})
	w.queue.rows = w.adapters.rows
	w.adapters.timer = event.NewTimer(event.LoadEnd, w.id, w.endLoad)
	for a := range w.v.Adapters {
		w.v.Adapters[a].Tier = w.s.cfg.Home
	}
	place := make([]int32, n) // all, in their order
	for a := range place {
		place[a] = int32(a)
	}
	if p := w.s.cfg.Router.Placement; p != nil {
		place = p[w.id]
	}
	if w.bare {
		place = nil
	}
	for _, a := range place {
		if (w.eng.MaxLoadedLoras == 0 || w.adapters.hosts < w.eng.MaxLoadedLoras) && w.rankFits(a) {
			w.v.Adapters[a].Tier = router.Host
			w.adapters.hosts++
			if w.eng.MaxLoadedLoras > 0 {
				w.adapters.hosted = append(w.adapters.hosted, a)
			}
		}
	}
	for a := range int32(n) {
		w.index(a)
	}
}

// rankFits says whether an adapter fits into a GPU slot. sglang refuses to load
// one of a larger rank than max_lora_rank (LoRAMemoryPool.can_support in
// lora/mem_pool.py).
func (w *worker) rankFits(a int32) bool {
	return w.costs.Rank(w.s.adapters[a].Rank) <= w.eng.MaxLoraRank
}

// index tells routers what has become of an adapter.
func (w *worker) index(a int32) { w.s.view.Index.Set(w.id, a, w.v.Adapters[a]) }

// setTier enters where a worker finds the weights of an adapter.
func (w *worker) setTier(a int32, t router.Tier) {
	st := &w.v.Adapters[a]
	if st.Tier != t {
		w.s.tierChanged(w.id, a, t)
	}
	if was, is := st.Tier >= router.Host, t >= router.Host; w.eng.MaxLoadedLoras > 0 && was != is {
		if is {
			w.adapters.hosted = append(w.adapters.hosted, a)
		} else {
			w.adapters.hosted = without(w.adapters.hosted, a)
		}
	}
	st.Tier = t
	w.index(a)
	if t < router.Host {
		w.kv.UnloadAdapter(a)
	}
}

// without takes an element out of a list without order.
func without(list []int32, x int32) []int32 {
	last := len(list) - 1
	list[slices.Index(list, x)] = list[last]
	return list[:last]
}

// countSlots updates the number of used slots and of idle ones in the router's view. vLLM's place
// for the base model is not an adapter slot: max_loras does not count it.
func (w *worker) countSlots() {
	t := &w.adapters
	used, claimed := len(t.slots), len(t.claimed)
	if w.vllm {
		if used--; t.rows.of(int32(len(w.s.adapters))).active > 0 {
			claimed--
		}
	}
	w.v.SlotsUsed, w.v.SlotsIdle = used, used-claimed+t.unplaced
}

// useAdapter makes the adapter of a request that enters a prefill step active.
// It returns the time the step has to wait for its load, and false if the load
// failed for good. The adapter gets its slot once the step is formed, or at
// once where loads do not wait for steps.
func (w *worker) useAdapter(q *request) (wait tick.Ticks, ok bool) {
	t, row := &w.adapters, q.Adapter
	r := t.rows.of(row)
	if r.loadTo > q.queued { // loaded beside the steps while the request waited
		if r.slot {
			wait = max(r.loadTo-w.s.loop.Now(), 0)
		}
		q.cold += r.loadTo - max(r.loadFrom, q.queued)
	}
	if !r.slot && r.active == 0 && w.isLoRA(row) {
		d, ok := w.loadNow(row)
		if !ok {
			return wait + d, false
		}
		r.paid = true
		wait += d
		q.cold += d
	}
	if r.active++; r.active == 1 {
		if !r.loading {
			t.claimed = append(t.claimed, row)
		}
		if !r.slot {
			t.unplaced++
		}
		w.countSlots()
	}
	if !r.slot && !w.displaces() {
		w.fillSlot(row, -1)
	}
	t.clock++
	r.used = t.clock
	return wait, true
}

// deactivate drops one request of a row from the batch.
func (w *worker) deactivate(row int32) {
	t := &w.adapters
	r := t.rows.of(row)
	if r.active > 1 {
		r.active--
		return
	}
	r.used, r.active = t.lastUse(r), 0
	if !r.loading {
		t.claimed = without(t.claimed, row)
	}
	if !r.slot {
		t.unplaced--
	}
	w.countSlots()
}

// stampRunning notes that a decode step had the running requests in its batch
// (LRUEvictionPolicy.mark_used in lora/eviction_policy.py). See lastUse.
func (t *adapterTable) stampRunning() {
	t.clock++
	t.decoded = t.clock
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
		r := t.rows.of(row)
		if r.used == batch || r.loading || r.active > 0 && batch < 0 ||
			!w.isLoRA(row) && w.vllm || w.isLoRA(row) && w.v.Adapters[row].Pinned {
			continue
		}
		key := t.lastUse(r)
		if !w.isLoRA(row) {
			key = math.MaxInt64
		} else if w.fifo {
			key = r.loaded
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
	return !w.vllm && w.exec == nil && w.blocking
}

// placeAdapters gives the adapters of the step that was just formed, its prompts'
// and if it decodes those of the running requests, their slots: the base model
// first, then by row, where sglang goes by the adapters' random ids. It returns
// the time of loads that no request has been told to wait for: of adapters whose
// slot was taken while they ran.
func (w *worker) placeAdapters(decodes bool) (load tick.Ticks) {
	t := &w.adapters
	t.clock++
	for _, c := range w.filling {
		c.req.row.used = t.clock
	}
	if t.unplaced == 0 || !w.displaces() {
		return 0
	}
	t.clock++
	batch := t.clock // marks the rows of the step
	t.batch = t.batch[:0]
	in := func(row int32) {
		if r := t.rows.of(row); r.used != batch {
			r.used = batch
			if !r.slot {
				t.batch = append(t.batch, row)
			}
		}
	}
	for _, c := range w.filling {
		in(c.req.Adapter)
	}
	for _, row := range t.claimed {
		if decodes && t.rows.of(row).ranks.n > 0 {
			in(row)
		}
	}
	slices.SortFunc(t.batch, func(a, b int32) int { return cmp.Compare((a+1)%int32(len(t.rows.at)), (b+1)%int32(len(t.rows.at))) })
	for _, row := range t.batch {
		if w.isLoRA(row) && !t.rows.of(row).paid {
			d := w.loadTime(row)
			w.countLoad(d)
			load += d
		}
		w.fillSlot(row, batch)
	}
	return load
}

// fillSlot gives a row a GPU slot with its weights in it.
func (w *worker) fillSlot(row int32, batch int64) {
	w.takeSlot(row, batch)
	if w.isLoRA(row) {
		w.fetchHost(row)
		w.setTier(row, router.GPU)
	}
}

// takeSlot gives a row a GPU slot, evicting another if need be; the caller has
// made sure that there is one.
func (w *worker) takeSlot(row int32, batch int64) {
	t := &w.adapters
	if len(t.slots) >= w.eng.MaxLorasPerBatch {
		out := t.slots[w.victim(batch)]
		t.slots = without(t.slots, out)
		o := t.rows.of(out)
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
	r := t.rows.of(row)
	if r.active > 0 {
		t.unplaced--
	}
	r.slot, r.paid, r.loaded = true, false, t.clock
	w.countSlots()
}

// dropSlot takes the GPU slot from a row that no request uses.
func (w *worker) dropSlot(row int32) {
	w.adapters.slots = without(w.adapters.slots, row)
	w.adapters.rows.of(row).slot = false
	w.countSlots()
}

// fetchHost books host memory for an adapter that is not there yet.
func (w *worker) fetchHost(row int32) {
	if w.v.Adapters[row].Tier < router.Host && !w.adapters.rows.of(row).fetch {
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
		if t.rows.of(out).slot {
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
	t, out, least := &w.adapters, int32(-1), int64(0)
	for _, a := range t.hosted {
		st, r := &w.v.Adapters[a], t.rows.of(a)
		if st.Pinned || r.active > 0 || r.fetching() || a == coming ||
			w.vllm && r.slot || !w.vllm && w.queue.has(a) {
			continue
		}
		if out < 0 || r.used < least || r.used == least && a < out {
			out, least = a, r.used
		}
	}
	if w.vllm && out < 0 {
		if k := w.victim(-1); k >= 0 && t.slots[k] != coming {
			return t.slots[k]
		}
	}
	return out
}
