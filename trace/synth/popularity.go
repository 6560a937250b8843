package synth

import (
	"fmt"
	"math"
	"math/rand/v2"

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

var popularityKinds = []string{Uniform, Zipf, PowerLaw, MAF2, Explicit}

const (
	defaultZipf     = 0.9
	defaultPowerLaw = 0.3
)

// Popularity is how requests spread over adapters. Adapter 0 is the most
// popular, unless Shuffle is set (or PowerLaw has alpha > 1, which favours the
// last adapter, or Explicit weights say otherwise).
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
	Shuffle bool      // which adapter has which share is drawn at random
}

// ParsePopularity reads "uniform", "zipf:0.9", "powerlaw:0.3", "maf2" or
// "explicit:5,3,1". The number of zipf and powerlaw may be left out.
func ParsePopularity(s string) (Popularity, error) {
	name, args := splitSpec(s)
	p := Popularity{Kind: name}
	xs, err := []float64(nil), error(nil)
	switch name {
	case Uniform, MAF2:
		_, err = parseNumbers(args, 0, 0)
	case Zipf, PowerLaw:
		p.Param = defaultZipf
		if name == PowerLaw {
			p.Param = defaultPowerLaw
		}
		if xs, err = parseNumbers(args, 0, 1); len(xs) == 1 {
			p.Param = xs[0]
		}
	case Explicit:
		p.Weights, err = parseNumbers(args, 1, MaxAdapters)
	default:
		err = suggest.Unknown("name", name, popularityKinds)
	}
	if err == nil {
		err = p.checkShape()
	}
	if err != nil {
		return Popularity{}, fmt.Errorf("popularity %q: %w", s, err)
	}
	return p, nil
}

// String returns the spec that ParsePopularity reads. It leaves out Shuffle.
func (p Popularity) String() string {
	switch p.Kind {
	case Zipf, PowerLaw:
		return formatSpec(p.Kind, p.Param)
	case Explicit:
		return formatSpec(p.Kind, p.Weights...)
	}
	return p.Kind
}

// Check says what is wrong with p for k adapters, or nil.
func (p Popularity) Check(k int) error {
	err := p.checkShape()
	switch {
	case err != nil:
	case k < 1:
		err = fmt.Errorf("%d adapters, expected at least 1", k)
	case p.Kind == Explicit && len(p.Weights) != k:
		err = fmt.Errorf("%d weights for %d adapters, expected one for each", len(p.Weights), k)
	}
	if err != nil {
		return fmt.Errorf("popularity %s: %w", p.Kind, err)
	}
	return nil
}

// checkShape is Check as far as it does not depend on the number of adapters.
func (p Popularity) checkShape() error {
	const most = 100 // beyond it shares underflow
	switch p.Kind {
	case Uniform, MAF2:
	case Zipf:
		if !(p.Param >= 0 && p.Param <= most) {
			return fmt.Errorf("exponent is %v, expected 0 to %d", p.Param, most)
		}
	case PowerLaw:
		if !(p.Param > 0 && p.Param <= most) {
			return fmt.Errorf("alpha is %v, expected > 0 and <= %d", p.Param, most)
		}
	case Explicit:
		sum := 0.0
		for i, w := range p.Weights {
			if !(w >= 0) {
				return fmt.Errorf("weight %d is %v, expected >= 0", i+1, w)
			}
			sum += w
		}
		if !(sum > 0) || math.IsInf(sum, 0) {
			return fmt.Errorf("weights add up to %v, expected a finite number > 0", sum)
		}
	default:
		return suggest.Unknown("name", p.Kind, popularityKinds)
	}
	return nil
}

// Shares returns the share of the requests of each of k adapters, before
// shuffling. They add up to 1.
func (p Popularity) Shares(k int) ([]float64, error) {
	if err := p.Check(k); err != nil {
		return nil, err
	}
	shares := make([]float64, k)
	switch p.Kind {
	case Uniform:
		for i := range shares {
			shares[i] = 1
		}
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
		maf2Shares(shares)
	case Explicit:
		copy(shares, p.Weights)
	}
	sum := 0.0
	for _, s := range shares {
		sum += s
	}
	for i := range shares {
		shares[i] /= sum
	}
	return shares, nil
}

// Assigner returns a function that draws adapters of k with r. With Shuffle it
// first draws which adapter has which share.
func (p Popularity) Assigner(k int, r *rand.Rand) (func() int32, error) {
	shares, err := p.Shares(k)
	if err != nil {
		return nil, err
	}
	table := newAlias(shares)
	if !p.Shuffle {
		return func() int32 { return table.draw(r) }, nil
	}
	order := permutation(k, r)
	return func() int32 { return order[table.draw(r)] }, nil
}

// permutation draws an order of 0 to k-1.
func permutation(k int, r *rand.Rand) []int32 {
	order := make([]int32, k)
	for i := range order {
		order[i] = int32(i)
	}
	r.Shuffle(k, func(i, j int) { order[i], order[j] = order[j], order[i] })
	return order
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

// maf2Shares fills in unnormalised shares; see Popularity for the rule.
func maf2Shares(shares []float64) {
	k := len(shares)
	cells := max(k, maf2Apps)
	below := 0.0
	for i := range cells {
		upTo := maf2Cumulative(float64(i+1) * maf2Apps / float64(cells))
		shares[i%k] += upTo - below
		below = upTo
	}
}
