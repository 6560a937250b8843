package replay

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// drift moves the popularity ranks of the adapters on by one each period.
type drift struct {
	period float64 // s
	byRank []int32 // adapters by descending traffic of the window
	rank   []int   // of each adapter
}

func newDrift(period float64, histogram [][]int64) *drift {
	d := &drift{period: period, byRank: make([]int32, len(histogram)), rank: make([]int, len(histogram))}
	for k := range d.byRank {
		d.byRank[k] = int32(k)
	}
	slices.SortStableFunc(d.byRank, func(a, b int32) int { return cmp.Compare(total(histogram[b]), total(histogram[a])) })
	for r, k := range d.byRank {
		d.rank[k] = r
	}
	return d
}

// adapter returns which adapter has the traffic of adapter k at time t.
func (d *drift) adapter(k int32, t float64) int32 {
	n := len(d.byRank)
	steps := int(math.Mod(math.Floor(t/d.period), float64(n)))
	return d.byRank[(d.rank[k]+steps)%n]
}

// recent repeats recently used adapters.
type recent struct {
	p    float64
	rng  *rand.Rand
	last []int32 // distinct adapters, the latest first; its capacity is the window
}

func newRecent(p float64, window int, rng *rand.Rand) *recent {
	return &recent{p: p, rng: rng, last: make([]int32, 0, window)}
}

// choose returns a recent adapter or own, and remembers it.
func (r *recent) choose(own int32) int32 {
	if len(r.last) > 0 && r.rng.Float64() < r.p {
		own = r.last[r.rng.IntN(len(r.last))]
	}
	at := slices.Index(r.last, own)
	if at < 0 {
		if len(r.last) < cap(r.last) {
			r.last = append(r.last, own)
		}
		at = len(r.last) - 1
	}
	copy(r.last[1:at+1], r.last[:at])
	r.last[0] = own
	return own
}
