package router

import (
	"math"
	"math/rand/v2"

	"lorasim/router/prefix"
	"lorasim/trace"
)

// Prefixes tells what workers keep of prompts in their prefix caches.
type Prefixes interface {
	// Match is how many of so many first tokens of a text a worker keeps for an
	// adapter. Of a prompt that it has all of it still computes the last token.
	Match(worker int, text *trace.Text, adapter, tokens int32) int32
}

// prefixIndex is what a router believes that workers keep of prompts: what it sent
// each of them lately. Nobody tells it what they evict. With reported it asks them
// instead, where they tell.
type prefixIndex struct {
	reported bool
	shared   bool // adapters share what is kept
	block    int32
	capacity int64           // blocks; 0: no limit
	sent     []*prefix.Radix // by worker
	others   []int64         // without a limit: blocks of prompts of which nothing is known, by worker
}

func newPrefixIndex(o *options, env Env, byAdapter bool) *prefixIndex {
	x := &prefixIndex{shared: !byAdapter, reported: o.choice("index", "sent", "reported") == "reported"}
	x.block = int32(o.integer("block", 1, 1<<20))
	x.capacity = int64(o.integer("capacity", 0, math.MaxInt)) / int64(x.block)
	x.others = make([]int64, len(env.Workers))
	for range env.Workers {
		x.sent = append(x.sent, prefix.NewRadix(x.block))
	}
	return x
}

func (x *prefixIndex) asks(v *View) bool { return x.reported && v.Prefixes != nil }

func (x *prefixIndex) adapter(r *Request) int32 {
	if x.shared {
		return trace.BaseModel
	}
	return r.Adapter
}

// match is the number of first tokens of a prompt that a worker is believed to
// keep, in whole blocks.
func (x *prefixIndex) match(r *Request, v *View, worker int) int32 {
	switch {
	case r.Text == nil:
		return 0
	case x.asks(v):
		return v.Prefixes.Match(worker, r.Text, r.Adapter, min(r.Known, r.Prompt-1)) / x.block * x.block
	}
	return x.sent[worker].Peek(r.Text, x.adapter(r), r.Known/x.block) * x.block
}

// share is the matched share of a prompt's whole blocks.
func (x *prefixIndex) share(r *Request, v *View, worker int) float64 {
	blocks := min(r.Prompt, longestPrefix) / x.block
	if blocks == 0 {
		return 0
	}
	return float64(min(x.match(r, v, worker)/x.block, blocks)) / float64(blocks)
}

// add notes that a prompt was sent to a worker. Prompts of which nothing is known
// take their place, too.
func (x *prefixIndex) add(r *Request, v *View, worker int) {
	if worker == None || x.asks(v) {
		return
	}
	c, known := x.sent[worker], int32(0)
	if r.Text != nil {
		known = r.Known / x.block
		var h prefix.Hold
		c.Take(&h, r.Text, x.adapter(r), known)
		c.Add(&h, r.Text, x.adapter(r), known)
		c.Release(&h)
	}
	if x.capacity == 0 {
		x.others[worker] += int64(r.Prompt/x.block - known)
		return
	}
	c.Keep(r.Prompt/x.block - known)
	if over := c.Cached() - x.capacity; over > 0 {
		c.Evict(over)
	}
}

// size is the number of blocks of what was sent to a worker.
func (x *prefixIndex) size(worker int) int64 { return x.sent[worker].Cached() + x.others[worker] }

// cacheAware is the default policy of sglang's router (sgl-model-gateway,
// src/policies/cache_aware.rs). Loads that differ by more than abs requests and by
// more than the factor rel send a request to the least loaded worker. Else it goes
// to the worker with the longest match, if that is more than a share threshold of
// the prompt, and to the least loaded one otherwise; until late 2025 to the one
// with the smallest tree, as the comments there still say. Equal matches go by
// load, and then to the first worker.
//
// There the tree holds the text of prompts, one for all adapters, so that those of
// other adapters match, though no engine can use that: lora=true keeps them
// apart. It is cut down every 120 s to 2^26 characters for each worker, taken for
// as many tokens / 4; here whenever it is above.
//
// What it goes by are its own decisions, which are never late.
type cacheAware struct {
	threshold, rel float64
	abs            int
	smallest       bool
	index          *prefixIndex
}

func newCacheAware(o *options, env Env) (*Router, error) {
	p := &cacheAware{
		threshold: o.number("threshold", ">=0 <=1"), abs: o.integer("abs", 0, math.MaxInt), rel: o.number("rel", ">=1"),
		smallest: o.choice("cold", "least-loaded", "smallest-tree") == "smallest-tree",
		index:    newPrefixIndex(o, env, o.choice("lora", "false", "true") == "true"),
	}
	return &Router{Policy: p, ReadsPrefixes: true}, nil
}

func (p *cacheAware) Route(r Request, v *View) int {
	w := p.pick(&r, v)
	p.index.add(&r, v, w)
	return w
}

func (p *cacheAware) pick(r *Request, v *View) int {
	cold, least, most := newTally(nil), newTally(nil), 0
	best, longest := newTally(nil), int32(-1)
	for i, w := range v.usable() {
		load := w.Load()
		least.offer(i, float64(load))
		most = max(most, load)
		if m := p.index.match(r, v, i); m >= longest {
			if m > longest {
				best, longest = newTally(nil), m
			}
			best.offer(i, float64(load))
		}
		if p.smallest {
			cold.offer(i, float64(p.index.size(i)))
		}
	}
	switch {
	case float64(most)-least.cost > float64(p.abs) && float64(most) > p.rel*least.cost:
		return least.worker
	case float64(longest) > p.threshold*float64(r.Prompt):
		return best.worker
	case p.smallest:
		return cold.worker
	}
	return least.worker
}

// kvRouter is Dynamo's (lib/kv-router, scheduling/selector/default.rs) at
// temperature 0: a request goes to the worker with the least
//
//	scale x max(0, prefill blocks - credit x matched blocks) + blocks in use
//
// where the prefill blocks are those of the prompt and of the prompts that wait
// there, and the blocks in use those of its running and of its waiting requests.
// Dynamo's engines publish what they keep (KV events); where they do not, it goes
// by its own decisions, the latest 2^20 blocks of them.
//
// Late reports of the KV cache make it herd on the workers whose cache looked
// empty.
type kvRouter struct {
	scale, credit float64
	index         *prefixIndex
	rng           *rand.Rand
}

func newKVRouter(o *options, env Env) (*Router, error) {
	p := &kvRouter{scale: o.number("scale", ">=0"), credit: o.number("credit", ">=0"),
		index: newPrefixIndex(o, env, true), rng: o.ties(env)}
	return &Router{Policy: p, ReadsKV: true, ReadsPrefixes: true}, nil
}

func (p *kvRouter) Route(r Request, v *View) int {
	t := newTally(p.rng)
	for i, w := range v.usable() {
		prefill := float64(w.QueuedToks+int64(r.Prompt)) - p.credit*float64(p.index.match(&r, v, i))
		t.offer(i, (p.scale*max(0, prefill)+float64(w.KVUsed+w.QueuedToks))/float64(p.index.block))
	}
	p.index.add(&r, v, t.worker)
	return t.worker
}

// prefixHash is sglang's policy of that name (sgl-model-gateway,
// src/policies/prefix_hash.rs): prompts with the same first tokens, whatever their
// adapter, go to the same worker, by consistent hashing, unless its load with the
// request would be above c x the mean of all; then to the least loaded one that is
// below, or, if none is, to the hash's after all. Prompts of which nothing is
// known hash by request.
//
// It looks at loads alone, which a router knows itself.
type prefixHash struct {
	tokens  int32
	c       float64
	workers []uint64 // hash of each
}

func newPrefixHash(o *options, env Env) (*Router, error) {
	p := &prefixHash{int32(o.integer("tokens", 1, 1<<20)), o.number("c", ">=1"), workerHashes(env)}
	return &Router{Policy: p, ReadsPrefixes: true}, nil
}

func (p *prefixHash) Route(r Request, v *View) int {
	key := p.key(&r)
	home, heaviest, total, n := None, uint64(0), 1, 0
	for i, w := range v.usable() {
		if weight := mix(key ^ p.workers[i]); home == None || weight > heaviest {
			home, heaviest = i, weight
		}
		total += w.Load()
		n++
	}
	if home == None {
		return None
	}
	limit := p.c * float64(total) / float64(n)
	fits := func(w *Worker) bool { return float64(w.Load()+1) <= limit }
	if fits(&v.Workers[home]) {
		return home
	}
	least := newTally(nil)
	for i, w := range v.usable() {
		if fits(w) {
			least.offer(i, float64(w.Load()))
		}
	}
	if least.worker == None {
		return home
	}
	return least.worker
}

// key is a hash of the first tokens of a prompt.
func (p *prefixHash) key(r *Request) uint64 {
	n := min(p.tokens, r.Prompt, r.Known)
	if r.Text == nil || n < min(p.tokens, r.Prompt) {
		return mix(uint64(r.ID))
	}
	return mix(r.Text.Hash(n) ^ uint64(n))
}
