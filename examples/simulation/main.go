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
		for key, value := range map[string]string{
			"num_prompts": "500", "request_rate": "20", "num_adapters": "64", "policy": policy,
		} {
			if err := sc.Set(key, value); err != nil {
				log.Fatal(err)
			}
		}
		res, err := sc.Simulate(context.Background(), scenario.RunOptions{})
		if err != nil {
			log.Fatal(err)
		}
		ttft, _ := res.Metrics.Get(result.MeanTTFT) // ms
		fmt.Printf("%s: mean TTFT %.0f ms\n", policy, ttft)
	}
}
