package steady

import (
	"math"
)

// mser returns the number of observations at the start of a series that the rule of the
// marginal standard error leaves out. It is the d that minimises the squared standard error
// of the mean of the rest, sum (x-mean)^2 / (n-d)^2. The rest has at least least
// observations.
//
// Source: K. P. White, "An effective truncation heuristic for bias reduction in
// simulation output", Simulation 69(6), 1997; with batches of five (MSER-5):
// S. Robinson and K. P. White, Winter Simulation Conference 2000.
func mser(xs []float64, least int) int {
	var sum, squares float64
	best, at := math.Inf(1), 0
	for d := len(xs) - 1; d >= 0; d-- {
		sum += xs[d]
		squares += xs[d] * xs[d]
		n := float64(len(xs) - d)
		if len(xs)-d < least {
			continue
		}
		if e := max(squares-sum*sum/n, 0) / (n * n); e <= best {
			best, at = e, d
		}
	}
	return at
}

// batchMeans returns the means of k equal batches of a series. It leaves out observations at
// the start that do not fill a batch.
func batchMeans(xs []float64, k int) []float64 {
	size := len(xs) / k
	xs = xs[len(xs)-k*size:]
	out := make([]float64, k)
	for i := range out {
		for _, x := range xs[i*size : (i+1)*size] {
			out[i] += x / float64(size)
		}
	}
	return out
}
