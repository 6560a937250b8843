package fleet

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"lorasim/router"
	"lorasim/sim"
	"lorasim/sim/profile"
	"lorasim/trace"
)

// autoRouter is the policy auto for real workers of a profile, whose races may take a share of a core.
func autoRouter(t interface{ Fatal(...any) }, spec string, p *profile.Profile, workers int,
	adapters []trace.Adapter) *router.Router {
	costs, begun := p.Compile(), time.Now()
	s := router.Spec{Cost: profile.Model{Costs: costs}, MaxRunning: p.Engine.MaxRunningRequests,
		Slots: p.Engine.MaxLorasPerBatch, Memory: 1e10, KVBytes: 1e5, AdapterBytes: make([]float64, len(adapters))}
	rt, err := router.New(spec, router.Env{Workers: router.Alike(workers, s), Adapters: adapters, Seed: 1,
		Twin: sim.NewTwin(sim.Config{Workers: slices.Repeat([]*profile.Costs{costs}, workers)}, adapters),
		Live: &router.Live{Clock: func() float64 { return time.Since(begun).Seconds() }, Yield: runtime.Gosched}})
	if err != nil {
		t.Fatal(err)
	}
	return rt
}

// timedPlanner notes the longest time for which the beginning of a race or plan holds the fleet's lock.
type timedPlanner struct {
	router.Planner
	longest time.Duration
}

func (p *timedPlanner) Begin(s *router.PlannerInput) *router.Pending {
	begun := time.Now()
	pending := p.Planner.Begin(s)
	p.longest = max(p.longest, time.Since(begun))
	return pending
}

func (p *timedPlanner) Select(v *router.View) router.Selection {
	if s, ok := p.Planner.(router.Selector); ok {
		return s.Select(v)
	}
	return router.Selection{}
}

// BenchmarkAutoRouting measures on the wall clock how long requests wait for routing while races run beside it, and
// without races: 100 requests/s on 16 workers, 2 s each. One iteration is 30 s.
func BenchmarkAutoRouting(b *testing.B) {
	for _, policy := range []string{"auto", "plan-and-route"} {
		b.Run(policy, func(b *testing.B) {
			for b.Loop() {
				benchmarkRouting(b, policy)
			}
		})
	}
}

func benchmarkRouting(b *testing.B, policy string) {
	const seconds, rate, service = 30, 100, 2 * time.Second
	f := newTestFleet(b, 16, 64)
	p, err := profile.Embedded("llama-2-7b-rtx-4090-sglang-0.5")
	if err != nil {
		b.Fatal(err)
	}
	begun := time.Now()
	f.cfg.Now = func() float64 { return time.Since(begun).Seconds() }
	f.router = autoRouter(b, policy, p, 16, f.Adapters())
	planner := &timedPlanner{Planner: f.router.Planner}
	f.router.Planner = planner
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { f.plans.run(ctx, planner.Interval()) })
	rng := rand.New(rand.NewPCG(1, 1))
	waits := make([]float64, 0, seconds*rate)
	for i := range int64(seconds * rate) {
		time.Sleep(time.Until(begun.Add(time.Duration(i) * time.Second / rate)))
		r := &Request{Request: router.Request{ID: i, Adapter: int32(rng.ExpFloat64()*12) % 64,
			Prompt: 50 + rng.Int32N(200), MaxNew: 100}, Sent: f.cfg.Now()}
		asked := time.Now()
		w := f.Requests.Route(r, -1)
		waits = append(waits, time.Since(asked).Seconds())
		if w == router.None {
			b.Fatal("not routed")
		}
		wg.Go(func() {
			time.Sleep(service / 20)
			f.Requests.Tokens(r, 1, true)
			time.Sleep(service - service/20)
			f.Requests.Tokens(r, 49, false)
			f.Requests.Finished(r, w, service.Seconds()*19/20, service.Seconds()*19/20)
			f.Requests.Left(r)
		})
	}
	cancel()
	wg.Wait()
	f.Close()
	slices.Sort(waits)
	races := f.Stats().Races
	if races.Failed > 0 || policy == "auto" && races.Count == 0 {
		b.Fatalf("%+v", races)
	}
	b.ReportMetric(1e6*waits[len(waits)/2], "us-P50")
	b.ReportMetric(1e6*waits[len(waits)*99/100], "us-P99")
	b.ReportMetric(1e6*waits[len(waits)-1], "us-max")
	b.ReportMetric(float64(planner.longest.Microseconds()), "us-begin-max")
	b.ReportMetric(float64(races.Count), "races")
	b.ReportMetric(100*races.Time/seconds, "%core")
}
