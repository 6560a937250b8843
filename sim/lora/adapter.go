// Package lora is how an engine keeps adapters: in GPU slots, in host memory, and on their way there. It is
// LoRAManager, LoRAMemoryPool and the overlap loader of sglang, and LRUCacheLoRAModelManager of vLLM.
package lora

import "lorasim/sim/tick"

// Adapter is an adapter as a manager knows it, or the base model. That needs no loading; under sglang it takes a slot
// like an adapter, under vLLM none. The engine keeps Waiting and Decoding.
type Adapter struct {
	Index    int32 // in the workload; the base model comes after the last adapter
	Waiting  int32 // requests in the engine's queue
	Decoding int32 // requests in the batch

	base     bool
	active   int32 // requests in the batch or in a prefill step
	failures int32 // loads that failed in a row

	slot      bool // holds a GPU slot, or is being loaded into one
	loading   bool
	paid      bool // the step being formed waits for its load already
	fetch     bool // on its way to host memory, without a GPU slot
	unloading bool // dropped as soon as no request uses it

	used   int64 // clock of the latest step that had it in its batch, see Manager.lastUse
	loaded int64 // clock of its loading

	loadFrom, loadTo tick.Ticks // its latest load beside the steps
}

// NewAdapter returns an adapter of the given index, or the base model.
func NewAdapter(index int32, base bool) Adapter { return Adapter{Index: index, base: base} }

// Active says whether the batch, or a prefill step, has requests of it.
func (a *Adapter) Active() bool { return a.active > 0 }

// Users is the number of its requests in the batch or in a prefill step.
func (a *Adapter) Users() int32 { return a.active }

// Loading says whether it is being loaded into its GPU slot.
func (a *Adapter) Loading() bool { return a.loading }

// fetching says whether it is on its way to the worker.
func (a *Adapter) fetching() bool { return a.fetch || a.loading }

// Keep calls an Unload off that is to come.
func (a *Adapter) Keep() { a.unloading = false }
