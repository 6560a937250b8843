package sim

import (
	"lorasim/router"
	"lorasim/sim/engine"
	"lorasim/sim/record"
	"lorasim/sim/tick"

	"pgregory.net/rapid"
)

// whereabouts follows the requests and the loads of a run by its events, and holds them against the engines' own
// states.
type whereabouts struct {
	at    map[int64]position
	loads map[[2]int32]tick.Ticks // ends of loads, by worker and adapter
	down  map[int32]bool
}

// position is where a request is.
type position struct {
	place      record.EventKind
	adapter    int32
	worker, to int32
}

func newWhereabouts() *whereabouts {
	return &whereabouts{map[int64]position{}, map[[2]int32]tick.Ticks{}, map[int32]bool{}}
}

func (w *whereabouts) watcher() record.Watcher {
	return record.Watcher{Kinds: record.EventQueued | record.EventRunning | record.EventMoving | record.EventHeld |
		record.EventEnded | record.EventLoad | record.EventOutage, Note: w.note}
}

func (w *whereabouts) note(e *record.Event) {
	switch e.Kind {
	case record.EventEnded:
		delete(w.at, e.ID)
	case record.EventLoad:
		w.loads[[2]int32{e.Worker, e.Adapter}] = e.Until
	case record.EventOutage:
		w.down[e.Worker] = e.Down
	default:
		w.at[e.ID] = position{e.Kind, e.Adapter, e.Worker, e.To}
	}
}

// check is called whenever simulated time passes.
func (w *whereabouts) check(t *rapid.T, s *sim, until tick.Ticks) {
	there := 0
	for _, r := range s.reqs {
		if r.ID < 0 {
			continue
		}
		there++
		want := position{adapter: s.adapterOf(r), worker: r.worker}
		switch r.State() {
		case engine.Entering, engine.Waiting:
			want.place = record.EventQueued
		case engine.Transit:
			if want.place, want.to = record.EventMoving, r.dest; r.Leaving != engine.Sent {
				want.place, want.worker, want.to = record.EventHeld, -1, 0
			}
		default:
			want.place = record.EventRunning
		}
		if got, ok := w.at[r.ID]; !ok || got != want {
			t.Fatalf("at %v s, by the events %+v (%v), expected %+v", s.loop.Now().Seconds(), got, ok, want)
		}
	}
	if there != len(w.at) {
		t.Fatalf("%d requests by the events, expected %d", len(w.at), there)
	}
	for i := range s.workers {
		if down := s.workers[i].outages > 0; w.down[int32(i)] != down {
			t.Fatalf("worker %d: down by the events %v, expected %v", i, w.down[int32(i)], down)
		}
		w.checkLoads(t, i, s.view.Workers[i].Adapters, until)
	}
}

func (w *whereabouts) checkLoads(t *rapid.T, worker int, adapters []router.AdapterState, until tick.Ticks) {
	for a, st := range adapters {
		if end, ok := w.loads[[2]int32{int32(worker), int32(a)}]; st.Loading && (!ok || end < until) {
			t.Fatalf("worker %d loads adapter %d at %v s, by the events until %v s", worker, a, until.Seconds(),
				end.Seconds())
		}
	}
}
