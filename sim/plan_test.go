package sim

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
)

// chaos is a planner that knows no sense: it loads, unloads and moves at random,
// requests that are gone and places that do not exist included.
type chaos struct {
	router.Base
	rng      *rand.Rand
	workers  int
	adapters int
	interval float64
	solve    float64
	left     int // plans to make
	applied  int
	dropped  int
}

func (c *chaos) Route(r router.Request, v *router.View) router.Decision {
	return router.To(c.pick(r, v))
}

func (c *chaos) pick(r router.Request, v *router.View) int {
	for range 8 {
		if w := c.rng.IntN(c.workers); v.Workers[w].Usable() {
			return w
		}
	}
	for w := range v.Workers {
		if v.Workers[w].Usable() {
			return w
		}
	}
	return router.None
}

func (c *chaos) Interval() float64 { return c.interval }

func (c *chaos) Applied(_ *router.Plan, err error) {
	if err != nil {
		c.dropped++
	} else {
		c.applied++
	}
}

func (c *chaos) Begin(s *router.PlannerInput) *router.Pending { return router.Ready(c.next(s)) }

func (c *chaos) next(s *router.PlannerInput) *router.Plan {
	if c.left--; c.left < 0 || c.rng.IntN(5) == 0 {
		return nil // a planner that never stops keeps requests from ever running
	}
	p := &router.Plan{Reason: "chaos", SolveTime: c.solve * c.rng.Float64()}
	place := func() router.Placement {
		return router.Placement{Worker: int32(c.rng.IntN(c.workers)), Adapter: int32(c.rng.IntN(c.adapters))}
	}
	for range c.rng.IntN(3) {
		p.Load = append(p.Load, place())
	}
	for range c.rng.IntN(3) {
		p.Unload = append(p.Unload, place())
	}
	for _, r := range s.Requests {
		if c.rng.IntN(3) > 0 {
			continue
		}
		m := router.Move{ID: r.ID, From: r.Worker, To: int32(c.rng.IntN(c.workers))}
		if m.To == m.From && c.rng.IntN(20) > 0 {
			continue // mostly; the rest makes a plan that cannot be applied
		}
		if c.rng.IntN(30) == 0 {
			m.From = int32(c.rng.IntN(c.workers))
		}
		p.Move = append(p.Move, m)
	}
	if c.rng.IntN(10) == 0 {
		p.Move = append(p.Move, router.Move{ID: 1 << 40, From: 0, To: int32(c.workers - 1)})
	}
	return p
}

// Invariant 7, and 1, 2 and 4 under it: whatever plans, failed loads and
// outages do, every request ends once, its tokens come without a gap or a
// repetition, no limit is passed, and nothing is left on any worker.
func TestPlansLoseNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := genProfile(t)
		p.Memory.KVBytesPerToken = 100_000
		p.Adapters.Network = profile.Stage{LatencyMs: 2, GBPerS: rapid.SampledFrom([]float64{0.05, 10}).Draw(t,
			"bandwidth")}
		wl := genWorkload(t)
		n := rapid.IntRange(2, 4).Draw(t, "workers")
		c := &chaos{
			rng:     rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "chaos"), 1)),
			workers: n, adapters: len(wl.Adapters),
			left:     50,
			interval: rapid.SampledFrom([]float64{0.003, 0.02, 0.3}).Draw(t, "interval"),
			solve:    rapid.SampledFrom([]float64{0, 0.001, 0.1}).Draw(t, "solve"),
		}
		l := newLedger()
		cfg := Config{
			Source: wl.Source(), Router: &router.Router{Policy: c, Planner: c}, Observer: l, TokenTimes: true,
			MoveMode:     rapid.SampledFrom(router.Movings()).Draw(t, "mode"),
			LoadFailures: rapid.SampledFrom([]float64{0, 0.3, 1}).Draw(t, "load_failures"),
			NoFailover:   rapid.Bool().Draw(t, "no_failover"),
			Home:         router.Disk,
		}
		for range rapid.IntRange(0, 3).Draw(t, "outages") {
			from := rapid.SampledFrom([]float64{0, 0.05, 0.2, 1}).Draw(t, "from")
			o := Outage{Worker: rapid.IntRange(0, n-1).Draw(t, "down"), From: from}
			if rapid.Bool().Draw(t, "back") {
				o.To = from + rapid.SampledFrom([]float64{0.01, 0.5}).Draw(t, "for")
			}
			cfg.Outages = append(cfg.Outages, o)
		}
		costs := p.Compile()
		for range n {
			cfg.Workers = append(cfg.Workers, costs)
		}
		s := checked(t, cfg)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // a run that does not end is a fault
		defer cancel()
		if err := s.run(ctx); err != nil {
			t.Fatal(err)
		}
		checkEmpty(t, s)
		if len(l.twice) > 0 {
			t.Fatalf("requests %v ended twice", l.twice)
		}
		checkInvariants(t, wl, l, s.stats(), p)
		if got, want := int(s.plan.book.Applied+s.plan.book.Dropped), c.applied+c.dropped; got > want {
			t.Fatalf("%d plans applied or dropped, the planner knows of %d", got, want)
		}
	})
}

// script is a planner with one plan, made at a given time.
type script struct {
	byID
	at   float64
	plan *router.Plan
	errs []error
}

func (s *script) Interval() float64                 { return s.at }
func (s *script) Applied(_ *router.Plan, err error) { s.errs = append(s.errs, err) }
func (s *script) Begin(*router.PlannerInput) *router.Pending {
	p := s.plan
	s.plan = nil
	return router.Ready(p)
}

// twoWorkers runs a script on two workers of plainProfile (see worked_test.go);
// all requests start on worker 0.
func twoWorkers(t *testing.T, p profile.Profile, mode router.Moving, sc *script, reqs []trace.Request) (*ledger,
	*Stats) {
	t.Helper()
	p.Memory.KVBytesPerToken = 1_000_000 // 1 MB: 0.1 ms a token at 10 GB/s
	p.Adapters.Network = profile.Stage{LatencyMs: 1, GBPerS: 10}
	for i := range reqs {
		reqs[i].ID = int64(i)
	}
	sc.byID = byID{n: 1}
	l := newLedger()
	st, err := Run(context.Background(), Config{
		Source:  (&trace.Workload{Adapters: trace.Names(2, nil), Requests: reqs}).Source(),
		Workers: []*profile.Costs{p.Compile(), p.Compile()}, Observer: l, TokenTimes: true,
		Router: &router.Router{Policy: sc, Planner: sc, Placement: [][]int32{{0, 1}, {}}}, MoveMode: mode,
		Home: router.Disk,
	})
	if err != nil {
		t.Fatal(err)
	}
	return l, st
}

// The expectations are worked out by hand. The request prefills 0-10 and decodes
// in steps of 11 ms; the plan, made at 25 ms, moves it at the boundary at 32 ms
// (two tokens after the first: 3 tokens, 52 in the KV cache).
func TestMovesOfARunningRequest(t *testing.T) {
	reqs := []trace.Request{{Adapter: -1, Prompt: 50, Output: 5}}
	plan := func() *router.Plan {
		return &router.Plan{Move: []router.Move{{ID: 0, From: 0, To: 1}}}
	}
	for _, c := range []struct {
		mode   router.Moving
		finish float64
		moved  bool
		recomp int64
		lost   float64
	}{
		{router.MoveNone, 10 + 4*11, false, 0, 0},
		{router.MoveQueued, 10 + 4*11, false, 0, 0},
		// prefills 53 tokens at worker 1: 5 + 5.3 ms, which gives the 4th token; one step more
		{router.MoveRecompute, 32 + 10.3 + 11, true, 52, 0},
		// copies 52 tokens: 1 + 5.2 ms; two steps more
		{router.MoveCopy, 32 + 6.2 + 22, true, 0, 6.2},
		// the first round copies the 51 tokens there are at 25 ms (1 + 5.1 ms);
		// at 31.1 none were added (the step ends at 32), so it leaves at 32 and
		// copies the one token of that step: 1.1 ms
		{router.MovePrecopy, 32 + 1.1 + 22, true, 0, 1.1},
	} {
		t.Run(string(c.mode), func(t *testing.T) {
			l, st := twoWorkers(t, plainProfile(), c.mode, &script{at: 0.025, plan: plan()},
				append([]trace.Request(nil), reqs...))
			l.expect(t, []want{{first: 12, finish: c.finish + 2}})
			r := l.recs[0]
			if (r.WorkerLast == 1) != c.moved || (r.Migrations == 1) != c.moved {
				t.Errorf("on worker %d after %d migrations, expected moved = %v", r.WorkerLast, r.Migrations, c.moved)
			}
			if st.Plans.Recomputed != c.recomp || st.Plans.Lost != tick.FromMilliseconds(c.lost) {
				t.Errorf("%d tokens recomputed, %v ms lost; expected %d, %v", st.Plans.Recomputed,
					st.Plans.Lost.Milliseconds(), c.recomp, c.lost)
			}
		})
	}
}

func TestPlanOfAQueuedRequestAndItsAdapter(t *testing.T) {
	p := plainProfile()
	p.Engine.MaxRunningRequests = 1
	plan := &router.Plan{
		SolveTime: 0.005,
		Load:      []router.Placement{{Worker: 1, Adapter: 1}},
		Unload:    []router.Placement{{Worker: 0, Adapter: 0}},
		Move:      []router.Move{{ID: 1, From: 0, To: 1}},
	}
	l, st := twoWorkers(t, p, router.MoveQueued, &script{at: 0.02, plan: plan}, []trace.Request{
		{Arrival: 0, Adapter: 0, Prompt: 50, Output: 10}, // load 0-7, prefill 7-17, decode until 116
		{Arrival: 0.001, Adapter: 1, Prompt: 50, Output: 1},
		// Waits on worker 0 until the plan is applied at 25 ms. Its adapter comes
		// to worker 1 from disk: 50 + 66.667 + 7 ms, until 148.667; then prefill.
		{Arrival: 0.2, Adapter: 0, Prompt: 50, Output: 1},
		// adapter 0 left worker 0 at 116 and must come from disk again
	})
	disk := 50 + 100/1.5 + 7
	l.expect(t, []want{
		{first: 19, finish: 118, cold: 7},
		{first: 25 + disk + 12, finish: 25 + disk + 12, cold: disk},
		{first: 200 + disk + 12, finish: 200 + disk + 12, cold: disk},
	})
	if s := st.Plans; s.Applied != 1 || s.Moves["queued"] != 1 || s.Changes != 2 || s.Undone != 0 {
		t.Errorf("plan statistics %+v", s)
	}
}

func TestAPlanIsAppliedWhollyOrNotAtAll(t *testing.T) {
	for name, bad := range map[string]*router.Plan{
		"no such worker":  {Load: []router.Placement{{Worker: 2, Adapter: 0}}},
		"no such adapter": {Unload: []router.Placement{{Worker: 0, Adapter: 7}}},
		"not a move":      {Move: []router.Move{{ID: 0, From: 0, To: 0}}},
	} {
		bad.Move = append(bad.Move, router.Move{ID: 0, From: 0, To: 1}) // good by itself
		bad.Load = append(bad.Load, router.Placement{Worker: 1, Adapter: 0})
		sc := &script{at: 0.025, plan: bad}
		l, st := twoWorkers(t, plainProfile(), router.MoveRecompute, sc,
			[]trace.Request{{Adapter: 0, Prompt: 50, Output: 5}})
		if len(sc.errs) != 1 || sc.errs[0] == nil {
			t.Errorf("%s: the planner heard %v, expected one error", name, sc.errs)
		}
		if r := l.recs[0]; r.Migrations != 0 || st.Plans.Dropped != 1 || st.Plans.Applied != 0 ||
			st.Workers[1].ColdLoads != 0 {
			t.Errorf("%s: part of the plan was applied: %+v, %+v", name, r, st.Plans)
		}
	}
}

func TestOutage(t *testing.T) {
	reqs := func() []trace.Request {
		return []trace.Request{{Adapter: -1, Prompt: 50, Output: 5}}
	}
	var repeated int64
	run := func(noFailover bool) record.Request {
		l := newLedger()
		p := plainProfile()
		st, err := Run(context.Background(), Config{
			Source:  (&trace.Workload{Requests: reqs()}).Source(),
			Workers: []*profile.Costs{p.Compile(), p.Compile()}, Observer: l, TokenTimes: true,
			Router: &router.Router{Policy: firstUp{}}, Outages: []Outage{{Worker: 0, From: 0.025, To: 0.1}},
			NoFailover: noFailover,
		})
		if err != nil {
			t.Fatal(err)
		}
		repeated = st.Workers[1].RepeatedTokens
		return l.recs[0]
	}
	// prefill 0-10, tokens at 21; the step until 32 is lost. Worker 1 prefills 52
	// tokens, 25-35.2, which gives the third; two steps more
	r := run(false)
	if got, want := r.Finish*1000, 25+10.2+22+2; r.Status != record.OK || got < want-1e-6 || got > want+1e-6 ||
		r.WorkerLast != 1 {
		t.Errorf("failover: %+v, expected to finish at %v ms on worker 1", r, want)
	}
	if repeated != 51 { // all but the latest token
		t.Errorf("worker 1 computed %d tokens again, expected 51", repeated)
	}
	if r := run(true); r.Status != record.Failed || r.Error == "" {
		t.Errorf("without failover: %+v, expected a failure", r)
	}
}

// A worker that has several outages at once is down until the last of them ends,
// one that begins when another ends included.
func TestOutagesOverlap(t *testing.T) {
	for want, outages := range map[float64][]Outage{
		100: {{0, 0.02, 0.1}, {0, 0.05, 0.06}},
		90:  {{0, 0.02, 0.05}, {0, 0.05, 0.09}},
		0:   {{0, 0.02, 0}, {0, 0.03, 0.04}},
	} {
		var reqs []trace.Request
		for i := range 20 {
			reqs = append(reqs, trace.Request{ID: int64(i), Arrival: 0.01 * float64(i), Adapter: trace.BaseModel,
				Prompt: 50, Output: 1})
		}
		l, p := newLedger(), plainProfile()
		if _, err := Run(context.Background(), Config{Source: (&trace.Workload{Requests: reqs}).Source(), Observer: l,
			Outages: outages,
			Workers: []*profile.Costs{p.Compile()}, Router: &router.Router{Policy: firstUp{}}}); err != nil {
			t.Fatal(err)
		}
		for _, r := range l.recs {
			if at := math.Round(1000 * r.Arrival); at > 20 && (r.Status == record.OK) != (want > 0 && at >= want) {
				t.Errorf("%v: request at %v ms: %v", outages, at, r.Status)
			}
		}
	}
}

type firstUp struct{ router.Base }

func (p firstUp) Route(r router.Request, v *router.View) router.Decision {
	return router.To(p.pick(r, v))
}

func (p firstUp) pick(_ router.Request, v *router.View) int {
	for w := range v.Workers {
		if v.Workers[w].Usable() {
			return w
		}
	}
	return router.None
}

func TestBadOutages(t *testing.T) {
	for _, o := range []Outage{{Worker: 1}, {Worker: -1}, {From: -1}, {From: 5, To: 4}, {From: 1e12}} {
		p := plainProfile()
		_, err := Run(context.Background(), Config{
			Source: (&trace.Workload{}).Source(), Workers: []*profile.Costs{p.Compile()},
			Router: &router.Router{Policy: byID{n: 1}}, Observer: newLedger(), Outages: []Outage{o},
		})
		if err == nil {
			t.Errorf("outage %+v was accepted", o)
		}
	}
}

// first is a planner that wants to see the first two requests that wait on each worker.
type first struct {
	byID
	t      *testing.T
	behind int // the most that waited and were not seen
}

func (*first) Interval() float64                    { return 0.01 }
func (*first) Applied(*router.Plan, error)          {}
func (*first) Select(*router.View) router.Selection { return router.Selection{MostWaiting: 2} }
func (f *first) Begin(s *router.PlannerInput) *router.Pending {
	var seen []int64
	for _, a := range s.Requests {
		if !a.Running {
			seen = append(seen, a.ID)
		}
	}
	waits := s.Workers[0].Queued
	come := int64(min(s.Now/0.002+1e-9, 39)) + 1 // requests that have; they run in their order
	var want []int64
	for id := come - int64(waits); id < come && len(want) < 2; id++ {
		want = append(want, id)
	}
	if !slices.Equal(seen, want) {
		f.t.Errorf("at %v s: of %d that wait %v are seen, expected %v", s.Now, waits, seen, want)
	}
	f.behind = max(f.behind, waits-len(seen))
	return nil
}

// progress checks what a planner sees of one running request after the other: a prefill
// step of 10 ms, and then a token every 11 ms. The second goes on with a text that is
// known.
type progress struct {
	byID
	t    *testing.T
	seen int
}

func (*progress) Interval() float64           { return 0.007 }
func (*progress) Applied(*router.Plan, error) {}
func (k *progress) Begin(s *router.PlannerInput) *router.Pending {
	for _, a := range s.Requests {
		if since := s.Now - float64(a.ID) - 0.010; since >= 0 {
			k.seen++
			steps := int64(since/0.011 + 1e-6)
			if !a.Running || int64(a.Generated) != 1+steps || a.KV != 50+steps ||
				a.Known != 50+int32(a.ID)*int32(1+steps) {
				k.t.Errorf("at %v s: %+v, expected %d tokens", s.Now, a, 1+steps)
			}
		}
	}
	return nil
}

func TestPlannerSeesTokens(t *testing.T) {
	p := plainProfile()
	p.Engine.PrefixCache = true
	k := &progress{byID: byID{n: 1}, t: t}
	simulate(t, p, Config{Router: &router.Router{Policy: k, Planner: k}}, 0, []trace.Request{
		{Adapter: -1, Prompt: 50, Output: 50, Text: &trace.Text{ID: 1}}, {Arrival: 1000, Adapter: -1, Prompt: 50,
			Output: 50, Text: &trace.Text{ID: 2}, Reply: &trace.Text{ID: 2}},
	})
	if k.seen < 100 {
		t.Errorf("%d looks", k.seen)
	}
}

// emptyPlans makes empty plans, some of which have a bound.
type emptyPlans struct {
	byID
	bounds []float64
}

func (*emptyPlans) Interval() float64           { return 0.01 }
func (*emptyPlans) Applied(*router.Plan, error) {}
func (b *emptyPlans) Begin(*router.PlannerInput) *router.Pending {
	if len(b.bounds) == 0 {
		return nil
	}
	p := &router.Plan{Objective: 5, Bound: b.bounds[0], SolveTime: 0.001}
	b.bounds = b.bounds[1:]
	return router.Ready(p)
}

// The gap is that of plans of which a bound is known.
func TestGapsOfPlans(t *testing.T) {
	b := &emptyPlans{byID{n: 1}, []float64{0, 4, 0, 3}}
	_, st := simulate(t, plainProfile(), Config{Router: &router.Router{Policy: b, Planner: b}}, 0,
		[]trace.Request{{Adapter: -1, Prompt: 50, Output: 50}})
	if p := st.Plans; p.Made != 4 || math.Abs(p.Gap-0.3) > 1e-12 ||
		math.Abs(p.SolveTime-0.004) > 1e-12 {
		t.Errorf("%+v", p)
	}
}

func TestPlannerSeesTheFirstThatWait(t *testing.T) {
	reqs := make([]trace.Request, 40)
	for i := range reqs {
		reqs[i] = trace.Request{ID: int64(i), Arrival: 0.002 * float64(i), Prompt: 50, Output: 5}
	}
	p := plainProfile()
	p.Engine.MaxRunningRequests = 2
	f := &first{byID: byID{n: 1}, t: t}
	_, err := Run(context.Background(), Config{
		Source:  (&trace.Workload{Adapters: trace.Names(1, nil), Requests: reqs}).Source(),
		Workers: []*profile.Costs{p.Compile()}, Observer: newLedger(), Router: &router.Router{Policy: f, Planner: f},
	})
	if err != nil {
		t.Fatal(err)
	}
	if f.behind < 10 {
		t.Errorf("%d waited unseen, expected more than 10", f.behind)
	}
}

// onceEach is a planner that makes each plan, although it could make the latest one again.
type onceEach struct{ router.Planner }

// TestPlansAgain compares runs with pauses, in which plans are made again, with runs in which the planner is asked for
// each plan.
func TestPlansAgain(t *testing.T) {
	costs := speedProfile()
	repeated := false
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 3).Draw(t, "workers")
		wl := &trace.Workload{Adapters: trace.Names(rapid.IntRange(1, 4).Draw(t, "adapters"), []int{8, 16})}
		at := 0.0
		for range rapid.IntRange(1, 12).Draw(t, "requests") {
			at += rapid.SampledFrom([]float64{0, 0.1, 3, 60, 2000}).Draw(t, "pause")
			wl.Requests = append(wl.Requests, trace.Request{Arrival: at,
				Adapter: int32(rapid.IntRange(-1, len(wl.Adapters)-1).Draw(t, "adapter")),
				Prompt:  int32(rapid.IntRange(1, 4000).Draw(t, "prompt")),
				Output:  int32(rapid.IntRange(1, 400).Draw(t, "output"))})
		}
		spec := fmt.Sprintf("plan-and-route:interval=%s,look=%s,busy=%s",
			rapid.SampledFrom([]string{"1", "3.3", "10"}).Draw(t, "interval"),
			rapid.SampledFrom([]string{"0.25", "0.7", "2"}).Draw(t, "look"),
			rapid.SampledFrom([]string{"0", "0.01", "0.5"}).Draw(t, "busy"))
		var outages []Outage
		if rapid.Bool().Draw(t, "outage") {
			from := rapid.Float64Range(0, at+10).Draw(t, "from")
			outages = []Outage{{Worker: n - 1, From: from, To: from + 20}}
		}
		window := rapid.SampledFrom([]float64{0, 0, 77}).Draw(t, "window")
		run := func(again bool) *Stats {
			rt, err := router.New(spec, router.Env{Adapters: wl.Adapters, Seed: 1, Moving: router.MoveQueued,
				Workers: router.Alike(n, router.Spec{MaxRunning: 256, Slots: 2, Cost: profile.Model{Costs: costs}})})
			if err != nil {
				t.Fatal(err)
			}
			if !again {
				rt.Planner = onceEach{rt.Planner}
			}
			st, err := Run(context.Background(), Config{Source: wl.Source(), Router: rt, Observer: newLedger(),
				Workers: slices.Repeat([]*profile.Costs{costs}, n), Home: router.Disk, MoveMode: router.MoveQueued,
				Outages: outages, Window: window})
			if err != nil {
				t.Fatal(err)
			}
			return st
		}
		got, want := run(true), run(false)
		repeated = repeated || got.Events < want.Events
		got.Events, want.Events = 0, 0
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v, expected %+v", got, want)
		}
	})
	if !repeated {
		t.Error("no plan was made again")
	}
}
