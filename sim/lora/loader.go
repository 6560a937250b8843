package lora

import (
	"slices"

	"lorasim/router"
	"lorasim/sim/tick"
)

// load is a load beside the steps.
type load struct {
	adapter *Adapter
	slot    bool       // into the GPU slot that it holds already; else to host memory
	ends    tick.Ticks // when it is done
}

// maxFailures is how often a load is tried before the requests that wait for the adapter fail.
const maxFailures = 10

// Idle reports whether no load is in progress beside the steps that a request may wait for.
func (m *Manager) Idle() bool {
	for _, k := range m.loads {
		if !k.adapter.pushed {
			return false
		}
	}
	return true
}

// loadBlocking returns the time to load an adapter into a slot while no step runs. A failed load is repeated, up to
// maxFailures times.
func (m *Manager) loadBlocking(a *Adapter) (total tick.Ticks, ok bool) {
	wait := m.loadTime(a)
	if a.fetch { // what is under way counts
		wait += max(a.loadTo-m.loop.Now(), 0)
	}
	for range maxFailures {
		if total += wait; !m.loadFails() {
			m.countLoad(a)
			a.failures = 0
			m.events.LoadBooked(a, true, m.loop.Now(), m.loop.Now()+total)
			return total, true
		}
	}
	m.giveUp(a, m.loop.Now()+total)
	return total, false
}

// giveUp makes the requests fail that wait for an adapter that does not load.
func (m *Manager) giveUp(a *Adapter, at tick.Ticks) {
	m.events.GiveUp(a, at)
	a.failures = 0
	m.UnloadIfUnused(a)
	m.events.SlotFreed()
}

// countLoad counts a load into a GPU slot, at its start; one that blocks the steps, once it has succeeded.
func (m *Manager) countLoad(*Adapter) { m.stats.ColdLoads++ }

// loadFails draws whether a load fails, and counts it.
func (m *Manager) loadFails() bool {
	if !m.opt.Fails() {
		return false
	}
	m.stats.FailedLoads++
	return true
}

// loadTime is how long a load into a GPU slot takes.
func (m *Manager) loadTime(a *Adapter) tick.Ticks {
	tier := m.state(a).Tier
	if a.fetch {
		tier = router.Host // by the time it is its turn
	}
	return m.opt.Costs.Load(m.opt.Adapters[a.Index].Rank, tier)
}

// StartLoad starts or queues the load of an adapter into a GPU slot beside the steps (try_overlap_load_lora in sglang).
// The caller must ensure that a slot is available.
func (m *Manager) StartLoad(a *Adapter) {
	m.clock++
	a.used = m.clock
	m.takeSlot(a, -1)
	takes := m.loadTime(a)
	m.reserveHost(a)
	m.countLoad(a)
	a.loading = true
	m.books.SetLoading(a.Index, true)
	m.active = append(m.active, a)
	m.publish()
	m.enqueueLoad(a, true, takes)
}

// StartFetch starts or queues the load of an adapter into host memory, unless it is there or on its way.
func (m *Manager) StartFetch(a *Adapter) {
	if !m.Gone(a) {
		return
	}
	rank := m.opt.Adapters[a.Index].Rank
	takes := m.opt.Costs.Load(rank, m.state(a).Tier) - m.opt.Costs.Load(rank, router.Host)
	m.reserveHost(a)
	a.fetch = true
	m.enqueueLoad(a, false, takes)
}

// FetchMissing is StartFetch for an adapter with waiting requests. It does nothing if [Manager.InHost] holds.
func (m *Manager) FetchMissing(a *Adapter) {
	if !m.InHost(a) {
		m.StartFetch(a)
	}
}

// enqueueLoad books the loader, which does one thing at a time.
func (m *Manager) enqueueLoad(a *Adapter, slot bool, takes tick.Ticks) {
	a.loadFrom = m.loop.Now()
	if n := len(m.loads); n > 0 {
		a.loadFrom = m.loads[n-1].ends
	}
	a.loadTo = a.loadFrom + takes
	m.events.LoadBooked(a, slot, a.loadFrom, a.loadTo)
	if m.loads = append(m.loads, load{a, slot, a.loadTo}); len(m.loads) == 1 {
		m.loop.Set(&m.timer, a.loadTo)
	}
}

// endLoad ends the load under way and starts the next.
func (m *Manager) endLoad() {
	k := m.loads[0]
	if m.loads = slices.Delete(m.loads, 0, 1); len(m.loads) > 0 {
		m.loop.Set(&m.timer, m.loads[0].ends)
	}
	a, failed := k.adapter, m.loadFails()
	tier := max(m.state(a).Tier, router.Host) // it may have got a slot meanwhile
	if k.slot {
		tier = router.GPU
		a.loading = false
		m.books.SetLoading(a.Index, false)
		if a.active == 0 {
			m.active = without(m.active, a)
			m.publish()
		}
	} else {
		a.fetch = false
	}
	if failed {
		m.loadFailed(k)
	} else {
		if k.slot {
			a.failures = 0
		}
		m.setTier(a, tier)
	}
	m.UnloadIfUnused(a)
	m.events.LoadEnded()
}

// loadFailed undoes a failed load. Requests that wait for the adapter try again, and the router gets a report.
func (m *Manager) loadFailed(k load) {
	a := k.adapter
	if a.active > 0 || !k.slot && a.slot {
		// a step has counted on it: by its end a second try has succeeded
		m.setTier(a, router.GPU)
		return
	}
	if k.slot {
		m.dropSlot(a)
	}
	if m.state(a).Tier < router.Host {
		m.hosts--
	}
	if a.failures++; a.failures >= maxFailures {
		m.giveUp(a, m.loop.Now())
	}
	if a.Waiting > 0 {
		m.FetchMissing(a)
	}
}

// Load loads an adapter because of a plan: into host memory, and into a GPU slot if one is free.
func (m *Manager) Load(a *Adapter) {
	a.Keep()
	switch {
	case !m.Supports(a.Index) || m.opt.Unified || a.slot || a.active > 0 || a.fetching():
	case len(m.slots)+m.unplaced < m.opt.Slots:
		m.StartLoad(a)
	default:
		m.StartFetch(a)
	}
}

// Prefetch starts loading the adapter of a request that has just arrived, unless that evicts the adapter of another
// waiting request.
func (m *Manager) Prefetch(a *Adapter) {
	if a.base || a.slot || a.active > 0 || a.fetch || m.opt.Unified {
		return
	}
	if len(m.slots)+m.unplaced >= m.opt.Slots {
		if !m.slotAvailable(a) {
			return
		}
		if k := m.selectVictim(-1); k < 0 || m.slots[k].Waiting > 0 {
			return
		}
	}
	m.StartLoad(a)
}
