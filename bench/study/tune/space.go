// Package tune defines the configurations in which advise searches for a better endpoint picker. It varies the weights
// of the scorers (0 included), the thresholds and other numbers of the plugins within the bounds of the loaders, and
// adds missing scorers.
//
//	space := tune.NewSpace(config, "lora-affinity-scorer")
//	for _, p := range space.Designs(64, rng) {
//		changed, err := config.With(space.Changes(p))
//	}
//
// The package simulates nothing.
package tune

import (
	"math"
	"math/rand/v2"
	"slices"

	"lorasim/router/epp"
)

// weights are the values that weights take. Decisions follow their ratios. All versions of the loaders take whole
// numbers.
var weights = []float64{0, 1, 2, 3, 4, 6, 8, 12, 16}

// A Space is the set of configurations around a given one.
type Space struct {
	Numbers []epp.Number
	config  *epp.Config
}

// A Point is a configuration: the value of each number of the space.
type Point []float64

// NewSpace returns the space around a configuration. add lists types of scorers to add if the configuration lacks
// them.
func NewSpace(c *epp.Config, add ...string) *Space { return &Space{c.Numbers(add...), c} }

// Base returns the unchanged configuration.
func (s *Space) Base() Point {
	p := make(Point, len(s.Numbers))
	for i, n := range s.Numbers {
		p[i] = n.Value
	}
	return p
}

// Changes returns the differences between a point and the unchanged configuration.
func (s *Space) Changes(p Point) (out []epp.Change) {
	for i, n := range s.Numbers {
		if p[i] != n.Value {
			out = append(out, epp.Change{Name: n.Name(), Value: p[i]})
		}
	}
	return out
}

// valid reports whether the loader takes a point and a scorer is left that counts, if the configuration has any.
func (s *Space) valid(p Point) bool {
	scorers, counts := false, false
	for i, n := range s.Numbers {
		if n.Key == "" {
			scorers, counts = true, counts || p[i] > 0
		}
	}
	if scorers && !counts {
		return false
	}
	_, err := s.config.With(s.Changes(p))
	return err == nil
}

// Designs returns n points to start a search from, or fewer if the space has fewer. They are the unchanged
// configuration, each scorer left out, each missing scorer added, and random points.
func (s *Space) Designs(n int, rng *rand.Rand) []Point {
	var out []Point
	s.add(&out, s.Base())
	for i, x := range s.Numbers {
		switch {
		case x.Missing:
			s.add(&out, s.with(s.Base(), i, s.typicalWeight()))
			s.add(&out, s.with(s.Base(), i, min(2*s.typicalWeight(), x.High)))
		case x.Key == "":
			s.add(&out, s.with(s.Base(), i, 0))
		}
	}
	for range 20 * n { // a small space runs out of points
		if len(out) >= n {
			break
		}
		s.add(&out, s.random(rng))
	}
	return out[:min(n, len(out))]
}

// typicalWeight is the middle of the weights, of those in the grid.
func (s *Space) typicalWeight() float64 {
	var list []float64
	for _, n := range s.Numbers {
		if n.Key == "" && n.Value > 0 {
			list = append(list, n.Value)
		}
	}
	if len(list) == 0 {
		return 1
	}
	slices.Sort(list)
	return max(math.Round(list[len(list)/2]), 1)
}

// add appends a point that is valid and new.
func (s *Space) add(list *[]Point, p Point) {
	if !slices.ContainsFunc(*list, func(o Point) bool { return slices.Equal(o, p) }) && s.valid(p) {
		*list = append(*list, p)
	}
}

func (s *Space) with(p Point, i int, value float64) Point {
	p = slices.Clone(p)
	p[i] = value
	return p
}

// random draws a point. Half of the parameters keep their value: most thresholds matter less than the weights.
func (s *Space) random(rng *rand.Rand) Point {
	p := s.Base()
	for i, n := range s.Numbers {
		switch {
		case n.Key == "":
			p[i] = weights[rng.IntN(len(weights))]
		case rng.IntN(2) == 0:
			p[i] = draw(n, rng)
		}
	}
	return p
}

// draw is a random value of a parameter: evenly for shares, else evenly in its logarithm, and often 0 if it may be 0.
func draw(n epp.Number, rng *rand.Rand) float64 {
	if n.Share {
		return rounded(n, n.Low+(n.High-n.Low)*rng.Float64())
	}
	low := n.Low
	if low <= 0 {
		if rng.IntN(4) == 0 {
			return max(n.Low, 0)
		}
		low = least(n)
	}
	return rounded(n, low*math.Pow(n.High/low, rng.Float64()))
}

// least is the smallest value above 0 of a parameter that may be 0.
func least(n epp.Number) float64 {
	if n.Whole {
		return 1
	}
	return n.High / 256
}

// rounded is a value within bounds that people would write: shares in steps of 0.05, others with two digits.
func rounded(n epp.Number, x float64) float64 {
	switch {
	case n.Share:
		x = math.Round(x*20) / 20
	case x != 0:
		unit := math.Pow(10, math.Floor(math.Log10(math.Abs(x)))-1)
		if x = math.Round(x/unit) * unit; n.Whole || unit >= 1 {
			x = math.Round(x)
		} else {
			x = math.Round(x*1e6) / 1e6 // without the dust of binary fractions
		}
	}
	return min(max(x, n.Low), n.High)
}

// Neighbours returns the points that differ from p in a single number.
func (s *Space) Neighbours(p Point) (out []Point) {
	for i, n := range s.Numbers {
		for _, v := range steps(n, p[i]) {
			if v != p[i] {
				s.add(&out, s.with(p, i, v))
			}
		}
	}
	return out
}

// steps are other values of a number: the next weights and none, shares 0.1 and 0.3 away, or a quarter, half, twice and
// four times the value; and the value that the configuration has.
func steps(n epp.Number, x float64) (out []float64) {
	switch {
	case n.Key == "":
		out = append(out, 0)
		if i := slices.IndexFunc(weights, func(w float64) bool { return w >= x }); i >= 0 {
			out = append(out, weights[max(i-1, 0)], weights[min(i+1, len(weights)-1)])
		}
		out = append(out, min(2*math.Round(x), n.High))
	case n.Share:
		for _, d := range []float64{-0.3, -0.1, 0.1, 0.3} {
			out = append(out, rounded(n, x+d))
		}
	case x <= 0:
		out = append(out, rounded(n, least(n)), rounded(n, math.Sqrt(least(n)*n.High)))
	default:
		for _, f := range []float64{0.25, 0.5, 2, 4} {
			out = append(out, rounded(n, x*f))
		}
		if n.Low <= 0 {
			out = append(out, max(n.Low, 0))
		}
	}
	return append(out, n.Value)
}

// Reverted returns one point for each change in [Space.Changes], with that change undone.
func (s *Space) Reverted(p Point) (out []Point) {
	for i, n := range s.Numbers {
		if p[i] != n.Value {
			out = append(out, s.with(p, i, n.Value))
		}
	}
	return out
}
