package profile

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"

	"lorasim/internal/suggest"
)

// Analytic describes an analytic profile.
type Analytic struct {
	Model string // name of an Architecture
	GPU   string // name of a GPU
	TP    int    // GPUs that share the model; 0: as few powers of 2 as hold it
	Bits  int    // of a weight; 0: as published

	// How close engines come to the GPU's peak rates.
	Bandwidth   float64 // share of the memory bandwidth in decode
	Compute     float64 // share of the peak FLOP/s in prefill
	MemoryShare float64 // what an engine uses of the GPU's memory
}

// NewAnalytic has common shares: most of the bandwidth, about half of the peak
// FLOP/s.
func NewAnalytic(model, gpu string) Analytic {
	return Analytic{Model: model, GPU: gpu, Bandwidth: 0.85, Compute: 0.6, MemoryShare: 0.88}
}

const (
	// stepMs is spent in every step beside reading and computing (scheduling,
	// kernel launches), allReduceMs per layer and step where TP > 1.
	stepMs, allReduceMs = 0.5, 0.02
	// expertBatch is the batch at which the number of distinct experts in a step is
	// made linear.
	expertBatch = 32.0
)

// AnalyticPrefix begins the name of an analytic profile.
const AnalyticPrefix = "analytic:"

// parseAnalytic reads MODEL,GPU[,tp=N][,bits=N].
func parseAnalytic(spec string) (Analytic, error) {
	pieces := strings.Split(spec, ",")
	if len(pieces) < 2 {
		return Analytic{}, errors.New("expected analytic:MODEL,GPU[,tp=N][,bits=N]")
	}
	a := NewAnalytic(strings.TrimSpace(pieces[0]), strings.TrimSpace(pieces[1]))
	for _, piece := range pieces[2:] {
		key, value, _ := strings.Cut(strings.TrimSpace(piece), "=")
		to := map[string]*int{"tp": &a.TP, "bits": &a.Bits}[key]
		if to == nil {
			return a, suggest.Unknown("option", key, []string{"tp", "bits"})
		}
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 {
			return a, fmt.Errorf("%s is %q, expected a whole number >= 1", key, value)
		}
		*to = n
	}
	return a, nil
}

// Profile computes an uncalibrated profile from the roofline of the hardware
// (S. Williams, A. Waterman, D. Patterson, CACM 52(4), 2009): a decode step
// reads the weights and the KV cache, a prefill step is bound by its FLOPs.
//
//	base         = fixed weights / bandwidth + step overhead
//	per_request  = 2 x active weights / FLOP/s (+ the experts one more request adds)
//	per_kv_token = KV bytes per token / bandwidth
//	per_token    = 2 x active weights / FLOP/s
//	per_token_ctx = 4 x layers x heads x head size / FLOP/s
//
// A batch of B tokens that each choose K of E experts uses E (1 - (1-K/E)^B) of
// them on average; the tangent at expertBatch stands for it. What routing
// skew, kernels and communication really cost is not in it: hence uncalibrated.
func (a Analytic) Profile() (*Profile, error) {
	m, err := named("model", a.Model, Architectures(), func(m *Architecture) string { return m.Name })
	if err != nil {
		return nil, err
	}
	g, err := named("GPU", a.GPU, GPUs(), func(g *GPU) string { return g.Name })
	if err != nil {
		return nil, err
	}
	if a.Bits == 0 {
		a.Bits = m.WeightBits
	}
	if a.Bits != 16 && a.Bits != 8 && a.Bits != 4 {
		return nil, fmt.Errorf("weights of %d bits, expected 16, 8 or 4", a.Bits)
	}
	if a.TP, err = a.gpus(m, g); err != nil {
		return nil, err
	}
	p := Default()
	p.Name = fmt.Sprintf("%s-%s-tp%d", m.Name, g.Name, a.TP)
	p.Model = fmt.Sprintf("%s %d-bit weights, tp%d", m.Name, a.Bits, a.TP)
	p.GPU = fmt.Sprintf("%d x %s", a.TP, g.Name)
	p.Uncalibrated = true
	p.Source = fmt.Sprintf("Analytic, never held against a measured run: roofline of %s (%.0f TFLOP/s, %.0f GB/s, %.0f GiB each) at %.0f %% of its bandwidth and %.0f %% of its FLOP/s.",
		g.Name, flops(g, a.Bits)/1e12, g.GBPerS, g.MemoryGiB, 100*a.Bandwidth, 100*a.Compute)
	a.latency(&p, m, g)
	a.memory(&p, m, g)
	if err := p.Check(); err != nil {
		return nil, fmt.Errorf("analytic profile of %s on %s: %w", m.Name, g.Name, err)
	}
	return &p, nil
}

// named is the one of a list that has a name.
func named[T any](what, name string, all []T, nameOf func(*T) string) (*T, error) {
	var names []string
	for i := range all {
		if names = append(names, nameOf(&all[i])); names[i] == name {
			return &all[i], nil
		}
	}
	return nil, suggest.Unknown(what, name, names)
}

// weights is the size of all weights, bytes.
func (a *Analytic) weights(m *Architecture) float64 { return m.Parameters() * float64(a.Bits) / 8 }

const gib = 1 << 30

// gpus is the number of GPUs: as asked for, or the fewest that leave a tenth of
// their memory for the KV cache.
func (a *Analytic) gpus(m *Architecture, g *GPU) (int, error) {
	if a.TP < 0 || a.TP > 64 {
		return 0, fmt.Errorf("tp is %d, expected 1 to 64", a.TP)
	}
	fits := func(n int) bool {
		return a.weights(m) < float64(n)*g.MemoryGiB*gib*(a.MemoryShare-0.1)
	}
	if a.TP > 0 {
		if !fits(a.TP) {
			return 0, fmt.Errorf("%s takes %.0f GiB, too much for %d x %s of %.0f GiB", m.Name, a.weights(m)/gib, a.TP, g.Name, g.MemoryGiB)
		}
		return a.TP, nil
	}
	for n := 1; n <= 64; n *= 2 {
		if fits(n) {
			return n, nil
		}
	}
	return 0, fmt.Errorf("%s takes %.0f GiB, too much for 64 x %s", m.Name, a.weights(m)/gib, g.Name)
}

// flops is the peak rate at a width of weights, 1/s; 4-bit weights are computed
// with in 16 bits.
func flops(g *GPU, bits int) float64 {
	if bits == 8 && g.TFLOPS8 > 0 {
		return g.TFLOPS8 * 1e12
	}
	return g.TFLOPS16 * 1e12
}

func (a *Analytic) latency(p *Profile, m *Architecture, g *GPU) {
	n := float64(a.TP)
	bandwidth := n * g.GBPerS * 1e9 * a.Bandwidth // bytes/s
	compute := n * flops(g, a.Bits) * a.Compute   // FLOP/s
	bytes := float64(a.Bits) / 8
	overhead := stepMs
	if a.TP > 1 {
		overhead += allReduceMs * 2 * m.Layers // after attention and after the feed-forward network
	}

	base, perRequest := m.fixed()*bytes, 0.0
	if m.Experts > 0 {
		e, miss := m.Experts, 1-m.TopK/m.Experts
		rest := math.Pow(miss, expertBatch)
		slope := -e * rest * math.Log(miss)      // experts that one more request adds
		atZero := e*(1-rest) - slope*expertBatch // tangent at a batch of 0
		base += m.moeLayers() * atZero * m.expert() * bytes
		perRequest += m.moeLayers() * slope * m.expert() * bytes
	}
	d := &p.Latency.Decode
	d.BaseMs = Round4(base/bandwidth*1000 + overhead)
	d.PerRequestMs = Round4(perRequest/bandwidth*1000 + 2*m.Active()/compute*1000)
	kv := bandwidth
	if m.Latent > 0 {
		kv /= n // every GPU holds and reads the whole latent cache
	}
	d.PerKVTokenUs = Round4(m.KVBytes() / kv * 1e6)

	f := &p.Latency.Prefill
	f.BaseMs = Round4(overhead + m.fixed()*bytes/bandwidth*1000)
	f.PerTokenUs = Round4(2 * m.Active() / compute * 1e6)
	f.PerTokenCtxNs = Round4(4 * m.Layers * m.Heads * m.HeadDim / compute * 1e9)
	p.Latency.RequestOverheadMs = 5
}

func (a *Analytic) memory(p *Profile, m *Architecture, g *GPU) {
	n := float64(a.TP)
	p.Memory.KVBytesPerToken = int64(m.KVBytes())
	pool := n*g.MemoryGiB*a.MemoryShare - a.weights(m)/gib
	if m.Latent > 0 {
		pool /= n
	}
	p.Memory.PoolGiB = Round4(pool)
	p.Engine.ContextLength = m.Context
	if n*g.MemoryGiB < 40 {
		p.Engine.ChunkedPrefillSize = 2048
	}
	p.Adapters.BytesPerRank = m.LoRABytesPerRank()
}

// Round4 rounds to 4 significant digits: more would pretend a precision that
// is not there.
func Round4(x float64) float64 {
	if x == 0 {
		return 0
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(x))))
	return math.Round(x*scale) / scale
}

// GPU is what an analytic profile needs to know of a GPU: peak rates from its
// maker's data sheet, dense (without sparsity).
type GPU struct {
	Name      string
	TFLOPS16  float64 // fp16/bf16 tensor cores with fp32 accumulation, 10^12/s
	TFLOPS8   float64 // fp8; 0: computes in 16 bits
	GBPerS    float64 // memory bandwidth, 10^9 bytes/s
	MemoryGiB float64
}

// Architecture is a decoder-only transformer, as its config.json describes it.
type Architecture struct {
	Name                  string
	Layers, Hidden, Vocab float64
	FFN                   float64 // width of a dense layer's feed-forward network
	Heads, KVHeads        float64
	HeadDim               float64
	TiedEmbed             bool
	WeightBits            int // of the published weights
	Context               int

	// Mixture of experts; Experts 0: dense.
	Experts     float64
	TopK        float64 // experts of one token
	ExpertFFN   float64
	Shared      float64 // experts that every token uses
	DenseLayers float64 // first layers without experts

	// Multi-head latent attention caches one vector of this many values per
	// token and layer instead of keys and values; 0: ordinary attention.
	Latent float64
	// AttentionWeights of a layer, where it is not that of ordinary attention.
	AttentionWeights float64
}

var hardware = sync.OnceValue(func() hardwareFile { return part[hardwareFile]("hardware.yaml") })

type hardwareFile struct {
	GPUs          []GPU
	Architectures []Architecture
}

// GPUs lists the known GPUs, Architectures the known models.
func GPUs() []GPU                   { return hardware().GPUs }
func Architectures() []Architecture { return hardware().Architectures }

// attention is the number of attention weights of a layer.
func (a *Architecture) attention() float64 {
	if a.AttentionWeights > 0 {
		return a.AttentionWeights
	}
	return a.Hidden * a.HeadDim * 2 * (a.Heads + a.KVHeads)
}

// expert is the number of weights of one expert: gate, up and down.
func (a *Architecture) expert() float64 { return 3 * a.Hidden * a.ExpertFFN }

// moeLayers is the number of layers with experts.
func (a *Architecture) moeLayers() float64 {
	if a.Experts == 0 {
		return 0
	}
	return a.Layers - a.DenseLayers
}

// fixed is the number of weights that every decode step reads: all but the
// experts and the input embedding.
func (a *Architecture) fixed() float64 {
	dense := a.Layers - a.moeLayers()
	return a.Layers*a.attention() + dense*3*a.Hidden*a.FFN +
		a.moeLayers()*a.Shared*a.expert() + a.Vocab*a.Hidden
}

// Parameters is the number of all weights (norms and biases left out).
func (a *Architecture) Parameters() float64 {
	n := a.fixed() + a.moeLayers()*a.Experts*a.expert()
	if !a.TiedEmbed {
		n += a.Vocab * a.Hidden
	}
	return n
}

// Active is the number of weights that one token is multiplied with.
func (a *Architecture) Active() float64 {
	return a.fixed() + a.moeLayers()*a.TopK*a.expert()
}

// body is the number of weights that one token of a prompt is multiplied with: all but
// the output layer, which engines compute for the last token of a prompt alone.
func (a *Architecture) body() float64 { return a.Active() - a.Vocab*a.Hidden }

// KVBytes is the size of one token's cache in 16 bits.
func (a *Architecture) KVBytes() float64 {
	if a.Latent > 0 {
		return a.Layers * a.Latent * 2
	}
	return a.Layers * 2 * a.KVHeads * a.HeadDim * 2
}

// LoRABytesPerRank is the size of an adapter on all linear layers, in 16 bits
// and per rank: 2 bytes x (in + out) of every target. Of experts only the
// shared part can be a target.
func (a *Architecture) LoRABytesPerRank() float64 {
	h, q, kv := a.Hidden, a.Heads*a.HeadDim, a.KVHeads*a.HeadDim
	attention := (h + q) + 2*(h+kv) + (q + h)
	if a.Latent > 0 {
		attention = 2 * (h + a.Heads*a.HeadDim)
	}
	ffn := 3 * (h + a.FFN)
	return 2 * (a.Layers*attention + (a.Layers-a.moeLayers())*ffn)
}

// Difference is one coefficient of two profiles.
type Difference struct {
	Name string  `json:"name"`
	Unit string  `json:"unit"`
	A    float64 `json:"a"`
	B    float64 `json:"b"`
	// Relative is A/B - 1; NaN where B is 0.
	Relative float64 `json:"-"`
}

// Compare lists the coefficients and capacities of two profiles side by side.
func Compare(a, b *Profile) []Difference {
	kv := func(p *Profile) float64 {
		n, _ := p.KVTokens() // 0 with an error
		return float64(n)
	}
	step := func(p *Profile) float64 { return 1000 * (Model{p.Compile()}).DecodeStep(16, 16*500, 0) }
	prompt := func(p *Profile) float64 { return 1000 * (Model{p.Compile()}).Prefill(1000) }
	var ds []Difference
	for _, d := range []struct {
		name, unit string
		of         func(*Profile) float64
	}{
		{"decode.base_ms", "ms", func(p *Profile) float64 { return p.Latency.Decode.BaseMs }},
		{"decode.per_request_ms", "ms", func(p *Profile) float64 { return p.Latency.Decode.PerRequestMs }},
		{"decode.per_kv_token_us", "us", func(p *Profile) float64 { return p.Latency.Decode.PerKVTokenUs }},
		{"prefill.base_ms", "ms", func(p *Profile) float64 { return p.Latency.Prefill.BaseMs }},
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
