package live

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"lorasim/bench/result"
	"lorasim/bench/serving/fleet"
	"lorasim/router"
	"lorasim/router/push"
	"lorasim/sim"
	"lorasim/sim/profile"
	"lorasim/trace"
)

// The same workload with new versions of adapters, through the simulator and through emulated workers: means within
// 10 %, no request lost, and every version within the bound.
func TestPushesLiveAndSim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			options string
			bound   int
		}{{"", -1}, {"workers=0,order=idle", 0}, {"overlap=false,versions=2", 1}, {"loads=demand", -1}} {
			const n = 200
			ranks := []int{8, 16}
			wl := &trace.Workload{Adapters: trace.Names(2, ranks)}
			for i := range n {
				wl.Requests = append(wl.Requests, trace.Request{ID: int64(i), Arrival: float64(i) * 0.05,
					Adapter: int32(i*7%3) - 1, Prompt: int32(100 + i*37%400), Output: int32(20 + i*13%80)})
			}
			o, err := push.Parse(c.options)
			if err != nil {
				t.Fatal(err)
			}
			const interval = 1.5
			costs := testProfile().Compile()
			place := func() *router.Router { return newRouter(t, "round-robin", 2, wl.Adapters) }
			simulated := result.NewCollector(result.Options{Workers: 2, Adapters: wl.Adapters})
			st, err := sim.Run(context.Background(), sim.Config{Source: wl.Source(),
				Workers: []*profile.Costs{costs, costs}, Router: place(), Observer: simulated, Home: router.Disk,
				Push: &sim.Push{Options: o, MaxStaleness: c.bound, Interval: interval, Adapters: []int32{0, 1}}})
			if err != nil {
				t.Fatal(err)
			}
			cluster := startWorkers(t, sound(2, faults{Loaded: 2, Ranks: ranks, Speed: 2})...)
			measured := result.NewCollector(result.Options{Workers: 2, Adapters: wl.Adapters})
			var pushed push.Stats
			out := liveRun{cluster: cluster, speed: 2, wl: wl, router: place(),
				setFleet: func(f *fleet.Config) { f.Push = &fleet.Push{Options: o, MaxStaleness: c.bound} },
				set: func(f *Config) {
					f.Push = &Push{push.Schedule{Interval: interval, Adapters: []int32{0, 1}},
						func(a int32, version int) string { return fmt.Sprintf("/v%d-r%d", version, ranks[a]) }}
				},
				after: func(f *fleet.Fleet) { pushed, _ = f.LoRAs.Pushes() },
			}.run(context.Background(), t)
			if ok := out.check(t, wl); ok != n {
				t.Fatalf("%s: %d of %d succeeded: %v", c.options, ok, n, out.reasons())
			}
			for id := range int64(n) {
				r := out.recs[id]
				measured.Done(&r)
				measured.AddGaps(&r)
				if c.bound >= 0 && int(r.Behind) > c.bound {
					t.Errorf("%s: request %d is %d versions behind", c.options, id, r.Behind)
				}
			}
			figures := func(c *result.Collector, s push.Stats) *result.Result {
				return c.Result(result.Meta{}, &result.RunCounters{Pushes: result.CountPushes(&s)})
			}
			a, b := figures(simulated, st.Push.Stats), figures(measured, pushed)
			near := func(what string, x, y, slack float64) {
				if d := x - y; d > 0.1*y+slack || -d > 0.1*y+slack {
					t.Errorf("%s: %s is %v simulated, %v measured", c.options, what, x, y)
				}
			}
			for _, id := range []result.ID{result.MeanE2E, result.MeanTTFT} {
				x, _ := a.Metrics.Get(id)
				y, _ := b.Metrics.Get(id)
				near(id.String(), x, y, 0)
			}
			p, q := a.Extra.Pushes, b.Extra.Pushes
			near("pushes", float64(p.Published), float64(q.Published), 0)
			near("loads", float64(p.Loads), float64(q.Loads), 1)
			near("staleness", p.MeanStaleness, q.MeanStaleness, 0.02)
			near("age", p.MeanAge, q.MeanAge, 0)
			t.Logf("%q: %+v simulated, %+v measured", c.options, *p, *q)
		}
	})
}
