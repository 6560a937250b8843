package policies

import (
	"math"
	"reflect"
	"slices"
	"testing"

	"lorasim/router"
	"lorasim/router/routertest"
)

// dLoRA's greedy placement by hand. Workers of 10 bytes; the throughput of an
// adapter is the memory left beside it over its share of the requests.
func TestDLoRABottleneck(t *testing.T) {
	env := routertest.HandEnv(2, 3)
	for j := range env.Workers {
		env.Workers[j].Memory, env.Workers[j].AdapterBytes = 10, []float64{1, 2, 5}
	}
	d := newDLoRA(env, false)
	place := func(held ...[]int32) { d.setPlacement(held) }
	d.arrived, d.total = []float64{2, 1, 1}, 4
	place([]int32{0, 1}, []int32{2})
	// adapter 0: (10-3)/0.5 = 14, 1: 7/0.25 = 28, 2: 5/0.25 = 20
	routertest.Close(t, "least throughput", d.bottleneck(), 14)
	place([]int32{0}, []int32{1, 2})
	routertest.Close(t, "least throughput", d.bottleneck(), 12) // 3/0.25, before 9/0.5
	env.Workers[1].Memory = 0                                   // not stated: all workers alike
	routertest.Close(t, "least throughput", d.bottleneck(), 4)
	env.Workers[1].Memory = 10

	if k := d.shortest(3); k != 0 { // a third of the replicas for half of the requests
		t.Errorf("adapter %d is short of replicas, expected 0", k)
	}
	d.arrived = []float64{1, 1, 2}
	if k := d.shortest(3); k != 2 {
		t.Errorf("adapter %d is short of replicas, expected 2", k)
	}
	// Adapter 2 beside 0 would leave that 4 of 9 bytes, but itself get 4 more: 0
	// has 4/0.25 = 16 then, and before the worst was 2 with 3/0.5 = 6.
	if !d.addReplica(2, d.room) || !slices.Equal(d.held[0], []int32{0, 2}) {
		t.Errorf("placement %v, expected adapter 2 beside 0", d.held)
	}
	// Adapter 1 beside 0 takes from what is the worst already.
	place([]int32{0}, []int32{1, 2})
	d.arrived, d.total = []float64{18, 1, 1}, 20
	if d.addReplica(1, d.room) || !slices.Equal(d.held[0], []int32{0}) || !slices.Equal(d.where[1], []int32{1}) {
		t.Errorf("placement %v, expected none that hurts adapter 0", d.held)
	}
	place([]int32{0}, []int32{1})
	if k := d.shortest(2); k != 2 {
		t.Errorf("adapter %d is to be placed first, expected 2, which has no place", k)
	}
	// the emptiest worker first, of equals the first; no more than its room
	place([]int32{0}, nil)
	d.arrived, d.total = []float64{1, 1, 1}, 3
	if !d.addReplica(1, func(int) int { return 1 }) || !slices.Equal(d.held[1], []int32{1}) {
		t.Errorf("placement %v, expected adapter 1 on worker 1", d.held)
	}
	if d.addReplica(2, func(int) int { return 1 }) {
		t.Errorf("placement %v, but there was no room", d.held)
	}
}

// dispatch_mig's idle adapter has no request there and another replica.
func TestIdleReplica(t *testing.T) {
	d := newDLoRA(routertest.HandEnv(2, 4), false)
	d.setPlacement([][]int32{{0, 1, 2, 3}, {1, 2, 3}})
	p := &dispatchMig{dlora: d}
	w := &router.Worker{Adapters: []router.AdapterState{{}, {Running: 1}, {Queued: 1}, {}}}
	if k := p.idle(0, w); k != 3 { // 0 is here alone, 1 and 2 are in use
		t.Errorf("adapter %d is idle, expected 3", k)
	}
	w.Adapters[3].Queued = 1
	if k := p.idle(0, w); k != -1 {
		t.Errorf("adapter %d is idle, expected none", k)
	}
}

// dLoRA's dispatch cost by hand: batches of 4; 9 requests of one adapter are two
// full batches at 0.6 and 1 left, 7 of another one full and 3 left; the 4 left
// over make a mixed batch at 1.
func TestDispatchCost(t *testing.T) {
	d := &dlora{env: router.Env{Workers: []router.Spec{{MaxRunning: 4}, {MaxRunning: 8}}}}
	w := &router.Worker{Adapters: []router.AdapterState{{Running: 4, Queued: 5}, {Queued: 7}}}
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
		d := newDLoRA(routertest.Env(3, 7), period)
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

// dispatch_mig brings a busy adapter to an idle worker in the place of one that
// has another replica, and says so in a plan.
func TestDispatchMigSwaps(t *testing.T) {
	env := routertest.Env(2, 2)
	rt := routertest.New(t, "dispatch_mig", env)
	p := rt.Policy.(*dispatchMig)
	p.held, p.where = [][]int32{{0, 1}, {1}}, [][]int32{{0}, {0, 1}}
	v := routertest.View(env)
	v.Workers[0].Running, v.Workers[0].Adapters[0].Running = 9, 9 // more than a batch of 8
	d := p.Route(router.Request{Adapter: 0}, v)
	if d.Worker != 1 {
		t.Fatalf("sent to worker %d, expected 1", d.Worker)
	}
	plan := d.Change
	if plan == nil || !slices.Equal(plan.Load, []router.Placement{{Worker: 1, Adapter: 0}}) ||
		!slices.Equal(plan.Unload, []router.Placement{{Worker: 1, Adapter: 1}}) {
		t.Fatalf("plan %+v, expected adapter 0 in the place of 1 on worker 1", plan)
	}
	if p.Route(router.Request{Adapter: 0}, v).Change != nil {
		t.Error("the same swap twice")
	}
}

// dLoRA pads with one adapter after the other, period_mig's form with a random
// one on worker after worker.
func TestPadding(t *testing.T) {
	seen := map[int32]bool{}
	for seed := range uint64(20) {
		env := routertest.HandEnv(2, 3)
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

// dLoRA's greedy placement minds each worker's own room.
func TestDLoRAPlacementMindsRoom(t *testing.T) {
	for _, period := range []bool{false, true} {
		env := routertest.Unequal(12)
		for range 2 {
			d := newDLoRA(env, period)
			for j := range d.held {
				if len(d.held[j]) > env.Workers[j].HostSlots {
					t.Errorf("worker %d holds %d adapters, its host memory %d", j, len(d.held[j]),
						env.Workers[j].HostSlots)
				}
			}
			env.Workers = routertest.Mirror(env.Workers)
		}
	}
}
