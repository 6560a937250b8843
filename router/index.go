package router

import (
	"iter"
	"math/bits"
)

// Index says of every adapter which workers have it, so that a policy need not look
// at all of them. Who fills a view may keep one and sets it at every change.
type Index struct {
	words     int      // of each adapter
	has, host []uint64 // a bit for each worker: AdapterState.wanted; found in host memory or a slot
}

// NewIndex knows of no adapter anywhere.
func NewIndex(workers, adapters int) *Index {
	n := (workers + 63) / 64
	return &Index{words: n, has: make([]uint64, n*adapters), host: make([]uint64, n*adapters)}
}

// Set enters how a worker sees an adapter.
func (x *Index) Set(worker int, adapter int32, a AdapterState) {
	i, bit := int(adapter)*x.words+worker/64, uint64(1)<<(worker%64)
	x.has[i], x.host[i] = x.has[i]&^bit, x.host[i]&^bit
	if a.wanted() {
		x.has[i] |= bit
	}
	if a.Tier >= Host {
		x.host[i] |= bit
	}
}

// wanted says whether an adapter is in a GPU slot, or will be.
func (a AdapterState) wanted() bool {
	return a.Tier == GPU || a.Loading || a.Running > 0 || a.Queued > 0
}

// in says whether a worker is in a set of an adapter.
func (x *Index) in(set []uint64, worker int, adapter int32) bool {
	return set[int(adapter)*x.words+worker/64]>>(worker%64)&1 > 0
}

// having yields the usable workers that have an adapter, ascending.
func (v *View) having(adapter int32) iter.Seq2[int, *Worker] {
	return func(yield func(int, *Worker) bool) {
		if v.Index == nil {
			for j, w := range v.usable() {
				if w.adapter(adapter).wanted() && !yield(j, w) {
					return
				}
			}
			return
		}
		for i := range v.Index.words {
			for set := v.Index.has[int(adapter)*v.Index.words+i]; set != 0; set &= set - 1 {
				j := 64*i + bits.TrailingZeros64(set)
				if w := &v.Workers[j]; w.Usable() && !yield(j, w) {
					return
				}
			}
		}
	}
}
