package fleet

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"lorasim/router"
	"lorasim/sim/record"
)

// While somebody watches, changes of workers and adapters are events, and so are plans with what became of them.
func TestWatch(t *testing.T) {
	inMemory(t, func(t *memory) {
		f, _, _ := startFleet(t, 3, nil, newFakeWorker(t, "lora0"), newFakeWorker(t))
		var got []string
		note := func(e *record.Event) {
			switch e.Kind {
			case record.EventPower:
				got = append(got, fmt.Sprintf("power of %d: %d", e.Worker, e.Power))
			case record.EventOutage:
				got = append(got, fmt.Sprintf("%d is down: %v", e.Worker, e.Down))
			case record.EventTier:
				got = append(got, fmt.Sprintf("adapter %d on %d: %v", e.Adapter, e.Worker, e.Tier >= router.Host))
			case record.EventPlan:
				got = append(got, fmt.Sprintf("plan %s moved %d, dropped: %v", e.Plan.Plan.Reason, e.Plan.Moved,
					e.Plan.Dropped != ""))
			}
		}
		stop := f.Watch(0, record.Watcher{Kinds: record.AllEvents, Note: note})
		r := &Request{Request: router.Request{ID: 7, Adapter: 0}, Move: func(int, int) bool { return true }}
		f.Requests.Book(r, 0)
		apply(f, &router.Plan{Reason: "balance", Load: []router.Placement{{Worker: 1, Adapter: 0}},
			Move: []router.Move{{ID: 7, From: 0, To: 1}}})
		f.Requests.Left(r)
		apply(f, &router.Plan{Reason: "nowhere", Load: []router.Placement{{Worker: 9, Adapter: 0}}})
		if err := f.Drain(0, true); err != nil {
			t.Fatal(err)
		}
		func() {
			defer f.lock()()
			f.down(f.workers[1], errors.New("no answer"))
		}()
		stop()
		if err := f.Drain(0, false); err != nil {
			t.Fatal(err)
		}
		want := []string{"adapter 0 on 1: true", "plan balance moved 1, dropped: false",
			"plan nowhere moved 0, dropped: true", "power of 0: 1", "1 is down: true", "adapter 0 on 1: false"}
		if !slices.Equal(got, want) {
			t.Errorf("%q, expected %q", got, want)
		}
	})
}
