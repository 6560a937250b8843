package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"lorasim/trace"
	"lorasim/trace/azure"
	"lorasim/trace/internal/renewal"
)

// skewed returns invocations of adapters, the first one the most popular.
func skewed(adapters int) [][]int64 {
	h := make([][]int64, adapters)
	for k := range h {
		h[k] = []int64{int64(1_000_000 / (k + 1))}
	}
	return h
}

func drain(b *testing.B, src trace.Source) int {
	n := 0
	for {
		_, err := src.Next()
		if errors.Is(err, io.EOF) {
			return n
		}
		if err != nil {
			b.Fatal(err)
		}
		n++
	}
}

func reportRequests(b *testing.B, n int) {
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "requests/s")
}

func BenchmarkReplay(b *testing.B) {
	for _, adapters := range []int{4, 128, 4096} {
		for _, d := range []string{renewal.Exponential, renewal.Gamma} {
			b.Run(fmt.Sprintf("adapters=%d/%s", adapters, d), func(b *testing.B) {
				c := Default()
				c.Distribution, c.CV, c.TotalRate, c.Requests = d, []float64{4}, 1000, 1_000_000
				names, h := trace.Names(adapters, nil), skewed(adapters)
				b.ReportAllocs()
				n := 0
				for b.Loop() {
					src, err := c.ReplayHistogram(names, h)
					if err != nil {
						b.Fatal(err)
					}
					n += drain(b, src)
				}
				reportRequests(b, n)
			})
		}
	}
}

func BenchmarkDLoRA(b *testing.B) {
	d := DLoRA{Requests: 1_000_000, Distribution: "gamma", Interval: 60, TotalRate: 1000, CV: 4}
	names, h := trace.Names(128, nil), skewed(128)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		src, _, err := d.ReplayHistogram(names, h)
		if err != nil {
			b.Fatal(err)
		}
		n += drain(b, src)
	}
	reportRequests(b, n)
}

func BenchmarkVanilla(b *testing.B) {
	v := Vanilla{Path: writeTrace(b, makeRows(200_000)), Window: azure.Window{Start: 0, End: 1440},
		Mapping: Mapping{Strategy: RoundRobin}}
	names := trace.Names(4, nil)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		src, _, err := v.Replay(context.Background(), names)
		if err != nil {
			b.Fatal(err)
		}
		n += drain(b, src)
	}
	reportRequests(b, n)
}
