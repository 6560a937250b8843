package epp

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// pickParams are those of all pickers.
type pickParams struct {
	Max int `json:"maxNumOfEndpoints"`
}

func (p *pickParams) most(in []int32) int { return min(max(p.Max, 1), len(in)) }

// shuffle brings endpoints and their totals into a random order.
func shuffle(rng *rand.Rand, in []int32, totals []float64) {
	rng.Shuffle(len(in), func(a, b int) {
		in[a], in[b] = in[b], in[a]
		totals[a], totals[b] = totals[b], totals[a]
	})
}

// descend sorts endpoints stably by key, the largest first. There are few of them.
func descend(in []int32, keys []float64) {
	for i := 1; i < len(in); i++ {
		for j := i; j > 0 && keys[j] > keys[j-1]; j-- {
			in[j], in[j-1] = in[j-1], in[j]
			keys[j], keys[j-1] = keys[j-1], keys[j]
		}
	}
}

// maxScorePicker picks the largest totals, ties by equal chance.
type maxScorePicker struct{ pickParams }

func (p *maxScorePicker) pick(c *cycle, in []int32, totals []float64) int {
	if p.Max <= 1 {
		return pickBest(c.rng, in, totals)
	}
	shuffle(c.rng, in, totals)
	descend(in, totals)
	return p.most(in)
}

// pickBest brings one of the largest totals to the front.
func pickBest(rng *rand.Rand, in []int32, totals []float64) int {
	best, ties := 0, 1
	for k := 1; k < len(in); k++ {
		switch {
		case totals[k] > totals[best]:
			best, ties = k, 1
		case totals[k] == totals[best]:
			if ties++; rng.IntN(ties) == 0 {
				best = k
			}
		}
	}
	in[0], in[best] = in[best], in[0]
	totals[0], totals[best] = totals[best], totals[0]
	return 1
}

// randomPicker picks with equal chances.
type randomPicker struct{ pickParams }

func (p *randomPicker) pick(c *cycle, in []int32, totals []float64) int {
	shuffle(c.rng, in, totals)
	return p.most(in)
}

// weightedPicker picks with chances in proportion to the totals (A-Res, Efraimidis and Spirakis 2006). Totals of 0 or
// less come after all others; if all are 0 the chances are equal.
type weightedPicker struct{ pickParams }

func (p *weightedPicker) pick(c *cycle, in []int32, totals []float64) int {
	shuffle(c.rng, in, totals)
	if slices.MaxFunc(totals, cmp.Compare[float64]) <= 0 {
		return p.most(in)
	}
	for k, t := range totals {
		key := -1.0
		if t > 0 {
			key = math.Pow(c.rng.Float64(), 1/t)
		}
		totals[k] = key
	}
	descend(in, totals)
	return p.most(in)
}
