package engine

import (
	"lorasim/internal/heap"
	"lorasim/router"
	"lorasim/sim/lora"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
)

// Batch is the running batch: the requests that decode. All of them get a token at each step, so that what grows is
// counted for the batch as a whole: a request's own tokens are as of the step in which it joined, see
// Sequence.Tokens. Steps moves in Engine.advance alone.
type Batch struct {
	Steps int64 // decode steps so far

	heap       heap.Heap[*Request] // by the step of the last token, then as they came
	kvTokens   int64               // of its requests
	maxNewLeft int64               // sum of what they may still generate
	clip       int                 // tokens to which the scheduler clips that
	clipped    int64               // requests whose budget may exceed it
	loras      loraCounts
	order      int64 // of the latest request to join
	front      int64 // of the latest request to join it before all others

	// stops: the heap goes by twice the step of the last token, plus 1 where a stop token ends the request, which is
	// in a step more. See Pipeline.
	stops bool
}

// Len is the number of requests.
func (b *Batch) Len() int { return len(b.heap) }

// At is request k, in no order.
func (b *Batch) At(k int) *Request { return b.heap[k].Value }

// Requests lists the requests, in no order.
func (b *Batch) Requests() []*Request {
	rs := make([]*Request, len(b.heap))
	for k := range b.heap {
		rs[k] = b.heap[k].Value
	}
	return rs
}

// KVTokens is the number of tokens that a request had in the KV cache at the latest boundary between runs of steps.
func (b *Batch) KVTokens(r *Request) int64 {
	if r.state == Running {
		return r.Tokens(b.Steps)
	}
	return int64(r.Computed)
}

// Generated is how many tokens a running request has generated at the latest boundary between runs of steps.
func (b *Batch) Generated(r *Request) int64 { return int64(r.Generated) + b.Steps - r.Joined }

// Left is what a running request may still generate.
func (b *Batch) Left(r *Request) int64 { return int64(r.MaxNew) - b.Generated(r) }

// Clips says whether the budget of a request may exceed what the scheduler clips it to.
func (b *Batch) Clips() bool { return b.clipped > 0 }

// Reserved is the number of tokens that the requests may still generate, each clipped.
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

// steps is the number of steps until the first request ends, or is not in the step formed.
func (b *Batch) steps() int64 {
	if b.stops {
		return (b.heap[0].Key+1)/2 - b.Steps
	}
	return b.heap[0].Key - b.Steps
}

// number puts a request behind those that are there.
func (b *Batch) number(r *Request) {
	b.order++
	r.order = b.order
}

// push takes a request in, behind those that are there.
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

// Front has the next n requests to join be before all others; it returns what ends that.
func (b *Batch) Front(n int) (end func()) {
	last := b.order
	b.front -= int64(n)
	b.order = b.front - 1
	return func() { b.order = last }
}

// count counts a request in, 1, or out, -1.
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
	ranks router.RankCounts
	step  int64 // number of the latest step whose prompts' adapters were counted

	loras    int64 // requests with an adapter
	distinct int64 // adapters with requests
	rankSum  int64 // of these adapters
	tokens   int64 // sum, over the requests, of the rank of their adapter
	squares  int64 // sum of the squares of the numbers of an adapter's requests
}

// add counts d more requests of an adapter, 1 or -1.
func (c *loraCounts) add(a *Adapter, d int32) {
	a.Decoding += d
	if a.Rank > 0 {
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

// work enters the batch, and the prompts' adapters, in the work of a step.
func (c *loraCounts) work(k *profile.StepWork, prompts []Chunk, decodes, byAdapter bool) {
	if decodes {
		k.LoRAs, k.MaxRank, k.Adapters, k.Squares = c.loras, c.ranks.Max, c.distinct, c.squares
		k.Ranks, k.RankTokens, k.RequestRanks = c.rankSum, c.tokens, c.tokens
	}
	if k.Tokens == 0 || !byAdapter {
		return
	}
	c.step++
	for _, f := range prompts {
		a := f.Request.Row
		k.RankTokens += int64(a.Rank) * int64(f.Tokens)
		if (!decodes || a.Decoding == 0) && a.Rank > 0 && a.rankStep != c.step {
			a.rankStep = c.step
			k.Adapters++
			k.Ranks += int64(a.Rank)
		}
	}
}

// Chunk is the part of a request's prompt that one step computes.
type Chunk struct {
	Request *Request
	Tokens  int32
}

// Step is the step under way, or being formed.
type Step struct {
	Prompts []Chunk
	Work    profile.StepWork
	Stall   tick.Ticks // that it waits for adapters

	kind     kind
	run      record.Steps
	adapters []*lora.Adapter // of Prompts
	began    tick.Ticks
}

// kind is what an engine is doing.
type kind uint8

const (
	idle    kind = iota // between steps
	prefill             // in a prefill step, or paused
	mixed               // in a step that takes prompt tokens and decodes
	decode              // in a run of decode steps
)

// Open begins to form a step.
func (s *Step) Open(firstWave bool) {
	s.clear()
	s.Work, s.Stall = profile.StepWork{FirstWave: firstWave}, 0
}

// done is the number of steps of the run that are over at an instant.
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

// Decodes says whether the step under way decodes.
func (s *Step) Decodes() bool { return s.kind == decode || s.kind == mixed }

func (s *Step) clear() { s.Prompts, s.adapters = s.Prompts[:0], s.adapters[:0] }
