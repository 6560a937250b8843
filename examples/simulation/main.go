// Command simulation compares three routing policies on one workload.
package main

import (
	"context"
	"fmt"
	"log"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
)

func main() {
	for _, policy := range []string{"static", "least-loaded", "affinity-spill"} {
		sc := scenario.Default()
		sc.Workload.NumPrompts, sc.Workload.RequestRate, sc.Workload.NumAdapters = 500, 20, 64
		sc.Routing.Policy = policy
		res, err := sc.Simulate(context.Background(), scenario.RunOptions{})
		if err != nil {
			log.Fatal(err)
		}
		ttft, _ := res.Metrics.Get(result.MeanTTFT) // ms
		fmt.Printf("%s: mean TTFT %.0f ms\n", policy, ttft)
	}
}
