package fleet

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lorasim/ilp"
	"lorasim/router"
	"lorasim/sim/record"
	"lorasim/trace"
)

// What a planner is told: the requests that can be moved, by worker and id.
func TestSituation(t *testing.T) {
	f := newTestFleet(t, 2, 2)
	defer f.Close()
	f.router.Planner = &outcomes{}
	movable := func(int, int) bool { return true }
	for _, r := range []struct {
		w   int
		r   *Request
		run bool
	}{
		{1, &Request{Request: router.Request{ID: 7, Adapter: 1, Prompt: 10, MaxNew: 5}, Move: movable}, true},
		{0, &Request{Request: router.Request{ID: 9, Adapter: trace.BaseModel, Prompt: 4, MaxNew: 6}, Move: movable},
			false},
		{0, &Request{Request: router.Request{ID: 3, Adapter: 0, Prompt: 8, MaxNew: 9}, Move: movable}, true},
		{0, &Request{Request: router.Request{ID: 2, Adapter: 0, Prompt: 8, MaxNew: 9}}, true}, // cannot move
	} {
		r.r.Sent = -1
		f.Requests.Book(r.r, r.w)
		if r.run {
			f.Requests.Tokens(r.r, 3, true)
		}
	}
	s, rests := f.plans.input()
	if rests {
		t.Fatal("a planner rests that does not say so")
	}
	for i := range s.Requests {
		if age := s.Requests[i].Age; age != s.Now+1 {
			t.Errorf("age %v at %v of a request sent at -1", age, s.Now)
		}
		s.Requests[i].Age = 0
	}
	want := []router.InFlight{
		{ID: 3, Running: true, Prompt: 8, Generated: 3, MaxNew: 9, Expected: 9, KV: 11},
		{ID: 9, Adapter: trace.BaseModel, Prompt: 4, MaxNew: 6, Expected: 6},
		{ID: 7, Adapter: 1, Worker: 1, Running: true, Prompt: 10, Generated: 3, MaxNew: 5, Expected: 5, KV: 13},
	}
	if !slices.Equal(s.Requests, want) {
		t.Errorf("%+v, expected %+v", s.Requests, want)
	}
}

// resting is a planner that rests for a second.
type resting struct{ outcomes }

func (*resting) Select(v *router.View) router.Selection { return router.Selection{Rest: v.Now + 1} }

func (*resting) Begin(*router.PlannerInput) *router.Pending {
	panic("a planner was asked while it rests")
}

// A planner is not asked while it rests.
func TestResting(t *testing.T) {
	f := newTestFleet(t, 1, 1)
	defer f.Close()
	f.router.Planner = &resting{}
	if plan, by := f.plans.plan(); plan != nil || by != f.router {
		t.Errorf("%+v of %v", plan, by)
	}
}

// A plan is carried out wholly: loads first, then moves, then unloads once
// nobody uses the adapter. What is both to come and to go stays.
func TestApply(t *testing.T) {
	inMemory(t, func(t *memory) {
		var log bytes.Buffer
		a, b := newFakeWorker(t, "lora0", "lora1"), newFakeWorker(t)
		f, _, planner := startFleet(t, 3, func(c *Config) { c.Plans = slog.New(slog.NewTextHandler(&log, nil)) }, a, b)
		var moved [][2]int
		stays := &Request{Request: router.Request{ID: 1, Adapter: 0}, Move: func(int, int) bool { return false }}
		moves := &Request{Request: router.Request{ID: 2, Adapter: 0}}
		moves.Move = func(from, to int) bool {
			moved = append(moved, [2]int{from, to})
			return true
		}
		fixedHere := &Request{Request: router.Request{ID: 3, Adapter: 0}}
		for _, r := range []*Request{stays, moves, fixedHere} {
			f.Requests.Book(r, 0)
		}
		apply(f, &router.Plan{Reason: "why", SolveTime: 0.5,
			Load:   []router.Placement{{Worker: 1, Adapter: 0}, {Worker: 1, Adapter: 2}},
			Unload: []router.Placement{{Worker: 0, Adapter: 0}, {Worker: 0, Adapter: 1}, {Worker: 1, Adapter: 2}},
			Move: []router.Move{{ID: 1, From: 0, To: 1}, {ID: 2, From: 0, To: 1}, {ID: 3, From: 0, To: 1},
				{ID: 2, From: 1, To: 0}, {ID: 2, From: -1, To: 0}, {ID: 2, From: 2, To: 0}},
		})
		sameCalls(t, "loads", b, "+lora0", "+lora2")
		synctest.Wait()
		for _, r := range []*Request{stays, moves, fixedHere} {
			f.Requests.Left(r)
		}
		f.tasks.Wait()
		sameCalls(t, "unloads", a, "-lora0", "-lora1")
		sameCalls(t, "to come and to go", b)
		if !slices.Equal(moved, [][2]int{{0, 1}}) {
			t.Errorf("asked to move %v", moved)
		}
		if s := f.Stats(); s.Loads != 2 || s.Unloads != 2 || !reflect.DeepEqual(s.Plans,
			record.PlanCounters{Applied: 1, Loads: 2, Unloads: 2, Changes: 4}) {
			t.Errorf("%+v", s)
		}
		if len(planner.told) != 1 || planner.told[0] != nil {
			t.Errorf("the planner was told %v", planner.told)
		}
		if got := log.String(); !strings.Contains(got,
			`load="[lora0@http://host2 lora2@http://host2]" unload="[lora0@http://host1 lora1@http://host1 `+
				`lora2@http://host2]" moves=6 solve_s=0.5`) {
			t.Error(got)
		}

		log.Reset()
		apply(f, &router.Plan{Reason: "even"})
		if s := f.Stats().Plans; s.Applied != 1 || s.Dropped != 0 || len(planner.told) != 2 || planner.told[1] != nil ||
			!strings.Contains(log.String(), `result="nothing to do"`) {
			t.Errorf("an empty plan: %+v, told %v: %s", s, planner.told, log.String())
		}
		apply(f, &router.Plan{Load: []router.Placement{{Worker: 0, Adapter: 0}, {Worker: 1, Adapter: 0}}})
		if s := f.Stats().Plans; s.Loads != 4 || s.Unloads != 2 || s.Changes != 5 || s.Undone != 2 {
			t.Errorf("a plan that reverts one of 4 changes: %+v", s)
		}
	})
}

func apply(f *Fleet, p *router.Plan) { f.plans.apply(context.Background(), p, f.router) }

// One load that fails takes the others of its plan with it, but nothing that was
// there before, and the plan's other parts are not begun.
func TestApplyFails(t *testing.T) {
	inMemory(t, func(t *memory) {
		var log bytes.Buffer
		k := newFakeWorker(t, "lora0", "lora3")
		f, _, planner := startFleet(t, 4, func(c *Config) { c.Plans = slog.New(slog.NewTextHandler(&log, nil)) }, k)
		k.refuse["+lora2"] = "no such file"
		apply(f, &router.Plan{
			Load:   []router.Placement{{Adapter: 0}, {Adapter: 1}, {Adapter: 2}},
			Unload: []router.Placement{{Adapter: 3}},
		})
		f.tasks.Wait()
		sameCalls(t, "all or none", k, "+lora1", "+lora2", "-lora1")
		if s := f.Stats().Plans; s.Applied != 0 || s.Dropped != 1 {
			t.Errorf("%+v", s)
		}
		if len(planner.told) != 1 || planner.told[0] == nil || !strings.Contains(log.String(), "result=dropped") ||
			!strings.Contains(log.String(), "no such file") {
			t.Errorf("the planner was told %v, and the log says %s", planner.told, log.String())
		}
	})
}

func TestCheckPlan(t *testing.T) {
	f := newTestFleet(t, 3, 2)
	defer f.Close()
	f.Drain(2, true)
	load := func(w, a int32) *router.Plan {
		return &router.Plan{Load: []router.Placement{{Worker: w, Adapter: a}}}
	}
	unload := func(w, a int32) *router.Plan {
		return &router.Plan{Unload: []router.Placement{{Worker: w, Adapter: a}}}
	}
	move := func(from, to int32) *router.Plan {
		return &router.Plan{Move: []router.Move{{ID: 5, From: from, To: to}}}
	}
	for _, c := range []struct {
		p    *router.Plan
		want string // "": it can be carried out
	}{
		{load(0, 0), ""}, {load(1, 1), ""}, {unload(0, 0), ""}, {unload(2, 1), ""}, {move(0, 1), ""}, {move(1, 0), ""},
		{move(2, 0), ""},
		{load(-1, 0), "adapter 0 on worker -1: no such adapter or worker"}, {load(3, 0),
			"adapter 0 on worker 3: no such adapter or worker"},
		{load(0, -1), "adapter -1 on worker 0: no such adapter or worker"}, {load(0, 2),
			"adapter 2 on worker 0: no such adapter or worker"},
		{unload(-1, 0), "adapter 0 on worker -1: no such adapter or worker"},
		{unload(3, 0), "adapter 0 on worker 3: no such adapter or worker"},
		{unload(0, 2), "adapter 2 on worker 0: no such adapter or worker"},
		{move(0, -1), "request 5 to worker -1: not another worker"}, {move(0, 3),
			"request 5 to worker 3: not another worker"},
		{move(1, 1), "request 5 to worker 1: not another worker"},
		{load(2, 0), "a worker that the plan needs is down"}, {move(0, 2), "a worker that the plan needs is down"},
	} {
		err := c.p.Check(&f.view)
		if c.want == "" && err != nil || c.want != "" && (err == nil || err.Error() != c.want) {
			t.Errorf("%+v: %v, expected %q", c.p, err, c.want)
		}
	}
	none := newTestFleet(t, 2, 0)
	defer none.Close()
	for to, ok := range map[int32]bool{-1: false, 1: true, 2: false} { // requests to the base model move too
		if err := move(0, to).Check(&none.view); (err == nil) != ok {
			t.Errorf("without adapters, to %d: %v", to, err)
		}
	}
}

// A planner that was replaced meanwhile is not told of its plan's fate.
func TestAppliedByAnother(t *testing.T) {
	inMemory(t, func(t *memory) {
		k := newFakeWorker(t)
		f, _, planner := startFleet(t, 1, nil, k)
		f.plans.applied(&router.Plan{}, &router.Router{Planner: planner}, nil)
		if len(planner.told) != 0 {
			t.Error("told of the plan of another router")
		}
		f.plans.applied(&router.Plan{Move: []router.Move{{}}}, f.router, errors.New("late"))
		if s := f.Stats().Plans; len(planner.told) != 1 || planner.told[0] == nil || s.Dropped != 1 || s.Applied != 0 {
			t.Errorf("told %v, %+v", planner.told, s)
		}
		f.router.Planner = nil // a policy without one may adjust
		f.plans.applied(&router.Plan{}, f.router, nil)
	})
}

// Planning asks the planner once in each interval of the fleet's clock, which
// runs faster than the wall clock.
func TestPlanning(t *testing.T) {
	inMemory(t, func(t *memory) {
		k := newFakeWorker(t, "lora0")
		f, _, planner := startFleet(t, 2, func(c *Config) { c.Speed = 100 }, k)
		planner.each, planner.next = time.Second, &router.Plan{Load: []router.Placement{{Adapter: 1}}}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		begun := time.Now()
		go func() { f.Run(ctx); close(done) }()
		if call := <-k.arrivals; call != "+lora1" {
			t.Error(call)
		}
		for f.Stats().Plans.Made < 3 {
			time.Sleep(time.Millisecond)
			synctest.Wait()
		}
		if wall := time.Since(begun); wall != 30*time.Millisecond {
			t.Errorf("three plans after %v, expected one in 10 ms", wall)
		}
		cancel()
		<-done
		if s := f.Stats().Plans; s.Applied == 0 || s.SolveTime < 0 || s.Dropped != 0 ||
			int64(len(planner.seen)) != s.Made {
			t.Errorf("%+v after %d", s, len(planner.seen))
		}
		planner.next = nil
		before := f.Stats().Plans.Made
		if p, by := f.plans.plan(); p != nil || by != f.router || f.Stats().Plans.Made != before {
			t.Errorf("no plan was counted as one: %v, %+v", p, f.Stats())
		}
	})
}

// A policy's adjustment is carried out like a plan, an empty one is nothing.
func TestAdjust(t *testing.T) {
	inMemory(t, func(t *memory) {
		k := newFakeWorker(t, "lora0")
		f, policy, planner := startFleet(t, 2, nil, k)
		route := func() {
			r := &Request{Request: router.Request{ID: 1, Adapter: 0}}
			if w := f.Requests.Route(r); w != 0 {
				t.Fatal(w)
			}
			f.Requests.Left(r)
			f.tasks.Wait()
		}
		route()
		policy.adjust = &router.Plan{}
		route()
		if len(planner.told) != 0 {
			t.Error("an empty adjustment was carried out")
		}
		policy.adjust = &router.Plan{Load: []router.Placement{{Adapter: 1}}}
		route()
		sameCalls(t, "an adjustment", k, "+lora1")
		if s := f.Stats().Plans; s.Applied != 1 || len(planner.told) != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// waiting is a solver that is told when to end, by its answer.
type waiting struct {
	began chan struct{}
	end   chan *ilp.Solution
}

func (w waiting) Name() string { return "waiting" }
func (w waiting) Solve(context.Context, *ilp.Problem, ilp.Budget) (*ilp.Solution, error) {
	w.began <- struct{}{}
	return <-w.end, nil
}

// Requests are routed while the solver works. Its plan is for the situation when
// it began; the plan of a router that was replaced meanwhile is none.
func TestPlanBesideRouting(t *testing.T) {
	for _, replaced := range []bool{false, true} {
		f := newTestFleet(t, 2, 1)
		solver := waiting{make(chan struct{}), make(chan *ilp.Solution)}
		rt, err := router.New("dlora_period_mig:threshold=1",
			router.Env{Workers: router.Alike(2, router.Spec{MaxRunning: 4, Slots: 2}), Adapters: f.Adapters(),
				Interval: 1, Moving: router.MoveRecompute, Solver: solver})
		if err != nil {
			t.Fatal(err)
		}
		f.router = rt
		for id := range int64(4) {
			f.Requests.Book(&Request{Request: router.Request{ID: id}, Move: func(int, int) bool { return true }}, 0)
		}
		var plan *router.Plan
		var by *router.Router
		var wg sync.WaitGroup
		wg.Go(func() { plan, by = f.plans.plan() })
		<-solver.began
		late := &Request{Request: router.Request{ID: 9}}
		if w := f.Requests.Route(late); w == router.None { // blocks for ever if the solver holds the lock
			t.Error("not routed")
		}
		f.Requests.Left(late)
		if replaced {
			f.mu.Lock()
			f.router = &router.Router{Policy: rt.Policy}
			f.mu.Unlock()
		}
		solver.end <- &ilp.Solution{Flows: []ilp.Flow{{Worker: 0, Count: 2}, {Worker: 1, Count: 2}}}
		wg.Wait()
		if by != rt || (plan == nil) != replaced || plan != nil && len(plan.Move) != 2 ||
			(f.Stats().Plans.Made == 0) != replaced {
			t.Errorf("router replaced: %v, plan %+v, %+v", replaced, plan, f.Stats())
		}
		f.Close()
	}
}
