package stats

import (
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// MeanInterval returns Student's t interval of the mean of independent values. Each end is
// wrong with probability level. For fewer than two values the interval is unbounded.
func MeanInterval(values []float64, level float64) (low, high float64) {
	n := float64(len(values))
	if n < 2 {
		return math.Inf(-1), math.Inf(1)
	}
	mean, std := stat.MeanStdDev(values, nil)
	half := TQuantile(1-level, n-1) * std / math.Sqrt(n)
	return mean - half, mean + half
}

// SkewedMeanInterval returns an interval of the mean of independent values from a skewed
// distribution, such as attainments near 100 %. It is Student's t interval, transformed by
// the skewness of the values (Hall, Journal of the Royal Statistical Society B 54, 1992).
// On the side of the long tail it is never narrower than the t interval. Each end is wrong
// with probability level.
func SkewedMeanInterval(values []float64, level float64) (low, high float64) {
	low, high = MeanInterval(values, level)
	mean, std := stat.MeanStdDev(values, nil)
	skew := stat.Skew(values, nil)
	if len(values) < 3 || std == 0 || math.Abs(skew) < 1e-6 {
		return low, high
	}
	n := float64(len(values))
	end := func(half float64) float64 {
		z := half / std // the quantile over the root of n
		return mean - std*(math.Cbrt(1+skew*(z-skew/(6*n)))-1)*3/skew
	}
	from, to := end(mean-low), end(mean-high)
	if skew < 0 {
		return min(low, from), to
	}
	return from, max(high, to)
}

// ResampledMeanInterval returns the interval of the mean of a workload's population, from
// the values of n resamples of the workload. Their standard deviation is the standard error
// and does not shrink with n. Each end is wrong with probability level.
func ResampledMeanInterval(values []float64, level float64) (low, high float64) {
	low, high = MeanInterval(values, level)
	mean, wider := stat.Mean(values, nil), math.Sqrt(float64(len(values)+1))
	return mean - wider*(mean-low), mean + wider*(high-mean)
}

// ProportionInterval returns the interval of Clopper and Pearson (Biometrika 26, 1934) of a
// probability, from values 0 and 1. Each end is wrong with probability level.
func ProportionInterval(values []float64, level float64) (low, high float64) {
	n, k := float64(len(values)), 0.0
	for _, v := range values {
		k += v
	}
	low, high = 0, 1
	if k > 0 {
		low = distuv.Beta{Alpha: k, Beta: n - k + 1}.Quantile(level)
	}
	if k < n {
		high = distuv.Beta{Alpha: k + 1, Beta: n - k}.Quantile(1 - level)
	}
	return low, high
}
