package router

import (
	"lorasim/router/prefix"
	"lorasim/trace"
)

// Prefixes says which prompt prefixes workers keep in their prefix caches.
type Prefixes interface {
	// Match returns how many of the first n tokens of a text a worker keeps for an adapter. A worker that keeps a
	// whole prompt still computes its last token.
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
	fits     bool            // no more than the worker's KV cache, where its size is known
	sent     []*prefix.Radix // by worker
	others   []int64         // without a limit: blocks of prompts of which nothing is known, by worker
}

// indexOptions are the options of a prefix index. Its defaults differ by policy.
type indexOptions struct {
	Index    string `default:"sent" check:"oneof sent reported" help:"source of the cached prefixes: sent (prompts that the router sent) or reported (by workers that do; else sent)"`
	Block    int32  `default:"1" check:">=1 <=1048576" help:"size of a block, the unit of matches"`
	Capacity int64  `default:"16777216" check:">=0" help:"latest tokens that the index keeps for each worker; 0: no limit"`
}

func newPrefixIndex(o indexOptions, env Env, byAdapter bool) *prefixIndex {
	x := &prefixIndex{shared: !byAdapter, reported: o.Index == "reported", block: o.Block,
		capacity: o.Capacity / int64(o.Block)}
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
	var h prefix.Hold
	if r.Text != nil {
		known = r.Known / x.block
		c.Take(&h, r.Text, x.adapter(r), known)
		c.Add(&h, r.Text, x.adapter(r), known)
		c.Release(&h)
	}
	if x.capacity == 0 {
		x.others[worker] += int64(r.Prompt/x.block - known)
		return
	}
	c.Keep(&h, r.Prompt/x.block-known)
	if over := c.Cached() - x.room(&v.Workers[worker]); over > 0 {
		c.Evict(over)
	}
}

// room is how many blocks are kept for a worker at most.
func (x *prefixIndex) room(w *Worker) int64 {
	if x.fits && w.KVCapacity > 0 {
		return min(x.capacity, w.KVCapacity/int64(x.block))
	}
	return x.capacity
}

// size is the number of blocks of what was sent to a worker.
func (x *prefixIndex) size(worker int) int64 { return x.sent[worker].Cached() + x.others[worker] }

// longestPrefix is how many tokens of a prompt the picker looks at.
const longestPrefix = 131_072
