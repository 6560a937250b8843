package profile

import (
	"math"

	"lorasim/router"
	"lorasim/sim/tick"
)

// Costs is a profile compiled to integer step costs. All methods are pure.
type Costs struct {
	p        *Profile
	adapters *adapterCosts // nil: no term of AdapterLaw
	experts  []tick.Ticks  // see Experts.reads; nil: none
	roofline bool          // backend roofline or mbgmv
	longer   bool          // law roofline
	host     tick.Ticks    // of a step, while the GPU waits

	decodeBase, perRequest, unmerged tick.Ticks
	csgmv, perToken, perTokenCtx     float64 // ms
	// chunk is the longest chunk of a prompt, chunkTime what a step with one
	// takes, s.
	chunk     int64
	chunkTime float64

	PerKVToken tick.Ticks // of one KV token in one decode step
	Switch     tick.Ticks // to merge another adapter into the weights, or to take the merged one out
	Overhead   tick.Ticks // outside the engine, on every token of a request
	// FrontEnd is what a request occupies the front end for, FirstUse what the
	// first one of each adapter does on top.
	FrontEnd, FirstUse tick.Ticks
}

// Compile converts a checked profile.
func (p *Profile) Compile() *Costs {
	l := &p.Latency
	c := &Costs{
		p: p, csgmv: l.LoRA.CSGMVUs / 1000, perToken: l.Prefill.PerTokenUs / 1000,
		perTokenCtx: l.Prefill.PerTokenCtxNs / 1e6,
		decodeBase:  tick.FromMilliseconds(l.Decode.BaseMs),
		perRequest:  tick.FromMilliseconds(l.Decode.PerRequestMs),
		PerKVToken:  tick.FromMilliseconds(l.Decode.PerKVTokenUs / 1000),
		Switch:      tick.FromMilliseconds(l.LoRA.SwitchMs),
		unmerged:    tick.FromMilliseconds(l.LoRA.UnmergedMs),
		Overhead:    tick.FromMilliseconds(l.RequestOverheadMs),
		FrontEnd:    tick.FromMilliseconds(l.FrontEnd.PerRequestMs),
		FirstUse:    tick.FromMilliseconds(l.FrontEnd.FirstUseMs),
	}
	switch {
	case l.Law == LawAdapters:
		c.adapters = l.Adapters.compile(&p.Engine, l.LoRA.Backend)
		c.PerKVToken = tick.FromMilliseconds(l.Adapters.PerKVTokenUs / 1000)
	case l.Law == LawRoofline:
		if c.longer = true; !p.Engine.AsyncScheduling && !p.Engine.OverlapSchedule { // else the GPU works meanwhile
			c.host = tick.FromMilliseconds(l.HostMs)
		}
		if l.adapterKernels() {
			c.adapters = l.Adapters.compile(&p.Engine, l.LoRA.Backend)
		}
	}
	c.experts = l.Experts.reads()
	c.roofline = l.LoRA.Backend == BackendRoofline || l.LoRA.Backend == BackendMBGMV
	if c.chunk = int64(p.Engine.ChunkedPrefillSize); c.chunk <= 0 {
		c.chunk = int64(p.Engine.MaxPrefillTokens)
	}
	c.chunkTime = c.prompt(c.chunk)
	return c
}

// Profile returns the profile the costs were compiled from.
func (c *Costs) Profile() *Profile { return c.p }

// StepWork is what one step of an engine computes.
type StepWork struct {
	Prompts     int64   // prompts worked on
	Tokens      int64   // their tokens in the step; none: a decode step
	LoRATokens  int64   // tokens of requests with an adapter
	TokenCtx    float64 // sum over its prompts of tokens * context before and within the chunk
	FirstWave   bool    // before the worker's first decode step
	Extends     bool    // goes on with a prompt that is partly prefilled
	FirstExtend bool    // the worker's first step that does

	Batch   int64 // running requests that get their next token
	KV      int64 // their tokens in the KV cache
	LoRAs   int64 // of them, requests with an adapter
	MaxRank int   // largest rank among those

	Adapters int64 // distinct adapters in the step, of prompts too
	Ranks    int64 // sum of their ranks
	// RankTokens is the sum, over the tokens of the step, of the rank of their adapter.
	RankTokens int64
	// RequestRanks is the part of RankTokens that is of running requests.
	RequestRanks int64
	Squares      int64 // sum of the squares of the adapters' running requests
	Waiting      int64 // requests left in the queue
}

// Step is the length of a step, at least one tick. Steps that differ in KV
// alone differ by PerKVToken for each token: what leaps over decode steps rest
// on.
func (c *Costs) Step(w *StepWork) tick.Ticks {
	switch {
	case c.longer:
		return max(c.longerStep(w), 1) + c.PerKVToken*tick.Ticks(w.KV)
	case c.adapters != nil:
		return max(c.adapters.step(w), 1) + c.PerKVToken*tick.Ticks(w.KV)
	case w.Tokens == 0:
		t := c.decodeFixed(w)
		if c.roofline {
			t += c.adapterTime(w)
		}
		if c.experts != nil {
			t += max(c.expertRead(w.Batch)-c.perRequest*tick.Ticks(w.Batch), 0)
		}
		return t + c.PerKVToken*tick.Ticks(w.KV)
	case w.Batch == 0:
		return c.prefill(w) + c.adapterTime(w)
	}
	// The weights are read once for the prompts and for the running requests,
	// which add what they add to a decode step.
	t := c.prefill(w) + c.decodeFixed(w) - c.decodeBase + c.adapterTime(w) + c.PerKVToken*tick.Ticks(w.KV)
	return max(t, 1)
}

// longerStep is the length of a step under [LawRoofline] but for its KV tokens.
func (c *Costs) longerStep(w *StepWork) tick.Ticks {
	l := &c.p.Latency
	read := c.decodeBase + c.perRequest*tick.Ticks(w.Batch)
	if c.experts != nil {
		read += c.expertRead(w.Tokens + w.Batch)
	}
	compute, beside := c.perToken*float64(w.Tokens+w.Batch), 0.0
	if w.Tokens > 0 {
		beside = l.Prefill.MixedMs + float64(l.Prefill.MixedPerRequestMs*float64(w.Batch)) +
			float64(c.perTokenCtx*w.TokenCtx)
		if w.LoRATokens > 0 && l.LoRA.Backend != BackendNone {
			compute += float64(c.perToken * l.LoRA.PrefillFactor * float64(w.LoRATokens))
		}
	}
	t := c.host + max(read, tick.FromMilliseconds(compute)) + tick.FromMilliseconds(beside) + c.loraDecode(w)
	if c.adapters != nil {
		return t + c.adapters.lora(w) + c.adapters.perWaiting*tick.Ticks(w.Waiting)
	}
	return t + c.adapterTime(w)
}

// adapterTime is what adapters add to a step with backend roofline or mbgmv.
func (c *Costs) adapterTime(w *StepWork) tick.Ticks {
	if !c.roofline || w.Ranks == 0 {
		return 0
	}
	l := &c.p.Latency.LoRA
	if l.Backend == BackendMBGMV {
		prompts := l.TokenRankNs / 1e6 * float64(w.RankTokens-w.RequestRanks)
		if w.Batch == 0 {
			return tick.FromMilliseconds(l.LaunchMs + float64(prompts))
		}
		read, requests := l.RankUs/1000*float64(w.Ranks), l.RequestRankUs/1000*float64(w.RequestRanks)
		return tick.FromMilliseconds(l.LaunchMs + float64(prompts) + float64(read) + float64(requests))
	}
	read, compute := l.RankUs/1000*float64(w.Ranks), l.TokenRankNs/1e6*float64(w.RankTokens)
	return tick.FromMilliseconds(l.LaunchMs + float64(read) + float64(compute))
}

// MsOf is the time to read the experts that a step of n tokens is expected to use.
func (x *Experts) MsOf(n float64) float64 {
	if x.ReadMs == 0 {
		return 0
	}
	return x.ReadMs * (1 - math.Pow(1-float64(x.TopK)/float64(x.Count), n))
}

// reads tabulates by the tokens of a step the time to read the experts that they
// use, until more tokens make no difference of a thousandth.
func (x *Experts) reads() (table []tick.Ticks) {
	if x.ReadMs == 0 {
		return nil
	}
	unused, miss := 1.0, 1-float64(x.TopK)/float64(x.Count)
	for unused > 1e-3 && len(table) < 1<<16 {
		table = append(table, tick.FromMilliseconds(x.ReadMs*(1-unused)))
		unused *= miss
	}
	return append(table, tick.FromMilliseconds(x.ReadMs))
}

// expertRead is the time to read the experts that n tokens use.
func (c *Costs) expertRead(n int64) tick.Ticks {
	return c.experts[min(n, int64(len(c.experts)-1))]
}

// ScansQueue says whether steps take longer the more requests wait.
func (c *Costs) ScansQueue() bool { return c.adapters != nil && c.adapters.perWaiting > 0 }

// CountsAdapters says whether the length of a step depends on
// StepWork.Adapters, Ranks and RankTokens.
func (c *Costs) CountsAdapters() bool {
	return c.adapters != nil || c.roofline
}

// decodeFixed is the part of a decode step that does not depend on the KV
// tokens.
func (c *Costs) decodeFixed(w *StepWork) tick.Ticks {
	return max(c.decodeBase+c.perRequest*tick.Ticks(w.Batch)+c.loraDecode(w), 1)
}

// loraDecode is what the running requests' adapters add to a step with a backend
// whose kernels are timed in decode steps alone.
func (c *Costs) loraDecode(w *StepWork) tick.Ticks {
	if w.LoRAs == 0 {
		return 0
	}
	l := &c.p.Latency.LoRA
	switch l.Backend {
	case BackendCSGMV:
		return tick.FromMilliseconds(c.csgmv * float64(w.MaxRank))
	case BackendTriton:
		return tick.FromMilliseconds(l.TritonUs / 1000 * float64(w.LoRAs) * float64(w.MaxRank))
	case BackendDLoRA:
		return c.unmerged
	}
	return 0
}

// Add counts a chunk of n tokens after ctx tokens of the same request. Within
// the chunk a token sees on average half of the chunk.
func (w *StepWork) Add(n, ctx int64, adapter bool) {
	w.Prompts++
	w.Tokens += n
	if adapter {
		w.LoRATokens += n
	}
	w.Extends = w.Extends || ctx > 0
	w.TokenCtx += float64(n) * (float64(ctx) + float64(n)/2)
}

// prefill is the length of a prefill step.
func (c *Costs) prefill(w *StepWork) tick.Ticks {
	l := &c.p.Latency
	compute := c.perToken * float64(w.Tokens)
	if c.experts != nil {
		compute = max(compute, c.expertRead(w.Tokens+w.Batch).Milliseconds())
	}
	ms := l.Prefill.BaseMs + compute
	ms += float64(c.perTokenCtx * w.TokenCtx)
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

// DecodeStep implements router.CostModel; every request is taken to use an
// adapter of its own, as far as there are slots.
func (m Model) DecodeStep(running int, kvTokens int64, maxRank int) float64 {
	loras := int64(running)
	if maxRank <= 0 {
		loras = 0
	}
	adapters, rank := min(loras, int64(m.Costs.p.Engine.Slots(running))), int64(max(maxRank, 0))
	return m.Costs.Step(&StepWork{
		Batch: int64(running), KV: kvTokens, LoRAs: loras, MaxRank: maxRank,
		Adapters: adapters, Squares: loras * loras / max(adapters, 1),
		Ranks: adapters * rank, RankTokens: loras * rank, RequestRanks: loras * rank,
	}).Seconds()
}

// Prefill implements router.CostModel: full chunks, then the rest.
func (m Model) Prefill(tokens int64) float64 {
	c := m.Costs
	if tokens < c.chunk {
		return c.prompt(tokens)
	}
	return float64(tokens/c.chunk)*c.chunkTime + c.prompt(tokens%c.chunk)
}

// prompt is the time, s, of a step that computes n tokens of one prompt.
func (c *Costs) prompt(n int64) float64 {
	if n == 0 {
		return 0
	}
	rank := int64(c.p.Adapters.DefaultRank)
	w := StepWork{Adapters: 1, Ranks: rank, RankTokens: n * rank}
	w.Add(n, 0, true)
	return c.Step(&w).Seconds()
}

func (m Model) Copy(bytes float64) float64 { return m.Costs.Copy(bytes).Seconds() }

func (m Model) AdapterLoad(rank int, from router.Tier) float64 {
	return m.Costs.Load(rank, from).Seconds()
}
