package synth

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"

	"lorasim/internal/suggest"
)

// The kinds of Popularity.
const (
	Uniform  = "uniform"  // all alike
	Zipf     = "zipf"     // share of rank i (from 1) proportional to i^-s; Param is s >= 0
	PowerLaw = "powerlaw" // adapter int(U^(1/alpha) * K), as S-LoRA draws it; Param is alpha > 0
	MAF2     = "maf2"     // the apps of the Azure Functions trace of 2021
	Explicit = "explicit" // Weights
)

// Popularity is how requests spread over adapters. Adapter 0 is the most popular,
// unless PowerLaw has alpha > 1, which favours the last adapter, or Explicit
// weights say otherwise.
//
// PowerLaw: alpha 1 is uniform, 0.3 gives the first 20 % of the adapters 62 %
// of the requests.
//
// MAF2 follows the shares measured over the whole two weeks: the top
// 1/2/5/10/20/50 of 119 apps have 27/43.6/72.3/83.9/92.5/99.4 % of the
// invocations. Between these points the cumulative share is interpolated
// linearly in the logarithm of the rank, which keeps shares falling with rank.
// Fewer adapters than apps: app i goes to adapter i mod K, as a trace mapped
// with stride 1 does. More adapters than apps: each app is split evenly, so that
// the top x % of adapters keep the share of the top x % of apps.
type Popularity struct {
	Kind    string
	Param   float64   // Zipf: s; PowerLaw: alpha
	Weights []float64 // Explicit: one weight >= 0 per adapter
}

// ParsePopularity reads "uniform", "zipf:0.9", "powerlaw:0.3", "maf2" or
// "explicit:5,3,1". The number of zipf and powerlaw may be left out.
func ParsePopularity(s string) (p Popularity, err error) {
	name, args := splitSpec(s)
	p.Kind = name
	number := func(preset float64, what, in string) error {
		p.Param = preset
		if err := assign(args, 0, &p.Param); err != nil {
			return err
		}
		return check("popularity: "+what, p.Param, "", in)
	}
	switch name { // beyond 100 shares underflow
	case Uniform, MAF2:
		err = assign(args, 0)
	case Zipf:
		err = number(0.9, "zipf exponent", ">=0 <=100")
	case PowerLaw:
		err = number(0.3, "powerlaw alpha", ">0 <=100")
	case Explicit:
		if p.Weights, err = parseNumbers(args, 1, MaxAdapters); err == nil {
			err = checkWeights(p.Weights, func(i int) string { return fmt.Sprintf("popularity: weight %d", i+1) })
		}
	default:
		err = suggest.Unknown("name", name, []string{Uniform, Zipf, PowerLaw, MAF2, Explicit})
	}
	return parsed("popularity", s, p, err)
}

// Shares returns the share of the requests of each of k adapters. They add up to 1.
func (p Popularity) Shares(k int) ([]float64, error) {
	if p.Kind == Explicit && len(p.Weights) != k {
		return nil, fmt.Errorf("popularity: %d weights for %d adapters, expected one for each", len(p.Weights), k)
	}
	shares := make([]float64, k)
	switch p.Kind {
	case Uniform:
		return slices.Repeat([]float64{1 / float64(k)}, k), nil
	case Zipf:
		for i := range shares {
			shares[i] = math.Pow(float64(i+1), -p.Param)
		}
	case PowerLaw:
		// P(int(U^(1/alpha) * k) <= i) = ((i+1)/k)^alpha.
		below := 0.0
		for i := range shares {
			upTo := math.Pow(float64(i+1)/float64(k), p.Param)
			shares[i], below = upTo-below, upTo
		}
	case MAF2:
		cells := max(k, maf2Apps)
		below := 0.0
		for i := range cells {
			upTo := maf2Cumulative(float64(i+1) * maf2Apps / float64(cells))
			shares[i%k] += upTo - below
			below = upTo
		}
	case Explicit:
		copy(shares, p.Weights)
	}
	return normalize(shares), nil
}

// maf2Curve holds the cumulative shares measured on the 2021 trace.
var maf2Curve = [...]struct{ rank, share float64 }{
	{1, 0.27}, {2, 0.436}, {5, 0.723}, {10, 0.839}, {20, 0.925}, {50, 0.994}, {maf2Apps, 1},
}

const maf2Apps = 119

// maf2Cumulative is the share of the top rank apps, for rank 0 to 119. Between
// whole ranks it is linear: parts of one app are equally popular.
func maf2Cumulative(rank float64) float64 {
	whole := math.Floor(rank)
	below := maf2Top(whole)
	return below + (rank-whole)*(maf2Top(whole+1)-below)
}

// maf2Top is the share of a whole number of top apps.
func maf2Top(rank float64) float64 {
	if rank < 1 {
		return 0
	}
	for i := 1; i < len(maf2Curve); i++ {
		lo, hi := maf2Curve[i-1], maf2Curve[i]
		if rank <= hi.rank {
			return lo.share + (hi.share-lo.share)*math.Log(rank/lo.rank)/math.Log(hi.rank/lo.rank)
		}
	}
	return 1
}

// Assigner returns a function that draws adapters of k with r.
func (p Popularity) Assigner(k int, r *rand.Rand) (func() int32, error) {
	shares, err := p.Shares(k)
	if err != nil {
		return nil, err
	}
	table := newAlias(shares)
	return func() int32 { return table.draw(r) }, nil
}

// alias draws from a discrete distribution in constant time, with one random
// word per draw: Walker's alias method, with the table built as in Vose, "A
// linear algorithm for generating random numbers with a given distribution",
// IEEE TSE 17(9), 1991.
type alias []aliasCell

// aliasCell gives its own index with probability keep/2^64, else other.
type aliasCell struct {
	keep  uint64
	other int32
}

// newAlias builds the table for shares, which add up to 1.
func newAlias(shares []float64) alias {
	n := len(shares)
	cells := make(alias, n)
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
		cells[s] = aliasCell{keep: uint64(math.Ldexp(scaled[s], 64)), other: l}
		scaled[l] -= 1 - scaled[s]
		if scaled[l] < 1 {
			large = large[:len(large)-1]
			small = append(small, l)
		}
	}
	// What is left is 1 but for rounding.
	for _, i := range append(large, small...) {
		cells[i] = aliasCell{keep: math.MaxUint64, other: i}
	}
	return cells
}

// draw returns an index. The high word of the product picks the cell, the low
// word is uniform within it.
func (a alias) draw(r *rand.Rand) int32 {
	cell, frac := bits.Mul64(r.Uint64(), uint64(len(a)))
	if frac < a[cell].keep {
		return int32(cell)
	}
	return a[cell].other
}

// Locality makes requests repeat adapters: with probability P a request uses
// one of the last Window distinct adapters, all equally likely, instead of its
// own. The own choice may be a recent one too, so repetitions are more frequent
// than P; and since recent adapters are equally likely, a Window > 1 evens out
// their shares somewhat.
type Locality struct {
	P      float64 // 0 to 1; 0: none
	Window int     // distinct adapters, 1 to 1024, for it is searched for each request
}

// ParseLocality reads "0.5" (window 4), "0.5,8" (with the window) or "0".
func ParseLocality(s string) (l Locality, err error) {
	window := 4.0
	if err = assign(strings.Split(s, ","), 1, &l.P, &window); err == nil {
		err = check("locality", l.P, "", ">=0 <=1")
	}
	if err == nil && !(window == math.Trunc(window) && window >= 1 && window <= 1024) {
		err = fmt.Errorf("window is %v, expected a whole number from 1 to 1024", window)
	}
	if l.P > 0 {
		l.Window = int(window)
	}
	return parsed("locality", s, l, err)
}
