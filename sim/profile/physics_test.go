package profile

import (
	"fmt"
	"testing"
)

// noFloor is a profile of a card that hardware.yaml does not have.
const noFloor = "llama-7b-a10g-s-lora"

// Every other embedded profile names a card and a model of hardware.yaml, so that the checks
// below hold it to them.
func TestEveryProfileHasAFloor(t *testing.T) {
	want := map[string][2]string{
		"deepseek-v3-8xh200-sglang-flashinfer": {"h200", "deepseek-v3"},
		"deepseek-v3-8xh200-sglang-triton":     {"h200", "deepseek-v3"},
		"llama-3.1-8b-h100-64gb-vllm-0.8.5":    {"h100-64gb", "llama-3.1-8b"},
		"qwen2.5-7b-h100-64gb-vllm-0.8.5":      {"h100-64gb", "qwen2.5-7b"},
		"llama-2-7b-rtx-4090-sglang-0.5":       {"rtx-4090", "llama-2-7b"},
		"llama-2-7b-a100-80gb-dlora":           {"a100-80gb", "llama-2-7b"},
		"qwen3-14b-h100-vllm-0.23":             {"h100", "qwen3-14b"},
		"llama-3.1-8b-h100-vllm-0.33":          {"h100", "llama-3.1-8b"},
	}
	for _, name := range Names() {
		if name == noFloor {
			continue
		}
		p, err := Load(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		f, ok := p.Floor()
		if !ok || f.Model == nil {
			t.Errorf("%s: no card or model for %q, %q", name, p.GPU, p.Model)
			continue
		}
		if got := [2]string{f.GPU.Name, f.Model.Name}; got != want[name] {
			t.Errorf("%s: %v, expected %v", name, got, want[name])
		}
	}
}

// No embedded profile reads memory faster than its card or computes above its peak.
func TestEmbeddedProfilesArePhysical(t *testing.T) {
	for _, name := range Names() {
		if name == noFloor {
			continue
		}
		p, err := Load(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		checkPhysics(t, p)
	}
}

// Nor does any computed one.
func TestComputedProfilesArePhysical(t *testing.T) {
	pairs := 0
	for _, m := range Architectures() {
		for _, g := range GPUs() {
			for _, bits := range []int{16, 8, 4} {
				p, err := analytic(m.Name, g.Name, 0, bits).Profile()
				if err != nil {
					continue // does not fit on 64 cards
				}
				checkPhysics(t, p)
				pairs++
			}
		}
	}
	if pairs < 250 {
		t.Errorf("%d profiles were checked, expected nearly all models on all cards", pairs)
	}
}

// checkPhysics holds decode and prefill steps of a profile to what its cards can do: a
// step takes at least as long as reading the bytes that it needs, and as computing its
// prompt tokens.
func checkPhysics(t *testing.T, p *Profile) {
	t.Helper()
	f, ok := p.Floor()
	if !ok || f.Model == nil {
		t.Fatalf("%s: no card or model for %q, %q", p.Name, p.GPU, p.Model)
	}
	const tolerance = 1 - 1e-6 // ticks are whole nanoseconds
	faster := func(what string, ms, least float64) {
		if ms < least*tolerance {
			t.Errorf("%s: %s takes %.4g ms, its cards need %.4g", p.Name, what, ms, least)
		}
	}
	if got := p.Latency.Decode.PerKVTokenUs + p.Latency.Adapters.PerKVTokenUs; got < f.PerKVTokenUs()*tolerance {
		t.Errorf("%s: a KV token takes %.4g us, its cards need %.4g", p.Name, got, f.PerKVTokenUs())
	}
	costs, loras := p.Compile(), p.Latency.LoRA.Backend != BackendNone
	for _, batch := range []int64{1, 2, 8, 16, 64, 256} {
		if batch > int64(p.Engine.MaxRunningRequests) {
			continue
		}
		for _, ctx := range []int64{1, 500, 4000} {
			w := StepWork{Batch: batch, KV: batch * ctx}
			kv := f.PerKVTokenUs() * float64(w.KV) / 1000
			faster(fmt.Sprintf("a decode step of %d requests of %d tokens", batch, ctx), 1000*costs.Step(&w).Seconds(),
				f.weightsMs()+kv)
			for _, rank := range []int{8, 16, 64} {
				if !loras || rank > p.Engine.MaxLoraRank {
					continue
				}
				distinct := min(batch, int64(p.Engine.MaxLorasPerBatch))
				ms := 1000 * (Model{costs}).DecodeStep(int(batch), int(batch), w.KV, rank)
				faster(fmt.Sprintf("a decode step of %d requests of %d tokens with %d adapters of rank %d", batch, ctx,
					distinct, rank), ms,
					f.weightsMs()+kv+f.adapterMs(p.Adapters.BytesPerRank, int(distinct)*rank))
			}
		}
	}
	for _, n := range []int64{1, 16, 64, 512, 2048, 8192} {
		if n > costs.chunk {
			continue
		}
		ms := 1000 * costs.prompt(n)
		faster(fmt.Sprintf("a prefill step of %d tokens", n), ms, f.weightsMs())
		faster(fmt.Sprintf("computing %d tokens", n), ms, float64(n)*f.PerTokenUs()/1000)
	}
}
