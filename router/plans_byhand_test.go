package router

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"

	"lorasim/ilp"
)

// dLoRA's placement after a plan for workers 0 and 2: the adapters where the
// flows take their requests, and adapter 3, which has none and is nowhere else,
// where worker 0 has room.
func TestReplaced(t *testing.T) {
	for _, c := range []struct {
		cap  int
		want [][]int32
	}{{3, [][]int32{{1, 2, 3}, nil, {0}}}, {2, [][]int32{{1, 2}, nil, {0}}}} {
		p := mustNew(t, "dlora_period_mig", handEnv(3, 4)).Policy.(*dloraPeriodMig)
		p.setPlacement([][]int32{{0, 1, 3}, nil, {2}})
		p.cap = []int{c.cap, 0, 1}
		g := newGrouping(&ilp.Problem{Groups: []ilp.Group{{Adapter: 0}, {Adapter: 1}, {Adapter: 2, Worker: 1},
			{Adapter: 1}}})
		flows := []ilp.Flow{{Group: 0, Worker: 1, Count: 2}, {Group: 1, Worker: 0, Count: 1},
			{Group: 2, Worker: 0, Count: 3}, {Group: 3, Worker: 0, Count: 1}}
		if p.replace(g, &ilp.Solution{Flows: flows}, []int32{0, 2}); !slices.EqualFunc(p.held, c.want, slices.Equal) {
			t.Errorf("room for %d: placement %v, expected %v", c.cap, p.held, c.want)
		}
	}
}

// dLoRA pads with one adapter after the other, period_mig's form with a random
// one on worker after worker.
func TestPadding(t *testing.T) {
	seen := map[int32]bool{}
	for seed := range uint64(20) {
		env := handEnv(2, 3)
		env.Seed = seed
		d := newDLoRA(env, false)
		d.setPlacement(make([][]int32, 2))
		d.pad(4, false)
		if want := [][]int32{{0, 2}, {1, 0}}; !reflect.DeepEqual(d.held, want) {
			t.Errorf("seed %d: placement %v, expected %v", seed, d.held, want)
		}
		d.setPlacement(make([][]int32, 2))
		d.pad(2, true)
		if len(d.held[0]) != 1 || !slices.Equal(d.held[0], d.held[1]) {
			t.Fatalf("seed %d: placement %v, expected one adapter on both workers", seed, d.held)
		}
		seen[d.held[0][0]] = true
	}
	if len(seen) != 3 {
		t.Errorf("twenty seeds pad with %d adapters of 3", len(seen))
	}
}

// The 16 virtual requests of an adapter, 1 s each, go where they are done first:
// to holders while one is up, of equals to the first.
func TestSpreadByHand(t *testing.T) {
	for _, c := range []struct {
		name   string
		closed []int
		load   []float64
		want   []int64
	}{
		{"the holder", nil, []float64{90, 0, 0, 0}, []int64{16, 0, 0, 0}},
		{"the holder is down", []int{0}, []float64{0, 0, 0, 0}, []int64{0, 6, 5, 5}},
		{"one has work", []int{0}, []float64{0, 4, 0, 90}, []int64{0, 6, 10, 0}},
		{"all are down", []int{0, 1, 2, 3}, []float64{0, 0, 0, 0}, []int64{0, 0, 0, 0}},
	} {
		p := mustNew(t, "period_mig", handEnv(4, 1)).Policy.(*planAndRoute)
		p.setPlacement([][]int32{{0}, nil, nil, nil})
		g := newGrouping(&ilp.Problem{})
		for j := range 4 {
			g.p.Workers = append(g.p.Workers, ilp.Worker{Speed: 1, Closed: slices.Contains(c.closed, j)})
		}
		to := openOf(g.p, p.where[0])
		split := make([]int64, len(to))
		load := slices.Clone(c.load)
		spread(g, to, split, 1, load)
		got := make([]int64, 4)
		for i, j := range to {
			got[j] = split[i]
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, expected %v", c.name, got, c.want)
		}
		for j := range load {
			close2(t, c.name+": work", load[j], c.load[j]+float64(c.want[j]))
		}
	}
}

// Each worker may hold an even share of the adapters, rounded up, and one more;
// where it has more slots, as many as those.
func TestPeriodicSlots(t *testing.T) {
	for _, c := range []struct{ workers, adapters, slots, want int }{
		{2, 4, 2, 3}, {2, 5, 2, 4}, {3, 7, 2, 4}, {2, 4, 9, 9},
	} {
		env := handEnv(c.workers, c.adapters)
		env.Moving = MoveQueued
		for j := range env.Workers {
			env.Workers[j].Slots = c.slots
		}
		p := mustNew(t, "period_mig", env).Policy.(*planAndRoute)
		g := p.problem(&PlannerInput{View: testView(env), Requests: []InFlight{{Prompt: 10, MaxNew: 10}}})
		for j := range g.p.Workers {
			if got := g.p.Workers[j].Slots; got != c.want {
				t.Errorf("%d adapters, %d workers of %d slots: %d, expected %d", c.adapters, c.workers, c.slots, got,
					c.want)
			}
		}
	}
}

// Of five that wait where two are many, two may move and three are work that stays, of
// the mean prompt that waits: all of it is counted.
func TestPeriodicDeepQueues(t *testing.T) {
	env := handEnv(2, 2)
	env.Moving = MoveQueued
	p := mustNew(t, "period_mig", env).Policy.(*planAndRoute)
	p.deep = 2
	s := &PlannerInput{View: testView(env)}
	for i := range 5 {
		s.Requests = append(s.Requests, InFlight{ID: int64(i), Prompt: 100, MaxNew: 400, Expected: guessOutput})
	}
	s.Requests = append(s.Requests, InFlight{ID: 5, Worker: 1, Prompt: 100, MaxNew: 400, Expected: guessOutput})
	s.Workers[0].Queued, s.Workers[0].QueuedToks = 5, 500
	s.Workers[1].Queued, s.Workers[1].QueuedToks = 1, 100
	g := p.problem(s)
	_, unit := p.speeds(s)
	each := unit.request(100, guessOutput)
	if a, b := g.p.Groups[0], g.p.Groups[1]; a.Count != 2 || a.Worker != 0 || b.Count != 1 || b.Worker != 1 {
		t.Errorf("groups %+v and %+v, expected 2 requests of worker 0 and 1 of worker 1", a, b)
	}
	if want := []int{0, 1}; !slices.Equal(g.members[0], want) {
		t.Errorf("may move: %v, expected the first, %v", g.members[0], want)
	}
	close2(t, "work of a request", g.p.Groups[0].Work, each)
	close2(t, "what stays on worker 0", g.p.Workers[0].Base, 3*each)
	close2(t, "what stays on worker 1", g.p.Workers[1].Base, 0)
}

// period_mig follows a solution that gains more than the margin of what staying
// takes, and says how much there was to gain otherwise.
func TestPeriodicMargin(t *testing.T) {
	for _, c := range []struct {
		spec   string
		gains  float64
		reason string
	}{
		{"period_mig:margin=0", 0, "stay: the gain is 0.000 s"},
		{"period_mig:margin=0", 0.01, "the busiest"},
		{"period_mig:margin=0.2", 0.19, "stay: "},
		{"period_mig:margin=0.2", 0.21, "the busiest"},
	} {
		env := handEnv(2, 2)
		env.Moving, env.Solver = MoveQueued, gaining(c.gains)
		rt := mustNew(t, c.spec, env)
		s := &PlannerInput{View: testView(env)}
		for i := range 60 { // all on worker 0, which holds adapter 0; adapter 1 could go
			s.Requests = append(s.Requests, InFlight{ID: int64(i), Adapter: int32(i % 2), Prompt: 200, MaxNew: 400})
		}
		s.Now = 10
		if plan := rt.Planner.Begin(s).Now(); plan == nil || !strings.HasPrefix(plan.Reason, c.reason) {
			t.Errorf("%s, a gain of %v: plan %+v, expected %q", c.spec, c.gains, plan, c.reason)
		}
	}
}

// gaining is a solver that claims to gain a share of what staying takes.
type gaining float64

func (gaining) Name() string { return "gaining" }

func (s gaining) Solve(_ context.Context, p *ilp.Problem, _ ilp.Budget) (*ilp.Solution, error) {
	stay, err := ilp.Evaluate(p, ilp.StayFlows(p))
	return &ilp.Solution{Flows: ilp.StayFlows(p), Outcome: ilp.Outcome{Objective: (1 - float64(s)) * stay.Objective},
		Work: 1}, err
}

// Plans provide for 10 s. In that time one request for adapter 0 is expected and half a one for the others, of which
// worker 0 has adapter 2 in host memory.
func TestLoadsSoonUsedByHand(t *testing.T) {
	env := handEnv(2, 3)
	p, v := mustNew(t, "period_mig:horizon=10", env).Policy.(*planAndRoute), testView(env)
	p.demand[0].rate, p.demand[1].rate, p.demand[2].rate = 0.1, 0.05, 0.05
	v.Workers[0].Adapters[2].Tier = Host
	p.next = [][]int32{{0, 1, 2}, {0, 2}}
	loads := []Placement{{0, 0}, {0, 1}, {0, 2}, {1, 0}, {1, 2}}
	got := p.soonUsed(slices.Clone(loads), v)
	if want := []Placement{{0, 0}, {0, 2}, {1, 0}}; !slices.Equal(got, want) {
		t.Errorf("loads %v, expected %v", got, want)
	}
	p.env.Workers[0].HostSlots = 2 // one less than is placed there
	got = p.soonUsed(slices.Clone(loads), v)
	if want := []Placement{{0, 2}, {1, 0}}; !slices.Equal(got, want) {
		t.Errorf("loads %v, expected %v", got, want)
	}
}

// Host memory holds 2 adapters. Worker 0 has adapters 1 and 2 there and loads adapter 0: the one less asked for has to
// go. Worker 1 has room.
func TestUnloadsInTheWayByHand(t *testing.T) {
	env := handEnv(2, 3)
	for j := range env.Workers {
		env.Workers[j].HostSlots = 2
	}
	p, v := mustNew(t, "period_mig", env).Policy.(*planAndRoute), testView(env)
	p.demand[1].rate, p.demand[2].rate = 0.05, 0.02
	v.Workers[0].Adapters[1].Tier, v.Workers[0].Adapters[2].Tier = Host, GPU
	v.Workers[1].Adapters[1].Tier = Host
	got := p.inTheWay([]Placement{{0, 0}, {1, 0}}, []Placement{{0, 1}, {0, 2}, {1, 1}}, v)
	if want := []Placement{{0, 2}}; !slices.Equal(got, want) {
		t.Errorf("unloads %v, expected %v", got, want)
	}
}
