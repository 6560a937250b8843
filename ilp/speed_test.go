package ilp

import (
	"context"
	"math"
	"testing"
)

// Twelve requests of 1 s on the slow of two workers, the other three times as
// fast: 3 stay, 9 go, and both take 3 s. Where a move costs 0.5 s at speed 1, 9
// that go would take 9 * 1.5 / 3 = 4.5 s: 8 go, in 4 s, and 4 stay.
func TestSpeeds(t *testing.T) {
	for _, c := range []struct {
		move, want float64
		moves      int64
	}{{0, 3, 9}, {0.5, 4, 8}} {
		for _, slow := range []int32{0, 1} {
			p := &Problem{Adapters: 1, Workers: []Worker{{Slots: 1, Speed: 3}, {Slots: 1, Speed: 3}}}
			p.Workers[slow].Speed = 1
			p.Groups = []Group{{Worker: slow, Count: 12, Work: 1, Move: c.move}}
			sol, err := Embedded{}.Solve(context.Background(), p, Budget{})
			if err != nil || math.Abs(sol.T-c.want) > 1e-9 || sol.Moves != c.moves || sol.Status != Optimal {
				t.Errorf("slow worker %d, move %v: %+v, %v; expected T %v with %d moves", slow, c.move, sol, err,
					c.want, c.moves)
			}
		}
	}
}

// Workers in another order: the same problem, the same bound, and, where the
// optimum is proven, the same objective.
func TestOrderOfWorkers(t *testing.T) {
	gen := problems(size{workers: 2, adapters: 4, groups: 6, count: 3})
	for seed := range 300 {
		p := gen.Example(seed)
		q := *p
		n := len(p.Workers)
		q.Workers, q.Groups, q.Load = make([]Worker, n), append([]Group(nil), p.Groups...), nil
		for j := range p.Workers {
			q.Workers[n-1-j] = p.Workers[j]
		}
		for i := range q.Groups {
			q.Groups[i].Worker = int32(n-1) - q.Groups[i].Worker
		}
		for k := range p.Adapters {
			for j := range n {
				if p.Load != nil {
					q.Load = append(q.Load, p.Load[k*n+n-1-j])
				}
			}
		}
		near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-6*math.Max(1, a) }
		if a, b := LowerBound(p), LowerBound(&q); !near(a, b) {
			t.Fatalf("seed %d: bounds %v and %v", seed, a, b)
		}
		a, err := Embedded{}.Solve(context.Background(), p, Budget{})
		b, err2 := Embedded{}.Solve(context.Background(), &q, Budget{})
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		if a.Status == Optimal && b.Status == Optimal && !near(a.Objective, b.Objective) {
			t.Fatalf("seed %d: objectives %v and %v", seed, a.Objective, b.Objective)
		}
	}
}
