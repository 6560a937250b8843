package router

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"lorasim/trace"
)

// unequal is a cluster of a fast worker with many places and a slow one with few.
func unequal(adapters int) Env {
	return Env{Adapters: trace.Names(adapters, []int{8, 16, 32, 64}), Seed: 1, Moving: MoveRecompute, Workers: []Spec{
		{MaxRunning: 32, Slots: 4, HostSlots: 8, Memory: 40e9, KVBytes: 1e5, PageSize: 16, Cost: slower(1)},
		{MaxRunning: 8, Slots: 2, HostSlots: 4, Memory: 10e9, KVBytes: 1e5, PageSize: 16, Cost: slower(3)},
	}}
}

// mirror is the same with the workers in the other order.
func mirror[T any](list []T) []T {
	list = slices.Clone(list)
	slices.Reverse(list)
	return list
}

// Which worker is called the first does not matter to policies that price workers.
func TestOrderOfWorkersDoesNotMatter(t *testing.T) {
	for _, spec := range []string{"rank-aware", "rank-aware:slo=30,avg-output=100", "period_mig:spill=0",
		"affinity:ties=first", "llumnix"} {
		rapid.Check(t, func(t *rapid.T) {
			env := unequal(4)
			v := testView(env)
			drawWorkers(t, v)
			for j := range v.Workers { // nothing ties
				v.Workers[j].Up, v.Workers[j].Draining = true, false
				v.Workers[j].KVUsed += int64(j)
				v.Workers[j].KVCapacity += int64(1001 * j)
			}
			if v.Workers[0].Load() == v.Workers[1].Load() { // rank-aware counts where no worker is fast enough
				v.Workers[1].Queued++
			}
			turned := env
			turned.Workers = mirror(env.Workers)
			w := &View{Adapters: v.Adapters, Workers: mirror(v.Workers)}
			r := Request{Adapter: rapid.Int32Range(-1, 3).Draw(t, "adapter"), Prompt: 300, MaxNew: 500}
			a, b := mustNew(t, spec, env).Policy.Route(r, v).Worker, mustNew(t, spec, turned).Policy.Route(r, w).Worker
			if a != 1-b {
				t.Fatalf("%s: worker %d, and in the other order %d", spec, a, b)
			}
		})
	}
}

// The last in a list of profiles counts as much as the first: an idle fast worker
// is preferred to an idle slow one, wherever it stands.
func TestFastWorkerIsPreferred(t *testing.T) {
	env := unequal(2)
	for fast := range 2 {
		for _, spec := range []string{"period_mig:spill=0", "rank-aware:slo=none"} {
			v := testView(env)
			r := Request{Adapter: 0, Prompt: 300, MaxNew: 100}
			if w := mustNew(t, spec, env).Policy.Route(r, v).Worker; w != fast {
				t.Errorf("%s: worker %d of an idle cluster, expected the fast one, %d", spec, w, fast)
			}
		}
		env.Workers = mirror(env.Workers)
	}
}

// 80 requests of two adapters wait on the slow worker, and the plan says where
// they go: mirrored where the workers are. The fast worker gets the more of them.
func TestPeriodicPlansForSpeed(t *testing.T) {
	moved := func(slow int32) (moves, loads int, plan *Plan) {
		env := unequal(2)
		env.Workers[0].HostSlots, env.Workers[1].HostSlots = 0, 0
		if slow == 0 {
			env.Workers = mirror(env.Workers)
		}
		rt := mustNew(t, "period_mig:max-moves=0", env)
		p := rt.Policy.(*planAndRoute)
		held := make([][]int32, 2)
		held[slow] = []int32{0, 1}
		p.setPlacement(held)
		v := testView(env)
		s := &PlannerInput{View: v}
		for i := range 80 {
			k := int32(i % 2)
			v.Workers[slow].Queued++
			v.Workers[slow].Count(k, 0, 1)
			s.Requests = append(s.Requests, InFlight{ID: int64(i), Adapter: k, Worker: slow, Prompt: 200, MaxNew: 400})
		}
		for j := range v.Workers {
			for k := range v.Workers[j].Adapters {
				v.Workers[j].Adapters[k].Tier = Host
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

// dLoRA's greedy placement minds each worker's own room.
func TestDLoRAPlacementMindsRoom(t *testing.T) {
	for _, period := range []bool{false, true} {
		env := unequal(12)
		for range 2 {
			d := newDLoRA(env, period)
			for j := range d.held {
				if len(d.held[j]) > env.Workers[j].HostSlots {
					t.Errorf("worker %d holds %d adapters, its host memory %d", j, len(d.held[j]),
						env.Workers[j].HostSlots)
				}
			}
			env.Workers = mirror(env.Workers)
		}
	}
}

// Replicas follow the slots, wherever the worker with most of them stands.
func TestMinCostMindsSlots(t *testing.T) {
	env := unequal(6)
	for many := range 2 {
		held := mustNew(t, "min-cost-flow", env).Policy.(*minCost).held
		if len(held[many]) != 4 || len(held[1-many]) != 2 {
			t.Errorf("%d and %d adapters on workers of 4 and 2 slots", len(held[many]), len(held[1-many]))
		}
		env.Workers = mirror(env.Workers)
	}
}

// rank-group gives the fast of two workers three quarters of an even demand.
func TestRankGroupMindsSpeed(t *testing.T) {
	env := unequal(8)
	env.Adapters = trace.Names(8, []int{16})
	for fast := range 2 {
		held := mustNew(t, "rank-group", env).Policy.(*rankGroup).held
		if len(held[fast]) != 6 || len(held[1-fast]) != 2 {
			t.Errorf("%d adapters on the fast worker and %d on the slow one, expected 6 and 2", len(held[fast]),
				len(held[1-fast]))
		}
		env.Workers = mirror(env.Workers)
	}
}

// Copying a KV cache costs what the link of the worker that has it says.
func TestMoveCostIsTheProfiles(t *testing.T) {
	env := unequal(1)
	p := mustNew(t, "period_mig", env).Policy.(*planAndRoute)
	p.env.Moving = MoveCopy
	for j, want := range []float64{300 * 1e5 / 1e10, 3 * 300 * 1e5 / 1e10} {
		a := &InFlight{Worker: int32(j), Running: true, Prompt: 200, Generated: 100}
		if got := p.moveCost(a, rate{cost: slower(1)}); math.Abs(got-want) > 1e-12 {
			t.Errorf("from worker %d: %v s, expected %v", j, got, want)
		}
	}
}
