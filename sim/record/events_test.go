package record

import (
	"testing"

	"lorasim/router"
	"lorasim/sim/tick"
)

// A watcher gets the kinds of events that it wants, in the order of the watchers.
func TestStream(t *testing.T) {
	var s Stream
	if s.Wants(EventEnded) {
		t.Error("an event is wanted without a watcher")
	}
	var got []string
	add := func(name string, kinds EventKind) {
		s.Add(Watcher{Kinds: kinds, Note: func(e *Event) { got = append(got, name) }})
	}
	add("a", EventQueued|EventEnded)
	add("b", EventEnded)
	s.Add(WatchEnds(func(r *Request) { got = append(got, r.Error) }))
	for _, k := range []EventKind{EventQueued, EventRunning, EventEnded} {
		if s.Wants(k) != (k != EventRunning) {
			t.Errorf("kind %d is wanted: %v", k, s.Wants(k))
		}
		s.Emit(&Event{Kind: k, Request: &Request{Error: "c"}})
	}
	if want := "a a b c"; len(got) != 4 || got[0]+" "+got[1]+" "+got[2]+" "+got[3] != want {
		t.Errorf("%v, expected %s", got, want)
	}
}

// For 2 s 3 requests wait beside 1 that runs, on another worker 2 run; then for 6 s
// one runs: 6 of 6 + 2 + 4 + 6.
func TestWaitingShare(t *testing.T) {
	var w Waiting
	state := func(from, to float64, workers ...router.Worker) {
		w.Watcher().Note(&Event{Kind: EventState, From: tick.FromSeconds(from), Until: tick.FromSeconds(to),
			View: &router.View{Workers: workers}})
	}
	state(1, 3, router.Worker{Queued: 3, Running: 1}, router.Worker{Running: 2})
	state(3, 9, router.Worker{Running: 1}, router.Worker{})
	if got := w.Share(); got != 6.0/18 {
		t.Errorf("%v, expected 1/3", got)
	}
	if got := new(Waiting).Share(); got != 0 {
		t.Errorf("without a request %v", got)
	}
}
