package nprand

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

const bigPrecision = 300 // bits

// bigLn is ln in 300 bits, by the series of artanh after the exponent has been
// taken off.
func bigLn(x float64) *big.Float {
	number := func(v float64) *big.Float { return new(big.Float).SetPrec(bigPrecision).SetFloat64(v) }
	series := func(m float64) *big.Float { // ln m
		s := number(0).Quo(number(0).Sub(number(m), number(1)), number(0).Add(number(m), number(1)))
		s2 := number(0).Mul(s, s)
		sum, power := number(0), number(0).Set(s)
		for k := 1.0; k < 190; k += 2 {
			sum.Add(sum, number(0).Quo(power, number(k)))
			power.Mul(power, s2)
		}
		return sum.Mul(sum, number(2))
	}
	m, e := math.Frexp(x)
	return number(0).Add(series(m), number(0).Mul(number(float64(e)), series(2)))
}

func TestLnAccuracy(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var xs []float64
	for range 400 {
		u := r.Float64()
		xs = append(xs, 1-u, 1-u*0x1p-30, 1+u, math.Ldexp(1+u, r.IntN(2000)-1000), u*u*u*2)
	}
	xs = append(xs, math.SmallestNonzeroFloat64, math.MaxFloat64, math.Sqrt2/2, math.Sqrt2, 0.5, 2,
		math.Nextafter(1, 0), math.Nextafter(1, 2))
	worst, at := 0.0, 0.0
	for _, x := range xs {
		got, want := ln(x), bigLn(x)
		near, _ := want.Float64()
		ulp := math.Nextafter(math.Abs(near), math.Inf(1)) - math.Abs(near)
		diff, _ := want.Sub(want, new(big.Float).SetFloat64(got)).Float64()
		if e := math.Abs(diff) / ulp; e > worst {
			worst, at = e, x
		}
	}
	t.Logf("largest error %.4f units in the last place, at %v", worst, at)
	if worst > 0.51 {
		t.Errorf("error of %v units in the last place at %v, expected at most 0.51", worst, at)
	}
	if got := ln(1); got != 0 || math.Signbit(got) {
		t.Errorf("ln(1) = %v, expected 0", got)
	}
}
