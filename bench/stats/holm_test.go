package stats

import (
	"math"
	"testing"
)

// The example of Holm's paper in most textbooks, done by hand: of four tests
// 0.005 x 4, 0.01 x 3, 0.03 x 2 and 0.04 x 1, which is not below the one before.
func TestHolm(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct{ ps, want []float64 }{
		{[]float64{0.01, 0.04, 0.03, 0.005}, []float64{0.03, 0.06, 0.06, 0.02}},
		{[]float64{0.5, 0.6}, []float64{1, 1}},
		{[]float64{nan, 0.01}, []float64{nan, 0.02}},
		{nil, nil},
	} {
		got := Holm(c.ps)
		for i, want := range c.want {
			if math.Abs(got[i]-want) > 1e-12 && !(math.IsNaN(got[i]) && math.IsNaN(want)) {
				t.Errorf("%v: %v, expected %v", c.ps, got, c.want)
			}
		}
		if len(got) != len(c.want) {
			t.Errorf("%v: %v", c.ps, got)
		}
	}
}
