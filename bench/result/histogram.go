package result

import (
	"math/bits"

	"lorasim/internal/tick"
)

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
	lo     int     // bin of counts[0]
	counts []int64 // by bin - lo
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
	i := h.bin(d) - h.lo
	if uint(i) >= uint(len(h.counts)) {
		i = h.grow(i)
	}
	h.counts[i] += n
	h.n += n
}

// grow makes room for bin lo+i, by at least half of what is there so that
// growing costs nothing in the long run, and returns the bin's new index.
func (h *Histogram) grow(i int) int {
	const step = 64
	old := len(h.counts)
	spare := old/2 + step
	switch {
	case old == 0:
		h.lo = max(i+h.lo-step/2, 0)
		h.counts = make([]int64, step)
		return i - h.lo
	case i < 0:
		shift := min(max(-i, spare), h.lo)
		counts := make([]int64, old+shift)
		copy(counts[shift:], h.counts)
		h.lo -= shift
		h.counts = counts
		return i + shift
	default:
		counts := make([]int64, max(i+1, old+spare))
		copy(counts, h.counts)
		h.counts = counts
		return i
	}
}

// AddRun counts an arithmetic progression of k durations, first, first+step,
// first+2*step, ..., each n times; neither first nor step may be negative. It
// costs no more than the lesser of k and the number of bins touched.
func (h *Histogram) AddRun(first, step tick.Ticks, k, n int64) {
	const short = 8 // terms below which a division costs more than it saves
	if k <= 0 {
		return
	}
	if last := first + step*tick.Ticks(k-1); h.bin(first) == h.bin(last) {
		h.Add(first, k*n)
		return
	}
	if k <= short {
		for ; k > 0; k-- {
			h.Add(first, n)
			first += step
		}
		return
	}
	for k > 0 {
		low, width := h.bounds(h.bin(first))
		m := min(int64((low+width-1-first)/step)+1, k)
		h.Add(first, m*n)
		first += step * tick.Ticks(m)
		k -= m
	}
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
