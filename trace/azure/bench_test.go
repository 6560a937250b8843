package azure

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
)

// BenchmarkInvocations reads rows as long as the published ones.
func BenchmarkInvocations(b *testing.B) {
	const rows = 100_000
	rng := rand.New(rand.NewPCG(1, 2))
	for _, ending := range []string{".txt", ".txt.gz"} {
		path := filepath.Join(b.TempDir(), "trace"+ending)
		var text strings.Builder
		text.WriteString(v2Header + "\n")
		for i := range rows {
			k := rng.IntN(424)
			d := float64(rng.IntN(5000)) / 1000
			f := Function{App: fmt.Sprintf("%064x", k/4), Func: fmt.Sprintf("%064x", k)}
			text.WriteString(rowText(f, Invocation{End: float64(i)*0.61 + rng.Float64() + d, Duration: d}))
		}
		writeText(b, path, text.String())
		b.Run(ending[1:], func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r, err := OpenInvocations(context.Background(), path, Options{})
				if err != nil {
					b.Fatal(err)
				}
				n := 0
				for ; err == nil; n++ {
					_, err = r.Next()
				}
				if !errors.Is(err, io.EOF) || n-1 != rows {
					b.Fatalf("%d rows, %v", n-1, err)
				}
				if err := r.Close(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(rows*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

// BenchmarkMinutes reads days of 1440 minutes, for one hour and as a whole.
func BenchmarkMinutes(b *testing.B) {
	const rows = 2000
	rng := rand.New(rand.NewPCG(1, 2))
	path := b.TempDir()
	day := make([][]int32, rows)
	for k := range day {
		day[k] = make([]int32, 1440)
		for i := range day[k] {
			day[k][i] = int32(rng.ExpFloat64() * 3)
		}
	}
	if err := writeFile(filepath.Join(path, dayFile(0)),
		func(w *bufio.Writer) error { return writeDay(w, day) }); err != nil {
		b.Fatal(err)
	}
	for _, w := range []Window{{540, 600}, {0, 1440}} {
		b.Run(fmt.Sprintf("minutes=%d", w.Minutes()), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				h, err := ReadHistogram(context.Background(), path, Query{V1, w, 60, false}, Options{})
				if err != nil || len(h.Functions) != rows {
					b.Fatal(len(h.Functions), err)
				}
			}
			b.ReportMetric(rows*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
