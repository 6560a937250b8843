package milp

import (
	"math/rand/v2"
	"testing"

	"lorasim/ilp"
	"lorasim/ilp/highs/internal/brute"
)

// Settling pages never makes an assignment worse, and often better.
func TestSettlePages(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	better := 0
	for range 3000 {
		p := brute.Problem(rng)
		p.PageRate = 1
		flows := brute.Assignment(p, rng)
		before, err := ilp.Evaluate(p, flows)
		if err != nil {
			t.Fatal(err)
		}
		counts := make([]int64, len(p.Groups)*len(p.Workers))
		for _, f := range flows {
			counts[int(f.Group)*len(p.Workers)+int(f.Worker)] = f.Count
		}
		settlePages(p, kindsOf(p), counts)
		after, err := ilp.Evaluate(p, flowsOf(counts, len(p.Workers)))
		if err != nil {
			t.Fatalf("%v in %+v", err, p)
		}
		if after.T > before.T+1e-9 || after.Moves > before.Moves {
			t.Fatalf("T %v and %d moves became %v and %d in %+v", before.T, before.Moves, after.T, after.Moves, p)
		}
		if after.T < before.T-1e-9 {
			better++
		}
	}
	if better < 30 {
		t.Errorf("%d of 3000 assignments became better, expected at least 30", better)
	}
}
