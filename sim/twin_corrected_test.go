package sim

import (
	"slices"
	"testing"

	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/trace"
)

// A twin whose workers are corrected by a factor is one of workers with such a profile; no other worker changes.
func TestTwinCorrected(t *testing.T) {
	p, err := profile.Embedded("llama-2-7b-rtx-4090-sglang-0.5")
	if err != nil {
		t.Fatal(err)
	}
	factor := 1.302 // the resolution of corrections is 2 %
	adapters := trace.Names(2, []int{16})
	f := &router.Future{}
	for i := range 200 {
		f.Requests = append(f.Requests, trace.Request{Arrival: float64(i) * 0.1, Adapter: int32(i % 2), Prompt: 100,
			Output: 50, MaxNew: 50})
	}
	means := func(costs []*profile.Costs, slower []float64) (mean [2]float64) {
		g := *f
		g.Slower = slower
		rt, err := router.New("round-robin", router.Env{Workers: router.Alike(2, router.Spec{}), Adapters: adapters})
		if err != nil {
			t.Fatal(err)
		}
		o, err := NewTwin(Config{Workers: costs}, adapters).Simulate(rt, &g)
		if err != nil {
			t.Fatal(err)
		}
		for i, x := range o.E2E {
			mean[i%2] += float64(x) / float64(len(o.E2E)/2)
		}
		return mean
	}
	own, slow := p.Compile(), p.Slower(factor).Compile()
	as := means(slices.Repeat([]*profile.Costs{own}, 2), nil)
	got := means(slices.Repeat([]*profile.Costs{own}, 2), []float64{1, factor})
	want := means([]*profile.Costs{own, slow}, nil)
	if got[0] != as[0] || got[1] < 1.2*as[1] || got[1] < 0.98*want[1] || got[1] > 1.02*want[1] {
		t.Errorf("mean E2E by worker %v, expected %v; without a correction %v", got, want, as)
	}
}
