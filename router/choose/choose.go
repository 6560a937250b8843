// Package choose picks one worker among several: the one with the least cost ([Least]), the least loaded one, or the
// next one that is usable. Policies share it, so that all of them break ties alike.
package choose

import (
	"math"
	"math/rand/v2"

	"lorasim/router"
)

// Least finds the worker with the least cost among those offered to it.
type Least struct {
	Worker int // None until one is offered
	Cost   float64
	equal  int        // workers offered at this cost
	rng    *rand.Rand // picks among equals; nil: the first
}

// New returns a Least to which no worker was offered. rng picks among workers with equal costs; nil: the first one
// wins.
func New(rng *rand.Rand) Least { return Least{Worker: router.None, Cost: math.Inf(1), rng: rng} }

// Offer considers a worker. It is small enough to be inlined; few workers get past it.
func (t *Least) Offer(worker int, cost float64) {
	if cost <= t.Cost {
		t.take(worker, cost)
	}
}

// take keeps each of n equals with chance 1/n (reservoir sampling).
func (t *Least) take(worker int, cost float64) {
	if t.Worker == router.None || cost < t.Cost {
		t.Worker, t.Cost, t.equal = worker, cost, 1
		return
	}
	t.equal++
	if t.rng != nil && t.rng.IntN(t.equal) == 0 {
		t.Worker = worker
	}
}

// OfferLowest is Offer for workers that come in any order: of equals the one with the lowest index wins.
func (t *Least) OfferLowest(worker int, cost float64) {
	if cost < t.Cost || cost == t.Cost && worker < t.Worker {
		t.Worker, t.Cost = worker, cost
	}
}

// LeastLoaded returns the usable worker with the fewest requests among the given ones, or None. rng picks among workers
// with equal loads; nil: the first one wins.
func LeastLoaded(v *router.View, among []int32, rng *rand.Rand) int {
	t := New(rng)
	for _, j := range among {
		if w := &v.Workers[j]; w.Usable() {
			t.Offer(int(j), float64(w.Load()))
		}
	}
	return t.Worker
}

// NextUsable returns the first usable worker from the given one on, going around, or None.
func NextUsable(v *router.View, from int) int {
	for i := range v.Workers {
		if w := (from + i) % len(v.Workers); v.Workers[w].Usable() {
			return w
		}
	}
	return router.None
}
