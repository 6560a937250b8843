package ilp

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// example has two workers, three adapters, and a solution that moves two
// requests and loads an adapter.
func example() (*Problem, *Solution) {
	p := &Problem{
		Workers: []Worker{{Slots: 2, Pages: 100, Resident: []int32{0, 1}},
			{Slots: 2, Pages: 100, Base: 1, Resident: []int32{2}}},
		Adapters: 3,
		Groups: []Group{
			{Adapter: 0, Worker: 0, Count: 4, Work: 2, Move: 0.5, Pages: 10},
			{Adapter: 1, Worker: 0, Count: 1, Work: 3},
			{Adapter: 2, Worker: 1, Count: 1, Work: 1, Pages: 90},
		},
		Load: []float64{0, 0.25, 0, 1, 1, 0}, PageRate: 10, MaxMoves: 2, MoveWeight: 0.01, LoadWeight: 0.1,
	}
	// worker 0: 2*2 + 3 = 7; worker 1: 1 + 2*(2+0.5) + 1 + 0.25 loading + 10/10 of overflow = 8.25
	s := &Solution{Solver: "test", Outcome: Outcome{T: 8.25, Objective: 8.25 + 0.02 + 0.1, Moves: 2, Loads: 1},
		Bound: 7, Flows: []Flow{
			{Group: 0, Worker: 0, Count: 2}, {Group: 0, Worker: 1, Count: 2}, {Group: 1, Worker: 0, Count: 1},
			{Group: 2, Worker: 1, Count: 1}}}
	return p, s
}

func TestVerify(t *testing.T) {
	tests := []struct {
		name   string
		tamper func(*Problem, *Solution)
		want   string // "": passes
	}{
		{"untouched", func(*Problem, *Solution) {}, ""},
		{"request lost", func(_ *Problem, s *Solution) { s.Flows[0].Count = 1 }, "group 0: 3 of 4 requests assigned"},
		{"request doubled", func(_ *Problem, s *Solution) { s.Flows[0].Count = 3 },
			"group 0: 5 of 4 requests assigned"},
		{"group left out", func(_ *Problem, s *Solution) { s.Flows = s.Flows[:3] },
			"group 2: 0 of 1 requests assigned"},
		{"no flows", func(_ *Problem, s *Solution) { s.Flows = nil }, "group 0: 0 of 4 requests assigned"},
		{"empty flow", func(_ *Problem, s *Solution) { s.Flows[0].Count = 0 }, "out of range"},
		{"flow below zero", func(_ *Problem, s *Solution) { s.Flows[0].Count, s.Flows[1].Count = -1, 5 },
			"out of range"},
		{"no such worker", func(_ *Problem, s *Solution) { s.Flows[1].Worker = 2 },
			"group 0 to worker 2: out of range"},
		{"worker below zero", func(_ *Problem, s *Solution) { s.Flows[1].Worker = -1 }, "out of range"},
		{"no such group", func(_ *Problem, s *Solution) { s.Flows[3].Group = 3 },
			"of group 3 to worker 1: out of range"},
		{"other assignment", func(_ *Problem, s *Solution) { s.Flows[2].Worker = 1; s.Flows[0].Worker = 0 },
			"requests of 3 adapters in 2 slots"},
		{"slot taken away", func(p *Problem, _ *Solution) { p.Workers[1].Slots = 1 },
			"worker 1: requests of 2 adapters in 1 slots"},
		{"worker closed", func(p *Problem, _ *Solution) { p.Workers[1].Closed = true },
			"moves to worker 1, which is closed"},
		{"moves limited", func(p *Problem, _ *Solution) { p.MaxMoves = 1 }, "2 requests move, at most 1 may"},
		{"objective prettier", func(_ *Problem, s *Solution) { s.Objective-- }, "recomputed 8.37"},
		{"objective worse", func(_ *Problem, s *Solution) { s.Objective++ }, "recomputed 8.37"},
		{"objective not a number", func(_ *Problem, s *Solution) { s.Objective = math.NaN() }, "recomputed 8.37"},
		{"T prettier", func(_ *Problem, s *Solution) { s.T-- }, "(T 8.25)"},
		{"moves hidden", func(_ *Problem, s *Solution) { s.Moves = 0 }, "0 moves and 1 loads, recomputed 2 and 1"},
		{"loads hidden", func(_ *Problem, s *Solution) { s.Loads = 0 }, "2 moves and 0 loads, recomputed 2 and 1"},
		{"bound too high", func(_ *Problem, s *Solution) { s.Bound = 8.4 }, "below its bound 8.4"},
		{"bound not a number", func(_ *Problem, s *Solution) { s.Bound = math.NaN() }, "bound NaN"},
		{"loading time changed", func(p *Problem, _ *Solution) { p.Load[1] = 0.5 }, "recomputed 8.62 (T 8.5)"},
		// 1 + 2*2.5/2 + 1/2 + 0.25 + 1 = 5.25 on worker 1, 7 on worker 0
		{"twice as fast", func(p *Problem, _ *Solution) { p.Workers[1].Speed = 2 }, "(T 7)"},
		{"half as fast", func(p *Problem, _ *Solution) { p.Workers[1].Speed = 0.5 }, "(T 14.25)"},
		{"as fast", func(p *Problem, _ *Solution) { p.Workers[1].Speed = 1 }, ""},
		{"pages changed", func(p *Problem, _ *Solution) { p.Workers[1].Pages = 90 }, "(T 9.25)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, s := example()
			if err := p.Check(); err != nil {
				t.Fatal(err)
			}
			tt.tamper(p, s)
			err := Verify(p, s)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("Verify: %v, expected %q", err, tt.want)
			}
			if err != nil && !strings.HasPrefix(err.Error(), "solution of test: ") {
				t.Errorf("Verify: %v does not name the solver", err)
			}
		})
	}
}

func TestProblemCheck(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	tests := []struct {
		name  string
		spoil func(*Problem)
		want  string
	}{
		{"no workers", func(p *Problem) { p.Workers = nil }, "no workers"},
		{"adapters below zero", func(p *Problem) { p.Adapters = -1 }, "number of adapters is -1"},
		{"loading times", func(p *Problem) { p.Load = p.Load[1:] }, "5 loading times, expected 3 adapters x 2 workers"},
		{"loading time", func(p *Problem) { p.Load[3] = nan }, "loading time of adapter 1 on worker 1 is NaN"},
		{"page rate", func(p *Problem) { p.PageRate = -1 }, "page rate -1"},
		{"move weight", func(p *Problem) { p.MoveWeight = inf }, "move weight +Inf"},
		{"load weight", func(p *Problem) { p.LoadWeight = nan }, "load weight NaN"},
		{"max moves", func(p *Problem) { p.MaxMoves = -1 }, "max moves -1"},
		{"slots", func(p *Problem) { p.Workers[1].Slots = -1 }, "worker 1: slots -1"},
		{"pages", func(p *Problem) { p.Workers[1].Pages = nan }, "worker 1: slots 2, pages NaN"},
		{"base", func(p *Problem) { p.Workers[0].Base = -1 }, "worker 0: slots 2, pages 100, base -1"},
		{"resident", func(p *Problem) { p.Workers[0].Resident = []int32{3} },
			"worker 0: resident adapter 3, expected 0 to 2"},
		{"resident order", func(p *Problem) { p.Workers[0].Resident = []int32{1, 0} },
			"worker 0: resident adapters are not ascending at 0"},
		{"resident twice", func(p *Problem) { p.Workers[0].Resident = []int32{1, 1} },
			"worker 0: resident adapters are not ascending at 1"},
		{"adapter", func(p *Problem) { p.Groups[2].Adapter = 3 }, "group 2: adapter 3, expected 0 to 2"},
		{"adapter below zero", func(p *Problem) { p.Groups[2].Adapter = -1 }, "group 2: adapter -1, expected 0 to 2"},
		{"worker", func(p *Problem) { p.Groups[1].Worker = 2 }, "group 1: worker 2, expected 0 to 1"},
		{"count", func(p *Problem) { p.Groups[1].Count = 0 }, "group 1: 0 requests, expected >= 1"},
		{"work", func(p *Problem) { p.Groups[1].Work = nan }, "group 1: work NaN"},
		{"move", func(p *Problem) { p.Groups[1].Move = -1 }, "group 1: work 3, move -1"},
		{"group pages", func(p *Problem) { p.Groups[1].Pages = inf }, "group 1: work 3, move 0, pages +Inf"},
		{"start", func(p *Problem) { p.Workers[0].Slots, p.Workers[1].Slots = 1, 1 },
			"requests of 3 adapters, but the workers have 2 slots"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, _ := example()
			p.Load = slices.Clone(p.Load)
			tt.spoil(p)
			if err := p.Check(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Check: %v, expected %q", err, tt.want)
			}
		})
	}
}

func TestGap(t *testing.T) {
	for _, tt := range []struct{ objective, bound, want float64 }{{10, 9, 0.1}, {10, 10, 0}, {10, 11, 0}, {0, 0, 0},
		{1, 0, 1}} {
		s := Solution{Outcome: Outcome{Objective: tt.objective}, Bound: tt.bound}
		if got := s.Gap(); math.Abs(got-tt.want) > 1e-12 {
			t.Errorf("Gap of %v to %v: %v, expected %v", tt.objective, tt.bound, got, tt.want)
		}
	}
}
