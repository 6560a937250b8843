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

// tally sums up how requests ended.
type tally struct {
	n, e2e, missed float64
	first, ttft    float64 // requests whose first token lies in the future, and their TTFT
}

func (t *tally) add(u tally, sign float64) {
	t.n, t.e2e, t.missed = t.n+sign*u.n, t.e2e+sign*u.e2e, t.missed+sign*u.missed
	t.first, t.ttft = t.first+sign*u.first, t.ttft+sign*u.ttft
}

// longTTFT is a TTFT and its block.
type longTTFT struct {
	ttft  float32
	block int
}

// scores rates all requests of an outcome, those in flight before as well.
func (b *objective) scores(o *Outcome, f *Future) scores {
	worst := float32(0)
	for _, x := range o.E2E {
		if x == x {
			worst = max(worst, x)
		}
	}
	var part [blocks]tally
	var total tally
	var ttfts []longTTFT
	n := f.Counted()
	for i, e := range o.E2E {
		t, block, output := o.TTFT[i], (i-n)%blocks, int32(0)
		if i < n {
			block, output = i*blocks/n, f.Requests[i].Output
		}
		u := tally{n: 1, first: 1}
		if e != e || b.misses(float64(e), float64(t), output) {
			u.missed = 1
		}
		switch {
		case e != e: // as bad as twice the worst
			e, t = 2*worst, 2*worst
		case t != t: // it had its first token before
			u.first, t = 0, 0
		}
		u.e2e, u.ttft = float64(e), float64(t)
		part[block].add(u, 1)
		if b.p99 > 0 && u.first > 0 {
			ttfts = append(ttfts, longTTFT{t, block})
		}
	}
	for _, u := range part {
		total.add(u, 1)
	}
	slices.SortFunc(ttfts, func(x, y longTTFT) int { return cmp.Compare(y.ttft, x.ttft) })
	s := scores{all: b.value(total, ttfts, None)}
	for i := range s.without {
		t := total
		t.add(part[i], -1)
		s.without[i] = b.value(t, ttfts, i)
	}
	return s
}

// value is the objective of all requests but those of a block; ttfts are in descending order.
func (b *objective) value(t tally, ttfts []longTTFT, without int) float64 {
	log := func(x float64) float64 { return math.Log(max(x, 1e-9)) }
	v := b.missed*t.missed/max(t.n, 1) + b.e2e*log(t.e2e/max(t.n, 1)) + b.ttft*log(t.ttft/max(t.first, 1))
	above := int(t.first / 100) // so many are above the percentile
	for _, x := range ttfts {
		if x.block == without {
			continue
		}
		if above--; above < 0 {
			return v + b.p99*log(float64(x.ttft))
		}
	}
	return v
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
