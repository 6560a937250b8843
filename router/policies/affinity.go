package policies

import (
	"errors"
	"math"
	"math/rand/v2"

	"lorasim/router"
	"lorasim/router/choose"
	"lorasim/router/prefixindex"
)

// affinity sends each request to the worker with the best score
//
//	lora x residency + queue x (max - q)/(max - min) + kv x (1 - KV used)
//
// where q is the worker's waiting requests, between the least and the most of
// the usable workers (all equal: 1), and KV used its share of the KV cache.
// Queue and KV scores, and the residency table "score", are those of the
// Gateway API Inference Extension's endpoint picker (pkg/epp/framework/plugins/
// scheduling/scorer: queuedepth, kvcacheutilization, loraaffinity); weights
// default to 1, as there. The table "residency" looks farther, to GPU slots, host
// memory and evictions. With holders only workers that have the adapter in a slot are scored, as behind llm-d's
// filter by residency.
// Requests of the base model, resident everywhere, are scored by queue and KV
// alone.
//
// The policy prefix-scorer adds
//
//	prefix x matched blocks / blocks of the prompt
//
// which is the picker's prefix-cache-scorer, by its charts with queue and kv weighing
// 2 and prefix 3. Its index has 31,250 blocks of 64 tokens for each worker and looks at the
// first 131,072 tokens; like the engines' caches it is keyed by adapter.
//
// It herds on late signals: the adapter, once seen on one worker, draws its
// requests there until the queue score turns.
type affinity struct {
	router.Base
	residency       func(*router.Worker, int32) float64
	lora, queue, kv float64 // weights
	rng             *rand.Rand
	prefix          float64
	index           *prefixindex.Index // nil: prefixes do not count
	holders         bool               // only workers with the adapter in a slot, if any has it
}

type affinityOptions struct {
	Variant string  `default:"score" check:"oneof score distinct active residency load-state" help:"residency table: score (lora-affinity-scorer), distinct (after llm-d-router #2625), active, residency or load-state (equal to residency)"`
	Holders bool    `default:"false" help:"score only workers that have the adapter in a GPU slot, if any does"`
	Lora    float64 `default:"1" check:">=0" help:"weight of the adapter's residency"`
	Queue   float64 `default:"1" check:">=0" help:"weight of a short queue"`
	KV      float64 `default:"1" check:">=0" help:"weight of free KV cache"`
	tieOption
}

// Build implements Builder.
func (o *affinityOptions) Build(env router.Env) (*router.Router, error) {
	p := &affinity{residency: scoreResidency, lora: o.Lora, queue: o.Queue, kv: o.KV, rng: o.rand(env)}
	switch o.Variant {
	case "distinct":
		p.residency = distinctResidency
	case "active":
		p.residency = activeResidency
	case "residency", "load-state":
		p.residency = tierResidency
	}
	p.holders = o.Holders
	if p.lora == 0 && p.queue == 0 && p.kv == 0 {
		return nil, errors.New("weights lora, queue and kv are all 0, expected one above 0")
	}
	return &router.Router{Policy: p, ReadsKV: p.kv > 0}, nil
}

// scoreResidency is lora-affinity-scorer of the Gateway API Inference Extension v1.5.0 and of llm-d-router before
// #2625, on what vLLM's metric vllm:lora_requests_info says. The metric lists the adapters with requests in flight,
// each under both of its labels: an adapter that is listed scores 1; where the adapters that are listed, counted twice,
// are fewer than the slots, others score 0.8; else 0. The metric does not say which adapters are in slots.
func scoreResidency(w *router.Worker, adapter int32) float64 {
	return listed(w, adapter, 2*w.FlightLoras)
}

// distinctResidency is lora-affinity-scorer after llm-d-router #2625: an adapter under both labels counts once.
func distinctResidency(w *router.Worker, adapter int32) float64 {
	return listed(w, adapter, w.FlightLoras)
}

func listed(w *router.Worker, adapter int32, count int) float64 {
	a := w.Adapter(adapter)
	switch {
	case a.Running > 0 || a.Queued > 0:
		return 1
	case count < w.Slots:
		return 0.8
	}
	return 0
}

// activeResidency is lora-affinity-scorer on a metric that would list running and waiting requests apart: adapter
// active 1; fewer adapters active and waiting than slots 0.8; adapter waiting 0.6; else 0. An adapter is active that
// has running requests and waiting that has waiting ones; one that has both counts twice.
func activeResidency(w *router.Worker, adapter int32) float64 {
	a := w.Adapter(adapter)
	switch {
	case a.Running > 0:
		return 1
	case w.ActiveLoras+w.WaitingLoras < w.Slots:
		return 0.8
	case a.Queued > 0:
		return 0.6
	}
	return 0
}

// tierResidency: on the GPU, or on its way there, 1; in host memory 0.7; a slot
// is free 0.6; a slot can be freed 0.3; else 0. It is lora-load-state-scorer (llm-d-router #2792), which reads
// vllm:lora_adapter_loaded.
func tierResidency(w *router.Worker, adapter int32) float64 {
	a := w.Adapter(adapter)
	switch {
	case a.Tier == router.GPU || a.Loading:
		return 1
	case a.Tier == router.Host:
		return 0.7
	case w.SlotsUsed < w.Slots:
		return 0.6
	case w.SlotsIdle > 0:
		return 0.3
	}
	return 0
}

// held says whether a usable worker has the adapter of a request in a GPU slot.
func (p *affinity) held(r *router.Request, v *router.View) bool {
	for _, w := range v.Usable() {
		if w.InSlot(r.Adapter) {
			return true
		}
	}
	return false
}

// Route implements Policy.
func (p *affinity) Route(r router.Request, v *router.View) router.Decision {
	return router.To(p.pick(r, v, p.rng))
}

// Preview implements Policy.
func (p *affinity) Preview(r router.Request, v *router.View) int {
	if p.index != nil {
		return router.None // pick would note the prompt
	}
	return p.pick(r, v, nil)
}

// Succeed implements Policy.
func (p *affinity) Succeed(s router.Succession) { p.index.Adopt(s) }

// pick returns the worker with the best score; rng picks among equals, nil: the first.
func (p *affinity) pick(r router.Request, v *router.View, rng *rand.Rand) int {
	shortest, longest := math.MaxInt, math.MinInt
	for _, w := range v.Usable() {
		shortest, longest = min(shortest, w.Queued), max(longest, w.Queued)
	}
	perWaiting := 0.0 // score that a waiting request costs
	if longest > shortest {
		perWaiting = p.queue / float64(longest-shortest)
	}
	t, only := choose.New(rng), p.holders && p.held(&r, v)
	for i, w := range v.Usable() {
		if only && !w.InSlot(r.Adapter) {
			continue
		}
		score := -perWaiting*float64(w.Queued-shortest) - p.kv*w.KVShare()
		if r.Adapter >= 0 {
			score += p.lora * p.residency(w, r.Adapter)
		}
		if p.index != nil {
			score += p.prefix * p.index.Share(&r, v, i)
		}
		t.Offer(i, -score)
	}
	if p.index != nil {
		p.index.Add(&r, v, t.Worker)
	}
	return t.Worker
}
