package place

import (
	"context"
	"slices"
	"testing"

	"lorasim/ilp"
	"lorasim/router"
	"lorasim/router/routertest"
)

// Requests of four tokens or so each are alike by powers of two.
func TestGroupingByHand(t *testing.T) {
	for n, want := range map[int64]uint8{0: 0, 1: 1, 2: 2, 3: 2, 4: 3, 7: 3, 8: 4, 1 << 40: 41} {
		if got := log2(n); got != want {
			t.Errorf("bucket of %d is %d, expected %d", n, got, want)
		}
	}
	for _, c := range []struct {
		a    router.InFlight
		want float64
	}{
		{router.InFlight{Prompt: 16}, 1}, {router.InFlight{Prompt: 17}, 2},
		{router.InFlight{Prompt: 10, Generated: 7}, 2},
		{router.InFlight{Prompt: 10, Generated: 6, KV: 16}, 1},
		{router.InFlight{Prompt: 10, KV: 33}, 3},
	} {
		if got := Pages(16, &c.a); got != c.want {
			t.Errorf("%+v takes %v pages, expected %v", c.a, got, c.want)
		}
	}
	load, unload := Difference([][]int32{{0, 1}, {2}}, [][]int32{{1, 2}, {2}})
	if !slices.Equal(load, []router.Placement{{Worker: 0, Adapter: 2}}) ||
		!slices.Equal(unload, []router.Placement{{Worker: 0, Adapter: 0}}) {
		t.Errorf("load %v, unload %v", load, unload)
	}
}

// A solver that tells no work is charged for the usual one.
func TestSolveTime(t *testing.T) {
	env := routertest.HandEnv(2, 2)
	p := &ilp.Problem{Adapters: 1, Workers: []ilp.Worker{{Slots: 1}, {Slots: 1}},
		Groups: []ilp.Group{{Count: 4, Work: 2}}}
	for _, c := range []struct{ work, charged int64 }{{0, ilp.DefaultWork(p)}, {1000, 1000}, {1 << 40, 0}} {
		env.Solver = working(c.work)
		_, plan, err := Solve(&env, p, 10)
		if err != nil {
			t.Fatal(err)
		}
		want := 100e-6 + 25e-9*float64(c.charged)
		if c.charged == 0 || want > 2 { // a fifth of the interval at most
			want = 2
		}
		routertest.Close(t, "time for solving", plan.SolveTime, want)
	}
}

// working is a solver that leaves everything where it is and claims to have worked.
type working int64

func (working) Name() string { return "working" }

func (w working) Solve(_ context.Context, p *ilp.Problem, _ ilp.Budget) (*ilp.Solution, error) {
	return &ilp.Solution{Flows: ilp.StayFlows(p), Work: int64(w)}, nil
}
