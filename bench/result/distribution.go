package result

import (
	"math"
	"math/big"
	"math/bits"
	"slices"

	"lorasim/internal/tick"
)

// distribution summarises durations: mean, std and extremes exactly, and the
// percentiles exactly too while there are at most limit samples, from a
// histogram afterwards. A limit of 0 makes it start with the histogram.
type distribution struct {
	moments
	limit int
	bits  uint // resolution of the histogram
	exact []tick.Ticks
	hist  *Histogram
}

// add counts one duration; a negative one, which only a clock that went back
// can give, counts as 0.
func (d *distribution) add(v tick.Ticks) {
	if d.hist != nil || len(d.exact) >= d.limit {
		d.addMany(v, 1)
		return
	}
	v = max(v, 0)
	d.moments.add(v, 1)
	d.exact = append(d.exact, v)
}

// addMany counts n durations of length v.
func (d *distribution) addMany(v tick.Ticks, n int64) {
	if n <= 0 {
		return
	}
	v = max(v, 0)
	d.fold()
	d.moments.add(v, n)
	d.hist.Add(v, n)
}

// addRun counts the durations first, first+step, ... (k of them, n times each),
// none of which may be negative; step may be.
func (d *distribution) addRun(first, step tick.Ticks, k, n int64) {
	if step < 0 {
		first += step * tick.Ticks(k-1)
		step = -step
	}
	d.fold()
	d.moments.addRun(first, step, k, n)
	d.hist.AddRun(first, step, k, n)
}

// fold moves the samples into the histogram.
func (d *distribution) fold() {
	if d.hist != nil {
		return
	}
	d.hist = NewHistogram(d.bits)
	for _, v := range d.exact {
		d.hist.Add(v, 1)
	}
	d.exact = nil
}

// approximate says whether percentiles come from the histogram.
func (d *distribution) approximate() bool { return d.hist != nil && d.n > 0 }

// percentiles returns percentiles, given in ascending order, in ticks as numpy's
// default does: linear interpolation between the two closest ranks, from the
// nearer one so that both are met exactly; 0 where there is no sample.
func (d *distribution) percentiles(ps ...float64) []float64 {
	out := make([]float64, len(ps))
	from := 0 // exact[:from] are in place: none of the others is smaller
	for i, p := range ps {
		if d.n == 0 {
			break
		}
		floor, t := math.Modf(float64(d.n-1) * (p / 100))
		k := int(floor)
		var a, b float64
		if d.hist == nil {
			a = float64(nth(d.exact[from:], k-from))
			from, b = k, a
			if rest := d.exact[k+1:]; len(rest) > 0 {
				b = float64(slices.Min(rest))
			}
		} else {
			at := func(k int64) float64 { return min(max(d.hist.At(k), float64(d.min)), float64(d.max)) }
			a, b = at(int64(k)), at(min(int64(k)+1, d.n-1))
		}
		if out[i] = a + (b-a)*t; t >= 0.5 {
			out[i] = b - (b-a)*(1-t)
		}
	}
	return out
}

// nth returns the element of rank k of xs and puts it where sorting would, none
// smaller behind it (C. A. R. Hoare, Algorithm 65: FIND, CACM 1961).
func nth(xs []tick.Ticks, k int) tick.Ticks {
	lo, hi := 0, len(xs)-1
	for lo < hi {
		a, b, c := xs[lo], xs[lo+(hi-lo)/2], xs[hi]
		pivot := max(min(a, b), min(max(a, b), c)) // the median of the three
		i, j := lo, hi
		for i <= j {
			for xs[i] < pivot {
				i++
			}
			for xs[j] > pivot {
				j--
			}
			if i <= j {
				xs[i], xs[j] = xs[j], xs[i]
				i++
				j--
			}
		}
		switch {
		case k <= j:
			hi = j
		case k >= i:
			lo = i
		default:
			return xs[k]
		}
	}
	return xs[k]
}

// ms converts ticks held in a float to milliseconds.
func ms(ticks float64) float64 { return ticks / float64(tick.Millisecond) }

// Stats summarises one latency in milliseconds.
type Stats struct {
	Mean   float64 `json:"mean_ms"`
	Median float64 `json:"median_ms"`
	Std    float64 `json:"std_ms"`
	P90    float64 `json:"p90_ms"`
	P95    float64 `json:"p95_ms"`
	P99    float64 `json:"p99_ms"`
	Max    float64 `json:"max_ms"`
}

func (d *distribution) stats() Stats {
	p := d.percentiles(50, 90, 95, 99)
	return Stats{
		Mean: ms(d.mean()), Median: ms(p[0]), Std: ms(d.std()),
		P90: ms(p[1]), P95: ms(p[2]), P99: ms(p[3]), Max: ms(float64(d.max)),
	}
}

// moments keeps the count, the exact sum and sum of squares, and the extremes
// of non-negative durations: 2^63 durations of 2^63 ticks fit, so nothing
// overflows, and the order of the additions does not matter.
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
	m.n += k * n
	m.sum.add(0, c*a+p, n)
	// sum of (a + d*j)^2 = c*a^2 + 2*a*p + d^2*(c-1)*c*(2c-1)/6
	hi, lo := bits.Mul64(a, a)
	m.squares.add(hi, lo, k*n)
	hi, lo = bits.Mul64(2*a, p)
	m.squares.add(hi, lo, n)
	hi, lo = bits.Mul64(p, d*(2*c-1))
	hi, rest := bits.Div64(0, hi, 3)
	lo, _ = bits.Div64(rest, lo, 3)
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
	sum, squares := m.sum.big(), m.squares.big()
	squares.Mul(squares, big.NewInt(m.n))
	squares.Sub(squares, sum.Mul(sum, sum))
	v, _ := new(big.Float).SetInt(squares).Float64()
	return math.Sqrt(v) / float64(m.n)
}

// uint192 is a number of three words, the low one first.
type uint192 [3]uint64

// add adds n times a number of two words.
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

// Histogram counts durations in log-linear bins: below 2^(bits+1) ticks every
// value has its own bin, above it every power of two is split into 2^bits
// equal bins, so that a bin is never wider than 2^-bits of its values (0.05 %
// for 11 bits). The bin of a value comes from its bit length alone; the idea is
// that of HdrHistogram (G. Tene, 2012).
//
// Memory follows the range of the values seen, at most (64-bits)*2^bits
// counters. The zero Histogram is not ready for use: see NewHistogram.
type Histogram struct {
	bits   uint
	lo     int // bin of counts[0]
	counts []int64
	n      int64
}

// NewHistogram returns an empty histogram whose bins are at most 2^-bits of
// their values wide.
func NewHistogram(bits uint) *Histogram { return &Histogram{bits: bits} }

// Count returns the number of values added.
func (h *Histogram) Count() int64 { return h.n }

func (h *Histogram) bin(v tick.Ticks) int {
	shift := bits.Len64(uint64(v)|1<<h.bits) - int(h.bits) - 1
	return shift<<h.bits + int(v>>shift)
}

// bounds returns the smallest value of a bin and the bin's width.
func (h *Histogram) bounds(bin int) (low, width tick.Ticks) {
	shift := max(bin>>h.bits-1, 0)
	return tick.Ticks(bin-shift<<h.bits) << shift, 1 << shift
}

// Add counts n durations of length d; d must not be negative.
func (h *Histogram) Add(d tick.Ticks, n int64) {
	h.n += n
	*h.at(h.bin(d)) += n
}

// at is the count of a bin.
func (h *Histogram) at(bin int) *int64 {
	if uint(bin-h.lo) >= uint(len(h.counts)) {
		h.grow(bin)
	}
	return &h.counts[bin-h.lo]
}

// grow makes room for a bin, by at least half of what is there so that growing
// costs nothing in the long run.
func (h *Histogram) grow(bin int) {
	const step = 64
	old := len(h.counts)
	lo, end := h.lo, h.lo+old
	switch {
	case old == 0:
		lo = max(bin-step/2, 0)
		end = lo + step
	case bin < lo:
		lo = max(min(bin, lo-old/2-step), 0)
	default:
		end = max(bin+1, end+old/2+step)
	}
	counts := make([]int64, end-lo)
	if old > 0 {
		copy(counts[h.lo-lo:], h.counts)
	}
	h.lo, h.counts = lo, counts
}

// AddRun counts an arithmetic progression of k durations, first, first+step,
// first+2*step, ..., each n times; neither first nor step may be negative. It
// costs no more than the lesser of k and the number of bins touched.
func (h *Histogram) AddRun(first, step tick.Ticks, k, n int64) {
	const short = 8 // terms below which a division costs more than it saves
	if k <= 0 {
		return
	}
	h.n += k * n
	bin, last := h.bin(first), h.bin(first+step*tick.Ticks(k-1))
	for ; bin != last; bin = h.bin(first) {
		m := int64(1)
		if k > short {
			low, width := h.bounds(bin)
			m = int64((low+width-1-first)/step) + 1
		}
		*h.at(bin) += m * n
		first += step * tick.Ticks(m)
		k -= m
	}
	*h.at(last) += k * n
}

// At estimates the value of rank r, counted from 0, of the values in ascending
// order, as if the values of a bin lay evenly in it. It is off by less than the
// bin's width.
func (h *Histogram) At(r int64) float64 {
	for i, c := range h.counts {
		if r < c {
			low, width := h.bounds(h.lo + i)
			return float64(low) + float64(width-1)*(float64(r)+0.5)/float64(c)
		}
		r -= c
	}
	return 0
}
