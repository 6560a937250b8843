package main

import (
	"testing"

	"lorasim/bench/explore"
	"lorasim/bench/scenario"
	"lorasim/internal/testutil"
)

// BenchmarkRuns runs the policies of the page's first query, 2000 requests each. Its profile of the processor is
// cmd/lorasim-web/default.pgo, by which the compiler optimises the program for browsers:
//
//	go test -trimpath ./scripts/web -run '^$' -bench Runs -benchtime 300x -cpu 1 \
//		-cpuprofile cmd/lorasim-web/default.pgo
func BenchmarkRuns(b *testing.B) {
	for _, policy := range explore.DefaultPreset().Query.Policies {
		sc := scenario.Default()
		testutil.Set(b, &sc, "policy", policy)
		ps, err := sc.Profiles(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		b.Run(policy, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := sc.Simulate(b.Context(), scenario.RunOptions{Workers: ps}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
