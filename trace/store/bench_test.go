package store_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"lorasim/trace"
	"lorasim/trace/store"
)

var extensions = []string{".csv", ".jsonl", ".parquet", ".arrow"}

// bursty returns n requests over 32 adapters, a few thousand per second.
func bursty(n int) *trace.Workload {
	r := rand.New(rand.NewPCG(1, 2))
	w := &trace.Workload{Adapters: trace.Names(32, []int{8, 16, 32, 64})}
	at := 0.0
	for i := range n {
		at += r.ExpFloat64() / 3000
		w.Requests = append(w.Requests, trace.Request{
			ID: int64(i), Arrival: at, Adapter: r.Int32N(33) - 1,
			Prompt: 1 + r.Int32N(4096), Output: 1 + r.Int32N(1024),
		})
	}
	return w
}

// drain reads a source to its end and returns the number of requests.
func drain(tb testing.TB, src trace.Source) (n int64) {
	tb.Helper()
	for {
		_, err := src.Next()
		if errors.Is(err, io.EOF) {
			return n
		}
		if err != nil {
			tb.Fatal(err)
		}
		n++
	}
}

func BenchmarkRead(b *testing.B) {
	w := bursty(500_000)
	for _, ext := range extensions {
		path := filepath.Join(b.TempDir(), "w"+ext)
		if _, err := store.Write(path, w.Source(), store.WriteOptions{Files: files}); err != nil {
			b.Fatal(err)
		}
		for _, bench := range []struct {
			name string
			o    store.ReadOptions
		}{
			{"adapters-stated", store.ReadOptions{Files: files, Adapters: w.Adapters}},
			{"adapters-found", store.ReadOptions{Files: files}},
		} {
			b.Run(ext[1:]+"/"+bench.name, func(b *testing.B) {
				b.ReportAllocs()
				info, err := os.Stat(path)
				if err != nil {
					b.Fatal(err)
				}
				b.SetBytes(info.Size())
				var rows int64
				for b.Loop() {
					r, err := store.Open(context.Background(), path, bench.o)
					if err != nil {
						b.Fatal(err)
					}
					rows += drain(b, r)
					r.Close()
				}
				b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
			})
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	w := bursty(500_000)
	for _, ext := range extensions {
		b.Run(ext[1:], func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "w"+ext)
			b.ReportAllocs()
			var rows int64
			for b.Loop() {
				n, err := store.Write(path, w.Source(), store.WriteOptions{Files: files})
				if err != nil {
					b.Fatal(err)
				}
				rows += n
			}
			b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
