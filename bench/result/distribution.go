package result

import (
	"math"
	"slices"

	"lorasim/sim/tick"
)

// distribution summarises durations. Mean, std and extremes are exact. Percentiles are
// exact up to limit samples and come from a histogram beyond that. With limit 0 it starts
// with the histogram.
type distribution struct {
	moments
	limit int
	bits  uint // resolution of the histogram
	exact []tick.Ticks
	hist  *Histogram
}

// clone returns a copy that shares nothing.
func (d *distribution) clone() distribution {
	c := *d
	c.exact = slices.Clone(d.exact)
	if d.hist != nil {
		h := *d.hist
		h.counts = slices.Clone(h.counts)
		c.hist = &h
	}
	return c
}

// add counts one duration. A negative one counts as 0; it occurs only if a clock went
// back.
func (d *distribution) add(v tick.Ticks) {
	if d.hist != nil || len(d.exact) >= d.limit {
		d.addMany(v, 1)
		return
	}
	v = max(v, 0)
	d.moments.add(v, 1)
	d.exact = append(d.exact, v)
}

// addMany counts n durations of length v.
func (d *distribution) addMany(v tick.Ticks, n int64) {
	if n <= 0 {
		return
	}
	v = max(v, 0)
	d.fold()
	d.moments.add(v, n)
	d.hist.Add(v, n)
}

// addRun counts k durations, first, first+step, ..., each n times. No duration may be
// negative; step may be.
func (d *distribution) addRun(first, step tick.Ticks, k, n int64) {
	if step < 0 {
		first += step * tick.Ticks(k-1)
		step = -step
	}
	d.fold()
	d.moments.addRun(first, step, k, n)
	d.hist.AddRun(first, step, k, n)
}

// fold moves the samples into the histogram.
func (d *distribution) fold() {
	if d.hist != nil {
		return
	}
	d.hist = NewHistogram(d.bits)
	for _, v := range d.exact {
		d.hist.Add(v, 1)
	}
	d.exact = nil
}

// approximate reports whether percentiles come from the histogram.
func (d *distribution) approximate() bool { return d.hist != nil && d.n > 0 }

// percentiles returns the percentiles ps, which must ascend, in ticks. Like numpy's
// default it interpolates linearly between the two closest ranks; it starts from the
// nearer rank, so that both ranks are exact. Without samples they are 0.
func (d *distribution) percentiles(ps ...float64) []float64 {
	out := make([]float64, len(ps))
	from := 0 // exact[:from] are in place: none of the others is smaller
	for i, p := range ps {
		if d.n == 0 {
			break
		}
		floor, t := math.Modf(float64(d.n-1) * (p / 100))
		k := int(floor)
		var a, b float64
		if d.hist == nil {
			a = float64(nth(d.exact[from:], k-from))
			from, b = k, a
			if rest := d.exact[k+1:]; len(rest) > 0 {
				b = float64(slices.Min(rest))
			}
		} else {
			at := func(k int64) float64 { return min(max(d.hist.At(k), float64(d.min)), float64(d.max)) }
			a, b = at(int64(k)), at(min(int64(k)+1, d.n-1))
		}
		if out[i] = a + (b-a)*t; t >= 0.5 {
			out[i] = b - (b-a)*(1-t)
		}
	}
	return out
}

// nth returns the element of rank k of xs and moves it to index k, with no smaller element
// behind it (C. A. R. Hoare, Algorithm 65: FIND, CACM 1961).
func nth(xs []tick.Ticks, k int) tick.Ticks {
	lo, hi := 0, len(xs)-1
	for lo < hi {
		a, b, c := xs[lo], xs[lo+(hi-lo)/2], xs[hi]
		pivot := max(min(a, b), min(max(a, b), c)) // the median of the three
		i, j := lo, hi
		for i <= j {
			for xs[i] < pivot {
				i++
			}
			for xs[j] > pivot {
				j--
			}
			if i <= j {
				xs[i], xs[j] = xs[j], xs[i]
				i++
				j--
			}
		}
		switch {
		case k <= j:
			hi = j
		case k >= i:
			lo = i
		default:
			return xs[k]
		}
	}
	return xs[k]
}

// ms converts ticks held in a float to milliseconds.
func ms(ticks float64) float64 { return ticks / float64(tick.Millisecond) }

// Stats summarises one latency. All fields are in milliseconds.
type Stats struct {
	Mean   float64 `json:"mean_ms"`
	Median float64 `json:"median_ms"`
	Std    float64 `json:"std_ms"`
	P90    float64 `json:"p90_ms"`
	P95    float64 `json:"p95_ms"`
	P99    float64 `json:"p99_ms"`
	Max    float64 `json:"max_ms"`
}

func (d *distribution) stats() Stats {
	p := d.percentiles(50, 90, 95, 99)
	return Stats{
		Mean: ms(d.mean()), Median: ms(p[0]), Std: ms(d.std()),
		P90: ms(p[1]), P95: ms(p[2]), P99: ms(p[3]), Max: ms(float64(d.max)),
	}
}
