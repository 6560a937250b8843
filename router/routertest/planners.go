package routertest

import (
	"slices"
	"sync"

	"pgregory.net/rapid"

	"lorasim/router"
	"lorasim/trace"
)

// drawSituation fills a view's workers with requests and lists them.
func drawSituation(t *rapid.T, env router.Env, v *router.View) *router.PlannerInput {
	s := &router.PlannerInput{View: v}
	for j := range v.Workers {
		w := &v.Workers[j]
		*w = router.Worker{Up: rapid.IntRange(0, 5).Draw(t, "up") > 0, MaxRunning: env.Workers[j].MaxRunning,
			KVCapacity: 10000,
			Slots:      env.Workers[j].Slots, Adapters: make([]router.AdapterState, len(env.Adapters))}
		for k := range w.Adapters {
			w.Adapters[k].Tier = router.Tier(rapid.IntRange(0, 3).Draw(t, "tier"))
		}
		if !w.Up {
			continue
		}
		for range rapid.IntRange(0, 12).Draw(t, "requests") {
			a := router.InFlight{ID: int64(len(s.Requests)), Worker: int32(j), MaxNew: 300,
				Age:     rapid.Float64Range(0, 9).Draw(t, "age"),
				Adapter: int32(rapid.IntRange(-1, len(env.Adapters)-1).Draw(t, "adapter")),
				Prompt:  int32(rapid.IntRange(1, 900).Draw(t, "prompt")), Running: rapid.Bool().Draw(t, "running")}
			if a.Running {
				a.Generated = int32(rapid.IntRange(1, 299).Draw(t, "generated"))
				a.KV = int64(a.Prompt) + int64(a.Generated)
				w.Running++
				w.KVUsed += a.KV
			} else {
				w.Queued++
				w.QueuedToks += int64(a.Prompt)
			}
			switch {
			case a.Adapter == trace.BaseModel:
			case a.Running:
				w.Count(a.Adapter, 1, 0)
			default:
				w.Count(a.Adapter, 0, 1)
			}
			s.Requests = append(s.Requests, a)
		}
	}
	return s
}

// PlannerTest tests a planner: whatever the situation, plans name things that exist, move requests from where they are
// to another usable worker, say why, are the same for the same seed, and leave every adapter with a place.
type PlannerTest struct {
	Spec string
	// Prepare changes two routers of the same spec alike; nil: nothing to prepare.
	Prepare func(t *rapid.T, routers [2]*router.Router)
	// Route is the Route of a policy, with checks of its own; nil: without.
	Route func(t *rapid.T, p router.Policy, r router.Request, v *router.View) int
	// Homeless says that plans may leave an adapter without a place: it is loaded on demand.
	Homeless bool
}

// Check draws situations and checks the plans for them.
func (c *PlannerTest) Check(t *rapid.T) {
	if c.Route == nil {
		c.Route = func(_ *rapid.T, p router.Policy, r router.Request,
			v *router.View) int {
			return p.Route(r, v).Worker
		}
	}
	env := Env(rapid.IntRange(1, 5).Draw(t, "workers"), rapid.IntRange(1, 9).Draw(t, "adapters"))
	env.Moving = rapid.SampledFrom(router.Movings()).Draw(t, "moving")
	hostSlots := rapid.SampledFrom([]int{0, 9}).Draw(t, "host slots")
	for j := range env.Workers {
		w := &env.Workers[j]
		w.HostSlots = hostSlots
		w.KVBytes, w.PageSize = 1e5, 16
		w.Cost = Slower(rapid.SampledFrom([]float64{1, 1, 3}).Draw(t, "slower"))
		w.MaxRunning = rapid.SampledFrom([]int{8, 8, 32}).Draw(t, "max running")
	}
	rt, twin := New(t, c.Spec, env), New(t, c.Spec, env)
	if c.Prepare != nil {
		c.Prepare(t, [2]*router.Router{rt, twin})
	}
	held := clonePlacement(rt.Placement)
	v := View(env)
	for range 4 {
		v.Now += rapid.SampledFrom([]float64{rt.Planner.Interval(), 60}).Draw(t, "since the last look")
		s := drawSituation(t, env, v)
		for range rapid.IntRange(0, 20).Draw(t, "arrivals") {
			r := router.Request{Adapter: int32(rapid.IntRange(-1, len(env.Adapters)-1).Draw(t, "arrival")), Prompt: 100,
				MaxNew: 200}
			a, b := rt.Policy.Route(r, v).Worker, c.Route(t, twin.Policy, r, v)
			if a != b {
				t.Fatalf("same seed, but routed to %d and %d", a, b)
			}
		}
		plan := rt.Planner.Begin(s).Now()
		later := router.Request{Adapter: int32(rapid.IntRange(-1, len(env.Adapters)-1).Draw(t,
			"arrival while solving")),
			Prompt: 50, MaxNew: 100}
		again := beside(twin, wanted(twin.Planner, s), func() { twin.Policy.Route(later, v) })
		rt.Policy.Route(later, v)
		equalPlans(t, plan, again)
		if plan == nil {
			continue
		}
		checkPlan(t, plan, s)
		if err := plan.Check(v); err != nil {
			t.Fatalf("%v: %+v", err, plan)
		}
		rt.Planner.Applied(plan, nil)
		twin.Planner.Applied(again, nil)
		if held == nil {
			continue
		}
		if held = applied(t, held, plan); c.Homeless {
			continue
		}
		for k := range env.Adapters {
			if !slices.ContainsFunc(held, func(ks []int32) bool { return slices.Contains(ks, int32(k)) }) {
				t.Fatalf("%s: adapter %d is on no worker after %+v", c.Spec, k, plan)
			}
		}
	}
}

func clonePlacement(held [][]int32) [][]int32 {
	c := slices.Clone(held)
	for j := range c {
		c[j] = slices.Clone(c[j])
	}
	return c
}

// wanted leaves out the requests that a planner need not see: its plan is the same.
func wanted(p router.Planner, s *router.PlannerInput) *router.PlannerInput {
	w := p.Select(s.View)
	waiting := make([]int, len(s.Workers))
	return &router.PlannerInput{View: s.View, Requests: slices.DeleteFunc(slices.Clone(s.Requests),
		func(a router.InFlight) bool {
			if !a.Running {
				if waiting[a.Worker]++; w.MostWaiting > 0 && waiting[a.Worker] > w.MostWaiting {
					return true
				}
			}
			return w.Worker != nil && !w.Worker(int(a.Worker)) || a.Running && w.NoRunning || !a.Running && w.NoWaiting
		})}
}

// beside makes a plan while requests are routed, where the planner can.
func beside(rt *router.Router, s *router.PlannerInput, route func()) *router.Plan {
	pending := rt.Planner.Begin(s)
	if pending == nil {
		route()
		return nil
	}
	var wg sync.WaitGroup
	wg.Go(pending.Solve)
	route()
	wg.Wait()
	return pending.Plan()
}

func equalPlans(t *rapid.T, a, b *router.Plan) {
	if (a == nil) != (b == nil) {
		t.Fatalf("same seed, but plans %v and %v", a, b)
	}
	if a != nil && (!slices.Equal(a.Load, b.Load) || !slices.Equal(a.Unload, b.Unload) ||
		!slices.Equal(a.Move, b.Move)) {
		t.Fatalf("same seed, but plans %+v and %+v", a, b)
	}
}

func checkPlan(t *rapid.T, p *router.Plan, s *router.PlannerInput) {
	if p.Reason == "" {
		t.Fatalf("no reason: %+v", p)
	}
	if p.Bound > p.Objective+1e-9 || p.SolveTime < 0 {
		t.Fatalf("objective %v below its bound %v, or solve time %v", p.Objective, p.Bound, p.SolveTime)
	}
	seen := map[int64]bool{}
	for _, m := range p.Move {
		i := slices.IndexFunc(s.Requests, func(a router.InFlight) bool { return a.ID == m.ID })
		if i < 0 || s.Requests[i].Worker != m.From || m.To == m.From || !s.Workers[m.To].Usable() || seen[m.ID] {
			t.Fatalf("bad move %+v", m)
		}
		seen[m.ID] = true
	}
	for _, l := range slices.Concat(p.Load, p.Unload) {
		if int(l.Worker) >= len(s.Workers) || int(l.Adapter) >= len(s.Adapters) || l.Worker < 0 || l.Adapter < 0 {
			t.Fatalf("no such place: %+v", l)
		}
	}
}

// applied is a placement after a plan, which must load only what is not there
// and unload only what is.
func applied(t *rapid.T, held [][]int32, p *router.Plan) [][]int32 {
	for _, l := range p.Unload {
		if !slices.Contains(held[l.Worker], l.Adapter) {
			t.Fatalf("unloads %+v, which is not there", l)
		}
		held[l.Worker] = slices.DeleteFunc(held[l.Worker], func(k int32) bool { return k == l.Adapter })
	}
	for _, l := range p.Load {
		if slices.Contains(held[l.Worker], l.Adapter) {
			t.Fatalf("loads %+v, which is there", l)
		}
		held[l.Worker] = append(held[l.Worker], l.Adapter)
	}
	return held
}
