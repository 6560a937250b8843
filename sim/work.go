package sim

import (
	"math/bits"

	"lorasim/internal/tick"
	"lorasim/sim/engine/dlora"
	"lorasim/sim/profile"
)

// stepTime is the length of a step that computes the prompts of k, those of the
// chunks in w.filling, and the next tokens of the batch if it decodes too.
func (w *worker) stepTime(k *profile.StepWork, decodes bool) tick.Ticks {
	k.Waiting = int64(w.queue.n)
	if decodes {
		k.Batch, k.KV = int64(len(w.batch)), w.ctx
	}
	if w.exec != nil && w.exec.row != dlora.Unmerged {
		k.LoRATokens = 0
		return w.costs.Step(k)
	}
	c := &w.ranks
	if decodes {
		k.LoRAs, k.MaxRank, k.Adapters, k.Squares = c.loras, c.batch.max, c.distinct, c.squares
		k.Ranks, k.RankTokens = c.ranks, c.tokens
	}
	if k.Tokens > 0 && w.costs.CountsAdapters() {
		c.step++
		for _, f := range w.filling {
			r := &f.req.row.ranks
			k.RankTokens += int64(r.rank) * int64(f.tokens)
			if (!decodes || r.n == 0) && r.rank > 0 && r.step != c.step {
				r.step = c.step
				k.Adapters++
				k.Ranks += int64(r.rank)
			}
		}
	}
	return w.costs.Step(k)
}

// rankCount counts the requests of a batch by their adapter and its rank, and by
// rank alone all those on the worker.
type rankCount struct {
	batch, all byRank
	step       int64 // number of the latest step whose prompts' adapters were counted

	loras    int64 // requests of the batch with an adapter
	distinct int64 // adapters with requests in the batch
	ranks    int64 // sum of their ranks
	tokens   int64 // sum, over the requests, of the rank of their adapter
	squares  int64 // sum of the squares of the numbers of an adapter's requests
}

// rankRow is an adapter, by row of the adapter table, or, of rank 0, the base
// model.
type rankRow struct {
	n    int32 // requests of the batch
	rank int32
	step int64 // the latest in which it was counted
}

// add counts d more requests of a row in the batch, 1 or -1.
func (c *rankCount) add(r *rankRow, d int32) {
	r.n += d
	if r.rank > 0 {
		c.loras += int64(d)
		c.tokens += int64(d) * int64(r.rank)
		c.squares += int64(d) * (2*int64(r.n) - int64(d))
		if r.n == 0 || d > 0 && r.n == 1 {
			c.distinct += int64(d)
			c.ranks += int64(d) * int64(r.rank)
		}
	}
	c.batch.add(r.rank, d)
}

// byRank counts requests by rank.
type byRank struct {
	n   []int32
	set []uint64 // a bit for each rank that has any
	max int      // the largest of these, 0 if there is none
}

// add counts one more request of a rank, or one less.
func (c *byRank) add(rank, d int32) {
	if k := int(rank); k >= len(c.n) {
		c.n = append(c.n, make([]int32, k+1-len(c.n))...)
		c.set = append(c.set, make([]uint64, k/64+1-len(c.set))...)
	}
	if c.n[rank] += d; c.n[rank] == 0 || c.n[rank] == d { // the last one, or the first
		c.toggle(int(rank))
	}
}

func (c *byRank) toggle(rank int) {
	c.set[rank/64] ^= 1 << (rank % 64)
	c.max = 0
	for k := len(c.set) - 1; k >= 0; k-- {
		if c.set[k] != 0 {
			c.max = 64*k + bits.Len64(c.set[k]) - 1
			return
		}
	}
}

// pages is the KV cache of a worker, counted in pages of size tokens. A request
// holds whole pages. Requests of the running batch are known only by how many
// of them sit at which place within a page, so that a run of decode steps
// costs no time per request.
type pages struct {
	size     int64
	capacity int64 // pages
	used     int64 // pages
	tokens   int64 // tokens stored, of each request
	shared   int64 // pages counted more than once, for requests with a prefix in common

	// at[(n-steps) mod size] counts the running requests with n tokens, where
	// steps are the worker's decode steps so far: a request keeps its place
	// while it decodes.
	at []int64
}

func newPages(tokens, size int64) pages {
	return pages{size: size, capacity: tokens / size, at: make([]int64, size)}
}

// free is the number of pages that no request holds.
func (p *pages) free() int64 { return p.capacity - p.used + p.shared }

// stored is the number of tokens stored for requests.
func (p *pages) stored() int64 { return p.tokens - p.shared*p.size }

func (p *pages) pagesOf(tokens int64) int64 {
	if p.size == 1 {
		return tokens // the usual size; a division less
	}
	return (tokens + p.size - 1) / p.size
}

// pagesFor is the number of pages that a request of n tokens takes to grow by d.
func (p *pages) pagesFor(n, d int64) int64 { return p.pagesOf(n+d) - p.pagesOf(n) }

// paged rounds tokens up to whole pages.
func (p *pages) paged(tokens int64) int64 { return p.pagesOf(tokens) * p.size }

// grow lengthens one request from n tokens by d.
func (p *pages) grow(n, d int64) {
	p.used += p.pagesFor(n, d)
	p.tokens += d
}

// release frees a request of n tokens.
func (p *pages) release(n int64) {
	p.used -= p.pagesOf(n)
	p.tokens -= n
}

func (p *pages) place(n, steps int64) int64 {
	if p.size == 1 {
		return 0
	}
	return ((n-steps)%p.size + p.size) % p.size
}

// count counts a request of n tokens into the running batch, 1, or out of it, -1.
func (p *pages) count(n, steps, d int64) { p.at[p.place(n, steps)] += d }

// stepNeed is the number of pages that the next decode step takes: one for
// each running request whose pages are full.
func (p *pages) stepNeed(steps int64) int64 { return p.at[p.place(0, steps)] }

// stepsThatFit is the largest number of decode steps, at most limit, that the
// free pages allow for a batch of the given size.
func (p *pages) stepsThatFit(steps, batch, limit int64) int64 {
	if batch == 0 {
		return limit
	}
	k := p.free() / batch * p.size // in size steps every request takes one page
	if k >= limit {
		return limit
	}
	for free := p.free() % batch; k < limit; k++ {
		if free -= p.stepNeed(steps + k); free < 0 {
			break
		}
	}
	return k
}

// decodePages is the number of pages that k decode steps take.
func (p *pages) decodePages(steps, batch, k int64) int64 {
	n := k / p.size * batch
	for i := k - k%p.size; i < k; i++ {
		n += p.stepNeed(steps + i)
	}
	return n
}

// decode makes every running request longer by k tokens.
func (p *pages) decode(steps, batch, k int64) {
	p.used += p.decodePages(steps, batch, k)
	p.tokens += k * batch
}
