package replay

import (
	"slices"

	"lorasim/router"
	"lorasim/sim"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
)

// Limits bound the size of a recording.
type Limits struct {
	Requests int // maximum number of requests kept; beyond, every second one is dropped, repeatedly
	Plans    int // maximum number of plans kept; beyond, every second one is dropped, repeatedly
	Events   int // number of changes at which the recording ends
}

// DefaultLimits returns limits that keep a run of up to 100,000 requests complete.
func DefaultLimits() Limits { return Limits{Requests: 100_000, Plans: 10_000, Events: 3_000_000} }

// A Recorder records one run. Pass [Recorder.Watching] as Watch of scenario.RunOptions. The simulator calls the other
// exported methods, except [Recorder.Replay], as hooks.
type Recorder struct {
	limits  Limits
	replay  Replay
	seen    bool            // the first view
	powers  map[int]bool    // workers whose power changed before it
	open    map[int64]int32 // index of each kept request in flight, by ID
	sent    int64           // requests so far
	changed int64           // plans so far that change something
	full    bool
}

// NewRecorder returns a recorder with the given limits.
func NewRecorder(l Limits) *Recorder {
	r := &Recorder{limits: l, powers: map[int]bool{}, open: map[int64]int32{}}
	r.replay.Thinned = Thinned{Every: 1, PlanEvery: 1, Until: tick.Never}
	return r
}

// Watching returns the hooks of the recorder. It is a value for Watch of scenario.RunOptions.
func (r *Recorder) Watching(adapters []trace.Adapter) sim.Hooks {
	r.replay.Adapters = slices.Clone(adapters)
	return sim.Hooks{Done: r.Done, Watch: r.Watch, Tier: r.Tier, Plan: r.Plan, Power: r.Power, Outage: r.Outage,
		Place: r.Place, Load: r.Load}
}

// Watch records the initial state from the first view of the run. It is a hook of sim.Hooks.
func (r *Recorder) Watch(_, to tick.Ticks, v *router.View) {
	r.replay.End = max(r.replay.End, to)
	if r.seen {
		return
	}
	r.seen = true
	r.grow(len(v.Workers))
	for i := range v.Workers {
		w, s := &v.Workers[i], &r.replay.Workers[i]
		s.Slots, s.HostSlots = w.Slots, w.HostSlots
		if !r.powers[i] && w.Draining {
			s.Power = sim.Off
		}
		s.Tier, s.Tiers = tiers(w.Adapters)
	}
}

// tiers is the tier of most adapters, and those of the others.
func tiers(adapters []router.AdapterState) (most router.Tier, others map[int32]router.Tier) {
	var count [router.GPU + 1]int
	for _, a := range adapters {
		count[a.Tier]++
	}
	for t := range count {
		if count[t] > count[most] {
			most = router.Tier(t)
		}
	}
	others = map[int32]router.Tier{}
	for i, a := range adapters {
		if a.Tier != most {
			others[int32(i)] = a.Tier
		}
	}
	return most, others
}

func (r *Recorder) grow(workers int) {
	for len(r.replay.Workers) < workers {
		r.replay.Workers = append(r.replay.Workers, Start{Tiers: map[int32]router.Tier{}})
	}
}

// add appends an event unless the recording is full.
func (r *Recorder) add(e event) {
	if r.full {
		return
	}
	if len(r.replay.events) >= r.limits.Events {
		r.full, r.replay.Thinned.Until = true, e.at
		return
	}
	r.replay.events = append(r.replay.events, e)
	r.replay.End = max(r.replay.End, e.at)
}

// Place records the place of a request. It is a hook of sim.Hooks.
func (r *Recorder) Place(at tick.Ticks, p sim.Position) {
	n, ok := r.open[p.ID]
	if !ok {
		n = r.enter(p)
		r.open[p.ID] = n
	}
	if n >= 0 {
		e := event{at: at, kind: kind(p.Place), n: n, worker: p.Worker}
		if p.Place == sim.Moving {
			e.x = p.To
		}
		r.add(e)
	}
}

// enter gives a request its index, -1 if it is not kept.
func (r *Recorder) enter(p sim.Position) int32 {
	k := r.sent
	r.sent++
	if k%int64(r.replay.Thinned.Every) != 0 || r.full {
		return -1
	}
	if len(r.replay.Requests) >= r.limits.Requests {
		r.thin()
		if k%int64(r.replay.Thinned.Every) != 0 {
			return -1
		}
	}
	n := int32(len(r.replay.Requests))
	r.replay.Requests = append(r.replay.Requests,
		Request{Request: record.Request{ID: p.ID, Adapter: p.Adapter, Status: record.Unfinished}})
	return n
}

// thin drops every second request.
func (r *Recorder) thin() {
	p := &r.replay
	p.Thinned.Every *= 2
	kept := p.Requests[:0]
	for i := range p.Requests {
		if i%2 == 0 {
			kept = append(kept, p.Requests[i])
		}
	}
	clear(p.Requests[len(kept):])
	p.Requests = kept
	p.events = slices.DeleteFunc(p.events, func(e event) bool { return e.kind <= gone && e.n%2 != 0 })
	for i := range p.events {
		if e := &p.events[i]; e.kind <= gone {
			e.n /= 2
		}
	}
	for id, n := range r.open {
		switch {
		case n < 0:
		case n%2 != 0:
			r.open[id] = -1
		default:
			r.open[id] = n / 2
		}
	}
}

// Done records the end of a request. It is a hook of sim.Hooks.
func (r *Recorder) Done(q *record.Request) {
	if n, ok := r.open[q.ID]; ok && n >= 0 && !r.full {
		r.replay.Requests[n] = Request{*q, true}
		r.replay.Requests[n].Gaps = nil
		r.replay.End = max(r.replay.End, record.Ticks(q.Finish))
	}
	delete(r.open, q.ID)
}

// Tier records the storage tier of an adapter. Changes before the first view are part of that view. It is a hook of
// sim.Hooks.
func (r *Recorder) Tier(at tick.Ticks, worker int, adapter int32, t router.Tier) {
	if r.seen {
		r.add(event{at: at, kind: tier, n: adapter, worker: int32(worker), x: int32(t)})
	}
}

// Load records an adapter load. It is a hook of sim.Hooks.
func (r *Recorder) Load(at tick.Ticks, l sim.Load) {
	r.add(event{at: at, kind: loadOf, n: l.Adapter, worker: int32(l.Worker),
		load: &Loading{Adapter: l.Adapter, Slot: l.Slot, From: l.From, To: l.To}})
}

// Power records that a worker joins or leaves. It is a hook of sim.Hooks.
func (r *Recorder) Power(at tick.Ticks, worker int, p sim.Power) {
	if !r.seen && !r.powers[worker] {
		r.powers[worker] = true
		if r.grow(worker + 1); p == sim.Starting {
			r.replay.Workers[worker].Power = sim.Off
		}
	}
	r.add(event{at: at, kind: power, worker: int32(worker), x: int32(p)})
}

// Outage records that a worker fails or recovers. It is a hook of sim.Hooks.
func (r *Recorder) Outage(at tick.Ticks, worker int, down bool) {
	e := event{at: at, kind: outage, worker: int32(worker)}
	if down {
		e.x = 1
	}
	r.add(e)
}

// Plan records a plan that changes something or was dropped. It is a hook of sim.Hooks.
func (r *Recorder) Plan(p *sim.PlanRecord) {
	if p.Plan.Empty() && p.Dropped == "" || r.full {
		return
	}
	k := r.changed
	r.changed++
	t := &r.replay.Thinned
	if len(r.replay.Plans) >= r.limits.Plans {
		r.thinPlans()
	}
	if k%int64(t.PlanEvery) != 0 {
		return
	}
	at := tick.FromSeconds(p.Applied)
	if n := len(r.replay.events); n > 0 {
		at = max(at, r.replay.events[n-1].at) // seconds are rounded
	}
	r.add(event{at: at, kind: plan, n: int32(len(r.replay.Plans))})
	if !r.full {
		r.replay.Plans = append(r.replay.Plans, p)
	}
}

// thinPlans drops every second plan.
func (r *Recorder) thinPlans() {
	p := &r.replay
	p.Thinned.PlanEvery *= 2
	for i := range (len(p.Plans) + 1) / 2 {
		p.Plans[i] = p.Plans[2*i]
	}
	n := (len(p.Plans) + 1) / 2
	clear(p.Plans[n:])
	p.Plans = p.Plans[:n]
	p.events = slices.DeleteFunc(p.events, func(e event) bool { return e.kind == plan && e.n%2 != 0 })
	for i := range p.events {
		if e := &p.events[i]; e.kind == plan {
			e.n /= 2
		}
	}
}

// Replay returns the recording. Call it after the run has ended.
func (r *Recorder) Replay() *Replay {
	r.replay.Thinned.Requests, r.replay.Thinned.Plans = r.sent, r.changed
	r.replay.makeKeyframes()
	return &r.replay
}
