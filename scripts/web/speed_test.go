package main

import (
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"lorasim/bench/explore"
	"lorasim/bench/scenario"
	"lorasim/internal/testbrowser"
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

// BenchmarkBrowser compares the least time of many runs of 2000 requests, native and in a browser. Both have one
// processor, also for the garbage collector.
func BenchmarkBrowser(b *testing.B) {
	dir := b.TempDir()
	if _, err := build(dir); err != nil {
		b.Fatal(err)
	}
	ctx := show(b, dir)
	sc := scenario.Default()
	testutil.Set(b, &sc, "policy", "least-loaded")
	ps, err := sc.Profiles(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	native := time.Hour
	for range 100 {
		begun := time.Now()
		if _, err := sc.Simulate(b.Context(), scenario.RunOptions{Workers: ps}); err != nil {
			b.Fatal(err)
		}
		native = min(native, time.Since(begun))
	}
	for b.Loop() {
		testbrowser.Eval(b, ctx, `(async () => {
			const { bench } = await import('./api.js');
			window.least = await bench('least-loaded', 100);
		})()`)
		testbrowser.Wait(b, ctx, `window.least > 0`)
	}
	least, err := strconv.ParseFloat(strings.TrimSpace(testbrowser.Eval(b, ctx, `window.least`)), 64)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(1000*native.Seconds(), "native-ms")
	b.ReportMetric(least, "browser-ms")
	b.ReportMetric(100*1000*native.Seconds()/least, "%-of-native")
}
