package scenario

import (
	"context"
	"fmt"
	"testing"

	"lorasim/internal/testutil"
	"lorasim/sim/record"
	"lorasim/trace/settings"
)

// In overload, --shed ttft keeps those that it admits within the limit, and keeps the
// workers busy. Without shedding they complete 15 requests/s (llama-3.1-8b-h100-64gb-vllm-0.8.5: about
// 100); shares and rates are those measured with these seeds, less a margin.
func TestShedKeepsItsWord(t *testing.T) {
	for _, c := range []struct {
		policy, profile string
		rate, ttft      float64
		within, goodput float64 // least share of the admitted; least requests/s within the limit
	}{
		{"plan-and-route", "", 16, 1000, 0.95, 12.5},
		{"plan-and-route", "", 20, 500, 0.90, 12.5},
		{"plan-and-route", "", 20, 1000, 0.92, 13},
		{"plan-and-route", "", 20, 2000, 0.92, 13},
		{"plan-and-route", "", 30, 1000, 0.87, 12},
		{"least-loaded", "", 20, 1000, 0.90, 10.5},
		{"static", "", 20, 1000, 0.90, 11.5},
		{"affinity-spill", "", 20, 1000, 0.90, 11.5},
		{"plan-and-route", "", 10, 1000, 0.99, 8.5},
		{"plan-and-route", "llama-3.1-8b-h100-64gb-vllm-0.8.5", 60, 1000, 0.88, 30},
	} {
		sc := Default()
		sc.Workload.RequestRate, sc.Workload.NumPrompts = c.rate, settings.Some[int64](3000)
		testutil.Set(t, &sc, "policy", c.policy)
		testutil.Set(t, &sc, "shed", fmt.Sprintf("ttft:%v", c.ttft))
		if c.profile != "" {
			testutil.Set(t, &sc, "profile", c.profile, "lora_ranks", "16")
		}
		res, err := sc.Simulate(context.Background(), RunOptions{KeepRecords: true})
		if err != nil {
			t.Fatal(err)
		}
		var good, admitted, end float64
		for _, r := range res.Records {
			if end = max(end, r.Finish); r.Status == record.OK {
				if admitted++; 1000*r.TTFT() <= c.ttft {
					good++
				}
			}
		}
		if within, goodput := good/admitted, good/end; within < c.within || goodput < c.goodput {
			t.Errorf("%s, %v requests/s, ttft:%v: %.1f %% of %v admitted within it, %.2f requests/s; expected %.0f %% and %v",
				c.policy, c.rate, c.ttft, 100*within, admitted, goodput, 100*c.within, c.goodput)
		}
	}
}
