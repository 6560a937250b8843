package router

import "slices"

// placer is what planners that keep a placement of their own share: where each
// adapter is placed, and the demand for it.
type placer struct {
	Base
	env      Env
	interval float64   // time between plans, s
	held     [][]int32 // by worker: adapters placed there, ascending
	placed   []bool    // the same: placed[adapter*workers+worker]
	where    [][]int32 // the same by adapter, ascending
	next     [][]int32 // placement that the plan under way leads to
	demand   []demand  // by adapter
	planAt   float64   // of the latest forecast
	planned  bool      // there was a forecast
}

// demand is what is known of an adapter's requests.
type demand struct {
	arrived float64 // since the latest plan
	rate    float64 // requests/s, moving average over plans
	output  mean    // tokens, as expected
	prompt  mean    // tokens
}

// mean is a moving average that begins as an ordinary one.
type mean struct{ value, n float64 }

func (m *mean) add(x float64) { m.addUpTo(x, 50) }

// addUpTo adds to an average over so many values at most.
func (m *mean) addUpTo(x, most float64) {
	m.n = min(m.n+1, most)
	m.value += (x - m.value) / m.n
}

func (m *mean) or(def float64) float64 {
	if m.n == 0 {
		return def
	}
	return m.value
}

// intervalOption is the time between plans.
type intervalOption struct {
	Interval float64 `default:"10" check:">=0.001" env:"interval" help:"time between plans, s"`
}

// newPlacer deals the adapters out to the workers in turn.
func newPlacer(o intervalOption, env Env) placer {
	p := placer{
		env: env, demand: make([]demand, len(env.Adapters)),
		interval: o.Interval,
	}
	held := make([][]int32, len(env.Workers))
	for k := range env.Adapters {
		held[k%len(env.Workers)] = append(held[k%len(env.Workers)], int32(k))
	}
	p.setPlacement(held)
	return p
}

// router wraps a policy that is its own planner.
func (p *placer) router(policy interface {
	Policy
	Planner
}) *Router {
	rt := &Router{Policy: policy, Planner: policy}
	if p.env.hostLimited() { // else there is room for every adapter everywhere
		rt.Placement = clonePlacement(p.held)
	}
	return rt
}

func (p *placer) setPlacement(held [][]int32) {
	p.held, p.where = held, transposed(held, len(p.env.Adapters))
	p.placed = make([]bool, len(p.env.Adapters)*len(p.env.Workers))
	for j := range held {
		for _, k := range held[j] {
			p.placed[int(k)*len(p.env.Workers)+j] = true
		}
	}
}

// transposed turns lists by worker of adapters, of which there are n, into lists
// by adapter of workers, or the reverse.
func transposed(lists [][]int32, n int) [][]int32 {
	out := make([][]int32, n)
	for i, list := range lists {
		for _, j := range list {
			out[j] = append(out[j], int32(i))
		}
	}
	return out
}

// note counts a request for the forecast.
func (p *placer) note(r Request) {
	if isAdapter(r.Adapter) {
		d := &p.demand[r.Adapter]
		d.arrived++
		d.prompt.add(float64(r.Prompt))
		d.output.add(r.output())
	}
}

// holds says whether a request's adapter is placed on a worker; the base model is
// everywhere.
func (p *placer) holds(r Request, j int) bool {
	return !isAdapter(r.Adapter) || p.placed[int(r.Adapter)*len(p.env.Workers)+j]
}

// Route implements Policy.
func (p *placer) Route(r Request, v *View) Decision { return To(p.pick(r, v)) }

// Preview implements Policy.
func (p *placer) Preview(r Request, v *View) int { return p.leastLoadedHolder(r, v) }

// Succeed implements Policy.
func (p *placer) Succeed(s Succession) { p.adopt(s.History, s.View) }

// pick counts a request towards the demand; it goes to the least loaded holder.
func (p *placer) pick(r Request, v *View) int {
	p.note(r)
	return p.leastLoadedHolder(r, v)
}

// leastLoadedHolder is the usable worker with the fewest requests among those
// where the adapter is placed, else among all.
func (p *placer) leastLoadedHolder(r Request, v *View) int {
	if isAdapter(r.Adapter) {
		if w := v.leastLoaded(p.where[r.Adapter], nil); w != None {
			return w
		}
	}
	return v.LeastLoaded()
}

// rateWeight is the weight of the latest interval in the forecast.
const rateWeight = 0.5

// forecast updates the demand of each adapter by what arrived since the latest
// plan.
func (p *placer) forecast(now float64) {
	dt := now - p.planAt
	if dt <= 0 {
		return
	}
	for k := range p.demand {
		d := &p.demand[k]
		if rate := d.arrived / dt; !p.planned {
			d.rate = rate
		} else {
			d.rate += rateWeight * (rate - d.rate)
		}
		d.arrived = 0
	}
	p.planAt, p.planned = now, true
}

// aim sets the placement that a plan leads to and returns the loads and unloads
// that takes. Where a worker's host memory has room for every adapter nothing is
// unloaded: what is not used is evicted from its slot anyway.
func (p *placer) aim(to [][]int32) (load, unload []Placement) {
	p.next = to
	load, unload = difference(p.held, to)
	return load, slices.DeleteFunc(unload, func(l Placement) bool { return p.env.Workers[l.Worker].HostSlots == 0 })
}

// towards is a plan that leads to a target, for a reason; there is another where it
// changes nothing.
func (p *placer) towards(target func() [][]int32, reason, asIs string) *Pending {
	var to [][]int32
	return &Pending{func() { to = target() }, func() *Plan {
		plan := &Plan{Reason: reason}
		if plan.Load, plan.Unload = p.aim(to); plan.Empty() {
			plan.Reason = asIs
		}
		return plan
	}}
}

// Interval implements Planner.
func (p *placer) Interval() float64 { return p.interval }

// Select implements Planner: the plan follows from the demand alone.
func (p *placer) Select(*View) Selection {
	return Selection{Worker: func(int) bool { return false }}
}

func (p *placer) Applied(_ *Plan, err error) {
	if err == nil && p.next != nil {
		p.setPlacement(p.next)
	}
	p.next = nil
}

func sorted(ks []int32) []int32 {
	slices.Sort(ks)
	return slices.Compact(ks)
}
