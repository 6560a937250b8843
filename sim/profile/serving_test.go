package profile

import (
	"math"
	"testing"

	"lorasim/internal/testutil"
)

// The defaults are those of the engines' sources, by the memory and the name of the GPU and by use.
func TestServingDefaults(t *testing.T) {
	for _, c := range []struct {
		engine, gpu string
		step, seqs  int // sglang: tokens of a prefill step
	}{
		{"vllm-0.33", "h100", 8192, 1024}, {"vllm-0.33:llm", "h100", 16384, 1024},
		{"vllm-0.32", "h200", 8192, 1024}, {"vllm-0.23", "h100", 8192, 1024},
		{"vllm-0.33", "a100-80gb", 2048, 256}, {"vllm-0.33:llm", "a100-80gb", 8192, 256},
		{"vllm-0.33", "h100-64gb", 2048, 256}, {"vllm-0.33", "l40s", 2048, 256},
		{"vllm-0.11", "h100", 8192, 1024}, {"vllm-0.11", "a100-40gb", 2048, 256},
		{"vllm-0.11:llm", "h200", 16384, 1024},
		{"sglang-0.5.23", "rtx-4090", 4096, 2048}, {"sglang-0.5.23", "l40s", 4096, 2048},
		{"sglang-0.5.23", "h100", 8192, 2048}, {"sglang-0.5.23", "h200", 8192, 3411}, // 873,292 KV tokens
	} {
		s, err := ParseServing(c.engine)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Load(t.Context(), "analytic:llama-3.1-8b,"+c.gpu)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Apply(p); err != nil {
			t.Fatal(err)
		}
		e := &p.Engine
		step := e.MaxNumBatchedTokens
		vllm, old := s.Engine == SchedulerVLLM, s.Version == "0.11"
		if !vllm {
			step = e.ChunkedPrefillSize
		}
		if step != c.step || e.MaxRunningRequests != c.seqs || e.Scheduler != s.Engine ||
			e.AsyncScheduling != (vllm && !old) ||
			e.NoReserveFullISL != old ||
			(e.PageSize == 16) != vllm || e.MaxLoraRank != 64 || vllm && e.VLLMVersion != s.Version {
			t.Errorf("%s on %s: %+v, expected %d tokens a step and %d requests", c.engine, c.gpu, e, c.step, c.seqs)
		}
		if err := p.Check(); err != nil {
			t.Errorf("%s on %s: %v", c.engine, c.gpu, err)
		}
	}
}

// vLLM's share of the memory gives the KV cache that two servers printed, within 1 %: that of Qwen3-14B on an H100 of
// 80 GB, and with a share of 0.9 that of Llama-3.1-8B on one of 64 GB.
func TestServingMemory(t *testing.T) {
	for name, c := range map[string]struct{ tokens, share float64 }{
		"analytic:qwen3-14b,h100":         {288_608, vllmShare},
		"analytic:llama-3.1-8b,h100-64gb": {334_944, 0.9},
	} {
		p, err := Load(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		p.share(gpuOf(p.GPU), c.share-vllmOverhead)
		got := p.Memory.PoolGiB * gib / float64(p.Memory.KVBytesPerToken)
		if math.Abs(got/c.tokens-1) > 0.01 {
			t.Errorf("%s: %.0f KV tokens, the server has %.0f", name, got, c.tokens)
		}
	}
}

// A measured profile keeps its KV cache and slots; a GPU that is unknown has no defaults.
func TestServingOnOtherProfiles(t *testing.T) {
	s, err := ParseServing("vllm-0.33")
	if err != nil {
		t.Fatal(err)
	}
	p, err := Load(t.Context(), "qwen3-14b-h100")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(p); err != nil || p.Memory.KVTokens != 288_608 || p.Engine.MaxLorasPerBatch != 8 ||
		p.Engine.VLLMVersion != "0.33" || p.Engine.MaxRunningRequests != 1024 {
		t.Errorf("%v, %+v, %+v", err, p.Memory, p.Engine)
	}
	p.GPU = "TPU"
	testutil.ExpectError(t, s.Apply(p), `profile qwen3-14b-h100-vllm-0.23 has gpu "TPU": expected one of rtx-4090, l40s`)
	_, err = ParseServing("vllm-0.34")
	testutil.ExpectError(t, err, `unknown engine "vllm-0.34", expected one of vllm-0.33, vllm-0.33:llm`)
	for _, text := range Servings() {
		if got, err := ParseServing(text); err != nil || got.String() != text {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}
