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
	exact samples
	hist  *Histogram
}

// samples is a list that grows without copies. All blocks but the last have blockLen samples.
type samples struct {
	full [][]tick.Ticks
	last []tick.Ticks
}

// blockLen is the length of a block: long enough that blocks cost nothing, short beside all samples of a long run.
const blockLen = 1 << 13

func (s *samples) len() int { return len(s.full)*blockLen + len(s.last) }

func (s *samples) add(v tick.Ticks) {
	if len(s.last) == blockLen {
		s.full = append(s.full, s.last)
		s.last = make([]tick.Ticks, 0, blockLen)
	}
	s.last = append(s.last, v)
}

// blocks returns the samples in parts.
func (s *samples) blocks() [][]tick.Ticks { return append(slices.Clip(s.full), s.last) }

// sorted returns the samples in ascending order.
func (s *samples) sorted() []tick.Ticks {
	list := slices.Concat(s.blocks()...)
	slices.Sort(list)
	return list
}

// clone returns a copy that shares nothing.
func (d *distribution) clone() distribution {
	c := *d
	c.exact = samples{slices.Clone(d.exact.full), slices.Clone(d.exact.last)} // full blocks do not change
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
	if d.hist != nil || d.n >= int64(d.limit) {
		d.addMany(v, 1)
		return
	}
	v = max(v, 0)
	d.moments.add(v, 1)
	d.exact.add(v)
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
	for _, block := range d.exact.blocks() {
		for _, v := range block {
			d.hist.Add(v, 1)
		}
	}
	d.exact = samples{}
}

// approximate reports whether percentiles come from the histogram.
func (d *distribution) approximate() bool { return d.hist != nil && d.n > 0 }

// percentiles returns the percentiles ps, which must ascend, in ticks. Like numpy's
// default it interpolates linearly between the two closest ranks; it starts from the
// nearer rank, so that both ranks are exact. Without samples they are 0.
func (d *distribution) percentiles(ps ...float64) []float64 {
	out := make([]float64, len(ps))
	if d.n == 0 {
		return out
	}
	ranks := make([]int, 0, 2*len(ps)) // of each: the closest rank below, and the next
	for _, p := range ps {
		k := int(float64(d.n-1) * (p / 100))
		ranks = append(ranks, k, min(k+1, int(d.n)-1))
	}
	var values []float64
	if d.hist == nil {
		values = d.ofRanks(ranks)
	} else {
		for _, k := range ranks {
			values = append(values, min(max(d.hist.At(int64(k)), float64(d.min)), float64(d.max)))
		}
	}
	for i, p := range ps {
		_, t := math.Modf(float64(d.n-1) * (p / 100))
		a, b := values[2*i], values[2*i+1]
		if out[i] = a + (b-a)*t; t >= 0.5 {
			out[i] = b - (b-a)*(1-t)
		}
	}
	return out
}

// fewSamples is the number of samples up to which sorting them is as fast as counting them.
const fewSamples = 1000

// ofRanks returns the samples of some ranks, counted from 0. It counts the samples by the bins of a histogram, and
// sorts only those of the bins that have these ranks.
func (d *distribution) ofRanks(ranks []int) []float64 {
	values := make([]float64, len(ranks))
	if d.exact.len() <= fewSamples {
		sorted := d.exact.sorted()
		for i, k := range ranks {
			values[i] = float64(sorted[k])
		}
		return values
	}
	h := Histogram{bits: latencyBits}
	low := h.bin(d.min)
	counts := make([]int32, h.bin(d.max)-low+1)
	for _, block := range d.exact.blocks() {
		for _, v := range block {
			counts[h.bin(v)-low]++
		}
	}
	type part struct {
		samples []tick.Ticks
		before  int // samples of lower bins
	}
	parts := make([]part, 1) // 0: of the bins that have no rank
	which := make([]uint8, len(counts))
	bin, before := 0, 0
	for _, k := range slices.Sorted(slices.Values(ranks)) {
		for before+int(counts[bin]) <= k {
			before += int(counts[bin])
			bin++
		}
		if which[bin] == 0 {
			which[bin] = uint8(len(parts))
			parts = append(parts, part{make([]tick.Ticks, 0, counts[bin]), before})
		}
	}
	for _, block := range d.exact.blocks() {
		for _, v := range block {
			if w := which[h.bin(v)-low]; w != 0 {
				parts[w].samples = append(parts[w].samples, v)
			}
		}
	}
	for _, p := range parts {
		slices.Sort(p.samples)
	}
	for i, k := range ranks {
		p := slices.IndexFunc(parts, func(p part) bool { return k >= p.before && k < p.before+len(p.samples) })
		values[i] = float64(parts[p].samples[k-parts[p].before])
	}
	return values
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
