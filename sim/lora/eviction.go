package lora

import "math"

// StampDecode notes a decode step with the running requests (LRUEvictionPolicy.mark_used in lora/eviction_policy.py).
// It counts as a use of all their adapters.
func (m *Manager) StampDecode() {
	m.clock++
	m.decoded = m.clock
}

// Clock advances the clock of uses by one and returns it.
func (m *Manager) Clock() int64 {
	m.clock++
	return m.clock
}

// Use notes that a step with the adapter in its batch ran at a time of the clock.
func (m *Manager) Use(a *Adapter, at int64) { a.used = max(a.used, at) }

// lastUse returns the clock of the latest step with the adapter in its batch. Adapters of running requests are not
// updated at every decode step, but when they leave.
func (m *Manager) lastUse(a *Adapter) int64 {
	if a.active > 0 && a.slot {
		return max(a.used, m.decoded)
	}
	return a.used
}

// selectVictim returns the index of the slot to evict for a step, or -1 (LoRAMemoryPool.prepare_lora_batch in
// lora/mem_pool.py). It chooses the least recently used adapter, or the one loaded first, outside the step's batch,
// which the given clock marks. The base model loses its slot only if there is no other. A prefill step may evict the
// adapter of running requests, which comes back for the next decode step. If batch < 0, only adapters without requests
// are evicted.
func (m *Manager) selectVictim(batch int64) int {
	best := -1
	var least int64
	for k, a := range m.slots {
		if a.used == batch || a.loading || a.active > 0 && batch < 0 || !a.base && m.state(a).Pinned {
			continue
		}
		key := m.lastUse(a)
		if a.base {
			key = math.MaxInt64
		} else if m.opt.FIFO {
			key = a.loaded
		}
		if best < 0 || key < least || key == least && a.Index < m.slots[best].Index {
			best, least = k, key
		}
	}
	return best
}
