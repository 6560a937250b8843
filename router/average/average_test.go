package average

import (
	"math"
	"testing"
)

// A mean of up to 50 numbers; then each one weighs a fiftieth.
func TestMean(t *testing.T) {
	var m Mean
	is := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: %v, expected %v", what, got, want)
		}
	}
	is("nothing", m.Or(7), 7)
	for i := range 50 {
		m.Add(float64(i))
	}
	is("mean of 0 to 49", m.Or(7), 24.5)
	m.Add(74.5)
	is("one more", m.Value, 25.5)
}
