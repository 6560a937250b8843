package profile

import (
	"math"

	"lorasim/internal/tick"
	"lorasim/router"
)

// Costs is a profile compiled to integer step costs. All methods are pure.
type Costs struct {
	p *Profile

	decodeBase, perRequest tick.Ticks
	// PerKVToken is the cost of one KV token in one decode step.
	PerKVToken tick.Ticks
	// Switch is the time to merge another adapter into the weights, or to take
	// the merged one out.
	Switch   tick.Ticks
	unmerged tick.Ticks
	// Overhead delays every token of a request outside the engine.
	Overhead tick.Ticks
}

// Compile converts a checked profile.
func (p *Profile) Compile() *Costs {
	l := &p.Latency
	return &Costs{
		p:          p,
		decodeBase: tick.FromMilliseconds(l.Decode.BaseMs),
		perRequest: tick.FromMilliseconds(l.Decode.PerRequestMs),
		PerKVToken: tick.FromMilliseconds(l.Decode.PerKVTokenUs / 1000),
		Switch:     tick.FromMilliseconds(l.LoRA.SwitchMs),
		unmerged:   tick.FromMilliseconds(l.LoRA.UnmergedMs),
		Overhead:   tick.FromMilliseconds(l.RequestOverheadMs),
	}
}

// Profile returns the profile the costs were compiled from.
func (c *Costs) Profile() *Profile { return c.p }

// DecodeFixed is the part of a decode step that does not depend on the KV
// tokens: batch requests run, loras of them with an adapter of at most maxRank.
// A step takes DecodeFixed + PerKVToken*sum(ctx), at least one tick.
func (c *Costs) DecodeFixed(batch, loras int64, maxRank int) tick.Ticks {
	t := c.decodeBase + c.perRequest*tick.Ticks(batch)
	if loras > 0 {
		br := float64(loras) * float64(maxRank)
		switch c.p.Latency.LoRA.Backend {
		case BackendCSGMV:
			t += tick.FromMilliseconds(c.p.Latency.LoRA.DecodeUs / 1000 * math.Sqrt(br))
		case BackendTriton:
			t += tick.FromMilliseconds(c.p.Latency.LoRA.DecodeUs / 1000 * br)
		case BackendDLoRA:
			t += c.unmerged
		}
	}
	return max(t, 1)
}

// PrefillWork is what a prefill step computes.
type PrefillWork struct {
	Tokens     int64   // prompt tokens
	LoRATokens int64   // of these, tokens of requests with an adapter
	TokenCtx   float64 // sum over its requests of tokens * context before and within the chunk
	FirstWave  bool    // before the worker's first decode step
	Extends    bool    // goes on with a prompt that is partly prefilled
	// FirstExtend: the worker's first step that does.
	FirstExtend bool
}

// Add counts a chunk of n tokens after ctx tokens of the same request. Within
// the chunk a token sees on average half of the chunk.
func (w *PrefillWork) Add(n, ctx int64, adapter bool) {
	w.Tokens += n
	if adapter {
		w.LoRATokens += n
	}
	w.Extends = w.Extends || ctx > 0
	w.TokenCtx += float64(n) * (float64(ctx) + float64(n)/2)
}

// Prefill is the length of a prefill step.
func (c *Costs) Prefill(w PrefillWork) tick.Ticks {
	l := &c.p.Latency
	ms := l.Prefill.BaseMs + l.Prefill.PerTokenUs/1000*float64(w.Tokens)
	ms += float64(l.Prefill.PerTokenCtxNs / 1e6 * w.TokenCtx)
	if w.FirstWave && l.Prefill.FirstWaveFactor > 0 {
		ms *= l.Prefill.FirstWaveFactor
	}
	if w.LoRATokens > 0 && l.LoRA.Backend != BackendNone {
		ms *= 1 + float64(l.LoRA.PrefillFactor*float64(w.LoRATokens)/float64(w.Tokens))
	}
	if w.FirstExtend {
		ms += l.Prefill.FirstExtendMs
	}
	return max(tick.FromMilliseconds(ms), 1)
}

// Mixed is the length of a step of scheduler vllm that takes prompt tokens
// beside the next tokens of batch requests, loras of them with an adapter of at
// most maxRank, with ctx KV tokens: that of the prefill, whose weights are read
// once for all, and what the requests add to a decode step.
func (c *Costs) Mixed(w PrefillWork, batch, loras int64, maxRank int, ctx int64) tick.Ticks {
	t := c.Prefill(w)
	if batch > 0 {
		t += c.DecodeFixed(batch, loras, maxRank) - c.decodeBase + c.PerKVToken*tick.Ticks(ctx)
	}
	return max(t, 1)
}

// Rank resolves a rank that the workload may not have stated.
func (c *Costs) Rank(rank int) int {
	if rank > 0 {
		return rank
	}
	return c.p.Adapters.DefaultRank
}

// Bytes is the size of an adapter.
func (c *Costs) Bytes(rank int) float64 {
	return c.p.Adapters.BytesPerRank * float64(c.Rank(rank))
}

// Load is the time to bring an adapter of the given rank from a tier to a GPU
// slot.
func (c *Costs) Load(rank int, from router.Tier) tick.Ticks {
	a, bytes := &c.p.Adapters, c.Bytes(rank)
	ms := 0.0
	switch from {
	case router.GPU:
		return 0
	case router.Remote:
		ms = a.RemoteToHost.ms(bytes)
	case router.Disk:
		ms = a.DiskToHost.ms(bytes)
	}
	return tick.FromMilliseconds(ms + a.HostToGPU.ms(bytes))
}

// Copy is the time to send bytes of KV cache to another worker.
func (c *Costs) Copy(bytes float64) tick.Ticks {
	return tick.FromMilliseconds(c.p.Adapters.Network.ms(bytes))
}

func (s Stage) ms(bytes float64) float64 {
	return s.LatencyMs + float64(bytes/(s.GBPerS*1e9)*1000)
}

// Model answers a router's questions about costs in seconds.
type Model struct{ Costs *Costs }

var _ router.CostModel = Model{}

// DecodeStep implements router.CostModel; every request is taken to use an adapter.
func (m Model) DecodeStep(running int, kvTokens int64, maxRank int) float64 {
	loras := int64(running)
	if maxRank <= 0 {
		loras = 0
	}
	return (m.Costs.DecodeFixed(int64(running), loras, maxRank) + m.Costs.PerKVToken*tick.Ticks(kvTokens)).Seconds()
}

// Prefill implements router.CostModel: full chunks, then the rest.
func (m Model) Prefill(tokens int64) float64 {
	chunk := int64(m.Costs.p.Engine.ChunkedPrefillSize)
	if chunk <= 0 {
		chunk = int64(m.Costs.p.Engine.MaxPrefillTokens)
	}
	step := func(n int64) float64 {
		if n == 0 {
			return 0
		}
		w := PrefillWork{}
		w.Add(n, 0, true)
		return m.Costs.Prefill(w).Seconds()
	}
	return float64(tokens/chunk)*step(chunk) + step(tokens%chunk)
}

// AdapterLoad implements router.CostModel.
func (m Model) AdapterLoad(rank int, from router.Tier) float64 {
	return m.Costs.Load(rank, from).Seconds()
}
