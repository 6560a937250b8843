package record

import (
	"testing"

	"lorasim/sim/tick"
	"pgregory.net/rapid"
)

func TestStatusNames(t *testing.T) {
	for s := range NumStatus {
		if got, err := ParseStatus(s.String()); got != s || err != nil {
			t.Errorf("%v read back as %v, %v", s, got, err)
		}
	}
	if _, err := ParseStatus("fine"); err == nil {
		t.Error(`"fine" is not a status`)
	}
	if got := NumStatus.String(); got != "status(5)" {
		t.Errorf("one status too far is %q", got)
	}
}

// The end of a run of steps is the sum of their lengths.
func TestStepsEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) tick.Ticks { return tick.Ticks(rapid.Int64Range(0, 1e9).Draw(t, name)) }
		s := Steps{Start: draw("start"), First: draw("first"), Incr: draw("incr")}
		at := s.Start
		for i := range rapid.Int64Range(0, 50).Draw(t, "steps") {
			if got := s.End(i); got != at {
				t.Fatalf("%d steps end at %d, expected %d", i, got, at)
			}
			at += s.First + s.Incr*tick.Ticks(i)
		}
	})
}

// Until is what counting one by one gives, whether steps grow or shrink.
func TestStepsUntil(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string, least, most int64) int64 { return rapid.Int64Range(least, most).Draw(t, name) }
		s := Steps{Start: tick.Ticks(draw("start", 0, 100)), First: tick.Ticks(draw("first", 1, 300)),
			Count: draw("count", 1, 40)}
		if s.Incr = tick.Ticks(draw("incr", 0, 5)); s.Count > 1 && rapid.Bool().Draw(t, "shrinks") {
			s.Incr = -tick.Ticks(draw("decr", 0, (int64(s.First)-1)/(s.Count-1)))
		}
		at := s.Start + tick.Ticks(draw("at", -10, int64(s.End(s.Count)-s.Start)+10))
		want := int64(1)
		for want < s.Count && s.End(want) < at {
			want++
		}
		if got := s.Until(at); got != want {
			t.Fatalf("%+v until %d: %d steps, expected %d", s, at, got, want)
		}
	})
}

func TestLatencies(t *testing.T) {
	r := Request{Arrival: 1, Sent: 1.5, FirstToken: 2, Finish: 5}
	if r.ClientQueue() != 0.5 || r.TTFT() != 0.5 || r.E2E() != 3.5 {
		t.Errorf("queue %v, TTFT %v, E2E %v; expected 0.5, 0.5, 3.5", r.ClientQueue(), r.TTFT(), r.E2E())
	}
}

func TestStreaming(t *testing.T) {
	for s, want := range map[string]Streaming{"yes": StreamingIf(true), "no": StreamingIf(false), "": StreamingUnknown,
		"Yes": StreamingUnknown} {
		if got := ParseStreaming(s); got != want {
			t.Errorf("%q reads as %q, expected %q", s, got, want)
		}
	}
}
