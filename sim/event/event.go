// Package event implements the clock and the event queue of a simulation. Events of one instant run by kind; events of
// one kind run in the order in which they were scheduled.
//
//	var loop event.Loop
//	loop.At(tick.Second, event.StepEnd, func() { ... })
//	loop.MoveTo(loop.Next())
//	loop.Run()
//
// Invariants ([Loop.Check]): no event lies in the past; the first event is the least by time, kind and number; the loop
// is idle only if no event keeps the simulation running.
package event

import (
	"fmt"

	"lorasim/internal/heap"
	"lorasim/sim/tick"
)

// Kind orders the events of an instant. Events that free or remove capacity come before arrivals, so that requests see
// the new capacity. Planning comes after arrivals.
type Kind int64

// The kinds of events, in the order in which they run at one instant.
const (
	StepEnd  Kind = iota // an engine's step ends
	LoadEnd              // an adapter load beside the steps ends
	Transfer             // a copy of a KV cache, or a round of it, is complete
	Down                 // a worker fails
	Up                   // a worker recovers, or has started
	Release              // requests that waited for a worker are dispatched
	Off                  // a drained worker leaves
	Enter                // a request has passed a server's front end
	Arrivals             // marks the place of arrivals in the order; never scheduled
	Apply                // a plan is solved
	Scale                // the autoscaler decides, or a scheduled size takes effect
	Plan                 // the planner's interval is over
	end
)

// order ranks events of the same instant: by kind, then by number.
func (k Kind) order(n int64) int64 { return int64(k)<<48 | n }

// Loop is a clock and its queue of events. The zero value is a loop at time 0 without events.
type Loop struct {
	now        tick.Ticks
	events     heap.Heap[func()] // by time, then kind and number
	seq        int64             // of the latest event
	background int               // events that do not keep the simulation running
	yielded    []func()
}

// Now returns the current time.
func (l *Loop) Now() tick.Ticks { return l.now }

// MoveTo sets the clock to t. No event before t may be left.
func (l *Loop) MoveTo(t tick.Ticks) { l.now = t }

// At schedules the function do at time t.
func (l *Loop) At(t tick.Ticks, k Kind, do func()) {
	l.seq++
	l.events.Push(heap.Entry[func()]{Key: int64(t), Tie: k.order(l.seq), Value: do})
}

// Background is At for an event that does not keep the simulation running.
func (l *Loop) Background(t tick.Ticks, k Kind, do func()) {
	l.background++
	l.At(t, k, func() {
		l.background--
		do()
	})
}

// Next returns the time of the next event, or tick.Never if there is none.
func (l *Loop) Next() tick.Ticks {
	if len(l.events) == 0 {
		return tick.Never
	}
	return tick.Ticks(l.events[0].Key)
}

// Idle reports whether all events are background events.
func (l *Loop) Idle() bool { return len(l.events) == l.background }

// RunBefore runs the due events of all kinds before k.
func (l *Loop) RunBefore(k Kind) {
	for len(l.events) > 0 && l.events[0].Key <= int64(l.now) && l.events[0].Tie < k.order(0) {
		l.events.Remove(0)()
	}
}

// Run runs all events that are due.
func (l *Loop) Run() { l.RunBefore(end) }

// Yield runs a function at the end of this instant, after all its events.
func (l *Loop) Yield(do func()) { l.yielded = append(l.yielded, do) }

// RunYielded runs the yielded functions, including those that they yield.
func (l *Loop) RunYielded() {
	for k := 0; k < len(l.yielded); k++ {
		l.yielded[k]()
	}
	l.yielded = l.yielded[:0]
}

// Check returns an error if an invariant does not hold. It is for tests, between instants.
func (l *Loop) Check() error {
	if l.background < 0 || l.background > len(l.events) {
		return fmt.Errorf("event: %d of %d events are background ones", l.background, len(l.events))
	}
	for _, e := range l.events {
		if first := &l.events[0]; e.Key < int64(l.now) || e.Key < first.Key || e.Key == first.Key && e.Tie < first.Tie {
			return fmt.Errorf("event: one at (%d, %d), the first is at (%d, %d), it is %d", e.Key, e.Tie, first.Key,
				first.Tie, l.now)
		}
	}
	return nil
}

// Timer is an event that can be moved and cancelled. At one instant, timers of a kind run by their number.
type Timer struct {
	order int64
	place int32 // in Loop.events, -1: not set
	do    func()
}

// NewTimer returns a timer that is not set.
func NewTimer(k Kind, number int, do func()) Timer {
	return Timer{order: k.order(int64(number)), place: -1, do: do}
}

// Set sets or moves a timer. A timer that is set must keep its address in memory.
func (l *Loop) Set(t *Timer, at tick.Ticks) {
	if t.place < 0 {
		l.events.Push(heap.Entry[func()]{Key: int64(at), Tie: t.order, Value: t.do, Place: &t.place})
		return
	}
	l.events[t.place].Key = int64(at)
	l.events.Fix(int(t.place))
}

// Stop cancels a timer, if it is set.
func (l *Loop) Stop(t *Timer) {
	if t.place >= 0 {
		l.events.Remove(int(t.place))
	}
}
