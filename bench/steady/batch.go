package steady

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// mser is the number of observations at the start of a series that the rule of
// the marginal standard error leaves out: the d that minimises the squared
// standard error of the mean of what is left, sum (x-mean)^2 / (n-d)^2. Ends of
// fewer than least observations are not considered.
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

// batchMeans are the means of k equal batches of a series; observations at its
// start that do not fill a batch are left out.
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

// meanVar is the mean and the sample variance.
func meanVar(xs []float64) (mean, variance float64) {
	for _, x := range xs {
		mean += x / float64(len(xs))
	}
	for _, x := range xs {
		variance += (x - mean) * (x - mean) / float64(len(xs)-1)
	}
	return mean, variance
}

// lagOne is the autocorrelation at lag one; 0 for a constant series.
func lagOne(xs []float64) float64 {
	mean, variance := meanVar(xs)
	if variance <= 0 {
		return 0
	}
	sum := 0.0
	for i := range len(xs) - 1 {
		sum += (xs[i] - mean) * (xs[i+1] - mean)
	}
	return sum / (variance * float64(len(xs)-1))
}

// slope is the t statistic of the least-squares slope of a series; 0 for a constant
// one.
func slope(xs []float64) float64 {
	mean, variance := meanVar(xs)
	if variance <= 0 {
		return 0
	}
	n := float64(len(xs))
	var xy, xx float64
	for i, x := range xs {
		t := float64(i) - (n-1)/2
		xy += t * (x - mean)
		xx += t * t
	}
	b := xy / xx
	rest := max(variance*(n-1)-b*xy, 0)
	if rest == 0 {
		return math.Copysign(math.Inf(1), b)
	}
	return b / math.Sqrt(rest/(n-2)/xx)
}

// tQuantile is the quantile of Student's t distribution.
func tQuantile(p, freedom float64) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: max(freedom, 1)}.Quantile(p)
}
