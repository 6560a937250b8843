package planroute

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"lorasim/ilp"
	"lorasim/router"
	"lorasim/router/place"
	"lorasim/router/routertest"
)

func TestSpeedsByHand(t *testing.T) {
	env := routertest.HandEnv(3, 1)
	env.Workers[1].Cost = twice{}
	p := routertest.New(t, "period_mig", env).Policy.(*planAndRoute)
	s := &router.PlannerInput{View: routertest.View(env)}
	for j := range s.Workers {
		s.Workers[j].KVCapacity = 1000
	}
	s.Workers[0].Running, s.Workers[0].KVUsed = 2, 600
	s.Workers[2].Up, s.Workers[2].Running, s.Workers[2].KVUsed = false, 9, 9000
	// 300 tokens of context, but room for 250: a full batch of 4 takes 5 s
	speeds, unit := p.speeds(s)
	routertest.Close(t, "step", unit.step, 1.25)
	routertest.Close(t, "typical request", unit.request(guessPrompt, router.UnknownOutput), 2+250)
	for j, want := range []float64{1, 0.5, 1} {
		routertest.Close(t, "speed", speeds[j], want)
	}
	s.Workers[0].KVUsed = 400 // 200 tokens of context: 800 in a full batch
	_, unit = p.speeds(s)
	routertest.Close(t, "step", unit.step, 1.2)

	a := router.InFlight{Prompt: 300, Generated: 40, Expected: 100, MaxNew: 500}
	routertest.Close(t, "a waiting request", p.remaining(&a, unit), 3.4+60*1.2)
	routertest.Close(t, "moving it", p.moveCost(&a, unit), 0)
	a.Running = true
	routertest.Close(t, "a running request", p.remaining(&a, unit), 60*1.2)
	p.Env().Moving = router.MoveRecompute
	routertest.Close(t, "computing its prompt again", p.moveCost(&a, unit), 3.4)
	p.Env().Moving = router.MoveCopy
	routertest.Close(t, "copying its KV cache", p.moveCost(&a, unit), 340*3)
	for _, c := range []struct {
		moving                 router.Moving
		waiting, running, base bool
	}{{"", false, false, false}, {router.MoveNone, false, false, false}, {router.MoveQueued, true, false, false},
		{router.MoveRecompute, true, true, false}, {router.MoveCopy, true, true, false}} {
		p.Env().Moving = c.moving
		if p.movable(&router.InFlight{}) != c.waiting || p.movable(&router.InFlight{Running: true}) != c.running ||
			p.movable(&router.InFlight{Adapter: -1}) != c.base ||
			p.movable(&router.InFlight{Adapter: -1, Running: true}) != c.base {
			t.Errorf("moving %q: wrong requests may move", c.moving)
		}
	}
}

// twice takes twice as long as handCost.
type twice struct{ routertest.HandCost }

func (twice) DecodeStep(running, adapters int, kvTokens int64, rank int) float64 {
	return 2 * routertest.HandCost{}.DecodeStep(running, adapters, kvTokens, rank)
}

func (twice) Prefill(tokens int64) float64 { return 2 * routertest.HandCost{}.Prefill(tokens) }

// Requests go only to where the adapter is in host memory or on the GPU.
func TestAtHand(t *testing.T) {
	s := &router.PlannerInput{View: routertest.View(routertest.HandEnv(2, 4)),
		Requests: []router.InFlight{{ID: 5, Adapter: 0}, {ID: 6, Adapter: 1},
			{ID: 7, Adapter: 2}}}
	s.Workers[1].Adapters[0].Tier, s.Workers[1].Adapters[1].Tier, s.Workers[1].Adapters[2].Tier = router.Disk,
		router.Host, router.GPU
	got := atHand(s, []router.Move{{ID: 5, From: 0, To: 1}, {ID: 6, From: 0, To: 1}, {ID: 7, From: 0, To: 1}})
	if !slices.Equal(got, []router.Move{{ID: 6, From: 0, To: 1}, {ID: 7, From: 0, To: 1}}) {
		t.Errorf("moves %v, expected those of requests 6 and 7", got)
	}
}

// period_mig leaves an even cluster alone and relieves a skewed one.
func TestPeriodicStaysOrMoves(t *testing.T) {
	env := routertest.Env(2, 4)
	env.Moving = router.MoveRecompute
	for _, c := range []struct {
		name   string
		counts []int // requests of adapters 0 to 3; adapters 0 and 2 are on worker 0
		moves  bool
	}{{"even", []int{20, 20, 20, 20}, false}, {"little to do", []int{3, 0, 1, 0}, false},
		{"skewed", []int{60, 0, 60, 0}, true}} {
		rt := routertest.New(t, "period_mig", env)
		v := routertest.View(env)
		s := &router.PlannerInput{View: v}
		for k, n := range c.counts {
			for range n {
				j := k % 2
				v.Workers[j].Queued++
				v.Workers[j].Adapters[k].Queued++
				v.Workers[j].Adapters[k].Tier = router.Host
				s.Requests = append(s.Requests, router.InFlight{ID: int64(len(s.Requests)), Adapter: int32(k),
					Worker: int32(j), Prompt: 200, MaxNew: 400})
				rt.Policy.(*planAndRoute).Count(router.Request{Adapter: int32(k), Prompt: 200})
			}
		}
		for j := range v.Workers {
			for k := range v.Workers[j].Adapters {
				v.Workers[j].Adapters[k].Tier = router.Host
			}
		}
		v.Now = 10
		plan := rt.Planner.Begin(s).Now()
		if plan == nil || !plan.Empty() != c.moves {
			t.Errorf("%s: plan %+v, expected changes: %v", c.name, plan, c.moves)
		}
		if c.moves && (plan.Objective >= plan.Stay || len(plan.Move) == 0 || len(plan.Load) == 0) {
			t.Errorf("%s: plan %+v gains nothing", c.name, plan)
		}
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
		p := routertest.New(t, "period_mig", routertest.HandEnv(4, 1)).Policy.(*planAndRoute)
		p.SetPlacement([][]int32{{0}, nil, nil, nil})
		g := place.NewGrouping(&ilp.Problem{})
		for j := range 4 {
			g.Problem.Workers = append(g.Problem.Workers, ilp.Worker{Speed: 1, Closed: slices.Contains(c.closed, j)})
		}
		f := forecastShare{each: 1, to: openOf(g.Problem, p.Where(0), openWorkers(g.Problem))}
		f.split = make([]int64, len(f.to))
		load := slices.Clone(c.load)
		f.spread(g.Problem, load)
		got := make([]int64, 4)
		for i, j := range f.to {
			got[j] = f.split[i]
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, expected %v", c.name, got, c.want)
		}
		for j := range load {
			routertest.Close(t, c.name+": work", load[j], c.load[j]+float64(c.want[j]))
		}
	}
}

// Each worker may hold an even share of the adapters, rounded up, and one more;
// where it has more slots, as many as those.
func TestPeriodicSlots(t *testing.T) {
	for _, c := range []struct{ workers, adapters, slots, want int }{
		{2, 4, 2, 3}, {2, 5, 2, 4}, {3, 7, 2, 4}, {2, 4, 9, 9},
	} {
		env := routertest.HandEnv(c.workers, c.adapters)
		env.Moving = router.MoveQueued
		for j := range env.Workers {
			env.Workers[j].Slots = c.slots
		}
		p := routertest.New(t, "period_mig", env).Policy.(*planAndRoute)
		g := p.problem(&router.PlannerInput{View: routertest.View(env),
			Requests: []router.InFlight{{Prompt: 10, MaxNew: 10}}})
		for j := range g.Problem.Workers {
			if got := g.Problem.Workers[j].Slots; got != c.want {
				t.Errorf("%d adapters, %d workers of %d slots: %d, expected %d", c.adapters, c.workers, c.slots, got,
					c.want)
			}
		}
	}
}

// Of five that wait where two are many, two may move and three are work that stays, of
// the mean prompt that waits: all of it is counted.
func TestPeriodicDeepQueues(t *testing.T) {
	env := routertest.HandEnv(2, 2)
	env.Moving = router.MoveQueued
	p := routertest.New(t, "period_mig", env).Policy.(*planAndRoute)
	p.deep = 2
	s := &router.PlannerInput{View: routertest.View(env)}
	for i := range 5 {
		s.Requests = append(s.Requests, router.InFlight{ID: int64(i), Prompt: 100, MaxNew: 400,
			Expected: router.UnknownOutput})
	}
	s.Requests = append(s.Requests, router.InFlight{ID: 5, Worker: 1, Prompt: 100, MaxNew: 400,
		Expected: router.UnknownOutput})
	s.Workers[0].Queued, s.Workers[0].QueuedToks = 5, 500
	s.Workers[1].Queued, s.Workers[1].QueuedToks = 1, 100
	g := p.problem(s)
	_, unit := p.speeds(s)
	each := unit.request(100, router.UnknownOutput)
	if a, b := g.Problem.Groups[0], g.Problem.Groups[1]; a.Count != 2 || a.Worker != 0 || b.Count != 1 ||
		b.Worker != 1 {
		t.Errorf("groups %+v and %+v, expected 2 requests of worker 0 and 1 of worker 1", a, b)
	}
	moves := g.Moves(s, []ilp.Flow{{Group: 0, Worker: 1, Count: 2}}, nil)
	if want := []router.Move{{ID: 0, From: 0, To: 1}, {ID: 1, From: 0, To: 1}}; !slices.Equal(moves, want) {
		t.Errorf("may move: %v, expected the first, %v", moves, want)
	}
	routertest.Close(t, "work of a request", g.Problem.Groups[0].Work, each)
	routertest.Close(t, "what stays on worker 0", g.Problem.Workers[0].Base, 3*each)
	routertest.Close(t, "what stays on worker 1", g.Problem.Workers[1].Base, 0)
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
		env := routertest.HandEnv(2, 2)
		env.Moving, env.Solver = router.MoveQueued, gaining(c.gains)
		rt := routertest.New(t, c.spec, env)
		s := &router.PlannerInput{View: routertest.View(env)}
		for i := range 60 { // all on worker 0, which holds adapter 0; adapter 1 could go
			s.Requests = append(s.Requests, router.InFlight{ID: int64(i), Adapter: int32(i % 2), Prompt: 200,
				MaxNew: 400})
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
	env := routertest.HandEnv(2, 3)
	p, v := routertest.New(t, "period_mig:horizon=10", env).Policy.(*planAndRoute), routertest.View(env)
	p.Demand()[0].Rate, p.Demand()[1].Rate, p.Demand()[2].Rate = 0.1, 0.05, 0.05
	v.Workers[0].Adapters[2].Tier = router.Host
	p.Aim([][]int32{{0, 1, 2}, {0, 2}})
	loads := []router.Placement{{Worker: 0, Adapter: 0}, {Worker: 0, Adapter: 1}, {Worker: 0, Adapter: 2},
		{Worker: 1, Adapter: 0}, {Worker: 1, Adapter: 2}}
	got := p.soonUsed(slices.Clone(loads), v)
	if want := []router.Placement{{Worker: 0, Adapter: 0}, {Worker: 0, Adapter: 2},
		{Worker: 1, Adapter: 0}}; !slices.Equal(got, want) {
		t.Errorf("loads %v, expected %v", got, want)
	}
	p.Env().Workers[0].HostSlots = 2 // one less than is placed there
	got = p.soonUsed(slices.Clone(loads), v)
	if want := []router.Placement{{Worker: 0, Adapter: 2}, {Worker: 1, Adapter: 0}}; !slices.Equal(got, want) {
		t.Errorf("loads %v, expected %v", got, want)
	}
}

// Host memory holds 2 adapters. Worker 0 has adapters 1 and 2 there and loads adapter 0: the one less asked for has to
// go. Worker 1 has room.
func TestUnloadsInTheWayByHand(t *testing.T) {
	env := routertest.HandEnv(2, 3)
	for j := range env.Workers {
		env.Workers[j].HostSlots = 2
	}
	p, v := routertest.New(t, "period_mig", env).Policy.(*planAndRoute), routertest.View(env)
	p.Demand()[1].Rate, p.Demand()[2].Rate = 0.05, 0.02
	v.Workers[0].Adapters[1].Tier, v.Workers[0].Adapters[2].Tier = router.Host, router.GPU
	v.Workers[1].Adapters[1].Tier = router.Host
	got := p.inTheWay([]router.Placement{{Worker: 0, Adapter: 0}, {Worker: 1, Adapter: 0}},
		[]router.Placement{{Worker: 0, Adapter: 1}, {Worker: 0, Adapter: 2}, {Worker: 1, Adapter: 1}}, v)
	if want := []router.Placement{{Worker: 0, Adapter: 2}}; !slices.Equal(got, want) {
		t.Errorf("unloads %v, expected %v", got, want)
	}
}

// 80 requests of two adapters wait on the slow worker, and the plan says where
// they go: mirrored where the workers are. The fast worker gets the more of them.
func TestPeriodicPlansForSpeed(t *testing.T) {
	moved := func(slow int32) (moves, loads int, plan *router.Plan) {
		env := routertest.Unequal(2)
		env.Workers[0].HostSlots, env.Workers[1].HostSlots = 0, 0
		if slow == 0 {
			env.Workers = routertest.Mirror(env.Workers)
		}
		rt := routertest.New(t, "period_mig:max-moves=0", env)
		p := rt.Policy.(*planAndRoute)
		held := make([][]int32, 2)
		held[slow] = []int32{0, 1}
		p.SetPlacement(held)
		v := routertest.View(env)
		s := &router.PlannerInput{View: v}
		for i := range 80 {
			k := int32(i % 2)
			v.Workers[slow].Queued++
			v.Workers[slow].Count(k, 0, 1)
			s.Requests = append(s.Requests, router.InFlight{ID: int64(i), Adapter: k, Worker: slow, Prompt: 200,
				MaxNew: 400})
		}
		for j := range v.Workers {
			for k := range v.Workers[j].Adapters {
				v.Workers[j].Adapters[k].Tier = router.Host
			}
		}
		v.Now = 10
		plan = rt.Planner.Begin(s).Now()
		for _, m := range plan.Move {
			if m.From != slow || m.To != 1-slow {
				t.Fatalf("slow worker %d: %+v", slow, m)
			}
		}
		return len(plan.Move), len(plan.Load), plan
	}
	m, l, p := moved(1)
	n, k, q := moved(0)
	if m != n || l != k || p.Objective != q.Objective || p.Stay != q.Stay {
		t.Errorf("%d moves, %d loads to %v s of %v; mirrored %d, %d to %v of %v", m, l, p.Objective, p.Stay, n, k,
			q.Objective, q.Stay)
	}
	// With speeds of 1 and 1/3 or less three quarters or more belong on the fast worker.
	if m < 60 || m == 80 {
		t.Errorf("%d of 80 requests move to the fast worker, expected three quarters or more", m)
	}
}

// Copying a KV cache costs what the link of the worker that has it says.
func TestMoveCostIsTheProfiles(t *testing.T) {
	env := routertest.Unequal(1)
	p := routertest.New(t, "period_mig", env).Policy.(*planAndRoute)
	p.Env().Moving = router.MoveCopy
	for j, want := range []float64{300 * 1e5 / 1e10, 3 * 300 * 1e5 / 1e10} {
		a := &router.InFlight{Worker: int32(j), Running: true, Prompt: 200, Generated: 100}
		if got := p.moveCost(a, rate{cost: routertest.Slower(1)}); math.Abs(got-want) > 1e-12 {
			t.Errorf("from worker %d: %v s, expected %v", j, got, want)
		}
	}
}
