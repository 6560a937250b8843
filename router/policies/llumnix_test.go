package policies

import (
	"slices"
	"testing"

	"lorasim/router"
	"lorasim/router/routertest"
)

// Free KV tokens for each request: of 1000, worker 0 has (1000-700-100)/(3+1) =
// 50, worker 1 (1000-200)/2 = 400.
func TestLlumnixByHand(t *testing.T) {
	env := routertest.HandEnv(3, 1)
	p := routertest.New(t, "llumnix:pause=10", env).Policy.(*llumnix)
	s := &router.PlannerInput{View: routertest.View(env)}
	for j, w := range []router.Worker{{Running: 3, Queued: 1, KVUsed: 700, QueuedToks: 100}, {Running: 2, KVUsed: 200},
		{}} {
		w.Up, w.KVCapacity, w.Adapters = j < 2, 1000, s.Workers[j].Adapters
		s.Workers[j] = w
	}
	routertest.Close(t, "freeness of worker 0", freeness(&s.Workers[0], 0, 0), 50)
	routertest.Close(t, "freeness of worker 1", freeness(&s.Workers[1], 0, 0), 400)
	routertest.Close(t, "freeness of an idle worker", freeness(&s.Workers[2], 0, 0), 1000)
	routertest.Close(t, "freeness with one more of 200 tokens", freeness(&s.Workers[1], 1, 200), 200)
	s.Requests = []router.InFlight{
		{ID: 1, Running: true, KV: 300}, {ID: 3, Running: true, KV: 200}, {ID: 2, Running: true, KV: 200},
		{ID: 4, KV: 10}, {ID: 5, Worker: 1, Running: true, KV: 100},
	}
	moved := func(want int64) {
		t.Helper()
		plan := p.Begin(s).Now()
		switch {
		case want == 0 && plan != nil:
			t.Errorf("plan %+v, expected none", plan)
		case want > 0 && (plan == nil || !slices.Equal(plan.Move, []router.Move{{ID: want, From: 0, To: 1}})):
			t.Errorf("plan %+v, expected request %d to go from worker 0 to 1", plan, want)
		}
	}
	s.Now = 100
	moved(2) // of equals the first; request 4 does not run, 5 is elsewhere
	moved(3)
	moved(0) // with request 1 both would have 500/3
	s.Now = 109.9
	moved(0)
	s.Now = 110
	moved(2)
	if got := p.Route(router.Request{}, s.View).Worker; got != 1 {
		t.Errorf("a new request goes to worker %d, expected 1", got)
	}
}

// Of equals Llumnix takes the first worker for a new request, and moves the
// smallest request whatever its place in the list.
func TestLlumnixTies(t *testing.T) {
	env := routertest.HandEnv(2, 1)
	p := routertest.New(t, "llumnix", env).Policy.(*llumnix)
	if got := p.Route(router.Request{}, routertest.View(env)).Worker; got != 0 {
		t.Errorf("worker %d, expected 0", got)
	}
	s := &router.PlannerInput{View: routertest.View(env), Requests: []router.InFlight{{ID: 9, Running: true, KV: 10},
		{ID: 3, Running: true, KV: 20}, {ID: 4, Running: true, KV: 10}}}
	if a := p.smallest(s, 0); a.ID != 4 {
		t.Errorf("request %d is the smallest, expected 4", a.ID)
	}
}
