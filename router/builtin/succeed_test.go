package builtin

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"lorasim/router"
	"lorasim/router/routertest"
	"lorasim/trace"
)

// changing is a cluster: workers join, leave, go down and come back while a router routes, and plans if it can. Its
// slots are as those of a fleet.
type changing struct {
	t        *rapid.T
	spec     string
	env      router.Env
	rt       *router.Router
	v        *router.View
	history  *router.History
	gone     []bool // by slot
	down     []bool
	inFlight []router.InFlight
	next     int64
}

func (c *changing) begin() {
	c.env = routertest.Env(rapid.IntRange(1, 3).Draw(c.t, "workers"), rapid.IntRange(1, 5).Draw(c.t, "adapters"))
	for j := range c.env.Workers {
		c.env.Workers[j].KVBytes, c.env.Workers[j].PageSize = 1e5, 16
	}
	c.env.Moving = router.MoveRecompute
	c.rt, c.v, c.history = routertest.New(c.t, c.spec, c.env), routertest.View(c.env), router.NewHistory(64)
	c.gone, c.down = make([]bool, len(c.env.Workers)), make([]bool, len(c.env.Workers))
}

// join lets a worker join: in a slot without one, else in a new slot.
func (c *changing) join() {
	slot := slices.Index(c.gone, true)
	if slot < 0 {
		slot = len(c.gone)
		c.gone, c.down = append(c.gone, false), append(c.down, false)
		c.env.Workers = append(c.env.Workers, c.env.Workers[0])
		c.v.Workers = append(c.v.Workers, router.Worker{})
	}
	c.gone[slot], c.down[slot] = false, false
	c.v.Workers[slot] = routertest.View(c.env).Workers[slot]
	c.succeed(slot)
}

// adapt makes the router anew for one more adapter.
func (c *changing) adapt() {
	c.env.Adapters = append(slices.Clip(c.env.Adapters), trace.Adapter{Name: fmt.Sprint("late", c.next), Rank: 16})
	for j := range c.v.Workers {
		c.v.Workers[j].Adapters = append(c.v.Workers[j].Adapters, router.AdapterState{Tier: router.Disk})
	}
	c.v.Adapters = c.env.Adapters
	c.succeed(-1)
}

func (c *changing) succeed(joined int) {
	next := routertest.New(c.t, c.spec, c.env)
	next.Succeed(c.rt, c.history, c.v, joined)
	c.rt = next
}

// lose takes a worker's requests away: it is down, or has left.
func (c *changing) lose(slot int) {
	w := &c.v.Workers[slot]
	*w = router.Worker{MaxRunning: w.MaxRunning, KVCapacity: w.KVCapacity, Slots: w.Slots,
		Adapters: slices.Repeat([]router.AdapterState{{Tier: router.Disk}}, len(c.env.Adapters))}
	c.inFlight = slices.DeleteFunc(c.inFlight, func(a router.InFlight) bool { return int(a.Worker) == slot })
}

// route sends a request to a worker that may take it.
func (c *changing) route() {
	adapter := int32(rapid.IntRange(-1, len(c.env.Adapters)-1).Draw(c.t, "adapter"))
	r := router.Request{ID: c.next, Adapter: adapter, Prompt: 100, MaxNew: 200, Text: &trace.Text{ID: 1}, Known: 64}
	c.next++
	usable := slices.ContainsFunc(c.v.Workers, func(w router.Worker) bool { return w.Usable() })
	w := c.rt.Policy.Route(r, c.v).Worker
	if w == router.None {
		if usable {
			c.t.Fatal("no worker, though one is usable")
		}
		return
	}
	if w < 0 || w >= len(c.v.Workers) || !c.v.Workers[w].Usable() {
		c.t.Fatalf("routed to slot %d of %d, which is not usable", w, len(c.v.Workers))
	}
	c.history.Sent(r, w, c.v.Now)
	c.count(router.InFlight{ID: r.ID, Adapter: r.Adapter, Worker: int32(w), Prompt: r.Prompt, MaxNew: r.MaxNew}, 1)
}

func (c *changing) count(a router.InFlight, d int) {
	w := &c.v.Workers[a.Worker]
	w.Queued += d
	w.QueuedToks += int64(d) * int64(a.Prompt)
	if a.Adapter != trace.BaseModel {
		w.Count(a.Adapter, 0, int32(d))
	}
	if d > 0 {
		c.inFlight = append(c.inFlight, a)
	}
}

// finish ends the oldest request.
func (c *changing) finish() {
	if len(c.inFlight) == 0 {
		return
	}
	a := c.inFlight[0]
	c.inFlight = c.inFlight[1:]
	c.count(a, -1)
	end := router.Event{Kind: router.Finished, ID: a.ID, Adapter: a.Adapter, Worker: a.Worker, Output: 50, Exec: 1,
		E2E:  1.5,
		TTFT: 0.5, Now: c.v.Now}
	c.history.Finished(end)
	if err := c.rt.Note(end); err != nil {
		c.t.Fatal(err)
	}
}

// plan asks for a plan, which names only workers that take requests.
func (c *changing) plan() {
	if c.rt.Planner == nil {
		return
	}
	s := &router.PlannerInput{View: c.v}
	for j := range c.v.Workers {
		for _, a := range c.inFlight {
			if int(a.Worker) == j {
				s.Requests = append(s.Requests, a)
			}
		}
	}
	c.rt.Planner.Select(c.v)
	pending := c.rt.Planner.Begin(s)
	if pending == nil {
		return
	}
	by := c.rt
	pending.Solve()
	if rapid.Bool().Draw(c.t, "a worker joins while it solves") {
		c.join()
	}
	if by != c.rt { // a plan for other workers is dropped
		return
	}
	plan := pending.Plan()
	if plan == nil {
		return
	}
	if err := plan.Check(c.v); err != nil {
		c.t.Fatalf("%v: %+v", err, plan)
	}
	for _, l := range plan.Load {
		c.v.Workers[l.Worker].Adapters[l.Adapter].Tier = router.Host
	}
	c.rt.Planner.Applied(plan, nil)
}

// Every policy, and every planner, copes with workers that join, leave, go down and come back, and with adapters that
// are added: requests go to workers that are there, whatever was in flight, and plans name nobody else.
func TestPoliciesWithChangingMembers(t *testing.T) {
	for _, spec := range slices.Concat(specs(), []string{"plan-and-route:busy=0,margin=0",
		"dlora_period_mig:threshold=1"}) {
		t.Run(spec, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				c := &changing{t: t, spec: spec}
				c.begin()
				pick := func(what string) int { return rapid.IntRange(0, len(c.gone)-1).Draw(t, what) }
				for range rapid.IntRange(5, 40).Draw(t, "steps") {
					c.v.Now += rapid.SampledFrom([]float64{0.01, 0.3, 30}).Draw(t, "pause")
					switch rapid.IntRange(0, 9).Draw(t, "step") {
					case 0:
						c.join()
					case 1:
						if j := pick("leaves"); !c.gone[j] {
							c.lose(j)
							c.gone[j] = true
						}
					case 2:
						if j := pick("goes down"); !c.gone[j] && !c.down[j] {
							c.lose(j)
							c.down[j] = true
						}
					case 3:
						if j := pick("comes back"); !c.gone[j] && c.down[j] {
							c.v.Workers[j].Up, c.down[j] = true, false
						}
					case 4:
						c.adapt()
					case 5:
						c.plan()
					case 6:
						c.finish()
					default:
						c.route()
					}
				}
			})
		})
	}
}
