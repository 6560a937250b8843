package sim

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/trace"
	"pgregory.net/rapid"
)

// auditor holds the sums of a view against its parts.
type auditor struct {
	router.Policy
	t *rapid.T
}

func (a auditor) Route(r router.Request, v *router.View) router.Decision {
	for i := range v.Workers {
		w := &v.Workers[i]
		running, queued, active, waiting := 0, 0, 0, 0
		for _, st := range w.Adapters {
			running, queued = running+int(st.Running), queued+int(st.Queued)
			if st.Running > 0 {
				active++
			}
			if st.Queued > 0 {
				waiting++
			}
		}
		if w.ActiveLoras != active || w.WaitingLoras != waiting || w.Queued < queued {
			a.t.Fatalf("worker %d: %d adapters active and %d waiting, %d requests in the queue; by adapter %d, %d, %d",
				i, w.ActiveLoras, w.WaitingLoras, w.Queued, active, waiting, queued)
		}
		if w.SlotsIdle < 0 || w.SlotsIdle > w.SlotsUsed || w.SlotsUsed > w.Slots {
			a.t.Fatalf("worker %d: %d of %d used slots idle, %d slots", i, w.SlotsIdle, w.SlotsUsed, w.Slots)
		}
	}
	for i := range v.Workers {
		for k, st := range v.Workers[i].Adapters {
			usual, others := v.Index.Hosts(int32(k))
			has, hosted := v.Index.Has(i, int32(k)), usual[i] != slices.Contains(others, int32(i))
			if has != st.Wanted() || hosted != (st.Tier >= router.Host) || hosted != v.InHost(i, int32(k)) {
				a.t.Fatalf("worker %d, adapter %d: the index says %v, in host memory %v, but it is %+v", i, k, has,
					hosted, st)
			}
		}
	}
	return a.Policy.Route(r, v)
}

func TestViewCountsAdapters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := genProfile(t)
		wl := genWorkload(t)
		rt := &router.Router{Policy: auditor{byID{n: 2}, t}}
		c := p.Compile()
		var outages []Outage
		if rapid.Bool().Draw(t, "fails") {
			outages = []Outage{{Worker: 1, From: 0.5, To: 1}}
		}
		if _, err := Run(context.Background(), Config{Source: wl.Source(), Workers: []*profile.Costs{c, c}, Router: rt,
			Observer: newLedger(), Home: router.Disk, Outages: outages}); err != nil {
			t.Fatal(err)
		}
	})
}

// A policy that looks at nothing but the router's own books does not notice how
// seldom workers report; one that looks at their KV caches does.
func TestStalenessLeavesBooksAlone(t *testing.T) {
	c := speedProfile()
	run := func(policy string, staleness float64) string {
		wl := &trace.Workload{Adapters: trace.Names(8, []int{16})}
		for i := range 400 {
			wl.Requests = append(wl.Requests, trace.Request{ID: int64(i), Arrival: float64(i) * 0.02,
				Adapter: int32(i % 8),
				Prompt:  int32(50 + i*37%900), Output: int32(5 + i*53%300)})
		}
		rt, err := router.New(policy, router.Env{Workers: router.Alike(3, router.Spec{MaxRunning: 256, Slots: 8}),
			Adapters: wl.Adapters, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		l := newLedger()
		if _, err := Run(context.Background(), Config{Source: wl.Source(), Workers: []*profile.Costs{c, c, c},
			Router:   rt,
			Observer: l, Home: router.Disk, Staleness: staleness}); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(l.recs)
	}
	for _, policy := range []string{"least-loaded", "least-tokens", "weighted-queue"} {
		if run(policy, 0) != run(policy, 5) {
			t.Errorf("%s: reports every 5 s change the run", policy)
		}
	}
	if run("affinity:lora=0,queue=0", 0) == run("affinity:lora=0,queue=0", 5) {
		t.Error("affinity by KV cache: reports every 5 s change nothing")
	}
}

// Under vLLM, max_loras does not count the base model: routers see max_loras slots and the adapters in
// them, with or without requests of the base model.
func TestViewSlotsUnderVLLM(t *testing.T) {
	p := vllmProfile()
	p.Engine.MaxLorasPerBatch = 2
	var seen [][3]int
	see := routed{show: func(v *router.View) {
		w := &v.Workers[0]
		seen = append(seen, [3]int{w.Slots, w.SlotsUsed, w.SlotsIdle})
	}}
	var requests []trace.Request
	for i, a := range []int32{trace.BaseModel, 0, 1, 1, trace.BaseModel} {
		requests = append(requests, trace.Request{ID: int64(i), Arrival: 0.5 * float64(i), Adapter: a, Prompt: 10,
			Output: 2 + 100*int32(i/2%2)})
	}
	wl := &trace.Workload{Adapters: trace.Names(2, []int{8}), Requests: requests}
	c := p.Compile()
	cfg := Config{Source: wl.Source(), Workers: []*profile.Costs{c}, Router: &router.Router{Policy: see},
		Observer: newLedger(), Home: router.Disk}
	if _, err := Run(context.Background(), cfg); err != nil {
		t.Fatal(err)
	}
	if want := [][3]int{{2, 0, 0}, {2, 0, 0}, {2, 1, 1}, {2, 2, 1}, {2, 2, 1}}; !reflect.DeepEqual(seen, want) {
		t.Errorf("slots, used and idle at each arrival: %v, expected %v", seen, want)
	}
}

// routed sends every request to the first worker and shows what the router sees before that.
type routed struct {
	router.Base
	show func(v *router.View)
}

func (f routed) Route(_ router.Request, v *router.View) router.Decision {
	f.show(v)
	return router.To(0)
}
