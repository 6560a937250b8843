package sim

import (
	"context"
	"fmt"
	"reflect"
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

func (a auditor) Route(r router.Request, v *router.View) int {
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
	}
	index := router.NewIndex(len(v.Workers), len(v.Adapters))
	for i := range v.Workers {
		for k, st := range v.Workers[i].Adapters {
			index.Set(i, int32(k), st)
		}
	}
	if !reflect.DeepEqual(v.Index, index) {
		a.t.Fatalf("the index is %v, the workers say %v", v.Index, index)
	}
	return a.Policy.Route(r, v)
}

func TestViewCountsAdapters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := genProfile(t)
		wl := genWorkload(t)
		rt := &router.Router{Policy: auditor{byID{2}, t}}
		c := p.Compile()
		if _, err := Run(context.Background(), Config{Source: wl.Source(), Workers: []*profile.Costs{c, c}, Router: rt, Observer: newLedger(), Home: router.Disk}); err != nil {
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
			wl.Requests = append(wl.Requests, trace.Request{ID: int64(i), Arrival: float64(i) * 0.02, Adapter: int32(i % 8),
				Prompt: int32(50 + i*37%900), Output: int32(5 + i*53%300)})
		}
		rt, err := router.New(policy, router.Env{Workers: router.Alike(3, router.Spec{MaxRunning: 256, Slots: 8}), Adapters: wl.Adapters, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		l := newLedger()
		if _, err := Run(context.Background(), Config{Source: wl.Source(), Workers: []*profile.Costs{c, c, c}, Router: rt,
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
