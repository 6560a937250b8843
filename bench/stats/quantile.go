package stats

import (
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// TQuantile returns the quantile p of Student's t distribution with the given degrees of
// freedom. Fewer than 1 count as 1.
func TQuantile(p, freedom float64) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: max(freedom, 1)}.Quantile(p)
}

// Quantile returns the quantile p, from 0 to 1, of sorted values. Like numpy's default it
// interpolates linearly between the closest ranks. There must be at least one value.
func Quantile(sorted []float64, p float64) float64 {
	at := p * float64(len(sorted)-1)
	k := int(at)
	if k+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[k] + (at-float64(k))*(sorted[k+1]-sorted[k])
}

// QuantileOf returns the quantile p of values in any order, as [Quantile] does. It does not change the slice.
func QuantileOf(values []float64, p float64) float64 {
	return Quantile(slices.Sorted(slices.Values(values)), p)
}
