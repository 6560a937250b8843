package profile

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"lorasim/internal/suggest"
)

// Analytic describes a worker from which [Analytic.Profile] computes a profile.
type Analytic struct {
	Model string // name of an Architecture
	GPU   string // name of a GPU
	TP    int    // GPUs that share the model; 0: the least power of 2 that holds it
	Bits  int    // bits per weight: 16, 8 or 4; 0: as published

	Engine      string  // engine whose times a step has: one of [Engines]
	KVBits      int     // bits per value of the KV cache: 16 or 8; 0: as the engine does
	MemoryShare float64 // share of the GPU's memory that the engine uses
}

// NewAnalytic returns an Analytic for sglang, which uses 0.88 of the GPU's memory.
func NewAnalytic(model, gpu string) Analytic {
	return Analytic{Model: model, GPU: gpu, Engine: SchedulerSGLang, MemoryShare: 0.88}
}

// AnalyticPrefix begins the name of an analytic profile.
const AnalyticPrefix = "analytic:"

// analyticForm is the form of the name of an analytic profile.
const analyticForm = "analytic:MODEL,GPU[,tp=N][,bits=N][,kv=N][,engine=NAME]"

// parseAnalytic parses MODEL,GPU[,tp=N][,bits=N][,kv=N][,engine=NAME].
func parseAnalytic(spec string) (Analytic, error) {
	pieces := strings.Split(spec, ",")
	if len(pieces) < 2 {
		return Analytic{}, fmt.Errorf("expected "+analyticForm+"; models: %s; GPUs: %s",
			strings.Join(names(Architectures(), (*Architecture).name), ", "), strings.Join(names(GPUs(), (*GPU).name),
				", "))
	}
	a := NewAnalytic(strings.TrimSpace(pieces[0]), strings.TrimSpace(pieces[1]))
	for _, piece := range pieces[2:] {
		key, value, _ := strings.Cut(strings.TrimSpace(piece), "=")
		if key == "engine" {
			a.Engine = value
			continue
		}
		to := map[string]*int{"tp": &a.TP, "bits": &a.Bits, "kv": &a.KVBits}[key]
		if to == nil {
			return a, suggest.Unknown("option", key, []string{"tp", "bits", "kv", "engine"})
		}
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 {
			return a, fmt.Errorf("%s is %q, expected a whole number >= 1", key, value)
		}
		*to = n
	}
	return a, nil
}

// Profile computes a profile of [LawRoofline] from the data sheets and kernel speeds of the hardware.
//
//	step_ms                   = starts of all kernels (products, attention, experts) + the engine's time of a step
//	step_per_request_ms, host_ms, host_per_request_ms, mixed_ms = the engine's; see engines.go
//	decode.base_ms            = fixed weights / bandwidth
//	decode.per_request_ms     = inputs and outputs of a token's products, and kernels between them / bandwidth
//	decode.per_kv_token_us    = KV bytes per token / bandwidth
//	prefill.per_token_us      = 2 x active weights without the output layer / FLOP/s, kernels between products, and
//	                            the part of the attention of prompts that is the same for each token
//	prefill.per_token_ctx_ns  = 4 x layers x heads x head size / FLOP/s of 16 bits
//	experts.read_ms           = weights of all experts / bandwidth; see Experts
//	all_reduce                = exchanges of the hidden states; see AllReduce
//	lora                      = measured times of the engine's kernels, by the model's size; see KernelTimes
//
// Every bandwidth and rate is the share of the GPU's that its kernels reach. The model leaves out skewed routing to
// experts. An error says that the model, the GPU or the engine is unknown, that Bits, KVBits or TP is out of range, or
// that the model does not fit.
func (a Analytic) Profile() (*Profile, error) {
	m, err := named("model", a.Model, Architectures(), (*Architecture).name)
	if err != nil {
		return nil, err
	}
	g, err := named("GPU", a.GPU, GPUs(), (*GPU).name)
	if err != nil {
		return nil, err
	}
	if a.Bits == 0 {
		a.Bits = m.WeightBits
	}
	if a.Bits != 16 && a.Bits != 8 && a.Bits != 4 {
		return nil, fmt.Errorf("weights of %d bits, expected 16, 8 or 4", a.Bits)
	}
	e := engineOf(a.Engine)
	if e == nil {
		return nil, suggest.Unknown("engine", a.Engine, Engines())
	}
	if a.KVBits == 0 {
		if a.KVBits = 16; a.Bits == 8 && e.name == trtllm { // checkpoints in FP8 quantize the KV cache, too
			a.KVBits = 8
		}
	}
	if a.KVBits != 16 && a.KVBits != 8 {
		return nil, fmt.Errorf("values of the KV cache of %d bits, expected 16 or 8", a.KVBits)
	}
	p := Default()
	if e.scheduler == SchedulerVLLM {
		p.Engine.UseVLLM()
		p.Engine.AsyncScheduling = true
	}
	if a.TP, err = a.gpus(m, g, p.Engine.MaxLorasPerBatch*p.Engine.MaxLoraRank); err != nil {
		return nil, err
	}
	p.Name = fmt.Sprintf("%s-%s-tp%d", m.Name, g.Name, a.TP)
	p.Model = fmt.Sprintf("%s %d-bit weights, tp%d", m.Name, a.Bits, a.TP)
	p.GPU = fmt.Sprintf("%d x %s", a.TP, g.Name)
	p.Uncalibrated = true
	a.latency(&p, m, g, e)
	ranks := a.memory(&p, m, g)
	gemm, peak := g.gemm(a.Bits)
	p.Source = fmt.Sprintf("Computed, never compared with a measured run: %s "+
		"(%.0f TFLOP/s, %.0f GB/s, %.0f GiB each); products of matrices at %.0f %% of its bandwidth and %.0f %% of its "+
		"FLOP/s; KV cache of %d bits; times of the engine from %s. "+
		"LoRA kernels of vLLM 0.33.0 and sglang 0.5.23, measured on an H100 with Llama-3.1-8B and Qwen3-14B%s.%s",
		g.Name, peak/1e12, g.GBPerS, g.MemoryGiB, 100*gemm.Read, 100*gemm.Compute, a.KVBits, e.fittedOn,
		g.sameKernels(), ranks)
	if err := p.Check(); err != nil {
		return nil, fmt.Errorf("analytic profile of %s on %s: %w", m.Name, g.Name, err)
	}
	return &p, nil
}

// HasExperts reports whether the model has experts.
func (a *Analytic) HasExperts() bool {
	m, err := named("model", a.Model, Architectures(), (*Architecture).name)
	return err == nil && m.Experts > 0
}

func (m *Architecture) name() string { return m.Name }
func (g *GPU) name() string          { return g.Name }

// names lists the names of models or GPUs.
func names[T any](all []T, nameOf func(*T) string) []string {
	list := make([]string, len(all))
	for i := range all {
		list[i] = nameOf(&all[i])
	}
	return list
}

// named returns the element of a list with the given name.
func named[T any](what, name string, all []T, nameOf func(*T) string) (*T, error) {
	known := names(all, nameOf)
	if i := slices.Index(known, name); i >= 0 {
		return &all[i], nil
	}
	return nil, suggest.Unknown(what, name, known)
}

// weights returns the size of all weights, bytes.
func (a *Analytic) weights(m *Architecture) float64 {
	return m.bytes(m.Parameters()-m.routed(), m.routed(), a.Bits)
}

const gib = 1 << 30

// kvShare is the least share of the GPUs' memory that is left for the KV cache.
const kvShare = 0.02

// pool returns the memory of n GPUs that the weights leave, bytes.
func (a *Analytic) pool(m *Architecture, g *GPU, n int) float64 {
	return float64(n)*g.MemoryGiB*gib*a.MemoryShare - a.weights(m)
}

// fits reports whether n GPUs hold the model together with adapter slots whose ranks add up to ranks.
func (a *Analytic) fits(m *Architecture, g *GPU, n, ranks int) bool {
	return a.pool(m, g, n)-float64(ranks)*m.LoRABytesPerRank() >= kvShare*float64(n)*g.MemoryGiB*gib
}

// gpus returns the number of GPUs: TP, else the least power of 2 that leaves a tenth of the memory beside the
// weights, and room for adapter slots whose ranks add up to ranks.
func (a *Analytic) gpus(m *Architecture, g *GPU, ranks int) (int, error) {
	if a.TP < 0 || a.TP > 64 {
		return 0, fmt.Errorf("tp is %d, expected 1 to 64", a.TP)
	}
	roomy := func(n int) bool { return a.pool(m, g, n) > 0.1*float64(n)*g.MemoryGiB*gib }
	least := 1
	for least <= 64 && !(roomy(least) && a.fits(m, g, least, ranks)) {
		least *= 2
	}
	switch {
	case least > 64:
		return 0, fmt.Errorf("%s takes %.0f GiB, too much for 64 x %s of %.0f GiB",
			m.Name, a.weights(m)/gib, g.Name, g.MemoryGiB)
	case a.TP == 0:
		return least, nil
	case !roomy(a.TP):
		return 0, fmt.Errorf("%s takes %.0f GiB, too much for %d x %s of %.0f GiB; expected tp=%d or more",
			m.Name, a.weights(m)/gib, a.TP, g.Name, g.MemoryGiB, least)
	}
	return a.TP, m.divides(a.TP)
}

// divides returns an error if engines cannot divide the attention heads among n GPUs. As in vLLM and sglang
// (LlamaAttention in models/llama.py), each GPU gets the same number of heads. KV heads are divided likewise, or, if
// there are fewer than GPUs, each is copied to the same number of GPUs. Latent attention has no KV heads to divide.
func (m *Architecture) divides(n int) error {
	tp := float64(n)
	if math.Mod(m.Heads, tp) != 0 {
		return fmt.Errorf("tp is %d, but %s has %g attention heads, which engines cannot divide by %d", n, m.Name,
			m.Heads, n)
	}
	if m.Latent == 0 && math.Mod(max(m.KVHeads, tp), min(m.KVHeads, tp)) != 0 {
		return fmt.Errorf("tp is %d, but %s has %g KV heads: engines need a divisor or a multiple of %g", n, m.Name,
			m.KVHeads, m.KVHeads)
	}
	return nil
}

// flops returns the peak rate for weights of the given number of bits, 1/s.
func flops(g *GPU, bits int) float64 {
	_, peak := g.gemm(bits)
	return peak
}

func (a *Analytic) latency(p *Profile, m *Architecture, g *GPU, e *engineTimes) {
	n := float64(a.TP)
	head, _ := g.gemm(16) // engines do not quantize the output layer
	attention := cmp.Or(g.Attention, usualAttention)
	body := a.body(m, g)
	// The output layer computes few tokens of a step, and its reading is not hidden behind those of prompts.
	body.start += head.StartUs/1000 + m.Vocab*m.Hidden*2/n/(head.Read*g.GBPerS*1e6)
	l := &p.Latency
	if m.Experts > 0 {
		l.Experts = Experts{Count: int(m.Experts), TopK: int(m.TopK)}
		experts, _ := g.experts(a.Bits)
		l.Experts.ReadMs = Round4(m.routed() * float64(a.Bits) / 8 / n / (experts.Read * g.GBPerS * 1e6))
	}
	kv := m.kvParts(n) * g.GBPerS * 1e9 * attention.Read
	l.Law = LawRoofline
	p.follow(&computed{e, body.start + m.Layers*attention.StartUs/1000, m, n, g})
	l.AllReduce = a.exchanges(m, g)
	l.Decode.BaseMs = Round4(body.read)
	window := m.WindowLayers * m.Window * m.kvLayer() * float64(a.KVBits) / 16
	l.Decode.PerRequestMs = Round4(body.readToken + window/kv*1000)
	l.Decode.PerKVTokenUs = Round4(m.KVBytes() * float64(a.KVBits) / 16 / kv * 1e6)
	l.Prefill.PerTokenUs = Round4(body.token / promptRate * 1000)
	pairs := 4 * (m.Layers - m.WindowLayers) * m.Heads * m.HeadDim // operations for a pair of tokens
	l.Prefill.PerTokenCtxNs = Round4(promptShare * pairs / (n * g.TFLOPS16 * 1e12) * 1e9)
	l.RequestOverheadMs = 5
}

// memory sets the sizes. If the adapter slots do not fit beside the weights, their rank is the largest power
// of 2 that fits; the returned text says so.
func (a *Analytic) memory(p *Profile, m *Architecture, g *GPU) (ranks string) {
	n := float64(a.TP)
	p.Memory.KVBytesPerToken = int64(m.KVBytes()) * int64(a.KVBits) / 16
	p.Memory.PoolGiB = Round4(a.pool(m, g, a.TP) / gib * m.kvParts(n) / n)
	p.Engine.ContextLength = m.Context
	if n*g.MemoryGiB < 40 {
		p.Engine.ChunkedPrefillSize = 2048
	}
	p.Adapters.BytesPerRank = m.LoRABytesPerRank()
	e, usual := &p.Engine, p.Engine.MaxLoraRank
	for e.MaxLoraRank > 1 && !a.fits(m, g, a.TP, e.MaxLorasPerBatch*e.MaxLoraRank) {
		e.MaxLoraRank /= 2
	}
	p.Adapters.DefaultRank = min(p.Adapters.DefaultRank, e.MaxLoraRank)
	if e.MaxLoraRank < usual {
		return fmt.Sprintf(" max_lora_rank is %d: %d adapter slots of rank %d do not fit beside the weights.",
			e.MaxLoraRank, e.MaxLorasPerBatch, usual)
	}
	return ""
}

// Round4 rounds x to 4 significant digits, the precision of computed coefficients.
func Round4(x float64) float64 {
	if x == 0 {
		return 0
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(x))))
	return math.Round(x*scale) / scale
}

// A GPU holds the data of one GPU, by its maker's data sheet. Peak rates are dense (without sparsity).
type GPU struct {
	Name      string
	TFLOPS16  float64 // fp16/bf16 tensor cores with fp32 accumulation, 10^12/s
	TFLOPS8   float64 // fp8, 10^12/s; 0: computes in 16 bits
	TFLOPS4   float64 // NVFP4, 10^12/s; 0: computes in 16 bits
	GBPerS    float64 // memory bandwidth, 10^9 bytes/s
	MemoryGiB float64
	PCIe      int // generation, from 5 on; 0: an older one

	// Speeds of kernels; zero: those of kernels.go.
	Gemm16, Gemm8, Gemm4          gemmSpeed
	Experts16, Experts8, Experts4 gemmSpeed // routed experts of a layer, see [GPU.experts]
	Attention                     attentionSpeed
	AllReduce                     string // table of allreduce.yaml; "": none, GPUs without NVLink
}

// sameKernels says how the LoRA kernels of a GPU follow from those of an H100.
func (g *GPU) sameKernels() string {
	switch g.Name {
	case "h100":
		return ""
	case "h200":
		return " (the same on an H200)"
	}
	return ", assumed to take the same time"
}

// An Architecture is a decoder-only transformer, as its config.json describes it. Numbers without a comment
// are those of config.json.
type Architecture struct {
	Name                  string
	Layers, Hidden, Vocab float64
	FFN                   float64 // width of a dense layer's feed-forward network
	Heads, KVHeads        float64
	HeadDim               float64
	TiedEmbed             bool
	WeightBits            int // bits per weight, as published
	Context               int

	// Mixture of experts, per layer; Experts 0: dense.
	// DenseBits is the least number of bits of all weights but those of the routed experts.
	DenseBits   int
	Experts     float64
	TopK        float64 // routed experts that a token uses
	ExpertFFN   float64
	Shared      float64 // shared experts, which every token uses
	DenseLayers float64 // first layers without experts

	// Latent is the number of values that multi-head latent attention caches per token and layer, instead of
	// keys and values. 0: ordinary attention.
	Latent float64
	// WindowLayers is the number of layers whose attention sees the last Window tokens only.
	WindowLayers, Window float64
	// AttentionWeights is the number of attention weights of a layer. 0: that of ordinary attention.
	AttentionWeights float64
}

var hardware = sync.OnceValue(func() hardwareFile { return part[hardwareFile]("hardware.yaml") })

type hardwareFile struct {
	GPUs          []GPU
	Architectures []Architecture
}

// GPUs lists the known GPUs.
func GPUs() []GPU { return hardware().GPUs }

// Architectures lists the known models.
func Architectures() []Architecture { return hardware().Architectures }

// attention returns the number of attention weights of a layer.
func (a *Architecture) attention() float64 {
	if a.AttentionWeights > 0 {
		return a.AttentionWeights
	}
	return a.Hidden * a.HeadDim * 2 * (a.Heads + a.KVHeads)
}

// expert returns the number of weights of one expert: gate, up and down.
func (a *Architecture) expert() float64 { return 3 * a.Hidden * a.ExpertFFN }

// moeLayers returns the number of layers with experts.
func (a *Architecture) moeLayers() float64 {
	if a.Experts == 0 {
		return 0
	}
	return a.Layers - a.DenseLayers
}

// routed returns the number of weights of all routed experts.
func (a *Architecture) routed() float64 { return a.moeLayers() * a.Experts * a.expert() }

// dense returns the bits of weights outside the routed experts, if the experts' weights have the given number.
func (a *Architecture) dense(bits int) int { return max(bits, a.DenseBits) }

// bytes returns the size of weights outside the routed experts and of weights of routed experts. bits is that of the
// experts' weights.
func (a *Architecture) bytes(dense, routed float64, bits int) float64 {
	return (dense*float64(a.dense(bits)) + routed*float64(bits)) / 8
}

// fixed returns the number of weights that every decode step reads: all without the routed experts and the
// input embedding.
func (a *Architecture) fixed() float64 {
	dense := a.Layers - a.moeLayers()
	return a.Layers*a.attention() + dense*3*a.Hidden*a.FFN +
		a.moeLayers()*a.Shared*a.expert() + a.Vocab*a.Hidden
}

// Parameters returns the number of all weights, without norms and biases.
func (a *Architecture) Parameters() float64 {
	n := a.fixed() + a.routed()
	if !a.TiedEmbed {
		n += a.Vocab * a.Hidden
	}
	return n
}

// Active returns the number of weights that one token is multiplied with.
func (a *Architecture) Active() float64 {
	return a.fixed() + a.moeLayers()*a.TopK*a.expert()
}

// body returns the number of weights that one token of a prompt is multiplied with: [Architecture.Active]
// without the output layer, which engines compute for the last token of a prompt only.
func (a *Architecture) body() float64 { return a.Active() - a.Vocab*a.Hidden }

// KVBytes returns the size of one token in the KV cache, bytes, with values of 16 bits. Layers with a window do not
// count, since their part does not grow with the context.
func (a *Architecture) KVBytes() float64 { return (a.Layers - a.WindowLayers) * a.kvLayer() }

// kvLayer returns the size of one token in the KV cache of a layer, bytes, with values of 16 bits.
func (a *Architecture) kvLayer() float64 {
	if a.Latent > 0 {
		return a.Latent * 2
	}
	return 2 * a.KVHeads * a.HeadDim * 2
}

// kvParts returns the number of parts into which n GPUs divide the KV cache. GPUs beyond the number of KV heads hold
// copies, and every GPU holds the whole latent cache.
func (a *Architecture) kvParts(n float64) float64 {
	if a.Latent > 0 {
		return 1
	}
	return min(n, a.KVHeads)
}

// LoRABytesPerRank returns the size of an adapter on all linear layers per rank, bytes, with weights of 16
// bits: 2 bytes x (in + out) for every target. In layers with experts, the feed-forward network is no target.
func (a *Architecture) LoRABytesPerRank() float64 {
	h, q, kv := a.Hidden, a.Heads*a.HeadDim, a.KVHeads*a.HeadDim
	attention := (h + q) + 2*(h+kv) + (q + h)
	if a.Latent > 0 {
		attention = 2 * (h + a.Heads*a.HeadDim)
	}
	ffn := 3 * (h + a.FFN)
	return 2 * (a.Layers*attention + (a.Layers-a.moeLayers())*ffn)
}

// A Difference is one quantity of two profiles.
type Difference struct {
	Name string  `json:"name"`
	Unit string  `json:"unit"`
	A    float64 `json:"a"`
	B    float64 `json:"b"`
	// Relative is A/B - 1; NaN where B is 0.
	Relative float64 `json:"-"`
}

// Compare lists the main coefficients, capacities and step times of two profiles side by side.
func Compare(a, b *Profile) []Difference {
	kv := func(p *Profile) float64 {
		n, _ := p.KVTokens() // 0 with an error
		return float64(n)
	}
	step := func(p *Profile) float64 { return 1000 * (Model{p.Compile()}).DecodeStep(16, 16, 16*500, 0) }
	prompt := func(p *Profile) float64 { return 1000 * (Model{p.Compile()}).Prefill(1000) }
	var ds []Difference
	for _, d := range []struct {
		name, unit string
		of         func(*Profile) float64
	}{
		{"step_ms", "ms", func(p *Profile) float64 { return p.Latency.StepMs }},
		{"step_per_request_ms", "ms", func(p *Profile) float64 { return p.Latency.StepPerRequestMs }},
		{"decode.base_ms", "ms", func(p *Profile) float64 { return p.Latency.Decode.BaseMs }},
		{"decode.per_request_ms", "ms", func(p *Profile) float64 { return p.Latency.Decode.PerRequestMs }},
		{"decode.per_kv_token_us", "us", func(p *Profile) float64 { return p.Latency.Decode.PerKVTokenUs }},
		{"prefill.base_ms", "ms", func(p *Profile) float64 { return p.Latency.Prefill.BaseMs }},
		{"prefill.mixed_ms", "ms", func(p *Profile) float64 { return p.Latency.Prefill.MixedMs }},
		{"prefill.per_token_us", "us", func(p *Profile) float64 { return p.Latency.Prefill.PerTokenUs }},
		{"prefill.per_token_ctx_ns", "ns", func(p *Profile) float64 { return p.Latency.Prefill.PerTokenCtxNs }},
		{"KV capacity", "tokens", kv},
		{"adapter bytes per rank", "bytes", func(p *Profile) float64 { return p.Adapters.BytesPerRank }},
		{"decode step, 16 requests of 500 tokens", "ms", step},
		{"prefill of 1000 tokens", "ms", prompt},
	} {
		x := Difference{Name: d.name, Unit: d.unit, A: d.of(a), B: d.of(b), Relative: math.NaN()}
		if x.B != 0 {
			x.Relative = x.A/x.B - 1
		}
		ds = append(ds, x)
	}
	return ds
}
