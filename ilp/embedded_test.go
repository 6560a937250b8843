package ilp

import (
	"context"
	"math"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestEmbeddedProperties checks what holds of every solution of every problem.
func TestEmbeddedProperties(t *testing.T) {
	gen := problems(small)
	rapid.Check(t, func(t *rapid.T) {
		p := gen.Draw(t, "problem")
		if err := p.Check(); err != nil {
			t.Fatal(err)
		}
		b := Budget{Seed: rapid.Uint64().Draw(t, "seed"), Work: rapid.Int64Range(0, 20000).Draw(t, "work"),
			Gap: rapid.SampledFrom([]float64{0, 0, 0.01, 0.5}).Draw(t, "gap")}
		sol, err := Embedded{}.Solve(context.Background(), p, b)
		if err != nil {
			t.Fatal(err)
		}
		if err := Verify(p, sol); err != nil {
			t.Fatal(err)
		}
		checkPlainly(t, p, sol)
		stay, err := Evaluate(p, StayFlows(p))
		if err != nil {
			t.Fatal(err)
		}
		lb := LowerBound(p)
		switch {
		case sol.Objective > stay.Objective:
			t.Fatalf("objective %v, staying costs %v", sol.Objective, stay.Objective)
		case sol.Bound > sol.Objective || lb > stay.Objective*(1+1e-9)+1e-12:
			t.Fatalf("bound %v, objective %v, LowerBound %v, staying %v", sol.Bound, sol.Objective, lb, stay.Objective)
		case sol.Bound < math.Min(lb, sol.Objective):
			t.Fatalf("bound %v, LowerBound is %v", sol.Bound, lb)
		case sol.Status == Stay && (sol.Moves > 0 || sol.Objective < stay.Objective):
			t.Fatalf("status %s, %d moves", sol.Status, sol.Moves)
		case (sol.Status == Optimal) != (sol.Gap() <= 1e-9):
			t.Fatalf("status %s, gap %v", sol.Status, sol.Gap())
		case sol.Status == WithinGap && sol.Gap() > b.Gap:
			t.Fatalf("status %s, gap %v of %v", sol.Status, sol.Gap(), b.Gap)
		}
		again, err := Embedded{}.Solve(context.Background(), p, b)
		if err != nil || !reflect.DeepEqual(sol, again) {
			t.Fatalf("the same problem, seed and budget: %+v, then %+v, %v", sol, again, err)
		}
	})
}

// checkPlainly counts moves, slots and closed workers without Evaluate.
func checkPlainly(t *rapid.T, p *Problem, sol *Solution) {
	moved, left := int64(0), requests(p)
	used := map[[2]int32]bool{}
	adapters := make([]int, len(p.Workers))
	for _, f := range sol.Flows {
		g := p.Groups[f.Group]
		left -= f.Count
		if f.Worker != g.Worker {
			if p.Workers[f.Worker].Closed {
				t.Fatalf("worker %d is closed and gets %d requests of group %d", f.Worker, f.Count, f.Group)
			}
			if !g.Virtual {
				moved += f.Count
			}
		}
		if key := [2]int32{f.Worker, g.Adapter}; !used[key] {
			used[key] = true
			adapters[f.Worker]++
		}
	}
	if left != 0 {
		t.Fatalf("%d requests lost", left)
	}
	if p.MaxMoves > 0 && moved > int64(p.MaxMoves) || moved != sol.Moves {
		t.Fatalf("%d requests move, solution says %d, limit %d", moved, sol.Moves, p.MaxMoves)
	}
	for j, n := range adapters {
		if n > p.Workers[j].Slots {
			t.Fatalf("worker %d: %d adapters in %d slots", j, n, p.Workers[j].Slots)
		}
	}
}

// TestEmbeddedBudgetOfWork: more work leads to nothing worse, and a large budget
// is spent only where a gap is left.
func TestEmbeddedBudgetOfWork(t *testing.T) {
	p, _ := Generate(8, 64, 600, 5).Problem()
	last := math.Inf(1)
	for _, work := range []int64{1, 1000, 100_000, 1_000_000} {
		sol, err := Embedded{}.Solve(context.Background(), p, Budget{Work: work})
		if err != nil {
			t.Fatal(err)
		}
		if sol.Objective > last {
			t.Errorf("work %d: objective %v, with less work %v", work, sol.Objective, last)
		}
		// a step that has begun is finished
		if sol.Work > work+200_000 {
			t.Errorf("work %d: %d spent", work, sol.Work)
		}
		last = sol.Objective
	}
	sol, err := Embedded{}.Solve(context.Background(), p, Budget{Work: 1 << 40, Gap: 0.05})
	if err != nil || sol.Status != WithinGap || sol.Work > 1_000_000 {
		t.Errorf("gap 5 %%: %v after %d units, %v", sol.Status, sol.Work, err)
	}
}

// A limit of time ends a search that nothing else would end, at the first look at
// the clock if it is over by then, and does not end one before.
func TestEmbeddedBudgetOfTime(t *testing.T) {
	p, _ := Generate(16, 128, 2000, 5).Problem()
	for _, c := range []struct {
		budget      Budget
		least, most int64 // work
	}{
		{Budget{Time: time.Nanosecond}, 0, 2000},
		{Budget{Time: time.Millisecond}, 0, math.MaxInt64},
		{Budget{Time: 100 * time.Millisecond}, 0, math.MaxInt64},
		{Budget{Time: time.Hour, Work: 500_000}, 500_000, 700_000},
	} {
		sol, err := Embedded{}.Solve(context.Background(), p, c.budget)
		if err == nil {
			err = Verify(p, sol)
		}
		if err != nil {
			t.Fatal(err)
		}
		if sol.Status == Optimal || sol.Work < c.least || sol.Work > c.most {
			t.Errorf("%+v: %v after %d units of work", c.budget, sol.Status, sol.Work)
		}
	}
}

func TestEmbeddedCancelled(t *testing.T) {
	p, _ := Generate(16, 128, 2000, 5).Problem()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	sol, err := Embedded{}.Solve(ctx, p, Budget{Work: 1 << 50})
	if err != nil {
		t.Fatal(err)
	}
	if err := Verify(p, sol); err != nil {
		t.Fatal(err)
	}
	if sol.Work > 100_000 {
		t.Errorf("spent %d units of work after ctx had ended", sol.Work)
	}
}

func TestEmbeddedRejectsBadProblem(t *testing.T) {
	if sol, err := (Embedded{}).Solve(context.Background(), &Problem{}, Budget{}); err == nil || sol != nil {
		t.Errorf("no workers: %v, %v", sol, err)
	}
}

// TestEmbeddedFinds holds the solver to optima known by construction.
func TestEmbeddedFinds(t *testing.T) {
	worker := func(slots int, resident ...int32) Worker { return Worker{Slots: slots, Resident: resident} }
	tests := []struct {
		name    string
		p       Problem
		want    float64
		moves   int64
		optimal bool
	}{
		{"nothing to do", Problem{Workers: []Worker{worker(1)}, Adapters: 1}, 0, 0, true},
		{"half goes over", Problem{Workers: []Worker{worker(1, 0), worker(1)}, Adapters: 1,
			Groups: []Group{{Count: 10, Work: 1}}}, 5, 5, true},
		{"no free slot: adapters swap", Problem{Workers: []Worker{worker(2, 0, 1), worker(2, 2, 3)}, Adapters: 4,
			Groups: []Group{{Adapter: 0, Count: 1, Work: 9}, {Adapter: 1, Count: 1, Work: 8},
				{Adapter: 2, Worker: 1, Count: 1, Work: 2}, {Adapter: 3, Worker: 1, Count: 1, Work: 3}}}, 11, 2, true},
		{"loading costs more than it gains", Problem{Workers: []Worker{worker(1, 0), worker(1)}, Adapters: 1,
			Groups: []Group{{Count: 4, Work: 1}}, Load: []float64{0, 9}}, 4, 0, true},
		{"moves cost more than they gain", Problem{Workers: []Worker{worker(1, 0), worker(1, 0)}, Adapters: 1,
			Groups: []Group{{Count: 10, Work: 1}}, MoveWeight: 2}, 10, 0, true},
		{"two moves allowed", Problem{Workers: []Worker{worker(1, 0), worker(1, 0)}, Adapters: 1,
			Groups: []Group{{Count: 10, Work: 1}}, MaxMoves: 2}, 8, 2, true},
		{"pages decide who goes", Problem{Workers: []Worker{{Slots: 1, Pages: 10, Resident: []int32{0}},
			{Slots: 1, Pages: 90}}, Adapters: 1,
			PageRate: 1, Groups: []Group{{Count: 1, Work: 1, Pages: 90}, {Count: 1, Work: 1, Pages: 10}}}, 1, 1, true},
		{"closed", Problem{Workers: []Worker{worker(1, 0), {Slots: 1, Closed: true}}, Adapters: 1,
			Groups: []Group{{Count: 10, Work: 1}}}, 10, 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sol, err := Embedded{}.Solve(context.Background(), &tt.p, Budget{})
			if err != nil {
				t.Fatal(err)
			}
			if math.Abs(sol.Objective-tt.want) > 1e-9 || sol.Moves != tt.moves ||
				(sol.Status == Optimal) != tt.optimal {
				t.Errorf("objective %v, %d moves, %s (bound %v); expected %v, %d", sol.Objective, sol.Moves, sol.Status,
					sol.Bound, tt.want, tt.moves)
			}
		})
	}
}
