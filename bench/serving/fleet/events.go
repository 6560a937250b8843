package fleet

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"lorasim/internal/format"
	"lorasim/router"
)

// An EventKind is the kind of an [Event].
type EventKind string

// Kinds of events.
const (
	EventPlan     EventKind = "plan"     // a plan was applied; the text has its reason
	EventDropped  EventKind = "dropped"  // a plan was not carried out
	EventLoad     EventKind = "load"     // an adapter was loaded
	EventNotLoad  EventKind = "failed"   // a load failed
	EventUnload   EventKind = "unload"   // an adapter was unloaded
	EventMove     EventKind = "move"     // requests began to move to another worker
	EventEjected  EventKind = "ejected"  // a worker, or an adapter on it, gets no new requests for some time
	EventTrial    EventKind = "trial"    // an ejection is over; the worker takes a few requests
	EventReturned EventKind = "returned" // a worker, or an adapter on it, is back in service
	EventDown     EventKind = "down"     // a worker does not answer
	EventUp       EventKind = "up"       // a worker answers
	EventDrain    EventKind = "drain"    // an operator drains a worker, or ends its drain
	EventMember   EventKind = "member"   // a worker joins, is leaving, stays or has left
	EventChanged  EventKind = "changed"  // another process answers at the URL of a worker
)

const (
	keptEvents   = 512 // the latest events that a fleet remembers
	maxEventText = 400 // characters of the text of an event
	maxEventList = 8   // placements that the text of a plan lists
)

// An Event is a change of the fleet, for operators.
type Event struct {
	ID      int64     `json:"id"` // counts from 1
	At      time.Time `json:"at"` // wall-clock time
	Kind    EventKind `json:"kind"`
	Workers []int     `json:"workers"` // workers that the event concerns; empty: no particular ones
	Adapter string    `json:"adapter,omitempty"`
	Text    string    `json:"text"`
}

// A journal has the latest events.
type journal struct {
	mu   sync.Mutex        // guards what follows
	ring [keptEvents]Event // event number n is at ring[n%keptEvents]
	last int64             // number of the latest event; 0: none
}

func (e *journal) add(kind EventKind, adapter, text string, workers ...int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last++
	e.ring[e.last%keptEvents] = Event{e.last, time.Now(), kind, workers, adapter, format.Clip(text, maxEventText)}
}

// since returns the remembered events with an ID above after, in order.
func (e *journal) since(after int64) []Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := []Event{} // not nil: a page reads it
	for n := max(after+1, e.last-keptEvents+1, 1); n <= e.last; n++ {
		list = append(list, e.ring[n%keptEvents])
	}
	return list
}

// Events returns the latest events with an ID above after, in order. The fleet remembers 512 events.
func (f *Fleet) Events(after int64) []Event {
	return f.journal.since(after)
}

// notePlan notes a plan that changes something, or was dropped; called with mu held.
func (p *planRunner) notePlan(plan *router.Plan, err error) {
	kind := EventPlan
	switch {
	case err != nil:
		kind = EventDropped
	case plan.Empty():
		return
	}
	parts := []string{plan.Reason}
	if plan.Reason == "" {
		parts[0] = "no reason given"
	}
	if err != nil {
		parts = append(parts, "dropped: "+err.Error())
	}
	var workers []int
	add := func(w int32) {
		if !slices.Contains(workers, int(w)) {
			workers = append(workers, int(w))
		}
	}
	for _, what := range []struct {
		does string
		list []router.Placement
	}{{"loads", plan.Load}, {"unloads", plan.Unload}} {
		if len(what.list) > 0 {
			parts = append(parts, what.does+" "+p.placements(what.list))
		}
		for _, at := range what.list {
			add(at.Worker)
		}
	}
	for _, m := range plan.Move {
		add(m.From)
		add(m.To)
	}
	if n := len(plan.Move); n > 0 {
		parts = append(parts, format.Count(n, "request")+" to move")
	}
	slices.Sort(workers)
	p.journal.add(kind, "", strings.Join(parts, "; "), workers...)
}

// placements returns a list of placements for operators, such as "a on worker 1, b on worker 2 and 3 more".
// Called with mu held.
func (p *planRunner) placements(list []router.Placement) string {
	texts := []string{}
	for _, at := range list[:min(len(list), maxEventList)] {
		name := fmt.Sprint("adapter ", at.Adapter) // an unknown one is why a plan is dropped
		if at.Adapter >= 0 && int(at.Adapter) < len(p.catalog.list()) {
			name = p.catalog.name(at.Adapter)
		}
		texts = append(texts, fmt.Sprintf("%s on worker %d", name, at.Worker))
	}
	text := strings.Join(texts, ", ")
	if n := len(list) - len(texts); n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

// noteMoves notes the requests that a plan has begun to move, by source and destination.
func (p *planRunner) noteMoves(moved []router.Move) {
	type way struct{ from, to int32 }
	var ways []way
	counts := map[way]int{}
	for _, m := range moved {
		w := way{m.From, m.To}
		if counts[w]++; counts[w] == 1 {
			ways = append(ways, w)
		}
	}
	defer p.table.lock()()
	for _, w := range ways {
		requests := format.Count(counts[w], "request")
		p.journal.add(EventMove, "", fmt.Sprintf("%s from worker %d to worker %d", requests, w.from, w.to), int(w.from),
			int(w.to))
	}
}
