// Package stats holds the statistics of repeated runs: estimates of means with their
// confidence intervals, paired differences, and tests of many differences at once.
//
//	mean := stats.Mean(values)               // of seeds that draw fresh workloads
//	diff := stats.Paired(candidate, baseline) // by seed: narrower than two separate means
//	fmt.Println(mean, diff.Versus(mean.Mean)) // 812.4 ±10.2  -3.1 % ±0.8
//	for i, p := range stats.Holm([]float64{diff.P(), other.P()}) {
//		worse[i] = p < stats.Level
//	}
//
// The package knows neither runs nor names of metrics.
package stats
