package sim

import (
	"lorasim/router"
	"lorasim/sim/engine"
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
	// Power tells that a worker joins or leaves. There is no call for workers that are on at time 0.
	Power func(at tick.Ticks, worker int, p Power)
	// Outage tells that a worker is down for an outage, or that its last outage is over, whatever its power.
	Outage func(at tick.Ticks, worker int, down bool)
	// Place tells where a request is from now on.
	Place func(at tick.Ticks, p Position)
	// Load tells that a load of an adapter is booked. It ends at l.To unless its worker loses its memory before.
	Load func(at tick.Ticks, l Load)
}

// Place is where a request is.
type Place uint8

// The places of a request that was sent.
const (
	Queued  Place = iota // in a worker's front end or queue
	Running              // in a prefill step, between two of them, or in the batch
	Moving               // between two workers, with its KV cache
	Held                 // no worker is on
	Gone                 // it has ended on the worker; its client may see the end a little later
)

// Position is a request and its place.
type Position struct {
	ID      int64
	Adapter int32 // trace.BaseModel: none
	Place   Place
	Worker  int32 // Moving: that it leaves; Held: none, -1; Gone: its latest, -1: it was never sent to one
	To      int32 // Moving: the worker that it goes to
}

// Load is a load of an adapter.
type Load struct {
	Worker   int
	Adapter  int32
	Slot     bool // into a GPU slot; else to host memory
	From, To tick.Ticks
}

// hookList is the hooks of a run by kind: what nobody observes costs nothing.
type hookList struct {
	done  []func(*record.Request)
	watch []func(from, to tick.Ticks, v *router.View)
	tier  []func(at tick.Ticks, worker int, adapter int32, t router.Tier)
	plan  []func(*PlanRecord)
	power []func(at tick.Ticks, worker int, p Power)

	outage []func(at tick.Ticks, worker int, down bool)
	place  []func(at tick.Ticks, p Position)
	load   []func(at tick.Ticks, l Load)
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
		if h.Outage != nil {
			l.outage = append(l.outage, h.Outage)
		}
		if h.Place != nil {
			l.place = append(l.place, h.Place)
		}
		if h.Load != nil {
			l.load = append(l.load, h.Load)
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

// placed calls the hooks that observe places.
func (s *sim) placed(r *request, p Place, worker, to int32) {
	if len(s.hooks.place) == 0 {
		return
	}
	pos := Position{ID: r.ID, Adapter: s.adapterOf(r), Place: p, Worker: worker, To: to}
	for _, tell := range s.hooks.place {
		tell(s.loop.Now(), pos)
	}
}

// placed is told by the engine.
func (w *worker) placed(r *engine.Request) {
	p := Queued
	if r.State() == engine.Filling {
		p = Running
	}
	w.s.placed(w.s.request(r), p, int32(w.id), 0)
}

// outageChanged calls the hooks that observe outages.
func (w *worker) outageChanged(down bool) {
	for _, tell := range w.s.hooks.outage {
		tell(w.s.loop.Now(), w.id, down)
	}
}

// loadBooked is told by the engine.
func (w *worker) loadBooked(adapter int32, slot bool, from, to tick.Ticks) {
	l := Load{Worker: w.id, Adapter: adapter, Slot: slot, From: from, To: to}
	for _, tell := range w.s.hooks.load {
		tell(w.s.loop.Now(), l)
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
