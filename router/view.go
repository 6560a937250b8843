package router

import (
	"iter"
	"math"
	"math/bits"
	"slices"

	"lorasim/trace"
)

// Tier is the fastest memory of a worker that holds the weights of an adapter.
type Tier uint8

// Tiers, from slow to fast.
const (
	Remote Tier = iota // only in the adapter store
	Disk               // on the worker's disk
	Host               // in the worker's host memory
	GPU                // in a GPU slot
)

// AdapterState is the state of one adapter on one worker.
type AdapterState struct {
	Running int32 // running requests of the adapter
	Queued  int32 // waiting requests of the adapter
	Tier    Tier  // fastest memory that holds the weights
	Loading bool  // being loaded into a GPU slot
	Pinned  bool  // never evicted
}

// Wanted reports whether an adapter is in a GPU slot, or will be.
func (a AdapterState) Wanted() bool {
	return a.Tier == GPU || a.Loading || a.Running > 0 || a.Queued > 0
}

// Worker is one worker as the router sees it.
type Worker struct {
	Up       bool // healthy
	Draining bool // finishes its requests and gets no new ones
	Ejected  bool // gets no new requests for some time, because it failed requests

	// What plan-and-route looks at on every worker comes first, in one line of the processor's cache.

	Running     int // requests in the running batch
	Queued      int // waiting requests, including those on the way to it
	MaxRunning  int // limit of Running
	MaxRank     int // largest rank among its requests, running and waiting
	Slots       int // GPU adapter slots
	SlotsUsed   int // slots that hold or load an adapter
	ActiveLoras int // adapters with running requests

	WaitingLoras int // adapters with waiting requests
	FlightLoras  int // adapters with requests, running or waiting
	SlotsIdle    int // used slots whose adapter could be evicted now
	HostSlots    int // limit of adapters in host memory; 0: no limit

	Tokens     int64 // prompt tokens + expected output tokens of all its requests
	QueuedToks int64 // prompt tokens of its waiting requests
	KVUsed     int64 // tokens in the KV cache; kept current only for policies with ReadsKV
	KVCapacity int64 // tokens

	// Full says that no waiting request can run before a running one leaves, because the KV cache or the batch is
	// full. Only simulated workers with an observer set it.
	Full bool
	// Entering is the number of Queued requests that are still in the server's front end. Like Full, it is set only
	// for observers of simulated runs.
	Entering int

	Age float64 // time since the worker's own signals were read, s

	// Report is the latest reading of a real worker's metrics; nil: the worker is simulated, or was not read yet.
	Report  *Report
	Address string            // host:port of a real worker
	Labels  map[string]string // labels of a real worker, such as those of its pod

	// Adapters are the states by adapter index; nil where a simulated worker has many adapters. [Worker.Adapter],
	// [Worker.Row] and [Worker.Rows] serve both.
	Adapters []AdapterState
	rows     *rows // nil: Adapters has the states

	counted bool              // all changes of requests go through Count, see NewBooks
	flight  []AdapterRequests // see InFlight; nil: nobody asked yet, or not counted
}

// AdapterRequests are the requests of an adapter on a worker.
type AdapterRequests struct{ Adapter, Running, Queued int32 }

// InFlight returns the adapters with requests on the worker, in ascending order. The list is valid until the worker
// changes. On a worker with [Books], its cost does not grow with the number of adapters.
func (w *Worker) InFlight() []AdapterRequests {
	if w.flight != nil {
		return w.flight
	}
	list := make([]AdapterRequests, 0, 8)
	for a, st := range w.Rows() {
		if st.Running+st.Queued != 0 {
			list = append(list, AdapterRequests{a, st.Running, st.Queued})
		}
	}
	if w.counted { // kept from now on
		w.flight = list
	}
	return list
}

// track changes the requests of an adapter in the list of InFlight.
func (w *Worker) track(adapter, running, queued int32) {
	i := 0
	for i < len(w.flight) && w.flight[i].Adapter < adapter {
		i++
	}
	if i == len(w.flight) || w.flight[i].Adapter != adapter {
		w.flight = slices.Insert(w.flight, i, AdapterRequests{Adapter: adapter})
	}
	f := &w.flight[i]
	f.Running += running
	f.Queued += queued
	if f.Running+f.Queued == 0 {
		w.flight = slices.Delete(w.flight, i, i+1)
	}
}

// Detach makes a copy of a worker independent of the worker that it was copied from: changes of the copy's adapters and
// their requests leave that worker alone. It takes the memory of an earlier copy that is no longer in use, if not nil.
func (w *Worker) Detach(unused *Worker) {
	if unused == nil {
		unused = &Worker{}
	}
	if w.Adapters != nil {
		w.Adapters = append(unused.Adapters[:0], w.Adapters...)
	}
	if w.flight != nil {
		w.flight = append(slices.Grow(unused.flight[:0], max(len(w.flight), 1)), w.flight...)
	}
	w.rows = w.rows.clone()
}

// Load returns the number of requests on the worker, running and waiting.
func (w *Worker) Load() int { return w.Running + w.Queued }

// Usable reports whether new requests may be sent to the worker.
func (w *Worker) Usable() bool { return w.Up && !w.Draining && !w.Ejected }

// Count changes the numbers of running and of waiting requests of an adapter. It reports whether one of the two
// numbers changed from or to 0.
func (w *Worker) Count(adapter, running, queued int32) bool {
	st := w.Row(adapter)
	r, q := began(st.Running, running), began(st.Queued, queued)
	w.ActiveLoras += r
	w.WaitingLoras += q
	w.FlightLoras += began(st.Running+st.Queued, running+queued)
	st.Running += running
	st.Queued += queued
	if w.flight != nil {
		w.track(adapter, running, queued)
	}
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

// InSlot reports whether an adapter is in a GPU slot, or on its way there. The base model is everywhere.
func (w *Worker) InSlot(adapter int32) bool {
	a := w.Adapter(adapter)
	return adapter == trace.BaseModel || a.Tier == GPU || a.Loading
}

// InHost reports whether an adapter is in host memory or in a GPU slot. The base model is everywhere.
func (w *Worker) InHost(adapter int32) bool {
	return adapter == trace.BaseModel || w.Adapter(adapter).Tier >= Host
}

// KVShare returns the used share of the KV cache, 0 if its size is unknown.
func (w *Worker) KVShare() float64 {
	if w.KVCapacity <= 0 {
		return 0
	}
	return min(float64(w.KVUsed)/float64(w.KVCapacity), 1)
}

// Report is what a worker's own metrics said when they were last read.
type Report struct {
	Waiting, Running int
	KV               float64 // used share of the KV cache
	// Adapters of requests there, as vLLM lists them; MaxLora is 0 where no list was written yet.
	RunningAdapters, WaitingAdapters []string
	MaxLora                          int
	BlockSize, NumBlocks             int     // of the KV cache; 0: unknown
	At                               float64 // s, of View.Now
}

// View is a snapshot of the cluster. Policies must not keep or change it.
type View struct {
	Now      float64         // time, s; never decreases during a run
	Workers  []Worker        // Env.Workers of them, in the same order all run
	Adapters []trace.Adapter // the same as Env.Adapters
	Prefixes Prefixes        // Prefixes says what the workers' prefix caches hold; nil: unknown.
	// Index lists the workers that have an adapter; nil: a policy checks each worker.
	Index *Index
	// Read updates the KVUsed of one worker, for policies that need those of few workers only
	// ([Router.ReadsFewKV]); nil: KVUsed is current. Policies call [View.ReadKV].
	Read func(worker int)
}

// ReadKV makes the KVUsed of a worker current.
func (v *View) ReadKV(worker int) {
	if v.Read != nil {
		v.Read(worker)
	}
}

// Usable yields the workers to which new requests may be sent.
func (v *View) Usable() iter.Seq2[int, *Worker] {
	return func(yield func(int, *Worker) bool) {
		for j := range v.Workers {
			if w := &v.Workers[j]; w.Usable() && !yield(j, w) {
				return
			}
		}
	}
}

// Having yields the usable workers that have an adapter, in ascending order: the adapter is in a GPU slot, on its
// way there, or wanted by requests sent there ([AdapterState.Wanted]). It yields none for the base model.
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
		if adapter < 0 || int(adapter) >= len(v.Adapters) {
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

// Index lists the workers of each adapter, so that a policy need not check all workers. The owner of a view may
// keep an index and must call Set at every change.
//
// An owner that changes workers calls Touch after each change, so that a policy that follows the index need not look at
// the other workers again ([Index.Follow]).
type Index struct {
	words int      // of each adapter
	has   []uint64 // a bit for each worker: AdapterState.Wanted
	// By worker: adapters are in host memory. By adapter: the workers where that is not so, in ascending order.
	hosts  []bool
	others [][]int32
	remote bool // some adapter was remote on some worker

	followers []*Changes
}

// Changes are the workers that have changed since its owner took them.
type Changes struct {
	in   []bool // by worker: it is in list
	list []int32
}

// Follow returns the changes of the workers from now on. At first, all of the given number of workers are in it.
func (x *Index) Follow(workers int) *Changes {
	c := &Changes{in: make([]bool, workers)}
	for j := range workers {
		c.Add(j)
	}
	x.followers = append(x.followers, c)
	return c
}

// Touch notes that a worker has changed: its counts, its limits or its health, or that its use of the KV cache fell.
func (x *Index) Touch(worker int) {
	for _, c := range x.followers {
		c.Add(worker)
	}
}

// Add enters a worker.
func (c *Changes) Add(worker int) {
	if !c.in[worker] {
		c.in[worker] = true
		c.list = append(c.list, int32(worker))
	}
}

// Take returns the workers that have changed, each once, and forgets them. The list is valid until the next change.
func (c *Changes) Take() []int32 {
	list := c.list
	for _, j := range list {
		c.in[j] = false
	}
	c.list = list[:0]
	return list
}

// NewIndex returns an index in which no worker has any adapter.
func NewIndex(workers, adapters int) *Index {
	n := (workers + 63) / 64
	return &Index{words: n, has: make([]uint64, n*adapters), hosts: make([]bool, workers),
		others: make([][]int32, adapters)}
}

// Set enters the state of an adapter on a worker.
func (x *Index) Set(worker int, adapter int32, a AdapterState) {
	i, bit := int(adapter)*x.words+worker/64, uint64(1)<<(worker%64)
	if x.has[i] &^= bit; a.Wanted() {
		x.has[i] |= bit
	}
	x.except(worker, adapter, (a.Tier >= Host) != x.hosts[worker])
	x.remote = x.remote || a.Tier == Remote
}

// InHost is [Worker.InHost] of a worker of the view. With an index it need not look at the worker.
func (v *View) InHost(worker int, adapter int32) bool {
	if v.Index == nil || adapter == trace.BaseModel {
		return v.Workers[worker].InHost(adapter)
	}
	usual, others := v.Index.Hosts(adapter)
	_, other := slices.BinarySearch(others, int32(worker))
	return usual[worker] != other
}

// Remote reports whether an adapter may be remote on a worker. If not, those that are not in host memory are on disk.
func (x *Index) Remote() bool { return x.remote }

// except enters whether an adapter is an exception to the host memory of a worker.
func (x *Index) except(worker int, adapter int32, is bool) {
	list := &x.others[adapter]
	if len(*list) == 0 && !is {
		return
	}
	switch k, was := slices.BinarySearch(*list, int32(worker)); {
	case is && !was:
		*list = slices.Insert(*list, k, int32(worker))
	case !is && was:
		*list = slices.Delete(*list, k, k+1)
	}
}

// Hosts says on which workers an adapter is in host memory or in a GPU slot: those that usual says, by worker, which
// does not depend on the adapter, but for the others, which are in ascending order. The base model has no others. The
// lists are valid until the next change.
func (x *Index) Hosts(adapter int32) (usual []bool, others []int32) {
	if adapter >= 0 {
		others = x.others[adapter]
	}
	return x.hosts, others
}

// Workers returns the set of workers that have an adapter: bit j%64 of word j/64 for worker j. The caller must not
// change it. It is valid until the next change.
func (x *Index) Workers(adapter int32) []uint64 {
	return x.has[int(adapter)*x.words : (int(adapter)+1)*x.words]
}

// Has reports whether a worker has an adapter: [AdapterState.Wanted].
func (x *Index) Has(worker int, adapter int32) bool {
	return x.has[int(adapter)*x.words+worker/64]>>(worker%64)&1 > 0
}

// Least returns the index of the first usable worker with the least cost, or None.
func (v *View) Least(cost func(j int, w *Worker) float64) int {
	best, least := None, math.Inf(1)
	for j, w := range v.Usable() {
		if c := cost(j, w); c < least || c == least && best == None {
			best, least = j, c
		}
	}
	return best
}

// LeastLoaded returns the index of the first usable worker with the fewest requests, or None.
func (v *View) LeastLoaded() int {
	return v.Least(func(_ int, w *Worker) float64 { return float64(w.Load()) })
}

// Prefixes says which prompt prefixes workers keep in their prefix caches.
type Prefixes interface {
	// Match returns how many of the first n tokens of a text a worker keeps for an adapter. A worker that keeps a
	// whole prompt still computes its last token.
	Match(worker int, text *trace.Text, adapter, tokens int32) int32
}
