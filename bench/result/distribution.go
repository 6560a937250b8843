package result

import (
	"math"

	"lorasim/internal/tick"
)

// distribution summarises durations: mean, std and extremes exactly, and the
// percentiles exactly too while there are at most limit samples, from a
// histogram afterwards. A limit of 0 makes it start with the histogram.
type distribution struct {
	moments
	limit int
	bits  uint // resolution of the histogram
	exact []tick.Ticks
	hist  *Histogram
}

// add counts one duration; a negative one, which only a clock that went back
// can give, counts as 0.
func (d *distribution) add(v tick.Ticks) {
	v = max(v, 0)
	d.moments.add(v, 1)
	if d.hist == nil {
		if len(d.exact) < d.limit {
			d.exact = append(d.exact, v)
			return
		}
		d.fold()
	}
	d.hist.Add(v, 1)
}

// addMany counts n durations of length v.
func (d *distribution) addMany(v tick.Ticks, n int64) {
	if n <= 0 {
		return
	}
	v = max(v, 0)
	if d.hist == nil {
		d.fold()
	}
	d.moments.add(v, n)
	d.hist.Add(v, n)
}

// addRun counts the durations first, first+step, ... (k of them, n times each),
// none of which may be negative; step may be.
func (d *distribution) addRun(first, step tick.Ticks, k, n int64) {
	if step < 0 {
		first += step * tick.Ticks(k-1)
		step = -step
	}
	if d.hist == nil {
		d.fold()
	}
	d.moments.addRun(first, step, k, n)
	d.hist.AddRun(first, step, k, n)
}

// fold moves the samples into the histogram.
func (d *distribution) fold() {
	d.hist = NewHistogram(d.bits)
	for _, v := range d.exact {
		d.hist.Add(v, 1)
	}
	d.exact = nil
}

// approximate says whether percentiles come from the histogram.
func (d *distribution) approximate() bool { return d.hist != nil && d.n > 0 }

// percentiles returns the given percentiles in ticks, as numpy's default does:
// linear interpolation between the two closest ranks; 0 where there is no
// sample.
func (d *distribution) percentiles(ps ...float64) []float64 {
	out := make([]float64, len(ps))
	if d.n == 0 {
		return out
	}
	at := d.histogramRank
	if d.hist == nil {
		at = (&selector{xs: d.exact}).rank
	}
	for i, p := range ps {
		rank := float64(d.n-1) * (p / 100)
		floor := math.Floor(rank)
		low := at(int64(floor))
		high := at(min(int64(floor)+1, d.n-1))
		out[i] = lerp(low, high, rank-floor)
	}
	return out
}

// histogramRank estimates the r-th smallest sample, counted from 0.
func (d *distribution) histogramRank(r int64) float64 {
	return min(max(d.hist.At(r), float64(d.min)), float64(d.max))
}

// selector finds samples by rank, reordering them; it is fastest for ascending
// ranks.
type selector struct {
	xs   []tick.Ticks
	from int // xs[:from] are in place: none of the others is smaller
}

func (s *selector) rank(r int64) float64 {
	if int(r) < s.from {
		s.from = 0
	}
	v := nth(s.xs[s.from:], int(r)-s.from)
	s.from = int(r)
	return float64(v)
}

// nth returns the element of rank k of xs and puts it where sorting would, none
// smaller behind it (C. A. R. Hoare, Algorithm 65: FIND, CACM 1961).
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

// lerp interpolates as numpy does: from the nearer end, so that both ends are
// met exactly.
func lerp(a, b, t float64) float64 {
	if t >= 0.5 {
		return b - (b-a)*(1-t)
	}
	return a + (b-a)*t
}

// ms converts ticks held in a float to milliseconds.
func ms(ticks float64) float64 { return ticks / float64(tick.Millisecond) }

// Stats summarises one latency in milliseconds.
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
