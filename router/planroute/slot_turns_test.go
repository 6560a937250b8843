package planroute

import (
	"fmt"
	"math"
	"testing"

	"lorasim/router"
	"lorasim/router/routertest"
	"lorasim/trace"
)

// The time until a slot is free is the mean first passage time of the Markov chain of the requests that run.
func TestEndRate(t *testing.T) {
	for _, c := range []struct {
		n    int
		load float64
	}{{1, 0}, {5, 0}, {1, 1}, {4, 0.5}, {8, 2}, {3, 3}, {32, 4}} {
		const states = 200
		m, want := 0.0, 0.0
		for i := states; i > 0; i-- {
			if m = (1 + c.load*m) / float64(i); i <= c.n {
				want += m
			}
		}
		routertest.Close(t, fmt.Sprintf("%d run, load %g", c.n, c.load), endRate(int32(c.n), c.load), 1/want)
	}
	routertest.Close(t, "a busy period", endRate(1, 0.75), 0.75/math.Expm1(0.75))
	if endRate(2, 9) != endRate(2, 2) || endRate(500, 1) != endRate(mostEnding, 1) {
		t.Error("the load and the number of requests are limited")
	}
}

// The rate of an adapter is that of its requests since the first request of all, and of the last minute or so later.
func TestArrivalRate(t *testing.T) {
	p := newAccounts(routertest.HandEnv(1, 2))
	for i := range 2000 {
		p.arrives(0, 100+float64(i)/4)
		if i%10 == 0 {
			p.arrives(1, 100+float64(i)/4)
			p.arrives(trace.BaseModel, 100)
		}
		if i == 40 {
			for k, want := range []float64{4, 0.4} {
				if got := p.rates[k].perSecond; math.Abs(got/want-1) > 0.25 {
					t.Errorf("adapter %d has a rate of %.3f/s after 10 s, expected about %v", k, got, want)
				}
			}
		}
	}
	for k, want := range []float64{4, 0.4} {
		if got := p.rates[k].perSecond; math.Abs(got/want-1) > 0.03 {
			t.Errorf("adapter %d has a rate of %.3f/s, expected about %v", k, got, want)
		}
	}
}

// An adapter whose requests wait on the worker with the longer queue for slots moves to the other one as a whole, and
// only if fewer adapters wait there.
func TestTurnsMoveTogether(t *testing.T) {
	for _, c := range []struct {
		name    string
		waiting [2]int // adapters that wait for a slot, by worker
		want    int    // adapters that move from the first worker
	}{{"long and short", [2]int{5, 1}, 2}, {"one more", [2]int{2, 1}, 0}, {"the same", [2]int{3, 3}, 0}} {
		env := routertest.Env(2, 16)
		for j := range env.Workers {
			env.Workers[j].Slots = 1
		}
		env.Moving = router.MoveQueued
		p := routertest.New(t, "plan-and-route:spill=0", env).Policy.(*planAndRoute)
		v := routertest.View(env)
		v.Now = 100
		s := &router.PlannerInput{View: v}
		add := func(j, k int, running bool) {
			w := &v.Workers[j]
			w.Slots, w.SlotsUsed = 1, 1
			if w.Adapters[k].Tier = router.Host; running {
				w.Count(int32(k), 1, 0)
				w.Running++
				return
			}
			for range 3 {
				w.Count(int32(k), 0, 1)
				w.Queued++
				w.QueuedToks += 100
				s.Requests = append(s.Requests, router.InFlight{ID: int64(len(s.Requests)), Adapter: int32(k),
					Worker: int32(j), Prompt: 100, MaxNew: 100, Expected: 50, Age: 50 - float64(len(s.Requests))})
			}
		}
		for j, n := range c.waiting {
			add(j, 8*j, true)
			for k := range n {
				add(j, 8*j+1+k, false)
			}
			for k := range env.Adapters {
				v.Workers[1-j].Adapters[k].Tier = max(v.Workers[1-j].Adapters[k].Tier, router.Host)
			}
		}
		moved := map[int32]int{}
		for _, m := range p.steal(s) {
			if m.From != 0 || m.To != 1 {
				t.Errorf("%s: a request moves from worker %d to %d", c.name, m.From, m.To)
			}
			moved[s.Requests[m.ID].Adapter]++
		}
		if len(moved) != c.want {
			t.Errorf("%s: requests of %d adapters move, expected %d", c.name, len(moved), c.want)
		}
		for k, n := range moved {
			if n != 3 {
				t.Errorf("%s: %d of 3 requests of adapter %d move", c.name, n, k)
			}
		}
	}
}

// Adapter 5 waits for a slot of worker 0, whose adapters keep their slots. Its requests move to worker 1 only after the
// time of some executions in which nobody got a slot, although as many adapters wait there and it has to fetch adapter
// 5.
func TestStalledSlots(t *testing.T) {
	const exec = 2.0
	for _, c := range []struct {
		name  string
		now   float64
		turn  float64 // s: when another adapter that waited got a slot; 0: none did
		ended bool    // the requests of adapter 5 are gone
		moves int
	}{
		{"just sent", 100 + exec, 0, false, 0},
		{"slots are stuck", 100 + (stalledTurns+1)*exec, 0, false, 2},
		{"a slot became free", 100 + (stalledTurns+1)*exec, 100 + 2*exec, false, 0},
		{"stuck since", 100 + (stalledTurns+3)*exec, 100 + 2*exec, false, 2},
		{"nobody waits", 100 + (stalledTurns+1)*exec, 0, true, 0},
	} {
		env := routertest.Env(2, 8)
		env.Moving = router.MoveQueued
		p := routertest.New(t, "plan-and-route:spill=0", env).Policy.(*planAndRoute)
		v := routertest.View(env)
		p.exec.Add(exec)
		for j := range v.Workers {
			w := &v.Workers[j]
			w.Slots, w.SlotsUsed = 1, 1
			w.Adapters[j].Tier = router.GPU
			w.Count(int32(j), 8, 0)
			w.Running = 8
			for _, k := range []int{6, 7} { // both in host memory of both, one waits on each
				w.Adapters[k].Tier = router.Host
			}
			w.Count(int32(6+j), 0, 1)
			w.Queued = 1
		}
		for range 400 { // the adapter in the slot of worker 0 has requests all the time
			v.Now += 0.25
			p.arrives(0, v.Now)
		}
		s, w := &router.PlannerInput{View: v}, &v.Workers[0]
		w.Adapters[5].Tier = router.Host
		for id := range int64(2) {
			p.sent(router.Request{ID: id, Adapter: 5, Prompt: 100, MaxNew: 100, Expected: 50}, 0, v, 100)
			if !c.ended {
				w.Count(5, 0, 1)
				w.Queued, w.QueuedToks = w.Queued+1, w.QueuedToks+100
				s.Requests = append(s.Requests, router.InFlight{ID: id, Adapter: 5, Prompt: 100, MaxNew: 100,
					Expected: 50, Age: c.now - v.Now})
			}
		}
		if c.turn > 0 {
			p.backlogs[0].waits = append(p.backlogs[0].waits, slotWait{6, v.Now})
			if err := p.Note(router.Event{Kind: router.FirstToken, Adapter: 6, Now: c.turn}); err != nil {
				t.Fatal(err)
			}
		}
		v.Now = c.now
		if got := len(p.steal(s)); got != c.moves {
			t.Errorf("%s: %d requests move, expected %d", c.name, got, c.moves)
		}
	}
}
