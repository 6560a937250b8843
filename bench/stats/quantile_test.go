package stats

import "testing"

// numpy.quantile([1, 2, 4, 8], [0, 0.25, 0.5, 0.9, 1]) is 1, 1.75, 3, 6.8, 8.
func TestQuantile(t *testing.T) {
	xs := []float64{1, 2, 4, 8}
	for p, want := range map[float64]float64{0: 1, 0.25: 1.75, 0.5: 3, 0.9: 6.8, 1: 8} {
		if got := Quantile(xs, p); !near(got, want, 1e-12) {
			t.Errorf("%v: %v, expected %v", p, got, want)
		}
	}
	mixed := []float64{8, 1, 4, 2}
	if got := QuantileOf(mixed, 0.5); got != 3 || mixed[0] != 8 {
		t.Errorf("median of values in any order: %v, which are then %v", got, mixed)
	}
	if got := Quantile([]float64{5}, 0.3); got != 5 {
		t.Errorf("of one value: %v", got)
	}
}

// Student's t from printed tables: 12.706 (1 degree of freedom), 2.776 (4).
func TestTQuantile(t *testing.T) {
	for freedom, want := range map[float64]float64{0.2: 12.706, 1: 12.706, 4: 2.776} {
		if got := TQuantile(0.975, freedom); !near(got, want, 1e-3) {
			t.Errorf("%v degrees of freedom: %v, expected %v", freedom, got, want)
		}
	}
}
