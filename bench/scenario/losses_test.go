package scenario

import (
	"context"
	"testing"

	"lorasim/bench/result"
	"lorasim/internal/testutil"
	"lorasim/trace/settings"
)

// Scenarios in which plan-and-route was up to several times worse than a simple policy. It may be worse by a small
// share of mean E2E and of mean TTFT.
func TestNoLossToSimplePolicies(t *testing.T) {
	for _, c := range []struct {
		name      string
		set       []string
		rate      float64
		requests  int64
		simple    string
		e2e, ttft float64 // ratio to the simple policy, at most
	}{
		{"old metrics with a nearly full KV cache", []string{"num_workers", "12", "num_adapters", "16",
			"lora_ranks", "16", "lengths", "constant:2000,50", "max_new_tokens", "exact", "view_staleness", "5"},
			27, 2000, "least-loaded", 1.03, 0.95},
		{"limited host memory and a remote store", []string{"num_workers", "4", "num_adapters", "64",
			"lora_ranks", "64", "max_loaded_loras", "12", "adapter_home", "remote"},
			5, 5000, "static", 1.0, 0.98},
		{"one slot a worker", []string{"profile", "llama-3.1-8b-h100-64gb-vllm-0.8.5", "lora_ranks", "16",
			"num_workers", "4", "max_loras_per_batch", "1", "num_adapters", "16", "popularity", "uniform"},
			4.4, 3000, "static", 1.03, 1.03},
		{"two slots a worker, near saturation", []string{"num_workers", "6", "num_adapters", "500",
			"lora_ranks", "8", "max_loras_per_batch", "2", "max_loaded_loras", "125", "adapter_home", "remote",
			"lengths", "constant:50,10", "popularity", "zipf:2"},
			272, 8000, "affinity", 1.05, 1.05},
	} {
		mean := func(policy string) (e2e, ttft float64) {
			const seeds = 3
			for seed := uint64(1); seed <= seeds; seed++ {
				sc := Default()
				sc.Workload.RequestRate, sc.Workload.NumPrompts, sc.Seed = c.rate, settings.Some(c.requests), seed
				testutil.Set(t, &sc, append([]string{"policy", policy}, c.set...)...)
				res, err := sc.Simulate(context.Background(), RunOptions{})
				if err != nil {
					t.Fatalf("%s: %v", c.name, err)
				}
				one, _ := res.Metrics.Get(result.MeanE2E)
				first, _ := res.Metrics.Get(result.MeanTTFT)
				e2e, ttft = e2e+one/seeds, ttft+first/seeds
			}
			return e2e, ttft
		}
		e2e, ttft := mean("plan-and-route")
		simpleE2E, simpleTTFT := mean(c.simple)
		t.Logf("%s: E2E %.3f and TTFT %.3f times as much as %s", c.name, e2e/simpleE2E, ttft/simpleTTFT, c.simple)
		if e2e > c.e2e*simpleE2E || ttft > c.ttft*simpleTTFT {
			t.Errorf("%s: plan-and-route has a mean E2E of %.0f ms and a mean TTFT of %.0f ms, %s %.0f and %.0f; "+
				"expected at most %v and %v times as much",
				c.name, e2e, ttft, c.simple, simpleE2E, simpleTTFT, c.e2e, c.ttft)
		}
	}
}
