package result

import (
	"math"
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
// counters of four bytes: adding a value costs what finding its counter in the
// caches does. The zero Histogram is not ready for use: see NewHistogram.
type Histogram struct {
	bits   uint
	lo     int           // bin of counts[0]
	counts []uint32      // by bin - lo, modulo 2^32
	high   map[int]int64 // by bin, what counts lacks, in units of 2^32
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
	h.n += n
	c := uint64(h.counts[i]) + uint64(n)
	h.counts[i] = uint32(c)
	if c > math.MaxUint32 {
		if h.high == nil {
			h.high = map[int]int64{}
		}
		h.high[i+h.lo] += int64(c >> 32)
	}
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
		h.counts = make([]uint32, step)
		return i - h.lo
	case i < 0:
		shift := min(max(-i, spare), h.lo)
		counts := make([]uint32, old+shift)
		copy(counts[shift:], h.counts)
		h.lo -= shift
		h.counts = counts
		return i + shift
	default:
		counts := make([]uint32, max(i+1, old+spare))
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
	last := h.bin(first + step*tick.Ticks(k-1))
	if k <= short && h.bin(first) != last {
		for ; k > 0; k-- {
			h.Add(first, n)
			first += step
		}
		return
	}
	for {
		bin := h.bin(first)
		if bin == last {
			h.Add(first, k*n)
			return
		}
		low, width := h.bounds(bin)
		m := int64((low+width-1-first)/step) + 1
		h.Add(first, m*n)
		first += step * tick.Ticks(m)
		k -= m
	}
}

// At estimates the value of rank r, counted from 0, of the values in ascending
// order, as if the values of a bin lay evenly in it. It is off by less than the
// bin's width.
func (h *Histogram) At(r int64) float64 {
	for i, low := range h.counts {
		c := int64(low) + h.high[i+h.lo]<<32
		if r < c {
			low, width := h.bounds(h.lo + i)
			return float64(low) + float64(width-1)*(float64(r)+0.5)/float64(c)
		}
		r -= c
	}
	return 0
}
