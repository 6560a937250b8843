package router

import (
	"hash/fnv"

	"lorasim/trace"
)

// hrw orders the workers of each adapter by highest random weight (rendezvous
// hashing; Thaler and Ravishankar, "Using name-based mappings to increase hit
// rates", 1998). When a worker goes, only its own adapters move, each to the
// next worker of its order. Adapters hash by name, so that the order of the
// adapter list does not matter. Orders are worked out as far as they are asked
// for: one worker at first, the next in O(N).
type hrw struct {
	adapters []uint64  // hash of each adapter
	workers  []uint64  // hash of each worker
	orders   [][]int32 // by adapter: the known beginning of its order
}

func newHRW(env Env) *hrw {
	h := &hrw{
		adapters: make([]uint64, len(env.Adapters)),
		workers:  make([]uint64, len(env.Workers)),
		orders:   make([][]int32, len(env.Adapters)),
	}
	for w := range h.workers {
		h.workers[w] = mix(env.Seed ^ mix(uint64(w)))
	}
	firsts := make([]int32, len(env.Adapters))
	for a := range h.adapters {
		h.adapters[a] = hashName(env.Adapters[a])
		h.orders[a] = firsts[a : a : a+1]
		h.at(int32(a), 0)
	}
	return h
}

func hashName(a trace.Adapter) uint64 {
	f := fnv.New64a()
	f.Write([]byte(a.Name))
	return mix(f.Sum64())
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
	for len(h.orders[adapter]) <= i {
		h.orders[adapter] = append(h.orders[adapter], h.next(adapter))
	}
	return int(h.orders[adapter][i])
}

// next returns the worker that follows the known beginning of an order: the
// heaviest of those lighter than its last, and of equals the lowest index.
func (h *hrw) next(adapter int32) int32 {
	known := h.orders[adapter]
	last, limit := -1, uint64(0)
	if len(known) > 0 {
		last = int(known[len(known)-1])
		limit = h.weight(adapter, last)
	}
	best, bestWeight := -1, uint64(0)
	for w := range h.workers {
		weight := h.weight(adapter, w)
		follows := last < 0 || weight < limit || weight == limit && w > last
		if follows && (best < 0 || weight > bestWeight) {
			best, bestWeight = w, weight
		}
	}
	return int32(best)
}

// placement lists for each worker the adapters among whose first k it is.
func (h *hrw) placement(k int) [][]int32 {
	placement := make([][]int32, len(h.workers))
	for a := range h.adapters {
		for i := range k {
			w := h.at(int32(a), i)
			placement[w] = append(placement[w], int32(a))
		}
	}
	return placement
}
