package profile

import (
	"math"

	"lorasim/router"
	"lorasim/sim/tick"
)

// Costs is a profile compiled to integer step costs. Its methods do not change it, except that answers to routers are
// kept. It is safe for concurrent use.
type Costs struct {
	p        *Profile
	adapters *adapterCosts // nil: no term of AdapterLaw
	kernels  *kernelCosts  // nil: no KernelTimes
	experts  []tick.Ticks  // see Experts.reads; nil: none
	gathers  bool          // backend mbgmv
	longer   bool          // law roofline
	// step is the time of a step besides reading and computing, and each that of a running request in it.
	step, each tick.Ticks

	decodeBase, perRequest, unmerged tick.Ticks
	csgmv, perToken, perTokenCtx     float64 // ms
	// chunk is the longest chunk of a prompt, tokens, and chunkTime the time of a step with one, s.
	chunk     int64
	chunkTime float64

	PerKVToken tick.Ticks // time of one KV token in one decode step
	Switch     tick.Ticks // time to merge an adapter into the weights, or to unmerge it
	Overhead   tick.Ticks // time outside the engine, added to every token of a request
	// FrontEnd is the time that a request occupies the front end. FirstUse is the additional time of the
	// first request of each adapter.
	FrontEnd, FirstUse tick.Ticks

	asked asked
}

// Compile converts the profile to integer step costs. The profile must have passed [Profile.Check].
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
		c.adapters = l.Adapters.compile(&p.Engine, &l.LoRA)
		c.PerKVToken = tick.FromMilliseconds(l.Adapters.PerKVTokenUs / 1000)
	case l.Law == LawRoofline:
		c.longer, c.step, c.each = true, tick.FromMilliseconds(l.StepMs), tick.FromMilliseconds(l.StepPerRequestMs)
		if !p.Engine.AsyncScheduling && !p.Engine.OverlapSchedule { // else the GPU works meanwhile
			c.step += tick.FromMilliseconds(l.HostMs)
			c.each += tick.FromMilliseconds(l.HostPerRequestMs)
		}
		if l.adapterKernels() {
			c.adapters = l.Adapters.compile(&p.Engine, &l.LoRA)
		}
	}
	if l.LoRA.Measured() {
		c.kernels = l.LoRA.KernelTimes.compile(&p.Engine, &l.LoRA)
	}
	c.experts = l.Experts.reads()
	c.gathers = l.LoRA.Backend == BackendMBGMV
	if c.chunk = int64(p.Engine.ChunkedPrefillSize); c.chunk <= 0 {
		c.chunk = int64(p.Engine.MaxPrefillTokens)
	}
	c.chunkTime = c.prompt(c.chunk)
	return c
}

// Profile returns the profile that the costs were compiled from.
func (c *Costs) Profile() *Profile { return c.p }

// StepWork is the work of one step of an engine.
type StepWork struct {
	Prompts     int64   // prompts of which the step computes a chunk
	Tokens      int64   // their tokens in the step; 0: a decode step
	LoRATokens  int64   // tokens of requests with an adapter
	TokenCtx    float64 // sum over the chunks of tokens * (context before + half the chunk)
	FirstWave   bool    // the step comes before the worker's first decode step
	Extends     bool    // it continues a partly prefilled prompt
	FirstExtend bool    // it is the worker's first such step

	Batch   int64 // running requests that get their next token in the step
	KV      int64 // their tokens in the KV cache
	LoRAs   int64 // those with an adapter
	MaxRank int   // largest rank of their adapters

	Adapters int64 // distinct adapters in the step, including those of prompts
	Ranks    int64 // sum of their ranks
	// RankTokens is the sum, over the tokens of the step, of the rank of their adapter.
	RankTokens int64
	// RequestRanks is the part of RankTokens that belongs to running requests.
	RequestRanks int64
	Squares      int64 // sum over the adapters of the square of their running requests
	Tiles        Tiles // of the tokens of each adapter
	Waiting      int64 // requests left in the queue
}

// Step returns the length of a step, at least one tick. Invariant: steps that differ only in KV differ by
// PerKVToken for each token. Engines rely on it to simulate runs of decode steps as one event.
func (c *Costs) Step(w *StepWork) tick.Ticks {
	switch {
	case c.longer:
		return max(c.longerStep(w), 1) + c.PerKVToken*tick.Ticks(w.KV)
	case c.adapters != nil:
		return max(c.adapters.step(w), 1) + c.PerKVToken*tick.Ticks(w.KV)
	case w.Tokens == 0:
		t := c.decodeFixed(w) + c.adapterTime(w)
		if c.experts != nil {
			t += max(c.expertRead(w.Batch)-c.perRequest*tick.Ticks(w.Batch), 0)
		}
		return t + c.PerKVToken*tick.Ticks(w.KV)
	case w.Batch == 0:
		return c.prefill(w) + c.adapterTime(w)
	}
	// The weights are read once for the prompts and for the running requests,
	// which add the same time as to a decode step.
	t := c.prefill(w) + c.decodeFixed(w) - c.decodeBase + c.adapterTime(w) + c.PerKVToken*tick.Ticks(w.KV)
	return max(t, 1)
}

// longerStep returns the length of a step under [LawRoofline], without the term of its KV tokens.
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
	if len(l.AllReduce.Tokens) > 0 {
		beside += l.AllReduce.of(w.Tokens + w.Batch)
	}
	t := c.step + c.each*tick.Ticks(w.Batch) + max(read, tick.FromMilliseconds(compute)) +
		tick.FromMilliseconds(beside) + c.loraDecode(w)
	if c.adapters != nil {
		return t + c.adapters.lora(w) + c.adapters.perWaiting*tick.Ticks(w.Waiting)
	}
	return t + c.adapterTime(w)
}

// adapterTime returns the time that adapters add to a step with measured kernels, or with backend mbgmv.
func (c *Costs) adapterTime(w *StepWork) tick.Ticks {
	l := &c.p.Latency.LoRA
	switch {
	case c.kernels != nil:
		return c.kernels.step(w)
	case !c.gathers || w.Ranks == 0:
		return 0
	}
	prompts := l.TokenRankNs / 1e6 * float64(w.RankTokens-w.RequestRanks)
	if w.Batch == 0 {
		return tick.FromMilliseconds(l.LaunchMs + float64(prompts))
	}
	read, requests := l.RankUs/1000*float64(w.Ranks), l.RequestRankUs/1000*float64(w.RequestRanks)
	return tick.FromMilliseconds(l.LaunchMs + float64(prompts) + float64(read) + float64(requests))
}

// MsOf returns the time in ms to read the experts that a step of n tokens uses on average.
func (x *Experts) MsOf(n float64) float64 {
	if x.ReadMs == 0 {
		return 0
	}
	return x.ReadMs * (1 - math.Pow(1-float64(x.TopK)/float64(x.Count), n))
}

// reads tabulates, by the tokens of a step, the time to read the experts that they use. The table ends when
// fewer than a thousandth of the experts is unused.
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

// expertRead returns the time to read the experts that n tokens use.
func (c *Costs) expertRead(n int64) tick.Ticks {
	return c.experts[min(n, int64(len(c.experts)-1))]
}

// ScansQueue reports whether the length of a step depends on the number of waiting requests.
func (c *Costs) ScansQueue() bool { return c.adapters != nil && c.adapters.perWaiting > 0 }

// CountsAdapters reports whether the length of a step depends on Adapters, Ranks, RankTokens and Tiles of its
// [StepWork].
func (c *Costs) CountsAdapters() bool {
	return c.adapters != nil || c.gathers || c.kernels != nil
}

// decodeFixed returns the part of a decode step that does not depend on the KV tokens.
func (c *Costs) decodeFixed(w *StepWork) tick.Ticks {
	return max(c.decodeBase+c.perRequest*tick.Ticks(w.Batch)+c.loraDecode(w), 1)
}

// loraDecode returns the time that adapters of running requests add to a step, for backends with a cost only
// in decode steps.
func (c *Costs) loraDecode(w *StepWork) tick.Ticks {
	if w.LoRAs == 0 || c.kernels != nil {
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

// Add adds a chunk of n prompt tokens after ctx tokens of the same request. adapter says whether the request
// uses one. Within the chunk a token attends on average to half of the chunk.
func (w *StepWork) Add(n, ctx int64, adapter bool) {
	w.Prompts++
	w.Tokens += n
	if adapter {
		w.LoRATokens += n
	}
	w.Extends = w.Extends || ctx > 0
	w.TokenCtx += float64(n) * (float64(ctx) + float64(n)/2)
}

// prefill returns the length of a prefill step.
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

// Rank returns rank, or the profile's default rank if rank is 0.
func (c *Costs) Rank(rank int) int {
	if rank > 0 {
		return rank
	}
	return c.p.Adapters.DefaultRank
}

// Bytes returns the size of an adapter of the given rank in bytes. 0: the default rank.
func (c *Costs) Bytes(rank int) float64 {
	return c.p.Adapters.BytesPerRank * float64(c.Rank(rank))
}

// Load returns the time to load an adapter of the given rank from a tier into a GPU slot.
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

// Copy returns the time to send the given number of bytes of KV cache to another worker.
func (c *Costs) Copy(bytes float64) tick.Ticks {
	return tick.FromMilliseconds(c.p.Adapters.Network.ms(bytes))
}

func (s Stage) ms(bytes float64) float64 {
	return s.LatencyMs + float64(bytes/(s.GBPerS*1e9)*1000)
}

// A Model predicts costs for routers, in seconds. It implements [router.CostModel].
type Model struct{ Costs *Costs }

var _ router.CostModel = Model{}

// DecodeStep returns the time of a decode step, s, whose requests use the given number of adapters, at most one each
// and at most the number of slots. maxRank 0: no request uses an adapter.
func (m Model) DecodeStep(running, adapterCount int, kvTokens int64, maxRank int) float64 {
	c := m.Costs
	loras := int64(running)
	if maxRank <= 0 || adapterCount <= 1 && c.p.Latency.LoRA.Backend == BackendDLoRA {
		loras = 0 // dLoRA merges an adapter that is alone into the weights
	}
	adapters := min(loras, int64(adapterCount), int64(c.p.Engine.Slots(running)))
	kept := c.asked.step(running, adapters, maxRank)
	if kept != nil {
		if t := kept.Load(); t != 0 {
			return (tick.Ticks(t) + c.PerKVToken*tick.Ticks(kvTokens)).Seconds()
		}
	}
	rank := int64(max(maxRank, 0))
	t := c.Step(&StepWork{
		Tiles: c.tiles(loras, adapters),
		Batch: int64(running), LoRAs: loras, MaxRank: maxRank,
		Adapters: adapters, Squares: loras * loras / max(adapters, 1),
		Ranks: adapters * rank, RankTokens: loras * rank, RequestRanks: loras * rank,
	})
	if kept != nil {
		kept.Store(int64(t))
	}
	return (t + c.PerKVToken*tick.Ticks(kvTokens)).Seconds()
}

// Prefill returns the time to compute a prompt of the given number of tokens, s, in full chunks and the rest.
func (m Model) Prefill(tokens int64) float64 {
	c := m.Costs
	if tokens < c.chunk {
		return c.asked.prompt(c, tokens)
	}
	return float64(tokens/c.chunk)*c.chunkTime + c.asked.prompt(c, tokens%c.chunk)
}

// tiles returns the tiles of n tokens that are evenly divided among adapters.
func (c *Costs) tiles(n, adapters int64) (t Tiles) {
	for i, height := range c.TileHeights() {
		if height > 0 && adapters > 0 {
			more := n % adapters // adapters with one token more
			t[i] = more*tilesOf(n/adapters+1, height) + (adapters-more)*tilesOf(n/adapters, height)
		}
	}
	return t
}

// prompt returns the time of a step that computes n tokens of one prompt, s.
func (c *Costs) prompt(n int64) float64 {
	if n == 0 {
		return 0
	}
	rank := int64(c.p.Adapters.DefaultRank)
	w := StepWork{Adapters: 1, Ranks: rank, RankTokens: n * rank, Tiles: c.tiles(n, 1)}
	w.Add(n, 0, true)
	return c.Step(&w).Seconds()
}

// Copy returns the time to send the given number of bytes of KV cache to another worker, s.
func (m Model) Copy(bytes float64) float64 { return m.Costs.Copy(bytes).Seconds() }

// AdapterLoad returns the time to load an adapter of the given rank from a tier into a GPU slot, s.
func (m Model) AdapterLoad(rank int, from router.Tier) float64 {
	return m.Costs.asked.load(m.Costs, rank, from)
}
