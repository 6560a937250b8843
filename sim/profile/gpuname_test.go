package profile

import (
	"slices"
	"strings"
	"testing"
)

// TestForGPU: a GPU by its name in any spelling has a profile: a measured one if there is one. A name that several
// profiles fit is an error that lists them.
func TestForGPU(t *testing.T) {
	const measured4090, llama, qwen, qwen3 = "llama-2-7b-rtx-4090-sglang-0.5", "llama-3.1-8b-h100-64gb-vllm-0.8.5",
		"qwen2.5-7b-h100-64gb-vllm-0.8.5", "qwen3-14b-h100-vllm-0.23"
	for gpu, want := range map[string][]string{
		"H100": {llama, qwen, qwen3, "analytic:llama-3.1-8b,h100"}, "h100-64gb": {llama, qwen},
		"RTX 4090": {measured4090}, "rtx-4090": {measured4090}, "h200": {"analytic:llama-3.1-8b,h200"},
		"A100":      {"analytic:llama-3.1-8b,a100-80gb", "analytic:llama-3.1-8b,a100-40gb"},
		"a100-40gb": {"analytic:llama-3.1-8b,a100-40gb"}, "l40s": {"analytic:llama-3.1-8b,l40s"},
		"h1": nil, "": nil, "h": nil, "rtx": nil, "h100x": nil,
	} {
		if got := ForGPU(gpu); !slices.Equal(got, want) {
			t.Errorf("%q: %q, expected %q", gpu, got, want)
		}
		p, err := Load(t.Context(), gpu)
		switch {
		case len(want) == 1 && (err != nil || p.Check() != nil), len(want) == 0 && err == nil:
			t.Errorf("Load(%q): %v", gpu, err)
		case len(want) > 1 && (err == nil || strings.Count(err.Error(), "\n") != len(want)):
			t.Errorf("Load(%q): %v, expected %d choices", gpu, err, len(want))
		}
	}
	_, err := Load(t.Context(), "h100")
	if want := "\n  analytic:llama-3.1-8b,h100: 1 x h100 (80 GiB, 3.35 TB/s), rules of sglang, computed"; err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("%v, expected %q", err, want)
	}
}

// TestDiffers: a short name warns if a GPU of the same name, but other memory, is 30 % faster or slower.
func TestDiffers(t *testing.T) {
	for short, want := range map[string]string{
		"llama-3.1-8b-h100": "profile llama-3.1-8b-h100 is llama-3.1-8b-h100-64gb-vllm-0.8.5 (H100 64 GB, about 2 TB/s); " +
			"on 1 x h100 (80 GiB, 3.35 TB/s) a decode step is -43 %",
		"llama-3.1-8b-h100-64gb-vllm-0.8.5": "", "qwen3-14b-h100": "", "llama2-7b-24gb": "", "h100": "", "x.yaml": "",
	} {
		if got := Differs(t.Context(), short); want == "" && got != "" || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, expected %q", short, got, want)
		}
	}
}
