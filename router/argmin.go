package router

import (
	"math"
	"math/rand/v2"
)

// argmin finds the least cost among the workers offered to it.
type argmin struct {
	worker int // None until one is offered
	cost   float64
	equal  int        // workers offered at this cost
	rng    *rand.Rand // picks among equals; nil: the first
}

func newArgmin(rng *rand.Rand) argmin { return argmin{worker: None, cost: math.Inf(1), rng: rng} }

// offer considers a worker. It is small enough to be inlined; few workers get
// past it.
func (t *argmin) offer(worker int, cost float64) {
	if cost <= t.cost {
		t.take(worker, cost)
	}
}

// take keeps each of n equals with chance 1/n (reservoir sampling).
func (t *argmin) take(worker int, cost float64) {
	if t.worker == None || cost < t.cost {
		t.worker, t.cost, t.equal = worker, cost, 1
		return
	}
	t.equal++
	if t.rng != nil && t.rng.IntN(t.equal) == 0 {
		t.worker = worker
	}
}

// offerLowest is offer for workers that come in any order: of equals the one with the
// lowest number wins.
func (t *argmin) offerLowest(worker int, cost float64) {
	if cost < t.cost || cost == t.cost && worker < t.worker {
		t.worker, t.cost = worker, cost
	}
}

// Least returns the index of the first usable worker with the least cost, or None.
func (v *View) Least(cost func(j int, w *Worker) float64) int {
	t := newArgmin(nil)
	for j, w := range v.Usable() {
		t.offer(j, cost(j, w))
	}
	return t.worker
}

// leastLoaded is the least loaded of the given workers that are usable, or None; rng
// picks among equals, nil: the first.
func (v *View) leastLoaded(among []int32, rng *rand.Rand) int {
	t := newArgmin(rng)
	for _, j := range among {
		if w := &v.Workers[j]; w.Usable() {
			t.offer(int(j), float64(w.Load()))
		}
	}
	return t.worker
}

// LeastLoaded returns the index of the first usable worker with the fewest requests, or None.
func (v *View) LeastLoaded() int {
	return v.Least(func(_ int, w *Worker) float64 { return float64(w.Load()) })
}
