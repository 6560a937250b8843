package lora

import "lorasim/router"

// InHost reports whether an adapter's weights are in host memory or a slot, or are not needed there. sglang fetches
// weights beside its steps, and its scheduler does not see a request before they are there. vLLM fetches within a step.
func (m *Manager) InHost(a *Adapter) bool {
	return m.opt.FetchesInSteps || a.base || m.state(a).Tier >= router.Host
}

// Loaded reports whether the weights of an adapter are in host memory or a slot.
func (m *Manager) Loaded(a *Adapter) bool { return m.state(a).Tier >= router.Host && !a.fetch }

// Gone reports whether an adapter is neither in host memory nor being loaded.
func (m *Manager) Gone(a *Adapter) bool { return m.state(a).Tier < router.Host && !a.fetching() }

// Hosts returns the number of adapters in host memory, including those on their way there.
func (m *Manager) Hosts() int { return m.hosts }

// Preload puts an adapter for which Gone holds into host memory at once, as at a server's start.
func (m *Manager) Preload(a *Adapter) {
	m.reserveHost(a)
	m.setTier(a, router.Host)
}

// WarmUp puts an adapter from host memory into a GPU slot at once.
func (m *Manager) WarmUp(a *Adapter) {
	if m.opt.Unified {
		return
	}
	m.takeSlot(a, -1)
	m.setTier(a, router.GPU)
}

// Begin puts an adapter from host memory into a GPU slot at once, as at a server's start, if a slot is free.
func (m *Manager) Begin(a *Adapter) {
	if !a.slot && len(m.slots) < m.opt.Slots && m.Loaded(a) {
		m.WarmUp(a)
	}
}

// reserveHost books host memory for an adapter that is not there yet.
func (m *Manager) reserveHost(a *Adapter) {
	if m.state(a).Tier < router.Host && !a.fetch {
		m.hosts++
		m.trimHost(a)
	}
}

// TrimHost evicts the least recently used adapters while host memory holds more than Options.HostLimit.
func (m *Manager) TrimHost() { m.trimHost(nil) }

// trimHost is TrimHost, but keeps the adapter that is coming. Under sglang, adapters with waiting requests stay too:
// unloading waits for the requests (TokenizerControlMixin.load_lora_adapter in managers/tokenizer_control_mixin.py).
// Meanwhile the limit is exceeded. sglang exceeds it by the one adapter that was just loaded. The simulator exceeds it
// by all adapters with requests, since loads do not wait for the unloading before them.
func (m *Manager) trimHost(coming *Adapter) {
	for m.opt.HostLimit > 0 && m.hosts > m.opt.HostLimit {
		out := m.hostVictim(coming)
		if out == nil {
			return
		}
		if out.slot {
			m.dropSlot(out)
			m.stats.Evictions++
		}
		m.setTier(out, m.opt.Home)
		m.hosts--
	}
}

// hostVictim returns the adapter that leaves host memory and its GPU slot next; nil if all are needed. vLLM prefers
// adapters without a slot (LRUCacheLoRAModelManager.remove_oldest_adapter in lora/model_manager.py).
func (m *Manager) hostVictim(coming *Adapter) (out *Adapter) {
	for _, a := range m.hosted {
		if a.active > 0 || a.fetching() || a == coming || a.pushed ||
			m.opt.SlotsLast && a.slot || !m.opt.SlotsLast && a.Waiting > 0 {
			continue
		}
		if (out == nil || a.used < out.used || a.used == out.used && a.Index < out.Index) && !m.state(a).Pinned {
			out = a
		}
	}
	if m.opt.SlotsLast && out == nil {
		// an adapter that got its slot while a plan's fetch of it was queued keeps the place that the fetch has booked
		k := m.selectVictim(-1)
		if k < 0 || m.slots[k] == coming || m.slots[k].fetching() {
			return nil
		}
		// An adapter that was loaded beside the steps stays for the requests that wait for it: else it could be loaded
		// and evicted forever.
		if m.opt.Blocking || m.slots[k].Waiting == 0 {
			return m.slots[k]
		}
	}
	return out
}

// Unload removes an adapter as soon as no request uses it.
func (m *Manager) Unload(a *Adapter) {
	if m.opt.Unified {
		return
	}
	a.unloading = true
	m.UnloadIfUnused(a)
}

// UnloadIfUnused carries out a pending Unload if no request uses the adapter.
func (m *Manager) UnloadIfUnused(a *Adapter) {
	if !a.unloading || a.active > 0 || a.fetching() || a.Waiting > 0 || a.base {
		return
	}
	a.unloading = false
	if a.slot {
		m.dropSlot(a)
		m.events.SlotFreed()
	}
	if m.state(a).Tier >= router.Host {
		m.hosts--
		m.setTier(a, m.opt.Home)
	}
}
