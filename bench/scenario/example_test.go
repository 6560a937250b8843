package scenario_test

import (
	"context"
	"fmt"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
)

// Three policies on the same workload: requests of 64 adapters at 20 requests/s on four workers.
func ExampleScenario_Simulate() {
	for _, policy := range []string{"static", "least-loaded", "affinity-spill"} {
		sc := scenario.Default()
		for key, value := range map[string]string{
			"num_prompts": "500", "request_rate": "20", "num_adapters": "64", "policy": policy,
		} {
			if err := sc.Set(key, value); err != nil {
				fmt.Println(err)
				return
			}
		}
		res, err := sc.Simulate(context.Background(), scenario.RunOptions{})
		if err != nil {
			fmt.Println(err)
			return
		}
		ttft, _ := res.Metrics.Get(result.MeanTTFT)
		e2e, _ := res.Metrics.Get(result.MeanE2E)
		fmt.Printf("%-14s TTFT %4.0f ms, E2E %5.0f ms\n", policy, ttft, e2e)
	}
	// Output:
	// static         TTFT 2814 ms, E2E  6051 ms
	// least-loaded   TTFT 3454 ms, E2E  6620 ms
	// affinity-spill TTFT 2386 ms, E2E  5590 ms
}

// A scenario can be set by the keys of scenario files.
func ExampleScenario_Set() {
	sc := scenario.Default()
	fmt.Println(sc.Set("num_workers", "8"), sc.Set("policy", "bounded-hash:c=1.5"))
	fmt.Println(sc.Set("routing.policy", "bounded-hash:c=0.5"))
	fmt.Println(sc.Cluster.NumWorkers, sc.Routing.Policy)
	// Output:
	// <nil> <nil>
	// routing.policy: policy bounded-hash: c: "0.5" is not a number >= 1
	// 8 bounded-hash:c=1.5
}
