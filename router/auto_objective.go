package router

import (
	"cmp"
	"math"
	"slices"
)

// objective weighs how requests ended; less is better. Latencies count by their logarithms, so that
// a weight is on percents.
type objective struct {
	e2e, ttft, p99 float64 // weights of the means and of the 99th percentile of TTFT
	missed         float64 // weight of the share of requests that miss the deadlines
	maxTTFT        float64 // s, deadlines; 0: none
	maxTPOT        float64
	maxE2E         float64
}

// blocks is the number of consecutive parts of a future that tell how far chance may go.
const blocks = 10

// scores are objectives of one outcome: of all requests, and of all but those of each block.
type scores struct {
	all     float64
	without [blocks]float64
}

// scores rates the requests from a place on.
func (b *objective) scores(o *Outcome, f *Future, from, to int) scores {
	n := to - from
	var sum [blocks]struct{ n, ok, e2e, ttft, missed float64 }
	worst := float32(0)
	for i := from; i < to; i++ {
		if x := o.E2E[i]; x == x {
			worst = max(worst, x)
		}
	}
	order := make([]int32, 0, n)
	ttft := make([]float32, n)
	for i := range n {
		s := &sum[i*blocks/n]
		e, t := o.E2E[from+i], o.TTFT[from+i]
		missed := e != e || b.misses(float64(e), float64(t), f.Requests[from+i].Output)
		if e != e { // as bad as twice the worst
			e, t = 2*worst, 2*worst
		}
		s.n++
		s.e2e += float64(e)
		s.ttft += float64(t)
		if missed {
			s.missed++
		}
		ttft[i] = t
	}
	if b.p99 > 0 {
		for i := range n {
			order = append(order, int32(i))
		}
		slices.SortFunc(order, func(x, y int32) int { return cmp.Compare(ttft[y], ttft[x]) })
	}
	var total struct{ n, e2e, ttft, missed float64 }
	for _, s := range sum {
		total.n, total.e2e, total.ttft, total.missed = total.n+s.n, total.e2e+s.e2e, total.ttft+s.ttft,
			total.missed+s.missed
	}
	value := func(skip int) float64 {
		t := total
		if skip >= 0 {
			s := sum[skip]
			t.n, t.e2e, t.ttft, t.missed = t.n-s.n, t.e2e-s.e2e, t.ttft-s.ttft, t.missed-s.missed
		}
		v := b.missed * t.missed / max(t.n, 1)
		v += b.e2e*math.Log(max(t.e2e/max(t.n, 1), 1e-9)) + b.ttft*math.Log(max(t.ttft/max(t.n, 1), 1e-9))
		if b.p99 > 0 {
			k := int(t.n / 100) // so many are above the percentile
			for _, i := range order {
				if int(i)*blocks/n == skip {
					continue
				}
				if k--; k < 0 {
					v += b.p99 * math.Log(max(float64(ttft[i]), 1e-9))
					break
				}
			}
		}
		return v
	}
	s := scores{all: value(-1)}
	for i := range s.without {
		s.without[i] = value(i)
	}
	return s
}

// misses says whether a request missed a deadline.
func (b *objective) misses(e2e, ttft float64, output int32) bool {
	tpot := (e2e - ttft) / max(float64(output-1), 1)
	return b.maxTTFT > 0 && ttft > b.maxTTFT || b.maxTPOT > 0 && output > 1 && tpot > b.maxTPOT ||
		b.maxE2E > 0 && e2e > b.maxE2E
}

// minus is the difference of two scores and its standard error, by the jackknife over blocks.
func (s *scores) minus(t *scores) (diff, err float64) {
	mean := 0.0
	var d [blocks]float64
	for i := range d {
		d[i] = s.without[i] - t.without[i]
		mean += d[i] / blocks
	}
	for _, x := range d {
		err += (x - mean) * (x - mean)
	}
	return s.all - t.all, math.Sqrt(err * (blocks - 1) / blocks)
}
