package profile

import "testing"

// A GPU by its name in any spelling has a profile: a measured one where there is one.
func TestForGPU(t *testing.T) {
	const measured4090, measuredH100 = "llama-2-7b-rtx-4090-sglang-0.5", "llama-3.1-8b-h100-64gb-vllm-0.8.5"
	for gpu, want := range map[string]string{
		"H100": measuredH100, "h100-64gb": measuredH100, "RTX 4090": measured4090,
		"rtx-4090": measured4090, "h200": "analytic:llama-3.1-8b,h200", "A100": "analytic:llama-3.1-8b,a100-80gb",
		"l40s": "analytic:llama-3.1-8b,l40s", "h1": "", "": "", "h": "", "rtx": "", "h100x": "",
	} {
		got, ok := ForGPU(gpu)
		if got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v, expected %q", gpu, got, ok, want)
		}
		p, err := Load(t.Context(), gpu)
		if want != "" && (err != nil || p.Check() != nil) || want == "" && err == nil {
			t.Errorf("Load(%q): %v", gpu, err)
		}
	}
}
