package stats

import (
	"math"
)

// MeanVariance returns the mean of xs and their sample variance, with n-1. The variance is
// NaN for one value.
func MeanVariance(xs []float64) (mean, variance float64) {
	for _, x := range xs {
		mean += x / float64(len(xs))
	}
	for _, x := range xs {
		variance += (x - mean) * (x - mean) / float64(len(xs)-1)
	}
	return mean, variance
}

// LagOne returns the autocorrelation of a series at lag one; 0 for a constant series.
func LagOne(xs []float64) float64 {
	mean, variance := MeanVariance(xs)
	if variance <= 0 {
		return 0
	}
	sum := 0.0
	for i := range len(xs) - 1 {
		sum += (xs[i] - mean) * (xs[i+1] - mean)
	}
	return sum / (variance * float64(len(xs)-1))
}

// TrendT returns the t statistic of the least-squares slope of a series; 0 for a constant
// series.
func TrendT(xs []float64) float64 {
	mean, variance := MeanVariance(xs)
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

// Jain returns Jain's fairness index (sum x)^2 / (n sum x^2) of xs; 1 if xs is empty or has
// only zeros.
func Jain(xs []float64) float64 {
	var sum, squares float64
	for _, x := range xs {
		sum += x
		squares += x * x
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(len(xs)) * squares)
}
