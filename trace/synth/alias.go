package synth

import (
	"math"
	"math/bits"
	"math/rand/v2"
)

// alias draws from a discrete distribution in constant time, with one random
// word per draw: Walker's alias method, with the table built as in Vose, "A
// linear algorithm for generating random numbers with a given distribution",
// IEEE TSE 17(9), 1991.
type alias struct {
	cells []aliasCell
}

// aliasCell gives its own index with probability keep/2^64, else other.
type aliasCell struct {
	keep  uint64
	other int32
}

// newAlias builds the table for shares, which add up to 1.
func newAlias(shares []float64) *alias {
	n := len(shares)
	cells := make([]aliasCell, n)
	scaled := make([]float64, n)
	var small, large []int32
	for i, s := range shares {
		scaled[i] = s * float64(n)
		if scaled[i] < 1 {
			small = append(small, int32(i))
		} else {
			large = append(large, int32(i))
		}
	}
	for len(small) > 0 && len(large) > 0 {
		s, l := small[len(small)-1], large[len(large)-1]
		small = small[:len(small)-1]
		cells[s] = aliasCell{keep: toWord(scaled[s]), other: l}
		scaled[l] -= 1 - scaled[s]
		if scaled[l] < 1 {
			large = large[:len(large)-1]
			small = append(small, l)
		}
	}
	// What is left is 1 but for rounding.
	for _, rest := range [][]int32{large, small} {
		for _, i := range rest {
			cells[i] = aliasCell{keep: math.MaxUint64, other: i}
		}
	}
	return &alias{cells: cells}
}

// toWord scales a probability below 1 to 64 bits.
func toWord(p float64) uint64 { return uint64(math.Ldexp(p, 64)) }

// draw returns an index. The high word of the product picks the cell, the low
// word is uniform within it.
func (a *alias) draw(r *rand.Rand) int32 {
	cell, frac := bits.Mul64(r.Uint64(), uint64(len(a.cells)))
	if frac < a.cells[cell].keep {
		return int32(cell)
	}
	return a.cells[cell].other
}
