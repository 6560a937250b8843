package policies

import (
	"cmp"
	"hash/fnv"
	"slices"

	"lorasim/router"
	"lorasim/router/place"
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

func newHRW(env router.Env) *hrw {
	h := &hrw{
		adapters: make([]uint64, len(env.Adapters)),
		workers:  workerHashes(env),
		orders:   make([][]int32, len(env.Adapters)),
	}
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

func workerHashes(env router.Env) []uint64 {
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
		slices.SortFunc(order, func(a, b int32) int {
			return cmp.Or(cmp.Compare(weight[b], weight[a]), cmp.Compare(a, b))
		})
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
	return place.Transpose(first, len(h.workers))
}
