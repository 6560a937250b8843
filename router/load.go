package router

import (
	"math"
	"math/rand/v2"
)

// roundRobin sends requests to the workers in turn and skips unusable ones. It
// ignores load, so late signals do not matter.
type roundRobin struct{ next int }

func newRoundRobin(*options, Env) (*Router, error) { return &Router{Policy: &roundRobin{}}, nil }

func (p *roundRobin) Route(_ Request, v *View) int {
	w := nextUsable(v, p.next)
	if w != None {
		p.next = (w + 1) % len(v.Workers)
	}
	return w
}

// random sends each request to any usable worker, with equal chance. It
// ignores load, so late signals do not matter.
type random struct{ rng *rand.Rand }

func newRandom(_ *options, env Env) (*Router, error) {
	return &Router{Policy: &random{newRand(env)}}, nil
}

func (p *random) Route(_ Request, v *View) int { return anyUsable(v, p.rng, None) }

// anyUsable returns a usable worker other than the given one, each with equal
// chance, or None. It lists them only when its first draw fails.
func anyUsable(v *View, rng *rand.Rand, other int) int {
	i := rng.IntN(len(v.Workers))
	if i != other && v.Workers[i].Usable() {
		return i
	}
	var usable []int
	for i := range v.usable() {
		if i != other {
			usable = append(usable, i)
		}
	}
	if usable == nil {
		return None
	}
	return usable[rng.IntN(len(usable))]
}

// p2c draws two different usable workers and takes the less loaded, the first
// drawn of equals. Two choices already take the largest load of n workers from
// O(log n) to O(log log n) above the mean, and because every worker is drawn
// from time to time, late signals cause little herding (Mitzenmacher, "The
// power of two choices in randomized load balancing", 2001).
type p2c struct{ rng *rand.Rand }

func newP2C(_ *options, env Env) (*Router, error) { return &Router{Policy: &p2c{newRand(env)}}, nil }

func (p *p2c) Route(_ Request, v *View) int {
	a := anyUsable(v, p.rng, None)
	if a == None {
		return None
	}
	b := anyUsable(v, p.rng, a)
	if b == None || v.Workers[a].Load() <= v.Workers[b].Load() {
		return a
	}
	return b
}

// least sends each request to the usable worker with the least outstanding
// tokens, or the least weighted number of requests. It herds on late signals;
// with ties=random it does so only where loads differ.
type least struct {
	tokens bool       // count tokens instead of requests
	queued int        // weight of a waiting request; a running one weighs 1
	rng    *rand.Rand // picks among equals; nil: the first
	equals []int32    // scratch
}

// leastLoaded counts requests, wherever they are on the worker.
func leastLoaded(rng *rand.Rand) least { return least{queued: 1, rng: rng} }

func newLeastLoaded(o *options, env Env) (*Router, error) {
	p := leastLoaded(o.ties(env))
	return &Router{Policy: &p}, nil
}

// newLeastTokens counts tokens: prompt + expected output of all requests.
func newLeastTokens(o *options, env Env) (*Router, error) {
	return &Router{Policy: &least{tokens: true, rng: o.ties(env)}}, nil
}

// newWeightedQueue is the balancer between vLLM's data parallel engines, which
// scores 4 x waiting + running.
func newWeightedQueue(o *options, env Env) (*Router, error) {
	weight := o.integer("weight", 0, 1_000_000)
	return &Router{Policy: &least{queued: weight, rng: o.ties(env)}}, nil
}

// newAnyWorker is how S-LoRA (MLSys 2024) would be spread over workers: any of
// them serves any adapter, loads it on demand, and meanwhile prefetches the
// adapters of its queue.
func newAnyWorker(o *options, env Env) (*Router, error) {
	p := leastLoaded(o.ties(env))
	return &Router{Policy: &p, Prefetch: true}, nil
}

func (p *least) cost(w *Worker) int64 {
	if p.tokens {
		return w.Tokens
	}
	return int64(w.Running + p.queued*w.Queued)
}

func (p *least) Route(_ Request, v *View) int {
	best := int64(math.MaxInt64)
	p.equals = p.equals[:0]
	for i, w := range v.usable() {
		c := p.cost(w)
		if c > best {
			continue
		}
		if c < best {
			best, p.equals = c, p.equals[:0]
		}
		p.equals = append(p.equals, int32(i))
	}
	switch {
	case len(p.equals) == 0:
		return None
	case len(p.equals) == 1 || p.rng == nil:
		return int(p.equals[0])
	}
	return int(p.equals[p.rng.IntN(len(p.equals))])
}

// tally finds the least cost among the workers offered to it.
type tally struct {
	worker int // None until one is offered
	cost   float64
	equal  int        // workers offered at this cost
	rng    *rand.Rand // picks among equals; nil: the first
}

func newTally(rng *rand.Rand) tally { return tally{worker: None, cost: math.Inf(1), rng: rng} }

// offer considers a worker. It is small enough to be inlined; few workers get
// past it.
func (t *tally) offer(worker int, cost float64) {
	if cost <= t.cost {
		t.take(worker, cost)
	}
}

// take keeps each of n equals with chance 1/n (reservoir sampling).
func (t *tally) take(worker int, cost float64) {
	if t.worker == None || cost < t.cost {
		t.worker, t.cost, t.equal = worker, cost, 1
		return
	}
	t.equal++
	if t.rng != nil && t.rng.IntN(t.equal) == 0 {
		t.worker = worker
	}
}

// least is the first usable worker with the least cost, or None.
func (v *View) least(cost func(j int, w *Worker) float64) int {
	t := newTally(nil)
	for j, w := range v.usable() {
		t.offer(j, cost(j, w))
	}
	return t.worker
}

// leastLoaded is the least loaded of the given workers that are usable, or None; rng
// picks among equals, nil: the first.
func (v *View) leastLoaded(among []int32, rng *rand.Rand) int {
	t := newTally(rng)
	for _, j := range among {
		if w := &v.Workers[j]; w.Usable() {
			t.offer(int(j), float64(w.Load()))
		}
	}
	return t.worker
}

// affinitySpill sends each request to the least loaded of the workers that
// have its adapter and fewer waiting requests than a threshold; if there is
// none, to the least loaded worker anywhere, which then loads the adapter.
// A worker has an adapter that is in a GPU slot, on its way there, or wanted
// by requests already sent there, so that a burst for a cold adapter does not
// scatter. The default threshold, 5, is the queue length up to which the
// Gateway API Inference Extension's filters take a worker to have room.
//
// On late signals it herds on the workers that have the adapter, and each
// spill herds on the worker that looked emptiest.
type affinitySpill struct {
	threshold int
	least     least
}

func newAffinitySpill(o *options, env Env) (*Router, error) {
	return &Router{Policy: &affinitySpill{o.integer("threshold", 1, math.MaxInt), leastLoaded(o.ties(env))}}, nil
}

func (p *affinitySpill) Route(r Request, v *View) int {
	if r.Adapter < 0 {
		return p.least.Route(r, v)
	}
	t := newTally(p.least.rng)
	for i, w := range v.having(r.Adapter) {
		if w.Queued < p.threshold {
			t.offer(i, float64(w.Load()))
		}
	}
	if t.worker == None {
		return p.least.Route(r, v)
	}
	return t.worker
}
