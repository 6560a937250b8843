package ilp

import (
	"context"
	"math"
	"strings"
	"testing"
)

// TestOverFullStart compares with the true optimum where workers have requests of more adapters than slots: a problem
// is refused only if no assignment exists, and the solution is as good as that of other problems.
func TestOverFullStart(t *testing.T) {
	gen := problems(tiny)
	tried, refused, missed, equal := 0, 0, 0, 0
	for seed := 0; tried < 400; seed++ {
		p := gen.Example(seed)
		for j := range p.Workers {
			p.Workers[j].Slots = (seed + j) % 3
		}
		if n := requests(p); n == 0 || n > 7 || overFull(p) < 0 {
			continue
		}
		tried++
		limited := p.MaxMoves > 0
		for j := range p.Workers {
			limited = limited || p.Workers[j].Closed
		}
		best, _ := brute(p)
		sol, err := Embedded{}.Solve(context.Background(), p, Budget{Seed: 1})
		switch slack := 1e-6 * math.Max(1, best); {
		case err != nil && !math.IsInf(best, 1) && limited:
			missed++ // the search for a start does not try all
		case err != nil && !math.IsInf(best, 1):
			t.Fatalf("seed %d: %v, but %v s are possible\n%+v", seed, err, best, p)
		case err != nil:
			refused++
			if !strings.Contains(err.Error(), "slots") {
				t.Errorf("seed %d: %v", seed, err)
			}
		case Verify(p, sol) != nil:
			t.Fatalf("seed %d: %v", seed, Verify(p, sol))
		case sol.Objective < best-slack || sol.Bound > best+slack || sol.Status == Stay:
			t.Fatalf("seed %d: objective %v, bound %v, %s, optimum %v\n%+v", seed, sol.Objective, sol.Bound, sol.Status,
				best, p)
		case sol.Objective <= best+slack:
			equal++
		case sol.Status == Optimal:
			t.Fatalf("seed %d: %v called optimal, %v is", seed, sol.Objective, best)
		}
	}
	solved := tried - refused - missed
	t.Logf("of %d problems: %d have no assignment, %d were not solved, optimum found in %d of %d", tried, refused, missed,
		equal, solved)
	if equal < solved*97/100 || missed > tried*3/100 || solved < tried/3 {
		t.Errorf("optimum found in %d of %d problems, %d not solved: expected 97 %%, at most 3 %%", equal, solved, missed)
	}
}

// TestOverFullByHand: adapters that fill all slots only if each is on one worker.
func TestOverFullByHand(t *testing.T) {
	p := &Problem{Adapters: 3, Workers: []Worker{{Slots: 1}, {Slots: 1}, {Slots: 1}}, Groups: []Group{
		{Adapter: 0, Worker: 0, Count: 2, Work: 1}, {Adapter: 1, Worker: 0, Count: 1, Work: 1},
		{Adapter: 2, Worker: 1, Count: 1, Work: 1}, {Adapter: 2, Worker: 2, Count: 1, Work: 1},
	}}
	sol, err := Embedded{}.Solve(context.Background(), p, Budget{})
	if err != nil || sol.Objective != 2 {
		t.Errorf("%+v, %v", sol, err)
	}
	p.Workers[2].Slots = 0
	if _, err := (Embedded{}).Solve(context.Background(), p, Budget{}); err == nil ||
		!strings.Contains(err.Error(), "requests of 3 adapters, but the workers have 2 slots") {
		t.Error(err)
	}
}
