package result

import (
	"math/bits"

	"lorasim/sim/tick"
)

// A Histogram counts durations in log-linear bins. Below 2^(bits+1) ticks every value has
// its own bin. Above it every power of two is split into 2^bits equal bins. So a bin is
// never wider than 2^-bits of its values (0.05 % for 11 bits). The bin of a value follows
// from its bit length alone, as in HdrHistogram (G. Tene, 2012).
//
// Memory grows with the range of the values seen, up to (64-bits)*2^bits counters. The
// zero Histogram is not ready for use; see NewHistogram.
type Histogram struct {
	bits   uint
	lo     int // bin of counts[0]
	counts []int64
	n      int64
}

// NewHistogram returns an empty histogram. Its bins are at most 2^-bits of their values
// wide.
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

// at returns a pointer to the count of a bin.
func (h *Histogram) at(bin int) *int64 {
	if uint(bin-h.lo) >= uint(len(h.counts)) {
		h.grow(bin)
	}
	return &h.counts[bin-h.lo]
}

// grow makes room for a bin. It adds at least half of the present size, so that the
// amortized cost is constant.
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
// first+2*step, ..., each n times. Neither first nor step may be negative. Its cost is
// proportional to k or to the number of bins touched, whichever is less.
func (h *Histogram) AddRun(first, step tick.Ticks, k, n int64) {
	const short = 8 // terms, of a run or of a bin, below which a division costs more than it saves
	if k <= 0 {
		return
	}
	h.n += k * n
	bin, last := h.bin(first), h.bin(first+step*tick.Ticks(k-1))
	if shift := bin >> h.bits; last>>h.bits == shift && bin != last && int64(last-bin)*short > k {
		if shift--; shift < 0 { // the lowest bins have the width of those above them
			shift = 0
		}
		h.at(bin)
		h.at(last)
		counts, v := h.counts, first
		for base := shift<<h.bits - h.lo; k > 0; k-- {
			counts[base+int(v>>shift)] += n
			v += step
		}
		return
	}
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

// At returns an estimate of the value of rank r, counted from 0 in ascending order, in
// ticks. It assumes that the values of a bin are evenly spaced. The error is less than the
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
