package result

import (
	"math"
	"math/big"
	"math/bits"

	"lorasim/internal/tick"
)

// moments keeps the count, the exact sum and sum of squares, and the extremes
// of non-negative durations. The sum has 128 bits and the sum of squares 192:
// 2^63 durations of 2^63 ticks fit, so nothing overflows, and the order of the
// additions does not matter.
type moments struct {
	n        int64
	sum      [2]uint64 // low word first
	squares  [3]uint64
	min, max tick.Ticks
}

// add adds n durations of length d.
func (m *moments) add(d tick.Ticks, n int64) {
	m.extremes(d, d)
	hi, lo := bits.Mul64(uint64(d), uint64(d))
	m.n += n
	m.addSums(uint64(d), hi, lo, n)
}

// addRun adds the durations first, first+step, ... (k of them, n times each).
// Together the k durations must not exceed tick.Max, which holds when they are
// consecutive steps of a run; then each product below fits its width.
func (m *moments) addRun(first, step tick.Ticks, k, n int64) {
	if k <= 0 {
		return
	}
	m.extremes(first, first+step*tick.Ticks(k-1))

	a, d, c := uint64(first), uint64(step), uint64(k)
	p := d * (c * (c - 1) / 2) // sum of step*j
	// sum of (a + d*j)^2 = c*a^2 + 2*a*p + d^2*(c-1)*c*(2c-1)/6
	hi, lo := bits.Mul64(a, a)
	hi, lo = mul128(hi, lo, c)
	h2, l2 := bits.Mul64(2*a, p)
	h3, l3 := bits.Mul64(p, d*(2*c-1))
	h3, rem := bits.Div64(0, h3, 3)
	l3, _ = bits.Div64(rem, l3, 3)
	var carry uint64
	lo, carry = bits.Add64(lo, l2, 0)
	hi, _ = bits.Add64(hi, h2, carry)
	lo, carry = bits.Add64(lo, l3, 0)
	hi, _ = bits.Add64(hi, h3, carry)
	m.n += k * n
	m.addSums(c*a+p, hi, lo, n)
}

// addSums adds n times a sum and a 128-bit sum of squares.
func (m *moments) addSums(sum, sqHi, sqLo uint64, n int64) {
	if n != 1 {
		w := uint64(n)
		hi, lo := bits.Mul64(sum, w)
		m.addSum(hi, lo)
		// (sqHi, sqLo) * w, 192 bits wide
		mid, low := bits.Mul64(sqLo, w)
		top, mid2 := bits.Mul64(sqHi, w)
		mid, carry := bits.Add64(mid, mid2, 0)
		m.addSquares(top+carry, mid, low)
		return
	}
	m.addSum(0, sum)
	m.addSquares(0, sqHi, sqLo)
}

func (m *moments) addSum(hi, lo uint64) {
	var c uint64
	m.sum[0], c = bits.Add64(m.sum[0], lo, 0)
	m.sum[1] += hi + c
}

func (m *moments) addSquares(top, mid, low uint64) {
	var c uint64
	m.squares[0], c = bits.Add64(m.squares[0], low, 0)
	m.squares[1], c = bits.Add64(m.squares[1], mid, c)
	m.squares[2] += top + c
}

func (m *moments) extremes(low, high tick.Ticks) {
	if m.n == 0 {
		m.min, m.max = low, high
		return
	}
	m.min, m.max = min(m.min, low), max(m.max, high)
}

// mul128 multiplies a 128-bit number by a 64-bit one; the product must fit in
// 128 bits.
func mul128(hi, lo, f uint64) (uint64, uint64) {
	h, l := bits.Mul64(lo, f)
	return h + hi*f, l
}

// total returns the sum in ticks.
func (m *moments) total() float64 {
	return math.Ldexp(float64(m.sum[1]), 64) + float64(m.sum[0])
}

// mean returns the mean in ticks, 0 if there is nothing to average.
func (m *moments) mean() float64 {
	if m.n == 0 {
		return 0
	}
	q, r := bits.Div64(m.sum[1], m.sum[0], uint64(m.n))
	return float64(q) + float64(r)/float64(m.n)
}

// std returns the population standard deviation in ticks, from
// n^2 var = n*sum(x^2) - sum(x)^2 in exact integers, which no cancellation hurts.
func (m *moments) std() float64 {
	if m.n == 0 {
		return 0
	}
	sum, squares := wide(m.sum[:]), wide(m.squares[:])
	squares.Mul(squares, big.NewInt(m.n))
	squares.Sub(squares, sum.Mul(sum, sum))
	v, _ := new(big.Float).SetInt(squares).Float64()
	return math.Sqrt(v) / float64(m.n)
}

// wide turns words, the low one first, into a number.
func wide(words []uint64) *big.Int {
	n := new(big.Int)
	for i := len(words) - 1; i >= 0; i-- {
		n.Lsh(n, 64)
		n.Or(n, new(big.Int).SetUint64(words[i]))
	}
	return n
}
