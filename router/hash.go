package router

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"slices"

	"lorasim/trace"
)

// hrw orders the workers of each adapter by highest random weight (rendezvous
// hashing; Thaler and Ravishankar, "Using name-based mappings to increase hit
// rates", 1998). When a worker goes, only its own adapters move, each to the
// next worker of its order. Adapters hash by name, so that the order of the
// adapter list does not matter. Orders are worked out when more than their first
// worker is asked for.
type hrw struct {
	adapters []uint64  // hash of each adapter
	workers  []uint64  // hash of each worker
	orders   [][]int32 // by adapter: its order, or the first of it
}

func newHRW(env Env) *hrw {
	h := &hrw{adapters: make([]uint64, len(env.Adapters)), workers: workerHashes(env), orders: make([][]int32, len(env.Adapters))}
	firsts := upTo(len(env.Adapters))
	for a := range h.adapters {
		h.adapters[a] = hashName(env.Adapters[a])
		first, heaviest := 0, h.weight(int32(a), 0)
		for w := range h.workers {
			if weight := h.weight(int32(a), w); weight > heaviest {
				first, heaviest = w, weight
			}
		}
		firsts[a] = int32(first)
		h.orders[a] = firsts[a : a+1 : a+1]
	}
	return h
}

func hashName(a trace.Adapter) uint64 {
	f := fnv.New64a()
	f.Write([]byte(a.Name))
	return mix(f.Sum64())
}

func workerHashes(env Env) []uint64 {
	hashes := make([]uint64, len(env.Workers))
	for w := range hashes {
		hashes[w] = mix(env.Seed ^ mix(uint64(w)))
	}
	return hashes
}

// mix is the output function of SplitMix64 (Steele, Lea and Flood, "Fast
// splittable pseudorandom number generators", 2014).
func mix(z uint64) uint64 {
	z += 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (h *hrw) weight(adapter int32, worker int) uint64 {
	return mix(h.adapters[adapter] ^ h.workers[worker])
}

// at returns the i-th worker in the order of an adapter, 0 <= i < N.
func (h *hrw) at(adapter int32, i int) int {
	if i > 0 {
		h.order(adapter)
	}
	return int(h.orders[adapter][i])
}

// order returns the whole order of an adapter.
func (h *hrw) order(adapter int32) []int32 {
	if len(h.orders[adapter]) < len(h.workers) {
		weight := make([]uint64, len(h.workers))
		for w := range weight {
			weight[w] = h.weight(adapter, w)
		}
		order := upTo(len(h.workers))
		slices.SortFunc(order, func(a, b int32) int { return cmp.Or(cmp.Compare(weight[b], weight[a]), cmp.Compare(a, b)) })
		h.orders[adapter] = order
	}
	return h.orders[adapter]
}

// placement lists for each worker the adapters among whose first k it is.
func (h *hrw) placement(k int) [][]int32 {
	for a := range h.orders {
		h.at(int32(a), k-1)
	}
	first := slices.Clone(h.orders)
	for a := range first {
		first[a] = first[a][:k]
	}
	return transposed(first, len(h.workers))
}

// hash sends all requests of an adapter to the first usable worker of its
// order of highest random weight, and request i of the base model to worker
// i mod N, or the next usable one. It ignores load, so late signals do not
// matter.
type hash struct{ hrw *hrw }

func newHash(_ *options, env Env) (*Router, error) {
	h := newHRW(env)
	return &Router{Policy: &hash{h}, Placement: h.placement(1)}, nil
}

func (p *hash) Route(r Request, v *View) int {
	if r.Adapter < 0 {
		return nextUsable(v, int(uint64(r.ID)%uint64(len(v.Workers))))
	}
	for i := range v.Workers {
		if w := p.hrw.at(r.Adapter, i); v.Workers[w].Usable() {
			return w
		}
	}
	return None
}

// boundedHash sends a request to the first usable worker of its adapter's hash
// order whose load is at most c x the mean of the usable workers (after
// Mirrokni, Thorup and Zadimoghaddam, "Consistent hashing with bounded loads",
// SODA 2018). A cluster with little load spreads adapters more than needed,
// since one request there exceeds the bound. Requests of the base model, which
// fit anywhere, go to the least loaded worker, ties seeded.
//
// On late signals the overflow of a worker herds to the next one of each
// order, which differs by adapter: milder than with least-loaded.
type boundedHash struct {
	c    float64
	hrw  *hrw
	base least
}

func newBoundedHash(o *options, env Env) (*Router, error) {
	c := o.number("c", ">=1")
	return &Router{Policy: &boundedHash{c, newHRW(env), leastLoaded(newRand(env))}}, nil
}

func (p *boundedHash) Route(r Request, v *View) int {
	if r.Adapter < 0 {
		return p.base.Route(r, v)
	}
	load, usable := 0, 0
	for _, w := range v.usable() {
		load += w.Load()
		usable++
	}
	if usable == 0 {
		return None
	}
	// The least loaded worker is never above the mean, so one is found.
	bound := p.c * float64(load) / float64(usable)
	for i := range v.Workers {
		w := p.hrw.at(r.Adapter, i)
		if v.Workers[w].Usable() && float64(v.Workers[w].Load()) <= bound {
			return w
		}
	}
	return None
}

// kShard serves each adapter on its shard: the first k usable workers of its
// order of highest random weight, of which each request takes the least loaded
// (of equals the first in that order). The adapter's k follows the load of the
// shard, its requests over its max running requests: above the high watermark
// k grows by one, below the low one it shrinks by one. Hysteresis comes from
// the gap between the watermarks and from two cooldowns, the least times since
// the adapter's last change. With low <= high/2 and workers of one size,
// shrinking alone never lifts the load of a shard above high. Requests of the
// base model, which fit anywhere, go to the least loaded worker, ties seeded.
//
// On late signals it herds within a shard, so the harm is bounded by k.
type kShard struct {
	min, max               int
	low, high              float64
	growEvery, shrinkEvery float64 // s
	workers                []Spec
	hrw                    *hrw
	shards                 []shard // by adapter
	base                   least
}

type shard struct {
	k       int
	changed float64 // s: when k last changed
}

func newKShard(o *options, env Env) (*Router, error) {
	for j := range env.Workers {
		if env.Workers[j].MaxRunning < 1 {
			return nil, errors.New("the limit of running requests per worker must be known")
		}
	}
	limit := o.integer("max", 0, len(env.Workers))
	if limit == 0 {
		limit = len(env.Workers)
	}
	p := &kShard{
		min:         o.integer("k", 1, limit),
		max:         limit,
		high:        o.number("high", ">=0"),
		low:         o.number("low", ">=0"),
		growEvery:   o.number("grow-every", ">=0"),
		shrinkEvery: o.number("shrink-every", ">=0"),
		workers:     env.Workers,
		hrw:         newHRW(env),
		shards:      make([]shard, len(env.Adapters)),
		base:        leastLoaded(newRand(env)),
	}
	if p.low >= p.high {
		return nil, fmt.Errorf("option low is %g, expected less than high (%g)", p.low, p.high)
	}
	for a := range p.shards {
		p.shards[a] = shard{p.min, math.Inf(-1)}
	}
	return &Router{Policy: p, Placement: p.hrw.placement(p.min)}, nil
}

func (p *kShard) Route(r Request, v *View) int {
	if r.Adapter < 0 {
		return p.base.Route(r, v)
	}
	s := &p.shards[r.Adapter]
	worker, load := p.scan(v, r.Adapter, s.k)
	since := v.Now - s.changed
	switch {
	case load > p.high && s.k < p.max && since >= p.growEvery:
		s.k++
	case load < p.low && s.k > p.min && since >= p.shrinkEvery:
		s.k--
	default:
		return worker
	}
	s.changed = v.Now
	worker, _ = p.scan(v, r.Adapter, s.k)
	return worker
}

// scan returns the least loaded of the first k usable workers of an adapter, or
// None, and the load of them all.
func (p *kShard) scan(v *View, adapter int32, k int) (worker int, load float64) {
	t := newTally(nil)
	requests, room := 0, 0
	for i := 0; i < len(v.Workers) && k > 0; i++ {
		n := p.hrw.at(adapter, i)
		w := &v.Workers[n]
		if !w.Usable() {
			continue
		}
		k--
		t.offer(n, float64(w.Load()))
		requests += w.Load()
		if w.MaxRunning > 0 {
			room += w.MaxRunning
		} else {
			room += p.workers[n].MaxRunning
		}
	}
	if room > 0 {
		load = float64(requests) / float64(room)
	}
	return t.worker, load
}
