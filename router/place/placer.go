// Package place has what planners share: the placement of adapters on workers with a forecast of the demand ([Placer]),
// and the migration problem of requests in flight ([Grouping], [Solve]).
//
// A placement lists the adapters of each worker. A policy that keeps one embeds [Placer] and implements Begin of
// [router.Planner]; see policies/rank_group.go.
package place

import (
	"cmp"
	"math"
	"slices"

	"lorasim/router"
	"lorasim/router/average"
	"lorasim/router/choose"
	"lorasim/trace"
)

// Placer keeps a placement, and the demand for each adapter. It routes a request to the least loaded worker on which
// the request's adapter is placed. It is a [router.Planner] but for Begin.
type Placer struct {
	router.Base
	env       router.Env
	interval  float64   // time between plans, s
	held      [][]int32 // by worker: adapters placed there, ascending
	where     [][]int32 // the same by adapter, ascending
	next      [][]int32 // placement that the plan under way leads to
	demand    []Demand  // by adapter
	asked     []int32   // adapters with demand as of the latest forecast, ascending
	fresh     []int32   // those that have come since
	plannedAt float64   // of the latest forecast
	planned   bool      // there was a forecast
}

// Demand is what is known of an adapter's requests.
type Demand struct {
	Arrived float64      // since the latest plan
	Rate    float64      // requests/s, moving average over plans
	Output  average.Mean // tokens, as expected
	Prompt  average.Mean // tokens
}

// New returns a Placer that plans every interval, s. It deals the adapters out to the workers in turn.
func New(interval float64, env router.Env) Placer {
	p := Placer{
		env: env, demand: make([]Demand, len(env.Adapters)),
		interval: interval,
	}
	held := make([][]int32, len(env.Workers))
	for k := range env.Adapters {
		held[k%len(env.Workers)] = append(held[k%len(env.Workers)], int32(k))
	}
	p.SetPlacement(held)
	return p
}

// Router returns the router of a policy that is its own planner.
func (p *Placer) Router(policy interface {
	router.Policy
	router.Planner
}) *router.Router {
	rt := &router.Router{Policy: policy, Planner: policy}
	if hostLimited(&p.env) { // else there is room for every adapter everywhere
		rt.Placement = p.filled()
	}
	return rt
}

// filled returns the placement with other adapters, in their order, where host memory has room: a server starts with as
// many adapters as it can hold.
func (p *Placer) filled() [][]int32 {
	full := Clone(p.held)
	for j := range full {
		room := cmp.Or(p.env.Workers[j].HostSlots, len(p.env.Adapters))
		for k := int32(0); int(k) < len(p.env.Adapters) && len(full[j]) < room; k++ {
			if !p.Holds(k, j) {
				full[j] = append(full[j], k)
			}
		}
	}
	return full
}

// hostLimited says whether some worker's host memory does not hold every adapter.
func hostLimited(e *router.Env) bool {
	return slices.ContainsFunc(e.Workers, func(s router.Spec) bool { return s.HostSlots > 0 })
}

// SetPlacement sets the placement: by worker, its adapters.
func (p *Placer) SetPlacement(held [][]int32) {
	p.held, p.where = held, Transpose(held, len(p.env.Adapters))
}

// Count counts a request for the forecast.
func (p *Placer) Count(r router.Request) {
	if r.Adapter != trace.BaseModel {
		d := &p.demand[r.Adapter]
		if d.Arrived == 0 && d.Rate == 0 {
			p.fresh = append(p.fresh, r.Adapter)
		}
		d.Arrived++
		d.Prompt.Add(float64(r.Prompt))
		d.Output.Add(r.ExpectedOutput())
	}
}

// Env returns what the placement is for.
func (p *Placer) Env() *router.Env { return &p.env }

// Held returns by worker the adapters placed there, ascending. The caller must not change it.
func (p *Placer) Held() [][]int32 { return p.held }

// Where returns the workers on which an adapter is placed, ascending. The caller must not change it.
func (p *Placer) Where(adapter int32) []int32 { return p.where[adapter] }

// Next returns the placement that the plan under way leads to, in the form of [Placer.Held]; nil: no plan is under way.
func (p *Placer) Next() [][]int32 { return p.next }

// Demand returns the demand by adapter.
func (p *Placer) Demand() []Demand { return p.demand }

// Asked returns the adapters with demand as of the latest forecast, ascending. The caller must not change it.
func (p *Placer) Asked() []int32 { return p.asked }

// PlannedAt returns the time of the latest forecast, s.
func (p *Placer) PlannedAt() float64 { return p.plannedAt }

// Holds reports whether an adapter is placed on a worker; the base model is everywhere.
func (p *Placer) Holds(adapter int32, worker int) bool {
	if adapter == trace.BaseModel {
		return true
	}
	_, placed := slices.BinarySearch(p.where[adapter], int32(worker))
	return placed
}

// Route implements Policy.
func (p *Placer) Route(r router.Request, v *router.View) router.Decision {
	return router.To(p.pick(r, v))
}

// Preview implements Policy.
func (p *Placer) Preview(r router.Request, v *router.View) int { return p.leastLoadedHolder(r, v) }

// Succeed implements Policy.
func (p *Placer) Succeed(s router.Succession) { p.Adopt(s.History, s.View) }

// pick counts a request towards the demand; it goes to the least loaded holder.
func (p *Placer) pick(r router.Request, v *router.View) int {
	p.Count(r)
	return p.leastLoadedHolder(r, v)
}

// leastLoadedHolder is the usable worker with the fewest requests among those
// where the adapter is placed, else among all.
func (p *Placer) leastLoadedHolder(r router.Request, v *router.View) int {
	if r.Adapter != trace.BaseModel {
		if w := choose.LeastLoaded(v, p.where[r.Adapter], nil); w != router.None {
			return w
		}
	}
	return v.LeastLoaded()
}

// rateWeight is the weight of the latest interval in the forecast.
const rateWeight = 0.5

// Forecast updates the demand for each adapter by what arrived since the latest forecast.
func (p *Placer) Forecast(now float64) {
	dt := now - p.plannedAt
	if dt <= 0 {
		return
	}
	p.asked = merge(p.asked, p.fresh)
	p.fresh = p.fresh[:0]
	for _, k := range p.asked {
		d := &p.demand[k]
		if d.Arrived == 0 && math.Float64bits(d.Rate) == 1 {
			continue // the least rate: half of it is rounded to itself
		}
		if rate := d.Arrived / dt; !p.planned {
			d.Rate = rate
		} else {
			d.Rate += rateWeight * (rate - d.Rate)
		}
		d.Arrived = 0
	}
	p.plannedAt, p.planned = now, true
}

// merge adds numbers to an ascending list that has none of them.
func merge(list, more []int32) []int32 {
	slices.Sort(more)
	i, j := len(list)-1, len(more)-1
	list = append(list, more...)
	for n := len(list) - 1; j >= 0; n-- {
		if i >= 0 && list[i] > more[j] {
			list[n] = list[i]
			i--
		} else {
			list[n] = more[j]
			j--
		}
	}
	return list
}

// Aim sets the placement that a plan leads to and returns the loads and unloads of that plan. A worker whose host
// memory has room for every adapter unloads nothing: adapters that are not used are evicted from their slots anyway.
func (p *Placer) Aim(to [][]int32) (load, unload []router.Placement) {
	p.next = to
	load, unload = Difference(p.held, to)
	return load,
		slices.DeleteFunc(unload, func(l router.Placement) bool { return p.env.Workers[l.Worker].HostSlots == 0 })
}

// Towards returns a plan that leads to a target placement. reason is the plan's reason if it changes something, asIs if
// it changes nothing.
func (p *Placer) Towards(target func() [][]int32, reason, asIs string) *router.Pending {
	var to [][]int32
	return &router.Pending{Solve: func() { to = target() }, Plan: func() *router.Plan {
		plan := &router.Plan{Reason: reason}
		if plan.Load, plan.Unload = p.Aim(to); plan.Empty() {
			plan.Reason = asIs
		}
		return plan
	}}
}

// Interval implements router.Planner.
func (p *Placer) Interval() float64 { return p.interval }

// Select implements router.Planner: the plan follows from the demand alone.
func (p *Placer) Select(*router.View) router.Selection {
	return router.Selection{Worker: func(int) bool { return false }}
}

// Applied implements router.Planner.
func (p *Placer) Applied(_ *router.Plan, err error) {
	if err == nil && p.next != nil {
		p.SetPlacement(p.next)
	}
	p.next = nil
}

// Adopt forecasts the demand by the requests of the latest interval; a plan is due at once.
func (p *Placer) Adopt(h *router.History, v *router.View) {
	p.plannedAt = v.Now - p.interval
	first := v.Now
	for s := range h.All() {
		first = min(first, s.Sent)
		if s.Adapter == trace.BaseModel {
			continue
		}
		d := &p.demand[s.Adapter]
		d.Prompt.Add(float64(s.Prompt))
		if s.Output > 0 {
			d.Output.Add(float64(s.Output))
		}
		if s.Sent > p.plannedAt {
			d.Arrived++
		}
	}
	p.plannedAt, p.planned = max(p.plannedAt, first-1e-3), true
	p.asked, p.fresh = p.asked[:0], p.fresh[:0]
	for k := range p.demand {
		d := &p.demand[k]
		if d.Rate = d.Arrived / max(v.Now-p.plannedAt, 1e-3); d.Arrived > 0 {
			p.asked = append(p.asked, int32(k))
		}
	}
}
