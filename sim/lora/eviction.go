package lora

import "math"

// StampDecode notes that a decode step had the running requests in its batch (LRUEvictionPolicy.mark_used in
// lora/eviction_policy.py). See lastUse.
func (m *Manager) StampDecode() {
	m.clock++
	m.decoded = m.clock
}

// Clock moves the clock of uses on by one.
func (m *Manager) Clock() int64 {
	m.clock++
	return m.clock
}

// Use notes that a step had an adapter in its batch at a time of the clock.
func (m *Manager) Use(a *Adapter, at int64) { a.used = max(a.used, at) }

// lastUse is the clock of the latest step that had an adapter in its batch. That of running ones is not entered
// at every decode step, but when they leave.
func (m *Manager) lastUse(a *Adapter) int64 {
	if a.active > 0 && a.slot {
		return max(a.used, m.decoded)
	}
	return a.used
}

// selectVictim is the index of the slot to evict for a step, -1 if there is none (LoRAMemoryPool.prepare_lora_batch
// in lora/mem_pool.py): the least recently used adapter, or the one loaded first, that is not in the step's batch,
// which is marked by the given clock; the base model's place only if there is no other. That may be the adapter of
// running requests where the step is a prefill: it comes back for the next decode step. With a clock below 0 only
// adapters that nobody uses are evicted.
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
