package sim

import (
	"context"
	"math"
	"slices"
	"testing"

	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/trace"
)

// twinCluster is a small cluster and a load for it.
func twinCluster(n int, rate float64) (Config, *trace.Workload) {
	p := testProfile()
	c := p.Compile()
	w := &trace.Workload{Adapters: trace.Names(6, []int{8, 16})}
	for i := range int64(n) {
		w.Requests = append(w.Requests, trace.Request{ID: i, Arrival: float64(i) / rate, Adapter: int32(i*7%11) % 6,
			Prompt: int32(20 + i*13%90), Output: int32(5 + i*29%60), MaxNew: 100})
	}
	return Config{Workers: []*profile.Costs{c, c}}, w
}

func twinRouter(t *testing.T, policy string, cfg Config, adapters []trace.Adapter) *router.Router {
	t.Helper()
	e := cfg.Workers[0].Profile().Engine
	rt, err := router.New(policy, router.Env{Adapters: adapters, Seed: 1, Moving: cfg.MoveMode, Workers: router.Alike(2,
		router.Spec{Cost: profile.Model{Costs: cfg.Workers[0]}, MaxRunning: e.MaxRunningRequests,
			Slots:     e.MaxLorasPerBatch,
			HostSlots: e.HostLoras(), KVBytes: 1, Memory: 1e9, AdapterBytes: make([]float64, len(adapters))})})
	if err != nil {
		t.Fatal(err)
	}
	return rt
}

// done collects records.
type done struct {
	unobserved
	all map[int64]record.Request
}

func (d *done) Done(r *record.Request) { d.all[r.ID] = *r }

// From an empty cluster on, a twin gives the times of the run itself.
func TestTwinIsTheSimulation(t *testing.T) {
	cfg, w := twinCluster(200, 60)
	for _, policy := range []string{"static", "least-loaded", "period_mig"} {
		d := &done{all: map[int64]record.Request{}}
		run := cfg
		run.Source, run.Observer, run.Router = w.Source(), d, twinRouter(t, policy, cfg, w.Adapters)
		if _, err := Run(context.Background(), run); err != nil {
			t.Fatal(err)
		}
		o, err := NewTwin(cfg, w.Adapters).Simulate(twinRouter(t, policy, cfg, w.Adapters),
			&router.Future{Requests: w.Requests})
		if err != nil {
			t.Fatal(err)
		}
		for i := range w.Requests {
			r := d.all[int64(i)]
			if o.E2E[i] != float32(r.E2E()) || o.TTFT[i] != float32(r.TTFT()) {
				t.Fatalf("%s: request %d: twin %v s and %v s, run %v s and %v s", policy, i, o.E2E[i], o.TTFT[i],
					r.E2E(), r.TTFT())
			}
		}
	}
}

// watcher is a planner that notes the situation at a time.
type watcher struct {
	router.Policy
	at   float64
	view router.View
	seen []router.InFlight
}

func (w *watcher) Interval() float64           { return w.at }
func (w *watcher) Applied(*router.Plan, error) {}
func (w *watcher) Begin(s *router.PlannerInput) *router.Pending {
	if w.seen == nil {
		w.view = *s.View
		w.view.Workers = slices.Clone(s.Workers)
		for j := range w.view.Workers {
			w.view.Workers[j].Adapters = slices.Clone(s.Workers[j].Adapters)
		}
		w.seen = slices.Clone(s.Requests)
	}
	return nil
}

// A twin that goes on from a situation under way, with queues, gives the later requests about the latencies that they
// have in the run. It would not do so from an empty cluster.
func TestTwinGoesOnFromASituation(t *testing.T) {
	cfg, w := twinCluster(400, 90)
	const at = 2.0
	rt := twinRouter(t, "static", cfg, w.Adapters)
	watch := &watcher{Policy: rt.Policy, at: at}
	rt.Policy, rt.Planner = watch, watch
	d := &done{all: map[int64]record.Request{}}
	run := cfg
	run.Source, run.Observer, run.Router = w.Source(), d, rt
	if _, err := Run(context.Background(), run); err != nil {
		t.Fatal(err)
	}
	f := &router.Future{}
	n := len(watch.view.Workers)
	f.State.Host, f.State.Slots, f.State.Used = make([][]int32, n), make([][]int32, n), make([][]int32, n)
	for j := range watch.view.Workers {
		for k, a := range watch.view.Workers[j].Adapters {
			if a.Tier >= router.Host {
				f.State.Host[j], f.State.Used[j] = append(f.State.Host[j], int32(k)), append(f.State.Used[j], int32(k))
			}
			if a.Tier == router.GPU {
				f.State.Slots[j] = append(f.State.Slots[j], int32(k))
			}
		}
	}
	for _, running := range []bool{true, false} {
		for _, a := range watch.seen {
			if a.Running == running {
				h := router.Held{Request: w.Requests[a.ID], Worker: a.Worker}
				if running {
					h.Generated, h.KV = a.Generated, a.KV
				}
				f.State.InFlight = append(f.State.InFlight, h)
			}
		}
	}
	if len(f.State.InFlight) < 20 {
		t.Fatalf("%d requests in flight: nothing to go on from", len(f.State.InFlight))
	}
	real := 0.0
	for _, r := range w.Requests {
		if r.Arrival > at {
			rec := d.all[r.ID]
			real += rec.E2E()
			r.Arrival -= at
			f.Requests = append(f.Requests, r)
		}
	}
	sum := func(f *router.Future) (sum float64) {
		o, err := NewTwin(cfg, w.Adapters).Simulate(twinRouter(t, "static", cfg, w.Adapters), f)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range o.E2E[:len(f.Requests)] {
			sum += float64(x)
		}
		return sum
	}
	if got := sum(f); math.Abs(got/real-1) > 0.05 {
		t.Errorf("the twin predicts %v s, the run has %v s", got, real)
	}
	if got := sum(&router.Future{Requests: f.Requests}); got/real > 0.9 {
		t.Errorf("from an empty cluster %v s, the run has %v s: the situation does not matter here", got, real)
	}
}

// Requests that do not count keep the load up until the counted ones have ended: these have the latencies that they
// have in the whole run, though the simulation stops early. Without a tail they would end among ever fewer others.
func TestTwinKeepsTheLoadUp(t *testing.T) {
	cfg, w := twinCluster(2000, 30)
	run := func(f *router.Future) (*router.Outcome, float64) {
		o, err := NewTwin(cfg, w.Adapters).Simulate(twinRouter(t, "least-loaded", cfg, w.Adapters), f)
		if err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for _, x := range o.E2E {
			sum += float64(x)
		}
		return o, sum
	}
	const count = 20
	whole, _ := run(&router.Future{Requests: w.Requests})
	part, partSum := run(&router.Future{Requests: w.Requests, Count: count})
	if len(part.E2E) != count || part.Sent <= count || part.Sent == len(w.Requests) || whole.Sent != len(w.Requests) {
		t.Errorf("%d latencies, %d requests sent; expected %d, and some more sent, not all %d", len(part.E2E),
			part.Sent, count, whole.Sent)
	}
	if !slices.Equal(part.E2E, whole.E2E[:count]) || !slices.Equal(part.TTFT, whole.TTFT[:count]) {
		t.Error("the requests that count do not have the latencies of the whole run")
	}
	if _, alone := run(&router.Future{Requests: w.Requests[:count]}); alone > 0.97*partSum {
		t.Errorf("without a tail the latencies sum up to %v s, with it to %v s: the load does not matter here", alone,
			partSum)
	}
	held := make([]router.Held, 5)
	for i := range held {
		held[i] = router.Held{Request: w.Requests[i], Age: 1}
	}
	f := &router.Future{Requests: w.Requests, Count: count, State: router.State{InFlight: held}}
	if o, _ := run(f); len(o.E2E) != count+len(held) || !(o.E2E[count] > 1) {
		t.Errorf("%d latencies with %d requests in flight", len(o.E2E), len(held))
	}
}

// Workers with a wrong profile take other times, the same for the same seed, and the profile itself stays as it is.
func TestTwinWithAWrongProfile(t *testing.T) {
	cfg, w := twinCluster(100, 20)
	twin := NewTwin(cfg, w.Adapters)
	mean := func(e router.ProfileError) (sum float64) {
		f := &router.Future{Requests: w.Requests, Error: e}
		o, err := twin.Simulate(twinRouter(t, "static", cfg, w.Adapters), f)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range o.E2E {
			sum += float64(x) / float64(len(o.E2E))
		}
		return sum
	}
	right, longer, shorter := mean(router.ProfileError{}), 0, 0
	for seed := range uint64(20) {
		e := router.ProfileError{Share: 0.2, Seed: seed}
		wrong := mean(e)
		if again := mean(e); again != wrong {
			t.Errorf("seed %d: %v s, then %v s", seed, wrong, again)
		}
		if wrong > right {
			longer++
		} else {
			shorter++
		}
		if by := math.Abs(wrong/right - 1); by < 0.02 || by > 1 {
			t.Errorf("seed %d: %v s instead of %v s", seed, wrong, right)
		}
	}
	if longer < 4 || shorter < 4 {
		t.Errorf("%d of 20 wrong profiles are too slow, %d too fast", longer, shorter)
	}
	if again := mean(router.ProfileError{}); again != right {
		t.Errorf("%v s, then %v s with the right profile", right, again)
	}
}
