package router

import (
	"math"
	"math/bits"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"lorasim/trace"
)

// planners are specs of every policy that plans.
var planners = []string{"period_mig", "period_mig:busy=0,margin=0", "rank-group", "min-cost-flow", "llumnix",
	"dlora_period_mig:threshold=1"}

// drawSituation fills a view's workers with requests and lists them.
func drawSituation(t *rapid.T, env Env, v *View) *PlannerInput {
	s := &PlannerInput{View: v}
	for j := range v.Workers {
		w := &v.Workers[j]
		*w = Worker{Up: rapid.IntRange(0, 5).Draw(t, "up") > 0, MaxRunning: env.Workers[j].MaxRunning,
			KVCapacity: 10000,
			Slots:      env.Workers[j].Slots, Adapters: make([]AdapterState, len(env.Adapters))}
		for k := range w.Adapters {
			w.Adapters[k].Tier = Tier(rapid.IntRange(0, 3).Draw(t, "tier"))
		}
		if !w.Up {
			continue
		}
		for range rapid.IntRange(0, 12).Draw(t, "requests") {
			a := InFlight{ID: int64(len(s.Requests)), Worker: int32(j), MaxNew: 300,
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
			case !isAdapter(a.Adapter):
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

// Whatever the situation, plans name things that exist, move requests from where
// they are to another usable worker, say why, are the same for the same seed,
// and leave every adapter with a place.
func TestPlansAreSound(t *testing.T) {
	for _, spec := range planners {
		t.Run(spec, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { checkPlanner(t, spec) })
		})
	}
}

func checkPlanner(t *rapid.T, spec string) {
	env := testEnv(rapid.IntRange(1, 5).Draw(t, "workers"), rapid.IntRange(1, 9).Draw(t, "adapters"))
	env.Moving = rapid.SampledFrom(Movings()).Draw(t, "moving")
	hostSlots := rapid.SampledFrom([]int{0, 9}).Draw(t, "host slots")
	for j := range env.Workers {
		w := &env.Workers[j]
		w.HostSlots = hostSlots
		w.KVBytes, w.PageSize = 1e5, 16
		w.Cost = slower(rapid.SampledFrom([]float64{1, 1, 3}).Draw(t, "slower"))
		w.MaxRunning = rapid.SampledFrom([]int{8, 8, 32}).Draw(t, "max running")
	}
	rt, twin := mustNew(t, spec, env), mustNew(t, spec, env)
	deep := rapid.SampledFrom([]int{1, 3, manyWait}).Draw(t, "many wait")
	for _, rt := range []*Router{rt, twin} {
		if p, ok := rt.Policy.(*planAndRoute); ok {
			p.deep = deep
		}
	}
	held := clonePlacement(rt.Placement)
	v := testView(env)
	for range 4 {
		v.Now += rapid.SampledFrom([]float64{rt.Planner.Interval(), 60}).Draw(t, "since the last look")
		s := drawSituation(t, env, v)
		for range rapid.IntRange(0, 20).Draw(t, "arrivals") {
			r := Request{Adapter: int32(rapid.IntRange(-1, len(env.Adapters)-1).Draw(t, "arrival")), Prompt: 100,
				MaxNew: 200}
			a, b := rt.Policy.Route(r, v).Worker, routeChecked(t, twin.Policy, r, v)
			if a != b {
				t.Fatalf("same seed, but routed to %d and %d", a, b)
			}
		}
		plan := rt.Planner.Begin(s).Now()
		later := Request{Adapter: int32(rapid.IntRange(-1, len(env.Adapters)-1).Draw(t, "arrival while solving")),
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
		held = applied(t, held, plan)
		if _, ok := rt.Policy.(*dloraPeriodMig); ok {
			continue // dLoRA's plans may leave an adapter without a place: it is loaded on demand
		}
		for k := range env.Adapters {
			if !slices.ContainsFunc(held, func(ks []int32) bool { return slices.Contains(ks, int32(k)) }) {
				t.Fatalf("%s: adapter %d is on no worker after %+v", spec, k, plan)
			}
		}
	}
}

// routeChecked is Route. plan-and-route must pick the worker with the lowest price of all, of equals the first.
func routeChecked(t *rapid.T, policy Policy, r Request, v *View) int {
	p, ok := policy.(*planAndRoute)
	if !ok {
		return policy.Route(r, v).Worker
	}
	p.arrived(r, v)
	want, least := None, math.Inf(1)
	p.pool.begin(r.Adapter, v)
	for j := range v.Usable() {
		if c, _ := p.price(r, j, v); c < least {
			want, least = j, c
		}
	}
	got := p.send(r, v)
	if got != want {
		t.Fatalf("routed to %d, the cheapest is %d", got, want)
	}
	return got
}

// wanted leaves out the requests that a planner need not see: its plan is the same.
func wanted(p Planner, s *PlannerInput) *PlannerInput {
	w := p.Select(s.View)
	waiting := make([]int, len(s.Workers))
	return &PlannerInput{View: s.View, Requests: slices.DeleteFunc(slices.Clone(s.Requests), func(a InFlight) bool {
		if !a.Running {
			if waiting[a.Worker]++; w.MostWaiting > 0 && waiting[a.Worker] > w.MostWaiting {
				return true
			}
		}
		return w.Worker != nil && !w.Worker(int(a.Worker)) || a.Running && w.NoRunning || !a.Running && w.NoWaiting
	})}
}

// beside makes a plan while requests are routed, where the planner can.
func beside(rt *Router, s *PlannerInput, route func()) *Plan {
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

func equalPlans(t *rapid.T, a, b *Plan) {
	if (a == nil) != (b == nil) {
		t.Fatalf("same seed, but plans %v and %v", a, b)
	}
	if a != nil && (!slices.Equal(a.Load, b.Load) || !slices.Equal(a.Unload, b.Unload) ||
		!slices.Equal(a.Move, b.Move)) {
		t.Fatalf("same seed, but plans %+v and %+v", a, b)
	}
}

func checkPlan(t *rapid.T, p *Plan, s *PlannerInput) {
	if p.Reason == "" {
		t.Fatalf("no reason: %+v", p)
	}
	if p.Bound > p.Objective+1e-9 || p.SolveTime < 0 {
		t.Fatalf("objective %v below its bound %v, or solve time %v", p.Objective, p.Bound, p.SolveTime)
	}
	seen := map[int64]bool{}
	for _, m := range p.Move {
		i := slices.IndexFunc(s.Requests, func(a InFlight) bool { return a.ID == m.ID })
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
func applied(t *rapid.T, held [][]int32, p *Plan) [][]int32 {
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

// transport finds the cheapest assignment: compared with trying all.
func TestTransportIsOptimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, m := rapid.IntRange(1, 3).Draw(t, "sources"), rapid.IntRange(1, 3).Draw(t, "sinks")
		solve := rapid.SampledFrom([]func(supply, room []int, cost [][]float64) [][]int32{inOrder, byPrices}).Draw(t,
			"way")
		supply, room := make([]int, n), make([]int, m)
		cost := make([][]float64, n)
		for k := range supply {
			supply[k] = rapid.IntRange(0, m).Draw(t, "supply")
			cost[k] = make([]float64, m)
			for j := range cost[k] {
				cost[k][j] = float64(rapid.IntRange(-5, 9).Draw(t, "cost"))
			}
		}
		for j := range room {
			room[j] = rapid.IntRange(0, n).Draw(t, "room")
		}
		units, total := 0, 0.0
		left := slices.Clone(room)
		for k, js := range solve(supply, room, cost) {
			if len(js) > supply[k] {
				t.Fatalf("source %d sends %d units of %d", k, len(js), supply[k])
			}
			for _, j := range js {
				units++
				total += cost[k][j]
				if left[j]--; left[j] < 0 {
					t.Fatalf("too much to sink %d", j)
				}
			}
		}
		wantUnits, want := cheapest(supply, room, cost)
		if units != wantUnits || math.Abs(total-want) > 1e-6 {
			t.Fatalf("%d units for %v, the best is %d for %v", units, total, wantUnits, want)
		}
	})
}

// cheapest tries every set of edges.
func cheapest(supply, room []int, cost [][]float64) (units int, total float64) {
	n, m := len(supply), len(room)
	total = math.Inf(1)
	units = -1
	for set := range uint(1) << (n * m) {
		used, sum, ok := make([]int, m), 0.0, true
		for k := range n {
			row := set >> (k * m) & (1<<m - 1)
			ok = ok && bits.OnesCount(row) <= supply[k]
			for j := range m {
				if row>>j&1 == 1 {
					used[j]++
					sum += cost[k][j]
				}
			}
		}
		for j := range used {
			ok = ok && used[j] <= room[j]
		}
		if c := bits.OnesCount(set); ok && (c > units || c == units && sum < total) {
			units, total = c, sum
		}
	}
	return units, total
}

// dLoRA's dispatch cost by hand: batches of 4; 9 requests of one adapter are two
// full batches at 0.6 and 1 left, 7 of another one full and 3 left; the 4 left
// over make a mixed batch at 1.
func TestDispatchCost(t *testing.T) {
	d := &dlora{env: Env{Workers: []Spec{{MaxRunning: 4}, {MaxRunning: 8}}}}
	w := &Worker{Adapters: []AdapterState{{Running: 4, Queued: 5}, {Queued: 7}}}
	if got := d.cost(0, w); math.Abs(got-(3*0.6+1)) > 1e-12 {
		t.Errorf("cost %v, expected 2.8", got)
	}
	if got := d.cost(1, w); math.Abs(got-(0.6+1)) > 1e-12 { // one full batch of 8, and 1 + 7 mixed
		t.Errorf("cost %v of a worker of 8, expected 1.6", got)
	}
}

// The initial placement holds every adapter and, but for period_mig's, one
// replica fewer than workers and adapters together, evenly spread.
func TestDLoRAPlacement(t *testing.T) {
	for _, period := range []bool{false, true} {
		d := newDLoRA(testEnv(3, 7), period)
		n := 0
		for j := range d.held {
			n += len(d.held[j])
			if len(d.held[j]) < 3 {
				t.Errorf("worker %d has %d adapters of 9 in all", j, len(d.held[j]))
			}
		}
		if n != 9 {
			t.Errorf("%d replicas, expected 3 + 7 - 1", n)
		}
		for k := range d.where {
			if len(d.where[k]) == 0 {
				t.Errorf("adapter %d has no place", k)
			}
		}
	}
}

// dLoRA's trigger by hand. 4, 20 and 2 requests: the busiest has 20 - 26/3 =
// 11.33 more than the mean. Two workers: a threshold of 16 is met at a difference
// of 32. A worker whose KV cache is full comes first. Of equals the last is
// relieved, by the first.
func TestDLoRATrigger(t *testing.T) {
	for _, c := range []struct {
		running   []int
		threshold float64
		full      int
		want      []int32
	}{
		{[]int{4, 20, 2}, 11, -1, []int32{1, 2}},
		{[]int{4, 20, 2}, 11.5, -1, nil},
		{[]int{4, 20, 2}, 18, 0, []int32{0, 1}},
		{[]int{31, 0}, 16, -1, nil},
		{[]int{32, 0}, 16, -1, []int32{0, 1}},
		{[]int{5, 5}, 0, -1, nil},
		{[]int{5, 6}, 0, -1, []int32{1, 0}},
		{[]int{9, 1, 9, 1}, 4, -1, []int32{2, 1}},
		{[]int{-1, 40, 0}, 16, -1, []int32{1, 2}},
		{[]int{-1, 40, -1}, 0, -1, nil},
	} {
		env := testEnv(len(c.running), 4)
		v := testView(env)
		setRunning(v, c.running...)
		for j := range v.Workers {
			v.Workers[j].KVUsed = 100
		}
		if c.full >= 0 {
			v.Workers[c.full].KVUsed = 9500
		}
		p := &dloraPeriodMig{dispatch: dispatch{newDLoRA(env, true)}, threshold: c.threshold}
		if pair, reason := p.trigger(v); !slices.Equal(pair, c.want) || (pair != nil) != (reason != "") {
			t.Errorf("%v requests, threshold %v: workers %v (%s), expected %v", c.running, c.threshold, pair, reason,
				c.want)
		}
	}
}

// dispatch_mig brings a busy adapter to an idle worker in the place of one that
// has another replica, and says so in a plan.
func TestDispatchMigSwaps(t *testing.T) {
	env := testEnv(2, 2)
	rt := mustNew(t, "dispatch_mig", env)
	p := rt.Policy.(*dispatchMig)
	p.held, p.where = [][]int32{{0, 1}, {1}}, [][]int32{{0}, {0, 1}}
	v := testView(env)
	v.Workers[0].Running, v.Workers[0].Adapters[0].Running = 9, 9 // more than a batch of 8
	d := p.Route(Request{Adapter: 0}, v)
	if d.Worker != 1 {
		t.Fatalf("sent to worker %d, expected 1", d.Worker)
	}
	plan := d.Change
	if plan == nil || !slices.Equal(plan.Load, []Placement{{1, 0}}) || !slices.Equal(plan.Unload, []Placement{{1, 1}}) {
		t.Fatalf("plan %+v, expected adapter 0 in the place of 1 on worker 1", plan)
	}
	if p.Route(Request{Adapter: 0}, v).Change != nil {
		t.Error("the same swap twice")
	}
}

// period_mig leaves an even cluster alone and relieves a skewed one.
func TestPeriodicStaysOrMoves(t *testing.T) {
	env := testEnv(2, 4)
	env.Moving = MoveRecompute
	for _, c := range []struct {
		name   string
		counts []int // requests of adapters 0 to 3; adapters 0 and 2 are on worker 0
		moves  bool
	}{{"even", []int{20, 20, 20, 20}, false}, {"little to do", []int{3, 0, 1, 0}, false},
		{"skewed", []int{60, 0, 60, 0}, true}} {
		rt := mustNew(t, "period_mig", env)
		v := testView(env)
		s := &PlannerInput{View: v}
		for k, n := range c.counts {
			for range n {
				j := k % 2
				v.Workers[j].Queued++
				v.Workers[j].Adapters[k].Queued++
				v.Workers[j].Adapters[k].Tier = Host
				s.Requests = append(s.Requests, InFlight{ID: int64(len(s.Requests)), Adapter: int32(k),
					Worker: int32(j), Prompt: 200, MaxNew: 400})
				rt.Policy.(*planAndRoute).note(Request{Adapter: int32(k), Prompt: 200})
			}
		}
		for j := range v.Workers {
			for k := range v.Workers[j].Adapters {
				v.Workers[j].Adapters[k].Tier = Host
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

// rank-group puts equal demand of like rank together: with two workers the low
// ranks go to one and the high ones to the other.
func TestRankGroups(t *testing.T) {
	env := Env{Workers: Alike(2, Spec{Cost: testCost{}, MaxRunning: 8, Slots: 4}),
		Adapters: trace.Names(4, []int{8, 64})}
	rt := mustNew(t, "rank-group", env)
	for j, held := range rt.Policy.(*rankGroup).held {
		low, high := 0, 0
		for _, k := range held {
			if env.Adapters[k].Rank == 8 {
				low++
			} else {
				high++
			}
		}
		if max(low, high) != 2 || min(low, high) > 1 {
			t.Errorf("worker %d holds %d adapters of rank 8 and %d of rank 64", j, low, high)
		}
	}
}
