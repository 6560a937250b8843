package engine

import (
	"lorasim/sim/kvcache"
	"lorasim/sim/lora"
	"lorasim/sim/profile"
	"lorasim/sim/tick"
	"lorasim/trace"
)

// A Request is a request on an engine. The caller of [Engine.Add] sets the first group of fields, and the
// engine the rest; FirstTokenAt and StartedAt start as [tick.Never]. Fields of at most 4 bytes are adjacent
// to save memory, since a run has many requests.
type Request struct {
	kvcache.Sequence // Adapter is an index; the base model has the index after the last adapter

	ID             int64
	Slot           int32 // key of the caller to find the request again
	Output, MaxNew int32 // tokens of output, and the limit of them (max_new_tokens)
	Expected       int32 // output that routers expect, tokens
	Generated      int32 // tokens generated before the request joined the batch

	FillTokens   int32   // sglang: tokens at the scheduler's last look at the request, see preemptToSchedule
	PrefixTokens int32   // sglang: prompt tokens in the prefix cache
	lost         int32   // most tokens that it had in the KV cache when it left one
	heapIndex    int32   // in the batch
	Leaving      Leaving // on its way to another worker, or aborted
	Stops        bool    // a stop token ends it, which its scheduler cannot foresee
	unslotted    bool    // it has released its adapter's slot before its end
	state        State   // set in lifecycle.go and pipeline.go alone

	TransferredKV int64      // KV tokens that arrive with the request
	FirstTokenAt  tick.Ticks // time of the first token; tick.Never before it
	StartedAt     tick.Ticks // time when it first entered a prefill step; tick.Never before that
	ColdLoad      tick.Ticks // time that it waited for adapter weights
	Gaps          []float64  // times between its tokens, s; only with Config.TokenTimes
	Row           *Adapter   // its adapter on its engine
	QueuedAt      tick.Ticks // time when it entered the queue, or leaves the front end

	engine                 *Engine    // where it is
	seq, arrivalSeq, order int64      // place in the queue, the place when it first came there, in the batch
	joinTime, lastTokenAt  tick.Ticks // of its latest token: when it joined the batch, when it left one
	links                  [numLists]link
}

// A State is the place of a request. Invariant: a request is in one place.
type State uint8

// States of a request. A request that is on no engine is in [Transit].
const (
	Waiting  State = iota // in the queue
	Filling               // in a prefill step, between two chunks, or parked
	Running               // in the batch
	Transit               // between two workers
	Entering              // in the front end
	Ending                // its last token is in flight; see Pipeline
)

// Leaving says how a request is leaving its engine. A preemption sets [Staying].
type Leaving uint8

// Values of [Leaving]. The cluster uses Copying and Sent. Ejecting and Aborting requests leave the batch at the end of
// a step.
const (
	Staying  Leaving = iota
	Copying          // its KV cache is being copied while it runs
	Ejecting         // it leaves at the end of the step under way
	Sent             // its KV cache is being copied; it does not run
	Aborting         // its client aborted it; it leaves at the end of a step at which it is in the batch
)

// State returns the state of the request.
func (r *Request) State() State { return r.state }

// Seq returns the request's place in the order of the queue. Requests that came later have a larger one.
func (r *Request) Seq() int64 { return r.seq }

// ArrivalSeq returns the request's place in the order of the queue at its arrival.
func (r *Request) ArrivalSeq() int64 { return r.arrivalSeq }

// Order returns the request's place in the order of the batch.
func (r *Request) Order() int64 { return r.order }

// Next returns the next waiting request of the same adapter; nil: none.
func (r *Request) Next() *Request { return r.links[ofAdapter].next }

// An Adapter is an adapter, or the base model, on an engine.
type Adapter struct {
	lora.Adapter
	Rank int32 // rank, with the profile's default if the workload has none; 0: the base model
	// stepTokens is the number of its tokens in step rankStep, as far as they were counted.
	stepTokens int32
	queue      adapterQueue
	rankStep   int64 // latest step in which the ranks of prompts included the adapter
	served     service
	known      bool // the front end has seen a request of it
}

// Head returns the adapter's first waiting request; nil: none.
func (a *Adapter) Head() *Request { return a.queue.head }

// A Table holds the adapters of an engine. All workers together have workers x adapters of them, and an
// engine uses few. So the table creates an [Adapter] at its first use, and its address does not change.
type Table struct {
	few      []*Adapter         // by index, nil: not met yet; empty where there are many
	many     map[int32]*Adapter // those met, where there are many
	met      []*Adapter         // by lora.Adapter.Row
	base     *Adapter           // the base model, nil: not met yet
	adapters []trace.Adapter
	costs    *profile.Costs
}

// manyAdapters is the number of adapters beyond which a table has no row for those that the engine has not met.
const manyAdapters = 1024

func newTable(adapters []trace.Adapter, costs *profile.Costs) *Table {
	t := &Table{adapters: adapters, costs: costs}
	if len(adapters) <= manyAdapters {
		t.few = make([]*Adapter, len(adapters)+1)
	} else {
		t.many = map[int32]*Adapter{}
	}
	return t
}

// Of returns the adapter with the given index. The base model has the index after the last adapter.
func (t *Table) Of(index int32) *Adapter {
	if int(index) < len(t.few) && t.few[index] != nil { // alone in here, so that it is inlined
		return t.few[index]
	}
	return t.meet(index)
}

func (t *Table) meet(index int32) *Adapter {
	if a := t.many[index]; a != nil {
		return a
	}
	a := &Adapter{Adapter: lora.NewAdapter(index, !t.isLoRA(index)), Rank: t.rank(index)}
	a.queue.list.of, a.queue.at = ofAdapter, -1
	a.Row = int32(len(t.met))
	t.met = append(t.met, a)
	if !t.isLoRA(index) {
		t.base = a
	}
	if t.many != nil {
		t.many[index] = a
	} else {
		t.few[index] = a
	}
	return a
}

// Cells returns the number of KV tokens whose memory an adapter takes on the GPU; 0 if adapters have their
// own memory.
func (t *Table) Cells(index int32) int64 {
	return int64(t.costs.Profile().Engine.AdapterCellsPerRank) * int64(t.rank(index))
}

// rank returns an adapter's rank, or the default if the workload has none; 0: the base model.
func (t *Table) rank(index int32) int32 {
	if !t.isLoRA(index) {
		return 0
	}
	return int32(t.costs.Rank(t.adapters[index].Rank))
}

// isLoRA reports whether an index is that of an adapter, not of the base model.
func (t *Table) isLoRA(index int32) bool { return int(index) < len(t.adapters) }
