package profile

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"sync"

	"lorasim/sim/tick"
)

// KernelTimes is the time of an engine's LoRA kernels in a step, as measured by the GPU kit:
//
//	base + per_adapter*A + per_tile*T + per_token*M + per_grid_tile*G
//
// with A distinct adapters in the step, M tokens of their requests, and T tiles of their tokens: each adapter's tokens,
// divided by the height of a tile and rounded up. A kernel starts a grid of G tiles, of which T compute and the others
// end at once. The coefficients depend on the kind of the step, and on the rank of the slots (punica) or the mean rank
// of the step's tokens (csgmv and triton). See [kernelLaws].
type KernelTimes struct {
	Of     string  `yaml:"of,omitempty" is:"punica|csgmv|triton|"` // the backend whose kernels were measured
	Factor float64 `yaml:"factor,omitempty" is:">=0 <1e3"`         // multiplies the times; 0: 1
	// BySteps has the coefficients of each kind of steps.
	BySteps []KernelSteps `yaml:"by_steps,omitempty"`
}

// KernelSteps holds the coefficients of [KernelTimes] for a kind of steps, by rank. Other ranks are interpolated
// linearly, or extrapolated above the largest.
type KernelSteps struct {
	Steps         string    `yaml:"steps"` // kind of steps
	Ranks         []int     `yaml:"ranks,flow"`
	BaseUs        []float64 `yaml:"base_us,flow"`
	PerAdapterUs  []float64 `yaml:"per_adapter_us,flow"`
	PerTileUs     []float64 `yaml:"per_tile_us,flow"`
	PerTokenUs    []float64 `yaml:"per_token_us,flow"`
	PerGridTileUs []float64 `yaml:"per_grid_tile_us,flow"`
}

// terms returns pointers to the coefficients in the order of the formula.
func (k *KernelSteps) terms() [kernelTerms]*[]float64 {
	return [...]*[]float64{&k.BaseUs, &k.PerAdapterUs, &k.PerTileUs, &k.PerTokenUs, &k.PerGridTileUs}
}

// kernelTerms is the number of coefficients, see [KernelSteps.terms].
const kernelTerms = 5

// Add adds the coefficients of a rank, in the order of the formula.
func (k *KernelSteps) Add(rank int, us [kernelTerms]float64) {
	k.Ranks = append(k.Ranks, rank)
	for j, term := range k.terms() {
		*term = append(*term, us[j])
	}
}

// A kernelKind is a kind of steps for which a backend's kernels have coefficients of their own.
type kernelKind struct {
	name   string
	height int64 // tokens of a tile
	// growBase and grow are the parts of base and of the other terms that are proportional to the sizes of a layer's
	// matrices. The rest is the same for every layer: starts of kernels, and blocks of a fixed number.
	growBase, grow float64
}

// Limits of the tokens of a step, between kinds.
const (
	// vLLM's shrink kernel divides the sum over the inputs among 64 blocks below 128 tokens, and among 8 from there
	// on (get_lora_op_configs in lora/ops/triton_ops/utils.py). Its blocks have 32 tokens, those of expand 64.
	vllmSplits = 128
	// vLLM's largest CUDA graph, and sglang's on large GPUs.
	largestGraph = 512
	// csgmvSegments is the number of segments of 16 tokens in a CUDA graph of sglang's csgmv. A step of more tokens has
	// twice as many. A graph has one segment for each request of the largest captured batch.
	csgmvSegments = 256
)

// Kinds of steps in profiles.
const (
	stepsBelow128, stepsTo512, stepsAbove512 = "below-128", "to-512", "above-512"
	stepsDecode, stepsPrompts                = "decode", "prompts"
)

// kernelLaws has the kinds of steps of each backend. sglang's kernels run in CUDA graphs in steps without prompts only,
// where the grid does not depend on the step.
var kernelLaws = []struct {
	backend string
	kinds   []kernelKind
}{
	{BackendPunica, []kernelKind{{stepsBelow128, 32, 0, 0.6}, {stepsTo512, 64, 1, 1}, {stepsAbove512, 64, 1, 1}}},
	{BackendCSGMV, []kernelKind{{stepsDecode, 16, 0.75, 1}, {stepsPrompts, 16, 1, 1}}},
	{BackendTriton, []kernelKind{{stepsDecode, 16, 0.6, 1}, {stepsPrompts, 16, 1, 1}}},
}

// kernelKinds returns the kinds of steps of a backend; nil: its kernels are not measured.
func kernelKinds(backend string) []kernelKind {
	for _, l := range kernelLaws {
		if l.backend == backend {
			return l.kinds
		}
	}
	return nil
}

// kernelKindOf returns the kind of a step as an index of [kernelKinds]. tokens are all of the step.
func kernelKindOf(backend string, tokens int64, prompts bool) int {
	switch {
	case backend == BackendPunica && tokens < vllmSplits:
		return 0
	case backend == BackendPunica && tokens <= largestGraph:
		return 1
	case backend == BackendPunica:
		return 2
	case prompts || tokens > largestGraph:
		return 1
	}
	return 0
}

// gridOf returns the tiles of the grid that a kernel starts in a step of a kind with tiles of the given height.
func gridOf(backend string, kind int, height, tokens, slots int64) int64 {
	switch {
	case backend == BackendPunica:
		return (slots + 1) * tilesOf(tokens, height)
	case kind > 0:
		return 0
	case backend == BackendTriton:
		return slots * tilesOf(tokens, height)
	}
	return csgmvSegments * tilesOf(tokens, csgmvSegments)
}

// tilesOf returns the number of tiles of the given height for n tokens.
func tilesOf(n, height int64) int64 { return (n + height - 1) / height }

// given reports whether there are times.
func (k *KernelTimes) given() bool { return len(k.BySteps) > 0 }

// steps returns the coefficients of a kind of steps, or nil.
func (k *KernelTimes) steps(kind string) *KernelSteps {
	for i := range k.BySteps {
		if k.BySteps[i].Steps == kind {
			return &k.BySteps[i]
		}
	}
	return nil
}

// check returns an error if the table is invalid.
func (k *KernelTimes) check() error {
	if !k.given() {
		return nil
	}
	kinds := KernelKinds(k.Of)
	if kinds == nil {
		return fmt.Errorf("latency.lora.kernel_times.of is %q, expected %s, %s or %s", k.Of, BackendPunica,
			BackendCSGMV, BackendTriton)
	}
	for _, kind := range kinds {
		if k.steps(kind) == nil {
			return fmt.Errorf("latency.lora.kernel_times has no steps %s", kind)
		}
	}
	for i := range k.BySteps {
		s := &k.BySteps[i]
		if !slices.Contains(kinds, s.Steps) || k.steps(s.Steps) != s {
			return fmt.Errorf("latency.lora.kernel_times: steps %q, expected each of: %s", s.Steps,
				strings.Join(kinds, ", "))
		}
		if err := s.check(); err != nil {
			return fmt.Errorf("latency.lora.kernel_times: steps %s: %w", s.Steps, err)
		}
	}
	return nil
}

func (k *KernelSteps) check() error {
	last := 0
	for _, rank := range k.Ranks {
		if rank <= last {
			return fmt.Errorf("ranks %v, expected numbers >= 1 in ascending order", k.Ranks)
		}
		last = rank
	}
	if last == 0 {
		return errors.New("expected at least one rank")
	}
	for _, term := range k.terms() {
		if len(*term) != len(k.Ranks) {
			return fmt.Errorf("%v, expected as many numbers as ranks (%d)", *term, len(k.Ranks))
		}
		for _, us := range *term {
			if !(us >= 0 && us < 1e9) {
				return fmt.Errorf("%v, expected numbers in [0, 10^9)", us)
			}
		}
	}
	return nil
}

// At returns the coefficients of a rank in the order of the formula. Below the least rank they are those of the least,
// since tiles of a matrix product have at least 16 columns.
func (k *KernelSteps) At(rank int) (us [kernelTerms]float64) {
	i, found := slices.BinarySearch(k.Ranks, rank)
	last := len(k.Ranks) - 1
	for j, term := range k.terms() {
		x := *term
		switch {
		case found || i == 0:
			us[j] = x[i]
		case last == 0:
			us[j] = x[0] // no rank to extrapolate from
		default:
			b := min(i, last)
			f := float64(rank-k.Ranks[b-1]) / float64(k.Ranks[b]-k.Ranks[b-1])
			us[j] = max(between(x[b-1], x[b], f), 0)
		}
	}
	return us
}

// kernelCosts is [KernelTimes] in ticks, for the slots of a profile.
type kernelCosts struct {
	backend string
	kinds   []kindCosts
	slots   int64
	// active and every are values of [LoRA.Kernels].
	active, every bool
}

// kindCosts is the coefficients of a kind of step.
type kindCosts struct {
	height int64 // tokens of a tile
	tiles  int   // index of StepWork.Tiles for that height
	byRank [][kernelTerms]tick.Ticks
}

func (k *KernelTimes) compile(e *Engine, lora *LoRA) *kernelCosts {
	c := &kernelCosts{backend: k.Of, slots: int64(e.MaxLorasPerBatch), active: lora.Kernels == kernelsActive,
		every: lora.Kernels == kernelsEveryStep}
	ranks := []int{e.MaxLoraRank} // the kernels compute the padded matrices
	if k.Of != BackendPunica {
		ranks = ranks[:0]
		for rank := range e.MaxLoraRank + 1 {
			ranks = append(ranks, rank)
		}
	}
	heights := tileHeights(k.Of)
	for _, kind := range kernelKinds(k.Of) {
		costs := kindCosts{height: kind.height, tiles: slices.Index(heights[:], kind.height)}
		steps := k.steps(kind.name)
		for _, rank := range ranks {
			var ticks [kernelTerms]tick.Ticks
			for j, us := range steps.At(rank) {
				ticks[j] = tick.FromMilliseconds(us / 1000 * cmp.Or(k.Factor, 1))
			}
			costs.byRank = append(costs.byRank, ticks)
		}
		c.kinds = append(c.kinds, costs)
	}
	return c
}

// tileHeights returns the heights of the tiles of a backend, tokens: two, which may be equal.
func tileHeights(backend string) [2]int64 {
	kinds := kernelKinds(backend)
	return [2]int64{kinds[0].height, kinds[1].height}
}

// step returns the time of the kernels in a step.
func (c *kernelCosts) step(w *StepWork) tick.Ticks {
	if w.Adapters == 0 && !c.every {
		return 0
	}
	slots := c.slots
	if c.active {
		slots = min(int64(1)<<bits.Len64(uint64(w.Adapters-1)), slots)
	}
	tokens := w.Batch + w.Tokens
	kind := kernelKindOf(c.backend, tokens, w.Tokens > 0)
	k, m, rank := &c.kinds[kind], w.LoRAs+w.LoRATokens, int64(0)
	grid := gridOf(c.backend, kind, k.height, tokens, slots)
	if len(k.byRank) > 1 && m > 0 {
		rank = min((w.RankTokens+m/2)/m, int64(len(k.byRank)-1))
	}
	t := &k.byRank[rank]
	return t[0] + t[1]*tick.Ticks(w.Adapters) + t[2]*tick.Ticks(w.Tiles[k.tiles]) + t[3]*tick.Ticks(m) +
		t[4]*tick.Ticks(grid)
}

// KernelMs returns the time of measured LoRA kernels in a step, ms, with its tokens evenly divided among its adapters.
func (c *Costs) KernelMs(w *StepWork) float64 {
	if c.kernels == nil {
		return 0
	}
	even := *w
	even.Tiles = c.tiles(w.LoRAs+w.LoRATokens, w.Adapters)
	return c.kernels.step(&even).Milliseconds()
}

// TileHeights returns the heights of the tiles that [StepWork.Tiles] counts, tokens; 0: it counts none.
func (c *Costs) TileHeights() (heights [2]int64) {
	if c.kernels != nil {
		heights = tileHeights(c.kernels.backend)
	}
	return heights
}

// Tiles are tiles of the tokens of a step's adapters, for two heights of tiles; see [Costs.TileHeights].
type Tiles [2]int64

// Add adds n tokens of an adapter, which had been there with the given number of tokens.
func (t *Tiles) Add(heights [2]int64, had, n int64) {
	for i, height := range heights {
		if height > 0 {
			t[i] += tilesOf(had+n, height) - tilesOf(had, height)
		}
	}
}

// KernelStep is a step of which the GPU kit measures the kernels.
type KernelStep struct {
	Tokens  []int64 // of each adapter
	Prompts bool
	Slots   int64
}

// KernelTerms returns the kind of a step for a backend, and the amounts of its coefficients in the order of the formula
// of [KernelTimes].
func KernelTerms(backend string, s KernelStep) (kind string, amounts [5]float64) {
	tokens := int64(0)
	for _, n := range s.Tokens {
		tokens += n
	}
	i := kernelKindOf(backend, tokens, s.Prompts)
	k, tiles := kernelKinds(backend)[i], int64(0)
	grid := gridOf(backend, i, k.height, tokens, s.Slots)
	for _, n := range s.Tokens {
		tiles += tilesOf(n, k.height)
	}
	return k.name, [...]float64{1, float64(len(s.Tokens)), float64(tiles), float64(tokens), float64(grid)}
}

// KernelKinds returns the kinds of steps of a backend, of which the last has prompts; nil: its kernels are not
// measured.
func KernelKinds(backend string) (names []string) {
	for _, k := range kernelKinds(backend) {
		names = append(names, k.name)
	}
	return names
}

// kernelSize is the size of an adapter's matrices in a layer of Llama-3.1-8B, per rank, to which [measuredKernels]
// refers: inputs and outputs of all seven matrices.
const kernelSize = 81920

// measuredKernels are the times of kernels in one layer of size kernelSize. They were measured on an H100; those of an
// H200 are the same within 1 % in the median (docs/lora-costs.md), since blocks of threads bound the kernels, not the
// memory.
var measuredKernels = sync.OnceValue(func() []KernelTimes { return part[[]KernelTimes]("lorakernels.yaml") })

// kernelTimes returns the times of a backend's kernels in all layers of a model on one of tp GPUs.
func kernelTimes(backend string, m *Architecture, tp float64) KernelTimes {
	k := KernelTimes{Of: backend, Factor: 1}
	for _, measured := range measuredKernels() {
		if measured.Of != backend {
			continue
		}
		for _, layer := range measured.BySteps {
			weights := m.kernelWeights(backend, layer.Steps, tp)
			all := KernelSteps{Steps: layer.Steps}
			for _, rank := range layer.Ranks {
				us := layer.At(rank)
				for j := range us {
					us[j] = Round4(us[j] * weights[j])
				}
				all.Add(rank, us)
			}
			k.BySteps = append(k.BySteps, all)
		}
	}
	return k
}

// KernelWeights returns the factors between the coefficients of a model on each of a number of GPUs and those of one
// layer of [measuredKernels]. model is a text that begins with the model's name; ok is false if the model is unknown.
func KernelWeights(backend, steps, model string, gpus int) (weights [5]float64, ok bool) {
	m := architectureOf(model)
	if m == nil {
		return weights, false
	}
	return m.kernelWeights(backend, steps, float64(gpus)), true
}

func (m *Architecture) kernelWeights(backend, steps string, tp float64) (weights [kernelTerms]float64) {
	for _, kind := range kernelKinds(backend) {
		if kind.name == steps {
			for j := range weights {
				weights[j] = m.kernelLayers(tp, kind.grow)
			}
			weights[0] = m.kernelLayers(tp, kind.growBase)
		}
	}
	return weights
}

// kernelLayers returns the number of layers. Each is weighted by its size relative to kernelSize for the part grow, and
// by its number of products for the rest. In layers with experts, the feed-forward network is no target of adapters.
func (m *Architecture) kernelLayers(tp, grow float64) float64 {
	layer := func(ffn float64) float64 {
		products, size := m.products(tp, ffn), 0.0
		for i, p := range products {
			inputs := [...]float64{3, 1, 2, 1}[i] // queries, keys and values have matrices of their own, as gate and up
			size += inputs*p.k + p.n
		}
		return (1-grow)*float64(len(products))/4 + grow*size/kernelSize
	}
	moe := m.moeLayers()
	return (m.Layers-moe)*layer(m.FFN) + moe*layer(0)
}
