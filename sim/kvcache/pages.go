// Package kvcache is the KV cache of an engine: pages of requests, of the running batch as a whole, and of
// the prefixes that are kept for requests to come.
package kvcache

import (
	"fmt"

	"lorasim/router/prefix"
	"lorasim/trace"
)

// Pool is the KV cache, counted in pages. A request has whole pages. Requests of the running batch are known
// only by how many of them sit at which place within a page, so that a run of decode steps costs no time per
// request: what depends on them takes the engine's number of decode steps so far.
//
// Invariants: no fewer than 0 pages are free; the tokens are those of the requests and the reserved ones; shared pages
// are those that requests hold of the prefix cache beyond the first holder. See Check.
type Pool struct {
	size     int64 // tokens of a page
	capacity int64 // pages
	used     int64 // pages
	tokens   int64 // tokens stored, of each request
	shared   int64 // pages counted more than once, for requests with a prefix in common
	reserved int64 // tokens of requests that are being copied to another worker
	adapters int64 // pages of adapters, where they share the memory

	// at[(n-steps) mod size] counts the decoding requests with n tokens: a request keeps its place while it
	// decodes.
	at []int64

	prefixes
}

// CacheStats counts what the prefix cache did.
type CacheStats struct {
	CachedTokens int64 // of prompts, found in the prefix cache
	EvictedPages int64 // that the prefix cache has given up
}

// New returns an empty cache for the given number of tokens, in pages of size tokens. It counts into stats.
func New(tokens, size int64, kind Prefixes, stats *CacheStats) Pool {
	return Pool{size: size, capacity: tokens / size, at: make([]int64, size), prefixes: newPrefixes(kind, size, stats)}
}

// Sequence is a request as the cache knows it.
type Sequence struct {
	Prompt      int32       // tokens
	Computed    int32       // tokens in the cache; of one that decodes, as of Joined
	Joined      int64       // the engine's decode steps when it began to decode
	Adapter     int32       // row of the adapter: prefixes are shared among requests of the same one
	Text, Reply *trace.Text // what the prompt, and prompt and output, are the beginning of; nil: unknown
	Found       int32       // tokens of the prompt found in the prefix cache when it first ran
	Retracted   bool        // nothing of it is kept when it is released
	Unknown     int32       // tokens at its end that are in flight: not entered when it is released
	ran         bool
	hold        prefix.Hold
}

// Tokens returns the tokens of a decoding request in the cache after the given number of the engine's decode steps.
func (s *Sequence) Tokens(steps int64) int64 { return int64(s.Computed) + steps - s.Joined }

// Forget makes a request as if it had never been in a cache, which is gone.
func (s *Sequence) Forget() { s.Computed, s.hold, s.Retracted, s.Unknown = 0, prefix.Hold{}, false, 0 }

// PageSize is the number of tokens of a page.
func (p *Pool) PageSize() int64 { return p.size }

// CapacityTokens is the number of tokens that there is room for.
func (p *Pool) CapacityTokens() int64 { return p.capacity * p.size }

// Free is the number of pages that no request holds; those of the prefix cache that nobody holds are free.
func (p *Pool) Free() int64 { return p.capacity - p.used + p.shared }

// FreeTokens is the number of tokens that the free pages have room for.
func (p *Pool) FreeTokens() int64 { return p.Free() * p.size }

// Stored is the number of tokens stored for requests.
func (p *Pool) Stored() int64 { return p.tokens - p.shared*p.size }

// Reserved is the number of tokens that Reserve keeps.
func (p *Pool) Reserved() int64 { return p.reserved }

// Pages returns the number of pages for a number of tokens.
func (p *Pool) Pages(tokens int64) int64 {
	if p.size == 1 {
		return tokens // the usual size; a division less
	}
	return (tokens + p.size - 1) / p.size
}

// PagesFor is the number of pages that a request of n tokens takes to grow by d.
func (p *Pool) PagesFor(n, d int64) int64 { return p.Pages(n+d) - p.Pages(n) }

// RoundUp rounds tokens up to whole pages.
func (p *Pool) RoundUp(tokens int64) int64 { return p.Pages(tokens) * p.size }

func (p *Pool) grow(n, d int64) {
	p.used += p.PagesFor(n, d)
	p.tokens += d
}

// Grow gives a request that does not decode n more tokens (allocate_slots in vLLM). The caller has made sure
// that there is room.
func (p *Pool) Grow(s *Sequence, n int64) {
	p.grow(int64(s.Computed), n)
	s.Computed += int32(n)
}

// Reserve keeps n tokens for a request whose copy to another worker is under way, or, where n < 0, frees them.
func (p *Pool) Reserve(n int64) {
	if p.reserved += n; n > 0 {
		p.grow(0, n)
		return
	}
	p.used -= p.Pages(-n)
	p.tokens += n
}

// Adapters is the number of pages that adapters take.
func (p *Pool) Adapters() int64 { return p.adapters }

// TakeForAdapter takes n pages for an adapter, or, where n < 0, frees them. The caller has made sure that there is
// room.
func (p *Pool) TakeForAdapter(n int64) {
	p.adapters += n
	p.used += n
}

// place is where a request of n tokens sits within a page.
func (p *Pool) place(n, steps int64) int64 {
	if p.size == 1 {
		return 0
	}
	return ((n-steps)%p.size + p.size) % p.size
}

// StartDecoding counts a request into the running batch.
func (p *Pool) StartDecoding(s *Sequence, steps int64) {
	s.Joined = steps
	if s.Reply != nil {
		p.trackReply(s)
	}
	p.at[p.place(int64(s.Computed), steps)]++
}

// StopDecoding counts a request out of the running batch; it keeps its pages.
func (p *Pool) StopDecoding(s *Sequence, steps int64) {
	if s.Reply != nil {
		p.untrackReply(s)
	}
	s.Computed += int32(steps - s.Joined)
	p.at[p.place(int64(s.Computed), steps)]--
}

// StepNeed is the number of pages that the next decode step takes: one for each request of the batch whose
// pages are full.
func (p *Pool) StepNeed(steps int64) int64 { return p.at[p.place(0, steps)] }

// StepsThatFit is the largest number of decode steps, at most limit, that the free pages allow for a batch of
// the given size.
func (p *Pool) StepsThatFit(steps, batch, limit int64) int64 {
	if batch == 0 {
		return limit
	}
	k := p.Free() / batch * p.size // in size steps every request takes one page
	if k >= limit {
		return limit
	}
	for free := p.Free() % batch; k < limit; k++ {
		if free -= p.StepNeed(steps + k); free < 0 {
			break
		}
	}
	return k
}

// DecodePages is the number of pages that k decode steps take.
func (p *Pool) DecodePages(steps, batch, k int64) int64 {
	n := k / p.size * batch
	for i := k - k%p.size; i < k; i++ {
		n += p.StepNeed(steps + i)
	}
	return n
}

// Decode makes every request of the batch longer by k tokens.
func (p *Pool) Decode(steps, batch, k int64) {
	p.steps = steps + k
	p.used += p.DecodePages(steps, batch, k)
	p.tokens += k * batch
}

// Check returns an error if an invariant does not hold; batch is the number of requests that decode, tokens what all
// requests have in the cache.
func (p *Pool) Check(batch, tokens int64) error {
	sum := int64(0)
	for _, n := range p.at {
		if n < 0 {
			return fmt.Errorf("kvcache: %v requests by place within a page, expected none below 0", p.at)
		}
		sum += n
	}
	switch {
	case sum != batch:
		return fmt.Errorf("kvcache: %d requests decode, expected %d", sum, batch)
	case tokens+p.reserved != p.tokens:
		return fmt.Errorf("kvcache: %d tokens of requests, %d reserved, counted %d", tokens, p.reserved, p.tokens)
	case p.Free() < 0 || p.used < p.adapters || p.reserved < 0 || p.adapters < 0:
		return fmt.Errorf("kvcache: %d of %d pages free, %d of adapters, %d tokens, %d reserved; expected none below 0",
			p.Free(), p.capacity, p.adapters, p.tokens, p.reserved)
	case p.cache != nil && p.shared != p.holds-p.cache.Held():
		return fmt.Errorf("kvcache: %d pages shared, requests hold %d and %d of the cache are held",
			p.shared, p.holds, p.cache.Held())
	}
	return nil
}

// CheckEmpty returns an error if anything is left of requests.
func (p *Pool) CheckEmpty() error {
	if p.used != 0 || p.tokens != 0 || p.shared != 0 || p.reserved != 0 || p.holds != 0 || len(p.replies) > 0 ||
		p.cache != nil && p.cache.Held() != 0 {
		return fmt.Errorf("kvcache: %d pages, %d tokens, %d shared, %d reserved, %d holds and %d replies are left",
			p.used, p.tokens, p.shared, p.reserved, p.holds, len(p.replies))
	}
	return nil
}
