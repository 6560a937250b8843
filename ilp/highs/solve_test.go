//go:build highs && cgo

package highs

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"lorasim/ilp"
	"lorasim/internal/shareddata"
)

// eps is how far objectives and bounds may be apart that ought to be equal.
func eps(x float64) float64 { return 2e-6 * math.Max(1, math.Abs(x)) }

// exact says whether a formulation finds the optimum of p.
func exact(f string, p *ilp.Problem) bool {
	return f == request || f == flow || f == Auto || f == totals && p.PageRate == 0
}

func solver(tb testing.TB, f string) *Solver {
	tb.Helper()
	s, err := New(f)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func solve(tb testing.TB, s *Solver, p *ilp.Problem, b ilp.Budget) *ilp.Solution {
	tb.Helper()
	sol, err := s.Solve(context.Background(), p, b)
	if err == nil {
		err = ilp.Verify(p, sol)
	}
	if err != nil {
		tb.Fatalf("%s: %v\nproblem: %+v", s.Name(), err, p)
	}
	return sol
}

// bruteSolve returns the objective of the best assignment.
func bruteSolve(p *ilp.Problem) float64 {
	best := math.Inf(1)
	bruteAssignments(p, func(flows []ilp.Flow) {
		if out, err := ilp.Evaluate(p, flows); err == nil {
			best = math.Min(best, out.Objective)
		}
	})
	return best
}

// bruteAssignments calls f with every assignment of the requests of p to workers,
// feasible or not. f must not keep the flows.
func bruteAssignments(p *ilp.Problem, f func([]ilp.Flow)) {
	var flows []ilp.Flow
	var place func(group, worker int, left int64)
	place = func(group, worker int, left int64) {
		if group == len(p.Groups) {
			f(flows)
			return
		}
		if worker == len(p.Workers)-1 {
			mark := len(flows)
			flows = addFlow(flows, group, worker, left)
			if group+1 < len(p.Groups) {
				place(group+1, 0, p.Groups[group+1].Count)
			} else {
				place(group+1, 0, 0)
			}
			flows = flows[:mark]
			return
		}
		for n := range left + 1 {
			mark := len(flows)
			flows = addFlow(flows, group, worker, n)
			place(group, worker+1, left-n)
			flows = flows[:mark]
		}
	}
	if len(p.Groups) == 0 {
		f(nil)
		return
	}
	place(0, 0, p.Groups[0].Count)
}

// Every formulation agrees with trying all assignments: the exact ones find the
// optimum, and no bound, that of package ilp included, is above it.
func TestBruteForce(t *testing.T) {
	for _, f := range Formulations() {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(5, 6))
			for range 150 {
				p := bruteProblem(rng)
				want := bruteSolve(p)
				sol := solve(t, solver(t, f), p, ilp.Budget{})
				if lb := ilp.LowerBound(p); lb > want+eps(want) {
					t.Fatalf("ilp.LowerBound is %v, the optimum %v\nproblem: %+v", lb, want, p)
				}
				if sol.Bound > want+eps(want) || sol.Objective < want-eps(want) ||
					exact(f, p) && (sol.Objective > want+eps(want) || sol.Status != ilp.Optimal) {
					t.Fatalf("%v to %v (%s), the optimum is %v\nproblem: %+v", sol.Bound, sol.Objective, sol.Status,
						want, p)
				}
			}
		})
	}
}

// weighted is a drawn problem of middling size, with loading times and weights,
// and with pages that press if tight.
func weighted(workers, adapters, requests int, seed uint64, tight bool) *ilp.Problem {
	p, _ := ilp.Generate(workers, adapters, requests, seed).Problem()
	rng := rand.New(rand.NewPCG(seed, 7))
	p.Load = make([]float64, adapters*workers)
	for i := range p.Load {
		p.Load[i] = 0.2 + 2*rng.Float64()
	}
	p.MoveWeight, p.LoadWeight = 0.01, 0.05
	if tight {
		p.PageRate = 64
	}
	return p
}

// HiGHS and the embedded solver, which share no code, do not contradict each
// other: neither is below the other's bound.
func TestAgreesWithEmbedded(t *testing.T) {
	problem := func(i uint64) *ilp.Problem {
		size := [][3]int{{2, 4, 32}, {2, 8, 60}, {3, 8, 40}, {4, 16, 100}}[i%4]
		if i%3 == 0 {
			p, _ := ilp.Generate(size[0], size[1], size[2], i).Problem()
			return p
		}
		return weighted(size[0], size[1], size[2], i, i%3 == 1)
	}
	for i := range uint64(16) {
		p := problem(i)
		e, err := ilp.Embedded{}.Solve(context.Background(), p, ilp.Budget{Seed: i})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range []string{flow, totals} {
			h := solve(t, solver(t, f), p, ilp.Budget{Time: 150 * time.Millisecond, Gap: 1e-3})
			if h.Objective < e.Bound-eps(e.Bound) || e.Objective < h.Bound-eps(h.Bound) {
				t.Errorf("problem %d: %s says %v to %v, embedded %v to %v", i, h.Solver, h.Bound, h.Objective, e.Bound,
					e.Objective)
			}
		}
	}
}

func TestWarmStart(t *testing.T) {
	for i, p := range []*ilp.Problem{weighted(4, 16, 100, 1, false), weighted(4, 16, 100, 2, true),
		weighted(8, 32, 200, 3, true)} {
		start, err := ilp.Embedded{}.Solve(context.Background(), p, ilp.Budget{})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range Formulations() {
			sol, err := solver(t, f).SolveFrom(context.Background(), p, start, ilp.Budget{Time: 100 * time.Millisecond})
			if err == nil {
				err = ilp.Verify(p, sol)
			}
			if err != nil {
				t.Fatal(err)
			}
			if sol.Objective > start.Objective || sol.Bound < ilp.LowerBound(p)-eps(sol.Bound) {
				t.Errorf("problem %d: %s made %v of a start of %v", i, f, sol.Objective, start.Objective)
			}
		}
	}
}

// HiGHS itself takes the start: stopped after its first node, it has a solution
// no worse than that.
func TestStartReachesHiGHS(t *testing.T) {
	p := weighted(8, 32, 200, 4, false)
	start, err := ilp.Embedded{}.Solve(context.Background(), p, ilp.Budget{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{request, flow, totals} {
		form, err := solver(t, f).form(p)
		if err != nil {
			t.Fatal(err)
		}
		r, err := minimise(context.Background(), form.program(), form.Encode(start.Flows), ilp.Budget{Work: 1},
			time.Now().Add(time.Hour))
		if err != nil || r.x == nil {
			t.Fatal(f, r, err)
		}
		got := 0.0
		for i, c := range form.program().Cost {
			got += c * r.x[i]
		}
		// d0's objective leaves the pages out
		if got > start.Objective+eps(got) {
			t.Errorf("%s: HiGHS has %v, the start is %v", f, got, start.Objective)
		}
	}
}

func TestEdges(t *testing.T) {
	one := ilp.Worker{Slots: 1, Pages: 10}
	closed := ilp.Worker{Slots: 1, Pages: 10, Closed: true}
	group := ilp.Group{Count: 4, Work: 1, Move: 0.1, Pages: 5}
	for _, c := range []struct {
		name  string
		p     ilp.Problem
		want  float64
		moves int64
	}{
		{"no groups", ilp.Problem{Workers: []ilp.Worker{{Base: 3}, {Base: 2}}}, 3, 0},
		{"one worker", ilp.Problem{Adapters: 1, Workers: []ilp.Worker{one}, Groups: []ilp.Group{group}, PageRate: 2},
			4 + 10./2, 0},
		{"no page rate", ilp.Problem{Adapters: 1, Workers: []ilp.Worker{one, one}, Groups: []ilp.Group{group}}, 2.2, 2},
		{"closed", ilp.Problem{Adapters: 1, Workers: []ilp.Worker{one, closed}, Groups: []ilp.Group{group}}, 4, 0},
		{"no slots", ilp.Problem{Adapters: 1, Workers: []ilp.Worker{one, {}}, Groups: []ilp.Group{group}}, 4, 0},
		{"one move", ilp.Problem{Adapters: 1, Workers: []ilp.Worker{one, one}, Groups: []ilp.Group{group}, MaxMoves: 1},
			3, 1},
		{"load too long", ilp.Problem{Adapters: 1, Workers: []ilp.Worker{{Slots: 1, Resident: []int32{0}}, one},
			Groups: []ilp.Group{group}, Load: []float64{9, 9}}, 4, 0},
		{"load pays", ilp.Problem{Adapters: 1, Workers: []ilp.Worker{{Slots: 1, Resident: []int32{0}}, one},
			Groups: []ilp.Group{group}, Load: []float64{9, 0.5}}, 2.7, 2},
		{"huge counts", ilp.Problem{Adapters: 1, Workers: []ilp.Worker{one, one},
			Groups: []ilp.Group{{Count: 1e9, Work: 1}}}, 5e8, 5e8},
	} {
		for _, f := range Formulations() {
			if c.name == "huge counts" && (f == request || f == relaxed) {
				continue
			}
			sol := solve(t, solver(t, f), &c.p, ilp.Budget{})
			if math.Abs(sol.Objective-c.want) > eps(c.want) && (f != relaxed || sol.Objective < c.want) {
				t.Errorf("%s, %s: objective %v, expected %v", c.name, f, sol.Objective, c.want)
			}
			if exact(f, &c.p) && (sol.Status != ilp.Optimal ||
				math.Abs(float64(sol.Moves-c.moves)) > 1e-6*float64(c.moves)) {
				t.Errorf("%s, %s: %d moves, %s; expected %d, optimal", c.name, f, sol.Moves, sol.Status, c.moves)
			}
		}
	}
}

func TestErrors(t *testing.T) {
	if _, err := New("flaw"); err == nil || !strings.Contains(err.Error(), `"flaw"`) {
		t.Errorf("formulation flaw: %v", err)
	}
	s := solver(t, Auto)
	if _, err := s.Solve(context.Background(), &ilp.Problem{}, ilp.Budget{}); err == nil {
		t.Error("no error without workers")
	}
	p := weighted(2, 4, 32, 1, false)
	if _, err := s.SolveFrom(context.Background(), p, &ilp.Solution{}, ilp.Budget{}); err == nil {
		t.Error("no error for a start without requests")
	}
	p = &ilp.Problem{Adapters: 1, Workers: []ilp.Worker{{Slots: 1}, {Slots: 1}},
		Groups: []ilp.Group{{Count: 1e9, Work: 1}}}
	if _, err := solver(t, request).Solve(context.Background(), p, ilp.Budget{}); err == nil {
		t.Error("no error for 10^9 requests one by one")
	}
}

// A limit ends the search with what has been found and a bound.
func TestLimits(t *testing.T) {
	p := weighted(8, 32, 200, 1, true)
	stay, err := ilp.Evaluate(p, ilp.StayFlows(p))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{request, relaxed, flow, totals} {
		// without a limit it would take hours; a slow machine takes longer to a first bound
		var sol *ilp.Solution
		for limit := 400 * time.Millisecond; sol == nil || sol.Bound <= 0 && limit < hours; limit *= 4 {
			sol = solve(t, solver(t, f), p, ilp.Budget{Time: limit})
		}
		if sol.Objective > stay.Objective || sol.Bound <= 0 || sol.Gap() <= 0 || sol.Status == ilp.Optimal {
			t.Errorf("%s: %v to %v, %s", f, sol.Bound, sol.Objective, sol.Status)
		}
	}
	if sol := solve(t, solver(t, flow), p, ilp.Budget{Time: time.Nanosecond}); sol.Status != ilp.Stay ||
		sol.Objective != stay.Objective {
		t.Errorf("in no time: %s, %v", sol.Status, sol.Objective)
	}
	if sol := solve(t, solver(t, flow), p, ilp.Budget{Gap: 0.9}); sol.Gap() > 0.9 || sol.Status != ilp.WithinGap {
		t.Errorf("gap of 90 %%: %v, %s", sol.Gap(), sol.Status)
	}
}

func TestCancel(t *testing.T) {
	p := weighted(8, 32, 200, 2, true)
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(300*time.Millisecond, cancel)
	defer cancel()
	// without the cancellation it would take hours: the test would time out
	sol, err := solver(t, flow).Solve(ctx, p, ilp.Budget{})
	if err == nil {
		err = ilp.Verify(p, sol)
	}
	if err != nil {
		t.Fatal(err)
	}
	sol, err = solver(t, flow).Solve(ctx, p, ilp.Budget{})
	if err != nil || sol.Status != ilp.Stay {
		t.Errorf("cancelled beforehand: %v, %v", sol, err)
	}
}

// With a budget of work every run gives the same, also beside others and while
// the garbage collector is busy.
func TestParallel(t *testing.T) {
	const solves = 200
	budget := ilp.Budget{Work: 1, Seed: 3}
	problems := make([]*ilp.Problem, 10)
	want := make([]*ilp.Solution, len(problems))
	rng := rand.New(rand.NewPCG(8, 9))
	s := solver(t, flow)
	for i := range problems {
		for problems[i] = bruteProblem(rng); len(problems[i].Groups) < 3 || len(problems[i].Workers) < 2; {
			problems[i] = bruteProblem(rng)
		}
		want[i] = solve(t, s, problems[i], budget)
	}
	stop := make(chan struct{})
	var collector, workers sync.WaitGroup
	collector.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				runtime.GC()
			}
		}
	})
	errs := make([]error, 4)
	for w := range errs {
		workers.Go(func() {
			for i := range solves {
				n := (i + w) % len(problems)
				got, err := s.Solve(context.Background(), problems[n], budget)
				if err == nil && !reflect.DeepEqual(got, want[n]) {
					err = errors.New("another solution than alone")
				}
				errs[w] = errors.Join(errs[w], err)
			}
		})
	}
	workers.Wait()
	close(stop)
	collector.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

const hours = 5 * time.Minute // stands for them: a limit that nothing here needs

// The instances beside the project, with a reference bound and objective.
func TestReference(t *testing.T) {
	for _, c := range []struct {
		name        string
		bound, best float64 // reference.json
		formulation string
		within      float64 // of the best
	}{
		{"2_4_32", 71.456, 71.4882, flow, 1e-3},
		{"2_4_200", 327.501, 327.501, totals, 1e-3}, // it leaves the pages out
		{"2_32_200", 436.3101, 436.59, totals, 1e-3},
		{"4_32_200", 208.2486, 208.749, totals, 0.03},
	} {
		file, err := os.Open(shareddata.Path(t, "ilp/"+c.name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		in, err := ilp.ReadInstance(file, c.name)
		file.Close()
		if err != nil {
			t.Fatal(err)
		}
		p, _ := in.Problem()
		most := c.best*(1+c.within) + 1e-4
		var sol *ilp.Solution // a second is enough, but on slow machines
		for limit := time.Second; sol == nil || sol.Objective > most && limit < hours; limit *= 4 {
			sol = solve(t, solver(t, c.formulation), p, ilp.Budget{Time: limit})
		}
		t.Logf("%s, %s: %.4f to %.4f, reference %.4f to %.4f", c.name, sol.Solver, sol.Bound, sol.Objective, c.bound,
			c.best)
		// the reference is rounded to four decimals
		if sol.Bound > c.best+1e-4 || sol.Objective < c.bound-1e-3 || sol.Objective > most {
			t.Errorf("%s: %v to %v, reference %v to %v", c.name, sol.Bound, sol.Objective, c.bound, c.best)
		}
	}
}

func BenchmarkSolve(b *testing.B) {
	p := weighted(2, 4, 32, 1, false)
	for _, f := range []string{request, flow, totals} {
		b.Run(string(f), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				solve(b, solver(b, f), p, ilp.Budget{Gap: 0.01})
			}
		})
	}
}
