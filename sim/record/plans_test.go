package record

import (
	"errors"
	"reflect"
	"testing"

	"lorasim/router"
)

// Plans are counted with what they change. An adapter that comes and goes counts as two changes that are undone, and
// one that a plan both loads and unloads stays.
func TestPlanBook(t *testing.T) {
	var b PlanBook
	held := map[router.Placement]bool{{Worker: 0, Adapter: 1}: true}
	do := func(p router.Plan, err error) {
		b.Make(&p, 0.5)
		b.Begin(&p, func(at router.Placement) bool { return held[at] })
		b.End(&p, err)
	}
	here, there := router.Placement{Worker: 0, Adapter: 1}, router.Placement{Worker: 1, Adapter: 1}
	do(router.Plan{Load: []router.Placement{there}, Unload: []router.Placement{here}}, nil)
	held[there] = true // the place is known: what the worker holds by now does not count
	do(router.Plan{Load: []router.Placement{here}, Unload: []router.Placement{here}, Objective: 4, Bound: 3}, nil)
	do(router.Plan{Unload: []router.Placement{there}, Objective: 4, Bound: 4}, nil)
	do(router.Plan{Unload: []router.Placement{here}}, errors.New("no such worker"))
	do(router.Plan{}, nil)
	b.Move(router.MoveQueued, 0)
	b.Move(router.MoveRecompute, 30)
	b.Move(router.MoveRecompute, 12)
	want := PlanCounters{Made: 5, SolveTime: 2.5, Applied: 3, Dropped: 1, Loads: 2, Unloads: 2, Gap: 0.125,
		Moves: map[string]int64{"queued": 1, "recompute": 2}, Recomputed: 42, Changes: 4, Undone: 4}
	if got := b.Counters(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nexpected\n%+v", got, want)
	}
}

// TestPlanBookRests: reasons that differ in numbers alone count as one, the most frequent comes first.
func TestPlanBookRests(t *testing.T) {
	var b PlanBook
	b.Rest("")
	b.Rest("no worker is full")
	for _, gain := range []string{"1.5", "22"} {
		b.End(&router.Plan{Reason: "stay: the gain is " + gain + " s"}, nil)
	}
	c := b.Counters()
	if len(c.Idle) != 2 || c.Idle[0].Count != 2 || c.Idle[0].Reason != "stay: the gain is 22 s" ||
		c.Idle[1].Reason != "no worker is full" || c.Idle[1].Count != 1 {
		t.Errorf("%+v", c.Idle)
	}
}
