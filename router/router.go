// Package router decides where requests go. A [Policy] picks a worker for each
// request from a [View] of the cluster; it is pure: no clock, no I/O, its own
// seeded generator. The simulator and the live client ask the same policies.
//
// Policies are named in specs such as "least-loaded" or "bounded-hash:c=1.25",
// which [New] turns into a [Router]:
//
//	rt, err := router.New("affinity-spill:threshold=4", router.Env{Workers: router.Alike(4, spec), Adapters: adapters})
//	w := rt.Policy.Route(router.Request{ID: 7, Adapter: 2}, &view)
//
// One policy, or a small family, lives in one file; registry.go lists them all.
//
// No policy picks a worker that is down or draining. Those that fix the worker
// of an adapter go to another one meanwhile, each in an order it documents; the
// answer is [None] only when no worker is usable.
//
// A router knows which requests it sent and which came back, but learns late what
// only workers can tell: [Stale]. Policies believe the signals of the view,
// however old. Those that look for the emptiest KV cache or the place of an
// adapter herd when signals are late: until the next report every request goes to
// the worker that looked best, so that load swings instead of levelling
// (Mitzenmacher, "How useful is old information?", 2000).
package router

import (
	"errors"
	"iter"
	"math/bits"
	"slices"

	"lorasim/ilp"
	"lorasim/trace"
)

// None is the answer of a policy when no worker may take the request.
const None = -1

// Request is what a router may know of a request: never its output length.
type Request struct {
	ID      int64
	Adapter int32 // index into View.Adapters; trace.BaseModel: no adapter
	Prompt  int32 // prompt tokens
	MaxNew  int32 // max_new_tokens asked for: a limit, not what it will generate
	// Expected is the output expected of it, tokens: [Outputs], or, for bounds on what
	// any estimate could gain, the output itself. 0: nobody estimated.
	Expected int32
	// Text is what the prompt begins with, as far as its first Known tokens; nil:
	// nobody knows.
	Text  *trace.Text
	Known int32
}

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

	SlotsUsed int // slots that hold or load an adapter
	SlotsIdle int // used slots whose adapter could be evicted now
	HostSlots int // adapters that fit in host memory; 0: no limit

	Age float64 // s since the worker's own signals were read

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

// adapter returns what the worker knows of an adapter.
func (w *Worker) adapter(a int32) AdapterState {
	if a < 0 || int(a) >= len(w.Adapters) {
		return AdapterState{}
	}
	return w.Adapters[a]
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

// usable yields the workers that new requests may be sent to.
func (v *View) usable() iter.Seq2[int, *Worker] {
	return func(yield func(int, *Worker) bool) {
		for j := range v.Workers {
			if w := &v.Workers[j]; w.Usable() && !yield(j, w) {
				return
			}
		}
	}
}

// Policy picks the worker for a request. It may keep state of its own and is
// not safe for concurrent use.
type Policy interface {
	// Route returns the index of a usable worker, or None if there is none.
	Route(r Request, v *View) int
}

// CostModel prices work on one worker; times in seconds. Policies that weigh
// ranks or loads use it.
type CostModel interface {
	// DecodeStep is the length of a decode step of the given batch. A batch of
	// 0 costs the fixed part of a step, not nothing, so that the difference of
	// two batches is the cost of the requests between them.
	DecodeStep(running int, kvTokens int64, maxRank int) float64
	// Prefill is the time to prefill the given prompt tokens in chunks.
	Prefill(tokens int64) float64
	// AdapterLoad is the time to bring an adapter of the given rank to a GPU slot.
	AdapterLoad(rank int, from Tier) float64
	// Copy is the time to send bytes of KV cache to another worker.
	Copy(bytes float64) float64
}

var errNeedsCosts = errors.New("needs the step times of the workers (a cost model)")

// Env is what a policy may know when it is built.
type Env struct {
	Workers  []Spec // at least one
	Adapters []trace.Adapter
	Seed     uint64

	// For planners; the zero value stands for "not known".
	Interval  float64    // s between plans where a spec does not say; 0: the policy's own
	Threshold float64    // requests above the mean that trigger dLoRA's plans; 0: its own
	Moving    Moving     // how requests in flight are moved
	Solver    ilp.Solver // nil: the embedded one
}

// Spec is what a worker is all through a run. The zero value of a field stands
// for "not known", but for HostSlots.
type Spec struct {
	Cost         CostModel // nil: policies that need one say so
	MaxRunning   int       // requests it runs at a time
	Slots        int       // GPU adapter slots
	HostSlots    int       // adapters that its host memory holds; 0: no limit
	AdapterBytes []float64 // size of each adapter
	Memory       float64   // bytes of GPU memory for KV cache and adapters
	KVBytes      float64   // bytes of one KV token
	PageSize     int       // KV tokens per page; 0: 1
}

// Alike returns n workers of one kind.
func Alike(n int, s Spec) []Spec {
	return slices.Repeat([]Spec{s}, n)
}

// needCosts says that a worker's cost model is missing.
func (e *Env) needCosts() error {
	if slices.ContainsFunc(e.Workers, func(s Spec) bool { return s.Cost == nil }) {
		return errNeedsCosts
	}
	return nil
}

// unlimited returns the environment with HostSlots 0 (no limit) where host memory has room for every
// adapter, so that a limit that is never reached changes no decision.
func (e Env) unlimited() Env {
	e.Workers = slices.Clone(e.Workers)
	for j := range e.Workers {
		if w := &e.Workers[j]; w.HostSlots >= len(e.Adapters) {
			w.HostSlots = 0
		}
	}
	return e
}

// hostLimited says whether some worker's host memory does not hold every adapter.
func (e *Env) hostLimited() bool {
	return slices.ContainsFunc(e.Workers, func(s Spec) bool { return s.HostSlots > 0 })
}

// pageSize is the size of the pages that KV caches are counted in where workers
// are compared: the largest of theirs, tokens.
func (e *Env) pageSize() float64 {
	size := 1
	for j := range e.Workers {
		size = max(size, e.Workers[j].PageSize)
	}
	return float64(size)
}

// Moving is how requests in flight get to another worker.
type Moving string

// The ways.
const (
	MoveNone      Moving = "none"      // they do not
	MoveQueued    Moving = "queued"    // only those that have not begun to run
	MoveRecompute Moving = "recompute" // the KV cache is dropped and prefilled again
	MoveCopy      Moving = "copy"      // decoding stops while the KV cache is copied
	MovePrecopy   Moving = "precopy"   // it is copied while decoding goes on, but for the rest
)

// Movings lists them.
func Movings() []Moving {
	return []Moving{MoveNone, MoveQueued, MoveRecompute, MoveCopy, MovePrecopy}
}

// Router is a policy made ready for one run.
type Router struct {
	Name   string // the spec it was made from
	Policy Policy

	// Placement lists for each worker the adapters it starts with in host
	// memory; nil: every adapter on every worker, as far as host memory goes.
	Placement [][]int32
	// ReadsKV: the policy looks at KVUsed.
	ReadsKV bool
	// ReadsFewKV: before it does so it calls View.Read where there is one.
	ReadsFewKV bool
	// ReadsPrefixes: the policy looks at what prompts have in common.
	ReadsPrefixes bool
	// Admission refuses requests before the policy is asked; nil: it takes all.
	Admission *Admission
	// Planner is the policy's planner, nil: it has none.
	Planner Planner
	// Prefetch: workers load adapters of waiting requests into free slots early.
	Prefetch bool
}

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
