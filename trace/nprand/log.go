package nprand

import "math"

// ln returns the natural logarithm of a finite x > 0 within 0.51 units in the
// last place, and the same on every machine. The C library's is as close, so
// that the two agree but for one draw in a thousand, where [math.Log] is off
// in one of fifteen and depends on the machine.
//
// With x = m * 2^e and s = (m-1)/(m+1), ln x = e ln 2 + 2(s + s^3/3 + s^5/5 +
// ...). The sum is carried as a high and a low double; T. J. Dekker, "A
// floating-point technique for extending the available precision", Numerische
// Mathematik 18, 1971. Products that are added are fused explicitly, for the
// compiler does so on some machines only.
func ln(x float64) float64 {
	const (
		ln2High = 0x1.62e42fefap-1 // times an exponent: exact
		ln2Low  = math.Ln2 - ln2High
	)
	m, exp := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m *= 2
		exp--
	}
	e := float64(exp)

	n := m - 1 // exact
	d := m + 1
	dLow := min(m, 1) - (d - max(m, 1))
	s := n / d
	sLow := math.FMA(-s, dLow, math.FMA(-s, d, n)) / d

	s2 := s * s
	s2Low := math.FMA(s, s, -s2)
	s2Low = math.FMA(2*s, sLow, s2Low)
	cube := s2 * s
	cubeLow := math.FMA(s2, s, -cube)
	cubeLow = math.FMA(s2, sLow, math.FMA(s2Low, s, cubeLow))
	third := cube / 3
	thirdLow := (math.FMA(-third, 3, cube) + cubeLow) / 3

	tail := 0.0 // s^5/5 + s^7/7 + ... up to s^27/27
	for k := 27.0; k >= 5; k -= 2 {
		tail = math.FMA(tail, s2, 1/k)
	}
	tail *= cube * s2

	a := e * ln2High
	b := a + 2*s
	bLow := 2*s - (b - a)
	c := b + 2*third
	cLow := 2*third - (c - b)
	return c + math.FMA(e, ln2Low, bLow+cLow+2*(tail+sLow+thirdLow))
}
