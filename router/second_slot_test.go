package router

import "testing"

// A request goes to another worker than the one that serves its adapter at once if slots are plenty, and stays where
// its adapter has a slot if they are scarce: a second slot would be one that other adapters wait for.
func TestSecondSlot(t *testing.T) {
	for _, c := range []struct {
		name             string
		adapters, slots  int
		replica          string
		elsewhere, moves bool
	}{
		{"slots are scarce", 16, 4, "2", true, false},
		{"no price", 16, 4, "0", true, true},
		{"more slots than adapters", 16, 64, "2", true, true},
		{"not in use elsewhere", 16, 4, "2", false, true},
	} {
		env := testEnv(2, c.adapters)
		for j := range env.Workers {
			env.Workers[j].Slots = c.slots
		}
		p := mustNew(t, "route-only:spill=0,replica="+c.replica, env).Policy.(*planAndRoute)
		v := testView(env)
		busy, free := &v.Workers[0], &v.Workers[1]
		for j := range v.Workers {
			w := &v.Workers[j]
			w.Slots, w.Adapters[5].Tier = c.slots, GPU
		}
		for k := range 3 { // both workers have three adapters in use, the first one more requests in all
			busy.Count(int32(k), 1, 0)
			free.Count(int32(k), 1, 0)
		}
		busy.Running, free.Running = 4, 3
		if c.elsewhere {
			busy.Count(5, 2, 0)
			busy.Running += 2
		}
		r := Request{ID: 1, Adapter: 5, Prompt: 100, MaxNew: 500, Expected: 200}
		if got := p.Route(r, v) == 1; got != c.moves {
			t.Errorf("%s: takes a second slot is %v", c.name, got)
		}
	}
}
