package router

import (
	"errors"
	"math"
	"math/rand/v2"
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
// memory and evictions.
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
	residency       func(*Worker, int32) float64
	lora, queue, kv float64 // weights
	rng             *rand.Rand
	prefix          float64
	index           *prefixIndex // nil: prefixes do not count
}

type affinityOptions struct {
	Variant string  `default:"score" check:"oneof score residency" help:"residency table: score or residency"`
	Lora    float64 `default:"1" check:">=0" help:"weight of the adapter's residency"`
	Queue   float64 `default:"1" check:">=0" help:"weight of a short queue"`
	KV      float64 `default:"1" check:">=0" help:"weight of free KV cache"`
	tieOption
}

// Build implements Builder.
func (o *affinityOptions) Build(env Env) (*Router, error) {
	p := &affinity{residency: scoreResidency, lora: o.Lora, queue: o.Queue, kv: o.KV, rng: o.rand(env)}
	if o.Variant == "residency" {
		p.residency = tierResidency
	}
	if p.lora == 0 && p.queue == 0 && p.kv == 0 {
		return nil, errors.New("weights lora, queue and kv are all 0, expected one above 0")
	}
	return &Router{Policy: p, ReadsKV: p.kv > 0}, nil
}

// scoreResidency is LoraAffinityScorer.Score (loraaffinity/lora_affinity.go):
// adapter active 1; fewer adapters active and waiting than slots 0.8; adapter
// waiting 0.6; else 0. An adapter is active that has running requests and waiting
// that has waiting ones; one that has both counts twice. Which adapters lie in
// the slots it does not ask: the metric that it reads
// (vllm:lora_requests_info) does not say.
func scoreResidency(w *Worker, adapter int32) float64 {
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
// is free 0.6; a slot can be freed 0.3; else 0.
func tierResidency(w *Worker, adapter int32) float64 {
	a := w.Adapter(adapter)
	switch {
	case a.Tier == GPU || a.Loading:
		return 1
	case a.Tier == Host:
		return 0.7
	case w.SlotsUsed < w.Slots:
		return 0.6
	case w.SlotsIdle > 0:
		return 0.3
	}
	return 0
}

func (p *affinity) Route(r Request, v *View) int {
	shortest, longest := math.MaxInt, math.MinInt
	for _, w := range v.Usable() {
		shortest, longest = min(shortest, w.Queued), max(longest, w.Queued)
	}
	perWaiting := 0.0 // score that a waiting request costs
	if longest > shortest {
		perWaiting = p.queue / float64(longest-shortest)
	}
	t := newArgmin(p.rng)
	for i, w := range v.Usable() {
		score := -perWaiting*float64(w.Queued-shortest) - p.kv*w.KVShare()
		if r.Adapter >= 0 {
			score += p.lora * p.residency(w, r.Adapter)
		}
		if p.index != nil {
			score += p.prefix * p.index.share(&r, v, i)
		}
		t.offer(i, -score)
	}
	if p.index != nil {
		p.index.add(&r, v, t.worker)
	}
	return t.worker
}
