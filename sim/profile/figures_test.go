package profile

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// figureFactor is how far computed profiles may be off a published figure, up or down. The largest is the time of short
// prompts in TensorRT-LLM 0.5, which was written in C++; the engine's times are those of its successor 1.0.
const figureFactor = 1.7

const (
	gptFast     = "https://github.com/pytorch-labs/gpt-fast (README), 2024"
	gptFast27   = "https://github.com/pytorch-labs/gpt-fast/issues/27, 2023-12"
	lmdeploy    = "https://github.com/InternLM/lmdeploy/blob/main/docs/en/benchmark/a100_fp16.md, v0.1.0a1, 2023-12"
	tensorRT    = "https://github.com/NVIDIA/TensorRT-LLM/blob/release/0.5.0/docs/source/performance.md, v0.5, 2023-10"
	qwenSpeed   = "https://github.com/QwenLM/Qwen2.5 (docs/source/benchmark/speed_benchmark.rst), vLLM 0.6.3, 2024-10"
	tenstorrent = "https://github.com/tenstorrent/tt-inference-server/issues/340, vLLM, 2025-07"
	tt394       = "https://github.com/tenstorrent/tt-inference-server/issues/394, vLLM, 2025-11"
	inferenceX  = "https://github.com/SemiAnalysisAI/InferenceX/issues/870, SGLang 0.5.7, DeepSeek-R1, 2026-03"
	lmsysEP     = "https://lmsys.org/blog/2025-05-05-large-scale-ep/, 8 H100 of a group of 32, 2025-05"
	cudaGraphs  = "https://cloudai.pt/tag/cuda-graphs/, 2026"
	embeddedV3  = "measured: sglang, 8 GPUs, tp8 (embedded deepseek-v3-8xh200-sglang-flashinfer), 2025"
	vllmHours   = "https://github.com/FerranAgulloLopez/GPULLMAdapterOptimization, vLLM 0.8.5, 2025"
	measured    = "measured: vLLM 0.23, 2 requests/s (../shared/design/measured-runs.md), 2026"
)

// figure is a published time of one step.
type figure struct {
	model, gpu string
	tp, bits   int
	// A decode step of batch requests with ctx tokens each, or, where tokens is not 0, one
	// prefill step of batch prompts of tokens.
	batch, ctx int64
	tokens     int64
	ms         float64
	source     string
}

func perSecond(rate float64) float64 { return 1000 / rate }

// figures are public single-stream and batched decode rates, and times of a prefill. A
// first-token time is that of the prefill alone. Times to the first token of sources
// whose prompts were plainly cached (longer prompts that take less) are left out.
var figures = []figure{
	{"llama-2-7b", "a100-80gb", 1, 16, 1, 100, 0, perSecond(104.9), gptFast},
	{"llama-2-7b", "a100-80gb", 8, 16, 1, 100, 0, perSecond(328.43), gptFast},
	{"llama-2-70b", "a100-80gb", 2, 16, 1, 100, 0, perSecond(21.32), gptFast},
	{"llama-2-70b", "a100-80gb", 4, 16, 1, 100, 0, perSecond(38.01), gptFast},
	{"llama-2-70b", "a100-80gb", 8, 16, 1, 100, 0, perSecond(62.50), gptFast},
	{"llama-2-7b", "rtx-4090", 1, 16, 1, 100, 0, perSecond(65), gptFast27},
	{"llama-2-13b", "a100-80gb", 1, 16, 1, 64, 0, perSecond(57.49), lmdeploy},
	{"llama-2-7b", "a100-80gb", 1, 16, 16, 192, 0, 11, lmdeploy},
	{"llama-2-7b", "a100-80gb", 1, 16, 64, 64, 0, 12, lmdeploy},
	{"llama-2-7b", "a100-80gb", 1, 16, 32, 1152, 0, 21, lmdeploy},
	{"llama-2-13b", "a100-80gb", 1, 16, 32, 192, 0, 21, lmdeploy},
	{"llama-2-70b", "a100-80gb", 4, 16, 64, 1152, 0, 43, lmdeploy},
	{"qwen2.5-0.5b", "a100-80gb", 1, 16, 1, 1024, 0, perSecond(311.55), qwenSpeed},
	{"qwen2.5-7b", "a100-80gb", 1, 16, 1, 1024, 0, perSecond(84.28), qwenSpeed},
	{"qwen2.5-14b", "a100-80gb", 1, 16, 1, 7168, 0, perSecond(43.83), qwenSpeed},
	{"qwen2.5-32b", "a100-80gb", 1, 16, 1, 1024, 0, perSecond(22.13), qwenSpeed},
	{"qwen3-30b-a3b", "a100-80gb", 1, 16, 1, 192, 0, 9.6, tenstorrent},
	{"qwen3-4b", "rtx-4090", 1, 16, 1, 640, 0, 10.4, tt394},
	{"llama-3.1-8b", "h100", 1, 16, 1, 100, 0, 5.1, cudaGraphs},
	{"qwen3-14b", "h100", 1, 16, 4, 800, 0, 12.33, measured},
	{"llama-3.1-8b", "h100-64gb", 1, 16, 1, 50, 0, 11.9, vllmHours},
	{"llama-3.1-8b", "h100-64gb", 1, 16, 100, 50, 0, 14.24, vllmHours},
	{"llama-3.1-8b", "h100-64gb", 1, 16, 220, 50, 0, 16.99, vllmHours},
	{"qwen2.5-7b", "h100-64gb", 1, 16, 1, 50, 0, 11.73, vllmHours},
	{"qwen2.5-7b", "h100-64gb", 1, 16, 100, 50, 0, 15.07, vllmHours},
	{"deepseek-v3", "h200", 8, 8, 4, 5000, 0, 10.93, inferenceX},
	{"llama-2-7b", "a100-80gb", 1, 16, 1, 0, 128, 16, tensorRT},
	{"llama-2-7b", "a100-80gb", 1, 16, 1, 0, 2048, 133, tensorRT},
	{"llama-2-13b", "a100-80gb", 1, 16, 1, 0, 2048, 242, lmdeploy},
	{"llama-2-70b", "a100-80gb", 4, 16, 1, 0, 2048, 377, tensorRT},
	{"llama-3.1-8b", "h100-64gb", 1, 16, 16, 0, 128, 54.87, vllmHours},
	{"llama-2-7b", "h100", 1, 8, 1, 0, 128, 7, tensorRT},
	{"llama-2-7b", "h100", 1, 8, 1, 0, 2048, 36, tensorRT},
	{"llama-2-70b", "h100", 4, 8, 1, 0, 2048, 109, tensorRT},
	{"llama-2-7b", "l40s", 1, 8, 1, 0, 2048, 73, tensorRT},
	{"deepseek-v3", "h200", 8, 8, 4, 0, 2000, 8000 / 52.3, lmsysEP},
	{"deepseek-v3", "h200", 8, 8, 8, 0, 1000, 3.433 + 8*36.94, embeddedV3},
}

// engine returns the engine whose times a computed profile of the figure has. Programs that serve no requests, and
// LMDeploy, which is written in C++, are taken to be like TensorRT-LLM.
func (f *figure) engine() string {
	switch f.source {
	case qwenSpeed, tenstorrent, tt394, cudaGraphs, vllmHours, measured:
		return SchedulerVLLM
	case inferenceX, lmsysEP, embeddedV3:
		return SchedulerSGLang
	}
	return trtllm
}

// computed returns the time of the step with a profile, ms.
func (f *figure) computed(p *Profile) float64 {
	w := StepWork{Batch: f.batch, KV: f.batch * f.ctx}
	if f.tokens > 0 {
		w = StepWork{}
		for range f.batch {
			w.Add(f.tokens, 0, false)
		}
	}
	return p.Compile().Step(&w).Milliseconds()
}

// Computed profiles are within a stated factor of what was published. Run with -v for the
// table of lab/docs/computed-profiles.md.
func TestPublishedFigures(t *testing.T) {
	pairs := map[string]bool{}
	var ratios []float64
	for _, f := range figures {
		a := analytic(f.model, f.gpu, f.tp, f.bits)
		a.Engine = f.engine()
		a.MemoryShare = 1 // single requests need no room for adapters and many requests
		p, err := a.Profile()
		if err != nil {
			t.Fatal(err)
		}
		what := fmt.Sprintf("decode, %d x %d tokens", f.batch, f.ctx)
		if f.tokens > 0 {
			what = fmt.Sprintf("prefill, %d x %d tokens", f.batch, f.tokens)
		}
		// sglang of the sources has the overlap schedule, vLLM only from 0.14 on schedules asynchronously.
		p.Engine.OverlapSchedule = a.Engine == SchedulerSGLang
		p.Engine.AsyncScheduling = a.Engine == trtllm || f.source == measured
		ms := f.computed(p)
		if off := math.Max(ms/f.ms, f.ms/ms); off > figureFactor {
			t.Errorf("%s on %d x %s, %s: %.3g ms, published %.3g: off by a factor of %.2f (%s)", f.model, f.tp, f.gpu,
				what, ms, f.ms, off, f.source)
		}
		pairs[f.model+f.gpu] = true
		ratios = append(ratios, math.Max(ms/f.ms, f.ms/ms))
		t.Logf("| %s | %d x %s | %d | %s | %.3g | %.3g | %.2f | %s |", f.model, f.tp, f.gpu, f.bits, what, f.ms, ms,
			ms/f.ms, f.source)
	}
	slices.Sort(ratios)
	t.Logf("median factor %.2f, largest %.2f", ratios[len(ratios)/2], ratios[len(ratios)-1])
	if len(pairs) < 8 {
		t.Errorf("%d pairs of model and GPU, expected at least 8", len(pairs))
	}
}
