package synth

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"lorasim/internal/suggest"
)

// parsed returns the results of a parser; its errors name the spec.
func parsed[T any](what, spec string, v T, err error) (T, error) {
	if err != nil {
		var none T
		return none, fmt.Errorf("%s %q: %w", what, spec, err)
	}
	return v, nil
}

// checkWeights returns an error if weights are not valid shares. name returns the name of weight i.
func checkWeights(weights []float64, name func(i int) string) error {
	sum := 0.0
	for i, w := range weights {
		if !(w >= 0) {
			return fmt.Errorf("%s is %v, expected >= 0", name(i), w)
		}
		sum += w
	}
	if !(sum > 0) || math.IsInf(sum, 0) {
		return fmt.Errorf("weights add up to %v, expected a finite number > 0", sum)
	}
	return nil
}

// normalize divides weights by their sum.
func normalize(weights []float64) []float64 {
	sum := 0.0
	for _, w := range weights {
		sum += w
	}
	for i := range weights {
		weights[i] /= sum
	}
	return weights
}

// Ranks describes the LoRA ranks of the adapters: the values in turn or, if Drawn, drawn at random with the weights
// (nil: equal weights). Without values the ranks are unknown.
type Ranks struct {
	Values  []int
	Weights []float64
	Drawn   bool
}

const maxRank = 1 << 16

// ParseRanks parses "16" (all equal), "8,16,32,64" (in turn), "drawn:8,16,64" or "drawn:8=3,64=1" (with weights). An
// empty spec means unknown ranks.
func ParseRanks(s string) (Ranks, error) {
	if strings.TrimSpace(s) == "" {
		return Ranks{}, nil
	}
	r, err := parseRanks(s)
	return parsed("ranks", s, r, cmp.Or(err, r.check()))
}

func parseRanks(s string) (r Ranks, err error) {
	list := s
	if name, rest, found := strings.Cut(s, ":"); found {
		if strings.TrimSpace(name) != "drawn" {
			return r, suggest.Unknown("name", name, []string{"drawn"})
		}
		r.Drawn, list = true, rest
	}
	for i, item := range strings.Split(list, ",") {
		value, weight, weighted := strings.Cut(item, "=")
		v, err := strconv.Atoi(strings.TrimSpace(value))
		if err != nil {
			return r, fmt.Errorf("value %d is %q, expected a whole number", i+1, value)
		}
		if weighted != (r.Weights != nil) && i > 0 {
			return r, errors.New("some values have a weight and some have none")
		}
		if weighted {
			w, err := strconv.ParseFloat(strings.TrimSpace(weight), 64)
			if err != nil {
				return r, fmt.Errorf("weight of rank %d is %q, expected a number", v, weight)
			}
			r.Weights = append(r.Weights, w)
		}
		r.Values = append(r.Values, v)
	}
	return r, nil
}

func (r Ranks) check() error {
	for _, v := range r.Values {
		if v < 1 || v > maxRank {
			return fmt.Errorf("rank is %d, expected 1 to %d", v, maxRank)
		}
	}
	switch {
	case r.Weights == nil:
		return nil
	case !r.Drawn:
		return errors.New("ranks have weights, expected them only when drawn")
	}
	return checkWeights(r.Weights, func(i int) string { return fmt.Sprintf("weight of rank %d", r.Values[i]) })
}

// For returns the ranks of k adapters, nil if they are unknown.
func (r Ranks) For(k int, seed uint64) []int {
	if len(r.Values) == 0 {
		return nil
	}
	pick := func(i int) int { return i % len(r.Values) }
	if r.Drawn {
		shares := r.Weights
		if shares == nil {
			shares = slices.Repeat([]float64{1}, len(r.Values))
		}
		table, rng := newAlias(normalize(slices.Clone(shares))), stream(seed, forRanks, 0)
		pick = func(int) int { return int(table.draw(rng)) }
	}
	ranks := make([]int, k)
	for i := range ranks {
		ranks[i] = r.Values[pick(i)]
	}
	return ranks
}
