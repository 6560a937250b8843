package router

import "math"

// drift notices that the load changes: two-sided CUSUMs (Page, 1954) of the gaps between arrivals, and of logarithms:
// of the prompts, of the outputs, and of the shares that the adapters of the requests had among those before.
type drift struct {
	gap, prompt, output cusum
	share               cusum
	shares              shares
	last                float64 // arrival
	any                 bool
}

// arrived says whether the rate of requests has changed, and whether their mix has.
func (d *drift) arrived(r *Request, now float64) (rate, mix bool) {
	mix = d.prompt.add(math.Log(float64(r.Prompt)))
	if share := d.shares.add(r.Adapter); share > 0 {
		mix = d.share.add(math.Log(share)) || mix
	}
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

// shares counts the adapters of the latest requests.
type shares struct {
	latest []int32 // adapters; request n is at n % shareWindow
	count  map[int32]int
	n      int
}

// shareWindow is the number of requests that shares are of.
const shareWindow = 1024

// add returns the share of an adapter among the requests before, with one more of each adapter that was seen; 0: they
// are too few.
func (s *shares) add(adapter int32) (share float64) {
	if s.count == nil {
		s.count = map[int32]int{}
	}
	at := s.n % shareWindow
	if s.n >= shareWindow {
		share = float64(s.count[adapter]+1) / float64(shareWindow+len(s.count))
		old := s.latest[at]
		if s.count[old]--; s.count[old] == 0 {
			delete(s.count, old)
		}
		s.latest[at] = adapter
	} else {
		s.latest = append(s.latest, adapter)
	}
	s.count[adapter]++
	s.n++
	return share
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
