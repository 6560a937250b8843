package kvcache

import (
	"slices"

	"lorasim/router/prefix"
	"lorasim/trace"
)

// Prefixes is a kind of prefix cache.
//
// With engine.prefix_cache an engine keeps computed prompts: in sglang's radix cache
// (managers/schedule_policy.py, mem_cache/unified_radix_cache.py) or vLLM's block pool (v1/core/kv_cache_manager.py,
// v1/core/block_pool.py). A request is admitted with the cached pages of its prompt and computes the rest, at
// least one token. Pages without a holder count as free and are evicted when their memory is needed.
//
// sglang inserts the pages of a prompt when the step that computed them ends, and the pages of the reply when
// the request ends (checkpoint_into_tree). If another request has inserted the same pages meanwhile, the copy
// is freed. vLLM inserts pages when they are scheduled, and keeps both copies.
type Prefixes uint8

// The kinds of prefix caches.
const (
	NoPrefixes Prefixes = iota // no prefix cache
	RadixPages                 // sglang's radix cache, evicting page by page
	RadixNodes                 // sglang's radix cache, evicting whole nodes
	BlockPool                  // vLLM's block pool
)

// prefixes is the prefix cache of a [Pool]. Eviction is lazy: it happens before the next look at the cache,
// since nothing depends on it before.
type prefixes struct {
	cache   prefix.Cache // nil: no prefix cache
	blocks  bool         // the cache is vLLM's block pool
	nodes   bool         // the cache is sglang's radix cache, evicting whole nodes
	forming bool         // between BeginStep and EndStep
	taken   int64        // pages that requests have taken since BeginStep
	late    bool         // the latest token of a running request is in flight
	steps   int64        // decode steps so far
	holds   int64        // pages that requests hold, counted once per holder
	replies map[*trace.Text][]*Sequence
	stats   *CacheStats
}

func newPrefixes(kind Prefixes, size int64, stats *CacheStats) prefixes {
	p := prefixes{blocks: kind == BlockPool, nodes: kind == RadixNodes, stats: stats}
	switch kind {
	case RadixPages:
		p.cache = prefix.NewRadix(int32(size))
	case RadixNodes:
		p.cache = prefix.NewTree(int32(size))
	case BlockPool:
		p.cache = prefix.NewBlocks(int32(size))
	}
	return p
}

// Known returns the text that begins with a request's first n tokens, and how many of the n tokens it
// specifies. nil, 0: unknown.
func (s *Sequence) Known(n int32) (*trace.Text, int32) {
	t := s.Text
	if n > s.Prompt && s.Reply != nil {
		t = s.Reply
	} else {
		n = min(n, s.Prompt)
	}
	if t == nil {
		return nil, 0
	}
	return t, t.Known(n)
}

// pagesKnown returns the text that contains a request's first n tokens, and how many whole pages can be cached. A
// page can be cached if the text specifies all its tokens.
func (p *Pool) pagesKnown(s *Sequence, n int32) (*trace.Text, int32) {
	t, n := s.Known(n)
	return t, n / int32(p.size)
}

// Peek returns how many of a text's first tokens are cached, for routers. taken is the number of pages that
// the decode steps under way have taken and that are not booked.
func (p *Pool) Peek(text *trace.Text, adapter, tokens int32, taken int64) int32 {
	if p.cache == nil || text == nil {
		return 0
	}
	p.evict(taken)
	size := int32(p.size)
	return p.cache.Peek(text, adapter, text.Known(tokens)/size) * size
}

// MatchPrefix returns how many of a waiting request's first n tokens are cached, and how many of the cached
// tokens no request holds (match_prefix in sglang, get_computed_blocks in vLLM).
func (p *Pool) MatchPrefix(s *Sequence, n int32, steps int64) (match, evictable int64) {
	if p.cache == nil || s.Text == nil {
		return 0, 0
	}
	taken := int64(0)
	if p.blocks {
		p.insertReplies(s.Text, steps)
		taken = p.StepNeed(steps) // by the batch, booked at the end of the step
	}
	p.evict(taken)
	text, pages := p.pagesKnown(s, n)
	m, i := p.cache.Match(text, s.Adapter, pages)
	return int64(m) * p.size, int64(i) * p.size
}

// LockPrefix makes an admitted request hold the cached pages of its first n tokens (inc_lock_ref in sglang,
// touch in vLLM). It returns the number of tokens in these pages.
func (p *Pool) LockPrefix(s *Sequence, n int32) int32 {
	if p.cache == nil || s.Text == nil {
		return 0
	}
	text, pages := p.pagesKnown(s, n)
	found := p.cache.Take(&s.hold, text, s.Adapter, pages) * int32(p.size)
	p.holds += int64(s.hold.Pages())
	p.grow(0, int64(found))
	p.recount()
	s.Computed = found
	if !s.ran {
		s.ran, s.Found = true, found
	}
	p.stats.CachedTokens += int64(found)
	return found
}

// insertReplies inserts the replies of running requests that a prompt's text consists of, including the token
// of the step that is being formed.
func (p *Pool) insertReplies(t *trace.Text, steps int64) {
	next := int32(1)
	if p.late {
		next = 0
	}
	for ; t != nil && len(p.replies) > 0; t = t.Parent {
		for _, s := range p.replies[t] {
			p.insert(s, int32(s.Tokens(steps))+next)
		}
	}
}

// TokensLate tells the pool that steps are formed while the latest tokens of running requests are in flight.
// Pages are then inserted without these tokens (cache_blocks in vLLM's Scheduler.update_from_output and
// allocate_slots).
func (p *Pool) TokensLate() { p.late = true }

// TakeStep evicts from the prefix cache the pages that the next decode step takes. The step is already
// formed, and its pages are taken before any request frees memory.
func (p *Pool) TakeStep(steps int64) {
	if p.cache != nil {
		p.evict(p.StepNeed(steps))
	}
}

// BeginStep and EndStep enclose the forming of a prefill step. sglang allocates the memory of all its requests at the
// end (alloc_for_extend in mem_cache/allocation.py): until then it evicts nothing for them, and looks at the prompts of
// waiting requests count as uses.
func (p *Pool) BeginStep() { p.forming = p.cache != nil }

// EndStep ends the forming of a step.
func (p *Pool) EndStep() { p.forming, p.taken = false, 0 }

// MakeFree evicts from the prefix cache until n tokens are free, or until all that no request holds is evicted
// (evict_from_tree_cache in sglang's mem_cache/common.py).
func (p *Pool) MakeFree(n int64) {
	if p.cache != nil {
		p.evict(p.Pages(n))
	}
}

// InsertKnown is [Pool.Insert] for a request whose latest token is in flight.
func (p *Pool) InsertKnown(s *Sequence) {
	if p.cache != nil {
		p.insert(s, s.Computed-1)
	}
}

// trackReply notes that a running request continues a text that other prompts may contain. untrackReply ends
// that.
func (p *Pool) trackReply(s *Sequence) {
	if !p.blocks {
		return
	}
	if p.replies == nil {
		p.replies = map[*trace.Text][]*Sequence{}
	}
	p.replies[s.Reply] = append(p.replies[s.Reply], s)
}

func (p *Pool) untrackReply(s *Sequence) {
	if !p.blocks {
		return
	}
	rest := slices.DeleteFunc(p.replies[s.Reply], func(o *Sequence) bool { return o == s })
	if p.replies[s.Reply] = rest; len(rest) == 0 {
		delete(p.replies, s.Reply)
	}
}

// Insert adds the computed pages of a request to the prefix cache (cache_unfinished_req in sglang,
// cache_full_blocks in vLLM).
func (p *Pool) Insert(s *Sequence) {
	if p.cache != nil {
		p.insert(s, s.Computed)
	}
}

func (p *Pool) insert(s *Sequence, n int32) {
	text, pages := p.pagesKnown(s, n)
	if more := pages - s.hold.Pages(); more < 0 || more == 0 && !(p.nodes && pages > 0) {
		return
	}
	p.evict(0)
	p.holds -= int64(s.hold.Pages())
	p.cache.Add(&s.hold, text, s.Adapter, pages)
	p.holds += int64(s.hold.Pages())
	if prompt := s.Prompt / int32(p.size); p.nodes && 0 < prompt && prompt < pages {
		p.cache.Match(text, s.Adapter, prompt) // splits, so that the reply can be evicted without the prompt
	}
	p.recount()
}

// Seed adds the first tokens of a text to the prefix cache, as if a request had computed them.
func (p *Pool) Seed(text *trace.Text, adapter, tokens int32) {
	if p.cache == nil || text == nil {
		return
	}
	s := Sequence{Adapter: adapter, Prompt: tokens, Text: text}
	known, pages := p.pagesKnown(&s, tokens)
	var h prefix.Hold
	p.cache.Take(&h, known, adapter, pages)
	p.cache.Add(&h, known, adapter, pages)
	p.cache.Release(&h)
	p.evict(0)
}

// Release frees the pages of a request that does not decode (cache_finished_req in sglang, free in vLLM). The prefix
// cache keeps the computed pages. The exception is the reply of a request that sglang retracts.
func (p *Pool) Release(s *Sequence) {
	if p.cache != nil {
		p.evict(0)
		if p.late { // what others have entered of the same tokens comes before
			p.insertReplies(s.Reply, p.steps)
		}
		if p.blocks || !s.Retracted {
			p.insert(s, s.Computed-s.Unknown)
			p.cache.Keep(&s.hold, s.Computed/int32(p.size)-s.hold.Pages())
		}
		p.holds -= int64(s.hold.Pages())
		p.cache.Release(&s.hold)
		p.recount()
		s.hold, s.Retracted, s.Unknown = prefix.Hold{}, false, 0
	}
	p.used -= p.Pages(int64(s.Computed))
	p.tokens -= int64(s.Computed)
	s.Computed = 0
}

// recount updates the number of pages that are counted more than once.
func (p *Pool) recount() { p.shared = p.holds - p.cache.Held() }

// evict frees pages of the prefix cache for the memory that requests have taken since the last eviction, but for the
// step being formed, and for taken further pages.
func (p *Pool) evict(taken int64) {
	if over := p.cache.Cached() - p.Free() + taken - p.taken; over > 0 {
		p.stats.EvictedPages += p.cache.Evict(over)
	}
}

// UnloadAdapter makes the prefixes of an adapter unusable under sglang, which treats an adapter as a new one
// after it is loaded again. vLLM identifies adapters by name and keeps their prefixes.
func (p *Pool) UnloadAdapter(adapter int32) {
	if p.cache != nil && !p.blocks {
		p.cache.Unload(adapter)
	}
}

// RenewAdapter makes the prefixes of an adapter unusable, because its weights are those of another version.
func (p *Pool) RenewAdapter(adapter int32) {
	if p.cache != nil {
		p.cache.Renew(adapter)
	}
}

// Flush empties the prefix cache, except for pages that running requests hold.
func (p *Pool) Flush() {
	if p.cache != nil {
		p.stats.EvictedPages += p.cache.Evict(p.cache.Cached())
	}
}

// Kept returns the number of pages in the prefix cache.
func (p *Pool) Kept() int64 {
	if p.cache == nil {
		return 0
	}
	return p.cache.Cached()
}
