package lora

import (
	"cmp"
	"slices"

	"lorasim/router"
	"lorasim/sim/event"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
)

// Options configure a manager.
type Options struct {
	Worker   int             // index of the worker; orders the ends of loads at one instant
	Adapters []trace.Adapter // adapters of the workload
	Costs    *profile.Costs
	Home     router.Tier // where adapters lie that are not in host memory

	Slots     int // GPU slots
	HostLimit int // adapters in host memory; 0: no limit
	MaxRank   int // largest rank; slots are allocated for it
	// Blocking: no step runs while an adapter is copied to the GPU. Otherwise, its requests wait while others run.
	Blocking bool
	FIFO     bool // evict the adapter that was loaded first, not the least recently used one
	Rules
	Fails func() bool // draws whether a load fails
	// Whole: at the start, all adapters are in host memory, as far as there is room, and all of them fit into a slot.
	// It saves a look at each of them.
	Whole bool
}

// Rules state how engines manage adapters. The zero value is sglang with overlapped loading.
type Rules struct {
	// Displaces: a prefill step may take the slots of running requests. If loads wait for the step, sglang considers
	// only the adapters of the step's batch.
	Displaces bool
	// SlotlessBase: the base model needs no slot, as under vLLM.
	SlotlessBase bool
	// FetchesInSteps: adapters are loaded into host memory within the steps, as under vLLM, not beside them.
	FetchesInSteps bool
	// SlotsLast: host memory evicts adapters without a slot first, even if requests wait for them, then those in slots
	// (LRUCacheLoRAModelManager of vLLM). Otherwise, adapters with waiting requests stay.
	SlotsLast bool
	// Unified: adapters share the memory of the KV cache, without slots. All adapters are in host memory. An adapter is
	// loaded for the step that admits its first request, and stays on the GPU while its requests run. Loads by plans
	// and warm-ups have no effect.
	Unified bool
}

// Events receives the reports of a manager. The engine implements it.
type Events interface {
	// TierChanged reports that an adapter is now in another memory tier.
	TierChanged(a *Adapter, t router.Tier)
	// LoadBooked reports the times of a load, into a GPU slot (slot) or into host memory.
	LoadBooked(a *Adapter, slot bool, from, to tick.Ticks)
	// GiveUp reports that an adapter does not load. The requests that wait for it fail at the given time.
	GiveUp(a *Adapter, at tick.Ticks)
	// LoadEnded reports that a load beside the steps has ended, successfully or not.
	LoadEnded()
	// SlotFreed reports a free slot, which waiting requests may use.
	SlotFreed()
}

// Manager manages the adapters of one engine.
//
// Invariants: at most Options.Slots adapters hold a slot. An adapter that is being loaded into a slot holds it. An
// adapter in a slot is in host memory too. Hosts counts the adapters in host memory and on their way there. The
// router's numbers of used and idle slots are current. [Manager.Check] checks them.
type Manager struct {
	opt    Options
	loop   *event.Loop
	books  *router.Books
	events Events
	stats  *record.Counters

	slots []*Adapter // adapters that hold a GPU slot or are being loaded into one
	hosts int        // adapters in host memory
	// Adapters in host memory, excluding those on their way there, in no order; only kept if there is a limit.
	hosted []*Adapter
	loads  []load // queue of loads; the first one is in progress
	timer  event.Timer

	active   []*Adapter // adapters that are active or being loaded, in no order
	unplaced int        // number of active adapters without a slot
	decoded  int64      // clock of the latest decode step
	pins     bool       // an adapter may be pinned
	batch    []*Adapter // adapters of the step whose adapters are being placed
	clock    int64      // order of uses and loads, for eviction
}

// Init initializes a manager as at a server's start: as many of the adapters in start as fit are in host memory. The
// function of returns an adapter by its index. The manager counts cold loads, evictions and failed loads in st.
func (m *Manager) Init(o Options, l *event.Loop, b *router.Books, e Events, st *record.Counters,
	start []int32, of func(int32) *Adapter) {
	*m = Manager{opt: o, loop: l, books: b, events: e, stats: st}
	m.timer = event.NewTimer(event.LoadEnd, o.Worker, m.endLoad)
	if !b.Versioned() {
		if o.HostLimit == 0 && (o.Whole || isAll(start, len(o.Adapters))) {
			b.SetAdapters(len(o.Adapters), router.Host)
			if m.hosts = len(o.Adapters); o.Whole {
				return
			}
			for _, a := range start {
				if !m.Supports(a) {
					b.Row(a).Tier = o.Home
					b.Publish(a)
					m.hosts--
				}
			}
			return
		}
		b.SetAdapters(len(o.Adapters), o.Home)
	}
	if b.Versioned() {
		for a := range o.Adapters {
			b.State(int32(a)).Tier = o.Home
		}
	}
	for _, a := range start {
		if o.HostLimit > 0 && m.hosts >= o.HostLimit {
			break
		}
		if m.Supports(a) {
			b.State(a).Tier = router.Host
			b.Publish(a)
			m.hosts++
			if o.HostLimit > 0 {
				m.hosted = append(m.hosted, of(a))
			}
		}
	}
}

// isAll reports whether a list is that of all n adapters.
func isAll(list []int32, n int) bool {
	if len(list) != n {
		return false
	}
	for i, a := range list {
		if int(a) != i {
			return false
		}
	}
	return true
}

// Stop cancels the load in progress.
func (m *Manager) Stop() { m.loop.Stop(&m.timer) }

// Supports reports whether an adapter fits into a GPU slot. sglang refuses to load an adapter with a rank above
// max_lora_rank (LoRAMemoryPool.can_support in lora/mem_pool.py).
func (m *Manager) Supports(a int32) bool {
	return m.opt.Costs.Rank(m.opt.Adapters[a].Rank) <= m.opt.MaxRank
}

// state returns the router's view of an adapter, which is not the base model.
func (m *Manager) state(a *Adapter) *router.AdapterState { return m.books.State(a.Index) }

// setTier sets the memory tier of an adapter.
func (m *Manager) setTier(a *Adapter, t router.Tier) {
	st := m.state(a)
	was := st.Tier
	if was != t {
		m.events.TierChanged(a, t)
	}
	if is := t >= router.Host; m.opt.HostLimit > 0 && (was >= router.Host) != is {
		if is {
			m.hosted = append(m.hosted, a)
		} else {
			m.hosted = without(m.hosted, a)
		}
	}
	st.Tier = t
	m.books.Publish(a.Index)
}

// without takes an element out of a list without order.
func without(list []*Adapter, a *Adapter) []*Adapter {
	last := len(list) - 1
	list[slices.Index(list, a)] = list[last]
	return list[:last]
}

// publish updates the router's numbers of used and idle slots.
func (m *Manager) publish() {
	used := len(m.slots)
	m.books.SlotsUsed, m.books.SlotsIdle = used, used-len(m.active)+m.unplaced
	m.books.Touch()
}

// slotless says whether an adapter is the base model of an engine where that needs no slot.
func (m *Manager) slotless(a *Adapter) bool { return a.base && m.opt.SlotlessBase }

// Acquire adds a request to an adapter when the request enters a prefill step; queued is the time since which it waits.
// Acquire adds the request's wait for the adapter to cold. It returns how long the step waits for the load, and false
// if the load failed for good. The adapter gets its slot in [Manager.PrepareBatch] once the step is formed, or at once
// if loads do not wait for steps.
func (m *Manager) Acquire(a *Adapter, queued tick.Ticks, cold *tick.Ticks) (wait tick.Ticks, ok bool) {
	if m.slotless(a) {
		a.active++
		return 0, true
	}
	if a.loadTo > queued { // loaded beside the steps while the request waited
		if a.slot {
			wait = max(a.loadTo-m.loop.Now(), 0)
		}
		*cold += a.loadTo - max(a.loadFrom, queued)
	}
	if !a.slot && a.active == 0 && !a.base {
		d, ok := m.loadBlocking(a)
		if !ok {
			return wait + d, false
		}
		a.paid = true
		wait += d
		*cold += d
	}
	m.activate(a)
	if !a.slot && !m.opt.Displaces {
		m.place(a, -1)
	}
	m.clock++
	a.used = m.clock
	return wait, true
}

// activate adds a request to an adapter.
func (m *Manager) activate(a *Adapter) {
	if a.active++; a.active == 1 {
		if !a.loading {
			m.active = append(m.active, a)
		}
		if !a.slot {
			m.unplaced++
		}
		m.publish()
	}
}

// Hold adds a request to an active adapter, so that it stays active.
func (m *Manager) Hold(a *Adapter) { a.active++ }

// Release removes a request from an adapter.
func (m *Manager) Release(a *Adapter) {
	if a.active > 1 || m.slotless(a) {
		a.active--
		return
	}
	a.used, a.active = m.lastUse(a), 0
	if !a.loading {
		m.active = without(m.active, a)
	}
	if !a.slot {
		m.unplaced--
	}
	m.publish()
	if m.opt.Unified && a.slot {
		m.dropSlot(a)
		m.setTier(a, router.Host)
		m.stats.Evictions++
	}
}

// PrepareBatch gives slots to the adapters of a step that was just formed: those of its prompts and, if decodes, those
// of the running requests. The base model comes first, then adapters by index; sglang's order is that of the adapters'
// random ids (prepare_lora_batch in lora/mem_pool.py). PrepareBatch returns the time of loads that Acquire did not
// report: those of adapters that lost their slot while they ran.
func (m *Manager) PrepareBatch(prompts []*Adapter, decodes bool) (load tick.Ticks) {
	m.clock++
	for _, a := range prompts {
		a.used = m.clock
	}
	if m.unplaced == 0 || !m.opt.Displaces {
		return 0
	}
	m.clock++
	batch := m.clock // marks the adapters of the step
	m.batch = m.batch[:0]
	in := func(a *Adapter) {
		if a.used != batch {
			a.used = batch
			if !a.slot {
				m.batch = append(m.batch, a)
			}
		}
	}
	for _, a := range prompts {
		in(a)
	}
	for _, a := range m.active {
		if decodes && a.Decoding > 0 {
			in(a)
		}
	}
	rows := int32(len(m.opt.Adapters)) + 1
	slices.SortFunc(m.batch, func(a, b *Adapter) int { return cmp.Compare((a.Index+1)%rows, (b.Index+1)%rows) })
	for _, a := range m.batch {
		if !a.base && !a.paid {
			d := m.loadTime(a)
			m.countLoad(a)
			m.events.LoadBooked(a, true, m.loop.Now()+load, m.loop.Now()+load+d)
			load += d
		}
		m.place(a, batch)
	}
	return load
}

// place gives an adapter a GPU slot with its weights in it.
func (m *Manager) place(a *Adapter, batch int64) {
	m.takeSlot(a, batch)
	if !a.base {
		m.reserveHost(a)
		m.setTier(a, router.GPU)
	}
}

// takeSlot gives an adapter a GPU slot, and evicts another adapter if necessary. The caller must ensure that a slot is
// available.
func (m *Manager) takeSlot(a *Adapter, batch int64) {
	var out *Adapter
	if len(m.slots) >= m.opt.Slots {
		out = m.slots[m.selectVictim(batch)]
		m.slots = without(m.slots, out)
		out.used, out.slot = m.lastUse(out), false
		if out.active > 0 {
			m.unplaced++
		}
		if out.base {
			out = nil
		} else {
			m.setTier(out, router.Host)
			m.stats.Evictions++
		}
	}
	m.slots = append(m.slots, a)
	m.clock++
	if a.active > 0 {
		m.unplaced--
	}
	a.slot, a.paid, a.loaded = true, false, m.clock
	m.publish()
	if out != nil {
		m.UnloadIfUnused(out) // only now: what hears of it looks at the slots
	}
}

// dropSlot takes the GPU slot from an adapter that no request uses.
func (m *Manager) dropSlot(a *Adapter) {
	m.slots = without(m.slots, a)
	a.slot = false
	m.publish()
}

// slotAvailable reports whether an idle adapter can run beside the adapters that are running, chosen or being loaded
// (LoRAManager.validate_lora_batch in lora/lora_manager.py). Idle adapters lose their slots unless they are pinned.
func (m *Manager) slotAvailable(a *Adapter) bool {
	n := len(m.active)
	if m.pins {
		for _, o := range m.slots {
			if o != a && o.active == 0 && !o.loading && !o.base && m.state(o).Pinned {
				n++
			}
		}
	}
	return n < m.opt.Slots
}

// CanRun reports whether requests of an adapter may be admitted, if its load succeeds. The slot of an idle adapter may
// be promised to another adapter of the step that is being formed.
func (m *Manager) CanRun(a *Adapter) bool {
	switch {
	case a.active > 0 && !a.loading, m.slotless(a):
		return true
	case !m.InHost(a):
		return false
	case a.loading:
		return m.opt.Blocking
	}
	return a.slot && !m.opt.Displaces || m.slotAvailable(a)
}

// MustLoad reports whether the requests of an adapter wait for its load while others run (lora/lora_overlap_loader.py
// in sglang).
func (m *Manager) MustLoad(a *Adapter) bool { return !m.opt.Blocking && !a.base && !a.slot }

// ActiveAdapters returns the adapters that are active or being loaded, in no order. The slice is valid until the next
// call.
func (m *Manager) ActiveAdapters() []*Adapter { return m.active }

// SlotAdapters returns the adapters that hold a slot, in no order. The slice is valid until the next call.
func (m *Manager) SlotAdapters() []*Adapter { return m.slots }

// Full reports whether the number of adapters that are active or being loaded has reached the number of slots.
func (m *Manager) Full() bool { return len(m.active) >= m.opt.Slots }

// Pin protects an adapter from eviction, or ends that protection.
func (m *Manager) Pin(a int32, pinned bool) {
	m.books.State(a).Pinned = pinned
	m.pins = true
}

// Pins reports whether Pin was ever called: adapters may be pinned.
func (m *Manager) Pins() bool { return m.pins }

// Blocking reports whether no step runs while an adapter is copied to the GPU.
func (m *Manager) Blocking() bool { return m.opt.Blocking }
