// Package stats provides statistics of repeated runs: estimates of means with confidence
// intervals, paired differences, and tests of many differences at once.
//
//	mean := stats.Mean(values)                // by seed, each with a fresh workload
//	diff := stats.Paired(candidate, baseline) // by seed; narrower than the intervals of two means
//	fmt.Println(mean, diff.Versus(mean.Mean)) // 812.4 ±10.2  -3.1 % ±0.8
//	verdict := stats.Judge("mean_ttft_ms", stats.Lower, stats.Fresh, candidates)
//	fmt.Println(verdict) // p2c is the best; worse: static +12.0 % ±3.1
//
// The package does not depend on the types of runs or on the names of metrics.
package stats
