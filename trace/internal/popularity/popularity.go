// Package popularity makes the requests of a workload depend on time and on each
// other in which adapter they use: drift moves popularity on from one adapter
// to the next, and locality repeats adapters that were used recently.
package popularity

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Drift returns what has become of a rank at time t (s), when the ranks 0 to
// n-1 move on by one each period (s): each takes the place of the next, and the
// last that of the first.
func Drift(rank, n int, t, period float64) int {
	steps := int(math.Mod(math.Floor(t/period), float64(n)))
	return (rank + steps) % n
}

// Recent repeats recently used adapters.
type Recent struct {
	p    float64
	rng  *rand.Rand
	last []int32 // distinct adapters, the latest first; its capacity is the window
}

// NewRecent returns a Recent that repeats, with probability p, one of the last
// window distinct adapters, all equally likely. They are searched for each
// request.
func NewRecent(p float64, window int, rng *rand.Rand) *Recent {
	return &Recent{p: p, rng: rng, last: make([]int32, 0, window)}
}

// Choose returns the adapter to use, which is own or a recent one, and
// remembers it.
func (r *Recent) Choose(own int32) int32 {
	if len(r.last) > 0 && r.rng.Float64() < r.p {
		own = r.last[r.rng.IntN(len(r.last))]
	}
	r.touch(own)
	return own
}

// touch moves an adapter to the front.
func (r *Recent) touch(adapter int32) {
	at := slices.Index(r.last, adapter)
	if at < 0 {
		if len(r.last) < cap(r.last) {
			r.last = append(r.last, adapter)
		}
		at = len(r.last) - 1
	}
	copy(r.last[1:at+1], r.last[:at])
	r.last[0] = adapter
}
