// Package prefixindex has what a router believes that workers keep in their prefix caches ([Index]).
package prefixindex

import (
	"lorasim/router"
	"lorasim/router/prefix"
	"lorasim/trace"
)

// Index is what a router believes that workers keep of prompts: what it sent each of them lately. It does not learn
// what they evict. With the option index=reported it asks the workers instead, if they report what they keep.
type Index struct {
	reported  bool
	shared    bool // adapters share what is kept
	BlockSize int32
	capacity  int64           // blocks; 0: no limit
	Fits      bool            // no more than the worker's KV cache, where its size is known
	sent      []*prefix.Radix // by worker
	others    []int64         // without a limit: blocks of prompts of which nothing is known, by worker
}

// Options are the options of an index. Their defaults differ by policy.
type Options struct {
	Index    string `default:"sent" check:"oneof sent reported" help:"source of the cached prefixes: sent (prompts that the router sent) or reported (by workers that do; else sent)"`
	Block    int32  `default:"1" check:">=1 <=1048576" help:"size of a block, the unit of matches"`
	Capacity int64  `default:"16777216" check:">=0" help:"latest tokens that the index keeps for each worker; 0: no limit"`
}

// New returns an index without prompts. byAdapter says that adapters do not share cached prefixes.
func New(o Options, env router.Env, byAdapter bool) *Index {
	x := &Index{shared: !byAdapter, reported: o.Index == "reported", BlockSize: o.Block,
		capacity: o.Capacity / int64(o.Block)}
	x.others = make([]int64, len(env.Workers))
	for range env.Workers {
		x.sent = append(x.sent, prefix.NewRadix(x.BlockSize))
	}
	return x
}

func (x *Index) asks(v *router.View) bool { return x.reported && v.Prefixes != nil }

func (x *Index) adapter(r *router.Request) int32 {
	if x.shared {
		return trace.BaseModel
	}
	return r.Adapter
}

// Match returns the number of first tokens of a prompt that a worker is believed to keep, in whole blocks.
func (x *Index) Match(r *router.Request, v *router.View, worker int) int32 {
	switch {
	case r.Text == nil:
		return 0
	case x.asks(v):
		return v.Prefixes.Match(worker, r.Text, r.Adapter, min(r.Known, r.Prompt-1)) / x.BlockSize * x.BlockSize
	}
	return x.sent[worker].Peek(r.Text, x.adapter(r), r.Known/x.BlockSize) * x.BlockSize
}

// Share returns the matched share of a prompt's whole blocks.
func (x *Index) Share(r *router.Request, v *router.View, worker int) float64 {
	blocks := min(r.Prompt, longestPrefix) / x.BlockSize
	if blocks == 0 {
		return 0
	}
	return float64(min(x.Match(r, v, worker)/x.BlockSize, blocks)) / float64(blocks)
}

// Add notes that a prompt was sent to a worker. Unknown prompts take their place, too.
func (x *Index) Add(r *router.Request, v *router.View, worker int) {
	if worker == router.None || x.asks(v) {
		return
	}
	c, known := x.sent[worker], int32(0)
	var h prefix.Hold
	if r.Text != nil {
		known = r.Known / x.BlockSize
		c.Take(&h, r.Text, x.adapter(r), known)
		c.Add(&h, r.Text, x.adapter(r), known)
		c.Release(&h)
	}
	if x.capacity == 0 {
		x.others[worker] += int64(r.Prompt/x.BlockSize - known)
		return
	}
	c.Keep(&h, r.Prompt/x.BlockSize-known)
	if over := c.Cached() - x.room(&v.Workers[worker]); over > 0 {
		c.Evict(over)
	}
}

// room is how many blocks are kept for a worker at most.
func (x *Index) room(w *router.Worker) int64 {
	if x.Fits && w.KVCapacity > 0 {
		return min(x.capacity, w.KVCapacity/int64(x.BlockSize))
	}
	return x.capacity
}

// Size returns the number of blocks of what was sent to a worker.
func (x *Index) Size(worker int) int64 { return x.sent[worker].Cached() + x.others[worker] }

// longestPrefix is how many tokens of a prompt the picker looks at.
const longestPrefix = 131_072

// Adopt notes what was sent where. Of old prompts it is unlikely that workers still keep them. nil: no index.
func (x *Index) Adopt(s router.Succession) {
	if x == nil {
		return
	}
	for p := range s.History.Latest(mostKept) {
		if p.Worker < 0 {
			continue
		}
		r := router.Request{ID: p.ID, Adapter: p.Adapter, Prompt: p.Prompt, MaxNew: p.MaxNew, Text: p.Text}
		if p.Text != nil {
			r.Known = p.Text.Known(p.Prompt)
		}
		x.Add(&r, s.View, int(p.Worker))
	}
}

// mostKept bounds the prompts that a new prefix index takes from a history.
const mostKept = 512

// Forget drops what was sent to workers that are down: they lose it.
func (x *Index) Forget(v *router.View) {
	for j := range v.Workers {
		if !v.Workers[j].Up && x.sent[j].Cached() > 0 {
			x.sent[j] = prefix.NewRadix(x.BlockSize)
		}
	}
}
