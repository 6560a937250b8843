package stats

import (
	"cmp"
	"math"
	"slices"
)

// Level is the significance level of verdicts: the largest probability that a verdict wrongly
// calls any two candidates different.
const Level = 0.05

// Holm returns p-values corrected for their number. If those below a level are called
// significant, the probability of any wrong call is at most that level (S. Holm, A simple
// sequentially rejective multiple test procedure, 1979). NaN remains NaN and counts as a
// test.
func Holm(ps []float64) []float64 {
	order := make([]int, len(ps))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(-ps[b], -ps[a]) }) // NaN last
	out, least := slices.Clone(ps), 0.0
	for k, i := range order {
		if !math.IsNaN(ps[i]) {
			least = max(least, min(1, ps[i]*float64(len(ps)-k)))
			out[i] = least
		}
	}
	return out
}
