package profile

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"lorasim/internal/testutil"
)

// byHand is a table with round numbers: base 100 us, 10 an adapter, 4 a tile, 1 a token, 0.5 a tile of the grid, ten
// times that at rank 32, and twice that in the second kind of steps.
func byHand(backend string) KernelTimes {
	k := KernelTimes{Of: backend}
	for i, kind := range KernelKinds(backend) {
		s := KernelSteps{Steps: kind}
		for j, rank := range []int{16, 32} {
			us := [5]float64{100, 10, 4, 1, 0.5}
			for t := range us {
				us[t] *= float64(1+i) * math.Pow(10, float64(j))
			}
			s.Add(rank, us)
		}
		k.BySteps = append(k.BySteps, s)
	}
	return k
}

// Steps by hand, us. vLLM: ranks are those of the slots, tiles of 32 tokens below 128 and of 64 from there on, in a
// grid for each slot and the base model. csgmv: segments of 16 tokens in a grid of 256 or 512. triton: a grid of all
// tokens for each slot; both without a grid in steps with prompts.
func TestKernelTimes(t *testing.T) {
	for _, x := range []struct {
		name, backend, kernels string
		rank                   int // of the slots
		w                      StepWork
		tokens                 []int64 // of each adapter
		want                   float64
	}{
		{"two adapters", BackendPunica, "", 16, StepWork{Batch: 40, LoRAs: 34}, []int64{33, 1},
			100 + 2*10 + 3*4 + 34 + 9*2*0.5},
		{"padded rank", BackendPunica, "", 32, StepWork{Batch: 1, LoRAs: 1}, []int64{1}, 1000 + 100 + 40 + 10 + 9*5},
		{"rank between", BackendPunica, "", 24, StepWork{Batch: 1, LoRAs: 1}, []int64{1},
			5.5 * (100 + 10 + 4 + 1 + 9*0.5)},
		{"rank below", BackendPunica, "", 8, StepWork{Batch: 1, LoRAs: 1}, []int64{1}, 100 + 10 + 4 + 1 + 9*0.5},
		{"rank above", BackendPunica, "", 48, StepWork{Batch: 1, LoRAs: 1}, []int64{1},
			19 * (100 + 10 + 4 + 1 + 9*0.5)},
		{"128 tokens", BackendPunica, "", 16, StepWork{Batch: 28, LoRAs: 28, Tokens: 100, LoRATokens: 100},
			[]int64{100, 28}, 2 * (100 + 2*10 + 3*4 + 128 + 9*2*0.5)},
		{"513 tokens", BackendPunica, "", 16, StepWork{Tokens: 513, LoRATokens: 513}, []int64{513},
			3 * (100 + 10 + 9*4 + 513 + 9*9*0.5)},
		{"no adapter", BackendPunica, "", 16, StepWork{Batch: 40}, nil, 0},
		{"no adapter, old", BackendPunica, kernelsEveryStep, 16, StepWork{Batch: 40}, nil, 100 + 9*2*0.5},
		{"three active", BackendPunica, kernelsActive, 16, StepWork{Batch: 3, LoRAs: 3}, []int64{1, 1, 1},
			100 + 3*10 + 3*4 + 3 + 5*0.5},
		{"csgmv", BackendCSGMV, "", 64, StepWork{Batch: 34, LoRAs: 34, RankTokens: 34 * 16}, []int64{33, 1},
			100 + 2*10 + 4*4 + 34 + 256*0.5},
		{"csgmv, 257", BackendCSGMV, "", 64, StepWork{Batch: 257, LoRAs: 1, RankTokens: 32}, []int64{1},
			10 * (100 + 10 + 4 + 1 + 512*0.5)},
		{"csgmv, prompt", BackendCSGMV, "", 64, StepWork{Tokens: 100, LoRATokens: 100, RankTokens: 1600}, []int64{100},
			2 * (100 + 10 + 7*4 + 100)},
		{"csgmv, mixed ranks", BackendCSGMV, "", 64, StepWork{Batch: 2, LoRAs: 2, RankTokens: 48}, []int64{1, 1},
			5.5 * (100 + 2*10 + 2*4 + 2 + 256*0.5)},
		{"triton", BackendTriton, "", 64, StepWork{Batch: 40, LoRAs: 34, RankTokens: 34 * 16}, []int64{33, 1},
			100 + 2*10 + 4*4 + 34 + 8*3*0.5},
	} {
		p := Default()
		p.Latency.LoRA = LoRA{Backend: x.backend, Kernels: x.kernels, KernelTimes: byHand(x.backend)}
		p.Engine.MaxLorasPerBatch, p.Engine.MaxLoraRank = 8, x.rank
		for _, factor := range []float64{0, 2} {
			p.Latency.LoRA.KernelTimes.Factor = factor
			c := p.Compile()
			w := x.w
			w.Adapters = int64(len(x.tokens))
			for _, n := range x.tokens {
				w.Tiles.Add(c.TileHeights(), 0, n)
			}
			want := x.want / 1000 * max(factor, 1)
			if got := c.adapterTime(&w).Milliseconds(); math.Abs(got-want) > 1e-9 {
				t.Errorf("%s: %v ms, expected %v", x.name, got, want)
			}
			if n := testing.AllocsPerRun(10, func() { c.adapterTime(&w) }); n != 0 {
				t.Errorf("%s: %v allocations", x.name, n)
			}
		}
	}
	// the tiles of tokens that are added to others, and evenly divided ones
	var tiles Tiles
	tiles.Add([2]int64{32, 64}, 0, 33)
	tiles.Add([2]int64{32, 64}, 33, 31)
	tiles.Add([2]int64{32, 64}, 64, -1)
	if tiles != (Tiles{2, 1}) {
		t.Errorf("%v tiles of 63 tokens, expected 2 and 1", tiles)
	}
	p := Default()
	p.Latency.LoRA = LoRA{Backend: BackendPunica, KernelTimes: byHand(BackendPunica)}
	if got := p.Compile().tiles(100, 3); got != (Tiles{6, 3}) { // 34, 33 and 33 tokens
		t.Errorf("%v tiles, expected 6 and 3", got)
	}
}

// A profile with measured kernels is read back as it was written; tables that are not whole are refused.
func TestKernelTimesInFiles(t *testing.T) {
	p, err := Load(t.Context(), "analytic:qwen3-14b,h100,engine=vllm")
	if err != nil {
		t.Fatal(err)
	}
	text, err := p.YAML()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse(text, "x")
	if err != nil || !reflect.DeepEqual(again.Latency, p.Latency) {
		t.Fatalf("%v: %+v, expected %+v", err, again, p.Latency)
	}
	for was, want := range map[string]string{
		"of: punica":        `latency.lora.kernel_times.of is "none"`,
		"backend: punica":   "latency.lora.backend is triton, for which the profile has no coefficients",
		"steps: to-512":     "latency.lora.kernel_times has no steps to-512",
		"ranks: [8, 16":     "steps below-128: ranks [16 16",
		"law: roofline":     "kernel_times needs latency.law phases or roofline",
		"per_token_us: [0.": "expected numbers in [0, 10^9)",
		"base_us: [":        "expected as many numbers as ranks (5)",
	} {
		now := map[string]string{"of: punica": "of: none", "backend: punica": "backend: triton",
			"steps: to-512": "steps: above-512", "ranks: [8, 16": "ranks: [16, 16", "law: roofline": "law: adapters",
			"per_token_us: [0.": "per_token_us: [-1.", "base_us: [": "base_us: [1.0, "}[was]
		bad := strings.Replace(string(text), was, now, 1)
		if was == "of: punica" {
			want = "is \"none\", expected one of"
		}
		if bad == string(text) {
			t.Errorf("the profile has no %q:\n%s", was, text)
		}
		_, err := Parse([]byte(bad), "x")
		testutil.ExpectError(t, err, want)
	}
	slow := p.Slower(2)
	if a, b := slow.Latency.LoRA.KernelTimes.BySteps[0].BaseUs[1],
		p.Latency.LoRA.KernelTimes.BySteps[0].BaseUs[1]; a != 2*b {
		t.Errorf("base %v us in a slower profile, expected twice %v", a, b)
	}
}

// Each engine's kernels in computed profiles, and sglang's second backend.
func TestComputedKernels(t *testing.T) {
	p, err := Load(t.Context(), "analytic:llama-3.1-8b,h100")
	if err != nil {
		t.Fatal(err)
	}
	l := &p.Latency.LoRA
	if l.Backend != BackendCSGMV || l.KernelTimes.Of != BackendCSGMV {
		t.Errorf("%+v, expected csgmv", l)
	}
	// a layer of the table is one of Llama-3.1-8B, which has 32
	layer := measuredKernels()[1].BySteps[1].At(16)[2]
	if got, want := l.KernelTimes.BySteps[1].At(16)[2], Round4(32*layer); got != want {
		t.Errorf("a tile takes %v us, expected %v", got, want)
	}
	for _, c := range [][2]string{{BackendTriton, BackendTriton}, {BackendNone, BackendTriton},
		{BackendCSGMV, BackendCSGMV}} { // the last one is that of p before
		p.Latency.LoRA.Backend = BackendTriton
		p.FollowBackend()
		p.Latency.LoRA.Backend = c[0]
		if p.FollowBackend(); p.Latency.LoRA.KernelTimes.Of != c[1] || p.Check() != nil {
			t.Errorf("backend %s: kernels of %s, expected %s (%v)", c[0], p.Latency.LoRA.KernelTimes.Of, c[1],
				p.Check())
		}
	}
	two, err := analytic("llama-3.1-8b", "h100", 2, 0).Profile()
	if err != nil {
		t.Fatal(err)
	}
	// two GPUs: each has half of the outputs of q, k, v, gate and up, and half of the inputs of o and down, which are
	// 53,248 of the sizes of 81,920 in a layer
	if got, want := two.Latency.LoRA.KernelTimes.BySteps[1].At(16)[2]/l.KernelTimes.BySteps[1].At(16)[2],
		1-53248.0/2/81920; math.Abs(got/want-1) > 1e-3 {
		t.Errorf("two GPUs: a tile takes %v of the time of one, expected %v", got, want)
	}
}

// Kernels of vLLM 0.33 on a card with 3.35 TB/s agree with what runs of vLLM 0.8.5 on a card with 2 TB/s showed: the
// time that a decode step of 64 requests takes longer than one of 8, if all use adapters of their own. What every step
// has is a part of base in those profiles.
func TestKernelsAgreeWithRuns(t *testing.T) {
	for name, model := range map[string]string{"llama-3.1-8b-h100-64gb-vllm-0.8.5": "llama-3.1-8b",
		"qwen2.5-7b-h100-64gb-vllm-0.8.5": "qwen2.5-7b"} {
		runs, err := Load(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		kernels, err := Load(t.Context(), AnalyticPrefix+model+",h100-64gb,engine=vllm")
		if err != nil {
			t.Fatal(err)
		}
		ms := func(p *Profile, adapters, rank int) float64 {
			p.Engine.MaxLorasPerBatch, p.Engine.MaxLoraRank = adapters, rank
			n := int64(adapters)
			w := StepWork{Batch: n, LoRAs: n, Adapters: n, Tiles: Tiles{n, n}}
			if c := p.Compile(); c.adapters != nil {
				return c.adapters.lora(&w).Milliseconds()
			}
			return p.Compile().adapterTime(&w).Milliseconds()
		}
		for _, rank := range []int{16, 32} {
			a, b := ms(runs, 64, rank)-ms(runs, 8, rank), ms(kernels, 64, rank)-ms(kernels, 8, rank)
			t.Logf("%s, rank %d: 56 adapters more take %.1f ms by runs, %.1f ms by kernels", model, rank, a, b)
			if math.Abs(b/a-1) > 0.16 {
				t.Errorf("%s, rank %d: %.1f ms by runs, %.1f ms by kernels", model, rank, a, b)
			}
		}
	}
}

// BenchmarkKernelStep measures the time of a step with measured kernels.
func BenchmarkKernelStep(b *testing.B) {
	p, err := analytic("llama-3.1-8b", "h100", 1, 0).Profile()
	if err != nil {
		b.Fatal(err)
	}
	c := p.Compile()
	w := StepWork{Batch: 64, LoRAs: 64, Adapters: 16, RankTokens: 64 * 16, Tiles: Tiles{16, 16}}
	for b.Loop() {
		c.Step(&w)
	}
}
