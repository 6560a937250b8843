package profile

// GPU is what an analytic profile needs to know of a GPU: peak rates from its
// maker's data sheet, dense (without sparsity).
type GPU struct {
	Name      string
	TFLOPS16  float64 // fp16/bf16 tensor cores with fp32 accumulation, 10^12/s
	TFLOPS8   float64 // fp8; 0: computes in 16 bits
	GBPerS    float64 // memory bandwidth, 10^9 bytes/s
	MemoryGiB float64
}

// GPUs lists the known GPUs.
func GPUs() []GPU {
	return []GPU{
		{"rtx-4090", 165.2, 330.3, 1008, 24},
		{"l40s", 362, 733, 864, 48},
		{"a100-80gb", 312, 0, 2039, 80},
		{"h100", 989, 1979, 3350, 80},
		{"h200", 989, 1979, 4800, 141},
	}
}

// Architecture is a decoder-only transformer, as its config.json describes it.
type Architecture struct {
	Name       string
	Layers     int
	Hidden     int
	FFN        int // width of a dense layer's feed-forward network
	Heads      int
	KVHeads    int
	HeadDim    int
	Vocab      int
	TiedEmbed  bool
	WeightBits int // of the published weights
	Context    int

	// Mixture of experts; Experts 0: dense.
	Experts     int
	TopK        int // experts of one token
	ExpertFFN   int
	Shared      int // experts that every token uses
	DenseLayers int // first layers without experts

	// Multi-head latent attention caches one vector of this many values per
	// token and layer instead of keys and values; 0: ordinary attention.
	Latent int
	// AttentionWeights of a layer, where it is not that of ordinary attention.
	AttentionWeights int64
}

// Architectures lists the known models.
func Architectures() []Architecture {
	llama := func(name string, layers, hidden, ffn, heads, kv, vocab, context int) Architecture {
		return Architecture{Name: name, Layers: layers, Hidden: hidden, FFN: ffn, Heads: heads, KVHeads: kv,
			HeadDim: hidden / heads, Vocab: vocab, WeightBits: 16, Context: context}
	}
	qwen3 := func(name string, layers, hidden, ffn, heads, kv int, tied bool) Architecture {
		return Architecture{Name: name, Layers: layers, Hidden: hidden, FFN: ffn, Heads: heads, KVHeads: kv,
			HeadDim: 128, Vocab: 151936, TiedEmbed: tied, WeightBits: 16, Context: 40960}
	}
	qwen3MoE := qwen3("qwen3-30b-a3b", 48, 2048, 6144, 32, 4, false)
	qwen3MoE.Experts, qwen3MoE.TopK, qwen3MoE.ExpertFFN = 128, 8, 768
	qwen25Small := llama("qwen2.5-0.5b", 24, 896, 4864, 14, 2, 151936, 32768)
	qwen25Small.TiedEmbed = true
	return []Architecture{
		llama("llama-2-7b", 32, 4096, 11008, 32, 32, 32000, 4096),
		llama("llama-2-13b", 40, 5120, 13824, 40, 40, 32000, 4096),
		llama("llama-2-70b", 80, 8192, 28672, 64, 8, 32000, 4096),
		llama("llama-3-8b", 32, 4096, 14336, 32, 8, 128256, 8192),
		llama("llama-3.1-8b", 32, 4096, 14336, 32, 8, 128256, 131072),
		llama("llama-3-70b", 80, 8192, 28672, 64, 8, 128256, 8192),
		llama("llama-3.1-70b", 80, 8192, 28672, 64, 8, 128256, 131072),
		qwen25Small,
		llama("qwen2.5-7b", 28, 3584, 18944, 28, 4, 152064, 32768),
		llama("qwen2.5-14b", 48, 5120, 13824, 40, 8, 152064, 32768),
		llama("qwen2.5-32b", 64, 5120, 27648, 40, 8, 152064, 32768),
		llama("qwen2.5-72b", 80, 8192, 29568, 64, 8, 152064, 32768),
		qwen3("qwen3-4b", 36, 2560, 9728, 32, 8, true),
		qwen3("qwen3-8b", 36, 4096, 12288, 32, 8, false),
		qwen3("qwen3-14b", 40, 5120, 17408, 40, 8, false),
		qwen3("qwen3-32b", 64, 5120, 25600, 64, 8, false),
		qwen3MoE,
		{Name: "deepseek-v3", Layers: 61, Hidden: 7168, FFN: 18432, Heads: 128, KVHeads: 128, HeadDim: 192,
			Vocab: 129280, WeightBits: 8, Context: 163840,
			Experts: 256, TopK: 8, ExpertFFN: 2048, Shared: 1, DenseLayers: 3, Latent: 512 + 64,
			// q: 7168x1536 + 1536x128x192, kv: 7168x576 + 512x128x256, o: 128x128x7168
			AttentionWeights: 7168*1536 + 1536*128*192 + 7168*576 + 512*128*256 + 128*128*7168},
	}
}

// attention is the number of attention weights of a layer.
func (a *Architecture) attention() float64 {
	if a.AttentionWeights > 0 {
		return float64(a.AttentionWeights)
	}
	return float64(a.Hidden) * float64(a.HeadDim) * float64(2*a.Heads+2*a.KVHeads)
}

// expert is the number of weights of one expert: gate, up and down.
func (a *Architecture) expert() float64 { return 3 * float64(a.Hidden) * float64(a.ExpertFFN) }

// moeLayers is the number of layers with experts.
func (a *Architecture) moeLayers() float64 {
	if a.Experts == 0 {
		return 0
	}
	return float64(a.Layers - a.DenseLayers)
}

// fixed is the number of weights that every decode step reads: all but the
// experts and the input embedding.
func (a *Architecture) fixed() float64 {
	dense := float64(a.Layers) - a.moeLayers()
	return float64(a.Layers)*a.attention() + dense*3*float64(a.Hidden)*float64(a.FFN) +
		a.moeLayers()*float64(a.Shared)*a.expert() + float64(a.Vocab)*float64(a.Hidden)
}

// Parameters is the number of all weights (norms and biases left out).
func (a *Architecture) Parameters() float64 {
	n := a.fixed() + a.moeLayers()*float64(a.Experts)*a.expert()
	if !a.TiedEmbed {
		n += float64(a.Vocab) * float64(a.Hidden)
	}
	return n
}

// Active is the number of weights that one token is multiplied with.
func (a *Architecture) Active() float64 {
	return a.fixed() + a.moeLayers()*float64(a.TopK)*a.expert()
}

// KVBytes is the size of one token's cache in 16 bits.
func (a *Architecture) KVBytes() float64 {
	if a.Latent > 0 {
		return float64(a.Layers) * float64(a.Latent) * 2
	}
	return float64(a.Layers) * 2 * float64(a.KVHeads) * float64(a.HeadDim) * 2
}

// LoRABytesPerRank is the size of an adapter on all linear layers, in 16 bits
// and per rank: 2 bytes x (in + out) of every target. Of experts only the
// shared part can be a target.
func (a *Architecture) LoRABytesPerRank() float64 {
	h, q, kv := float64(a.Hidden), float64(a.Heads*a.HeadDim), float64(a.KVHeads*a.HeadDim)
	attention := (h + q) + 2*(h+kv) + (q + h)
	if a.Latent > 0 {
		attention = 2 * (h + float64(a.Heads*a.HeadDim))
	}
	ffn := 3 * (h + float64(a.FFN))
	return 2 * (float64(a.Layers)*attention + (float64(a.Layers)-a.moeLayers())*ffn)
}
