package records

import (
	"context"
	"path/filepath"
	"testing"

	"lorasim/sim/record"
	"lorasim/trace/columnar"
)

func benchmarkWrite(b *testing.B, ext string) {
	r := sample()[0]
	r.Gaps = nil
	w, err := Create(columnar.Files(), filepath.Join(b.TempDir(), "b"+ext), adapters, false)
	if err != nil {
		b.Fatal(err)
	}
	defer w.Abort()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r.ID = int64(i)
		r.Finish += 0.001
		if err := w.Write(&r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWriteParquet(b *testing.B) { benchmarkWrite(b, ".parquet") }
func BenchmarkWriteArrow(b *testing.B)   { benchmarkWrite(b, ".arrow") }
func BenchmarkWriteCSV(b *testing.B)     { benchmarkWrite(b, ".csv") }
func BenchmarkWriteJSONL(b *testing.B)   { benchmarkWrite(b, ".jsonl") }

func benchmarkRead(b *testing.B, ext string) {
	const n = 10000
	path := filepath.Join(b.TempDir(), "b"+ext)
	rs := make([]record.Request, n)
	for i := range rs {
		rs[i] = sample()[0]
		rs[i].ID, rs[i].Gaps = int64(i), nil
		rs[i].Finish += float64(i) / 3
	}
	write(b, path, rs)
	b.ReportAllocs()
	for b.Loop() {
		r, err := Open(context.Background(), columnar.Files(), path)
		if err != nil {
			b.Fatal(err)
		}
		var q record.Request
		for range n {
			if err := r.Read(&q); err != nil {
				b.Fatal(err)
			}
		}
		r.Close()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/row")
}

func BenchmarkReadParquet(b *testing.B) { benchmarkRead(b, ".parquet") }
func BenchmarkReadArrow(b *testing.B)   { benchmarkRead(b, ".arrow") }
func BenchmarkReadCSV(b *testing.B)     { benchmarkRead(b, ".csv") }
func BenchmarkReadJSONL(b *testing.B)   { benchmarkRead(b, ".jsonl") }
