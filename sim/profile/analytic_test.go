package profile

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"lorasim/internal/testutil"
)

// The numbers of weights that the models are published with.
func TestParameters(t *testing.T) {
	published := map[string]float64{ // 10^9
		"llama-2-7b": 6.74, "llama-2-13b": 13.02, "llama-2-70b": 68.98, "llama-3-8b": 8.03, "llama-3.1-70b": 70.55,
		"llama-3.3-70b": 70.55, "qwen3-235b-a22b": 235,
		"qwen2.5-0.5b": 0.494, "qwen2.5-7b": 7.62, "qwen2.5-32b": 32.8, "qwen2.5-72b": 72.7,
		"qwen3-4b": 4.02, "qwen3-8b": 8.19, "qwen3-32b": 32.8, "qwen3-30b-a3b": 30.5, "deepseek-v3": 671,
		"deepseek-r1": 671, "minimax-m2.5": 229, "gpt-oss-20b": 20.9, "gpt-oss-120b": 116.8,
	}
	for _, m := range Architectures() {
		want, ok := published[m.Name]
		if ok && math.Abs(m.Parameters()/1e9/want-1) > 0.01 {
			t.Errorf("%s has %.2f billion weights, published are %.2f", m.Name, m.Parameters()/1e9, want)
		}
		delete(published, m.Name)
	}
	if len(published) > 0 {
		t.Errorf("models that are not there: %v", published)
	}
	active := map[string]float64{"deepseek-v3": 37, "qwen3-30b-a3b": 3.3, "qwen3-235b-a22b": 22, "gpt-oss-120b": 5.7}
	for _, m := range Architectures() {
		// published with the input embedding, of which a token reads one row
		got := (m.Active() + float64(m.Vocab*m.Hidden)) / 1e9
		if want := active[m.Name]; want > 0 && math.Abs(got/want-1) > 0.03 {
			t.Errorf("%s uses %.1f billion weights for a token, published are %.1f", m.Name, got, want)
		}
	}
}

// Sizes worked out by hand: 32 layers x 2 x 32 heads x 128 x 2 bytes of KV, and
// the 5.0 MB per rank of adapters on all linear layers of Llama-2-7B.
func TestAnalyticSizes(t *testing.T) {
	p, err := NewAnalytic("llama-2-7b", "rtx-4090").Profile()
	if err != nil {
		t.Fatal(err)
	}
	if p.Memory.KVBytesPerToken != 524288 || math.Abs(p.Adapters.BytesPerRank/5.0e6-1) > 0.01 {
		t.Errorf("KV %d bytes per token, adapters %.0f bytes per rank", p.Memory.KVBytesPerToken,
			p.Adapters.BytesPerRank)
	}
	if !p.Uncalibrated || !strings.Contains(p.Source, "never compared with a measured run") {
		t.Error("an analytic profile is not marked as uncalibrated")
	}
	// 6.476e9 weights of the layers x 2 bytes / (0.85 x 1008e9) = 15.12 ms, and 0.7 of the host for the step
	if got := p.Latency.Decode.BaseMs; math.Abs(got-15.12) > 0.01 || p.Latency.HostMs != 0.7 {
		t.Errorf("decode base is %v ms and the host takes %v, expected 15.12 and 0.7", got, p.Latency.HostMs)
	}
	// the pool holds what memory and weights leave: 24 x 0.88 - 12.55 GiB, and as much
	// as another GPU has; a latent cache lies on every GPU: 141 x 0.88 - 625/16 GiB
	for _, c := range []struct {
		a          Analytic
		want, near float64
	}{{analytic("llama-2-7b", "rtx-4090", 1, 0), 8.57, 0.05}, {analytic("llama-2-7b", "rtx-4090", 2, 0), 29.69, 0.05},
		{analytic("deepseek-v3", "h200", 16, 0), 85.0, 0.5}} {
		if p, err = c.a.Profile(); err != nil || math.Abs(p.Memory.PoolGiB-c.want) > c.near {
			t.Errorf("%+v: a pool of %v GiB (%v), expected %v", c.a, p.Memory.PoolGiB, err, c.want)
		}
	}
}

func TestAnalyticEveryPair(t *testing.T) {
	for _, m := range Architectures() {
		for _, g := range GPUs() {
			p, err := NewAnalytic(m.Name, g.Name).Profile()
			if err != nil {
				t.Errorf("%s on %s: %v", m.Name, g.Name, err)
				continue
			}
			text, err := p.YAML()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Parse(text, p.Name); err != nil {
				t.Errorf("%s does not read back: %v", p.Name, err)
			}
		}
	}
}

func analytic(model, gpu string, tp, bits int) Analytic {
	a := NewAnalytic(model, gpu)
	a.TP, a.Bits = tp, bits
	return a
}

func TestAnalyticFaults(t *testing.T) {
	for _, c := range map[string]struct {
		a    Analytic
		want string
	}{
		"model": {NewAnalytic("llama-2-8b", "h100"), "llama-2-7b"},
		"gpu":   {NewAnalytic("llama-2-7b", "h300"), "did you mean"},
		"small": {analytic("llama-2-70b", "rtx-4090", 1, 0), "too much for 1 x rtx-4090"},
		"bits":  {analytic("llama-2-7b", "h100", 0, 7), "7 bits"},
		"tp":    {analytic("llama-2-7b", "h100", 65, 0), "1 to 64"},
	} {
		_, err := c.a.Profile()
		testutil.ExpectError(t, err, c.want)
	}
}

// A step reads the experts that its tokens are expected to use: E (1 - (1-k/E)^n). Qwen3-30B-A3B
// has 48 layers of 128 experts of 3 x 2048 x 768 weights, 8 for a token, in 16 bits; an H100 reads
// 0.90 x 3350 GB/s. Prefill steps read them, too, unless computing takes longer.
func TestExpectedExperts(t *testing.T) {
	p, err := NewAnalytic("qwen3-30b-a3b", "h100").Profile()
	if err != nil {
		t.Fatal(err)
	}
	c, l := p.Compile(), &p.Latency
	all := 48 * 128 * 3 * 2048 * 768 * 2 / (0.90 * 3350e9) * 1000 // 19.2 ms
	bare := l.HostMs + l.StepMs + l.Decode.BaseMs
	request := l.Decode.PerRequestMs + l.StepPerRequestMs
	for _, n := range []int64{1, 2, 8, 32, 64, 256} {
		read := bare + all*(1-math.Pow(1-8.0/128, float64(n)))
		want := read + float64(n)*request
		if got := c.Step(&StepWork{Batch: n}).Milliseconds(); math.Abs(got/want-1) > 0.002 {
			t.Errorf("a decode step of %d requests takes %v ms, expected %v", n, got, want)
		}
		w := StepWork{}
		w.Add(n, 0, false)
		if got := c.Step(&w).Milliseconds(); math.Abs(got/(read+l.Prefill.MixedMs)-1) > 0.002 {
			t.Errorf("a prefill step of %d tokens takes %v ms, expected %v", n, got, read+l.Prefill.MixedMs)
		}
	}
	w := StepWork{}
	w.Add(8192, 0, false) // computing takes longer than reading all experts
	want := l.HostMs + l.StepMs + l.Prefill.MixedMs + 8192*l.Prefill.PerTokenUs/1000 +
		8192*4096*l.Prefill.PerTokenCtxNs/1e6
	if got := c.Step(&w).Milliseconds(); math.Abs(got/want-1) > 1e-6 {
		t.Errorf("a prefill step of 8192 tokens takes %v ms, expected %v", got, want)
	}
	// one token uses 8 experts, and a step of both kinds of tokens reads the experts of all once
	if got, want := c.Step(&StepWork{Batch: 1}).Milliseconds()-bare-request, all/16; math.Abs(
		got/want-1) > 0.002 {
		t.Errorf("the experts of one token take %v ms, expected a sixteenth of %v", got, all)
	}
	mixed := StepWork{Batch: 32}
	mixed.Add(32, 0, false)
	want = bare + l.Prefill.MixedMs + all*(1-math.Pow(1-8.0/128, 64)) + 32*request
	if got := c.Step(&mixed).Milliseconds(); math.Abs(got/want-1) > 0.002 {
		t.Errorf("a step of 32 requests and 32 prompt tokens takes %v ms, expected %v", got, want)
	}
	// steps that differ in KV alone differ by a fixed time for each token
	a, b := c.Step(&StepWork{Batch: 40, KV: 1000}), c.Step(&StepWork{Batch: 40, KV: 1001})
	if b-a != c.PerKVToken {
		t.Errorf("a KV token takes %v, expected %v", b-a, c.PerKVToken)
	}
}

// Adapter slots that do not fit beside the weights have a smaller rank, which the source says.
func TestSlotsFit(t *testing.T) {
	p, err := analytic("llama-3.1-70b", "l40s", 1, 4).Profile()
	if err != nil {
		t.Fatal(err)
	}
	if p.Engine.MaxLoraRank != 32 || !strings.Contains(p.Source, "max_lora_rank is") {
		t.Errorf("rank %d: %s", p.Engine.MaxLoraRank, p.Source)
	}
	if p, err = analytic("llama-3.1-70b", "l40s", 0, 4).Profile(); err != nil || p.GPUs() != 2 ||
		p.Engine.MaxLoraRank != 64 {
		t.Errorf("%v, %+v", err, p)
	}
}

// A computed profile follows the scheduler that a scenario gives it; a profile of a file does not.
func TestFollowScheduler(t *testing.T) {
	p, err := Load(t.Context(), "analytic:llama-3.1-8b,h100")
	if err != nil {
		t.Fatal(err)
	}
	vllm, err := Load(t.Context(), "analytic:llama-3.1-8b,h100,engine=vllm")
	if err != nil {
		t.Fatal(err)
	}
	text, err := p.YAML()
	if err != nil {
		t.Fatal(err)
	}
	file, err := Parse(text, "x")
	if err != nil {
		t.Fatal(err)
	}
	was := p.Latency
	for _, p := range []*Profile{p, file} {
		p.FollowScheduler() // its own
		if !reflect.DeepEqual(p.Latency, was) {
			t.Errorf("%+v, expected %+v", p.Latency, was)
		}
		p.Engine.UseVLLM()
		p.FollowScheduler()
	}
	if !reflect.DeepEqual(p.Latency, vllm.Latency) || p.Latency.StepMs == was.StepMs {
		t.Errorf("%+v, expected the times of vLLM: %+v", p.Latency, vllm.Latency)
	}
	if !reflect.DeepEqual(file.Latency, was) {
		t.Errorf("a file: %+v, expected %+v", file.Latency, was)
	}
	p.Engine.UseSLoRA()
	p.FollowScheduler()
	if !reflect.DeepEqual(p.Latency, vllm.Latency) {
		t.Errorf("S-LoRA has times of its own: %+v", p.Latency)
	}
	trt, err := Load(t.Context(), "analytic:llama-3.1-8b,h100,engine=trtllm,bits=8")
	if err != nil || trt.Engine.Scheduler != SchedulerVLLM || trt.Memory.KVBytesPerToken != 65536 {
		t.Fatalf("%+v, %v: expected the scheduler of vLLM, and 65536 bytes per token", trt, err)
	}
	was = trt.Latency
	if trt.FollowScheduler(); !reflect.DeepEqual(trt.Latency, was) {
		t.Error("TensorRT-LLM took the times of vLLM")
	}
}

// GPUs beyond the number of KV heads hold copies: Qwen2.5-0.5B has two heads of 64 values in 24 layers.
func TestCopiesOfKVHeads(t *testing.T) {
	for tp, parts := range map[int]float64{1: 1, 2: 2, 14: 2} {
		p, err := analytic("qwen2.5-0.5b", "h100", tp, 0).Profile()
		if err != nil {
			t.Fatal(err)
		}
		if got, want := p.Latency.Decode.PerKVTokenUs, 24*2*2*64*2/(parts*0.9*3350e9)*1e6; math.Abs(got/want-1) > 1e-3 {
			t.Errorf("%d GPUs: %v us for a token, expected %v", tp, got, want)
		}
		if got, want := p.Memory.PoolGiB, (0.88*80*float64(tp)-0.92)*parts/float64(tp); math.Abs(got/want-1) > 1e-3 {
			t.Errorf("%d GPUs: %v GiB, expected %v", tp, got, want)
		}
	}
}

// Times of a layer's experts on one GPU, us: rows of the moe_perf tables of NVIDIA's aiconfigurator-core 0.12.0
// (Apache-2.0; vLLM 0.24), with tokens spread evenly over the experts. hidden and inner are the sizes of an expert on
// this GPU.
var expertRows = []struct {
	gpu                  string
	bits                 int
	hidden, inner        float64
	topk, experts, token float64
	us                   float64
}{
	{"h100", 16, 4096, 384, 8, 128, 1, 48.0}, {"h100", 16, 4096, 384, 8, 128, 8, 226.6},
	{"h100", 16, 4096, 384, 8, 128, 64, 434.9}, {"h100", 16, 4096, 384, 8, 128, 4096, 911.7},
	{"h100", 4, 2880, 2880, 4, 128, 1, 62.9}, {"h100", 4, 2880, 2880, 4, 128, 8, 200.6},
	{"h100", 4, 2880, 2880, 4, 128, 64, 689.1}, {"h100", 4, 2880, 2880, 4, 128, 8192, 2930.9},
	{"h200", 8, 4096, 384, 8, 128, 1, 38.4}, {"h200", 8, 4096, 384, 8, 128, 8, 119.9},
	{"h200", 8, 4096, 384, 8, 128, 64, 202.1}, {"h200", 8, 4096, 384, 8, 128, 8192, 1731.7},
	{"b200", 8, 3072, 384, 8, 256, 1, 28.3}, {"b200", 8, 3072, 384, 8, 256, 16, 100.1},
	{"b200", 8, 3072, 384, 8, 256, 128, 167.0}, {"b200", 8, 3072, 384, 8, 256, 8192, 817.7},
	{"b200", 4, 7168, 256, 8, 256, 1, 23.3}, {"b200", 4, 7168, 256, 8, 256, 16, 58.2},
	{"b200", 4, 7168, 256, 8, 256, 128, 115.9},
}

// The constants of experts give the times of the tables they were fitted to, within 40 %. No share is above 1, so no
// step reads or computes faster than the card.
func TestExpertsOfTables(t *testing.T) {
	for _, r := range expertRows {
		g := gpuOf(r.gpu)
		speed, peak := g.experts(r.bits)
		weights := 3 * r.hidden * r.inner
		bytes := min(r.experts, r.topk*r.token)*weights*float64(r.bits)/8 +
			r.topk*r.token*(2*r.hidden+3*r.inner)*2
		read := bytes / (speed.Read * g.GBPerS * 1e9)
		compute := 2 * r.topk * r.token * weights / (speed.Compute * peak)
		if got := speed.StartUs + 1e6*max(read, compute); math.Abs(got/r.us-1) > 0.4 {
			t.Errorf("%+v: %.1f us, %+.0f %%", r, got, 100*(got/r.us-1))
		}
	}
	for _, g := range GPUs() {
		for _, bits := range []int{16, 8, 4} {
			if s, peak := g.experts(bits); s.Read <= 0 || s.Read > 1 || s.Compute <= 0 || s.Compute > 1 || peak <= 0 {
				t.Errorf("%s, %d bits: %+v at %v/s, expected shares up to 1", g.Name, bits, s, peak)
			}
		}
	}
}

// gpt-oss has experts in 4 bits and other weights in 16, and every second layer sees 128 tokens. Its 18 other layers
// keep 18 x 2 x 8 x 64 x 2 = 36,864 bytes of a token; a running request reads the windows, 18 x 128 x 2048 bytes.
func TestDenseBitsAndWindows(t *testing.T) {
	p, err := analytic("gpt-oss-120b", "h100", 1, 0).Profile()
	if err != nil {
		t.Fatal(err)
	}
	if p.Memory.KVBytesPerToken != 36864 {
		t.Errorf("%d bytes of a token in the KV cache, expected 36864", p.Memory.KVBytesPerToken)
	}
	// 70.4 GiB - weights: 114.7e9 / 2 bytes of experts, 2.1e9 x 2 of the rest
	if want := 80*0.88 - (114.66e9/2+2.17e9*2)/gib; math.Abs(p.Memory.PoolGiB-want) > 0.2 {
		t.Errorf("a pool of %v GiB, expected %.2f", p.Memory.PoolGiB, want)
	}
	windows := 18 * 128 * 2048 / (0.9 * 3350e9) * 1000
	if got := p.Latency.Decode.PerRequestMs; got < windows || got > 3*windows {
		t.Errorf("a request adds %v ms, of which its windows take %v", got, windows)
	}
	whole, err := analytic("gpt-oss-120b", "h100", 4, 16).Profile()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := whole.Latency.Decode.BaseMs*4, p.Latency.Decode.BaseMs; math.Abs(got/want-1) > 0.15 {
		t.Errorf("weights that are not experts take %v ms of one GPU, expected %v in either form", got, want)
	}
}
