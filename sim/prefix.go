package sim

import (
	"slices"

	"lorasim/router/prefix"
	"lorasim/trace"
)

// With engine.prefix_cache a worker keeps what it has computed of prompts:
// sglang's radix cache (managers/schedule_policy.py, mem_cache/radix_cache.py) and
// vLLM's block pool (v1/core/kv_cache_manager.py, v1/core/block_pool.py). A request
// is admitted with the pages that are kept of its prompt and computes the rest, at
// least one token. What nobody holds counts as free, and is evicted when it is
// needed: nothing looks at the cache in between, so that happens before the next
// look at it.
//
// sglang enters the pages of a prompt when the step ends that computed them, and
// those of the reply when the request ends; of pages that another request has
// entered meanwhile the copy is freed. vLLM enters pages when they are scheduled,
// and keeps both copies.

// prefixOf is what a request has in the cache of its worker.
type prefixOf struct {
	text, reply *trace.Text
	hold        prefix.Hold
	found       int32 // tokens of the prompt found in the cache when it first ran
	ran         bool
	retracted   bool
}

// forget drops what a request has in a cache that is gone.
func (p *prefixOf) forget() { p.hold, p.retracted = prefix.Hold{}, false }

// reuse is what the requests on a worker have in its cache.
type reuse struct {
	holds   int64                      // pages that requests hold, each counted for each of them
	replies map[*trace.Text][]*request // vLLM: running requests by the text that their replies go on with
}

// known is the text that a request's first n tokens are the beginning of, as far
// as it tells them.
func (r *request) known(n int32) (*trace.Text, int32) {
	t := r.prefix.text
	if n > r.prompt && r.prefix.reply != nil {
		t = r.prefix.reply
	} else {
		n = min(n, r.prompt)
	}
	if t == nil {
		return nil, 0
	}
	return t, t.Known(n)
}

// cached is the number of pages that may be kept of a request's first n tokens,
// and the text that they are the beginning of.
func (w *worker) cached(r *request, n int32) (*trace.Text, int32) {
	t, n := r.known(n)
	return t, n / int32(w.kv.size)
}

// prefixes tells the router what workers keep of prompts at this instant.
type prefixes struct{ *sim }

// Match implements router.Prefixes.
func (s prefixes) Match(worker int, text *trace.Text, adapter, tokens int32) int32 {
	w := &s.workers[worker]
	if w.cache == nil || text == nil || !w.v.Up {
		return 0
	}
	if adapter == trace.BaseModel {
		adapter = int32(len(s.adapters))
	}
	w.evict(w.kv.decodePages(w.steps, w.run.Batch, w.stepsDone()))
	size := int32(w.kv.size)
	return w.cache.Peek(text, adapter, text.Known(tokens)/size) * size
}

// matchPrefix is how many tokens of a waiting request are kept, and how many of
// these nobody holds. One token is always left to compute.
func (w *worker) matchPrefix(r *request) (match, idle int64) {
	if w.cache == nil || r.prefix.text == nil || r.carried > 0 {
		return 0, 0
	}
	w.storeReplies(r.prefix.text)
	taken := int64(0)
	if w.vllm {
		taken = w.kv.stepNeed(w.steps) // by the batch, booked at the end of the step
	}
	w.evict(taken)
	text, pages := w.cached(r, r.prompt+r.generated-1)
	m, i := w.cache.Match(text, r.adapter, pages)
	return int64(m) * w.kv.size, int64(i) * w.kv.size
}

// takePrefix has a request that is admitted hold what is kept of its prompt.
func (w *worker) takePrefix(r *request) {
	if w.cache == nil || r.prefix.text == nil {
		return
	}
	text, pages := w.cached(r, r.prompt+r.generated-1)
	n := w.cache.Take(&r.prefix.hold, text, r.adapter, pages) * int32(w.kv.size)
	w.reuse.holds += int64(r.prefix.hold.Pages())
	w.kv.grow(0, int64(n))
	w.countShared()
	r.prefilled = n
	if !r.prefix.ran {
		r.prefix.ran, r.prefix.found = true, n
	}
	w.stats.CachedTokens += int64(n)
	if w.noted != nil {
		w.noted.CachedTokens += int64(n)
	}
}

// storeReplies enters what running requests have replied of the texts that a
// prompt consists of, the token of the step that is being formed included.
func (w *worker) storeReplies(t *trace.Text) {
	for ; t != nil && len(w.reuse.replies) > 0; t = t.Parent {
		for _, r := range w.reuse.replies[t] {
			if r.state == running {
				w.store(r, int32(w.inCache(r))+1)
			}
		}
	}
}

// noteReply notes that a running request goes on with a text that others may
// know, or no longer does.
func (w *worker) noteReply(r *request, runs bool) {
	t := r.prefix.reply
	if w.cache == nil || !w.vllm || t == nil {
		return
	}
	m := w.reuse.replies
	if runs {
		if m == nil {
			m = map[*trace.Text][]*request{}
			w.reuse.replies = m
		}
		m[t] = append(m[t], r)
	} else if m[t] = slices.DeleteFunc(m[t], func(o *request) bool { return o == r }); len(m[t]) == 0 {
		delete(m, t)
	}
}

// storePrefix enters the pages of a request that are computed.
func (w *worker) storePrefix(r *request) { w.store(r, r.prefilled) }

// store enters the pages of the first n tokens of a request.
func (w *worker) store(r *request, n int32) {
	if w.cache == nil {
		return
	}
	text, pages := w.cached(r, n)
	h := &r.prefix.hold
	if pages <= h.Pages() {
		return
	}
	w.evict(0)
	w.reuse.holds -= int64(h.Pages())
	w.cache.Add(h, text, r.adapter, pages)
	w.reuse.holds += int64(h.Pages())
	w.countShared()
}

// keepPrefix takes a request's pages over into the cache: it has ended or is
// taken off the worker. sglang keeps nothing of the reply of a request that it
// retracts.
func (w *worker) keepPrefix(r *request) {
	if w.cache == nil {
		return
	}
	p := &r.prefix
	w.evict(0)
	if w.vllm || !p.retracted {
		w.storePrefix(r)
		w.cache.Keep(r.prefilled/int32(w.kv.size) - p.hold.Pages())
	}
	w.reuse.holds -= int64(p.hold.Pages())
	w.cache.Release(&p.hold)
	w.countShared()
	p.forget()
}

// countShared notes how many pages w.kv counts too often.
func (w *worker) countShared() { w.kv.shared = w.reuse.holds - w.cache.Held() }

// evict makes room in the cache for what requests have taken since, and for
// further pages.
func (w *worker) evict(taken int64) {
	if over := w.cache.Cached() - w.kv.free() + taken; over > 0 {
		w.stats.EvictedPages += w.cache.Evict(over)
	}
}
