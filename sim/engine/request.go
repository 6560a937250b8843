package engine

import (
	"lorasim/sim/kvcache"
	"lorasim/sim/lora"
	"lorasim/sim/profile"
	"lorasim/sim/tick"
	"lorasim/trace"
)

// Request is a request as an engine knows it. Who hands it in fills the first group; the engine keeps the rest. Numbers
// of 4 bytes and less lie together: a run has many requests.
type Request struct {
	kvcache.Sequence // its Adapter is an index; the base model comes after the last adapter

	ID             int64
	Slot           int32 // of who handed it in, to find it again
	Output, MaxNew int32
	Expected       int32 // output that routers expect
	Generated      int32 // tokens generated before it joined the batch

	FillTokens   int32   // sglang: its tokens when it was last looked at, see preemptToSchedule
	PrefixTokens int32   // sglang: tokens of the prompt in the cache
	heapIndex    int32   // in the batch
	Leaving      Leaving // on its way to another worker, or given up
	Stops        bool    // ends by a stop token, which its scheduler cannot foresee
	unslotted    bool    // has given its adapter's slot back before it has ended
	state        State   // set in lifecycle.go and pipeline.go alone

	TransferredKV int64      // KV tokens that come with it
	FirstTokenAt  tick.Ticks // tick.Never before
	StartedAt     tick.Ticks // when it first entered a prefill step, tick.Never before
	ColdLoad      tick.Ticks // waited for adapter weights
	Gaps          []float64  // between its tokens, s, with Config.TokenTimes
	Row           *Adapter   // of its adapter on its engine
	QueuedAt      tick.Ticks // when it entered the queue, or leaves the front end

	engine                 *Engine    // where it is
	seq, arrivalSeq, order int64      // place in the queue, the place when it first came there, in the batch
	joinTime, lastTokenAt  tick.Ticks // of its latest token: when it joined the batch, when it left one
	links                  [numLists]link
}

// State is where a request is. Invariant: it is in one place.
type State uint8

// The states. A request that is on no engine is in transit.
const (
	Waiting  State = iota // in the queue
	Filling               // in a prefill step, between two chunks, or parked
	Running               // in the batch
	Transit               // between two workers
	Entering              // in the front end
	Ending                // its last token is in flight, see Pipeline
)

// Leaving says how a request is on its way off its engine. A preemption sets Staying.
type Leaving uint8

// Copying and Sent are the cluster's; Ejecting and Aborting requests leave the batch at the end of a step.
const (
	Staying  Leaving = iota
	Copying          // its KV cache is being copied while it runs
	Ejecting         // it leaves at the end of the step under way
	Sent             // its KV cache is being copied; it does not run
	Aborting         // its client gave it up; it leaves when it is in the batch and a step ends
)

// State is where the request is.
func (r *Request) State() State { return r.state }

// Seq is its place in the order of the queue; requests that came later have a larger one.
func (r *Request) Seq() int64 { return r.seq }

// ArrivalSeq is the place that it had when it came.
func (r *Request) ArrivalSeq() int64 { return r.arrivalSeq }

// Order is its place in the order of the batch.
func (r *Request) Order() int64 { return r.order }

// Next is the request of the same adapter that waits behind it, nil: none.
func (r *Request) Next() *Request { return r.links[ofAdapter].next }

// Adapter is what an engine knows of an adapter, or of the base model.
type Adapter struct {
	lora.Adapter
	Rank     int32 // as the engine counts it; 0: the base model
	queue    adapterQueue
	rankStep int64 // the latest step whose prompts' ranks counted it
	served   service
	known    bool // the front end has seen a request of it
}

// Head is the adapter's first waiting request, nil: none.
func (a *Adapter) Head() *Request { return a.queue.head }

// Table is the adapters of an engine. A run has workers times adapters of them, and an engine meets few of many:
// they come into being one by one, and stay where they are.
type Table struct {
	at       []int32    // by index: its place in met, 0: not met yet
	met      []*Adapter // the first is nil
	adapters []trace.Adapter
	costs    *profile.Costs
}

// Of is what the engine knows of an adapter; the base model comes after the last.
func (t *Table) Of(index int32) *Adapter {
	if a := t.met[t.at[index]]; a != nil { // alone in here, so that it is inlined
		return a
	}
	return t.meet(index)
}

func (t *Table) meet(index int32) *Adapter {
	a := &Adapter{Adapter: lora.NewAdapter(index, !t.isLoRA(index)), Rank: t.rank(index)}
	a.queue.list.of, a.queue.at = ofAdapter, -1
	t.at[index] = int32(len(t.met))
	t.met = append(t.met, a)
	return a
}

// Cells is the number of KV tokens whose memory an adapter takes on the GPU, 0 where it has memory of its own.
func (t *Table) Cells(index int32) int64 {
	return int64(t.costs.Profile().Engine.AdapterCellsPerRank) * int64(t.rank(index))
}

// rank is an adapter's rank as the engine counts it, 0 of the base model.
func (t *Table) rank(index int32) int32 {
	if !t.isLoRA(index) {
		return 0
	}
	return int32(t.costs.Rank(t.adapters[index].Rank))
}

// isLoRA says whether an index is that of an adapter, not of the base model.
func (t *Table) isLoRA(index int32) bool { return int(index) < len(t.adapters) }
