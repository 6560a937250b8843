package router

import (
	"cmp"
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

func newAffinity(o *options, env Env) (*Router, error) {
	p := &affinity{
		residency: scoreResidency,
		lora:      o.number("lora", ">=0"),
		queue:     o.number("queue", ">=0"),
		kv:        o.number("kv", ">=0"),
		rng:       o.ties(env),
	}
	if o.choice("variant", "score", "residency") == "residency" {
		p.residency = tierResidency
	}
	if p.lora == 0 && p.queue == 0 && p.kv == 0 {
		return nil, errors.New("weights lora, queue and kv are all 0, expected one above 0")
	}
	return &Router{Policy: p, ReadsKV: p.kv > 0}, nil
}

func newPrefixScorer(o *options, env Env) (*Router, error) {
	rt, err := newAffinity(o, env)
	if err == nil {
		p := rt.Policy.(*affinity)
		p.prefix, p.index = o.number("prefix", ">=0"), newPrefixIndex(o, env, true)
		rt.ReadsPrefixes = true
	}
	return rt, err
}

// longestPrefix is how many tokens of a prompt the picker looks at.
const longestPrefix = 131_072

// scoreResidency is LoraAffinityScorer.Score (loraaffinity/lora_affinity.go):
// adapter active 1; fewer adapters active and waiting than slots 0.8; adapter
// waiting 0.6; else 0. An adapter is active that has running requests and waiting
// that has waiting ones; one that has both counts twice. Which adapters lie in
// the slots it does not ask: the metric that it reads
// (vllm:lora_requests_info) does not say.
func scoreResidency(w *Worker, adapter int32) float64 {
	a := w.adapter(adapter)
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
	a := w.adapter(adapter)
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
	for _, w := range v.usable() {
		shortest, longest = min(shortest, w.Queued), max(longest, w.Queued)
	}
	perWaiting := 0.0 // score that a waiting request costs
	if longest > shortest {
		perWaiting = p.queue / float64(longest-shortest)
	}
	t := newTally(p.rng)
	for i, w := range v.usable() {
		score := -perWaiting*float64(w.Queued-shortest) - p.kv*w.kvShare()
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

// kvShare is the used share of the KV cache, 0 where its capacity is unknown.
func (w *Worker) kvShare() float64 {
	if w.KVCapacity <= 0 {
		return 0
	}
	return min(float64(w.KVUsed)/float64(w.KVCapacity), 1)
}

// rankAware is the scheduler of CaraServe (Li et al., 2024; later Toppings,
// ATC 2025), which knows that a batch is as slow as its largest rank. Sending
// request r to a worker with waiting requests q costs
//
//	[prefill(q+r) - prefill(q)] / avg_output + decode(all+r) - decode(all)
//
// seconds per token, where all are its running and waiting requests. A worker
// whose decode step would then exceed the SLO is out. The cheapest wins, the
// first of equals; if all are out, the least loaded, again the first.
//
// The cost is marginal: where it does not grow with the batch, as with a step
// time linear in requests and tokens, workers are equals and fill up one after
// the other, each to its SLO. Late signals therefore do harm around the SLO
// only, but there requests herd past it.
type rankAware struct {
	workers   []Spec
	slo       float64 // s; +Inf: none
	avgOutput float64 // tokens; 0: what is expected of the request
}

func newRankAware(o *options, env Env) (*Router, error) {
	if err := env.needCosts(); err != nil {
		return nil, err
	}
	p := &rankAware{workers: env.Workers}
	switch o.text("slo") {
	case "auto":
		rank := 0
		for _, a := range env.Adapters {
			rank = max(rank, a.Rank)
		}
		for j := range env.Workers { // the slowest worker, or it would never be within
			p.slo = max(p.slo, 1.5*env.Workers[j].Cost.DecodeStep(1, 0, rank))
		}
	case "none":
		p.slo = math.Inf(1)
	default:
		p.slo = o.number("slo", ">=0", "auto", "none") / 1000
	}
	if o.text("avg-output") != "auto" {
		p.avgOutput = o.number("avg-output", ">=1", "auto")
	}
	return &Router{Policy: p, ReadsKV: true}, nil
}

func (p *rankAware) Route(r Request, v *View) int {
	rank := 0
	if r.Adapter >= 0 {
		rank = v.Adapters[r.Adapter].Rank
	}
	output := p.output(r)
	cheapest, emptiest := newTally(nil), newTally(nil)
	for i, w := range v.usable() {
		emptiest.offer(i, float64(w.Load()))
		cost, tokens := p.workers[i].Cost, w.KVUsed+w.QueuedToks
		decode := cost.DecodeStep(w.Load()+1, tokens+int64(r.Prompt), max(w.MaxRank, rank))
		if decode > p.slo {
			continue
		}
		prefill := cost.Prefill(w.QueuedToks+int64(r.Prompt)) - cost.Prefill(w.QueuedToks)
		decode -= cost.DecodeStep(w.Load(), tokens, w.MaxRank)
		cheapest.offer(i, prefill/output+decode)
	}
	if cheapest.worker == None {
		return emptiest.worker
	}
	return cheapest.worker
}

// output estimates the tokens a request generates.
func (p *rankAware) output(r Request) float64 { return cmp.Or(p.avgOutput, r.output()) }
