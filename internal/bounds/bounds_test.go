package bounds

import (
	"math"
	"testing"
)

func TestBounds(t *testing.T) {
	inf := math.Inf(1)
	for _, c := range []struct {
		text, words string
		in, out     []float64
	}{
		{"", "", []float64{-1e300, 0, 1e300}, []float64{inf, -inf}},
		{">=0", ">= 0", []float64{0, 1e300}, []float64{-1e-300, inf}},
		{">0", "> 0", []float64{1e-300}, []float64{0, -1, inf}},
		{">0 inf", "> 0, or inf", []float64{1, inf}, []float64{0, -inf}},
		{">=1e-9 <=5 0", "from 1e-09 to 5, or 0", []float64{1e-9, 5, 0}, []float64{1e-10, 5.1, inf}},
		{">=0 <1", ">= 0 and < 1", []float64{0, 0.999}, []float64{1, -1}},
		{">=1 <=100000", "from 1 to 100000", []float64{1, 100000}, []float64{0.999, 100000.1}},
		{"<=5", "<= 5", []float64{-1e9, 5}, []float64{5.1, -inf}},
	} {
		b := MustParse(c.text)
		if b.String() != c.words {
			t.Errorf("%q is %q, expected %q", c.text, b, c.words)
		}
		for _, x := range c.in {
			if !b.Has(x) {
				t.Errorf("%q is without %v", c.text, x)
			}
		}
		for _, x := range append(c.out, math.NaN()) {
			if b.Has(x) {
				t.Errorf("%q has %v", c.text, x)
			}
		}
	}
	for _, bad := range []string{"x", ">=", "=5", ">=1,<2"} {
		if _, err := Parse(bad); err == nil {
			t.Errorf("%q is taken for bounds", bad)
		}
	}
}
