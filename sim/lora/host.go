package lora

import "lorasim/router"

// InHost says whether the weights of an adapter are in host memory or a slot, or are not needed. sglang's
// scheduler does not see a request before they are: they are fetched beside its steps. vLLM fetches within them.
func (m *Manager) InHost(a *Adapter) bool {
	return m.opt.FetchesInSteps || a.base || m.state(a).Tier >= router.Host
}

// Loaded says whether the weights of an adapter are in host memory or a slot.
func (m *Manager) Loaded(a *Adapter) bool { return m.state(a).Tier >= router.Host && !a.fetch }

// Gone says whether an adapter is neither in host memory nor on its way to it.
func (m *Manager) Gone(a *Adapter) bool { return m.state(a).Tier < router.Host && !a.fetching() }

// Hosts is the number of adapters in host memory, those on their way included.
func (m *Manager) Hosts() int { return m.hosts }

// Preload puts an adapter that is gone into host memory at once, as at a server's start.
func (m *Manager) Preload(a *Adapter) {
	m.reserveHost(a)
	m.setTier(a, router.Host)
}

// WarmUp puts an adapter of host memory into a GPU slot at once.
func (m *Manager) WarmUp(a *Adapter) {
	if m.opt.Unified {
		return
	}
	m.takeSlot(a, -1)
	m.setTier(a, router.GPU)
}

// reserveHost books host memory for an adapter that is not there yet.
func (m *Manager) reserveHost(a *Adapter) {
	if m.state(a).Tier < router.Host && !a.fetch {
		m.hosts++
		m.trimHost(a)
	}
}

// TrimHost drops the least recently used adapters while there are more than host memory holds.
func (m *Manager) TrimHost() { m.trimHost(nil) }

// trimHost keeps the adapter that is coming. Under sglang so do those stay that requests wait for: unloading waits
// for them (TokenizerControlMixin.load_lora_adapter in managers/tokenizer_control_mixin.py), and the limit is
// exceeded meanwhile, there by the one adapter that was just loaded, here by all that requests have asked for,
// since loads do not wait for the unloading before them.
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

// hostVictim is the adapter that leaves host memory, and its GPU slot, next; nil if all are needed. vLLM looks at
// those without a slot first (LRUCacheLoRAModelManager.remove_oldest_adapter in lora/model_manager.py).
func (m *Manager) hostVictim(coming *Adapter) (out *Adapter) {
	for _, a := range m.hosted {
		if m.state(a).Pinned || a.active > 0 || a.fetching() || a == coming ||
			m.opt.SlotsLast && a.slot || !m.opt.SlotsLast && a.Waiting > 0 {
			continue
		}
		if out == nil || a.used < out.used || a.used == out.used && a.Index < out.Index {
			out = a
		}
	}
	if m.opt.SlotsLast && out == nil {
		// an adapter that got its slot while a plan's fetch of it was queued keeps the place that the fetch has booked
		if k := m.selectVictim(-1); k >= 0 && m.slots[k] != coming && !m.slots[k].fetching() {
			return m.slots[k]
		}
	}
	return out
}

// Unload makes an adapter leave as soon as nobody needs it.
func (m *Manager) Unload(a *Adapter) {
	if m.opt.Unified {
		return
	}
	a.unloading = true
	m.UnloadIfUnused(a)
}

// UnloadIfUnused drops an adapter that is to leave once no request uses it.
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
