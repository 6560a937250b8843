package sim

import (
	"lorasim/router"
	"lorasim/sim/engine"
	"lorasim/sim/tick"

	"pgregory.net/rapid"
)

// whereabouts follows the requests and the loads of a run by its hooks, and holds them against the engines' own states.
type whereabouts struct {
	at    map[int64]Position
	loads map[[2]int32]tick.Ticks // ends of loads, by worker and adapter
	down  map[int]bool
}

func newWhereabouts() *whereabouts {
	return &whereabouts{map[int64]Position{}, map[[2]int32]tick.Ticks{}, map[int]bool{}}
}

func (w *whereabouts) hooks() Hooks {
	return Hooks{
		Place: func(_ tick.Ticks, p Position) {
			if w.at[p.ID] = p; p.Place == Gone {
				delete(w.at, p.ID)
			}
		},
		Load:   func(_ tick.Ticks, l Load) { w.loads[[2]int32{int32(l.Worker), l.Adapter}] = l.To },
		Outage: func(_ tick.Ticks, worker int, down bool) { w.down[worker] = down },
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
		want := Position{ID: r.ID, Adapter: s.adapterOf(r), Worker: r.worker}
		switch r.State() {
		case engine.Entering, engine.Waiting:
			want.Place = Queued
		case engine.Transit:
			if want.Place, want.To = Moving, r.dest; r.Leaving != engine.Sent {
				want.Place, want.Worker, want.To = Held, -1, 0
			}
		default:
			want.Place = Running
		}
		if got, ok := w.at[r.ID]; !ok || got != want {
			t.Fatalf("at %v s, by the hook %+v (told: %v), expected %+v", s.loop.Now().Seconds(), got, ok, want)
		}
	}
	if there != len(w.at) {
		t.Fatalf("%d requests by the hook, expected %d", len(w.at), there)
	}
	for i := range s.workers {
		if down := s.workers[i].outages > 0; w.down[i] != down {
			t.Fatalf("worker %d: down by the hook %v, expected %v", i, w.down[i], down)
		}
		w.checkLoads(t, i, s.view.Workers[i].Adapters, until)
	}
}

func (w *whereabouts) checkLoads(t *rapid.T, worker int, adapters []router.AdapterState, until tick.Ticks) {
	for a, st := range adapters {
		if end, ok := w.loads[[2]int32{int32(worker), int32(a)}]; st.Loading && (!ok || end < until) {
			t.Fatalf("worker %d loads adapter %d at %v s, by the hook until %v s", worker, a, until.Seconds(),
				end.Seconds())
		}
	}
}
