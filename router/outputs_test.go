package router

import "testing"

func TestOutputs(t *testing.T) {
	o := NewOutputs(2)
	expect := func(what string, adapter, budget, want int32) {
		t.Helper()
		if got := o.Expect(adapter, budget); got != want {
			t.Errorf("%s: adapter %d, budget %d: %d tokens expected, want %d", what, adapter, budget, got, want)
		}
	}
	expect("nothing seen", 0, 2048, guessOutput)
	expect("nothing seen", 0, 0, guessOutput)
	expect("nothing seen, budget below the guess", 0, 50, 50)
	o.Ended(0, 100)
	o.Ended(0, 200)
	expect("its own mean", 0, 2048, 150)
	expect("its own mean, other budget", 0, 512, 150)
	expect("the mean of others", 1, 2048, 150)
	o.Ended(-1, 600)
	expect("its own mean still", 0, 2048, 150)
	expect("the mean of all", 1, 2048, 300)
	expect("the base model", -1, 2048, 300)
	expect("budget", 1, 299, 299)
	o.Ended(1, 0)
	expect("at least one token", 1, 2048, 1)
}

func TestOutputLeft(t *testing.T) {
	for _, c := range []struct {
		a    InFlight
		want float64
	}{
		{InFlight{Expected: 100, MaxNew: 500}, 100},
		{InFlight{Expected: 100, MaxNew: 500, Generated: 30}, 70},
		{InFlight{Expected: 100, MaxNew: 500, Generated: 90}, 25},
		{InFlight{Expected: 100, MaxNew: 500, Generated: 300}, 25},
		{InFlight{Expected: 100, MaxNew: 500, Generated: 490}, 10},
		{InFlight{Expected: 100, MaxNew: 500, Generated: 500}, 1},
		{InFlight{MaxNew: 500}, guessOutput},
		{InFlight{MaxNew: 50}, 50},
	} {
		if got := c.a.left(); got != c.want {
			t.Errorf("%+v: %v tokens left, want %v", c.a, got, c.want)
		}
	}
}

// Two clusters that differ in nothing but the budgets of their requests: as long as
// these are not below what is expected, nobody decides otherwise.
func TestBudgetIsNotTheOutput(t *testing.T) {
	for _, spec := range specs() {
		env := testEnv(3, 4)
		a, b := mustNew(t, spec, env), mustNew(t, spec, env)
		v := testView(env)
		s, u := &PlannerInput{View: v}, &PlannerInput{View: v}
		for i := range int64(60) {
			k := int32(i % 4)
			w := a.Policy.Route(Request{ID: i, Adapter: k, Prompt: 200, MaxNew: 300, Expected: 150}, v).Worker
			q := Request{ID: i, Adapter: k, Prompt: 200, MaxNew: 4096, Expected: 150}
			if x := b.Policy.Route(q, v).Worker; x != w {
				t.Fatalf("%s: request %d goes to worker %d with a budget of 300, to %d with 4096", spec, i, w, x)
			}
			v.Workers[w].Queued++
			v.Workers[w].QueuedToks += 200
			v.Workers[w].Tokens += 350
			v.Workers[w].Count(k, 0, 1)
			r := InFlight{ID: i, Adapter: k, Worker: int32(w), Prompt: 200, MaxNew: 300, Expected: 150}
			s.Requests = append(s.Requests, r)
			r.MaxNew = 4096
			u.Requests = append(u.Requests, r)
		}
		if a.Planner == nil {
			continue
		}
		v.Now = 10
		p, q := a.Planner.Begin(s).Now(), b.Planner.Begin(u).Now()
		if (p == nil) != (q == nil) || p != nil && (p.Objective != q.Objective || p.Stay != q.Stay ||
			len(p.Move) != len(q.Move)) {
			t.Errorf("%s: plans %+v and %+v", spec, p, q)
		}
	}
}
