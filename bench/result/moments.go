package result

import (
	"math"
	"math/big"
	"math/bits"
	"slices"

	"lorasim/sim/tick"
)

// moments holds the count, the exact sum and sum of squares, and the extremes of
// non-negative durations. 2^63 durations of 2^63 ticks fit, so nothing overflows. The
// order of the additions does not matter.
type moments struct {
	n            int64
	sum, squares uint192
	min, max     tick.Ticks
}

// add adds n durations of length d.
func (m *moments) add(d tick.Ticks, n int64) {
	m.extremes(d, d)
	hi, lo := bits.Mul64(uint64(d), uint64(d))
	m.n += n
	m.sum.add(0, uint64(d), n)
	m.squares.add(hi, lo, n)
}

// addRun adds k durations, first, first+step, ..., each n times. The sum of the k
// durations must not exceed tick.Max, which holds for consecutive steps of a run. Then
// each product below fits its width.
func (m *moments) addRun(first, step tick.Ticks, k, n int64) {
	if k <= 0 {
		return
	}
	m.extremes(first, first+step*tick.Ticks(k-1))
	a, d, c := uint64(first), uint64(step), uint64(k)
	p := d * (c * (c - 1) / 2) // sum of step*j
	m.n += k * n
	m.sum.add(0, c*a+p, n)
	// sum of (a + d*j)^2 = c*a^2 + 2*a*p + d^2*(c-1)*c*(2c-1)/6
	hi, lo := bits.Mul64(a, a)
	m.squares.add(hi, lo, k*n)
	hi, lo = bits.Mul64(2*a, p)
	m.squares.add(hi, lo, n)
	pairs, odd := c*(c-1)/2, 2*c-1 // one of them is a multiple of 3
	if c%3 == 2 {
		odd /= 3
	} else {
		pairs /= 3
	}
	hi, lo = bits.Mul64(d*pairs, d*odd)
	m.squares.add(hi, lo, n)
}

func (m *moments) extremes(low, high tick.Ticks) {
	if m.n == 0 {
		m.min, m.max = low, high
		return
	}
	m.min, m.max = min(m.min, low), max(m.max, high)
}

// total returns the sum in ticks.
func (m *moments) total() float64 { return math.Ldexp(float64(m.sum[1]), 64) + float64(m.sum[0]) }

// mean returns the mean in ticks; 0 without durations.
func (m *moments) mean() float64 {
	if m.n == 0 {
		return 0
	}
	q, r := bits.Div64(m.sum[1], m.sum[0], uint64(m.n))
	return float64(q) + float64(r)/float64(m.n)
}

// std returns the population standard deviation in ticks. It computes
// n^2 var = n*sum(x^2) - sum(x)^2 in exact integers, so there is no cancellation.
func (m *moments) std() float64 {
	if m.n == 0 {
		return 0
	}
	sum, squares := m.sum.big(), m.squares.big()
	squares.Mul(squares, big.NewInt(m.n))
	squares.Sub(squares, sum.Mul(sum, sum))
	v, _ := new(big.Float).SetInt(squares).Float64()
	return math.Sqrt(v) / float64(m.n)
}

// uint192 is a number of three words, the lowest first.
type uint192 [3]uint64

// add adds n times the number of the words hi and lo.
func (u *uint192) add(hi, lo uint64, n int64) {
	carried, low := bits.Mul64(lo, uint64(n))
	top, mid := bits.Mul64(hi, uint64(n))
	mid, c := bits.Add64(mid, carried, 0)
	top += c
	u[0], c = bits.Add64(u[0], low, 0)
	u[1], c = bits.Add64(u[1], mid, c)
	u[2] += top + c
}

func (u *uint192) big() *big.Int {
	n := new(big.Int)
	for _, word := range slices.Backward(u[:]) {
		n.Or(n.Lsh(n, 64), new(big.Int).SetUint64(word))
	}
	return n
}
