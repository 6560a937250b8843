package sweep

// BySeed returns a metric of each run of a point, in the order of the seeds; NaN where a run has none.
func (p *Point) BySeed(metric string) []float64 { return column(p.results, metric) }

// SameRequests says whether, seed by seed, the runs of two points completed the same requests, so that
// their latencies compare.
func (p *Point) SameRequests(o *Point) bool { return samePairs(p.results, o.results) }
