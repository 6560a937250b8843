package planroute

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"lorasim/router"
	"lorasim/router/routertest"
)

// A part that is switched off never acts, and plans are made only where a part needs
// them.
func TestPartsOfPeriodMig(t *testing.T) {
	var acted [3]bool
	rapid.Check(t, func(t *rapid.T) {
		move := rapid.SampledFrom([]string{"all", "waiting", "running", "none"}).Draw(t, "move")
		place := rapid.SampledFrom([]string{"on", "off"}).Draw(t, "place")
		env := routertest.Env(3, 6)
		env.Moving = rapid.SampledFrom([]router.Moving{router.MoveNone, router.MoveQueued,
			router.MoveRecompute}).Draw(t, "moving")
		for j := range env.Workers {
			env.Workers[j].HostSlots = rapid.SampledFrom([]int{0, 3}).Draw(t, "host")
		}
		p := routertest.New(t, "period_mig:busy=0,margin=0,look=1,interval=5,move="+move+",place="+place,
			env).Policy.(*planAndRoute)
		s := &router.PlannerInput{View: routertest.View(env)}
		for j := range s.Workers {
			for k := range s.Workers[j].Adapters {
				s.Workers[j].Adapters[k].Tier = rapid.SampledFrom([]router.Tier{router.Disk, router.Host,
					router.GPU}).Draw(t, "tier")
			}
		}
		for i := range int64(rapid.IntRange(0, 40).Draw(t, "requests")) {
			a := router.InFlight{ID: i, Adapter: rapid.Int32Range(0, 5).Draw(t, "adapter"),
				Worker:  rapid.Int32Range(0, 2).Draw(t, "worker") * int32(i%2),
				Running: rapid.Bool().Draw(t, "running"), Prompt: 300, MaxNew: 400, Expected: 200}
			p.Count(router.Request{Adapter: a.Adapter, Prompt: a.Prompt, Expected: a.Expected})
			w := &s.Workers[a.Worker]
			if a.Running {
				w.Running++
				w.Count(a.Adapter, 1, 0)
				w.KVUsed += 300
			} else {
				w.Queued++
				w.QueuedToks += 300
				w.Count(a.Adapter, 0, 1)
			}
			s.Requests = append(s.Requests, a)
		}
		for s.Now = 1; s.Now < 12; s.Now++ {
			plan := p.Begin(s).Now()
			if plan == nil {
				continue
			}
			var did [3]bool // waiting requests moved, running ones, placements
			for _, m := range plan.Move {
				i := slices.IndexFunc(s.Requests, func(a router.InFlight) bool { return a.ID == m.ID })
				if s.Requests[i].Running {
					did[1] = true
				} else {
					did[0] = true
				}
			}
			did[2] = len(plan.Load)+len(plan.Unload) > 0
			may := [3]bool{move == "all" || move == "waiting", move == "all" || move == "running", place == "on"}
			may[0] = may[0] && env.Moving != router.MoveNone
			may[1] = may[1] && env.Moving == router.MoveRecompute
			for i, it := range did {
				if it && !may[i] {
					t.Fatalf("move=%s, place=%s, %s: the plan at %v s is %+v", move, place, env.Moving, s.Now, plan)
				}
			}
			if plan.Objective > 0 && place == "off" && (move == "none" || move == "waiting") {
				t.Fatalf("move=%s, place=%s: a plan with a problem to solve at %v s: %+v", move, place, s.Now, plan)
			}
			for i := range did {
				acted[i] = acted[i] || did[i]
			}
			p.Applied(plan, nil)
		}
	})
	if acted != [3]bool{true, true, true} {
		t.Errorf("in all cases: waiting requests moved, running ones, adapters placed: %v", acted)
	}
}
