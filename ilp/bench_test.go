package ilp

import (
	"context"
	"fmt"
	"testing"
)

var sizes = [][3]int{{2, 4, 32}, {2, 4, 200}, {2, 32, 200}, {8, 32, 200}, {8, 128, 1000}, {16, 128, 5000},
	{32, 512, 5000}, {64, 512, 5000}}

// BenchmarkEmbedded solves random instances with the default budget; gap-% is
// the mean proven gap.
func BenchmarkEmbedded(b *testing.B) {
	for _, z := range sizes {
		b.Run(fmt.Sprintf("%d,%d,%d", z[0], z[1], z[2]), func(b *testing.B) {
			var ps []*Problem
			for seed := range uint64(5) {
				p, _ := Generate(z[0], z[1], z[2], seed).Problem()
				ps = append(ps, p)
			}
			gap, n := 0.0, 0
			b.ReportAllocs()
			for b.Loop() {
				sol, err := Embedded{}.Solve(context.Background(), ps[n%len(ps)], Budget{})
				if err != nil {
					b.Fatal(err)
				}
				gap += sol.Gap()
				n++
			}
			b.ReportMetric(100*gap/float64(n), "gap-%")
		})
	}
}

func BenchmarkLowerBound(b *testing.B) {
	for _, z := range sizes {
		p, _ := Generate(z[0], z[1], z[2], 1).Problem()
		b.Run(fmt.Sprintf("%d,%d,%d", z[0], z[1], z[2]), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				LowerBound(p)
			}
		})
	}
}

func BenchmarkVerify(b *testing.B) {
	p, _ := Generate(32, 512, 5000, 1).Problem()
	sol, err := Embedded{}.Solve(context.Background(), p, Budget{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := Verify(p, sol); err != nil {
			b.Fatal(err)
		}
	}
}
