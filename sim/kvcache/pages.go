// Package kvcache simulates the KV cache of an engine. A [Pool] counts the pages of requests, of the running
// batch, and of the prefixes that are kept for later requests. A [Sequence] is the cache's part of a request.
//
// It follows sglang's radix cache and vLLM's block pool; see [Prefixes].
package kvcache

import (
	"fmt"

	"lorasim/router/prefix"
	"lorasim/trace"
)

// A Pool is a KV cache, counted in pages. A request has whole pages. For the requests of the running batch,
// the pool only counts how many are at each position within a page, so that a run of decode steps costs no
// time per request. Methods that depend on these requests take the engine's number of decode steps so far.
//
// Invariants: free pages >= 0; the tokens are those of the requests and the reserved ones; shared pages are
// the pages of the prefix cache that requests hold beyond the first holder. See [Pool.Check].
type Pool struct {
	size     int64 // tokens of a page
	capacity int64 // pages
	used     int64 // pages
	tokens   int64 // tokens stored, of each request
	shared   int64 // pages counted more than once, for requests with a prefix in common
	reserved int64 // tokens of requests that are being copied to another worker
	adapters int64 // pages of adapters, where they share the memory

	// at[(n-steps) mod size] counts the decoding requests with n tokens. A request stays in its element while
	// it decodes.
	at []int64

	prefixes
}

// CacheStats counts the events of a prefix cache.
type CacheStats struct {
	CachedTokens int64 // prompt tokens found in the prefix cache
	EvictedPages int64 // pages evicted from the prefix cache
}

// New returns an empty cache for the given number of tokens, in pages of size tokens. It counts into stats.
func New(tokens, size int64, kind Prefixes, stats *CacheStats) Pool {
	return Pool{size: size, capacity: tokens / size, at: make([]int64, size), prefixes: newPrefixes(kind, size, stats)}
}

// A Sequence is the cache's part of a request.
type Sequence struct {
	Prompt      int32       // length of the prompt, tokens
	Computed    int32       // tokens in the cache; while the request decodes, as of Joined
	Joined      int64       // number of decode steps of the engine when the request began to decode
	Adapter     int32       // row of the adapter; only requests of the same adapter share prefixes
	Text, Reply *trace.Text // texts that begin with the prompt, and with prompt and output; nil: unknown
	Found       int32       // prompt tokens found in the prefix cache when the request first ran
	Retracted   bool        // sglang: Release adds no pages of the request to the prefix cache
	Unknown     int32       // tokens in flight at the end, which Release does not insert
	ran         bool
	hold        prefix.Hold
}

// Tokens returns the tokens of a decoding request in the cache after the given number of decode steps of the
// engine.
func (s *Sequence) Tokens(steps int64) int64 { return int64(s.Computed) + steps - s.Joined }

// Forget resets a request after the loss of its cache, as if it had never been in one.
func (s *Sequence) Forget() { s.Computed, s.hold, s.Retracted, s.Unknown = 0, prefix.Hold{}, false, 0 }

// PageSize returns the number of tokens of a page.
func (p *Pool) PageSize() int64 { return p.size }

// CapacityTokens returns the capacity of the cache in tokens.
func (p *Pool) CapacityTokens() int64 { return p.capacity * p.size }

// Free returns the number of pages that no request holds. It includes pages of the prefix cache without a
// holder.
func (p *Pool) Free() int64 { return p.capacity - p.used + p.shared }

// FreeTokens returns the number of tokens that fit in the free pages.
func (p *Pool) FreeTokens() int64 { return p.Free() * p.size }

// Stored returns the number of tokens stored for requests. Shared pages count once.
func (p *Pool) Stored() int64 { return p.tokens - p.shared*p.size }

// Reserved returns the number of tokens that [Pool.Reserve] holds.
func (p *Pool) Reserved() int64 { return p.reserved }

// Pages returns the number of pages for a number of tokens.
func (p *Pool) Pages(tokens int64) int64 {
	if p.size == 1 {
		return tokens // the usual size; a division less
	}
	return (tokens + p.size - 1) / p.size
}

// PagesFor returns the number of additional pages if a request of n tokens grows by d tokens.
func (p *Pool) PagesFor(n, d int64) int64 { return p.Pages(n+d) - p.Pages(n) }

// RoundUp rounds a number of tokens up to whole pages.
func (p *Pool) RoundUp(tokens int64) int64 { return p.Pages(tokens) * p.size }

func (p *Pool) grow(n, d int64) {
	p.used += p.PagesFor(n, d)
	p.tokens += d
}

// Grow adds n tokens to a request that does not decode (allocate_slots in vLLM). The caller ensures that
// there is room.
func (p *Pool) Grow(s *Sequence, n int64) {
	before := p.used
	if p.grow(int64(s.Computed), n); p.forming {
		p.taken += p.used - before
	}
	s.Computed += int32(n)
}

// Reserve takes memory for n tokens of a request whose KV cache is being copied to another worker. If n < 0,
// it frees the memory of -n tokens.
func (p *Pool) Reserve(n int64) {
	if p.reserved += n; n > 0 {
		p.grow(0, n)
		return
	}
	p.used -= p.Pages(-n)
	p.tokens += n
}

// Adapters returns the number of pages that adapters take.
func (p *Pool) Adapters() int64 { return p.adapters }

// TakeForAdapter takes n pages for an adapter. If n < 0, it frees -n pages. The caller ensures that there is
// room.
func (p *Pool) TakeForAdapter(n int64) {
	p.adapters += n
	p.used += n
}

// place returns the index in at of a request with n tokens.
func (p *Pool) place(n, steps int64) int64 {
	if p.size == 1 {
		return 0
	}
	return ((n-steps)%p.size + p.size) % p.size
}

// StartDecoding adds a request to the running batch after the given number of decode steps.
func (p *Pool) StartDecoding(s *Sequence, steps int64) {
	s.Joined = steps
	if s.Reply != nil {
		p.trackReply(s)
	}
	p.at[p.place(int64(s.Computed), steps)]++
}

// StopDecoding removes a request from the running batch after the given number of decode steps. The request
// keeps its pages.
func (p *Pool) StopDecoding(s *Sequence, steps int64) {
	if s.Reply != nil {
		p.untrackReply(s)
	}
	s.Computed += int32(steps - s.Joined)
	p.at[p.place(int64(s.Computed), steps)]--
}

// StepNeed returns the number of pages that the next decode step takes: one for each request of the batch
// whose last page is full.
func (p *Pool) StepNeed(steps int64) int64 { return p.at[p.place(0, steps)] }

// StepsThatFit returns the largest number of decode steps, at most limit, for which the free pages suffice.
// batch is the number of running requests.
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

// DecodePages returns the number of pages that the next k decode steps take.
func (p *Pool) DecodePages(steps, batch, k int64) int64 {
	n := k / p.size * batch
	for i := k - k%p.size; i < k; i++ {
		n += p.StepNeed(steps + i)
	}
	return n
}

// Decode adds k tokens to every request of the batch.
func (p *Pool) Decode(steps, batch, k int64) {
	p.steps = steps + k
	p.used += p.DecodePages(steps, batch, k)
	p.tokens += k * batch
}

// Check returns an error if an invariant does not hold. batch is the number of decoding requests, and tokens
// the number of tokens of all requests in the cache.
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

// CheckEmpty returns an error if requests still hold pages or tokens.
func (p *Pool) CheckEmpty() error {
	if p.used != 0 || p.tokens != 0 || p.shared != 0 || p.reserved != 0 || p.holds != 0 || len(p.replies) > 0 ||
		p.cache != nil && p.cache.Held() != 0 {
		return fmt.Errorf("kvcache: %d pages, %d tokens, %d shared, %d reserved, %d holds and %d replies are left",
			p.used, p.tokens, p.shared, p.reserved, p.holds, len(p.replies))
	}
	return nil
}
