package records

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"lorasim/internal/record"
)

// fuzzReader reads arbitrary bytes as a file of the given format: it must end,
// with records or one error.
func fuzzReader(f *testing.F, ext string) {
	path := filepath.Join(f.TempDir(), "seed"+ext)
	for _, rs := range [][]record.Request{nil, sample()[:1], sample()} {
		write(f, path, rs)
		seed, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		dec, err := newDecoder(bytes.NewReader(data), "f"+ext)
		if err != nil {
			return
		}
		var r row
		for {
			r.reset()
			if dec.decode(&r) != nil {
				return
			}
			if err := r.check(); err != nil {
				t.Fatalf("a row came through that could not be written: %v", err)
			}
		}
	})
}

func FuzzCSV(f *testing.F)     { fuzzReader(f, ".csv") }
func FuzzJSONL(f *testing.F)   { fuzzReader(f, ".jsonl") }
func FuzzArrow(f *testing.F)   { fuzzReader(f, ".arrow") }
func FuzzParquet(f *testing.F) { fuzzReader(f, ".parquet") }

func benchmarkWrite(b *testing.B, ext string) {
	r := sample()[0]
	r.Gaps = nil
	w, err := Create(filepath.Join(b.TempDir(), "b"+ext), adapters)
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
		r, err := Open(path)
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
