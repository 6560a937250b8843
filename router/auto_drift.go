package router

import "math"

// drift notices that the load changes: two-sided CUSUMs (Page, 1954) of the gaps between arrivals, the
// prompts and the outputs, the latter two by their logarithms.
type drift struct {
	gap, prompt, output cusum
	last                float64 // arrival
	any                 bool
}

// arrived says whether the rate of requests has changed, and whether their mix has.
func (d *drift) arrived(r *Request, now float64) (rate, mix bool) {
	mix = d.prompt.add(math.Log(float64(r.Prompt)))
	rate = d.any && d.gap.add(now-d.last)
	d.last, d.any = now, true
	switch {
	case mix:
		*d = drift{last: now, any: true}
	case rate:
		d.gap = cusum{}
	}
	return rate, mix
}

// ended says whether outputs have changed.
func (d *drift) ended(output int32) bool {
	if !d.output.add(math.Log(float64(max(output, 1)))) {
		return false
	}
	*d = drift{last: d.last, any: d.any}
	return true
}

// cusum compares means of batches with those of the first batches. Their standard deviation is that among the first
// batches, or, if that is larger, what independent values would give them.
type cusum struct {
	batch     moments
	first     moments // of the means of the first batches
	within    float64 // mean variance of the values of a batch
	high, low float64
}

// moments are number, mean and sum of squared deviations (Welford).
type moments struct{ n, mean, m2 float64 }

func (m *moments) add(x float64) {
	m.n++
	d := x - m.mean
	m.mean += d / m.n
	m.m2 += d * (x - m.mean)
}

const (
	driftBatch   = 32  // values
	driftBatches = 12  // that set what is usual
	driftSlack   = 0.5 // standard deviations of a batch's mean
	driftLimit   = 12  // likewise, summed
	driftMost    = 6   // likewise, that one batch counts
)

func (c *cusum) add(x float64) bool {
	c.batch.add(x)
	if c.batch.n < driftBatch {
		return false
	}
	mean, within := c.batch.mean, c.batch.m2/(driftBatch-1)
	c.batch = moments{}
	if c.first.n < driftBatches {
		c.first.add(mean)
		c.within += within / driftBatches
		return false
	}
	sd := math.Sqrt(max(c.first.m2/(driftBatches-1), c.within/driftBatch, 1e-12))
	by := min(max((mean-c.first.mean)/sd, -driftMost), driftMost)
	c.high = max(0, c.high+by-driftSlack)
	c.low = max(0, c.low-by-driftSlack)
	return max(c.high, c.low) > driftLimit
}
