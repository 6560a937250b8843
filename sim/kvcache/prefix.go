package kvcache

import (
	"slices"

	"lorasim/router/prefix"
	"lorasim/trace"
)

// With engine.prefix_cache an engine keeps what it has computed of prompts: sglang's radix cache
// (managers/schedule_policy.py, mem_cache/radix_cache.py) and vLLM's block pool (v1/core/kv_cache_manager.py,
// v1/core/block_pool.py). A request is admitted with the pages that are kept of its prompt and computes the
// rest, at least one token. What nobody holds counts as free, and is evicted when it is needed: nothing looks
// at the cache in between, so that happens before the next look at it.
//
// sglang enters the pages of a prompt when the step ends that computed them, and those of the reply when the
// request ends; of pages that another request has entered meanwhile the copy is freed. vLLM enters pages when
// they are scheduled, and keeps both copies.

// Prefixes is a kind of prefix cache.
type Prefixes uint8

// The kinds of prefix caches.
const (
	NoPrefixes Prefixes = iota
	RadixPages          // sglang's, evicting page by page
	RadixNodes          // sglang's, evicting whole nodes
	BlockPool           // vLLM's
)

// prefixes is the part of a Pool that keeps prefixes.
type prefixes struct {
	cache   prefix.Cache // nil: none
	blocks  bool         // it is vLLM's
	late    bool         // the latest token of a running request is in flight
	steps   int64        // decode steps so far
	holds   int64        // pages that requests hold, each counted for each of them
	replies map[*trace.Text][]*Sequence
	stats   *CacheStats
}

func newPrefixes(kind Prefixes, size int64, stats *CacheStats) prefixes {
	p := prefixes{blocks: kind == BlockPool, stats: stats}
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

// Known is the text that a request's first n tokens are the beginning of, as far as it tells them.
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

// pagesKnown is the number of pages that may be kept of a request's first n tokens, and the text that they are
// the beginning of.
func (p *Pool) pagesKnown(s *Sequence, n int32) (*trace.Text, int32) {
	t, n := s.Known(n)
	return t, n / int32(p.size)
}

// Peek is how many of a text's first tokens are kept, for routers. The decode steps under way have taken so
// many pages.
func (p *Pool) Peek(text *trace.Text, adapter, tokens int32, taken int64) int32 {
	if p.cache == nil || text == nil {
		return 0
	}
	p.evict(taken)
	size := int32(p.size)
	return p.cache.Peek(text, adapter, text.Known(tokens)/size) * size
}

// MatchPrefix returns how many of a waiting request's first n tokens are cached, and how many of those no request holds
// (match_prefix in sglang, get_computed_blocks in vLLM).
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

// LockPrefix has a request that is admitted hold what is kept of its first n tokens (inc_lock_ref in sglang,
// touch in vLLM). It returns how many tokens that are.
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

// insertReplies enters what running requests have replied of the texts that a prompt consists of, the token of
// the step that is being formed included.
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

// TokensLate says that steps are formed while the latest tokens of running requests are in flight: their pages are
// entered by the tokens before (cache_blocks in vLLM's Scheduler.update_from_output and allocate_slots).
func (p *Pool) TokensLate() { p.late = true }

// TakeStep evicts from the prefix cache what the next decode step takes, which is formed, before anything is freed.
func (p *Pool) TakeStep(steps int64) {
	if p.cache != nil {
		p.evict(p.StepNeed(steps))
	}
}

// InsertKnown is Insert for a request whose latest token is in flight.
func (p *Pool) InsertKnown(s *Sequence) {
	if p.cache != nil {
		p.insert(s, s.Computed-1)
	}
}

// trackReply notes that a running request goes on with a text that others may know; untrackReply that it does
// no longer.
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

// Insert enters the pages of a request that are computed (cache_unfinished_req in sglang, cache_full_blocks in
// vLLM).
func (p *Pool) Insert(s *Sequence) {
	if p.cache != nil {
		p.insert(s, s.Computed)
	}
}

func (p *Pool) insert(s *Sequence, n int32) {
	text, pages := p.pagesKnown(s, n)
	if pages <= s.hold.Pages() {
		return
	}
	p.evict(0)
	p.holds -= int64(s.hold.Pages())
	p.cache.Add(&s.hold, text, s.Adapter, pages)
	p.holds += int64(s.hold.Pages())
	p.recount()
}

// Seed keeps the first tokens of a text, as if a request had computed them.
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

// Release frees a request that does not decode (cache_finished_req in sglang, free in vLLM). The prefix cache
// takes its pages over; sglang keeps nothing of the reply of a request that it retracts.
func (p *Pool) Release(s *Sequence) {
	if p.cache != nil {
		p.evict(0)
		if p.late { // what others have entered of the same tokens comes before
			p.insertReplies(s.Reply, p.steps)
		}
		if p.blocks || !s.Retracted {
			p.insert(s, s.Computed-s.Unknown)
			p.cache.Keep(s.Computed/int32(p.size) - s.hold.Pages())
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

// recount notes how many pages are counted too often.
func (p *Pool) recount() { p.shared = p.holds - p.cache.Held() }

// evict makes room in the prefix cache for what requests have taken since, and for further pages.
func (p *Pool) evict(taken int64) {
	if over := p.cache.Cached() - p.Free() + taken; over > 0 {
		p.stats.EvictedPages += p.cache.Evict(over)
	}
}

// UnloadAdapter makes the prefixes of an adapter unknown: loaded again it is another one to sglang. vLLM knows
// it by its name.
func (p *Pool) UnloadAdapter(adapter int32) {
	if p.cache != nil && !p.blocks {
		p.cache.Unload(adapter)
	}
}

// Flush empties the prefix cache, but for what running requests hold.
func (p *Pool) Flush() {
	if p.cache != nil {
		p.stats.EvictedPages += p.cache.Evict(p.cache.Cached())
	}
}

// Kept is the number of pages in the prefix cache.
func (p *Pool) Kept() int64 {
	if p.cache == nil {
		return 0
	}
	return p.cache.Cached()
}
