package router

import (
	"math"
	"testing"

	"lorasim/trace"
)

// slowTwin takes a time of a clock for each request that it simulates.
type slowTwin struct {
	clock *float64
	each  float64 // s
}

func (s slowTwin) Simulate(rt *Router, f *Future) (*Outcome, error) {
	*s.clock += s.each * float64(len(f.Requests))
	return alikeTwin{}.Simulate(rt, f)
}

// Live races take no more than their share of one core, whatever a simulated request costs.
func TestLiveShare(t *testing.T) {
	for _, each := range []float64{1e-6, 50e-6, 500e-6} {
		const seconds, rate, share = 1200, 100, 0.02
		env, wall, raced := testEnv(4, 8), 0.0, 0.0
		env.Twin, env.Live = slowTwin{&wall, each}, &Live{Clock: func() float64 { return wall }}
		p := mustNew(t, "auto:share=2%", env).Policy.(*auto)
		v, races, last := testView(env), 0, 0.0
		for i := range int64(seconds * rate) {
			wall = max(wall, float64(i)/rate)
			v.Now = wall
			if wall >= last+autoTick {
				last = wall
				p.Select(v)
				if plan := p.Begin(&PlannerInput{View: v}).Now(); plan != nil {
					p.Applied(plan, nil)
					if plan.Race != nil {
						races++
						raced += plan.Race.Seconds
					}
				}
			}
			r := Request{ID: i, Adapter: int32(i % 8), Prompt: 100, MaxNew: 50}
			w := p.Route(r, v)
			p.Finished(Finished{ID: i, Adapter: r.Adapter, Worker: int32(w), Output: 20, E2E: 1, TTFT: 0.1, Now: v.Now})
		}
		if got := raced / seconds; got > 1.1*share || races < 2 {
			t.Errorf("%g s per simulated request: %d races took %.2f %% of a core, expected at most %.0f %%", each,
				races, 100*got, 100*share)
		}
		t.Logf("%g s per simulated request: %d races, %.2f %% of a core", each, races, 100*raced/seconds)
	}
}

// The correction of a worker's step times is the median ratio of the measured times, once it has enough requests.
func TestReplayRatios(t *testing.T) {
	w := newWindow(64)
	for i := range int64(40) {
		r := Request{ID: i, Adapter: trace.BaseModel, Prompt: 10, MaxNew: 10}
		w.sent(&r, int(i%2), float64(i))
		s := w.get(i)
		s.output, s.ttft, s.e2e = 10, 0.5, 0.5+float64(1+i%2) // 1 s on worker 0, 2 s on worker 1
	}
	w.get(38).e2e = 100 // an outlier
	r := newReplay(w, &Future{State: State{Down: []int{2}}}, nil, replayed)
	o := &Outcome{}
	for range r.future.Requests {
		o.E2E, o.TTFT = append(o.E2E, 2), append(o.TTFT, 1) // 1 s
	}
	o.E2E[39] = float32(math.NaN())
	ratios := r.ratios(o, 3)
	if len(ratios[0]) != 15 || len(ratios[1]) != 14 || len(ratios[2]) != 0 {
		t.Fatalf("%v", ratios)
	}
	if a, b := median(ratios[0]), median(ratios[1]); a != 1 || b != 2 {
		t.Errorf("median ratios %v and %v, expected 1 and 2", a, b)
	}
}
