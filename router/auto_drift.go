package router

import "math"

// drift notices that the load changes: two-sided CUSUMs (Page, 1954) of the gaps between arrivals, the
// prompts, the outputs and how rare the adapters are.
type drift struct {
	gap, prompt, output cusum
	last                float64 // arrival
	any                 bool
}

// arrived says whether the load has changed.
func (d *drift) arrived(r *Request, now float64) bool {
	changed := d.prompt.add(math.Log(float64(r.Prompt)))
	if d.any {
		changed = d.gap.add(now-d.last) || changed
	}
	d.last, d.any = now, true
	if changed {
		*d = drift{last: now, any: true}
	}
	return changed
}

// ended says whether outputs have changed.
func (d *drift) ended(output int32) bool {
	if !d.output.add(math.Log(float64(max(output, 1)))) {
		return false
	}
	*d = drift{last: d.last, any: d.any}
	return true
}

// cusum compares means of driftBatch values with those of the first driftBatches.
type cusum struct {
	sum, n    float64 // of the batch
	batches   float64
	mean, m2  float64 // of the means of the first batches
	high, low float64
}

const (
	driftBatch   = 32  // values
	driftBatches = 8   // that set what is usual
	driftSlack   = 0.5 // standard deviations of a batch
	driftLimit   = 10  // likewise, summed
)

func (c *cusum) add(x float64) bool {
	c.sum += x
	if c.n++; c.n < driftBatch {
		return false
	}
	m := c.sum / c.n
	c.sum, c.n = 0, 0
	if c.batches < driftBatches {
		c.batches++
		d := m - c.mean
		c.mean += d / c.batches
		c.m2 += d * (m - c.mean)
		return false
	}
	sd := math.Sqrt(c.m2 / (c.batches - 1))
	if sd <= 0 {
		sd = 1e-9 + 0.01*math.Abs(c.mean)
	}
	zed := (m - c.mean) / sd
	zed = min(max(zed, -6), 6)
	c.high = max(0, c.high+zed-driftSlack)
	c.low = max(0, c.low-zed-driftSlack)
	return c.high > driftLimit || c.low > driftLimit
}
