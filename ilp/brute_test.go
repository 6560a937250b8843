package ilp

import (
	"context"
	"math"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// size limits what problems draws.
type size struct{ workers, adapters, groups, count int }

var (
	tiny  = size{workers: 3, adapters: 4, groups: 5, count: 2}
	small = size{workers: 6, adapters: 12, groups: 30, count: 8}
)

// problems draws valid problems with every feature of the model: loading times,
// weights, bases, unequal speeds, closed workers, pages, a limit on moves, virtual
// groups.
func problems(z size) *rapid.Generator[*Problem] {
	return rapid.Custom(func(t *rapid.T) *Problem {
		times := rapid.SampledFrom([]float64{0, 0.05, 0.5, 1, 1.25, 2, 3.141, 7})
		p := &Problem{Adapters: rapid.IntRange(1, z.adapters).Draw(t, "adapters")}
		j := rapid.IntRange(1, z.workers).Draw(t, "workers")
		adapter := rapid.Int32Range(0, int32(p.Adapters)-1)
		at := make([]map[int32]bool, j)
		for w := range j {
			at[w] = map[int32]bool{}
		}
		for range rapid.IntRange(0, z.groups).Draw(t, "groups") {
			g := Group{Adapter: adapter.Draw(t, "adapter"), Worker: rapid.Int32Range(0, int32(j)-1).Draw(t, "worker"),
				Count: rapid.Int64Range(1, int64(z.count)).Draw(t, "count"), Work: times.Draw(t, "work"),
				Move:    rapid.SampledFrom([]float64{0, 0.05, 0.05, 0.7}).Draw(t, "move"),
				Pages:   float64(rapid.IntRange(0, 40).Draw(t, "pages")),
				Virtual: rapid.IntRange(0, 5).Draw(t, "virtual") == 0}
			p.Groups = append(p.Groups, g)
			at[g.Worker][g.Adapter] = true
		}
		uneven := rapid.Bool().Draw(t, "uneven")
		for w := range j {
			v := Worker{Slots: len(at[w]) + rapid.IntRange(0, 2).Draw(t, "slots"),
				Pages:  float64(rapid.IntRange(0, 200).Draw(t, "room")),
				Closed: rapid.IntRange(0, 7).Draw(t, "closed") == 0}
			if uneven {
				v.Speed = rapid.SampledFrom([]float64{0, 0.25, 1, 1.7, 3}).Draw(t, "speed")
			}
			if rapid.IntRange(0, 3).Draw(t, "busy") == 0 {
				v.Base = times.Draw(t, "base")
			}
			for k := range int32(p.Adapters) {
				if at[w][k] && rapid.IntRange(0, 4).Draw(t, "here") > 0 ||
					rapid.IntRange(0, 4).Draw(t, "resident") == 0 {
					v.Resident = append(v.Resident, k)
				}
			}
			p.Workers = append(p.Workers, v)
		}
		if rapid.Bool().Draw(t, "loads") {
			p.Load = rapid.SliceOfN(times, p.Adapters*j, p.Adapters*j).Draw(t, "load")
		}
		if rapid.Bool().Draw(t, "paged") {
			p.PageRate = 64
		}
		p.MaxMoves = max(0, rapid.IntRange(-8, 4).Draw(t, "max moves"))
		if rapid.IntRange(0, 2).Draw(t, "weighted") == 0 {
			p.MoveWeight = rapid.SampledFrom([]float64{0, 0.01, 0.3}).Draw(t, "move weight")
			p.LoadWeight = rapid.SampledFrom([]float64{0, 0.02, 0.4}).Draw(t, "load weight")
		}
		return p
	})
}

// brute finds the least objective by trying every assignment of single
// requests. The adapters of a worker are then those of its requests.
func brute(p *Problem) (objective float64, at []int) {
	var groups []int // of each request
	for i, g := range p.Groups {
		for range g.Count {
			groups = append(groups, i)
		}
	}
	objective = math.Inf(1)
	try := make([]int, len(groups))
	for {
		if v := plainly(p, groups, try); v < objective {
			objective, at = v, append(at[:0], try...)
		}
		i := 0
		for ; i < len(try); i++ {
			if try[i]++; try[i] < len(p.Workers) {
				break
			}
			try[i] = 0
		}
		if i == len(try) {
			return objective, at
		}
	}
}

// plainly is the model of the package comment written down for single requests;
// +Inf where the assignment is not allowed.
func plainly(p *Problem, groups, at []int) float64 {
	t, moves, loads := 0.0, 0, 0
	for j, w := range p.Workers {
		busy, pages := w.Base, 0.0
		speed := w.Speed
		if speed == 0 {
			speed = 1
		}
		here := make([]bool, p.Adapters)
		for i, to := range at {
			if to != j {
				continue
			}
			g := p.Groups[groups[i]]
			busy += g.Work / speed
			pages += g.Pages
			here[g.Adapter] = true
			if int(g.Worker) != j {
				busy += g.Move / speed
				if w.Closed {
					return math.Inf(1)
				}
				if !g.Virtual {
					moves++
				}
			}
		}
		used := 0
		for k, yes := range here {
			if !yes {
				continue
			}
			used++
			resident := false
			for _, r := range w.Resident {
				resident = resident || int(r) == k
			}
			if !resident {
				loads++
				if p.Load != nil {
					busy += p.Load[k*len(p.Workers)+j]
				}
			}
		}
		if used > w.Slots {
			return math.Inf(1)
		}
		if p.PageRate > 0 && pages > w.Pages {
			busy += (pages - w.Pages) / p.PageRate
		}
		t = math.Max(t, busy)
	}
	if p.MaxMoves > 0 && moves > p.MaxMoves {
		return math.Inf(1)
	}
	return t + p.MoveWeight*float64(moves) + p.LoadWeight*float64(loads)
}

// requests is the number of single requests of a problem.
func requests(p *Problem) (n int64) {
	for _, g := range p.Groups {
		n += g.Count
	}
	return n
}

// TestBruteForce compares solver and bound with the true optimum.
func TestBruteForce(t *testing.T) {
	gen := problems(tiny)
	tried, equal, tight := 0, 0, 0
	for seed := 0; tried < 600; seed++ {
		p := gen.Example(seed)
		if n := requests(p); n == 0 || n > 7 {
			continue
		}
		tried++
		best, at := brute(p)
		checkFlows(t, p, at, best)
		sol, err := Embedded{}.Solve(context.Background(), p, Budget{Seed: 1})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		slack := 1e-6 * math.Max(1, best)
		lb := LowerBound(p)
		switch {
		case sol.Objective < best-slack:
			t.Fatalf("seed %d: objective %v below the optimum %v", seed, sol.Objective, best)
		case lb > best+slack:
			t.Fatalf("seed %d: LowerBound %v above the optimum %v\n%+v", seed, lb, best, p)
		case sol.Bound > best+slack:
			t.Fatalf("seed %d: bound %v above the optimum %v\n%+v", seed, sol.Bound, best, p)
		case sol.Status == Optimal && sol.Objective > best+slack:
			t.Fatalf("seed %d: %v called optimal, %v is", seed, sol.Objective, best)
		}
		if sol.Objective <= best+slack {
			equal++
		} else {
			t.Logf("seed %d: %.4f, optimum %.4f", seed, sol.Objective, best)
		}
		if lb >= best-slack {
			tight++
		}
	}
	t.Logf("of %d problems: optimum found %d, LowerBound is the optimum %d", tried, equal, tight)
	if equal < tried*97/100 {
		t.Errorf("optimum found in %d of %d problems, expected 97 %%", equal, tried)
	}
}

// checkFlows evaluates an assignment of single requests by the package.
func checkFlows(t *testing.T, p *Problem, at []int, want float64) {
	t.Helper()
	var flows []Flow
	i := 0
	for g := range p.Groups {
		for range p.Groups[g].Count {
			flows = append(flows, Flow{Group: int32(g), Worker: int32(at[i]), Count: 1})
			i++
		}
	}
	out, err := Evaluate(p, flows)
	if err != nil || math.Abs(out.Objective-want) > 1e-9*math.Max(1, want) {
		t.Fatalf("Evaluate: %v, %v, expected %v", out.Objective, err, want)
	}
}

// TestPairProvesOptimality holds the branch and bound for two workers against
// the true optimum, on problems without page pressure, where it is exact.
func TestPairProvesOptimality(t *testing.T) {
	gen := problems(size{workers: 2, adapters: 4, groups: 6, count: 3})
	tried, proven := 0, 0
	for seed := 0; tried < 300; seed++ {
		p := gen.Example(seed)
		if n := requests(p); len(p.Workers) != 2 || n == 0 || n > 11 {
			continue
		}
		p.PageRate, p.MoveWeight, p.MaxMoves = 0, 0, 0
		tried++
		best, _ := brute(p)
		sol, err := Embedded{}.Solve(context.Background(), p, Budget{})
		if err != nil {
			t.Fatal(err)
		}
		slack := 1e-6 * math.Max(1, best)
		if sol.Bound > best+slack {
			t.Fatalf("seed %d: bound %v above the optimum %v\n%+v", seed, sol.Bound, best, p)
		}
		if sol.Status == Optimal {
			proven++
		} else {
			t.Logf("seed %d: %s, objective %v, bound %v, optimum %v", seed, sol.Status, sol.Objective, sol.Bound, best)
		}
	}
	t.Logf("proven optimal: %d of %d", proven, tried)
	if proven < tried {
		t.Errorf("proven optimal: %d of %d problems, expected all", proven, tried)
	}
}

// TestLoadTime solves problems whose loading times come from a function, and the same with a table.
func TestLoadTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := problems(size{adapters: 4, workers: 4, groups: 6, count: 4}).Draw(t, "problem")
		table := p.Load
		if table == nil {
			t.Skip("no loading times")
		}
		q := *p
		q.Load, q.LoadTime = nil, func(k, j int) float64 { return table[k*len(p.Workers)+j] }
		want, err := Embedded{}.Solve(t.Context(), p, Budget{Work: 1000, Seed: 1})
		if err != nil {
			t.Skip(err)
		}
		if got, err := (Embedded{}).Solve(t.Context(), &q, Budget{Work: 1000, Seed: 1}); err != nil ||
			!reflect.DeepEqual(got, want) {
			t.Fatalf("%+v, %v; expected %+v", got, err, want)
		}
	})
}
