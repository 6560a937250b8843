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
