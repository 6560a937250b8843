package sim

import (
	"lorasim/router"
	"lorasim/sim/engine"
	"lorasim/sim/record"
	"lorasim/sim/tick"
)

// emit passes an event of this instant to the watchers. Callers ask s.events.Wants first, so that events that nobody
// gets cost nothing.
func (s *sim) emit(e record.Event) {
	s.event = e // one for all, since watchers keep none
	s.event.At = s.loop.Now()
	s.events.Emit(&s.event)
}

// placed reports that a request is at a new place.
func (s *sim) placed(r *request, place record.EventKind, worker, to int32) {
	if s.events.Wants(place) {
		s.emit(record.Event{Kind: place, Worker: worker, To: to, ID: r.ID, Adapter: s.adapterOf(r)})
	}
}

// listen makes the worker's engine report its events, as far as a watcher gets them.
func (w *worker) listen(h *engine.Hooks) {
	s, id := w.s, int32(w.id)
	if s.events.Wants(record.EventTier) {
		h.Tier = func(adapter int32, t router.Tier) {
			s.emit(record.Event{Kind: record.EventTier, Worker: id, Adapter: adapter, Tier: t})
		}
	}
	if s.events.Wants(record.EventQueued | record.EventRunning) {
		h.Placed = func(r *engine.Request) {
			place := record.EventQueued
			if r.State() == engine.Filling {
				place = record.EventRunning
			}
			s.placed(s.request(r), place, id, 0)
		}
	}
	if s.events.Wants(record.EventLoad) {
		h.LoadBooked = func(adapter int32, slot bool, from, to tick.Ticks) {
			s.emit(record.Event{Kind: record.EventLoad, Worker: id, Adapter: adapter, Slot: slot, From: from,
				Until: to})
		}
	}
}

// outageChanged reports that the first outage has begun, or that the last one has ended.
func (w *worker) outageChanged(down bool) {
	if w.s.events.Wants(record.EventOutage) {
		w.s.emit(record.Event{Kind: record.EventOutage, Worker: int32(w.id), Down: down})
	}
}

// watch reports the state of the workers from now to the next event.
func (s *sim) watch(until tick.Ticks) {
	if until > s.loop.Now() && s.events.Wants(record.EventState) {
		for i := range s.workers {
			s.view.Workers[i].Full = s.workers[i].engine.Gate.Full()
			s.view.Workers[i].Entering = s.workers[i].engine.FrontEnd.Len()
		}
		s.emit(record.Event{Kind: record.EventState, Worker: -1, From: s.loop.Now(), Until: until, View: &s.view})
	}
}
