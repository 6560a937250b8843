package lora

import (
	"errors"
	"fmt"

	"lorasim/router"
)

// Check returns an error if an invariant does not hold.
func (m *Manager) Check() error { return errors.Join(m.checkSlots(), m.checkActive(), m.checkHost()) }

// checkSlots: at most Options.Slots adapters hold slots, and they are in host memory too.
func (m *Manager) checkSlots() error {
	if len(m.slots) > m.opt.Slots {
		return fmt.Errorf("lora: %d adapters hold slots, expected at most %d", len(m.slots), m.opt.Slots)
	}
	for _, a := range m.slots {
		if !a.slot || !a.base && m.state(a).Tier < router.Host && !a.loading || m.slotless(a) {
			return fmt.Errorf("lora: adapter %d holds a slot and is not in host memory, or needs none: %+v", a.Index,
				*a)
		}
		if m.lastUse(a) > m.clock || a.loaded > m.clock {
			return fmt.Errorf("lora: adapter %d was used at %d and loaded at %d, it is %d", a.Index, m.lastUse(a),
				a.loaded, m.clock)
		}
	}
	return nil
}

// checkActive: an active adapter has requests, or is being loaded into the slot that it holds.
func (m *Manager) checkActive() error {
	unplaced := 0
	for _, a := range m.active {
		if a.active == 0 && !a.loading || a.loading && !a.slot {
			return fmt.Errorf("lora: adapter %d is listed as active: %+v", a.Index, *a)
		}
		if !a.slot {
			unplaced++
		}
	}
	switch {
	case unplaced != m.unplaced:
		return fmt.Errorf("lora: %d active adapters without a slot, expected %d", m.unplaced, unplaced)
	case m.books.SlotsUsed != len(m.slots) || m.books.SlotsIdle != len(m.slots)-len(m.active)+unplaced ||
		m.books.SlotsIdle < 0:
		return fmt.Errorf("lora: routers see %d idle ones of %d used slots, there are %d with %d active adapters",
			m.books.SlotsIdle, m.books.SlotsUsed, len(m.slots), len(m.active)-unplaced)
	}
	return nil
}

// checkHost: host memory is taken by the adapters that are there or on their way.
func (m *Manager) checkHost() error {
	there := 0
	for a := range m.opt.Adapters {
		if m.books.State(int32(a)).Tier >= router.Host {
			there++
		}
	}
	coming := map[*Adapter]bool{}
	for _, k := range m.loads {
		if m.state(k.adapter).Tier < router.Host {
			coming[k.adapter] = true
		}
	}
	switch {
	case there+len(coming) != m.hosts:
		return fmt.Errorf("lora: %d adapters in host memory and %d on their way, counted %d", there, len(coming),
			m.hosts)
	case m.opt.HostLimit > 0 && len(m.hosted) != there:
		return fmt.Errorf("lora: %d adapters in host memory, %d listed", there, len(m.hosted))
	}
	return nil
}
