package replay

import (
	"slices"

	"lorasim/router"
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

// A Recorder records one run, from its events. Pass [Recorder.Watching] as Watch of scenario.RunOptions.
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

// moves are the events of a request's place, with the kinds of changes that they become.
var moves = map[record.EventKind]kind{record.EventQueued: queued, record.EventRunning: running,
	record.EventMoving: moving, record.EventHeld: held, record.EventEnded: gone}

// Watching begins a recording and returns the events that it needs: all. It is a value for Watch of
// scenario.RunOptions.
func (r *Recorder) Watching(adapters []trace.Adapter) record.Watcher {
	r.replay.Adapters = slices.Clone(adapters)
	return record.Watcher{Kinds: record.AllEvents, Note: r.note}
}

// note records an event.
func (r *Recorder) note(e *record.Event) {
	switch e.Kind {
	case record.EventState:
		r.state(e.Until, e.View)
	case record.EventTier:
		if r.seen { // else the change is part of the first view
			r.add(event{at: e.At, kind: tier, n: e.Adapter, worker: e.Worker, x: int32(e.Tier)})
		}
	case record.EventLoad:
		r.add(event{at: e.At, kind: loadOf, n: e.Adapter, worker: e.Worker,
			load: &Loading{Adapter: e.Adapter, Slot: e.Slot, From: e.From, To: e.Until}})
	case record.EventPower:
		r.power(e)
	case record.EventOutage:
		change := event{at: e.At, kind: outage, worker: e.Worker}
		if e.Down {
			change.x = 1
		}
		r.add(change)
	case record.EventPlan:
		r.plan(e.Plan)
	default:
		r.place(e)
		if e.Kind == record.EventEnded {
			r.done(e.Request)
		}
	}
}

// state records the initial state from the first view of the run.
func (r *Recorder) state(to tick.Ticks, v *router.View) {
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
			s.Power = record.Off
		}
		s.Tier, s.Tiers = tiers(w)
	}
}

// tiers is the tier of most adapters, and those of the others.
func tiers(w *router.Worker) (most router.Tier, others map[int32]router.Tier) {
	var count [router.GPU + 1]int
	for a := range int32(w.NumAdapters()) {
		count[w.Adapter(a).Tier]++
	}
	for t := range count {
		if count[t] > count[most] {
			most = router.Tier(t)
		}
	}
	others = map[int32]router.Tier{}
	for a := range int32(w.NumAdapters()) {
		if t := w.Adapter(a).Tier; t != most {
			others[a] = t
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

// place records the place of a request.
func (r *Recorder) place(p *record.Event) {
	n, ok := r.open[p.ID]
	if !ok {
		n = r.enter(p)
		r.open[p.ID] = n
	}
	if n >= 0 {
		r.add(event{at: p.At, kind: moves[p.Kind], n: n, worker: p.Worker, x: p.To})
	}
}

// enter gives a request its index, -1 if it is not kept.
func (r *Recorder) enter(p *record.Event) int32 {
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

// done records the end of a request.
func (r *Recorder) done(q *record.Request) {
	if n, ok := r.open[q.ID]; ok && n >= 0 && !r.full {
		r.replay.Requests[n] = Request{*q, true}
		r.replay.Requests[n].Gaps = nil
		r.replay.End = max(r.replay.End, record.Ticks(q.Finish))
	}
	delete(r.open, q.ID)
}

// power records that a worker joins or leaves.
func (r *Recorder) power(e *record.Event) {
	worker := int(e.Worker)
	if !r.seen && !r.powers[worker] {
		r.powers[worker] = true
		if r.grow(worker + 1); e.Power == record.Starting {
			r.replay.Workers[worker].Power = record.Off
		}
	}
	r.add(event{at: e.At, kind: power, worker: e.Worker, x: int32(e.Power)})
}

// plan records a plan that changes something or was dropped.
func (r *Recorder) plan(p *record.Plan) {
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
