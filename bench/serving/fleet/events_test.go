package fleet

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"lorasim/router"
	"lorasim/trace"
)

// planned is the runner of the plans of a fleet of three workers, which are never contacted.
func planned(t *testing.T) (*planRunner, *Fleet) {
	t.Helper()
	f, err := New(Config{Connection: Connection{URLs: []string{"http://v", "http://w", "http://x"}},
		Adapters: trace.Names(20, nil), Router: &router.Router{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f.plans, f
}

// A fleet remembers its latest events in order: older ones give way, and a reader gets only those that are new to it.
func TestEventsAreBounded(t *testing.T) {
	_, f := planned(t)
	if list := f.Events(0); list == nil || len(list) != 0 {
		t.Errorf("a new fleet has the events %v, expected an empty list", list)
	}
	for i := range keptEvents + 5 {
		f.journal.add(EventLoad, "a", fmt.Sprint("event ", i+1), 1)
	}
	list := f.Events(0)
	if len(list) != keptEvents {
		t.Fatalf("%d events, expected %d", len(list), keptEvents)
	}
	for i, e := range list {
		if want := int64(i + 6); e.ID != want || e.Text != fmt.Sprint("event ", want) || e.At.IsZero() {
			t.Fatalf("event %d is %+v", i, e)
		}
	}
	for after, want := range map[int64]int{keptEvents + 5: 0, keptEvents + 4: 1, keptEvents: 5, 2: keptEvents,
		1 << 60: 0, -5: keptEvents} {
		if n := len(f.Events(after)); n != want {
			t.Errorf("after %d: %d events, expected %d", after, n, want)
		}
	}
	f.journal.add(EventDown, "", strings.Repeat("x", 10*maxEventText))
	if last := f.Events(keptEvents + 5)[0]; len(last.Text) > maxEventText+10 {
		t.Errorf("the text of an event has %d bytes", len(last.Text))
	}
}

// A plan becomes an event with its reason and its workers; one that changes nothing does not.
func TestPlanEvents(t *testing.T) {
	p, f := planned(t)
	load := []router.Placement{{Worker: 2, Adapter: 1}}
	p.notePlan(&router.Plan{Reason: "nothing"}, nil)
	p.notePlan(&router.Plan{Reason: "popular", Load: load, Unload: []router.Placement{{Worker: 0, Adapter: 3}}}, nil)
	p.notePlan(&router.Plan{Load: []router.Placement{{Worker: 1, Adapter: 99}}, Move: []router.Move{{From: 2, To: 0}}},
		errors.New("worker 1 is down"))
	many := &router.Plan{Reason: "many"}
	for a := range int32(20) {
		many.Load = append(many.Load, router.Placement{Worker: 1, Adapter: a})
	}
	p.notePlan(many, nil)
	p.noteMoves([]router.Move{{ID: 1, From: 0, To: 2}, {ID: 2, From: 0, To: 2}, {ID: 3, From: 1, To: 2}})
	name := func(a int) string { return f.catalog.name(int32(a)) }
	var names []string
	for a := range maxEventList {
		names = append(names, name(a)+" on worker 1")
	}
	for i, want := range []Event{
		{Kind: EventPlan, Workers: []int{0, 2},
			Text: fmt.Sprintf("popular; loads %s on worker 2; unloads %s on worker 0", name(1), name(3))},
		{Kind: EventDropped, Workers: []int{0, 1, 2},
			Text: "no reason given; dropped: worker 1 is down; loads adapter 99 on worker 1; 1 request to move"},
		{Kind: EventPlan, Workers: []int{1}, Text: "many; loads " + strings.Join(names, ", ") + " and 12 more"},
		{Kind: EventMove, Workers: []int{0, 2}, Text: "2 requests from worker 0 to worker 2"},
		{Kind: EventMove, Workers: []int{1, 2}, Text: "1 request from worker 1 to worker 2"},
	} {
		list := f.Events(int64(i))
		if len(list) == 0 {
			t.Fatalf("event %d is missing", i)
		}
		if e := list[0]; e.Kind != want.Kind || e.Text != want.Text || !slices.Equal(e.Workers, want.Workers) {
			t.Errorf("event %d is %+v, expected %+v", i, e, want)
		}
	}
	if n := len(f.Events(6)); n > 0 {
		t.Errorf("%d more events", n)
	}
}
