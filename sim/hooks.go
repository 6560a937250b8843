package sim

import (
	"lorasim/router"
	"lorasim/sim/record"
	"lorasim/sim/tick"
)

// Hooks observe a run beside Config.Observer, as net/http/httptrace.ClientTrace observes a request.
// A nil function is not called.
type Hooks struct {
	// Done tells the end of a request. The record is only valid during the call.
	Done func(r *record.Request)
	// Watch tells how the workers were from one instant to another, between which nothing changed but KV
	// caches growing. The view is only valid during the call; the calls leave no gap.
	Watch func(from, to tick.Ticks, v *router.View)
	// Tier tells that an adapter is now found in another tier of a worker. What changes before the first
	// Watch is in the view of that Watch.
	Tier func(at tick.Ticks, worker int, adapter int32, t router.Tier)
	// Plan tells what became of a plan. The record is complete and not used further.
	Plan func(p *PlanRecord)
	// Power tells that a worker joins or leaves. Those that are on at time 0 are not told.
	Power func(at tick.Ticks, worker int, p Power)
}

// hookList is the hooks of a run by kind: what nobody observes costs nothing.
type hookList struct {
	done  []func(*record.Request)
	watch []func(from, to tick.Ticks, v *router.View)
	tier  []func(at tick.Ticks, worker int, adapter int32, t router.Tier)
	plan  []func(*PlanRecord)
	power []func(at tick.Ticks, worker int, p Power)
}

func newHookList(hooks []Hooks) (l hookList) {
	for _, h := range hooks {
		if h.Done != nil {
			l.done = append(l.done, h.Done)
		}
		if h.Watch != nil {
			l.watch = append(l.watch, h.Watch)
		}
		if h.Tier != nil {
			l.tier = append(l.tier, h.Tier)
		}
		if h.Plan != nil {
			l.plan = append(l.plan, h.Plan)
		}
		if h.Power != nil {
			l.power = append(l.power, h.Power)
		}
	}
	return l
}

// tierChanged calls the hooks that observe tiers.
func (s *sim) tierChanged(worker int, adapter int32, t router.Tier) {
	for _, tell := range s.hooks.tier {
		tell(s.loop.Now(), worker, adapter, t)
	}
}

// watch tells the time from now to the next event.
func (s *sim) watch(until tick.Ticks) {
	if until > s.loop.Now() && len(s.hooks.watch) > 0 {
		for i := range s.workers {
			s.view.Workers[i].Full = s.workers[i].engine.Gate.Full()
			s.view.Workers[i].Entering = s.workers[i].engine.FrontEnd.Len()
		}
		for _, tell := range s.hooks.watch {
			tell(s.loop.Now(), until, &s.view)
		}
	}
}

// Waiting measures, by its Watch, how loaded the workers of a run were.
type Waiting struct{ queued, running float64 } // requests x s

// Watch is a hook.
func (w *Waiting) Watch(from, to tick.Ticks, v *router.View) {
	for i := range v.Workers {
		w.queued += float64(v.Workers[i].Queued) * (to - from).Seconds()
		w.running += float64(v.Workers[i].Running) * (to - from).Seconds()
	}
}

// Share is the share of their time at workers that requests wait, in the mean over the run: next to nothing
// as long as the workers keep up, next to all where a queue only grows.
func (w *Waiting) Share() float64 { return w.queued / max(w.queued+w.running, 1e-9) }
