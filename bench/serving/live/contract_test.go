package live

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"lorasim/router"
	"lorasim/sim"
	"lorasim/sim/profile"
	"lorasim/sim/record"
)

// listener is a policy that writes down which events come, by request.
type listener struct {
	router.Policy
	mu     sync.Mutex
	events map[int64][]router.Event
	polls  int
}

func (l *listener) Note(e router.Event) error {
	l.mu.Lock()
	if e.Kind == router.Polled {
		l.polls++
	} else {
		l.events[e.ID] = append(l.events[e.ID], e)
	}
	l.mu.Unlock()
	return l.Policy.Note(e)
}

// story is what a policy hears of a request, without the workers and times.
func story(events []router.Event) string {
	names := map[router.EventKind]string{router.Sent: "sent", router.FirstToken: "first", router.Finished: "finished",
		router.Left: "left"}
	var words []string
	at := int32(router.None)
	for _, e := range events {
		word := names[e.Kind]
		if e.Kind == router.Sent {
			at = e.Worker
		} else if e.Worker != at {
			word += " elsewhere"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// Every registered policy hears of a request the same events, in the same order, from the simulator and from a fleet on
// a fake clock.
func TestEventsOfSimulatorAndFleet(t *testing.T) {
	for _, d := range router.List() {
		spec := map[string]string{"explicit": "explicit:map=rest@all",
			"script": "script:file=../../../scenarios/policies/least-loaded.star"}[d.Name]
		spec = cmp.Or(spec, d.Name)
		t.Run(d.Name, func(t *testing.T) {
			simulated, live := heardInSimulation(t, spec), heardFromFleet(t, spec)
			for id := range int64(len(simulated.events)) {
				s, l := story(simulated.events[id]), story(live.events[id])
				if want := "sent first left finished"; s != want || l != want {
					t.Errorf("request %d: the simulator says %q, the fleet %q; expected %q", id, s, l, want)
				}
			}
			if (simulated.polls > 0) != (live.polls > 0) {
				t.Errorf("%d polls by the simulator, %d by the fleet", simulated.polls, live.polls)
			}
			if a, b := order(simulated), order(live); a != b {
				t.Errorf("the simulator sends requests in the order %s, the fleet %s", a, b)
			}
		})
	}
}

// order lists requests by the time at which they were sent.
func order(l *listener) string {
	var ids []int64
	for id := range l.events {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b int64) int {
		return cmp.Or(cmp.Compare(l.events[a][0].Now, l.events[b][0].Now), cmp.Compare(a, b))
	})
	return fmt.Sprint(ids)
}

const listened = 40 // requests

func heardInSimulation(t *testing.T, spec string) *listener {
	wl := workload(listened, 4, 0.05)
	rt := newRouter(t, spec, 2, wl.Adapters)
	l := &listener{Policy: rt.Policy, events: map[int64][]router.Event{}}
	rt.Policy = l
	costs := testProfile().Compile()
	_, err := sim.Run(t.Context(), sim.Config{Source: wl.Source(), Workers: []*profile.Costs{costs, costs}, Router: rt,
		Observer: record.Ends(func(*record.Request) {}), Home: router.Disk})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func heardFromFleet(t *testing.T, spec string) (l *listener) {
	synctest.Test(t, func(t *testing.T) {
		wl := workload(listened, 4, 0.05)
		rt := newRouter(t, spec, 2, wl.Adapters)
		l = &listener{Policy: rt.Policy, events: map[int64][]router.Event{}}
		rt.Policy = l
		liveRun{cluster: startWorkers(t, sound(2, faults{})...), wl: wl, router: rt}.run(t.Context(), t)
	})
	return l
}
