package profile

import (
	"cmp"
	"math"
	"slices"
	"sync"
)

// gemmSpeed is the speed of matrix products on a GPU. A product takes StartUs and the longer of two times: to read and
// write its matrices at the share Read of the bandwidth, and to compute at the share Compute of the peak rate.
type gemmSpeed struct{ StartUs, Read, Compute float64 }

// attentionSpeed is the speed of the attention of running requests on a GPU. That of a layer takes StartUs, and the
// time to read the KV cache at the share Read of the bandwidth.
type attentionSpeed struct{ StartUs, Read float64 }

// Speeds of GPUs that hardware.yaml has no measured ones of.
var (
	usualGemm      = gemmSpeed{StartUs: 4, Read: 0.85, Compute: 0.75} // between those of the A100, H100 and L40S
	usualGemm8     = gemmSpeed{StartUs: 4, Read: 0.8, Compute: 0.5}
	usualExperts   = gemmSpeed{StartUs: 30, Read: 0.85, Compute: 0.4} // as the H100's
	usualExperts8  = gemmSpeed{StartUs: 30, Read: 0.8, Compute: 0.2}
	usualAttention = attentionSpeed{StartUs: 10, Read: 0.85}
)

// Attention of prompts of n tokens reaches the share 1 / (promptShare + promptTokens/n) of the peak rate of 16 bits:
// 0.27 at 1k tokens, 0.40 at 2k, 0.53 at 4k and 0.60 at 8k (H100, 32 heads of 128). The second term of the time, with
// n^2/2 pairs of tokens, is the same for each token of a prompt.
const promptShare, promptTokens = 1.35, 2400

// promptRate is the rate of the kernels of prompts in an engine over their rate alone: GPUs clock lower under sustained
// load. The points that [engineList] was fitted to are as near with 0.88 to 0.96.
const promptRate = 0.9

// Other times of a step, by layer.
const (
	// values that kernels between the products read and write for a token, per value of the hidden state and of
	// the inner states: two norms with residuals, rotation of queries and keys, and the gate of the feed-forward
	// network.
	hiddenValues, headValues, gateValues = 8, 2, 3
	// routing is the number of products of 16 bits that start as fast as a layer's router: a product with all experts'
	// keys, and the choice of the largest.
	routing = 2
	// pcieUs and pcieGBPerS are an exchange between GPUs without NVLink: assumed, since there is no table.
	pcieUs, pcieGBPerS = 20, 20
)

// gemm returns the speed of products with weights of the given number of bits, and their peak rate, 1/s. Weights of 4
// bits are computed in 16 bits where the GPU has no rate for 4 bits, and those of 8 where it has none for 8.
func (g *GPU) gemm(bits int) (gemmSpeed, float64) {
	switch {
	case bits == 4 && g.TFLOPS4 > 0:
		return g.Gemm4, g.TFLOPS4 * 1e12
	case bits == 8 && g.TFLOPS8 > 0:
		return cmp.Or(g.Gemm8, usualGemm8), g.TFLOPS8 * 1e12
	}
	return cmp.Or(g.Gemm16, usualGemm), g.TFLOPS16 * 1e12
}

// experts returns the speed of a layer's routed experts with weights of the given number of bits, and their peak rate,
// 1/s. The start is that of all kernels: sorting the tokens by expert, both parts of the experts, and adding up their
// outputs. The share of the peak rate is low, because an expert's tokens fill tiles of 16 to 128 tokens only in part.
func (g *GPU) experts(bits int) (gemmSpeed, float64) {
	_, peak := g.gemm(bits)
	switch {
	case bits == 4 && g.Experts4 != gemmSpeed{}:
		return g.Experts4, peak
	case bits == 8 && g.TFLOPS8 > 0:
		return cmp.Or(g.Experts8, usualExperts8), peak
	}
	return cmp.Or(g.Experts16, usualExperts), peak
}

// A product is a matrix product of a layer on one GPU: weights of k x n.
type product struct{ k, n float64 }

// products returns the dense products of a layer on one of tp GPUs: queries, keys and values; output of the attention;
// and both parts of the feed-forward network, of the given width. With fewer KV heads than GPUs, each GPU has a copy of
// one. Latent attention is divided evenly.
func (m *Architecture) products(tp, ffn float64) []product {
	q, kv := m.Heads*m.HeadDim/tp, max(m.KVHeads/tp, 1)*m.HeadDim
	list := []product{{m.Hidden, q + 2*kv}, {q, m.Hidden}}
	if m.AttentionWeights > 0 {
		half := m.AttentionWeights / tp / m.Hidden / 2
		list = []product{{m.Hidden, half}, {half, m.Hidden}}
	}
	if ffn > 0 {
		list = append(list, product{m.Hidden, 2 * ffn / tp}, product{ffn / tp, m.Hidden})
	}
	return list
}

// A stepTime is the time of a part of a step in ms: start, and the longer of read + readToken*M and token*M, with M
// tokens in the step.
type stepTime struct{ start, read, readToken, token float64 }

// add adds n times another part.
func (t *stepTime) add(o stepTime, n float64) {
	t.start += n * o.start
	t.read += n * o.read
	t.readToken += n * o.readToken
	t.token += n * o.token
}

// layer returns the time of the dense products of a layer on one of tp GPUs, and of the kernels between them.
func (a *Analytic) layer(m *Architecture, g *GPU, ffn float64) (t stepTime) {
	bits := m.dense(a.Bits)
	gemm, peak := g.gemm(bits)
	tp := float64(a.TP)
	read := 1000 / (gemm.Read * g.GBPerS * 1e9) // ms/byte
	for _, p := range m.products(tp, ffn) {
		t.start += gemm.StartUs / 1000
		t.read += p.k * p.n * float64(bits) / 8 * read
		t.readToken += (p.k + p.n) * 2 * read
		t.token += 2 * p.k * p.n / (gemm.Compute * peak) * 1000
	}
	between := hiddenValues*m.Hidden + headValues*(m.Heads+2*m.KVHeads)*m.HeadDim/tp + gateValues*ffn/tp
	attention := 2 * promptTokens * m.Heads * m.HeadDim / (tp * g.TFLOPS16 * 1e12) * 1000
	t.readToken += between * 2 * read
	t.token += between*2*read + attention
	return t
}

// body returns the time of the dense products of all layers on one GPU, and of the kernels between them. Experts that
// every token uses are dense.
func (a *Analytic) body(m *Architecture, g *GPU) (t stepTime) {
	moe := m.moeLayers()
	t.add(a.layer(m, g, m.FFN), m.Layers-moe)
	if moe == 0 {
		return t
	}
	t.add(a.layer(m, g, m.Shared*m.ExpertFFN), moe)
	experts, peak := g.experts(a.Bits)
	gemm, _ := g.gemm(16)
	tp := float64(a.TP)
	t.start += moe * (experts.StartUs + routing*gemm.StartUs) / 1000
	t.readToken += moe * m.TopK * (2*m.Hidden + 3*m.ExpertFFN/tp) * 2 / (experts.Read * g.GBPerS * 1e6)
	t.token += moe * 2 * m.TopK * m.expert() / tp / (experts.Compute * peak) * 1000
	return t
}

// allReduceTable is the times of an all-reduce on one kind of server; see allreduce.yaml.
type allReduceTable struct {
	Name                string
	GPUs2, GPUs4, GPUs8 []float64
}

var allReduceTables = sync.OnceValue(func() []allReduceTable { return part[[]allReduceTable]("allreduce.yaml") })

// smallest is the size of the smallest message in the tables, bytes.
const smallest = 4096 * 2

// allReduce returns the time of one exchange of a message between n GPUs, us.
func (g *GPU) allReduce(n int, bytes float64) float64 {
	all := allReduceTables()
	k := slices.IndexFunc(all, func(t allReduceTable) bool { return t.Name == g.AllReduce })
	if k < 0 {
		return pcieUs + bytes/(pcieGBPerS*1e9)*1e6
	}
	times := all[k].GPUs8 // also beyond one server: no table
	switch {
	case n == 2:
		times = all[k].GPUs2
	case n <= 4:
		times = all[k].GPUs4
	}
	at := max(math.Log2(bytes/smallest), 0)
	i := min(int(at), len(times)-2)
	size := smallest * math.Exp2(float64(i))
	return max(between(times[i], times[i+1], (bytes-size)/size), times[0])
}

// exchanges returns the time of all exchanges of a step between the GPUs: two a layer, of the hidden states of its
// tokens.
func (a *Analytic) exchanges(m *Architecture, g *GPU) (t AllReduce) {
	if a.TP == 1 {
		return t
	}
	for n := int64(1); n <= 1<<15; n *= 2 {
		t.Tokens = append(t.Tokens, n)
		t.Ms = append(t.Ms, Round4(2*m.Layers*g.allReduce(a.TP, float64(n)*m.Hidden*2)/1000))
	}
	return t
}
