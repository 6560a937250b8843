package router

import (
	"iter"
	"math/bits"

	"lorasim/trace"
)

// Tier says where a worker finds the weights of an adapter.
type Tier uint8

// Tiers, from slow to fast.
const (
	Remote Tier = iota // only in the adapter store
	Disk               // on the worker's disk
	Host               // in the worker's host memory
	GPU                // in a GPU slot
)

// AdapterState is one adapter as one worker sees it.
type AdapterState struct {
	Running int32 // requests of the adapter that run there
	Queued  int32 // requests of the adapter that wait there
	Tier    Tier  // fastest place that holds the weights
	Loading bool  // on its way to a GPU slot
	Pinned  bool  // never evicted
}

// Wanted says whether an adapter is in a GPU slot, or will be.
func (a AdapterState) Wanted() bool {
	return a.Tier == GPU || a.Loading || a.Running > 0 || a.Queued > 0
}

// Worker is one worker as the router sees it.
type Worker struct {
	Up       bool // healthy
	Draining bool // finishes its requests, takes no new ones
	Ejected  bool // takes no new ones for some time, as it failed requests

	Running    int   // requests in the running batch
	Queued     int   // requests waiting, on the way included
	MaxRunning int   // limit of Running
	Tokens     int64 // prompt tokens + expected output tokens of all its requests
	QueuedToks int64 // prompt tokens of its waiting requests
	MaxRank    int   // largest rank among its requests, running and waiting

	KVUsed     int64 // tokens in the KV cache; kept current only for policies with ReadsKV
	KVCapacity int64 // tokens

	// Full: no waiting request can run before a running one leaves, for want of KV
	// memory or of a place in the batch. Simulated workers alone tell, and only
	// those who watch a run.
	Full bool
	// Entering is the number of Queued requests that are still in the server's front
	// end. Like Full it is set for observers of simulated runs only.
	Entering int

	Slots        int // GPU adapter slots
	ActiveLoras  int // adapters with running requests
	WaitingLoras int // adapters with waiting requests
	FlightLoras  int // adapters with requests, running or waiting

	SlotsUsed int // slots that hold or load an adapter
	SlotsIdle int // used slots whose adapter could be evicted now
	HostSlots int // adapters that fit in host memory; 0: no limit

	Age float64 // s since the worker's own signals were read

	// Report is what a real worker's metrics said when they were last read; nil: simulated, or not read yet.
	Report  *Report
	Address string            // host:port of a real worker
	Labels  map[string]string // of a real worker, by what started it

	Adapters []AdapterState // by adapter index
}

// Load is the number of requests on the worker, running and waiting.
func (w *Worker) Load() int { return w.Running + w.Queued }

// Usable says whether new requests may be sent to the worker.
func (w *Worker) Usable() bool { return w.Up && !w.Draining && !w.Ejected }

// Count changes the number of running and of waiting requests of an adapter. It
// says whether one of them left 0 or came back to it.
func (w *Worker) Count(adapter, running, queued int32) bool {
	st := &w.Adapters[adapter]
	r, q := began(st.Running, running), began(st.Queued, queued)
	w.ActiveLoras += r
	w.WaitingLoras += q
	w.FlightLoras += began(st.Running+st.Queued, running+queued)
	st.Running += running
	st.Queued += queued
	return r != 0 || q != 0
}

// began is 1 if a count that changes by by leaves 0, -1 if it comes back to 0.
func began(n, by int32) int {
	switch {
	case by > 0 && n == 0:
		return 1
	case by < 0 && n+by == 0:
		return -1
	}
	return 0
}

// Adapter returns what the worker knows of an adapter; of the base model nothing.
func (w *Worker) Adapter(a int32) AdapterState {
	if a < 0 || int(a) >= len(w.Adapters) {
		return AdapterState{}
	}
	return w.Adapters[a]
}

// atHand says whether an adapter is in host memory at least.
func (w *Worker) atHand(k int32) bool { return !isAdapter(k) || w.Adapter(k).Tier >= Host }

// KVShare is the used share of the KV cache, 0 where its capacity is unknown.
func (w *Worker) KVShare() float64 {
	if w.KVCapacity <= 0 {
		return 0
	}
	return min(float64(w.KVUsed)/float64(w.KVCapacity), 1)
}

// View is a read-only snapshot of the cluster. Policies must not keep or
// change it.
type View struct {
	Now      float64         // s; never goes back during a run
	Workers  []Worker        // Env.Workers of them, in the same order all run
	Adapters []trace.Adapter // the same as Env.Adapters
	Prefixes Prefixes        // nil: workers do not tell what they keep of prompts
	// Index knows which workers have an adapter; nil: each has to be looked at.
	Index *Index
	// Read brings the KVUsed of a worker up to now, for policies that ask for those of
	// a few workers only ([Router.ReadsFewKV]); nil: it is.
	Read func(worker int)
}

// read brings the KVUsed of a worker up to now.
func (v *View) read(j int) {
	if v.Read != nil {
		v.Read(j)
	}
}

// Usable yields the workers that new requests may be sent to.
func (v *View) Usable() iter.Seq2[int, *Worker] {
	return func(yield func(int, *Worker) bool) {
		for j := range v.Workers {
			if w := &v.Workers[j]; w.Usable() && !yield(j, w) {
				return
			}
		}
	}
}

// nextUsable returns the first usable worker from the given one on, going
// around, or None.
func nextUsable(v *View, from int) int {
	for i := range v.Workers {
		if w := (from + i) % len(v.Workers); v.Workers[w].Usable() {
			return w
		}
	}
	return None
}

// Having yields the usable workers that have an adapter, ascending: it is in a GPU slot, on its way there, or wanted by
// requests already sent there ([AdapterState.Wanted]).
func (v *View) Having(adapter int32) iter.Seq2[int, *Worker] {
	return func(yield func(int, *Worker) bool) {
		if v.Index == nil {
			for j, w := range v.Usable() {
				if w.Adapter(adapter).Wanted() && !yield(j, w) {
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

// Index says of every adapter which workers have it, so that a policy need not look
// at all of them. Who fills a view may keep one and sets it at every change.
type Index struct {
	words     int      // of each adapter
	has, host []uint64 // a bit for each worker: AdapterState.Wanted; found in host memory or a slot
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
	if a.Wanted() {
		x.has[i] |= bit
	}
	if a.Tier >= Host {
		x.host[i] |= bit
	}
}

// in says whether a worker is in a set of an adapter.
func (x *Index) in(set []uint64, worker int, adapter int32) bool {
	return set[int(adapter)*x.words+worker/64]>>(worker%64)&1 > 0
}
