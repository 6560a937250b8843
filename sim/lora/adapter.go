// Package lora manages the adapters of one engine: those in GPU slots, in host memory, and on their way there. It
// models LoRAManager, LoRAMemoryPool and the overlap loader of sglang, and LRUCacheLoRAModelManager of vLLM.
//
// The engine owns a [Manager], which reports changes through [Events]. [Rules] states how engines differ.
package lora

import "lorasim/sim/tick"

// Adapter is a manager's state of an adapter or of the base model. The base model is never loaded. It takes a slot
// under sglang, and none under vLLM. The engine maintains Waiting and Decoding.
type Adapter struct {
	Index    int32 // index in the workload; the base model comes after the last adapter
	Row      int32 // number that the engine gives it
	Waiting  int32 // requests in the engine's queue
	Decoding int32 // requests in the batch

	base     bool
	active   int32 // requests in the batch or in a prefill step
	failures int32 // loads that failed in a row

	slot      bool // holds a GPU slot, or is being loaded into one
	loading   bool
	paid      bool // the step being formed waits for its load already
	fetch     bool // on its way to host memory, without a GPU slot
	pushed    bool // see Push
	unloading bool // dropped as soon as no request uses it

	used   int64 // clock of the latest step that had it in its batch, see Manager.lastUse
	loaded int64 // clock of its loading

	loadFrom, loadTo tick.Ticks // its latest load beside the steps
}

// NewAdapter returns an adapter of the given index, or the base model.
func NewAdapter(index int32, base bool) Adapter { return Adapter{Index: index, base: base} }

// Active reports whether the batch or a prefill step has requests of the adapter.
func (a *Adapter) Active() bool { return a.active > 0 }

// Users returns the number of the adapter's requests in the batch or in a prefill step.
func (a *Adapter) Users() int32 { return a.active }

// Loading reports whether the adapter is being loaded into its GPU slot.
func (a *Adapter) Loading() bool { return a.loading }

// Push protects an adapter that is loaded for no request from eviction, or ends that.
func (a *Adapter) Push(on bool) { a.pushed = on }

// LoadedAt returns the time at which the adapter's latest load beside the steps ends.
func (a *Adapter) LoadedAt() tick.Ticks { return a.loadTo }

// fetching reports whether the adapter is being loaded, into host memory or a slot.
func (a *Adapter) fetching() bool { return a.fetch || a.loading }

// Keep cancels a pending Unload.
func (a *Adapter) Keep() { a.unloading = false }
