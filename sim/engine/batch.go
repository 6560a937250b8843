package engine

import (
	"lorasim/internal/heap"
	"lorasim/router"
	"lorasim/sim/lora"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
)

// A Batch is the running batch: the requests that decode. Each step generates a token for all of them, so
// quantities that grow are counted for the whole batch. A request's own tokens are as of the step in which it
// joined; see [kvcache.Sequence.Tokens]. Steps changes only in grow, and when the engine loses its memory.
type Batch struct {
	Steps int64 // decode steps so far

	heap       heap.Heap[*Request] // by the step of the last token, then as they came
	kvTokens   int64               // of its requests
	maxNewLeft int64               // sum of the tokens that they may still generate
	clip       int                 // tokens to which the scheduler clips that
	clipped    int64               // requests whose budget may exceed it
	loras      loraCounts
	order      int64 // of the latest request to join
	front      int64 // of the latest request to join it before all others

	// stops: the key of the heap is twice the step of the last token, plus 1 if a stop token ends the
	// request, which is then in one step more. See Pipeline.
	stops bool
}

// Len returns the number of requests.
func (b *Batch) Len() int { return len(b.heap) }

// At returns request k, in no order.
func (b *Batch) At(k int) *Request { return b.heap[k].Value }

// Requests lists the requests, in no order.
func (b *Batch) Requests() []*Request {
	rs := make([]*Request, len(b.heap))
	for k := range b.heap {
		rs[k] = b.heap[k].Value
	}
	return rs
}

// KVTokens returns the number of tokens of a request in the KV cache, as of the latest boundary between runs
// of steps.
func (b *Batch) KVTokens(r *Request) int64 {
	if r.state == Running {
		return r.Tokens(b.Steps)
	}
	return int64(r.Computed)
}

// Generated returns the number of tokens that a running request has generated, as of the latest boundary
// between runs of steps.
func (b *Batch) Generated(r *Request) int64 { return int64(r.Generated) + b.Steps - r.Joined }

// Left returns the number of tokens that a running request may still generate.
func (b *Batch) Left(r *Request) int64 { return int64(r.MaxNew) - b.Generated(r) }

// Clips reports whether the budget of a request may exceed the scheduler's limit (clip_new_tokens).
func (b *Batch) Clips() bool { return b.clipped > 0 }

// Reserved returns the number of tokens that the requests may still generate, each limited by
// clip_new_tokens.
func (b *Batch) Reserved() int64 {
	if b.clipped == 0 {
		return b.maxNewLeft
	}
	sum := int64(0)
	for k := range b.heap {
		sum += min(b.Left(b.heap[k].Value), int64(b.clip))
	}
	return sum
}

// steps returns the number of steps until the first request ends, or leaves the batch for its last token.
func (b *Batch) steps() int64 {
	if b.stops {
		return (b.heap[0].Key+1)/2 - b.Steps
	}
	return b.heap[0].Key - b.Steps
}

// number puts a request last in the order of the batch.
func (b *Batch) number(r *Request) {
	b.order++
	r.order = b.order
}

// push adds a request, last in the order of the batch.
func (b *Batch) push(r *Request) {
	b.number(r)
	last := b.Steps + int64(r.Output-r.Generated)
	if b.stops {
		if last *= 2; r.Stops {
			last++
		}
	}
	b.heap.Push(heap.Entry[*Request]{Key: last, Tie: r.seq, Value: r, Place: &r.heapIndex})
}

// Front makes the next n requests join before all others in the order of the batch. The returned function
// ends this.
func (b *Batch) Front(n int) (end func()) {
	last := b.order
	b.front -= int64(n)
	b.order = b.front - 1
	return func() { b.order = last }
}

// count adds a request to the sums (d = 1), or removes it (d = -1).
func (b *Batch) count(r *Request, d int64) {
	b.kvTokens += d * int64(r.Computed)
	b.maxNewLeft += d * int64(r.MaxNew-r.Generated)
	if int(r.MaxNew) > b.clip {
		b.clipped += d
	}
	b.loras.add(r.Row, int32(d))
}

// loraCounts counts the requests of a batch by their adapter and its rank.
type loraCounts struct {
	ranks   router.RankCounts
	step    int64    // number of the latest step whose prompts' adapters were counted
	heights [2]int64 // of tiles; see profile.Costs.TileHeights

	loras    int64 // requests with an adapter
	distinct int64 // adapters with requests
	rankSum  int64 // of these adapters
	tokens   int64 // sum, over the requests, of the rank of their adapter
	squares  int64 // sum of the squares of the numbers of an adapter's requests
	tiles    profile.Tiles
}

// add adds d requests of an adapter, 1 or -1.
func (c *loraCounts) add(a *Adapter, d int32) {
	a.Decoding += d
	if a.Rank > 0 {
		c.tiles.Add(c.heights, int64(a.Decoding-d), int64(d))
		c.loras += int64(d)
		c.tokens += int64(d) * int64(a.Rank)
		c.squares += int64(d) * (2*int64(a.Decoding) - int64(d))
		if a.Decoding == 0 || d > 0 && a.Decoding == 1 {
			c.distinct += int64(d)
			c.rankSum += int64(d) * int64(a.Rank)
		}
	}
	c.ranks.Add(a.Rank, d)
}

// work enters the adapters of the batch and of the prompts in the work of a step.
func (c *loraCounts) work(k *profile.StepWork, prompts []Chunk, decodes, byAdapter bool) {
	if decodes {
		k.LoRAs, k.MaxRank, k.Adapters, k.Squares = c.loras, c.ranks.Max, c.distinct, c.squares
		k.Ranks, k.RankTokens, k.RequestRanks, k.Tiles = c.rankSum, c.tokens, c.tokens, c.tiles
	}
	if k.Tokens == 0 || !byAdapter {
		return
	}
	c.step++
	for _, f := range prompts {
		a := f.Request.Row
		if a.Rank == 0 {
			continue
		}
		k.RankTokens += int64(a.Rank) * int64(f.Tokens)
		if a.rankStep != c.step {
			a.rankStep, a.stepTokens = c.step, 0
			if decodes {
				a.stepTokens = a.Decoding
			}
			if a.stepTokens == 0 {
				k.Adapters++
				k.Ranks += int64(a.Rank)
			}
		}
		k.Tiles.Add(c.heights, int64(a.stepTokens), int64(f.Tokens))
		a.stepTokens += f.Tokens
	}
}

// A Chunk is the part of a request's prompt that one step computes.
type Chunk struct {
	Request *Request
	Tokens  int32
}

// A Step is the step under way or being formed.
type Step struct {
	Prompts []Chunk
	Work    profile.StepWork
	Stall   tick.Ticks // time that the step waits for adapters

	kind     kind
	run      record.Steps
	adapters []*lora.Adapter // of Prompts
	began    tick.Ticks
}

// kind is the present activity of an engine.
type kind uint8

const (
	idle    kind = iota // between steps
	prefill             // in a prefill step, or paused
	mixed               // in a step that computes prompt tokens and decodes
	decode              // in a run of decode steps
)

// Open begins to form a step. firstWave: it comes before the worker's first decode step.
func (s *Step) Open(firstWave bool) {
	s.clear()
	s.Work, s.Stall = profile.StepWork{FirstWave: firstWave}, 0
}

// done returns the number of steps of the run that have ended at an instant.
func (s *Step) done(now tick.Ticks) int64 {
	if s.kind != decode || now <= s.run.Start {
		return 0
	}
	k := s.run.Until(now)
	if s.run.End(k) > now {
		k--
	}
	return k
}

// Decodes reports whether the step under way decodes.
func (s *Step) Decodes() bool { return s.kind == decode || s.kind == mixed }

func (s *Step) clear() { s.Prompts, s.adapters = s.Prompts[:0], s.adapters[:0] }
