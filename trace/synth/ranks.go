package synth

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"lorasim/internal/suggest"
)

// Ranks says which LoRA rank each adapter has: the values in turn or, if Drawn,
// drawn at random with the weights (none: all alike). Without values no rank is
// stated.
type Ranks struct {
	Values  []int
	Weights []float64
	Drawn   bool
}

const maxRank = 1 << 16

// ParseRanks reads "16" (all alike), "8,16,32,64" (in turn), "drawn:8,16,64" or
// "drawn:8=3,64=1" (with weights). An empty spec states no rank.
func ParseRanks(s string) (Ranks, error) {
	if strings.TrimSpace(s) == "" {
		return Ranks{}, nil
	}
	r, err := parseRanks(s)
	if err == nil {
		err = r.Check()
	}
	if err != nil {
		return Ranks{}, fmt.Errorf("ranks %q: %w", s, err)
	}
	return r, nil
}

func parseRanks(s string) (Ranks, error) {
	var r Ranks
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
			return r, fmt.Errorf("some values have a weight and some have none")
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

// String returns the spec that ParseRanks reads.
func (r Ranks) String() string {
	items := make([]string, len(r.Values))
	for i, v := range r.Values {
		items[i] = strconv.Itoa(v)
		if r.Weights != nil {
			items[i] += "=" + formatNumber(r.Weights[i])
		}
	}
	list := strings.Join(items, ",")
	if r.Drawn {
		return "drawn:" + list
	}
	return list
}

// Check says what is wrong with r, or nil.
func (r Ranks) Check() error {
	for _, v := range r.Values {
		if v < 1 || v > maxRank {
			return fmt.Errorf("rank is %d, expected 1 to %d", v, maxRank)
		}
	}
	switch {
	case r.Drawn && len(r.Values) == 0:
		return fmt.Errorf("ranks are to be drawn, expected at least one value")
	case r.Weights == nil:
		return nil
	case !r.Drawn:
		return fmt.Errorf("ranks have weights, expected them only when drawn")
	case len(r.Weights) != len(r.Values):
		return fmt.Errorf("%d weights for %d ranks", len(r.Weights), len(r.Values))
	}
	sum := 0.0
	for i, w := range r.Weights {
		if !(w >= 0) {
			return fmt.Errorf("weight of rank %d is %v, expected >= 0", r.Values[i], w)
		}
		sum += w
	}
	if !(sum > 0) || math.IsInf(sum, 0) {
		return fmt.Errorf("rank weights add up to %v, expected a finite number > 0", sum)
	}
	return nil
}

// For returns the ranks of k adapters, nil when none is stated. r must be valid.
func (r Ranks) For(k int, seed uint64) []int {
	if len(r.Values) == 0 {
		return nil
	}
	ranks := make([]int, k)
	if !r.Drawn {
		for i := range ranks {
			ranks[i] = r.Values[i%len(r.Values)]
		}
		return ranks
	}
	weights := r.Weights
	if weights == nil {
		weights = make([]float64, len(r.Values))
		for i := range weights {
			weights[i] = 1
		}
	}
	sum := 0.0
	for _, w := range weights {
		sum += w
	}
	shares := make([]float64, len(weights))
	for i, w := range weights {
		shares[i] = w / sum
	}
	table, rng := newAlias(shares), stream(seed, forRanks, 0)
	for i := range ranks {
		ranks[i] = r.Values[table.draw(rng)]
	}
	return ranks
}
