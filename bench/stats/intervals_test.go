package stats

import (
	"math"
	"testing"
)

// The intervals of R's binom.test.
func TestProportionInterval(t *testing.T) {
	for _, c := range []struct {
		k, n      int
		low, high float64 // R: binom.test
	}{{0, 10, 0, 0.3084971}, {10, 10, 0.6915029, 1}, {7, 10, 0.3475471, 0.9332605}, {1, 64, 0.0003955, 0.0840006}} {
		values := make([]float64, c.n)
		for i := range c.k {
			values[i] = 1
		}
		low, high := ProportionInterval(values, 0.025)
		if math.Abs(low-c.low) > 1e-4 || math.Abs(high-c.high) > 1e-4 {
			t.Errorf("%d of %d: %v to %v, expected %v to %v", c.k, c.n, low, high, c.low, c.high)
		}
	}
}

func TestMeanInterval(t *testing.T) {
	// Student's data of 1908, see sleepB; R: t.test(sleepB)$conf.int is 0.8976775 to 3.7623225
	if low, high := MeanInterval(sleepB, 0.025); math.Abs(low-0.8976775) > 1e-6 || math.Abs(high-3.7623225) > 1e-6 {
		t.Errorf("%v to %v", low, high)
	}
	if low, high := MeanInterval([]float64{3}, 0.025); !math.IsInf(low, -1) || !math.IsInf(high, 1) {
		t.Errorf("of one value: %v to %v", low, high)
	}
}

// The skewed interval reaches further to the side of the long tail, never less far than
// the t interval, and is the t interval where nothing is skewed.
func TestSkewedMeanInterval(t *testing.T) {
	right := []float64{0, 0, 0, 1, 1, 9}
	left := make([]float64, len(right))
	for i, x := range right {
		left[i] = -x
	}
	low, high := MeanInterval(right, 0.025)
	from, to := SkewedMeanInterval(right, 0.025)
	if !(from > low && to > high) {
		t.Errorf("%v to %v, by t %v to %v", from, to, low, high)
	}
	if a, b := SkewedMeanInterval(left, 0.025); math.Abs(a+to) > 1e-12 || math.Abs(b+from) > 1e-12 {
		t.Errorf("mirrored: %v to %v, expected %v to %v", a, b, -to, -from)
	}
	// by hand: skewness 3.4, n = 6, see the formula's source
	mean, n := 11.0/6, 6.0
	var m2, m3 float64
	for _, x := range right {
		m2, m3 = m2+(x-mean)*(x-mean), m3+math.Pow(x-mean, 3)
	}
	std := math.Sqrt(m2 / (n - 1))
	skew := m3 / math.Pow(std, 3) * n / (n - 1) / (n - 2)
	z := (high - mean) / std
	for _, c := range []struct{ got, z float64 }{{from, z}, {to, -z}} {
		want := mean - std*3/skew*(math.Cbrt(1+skew*(c.z-skew/(6*n)))-1)
		if math.Abs(c.got-want) > 1e-9 {
			t.Errorf("%v, expected %v", c.got, want)
		}
	}
	for _, xs := range [][]float64{{1, 2, 3}, {4, 4, 4}, {1, 5}, {1}} {
		low, high := MeanInterval(xs, 0.025)
		if a, b := SkewedMeanInterval(xs, 0.025); a != low || b != high {
			t.Errorf("%v: %v to %v, expected %v to %v", xs, a, b, low, high)
		}
	}
}

// Resamples: half the width of the t interval times sqrt(n+1).
func TestResampledMeanInterval(t *testing.T) {
	xs := []float64{2, 4, 4, 4, 6}
	low, high := ResampledMeanInterval(xs, 0.025)
	e := MeanOf(Resampled, xs)
	if math.Abs(low-e.Low) > 1e-12 || math.Abs(high-e.High) > 1e-12 {
		t.Errorf("%v to %v, expected %v to %v", low, high, e.Low, e.High)
	}
}
