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
	// Done reports the end of a request. The record is valid only during the call.
	Done func(r *record.Request)
	// Watch reports the state of the workers in a period in which only KV caches grew. The view is valid only during
	// the call. The periods leave no gap.
	Watch func(from, to tick.Ticks, v *router.View)
	// Tier reports that an adapter moved to another memory tier of a worker. The view of the first Watch includes all
	// changes before it.
	Tier func(at tick.Ticks, worker int, adapter int32, t router.Tier)
	// Plan reports the outcome of a plan. The record is complete, and the simulator does not reuse it.
	Plan func(p *PlanRecord)
	// Power reports that a worker changes its state. There is no call for workers that are on at time 0.
	Power func(at tick.Ticks, worker int, p Power)
	// Outage reports that an outage of a worker begins, or that its last outage has ended, whatever its power state.
	Outage func(at tick.Ticks, worker int, down bool)
	// Place reports that a request is now at another place.
	Place func(at tick.Ticks, p Position)
	// Load reports that an adapter load is booked. The load ends at l.To unless the worker loses its memory before.
	Load func(at tick.Ticks, l Load)
}

// Place is where a request is.
type Place uint8

// The places of a request that was sent.
const (
	Queued  Place = iota // in a worker's front end or queue
	Running              // in a prefill step, between two of them, or in the batch
	Moving               // between two workers, with its KV cache
	Held                 // waiting for a worker to be on
	Gone                 // ended on the worker; the client may see the end a little later
)

// Position is a request and its place. Worker is the worker that the request is on; for Moving, the one it leaves; for
// Held, -1; for Gone, its last worker, or -1 if the request was never sent to one.
type Position struct {
	ID      int64
	Adapter int32 // trace.BaseModel: base model
	Place   Place
	Worker  int32 // -1: none
	To      int32 // destination of a Moving request
}

// Load is a booked load of an adapter.
type Load struct {
	Worker   int
	Adapter  int32
	Slot     bool // into a GPU slot; false: into host memory
	From, To tick.Ticks
}

// hookList holds the hooks of a run by kind, so that events without a hook cost nothing.
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

// placed is the engine's hook for a request's place.
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

// loadBooked is the engine's hook for a booked load.
func (w *worker) loadBooked(adapter int32, slot bool, from, to tick.Ticks) {
	l := Load{Worker: w.id, Adapter: adapter, Slot: slot, From: from, To: to}
	for _, tell := range w.s.hooks.load {
		tell(w.s.loop.Now(), l)
	}
}

// watch calls the Watch hooks for the time from now to the next event.
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

// Waiting measures the load of the workers in a run. Its method Watch is a hook.
type Waiting struct{ queued, running float64 }

// Watch adds a period to the sums of requests x s; see [Hooks].
func (w *Waiting) Watch(from, to tick.Ticks, v *router.View) {
	for i := range v.Workers {
		w.queued += float64(v.Workers[i].Queued) * (to - from).Seconds()
		w.running += float64(v.Workers[i].Running) * (to - from).Seconds()
	}
}

// Share returns the share of requests' time at workers that they spend waiting, 0 to 1, as a mean over the run. It is
// near 0 while the workers keep up, and near 1 if a queue only grows.
func (w *Waiting) Share() float64 { return w.queued / max(w.queued+w.running, 1e-9) }
