package info

import (
	"math"
	"math/bits"
)

// moments holds mean and variance of a stream of numbers (Welford,
// "Note on a method for calculating corrected sums of squares and products",
// Technometrics 4(3), 1962).
type moments struct {
	n       int64
	mean    float64
	squares float64 // sum of squared deviations from the mean
}

func (m *moments) add(x float64) {
	m.n++
	d := x - m.mean
	m.mean += d / float64(m.n)
	m.squares += d * (x - m.mean)
}

// cv is the coefficient of variation; NaN for less than two numbers.
func (m *moments) cv() Number {
	if m.n < 2 {
		return Number(math.NaN())
	}
	return Number(math.Sqrt(m.squares/float64(m.n)) / m.mean)
}

// dispersion counts arrivals per window. Only whole windows enter the sums.
type dispersion struct {
	window  float64 // s
	current int64   // window of the last arrival
	count   int64   // arrivals in it so far
	sum     float64 // over the windows before
	squares float64
}

func (d *dispersion) add(t float64) {
	if w := int64(t / d.window); w != d.current {
		n := float64(d.count)
		d.sum += n
		d.squares += n * n
		d.current, d.count = w, 0
	}
	d.count++
}

// index is variance over mean; NaN for less than two windows or no arrivals.
func (d *dispersion) index() Number {
	n := float64(d.current)
	if n < 2 || d.sum == 0 {
		return Number(math.NaN())
	}
	mean := d.sum / n
	return Number((d.squares/n - mean*mean) / mean)
}

// locality counts the requests that repeat a recent adapter.
type locality struct {
	recent   [LocalityWindow]int32 // the latest first
	known    int
	requests int64
	hits     int64
}

func (l *locality) add(adapter int32) {
	at := 0
	for at < l.known && l.recent[at] != adapter {
		at++
	}
	switch {
	case at < l.known:
		l.hits++
	case l.known < LocalityWindow:
		l.known++
	default:
		at--
	}
	copy(l.recent[1:at+1], l.recent[:at])
	l.recent[0] = adapter
	l.requests++
}

// share leaves out the first request, which has none before it.
func (l *locality) share() Number {
	if l.requests < 2 {
		return Number(math.NaN())
	}
	return Number(float64(l.hits) / float64(l.requests-1))
}

// histogram counts token numbers: one by one below exactBelow, above in
// subBuckets per octave, so within 1/1024 of the number.
type histogram struct {
	exact  []int64
	coarse []int64
	n      int64
	total  int64
	max    int64
}

const (
	exactBits  = 16
	exactBelow = 1 << exactBits
	subBits    = 10
	subBuckets = 1 << subBits
)

func newHistogram() *histogram {
	return &histogram{
		exact:  make([]int64, exactBelow),
		coarse: make([]int64, (31-exactBits)*subBuckets),
	}
}

func (h *histogram) add(v int32) {
	h.n++
	h.total += int64(v)
	h.max = max(h.max, int64(v))
	if v < exactBelow {
		h.exact[v]++
		return
	}
	octave := bits.Len32(uint32(v)) - 1
	sub := int(v)>>(octave-subBits) - subBuckets
	h.coarse[(octave-exactBits)*subBuckets+sub]++
}

// each calls do with the numbers in ascending order, and how often each occurs,
// until it returns false. A coarse bucket stands for its middle.
func (h *histogram) each(do func(value, count int64) bool) {
	for v, n := range h.exact {
		if n > 0 && !do(int64(v), n) {
			return
		}
	}
	for i, n := range h.coarse {
		octave, sub := i/subBuckets+exactBits, int64(i%subBuckets)
		width := int64(1) << (octave - subBits)
		if n > 0 && !do(min((subBuckets+sub)*width+width/2, h.max), n) {
			return
		}
	}
}

// quantile interpolates linearly between order statistics.
func (h *histogram) quantile(q float64) Number {
	if h.n == 0 {
		return Number(math.NaN())
	}
	at := q * float64(h.n-1)
	lower := int64(at)
	lo, hi, seen := int64(-1), int64(-1), int64(0)
	h.each(func(value, count int64) bool {
		seen += count
		if lo < 0 && seen > lower {
			lo = value
		}
		if seen > lower+1 {
			hi = value
		}
		return hi < 0
	})
	if hi < 0 {
		hi = lo // the largest
	}
	return Number(float64(lo) + (at-float64(lower))*float64(hi-lo))
}

func (h *histogram) tokens() Tokens {
	return Tokens{
		Total: h.total,
		Mean:  Number(float64(h.total) / float64(h.n)),
		P50:   h.quantile(0.5),
		P90:   h.quantile(0.9),
		P95:   h.quantile(0.95),
		P99:   h.quantile(0.99),
		Max:   h.max,
	}
}
