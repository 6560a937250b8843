package event

import (
	"strings"
	"testing"

	"lorasim/sim/tick"
)

func TestOrderWithinAnInstant(t *testing.T) {
	var l Loop
	var ran []string
	note := func(s string) func() { return func() { ran = append(ran, s) } }
	first, second := NewTimer(StepEnd, 0, note("step0")), NewTimer(StepEnd, 1, note("step1"))
	off := NewTimer(LoadEnd, 0, note("never"))
	l.At(5, Plan, note("plan"))
	l.At(5, Transfer, note("copy a"))
	l.At(5, Transfer, note("copy b"))
	l.Background(7, Scale, note("look"))
	l.Set(&second, 5)
	l.Set(&first, 9)
	l.Set(&first, 5) // moved
	l.Set(&off, 5)
	l.Stop(&off)
	l.Stop(&off) // no effect
	l.Yield(func() { note("begin a")(); l.Yield(note("begin b")) })
	if l.Next() != 5 || l.Idle() {
		t.Fatalf("next event at %d, idle %v; expected 5, false", l.Next(), l.Idle())
	}
	l.MoveTo(5)
	l.RunBefore(Arrivals)
	note("arrivals")()
	l.Run()
	l.RunYielded()
	if want, got := "step0 step1 copy a copy b arrivals plan begin a begin b", strings.Join(ran, " "); got != want {
		t.Errorf("ran %q, expected %q", got, want)
	}
	if l.Next() != 7 || !l.Idle() {
		t.Errorf("next event at %d, idle %v; expected 7, true", l.Next(), l.Idle())
	}
	l.MoveTo(7)
	l.Run()
	if l.RunYielded(); l.Next() != tick.Never || l.Now() != 7 || len(ran) != 9 {
		t.Errorf("%d events ran by %d, next at %d; expected 9 by 7, none left", len(ran), l.Now(), l.Next())
	}
}

// A timer knows its place among the events, the first place included, and RunBefore leaves the first timer of its kind.
func TestTimerInTheFirstPlace(t *testing.T) {
	var l Loop
	ran := 0
	timer := NewTimer(Plan, 0, func() { ran++ })
	l.Set(&timer, 5)
	l.Set(&timer, 6) // the only event is moved, not doubled
	l.MoveTo(6)
	if l.RunBefore(Plan); ran != 0 {
		t.Error("a timer ran before events of its kind are due")
	}
	if l.Run(); ran != 1 || l.Next() != tick.Never {
		t.Errorf("the timer ran %d times, next event at %d; expected once, none left", ran, l.Next())
	}
	l.Set(&timer, 9)
	if l.Stop(&timer); l.Next() != tick.Never {
		t.Errorf("next event at %d after the only timer was stopped", l.Next())
	}
}

// Each broken invariant is an error.
func TestCheck(t *testing.T) {
	for name, spoil := range map[string]func(l *Loop){
		"in the past":          func(l *Loop) { l.now = 6 },
		"not the first":        func(l *Loop) { l.events[0].Key = 8 },
		"of a later kind":      func(l *Loop) { l.events[0].Key, l.events[0].Tie = 7, Plan.order(9) },
		"background below 0":   func(l *Loop) { l.background = -1 },
		"background, no event": func(l *Loop) { l.background = 3 },
	} {
		var l Loop
		l.At(5, Down, func() {})
		l.Background(7, Scale, func() {})
		if err := l.Check(); err != nil {
			t.Fatal(err)
		}
		if spoil(&l); l.Check() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
