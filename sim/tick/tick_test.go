package tick

import (
	"testing"

	"pgregory.net/rapid"
)

// A time survives the way to seconds and back as long as a float64 can tell
// neighbouring ticks apart (6 hours here).
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := Ticks(rapid.Int64Range(-1<<51, 1<<51).Draw(t, "ticks"))
		if got := FromSeconds(x.Seconds()); got != x {
			t.Fatalf("%d ticks became %d", x, got)
		}
		if got := FromMilliseconds(x.Milliseconds()); got != x {
			t.Fatalf("%d ticks became %d by way of ms", x, got)
		}
	})
}

func TestFactors(t *testing.T) {
	for _, c := range []struct {
		s    float64
		want Ticks
	}{{1, 100_000_000_000}, {1e-6, Microsecond}, {0.001, Millisecond}, {1e-11, 1}, {0.4e-11, 0}, {0.6e-11, 1}} {
		if got := FromSeconds(c.s); got != c.want {
			t.Errorf("%v s are %d ticks, expected %d", c.s, got, c.want)
		}
	}
	if years := Max.Seconds() / (365 * 24 * 3600); years < 2 || Never <= Max {
		t.Errorf("a run may last %v years", years)
	}
}
