package builtin

import (
	"testing"

	"lorasim/router"
	"lorasim/router/routertest"
)

// Two clusters that differ in nothing but the budgets of their requests: as long as
// these are not below what is expected, nobody decides otherwise.
func TestBudgetIsNotTheOutput(t *testing.T) {
	for _, spec := range specs() {
		env := routertest.Env(3, 4)
		a, b := routertest.New(t, spec, env), routertest.New(t, spec, env)
		v := routertest.View(env)
		s, u := &router.PlannerInput{View: v}, &router.PlannerInput{View: v}
		for i := range int64(60) {
			k := int32(i % 4)
			w := a.Policy.Route(router.Request{ID: i, Adapter: k, Prompt: 200, MaxNew: 300, Expected: 150}, v).Worker
			q := router.Request{ID: i, Adapter: k, Prompt: 200, MaxNew: 4096, Expected: 150}
			if x := b.Policy.Route(q, v).Worker; x != w {
				t.Fatalf("%s: request %d goes to worker %d with a budget of 300, to %d with 4096", spec, i, w, x)
			}
			v.Workers[w].Queued++
			v.Workers[w].QueuedToks += 200
			v.Workers[w].Tokens += 350
			v.Workers[w].Count(k, 0, 1)
			r := router.InFlight{ID: i, Adapter: k, Worker: int32(w), Prompt: 200, MaxNew: 300, Expected: 150}
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
