package record

import (
	"testing"

	"lorasim/internal/tick"
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

func TestLatencies(t *testing.T) {
	r := Request{Arrival: 1, Sent: 1.5, FirstToken: 2, Finish: 5}
	if r.ClientQueue() != 0.5 || r.TTFT() != 0.5 || r.E2E() != 3.5 {
		t.Errorf("queue %v, TTFT %v, E2E %v; expected 0.5, 0.5, 3.5", r.ClientQueue(), r.TTFT(), r.E2E())
	}
}

func TestStreaming(t *testing.T) {
	for s, want := range map[string]Streaming{"yes": StreamingIf(true), "no": StreamingIf(false), "": StreamingUnknown, "Yes": StreamingUnknown} {
		if got := ParseStreaming(s); got != want {
			t.Errorf("%q reads as %q, expected %q", s, got, want)
		}
	}
}
