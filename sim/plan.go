package sim

import (
	"cmp"
	"fmt"
	"math"

	"lorasim/router"
	"lorasim/sim/engine"
	"lorasim/sim/event"
	"lorasim/sim/record"
	"lorasim/sim/tick"
)

// planning is the state of planning in a run.
type planning struct {
	planner router.Planner
	every   tick.Ticks
	busy    bool // a plan is being solved
	sent    sentIDs
	input   router.PlannerInput
	book    record.PlanBook
}

func (s *sim) initPlanning() error {
	p, rt := &s.plan, s.cfg.Router
	p.planner = rt.Planner
	if rt.Poll > 0 {
		every := max(tick.FromSeconds(rt.Poll), 1)
		s.loop.Background(every, event.Plan, func() { s.poll(every) })
	}
	if p.planner == nil {
		return nil
	}
	if p.every = tick.FromSeconds(p.planner.Interval()); p.every <= 0 {
		return fmt.Errorf("sim: the planner's interval is %v s, expected > 0", p.planner.Interval())
	}
	p.sent.on = true
	s.loop.Background(p.every, event.Plan, s.planNow)
	return nil
}

// poll tells the policy on its timer that it is time to look at the workers.
func (s *sim) poll(every tick.Ticks) {
	v := s.routerView()
	s.note(router.Event{Kind: router.Polled, Now: v.Now, View: v})
	if s.unfinished() {
		s.loop.Background(s.loop.Now()+every, event.Plan, func() { s.poll(every) })
	}
}

// note tells the router of an event.
func (s *sim) note(e router.Event) {
	if err := s.cfg.Router.Note(e); err != nil && s.fault == nil {
		s.fault = err
	}
}

// noteRequest tells the router what happened to a request at a worker.
func (s *sim) noteRequest(kind router.EventKind, r *request, worker int32) {
	s.note(router.Event{Kind: kind, Now: s.loop.Now().Seconds(), ID: r.ID, Adapter: s.adapterOf(r), Worker: worker})
}

// planNow calls the planner, unless its last plan is still being solved or it rests.
func (s *sim) planNow() {
	p := &s.plan
	if p.busy {
		s.planLater(0)
		return
	}
	in, rest := s.plannerInput()
	if rest > in.Now {
		s.planLater(rest)
		return
	}
	plan := p.planner.Begin(in).Now()
	if next := s.repeat(plan); next > 0 {
		s.loop.Background(next, event.Plan, s.planNow)
		return
	}
	s.planLater(0)
	if plan == nil {
		p.book.Rest(in.Idle)
		return
	}
	p.book.Make(plan, plan.SolveTime)
	p.busy = true
	made := s.loop.Now()
	s.loop.At(made+max(0, tick.FromSeconds(plan.SolveTime)), event.Apply, func() {
		p.busy = false
		s.apply(plan, made)
	})
}

// planLater schedules the next call of planNow, as long as there is something to plan for. If there is no request and
// the planner rests until some time (s), the intervals in which nothing happens are left out.
func (s *sim) planLater(rest float64) {
	if !s.unfinished() {
		return
	}
	now, every := s.loop.Now(), s.plan.every
	next := now + every
	if s.inFlight == 0 && s.stale == nil && !s.events.Apart() {
		quiet := min(s.headT, s.loop.Next(), tick.FromSeconds(min(rest, tick.Max.Seconds())))
		for next += max((quiet-now)/every-1, 0) * every; next > now+every && next.Seconds() >= rest; next -= every {
		}
	}
	s.loop.Background(next, event.Plan, s.planNow)
}

// mostRepeated is the number of plans that repeat counts at once, so that a run can be interrupted.
const mostRepeated = 1 << 16

// repeat counts the plans that the planner makes from now on while no request is in flight and nothing happens. plan is
// the one made now; nil: none. The last plan is left to planNow, since it has the latest numbers; repeat returns its
// time. It returns 0, and counts nothing, if plans do not repeat.
func (s *sim) repeat(plan *router.Plan) (last tick.Ticks) {
	p, now := &s.plan, s.loop.Now()
	planner, ok := p.planner.(router.Repeater)
	if !ok || s.inFlight > 0 || s.stale != nil || !s.unfinished() || plan != nil && !plan.Empty() ||
		s.events.Apart() || s.events.Wants(record.EventPlan) {
		return 0
	}
	until := min(s.headT, s.loop.Next(), s.window)
	rest, again := planner.Again()
	if again == nil {
		return 0
	}
	before, next := now, s.plansAt(now, rest)
	if next >= until || plan != nil && tick.FromSeconds(plan.SolveTime) >= p.every {
		return 0
	}
	for n := 0; ; n++ {
		if plan == nil {
			p.book.Rest(p.input.Idle)
		} else {
			p.book.Make(plan, plan.SolveTime)
			p.book.End(plan, nil)
		}
		after := next + (next - before) + p.every // the plan after next comes sooner
		if after >= until || n == mostRepeated {
			return next
		}
		rest = again(next.Seconds())
		before, next = next, s.plansAt(next, rest)
	}
}

// plansAt is when the planner makes a plan after one at time t, if it rests until some time, s.
func (s *sim) plansAt(t tick.Ticks, rest float64) tick.Ticks {
	every := s.plan.every
	next := t + max((tick.FromSeconds(min(rest, tick.Max.Seconds()))-t)/every, 1)*every
	for next.Seconds() < rest && next < tick.Max {
		next += every
	}
	for next-every > t && (next-every).Seconds() >= rest {
		next -= every
	}
	return next
}

// plannerInput returns the planner's current input, without requests if the planner rests, and until when that is.
func (s *sim) plannerInput() (in *router.PlannerInput, rest float64) {
	p := &s.plan.input
	for i := range s.workers {
		s.workers[i].v.KVUsed = s.workers[i].engine.KVTokens()
	}
	p.View = s.routerView()
	p.Requests, p.Idle = p.Requests[:0], ""
	selection := s.plan.planner.Select(p.View)
	if selection.Rest > p.Now {
		return p, selection.Rest
	}
	for i := range s.workers {
		if selection.Worker == nil || selection.Worker(i) {
			p.Requests = s.workers[i].inFlight(p.Requests, selection)
		}
	}
	return p, 0
}

// inFlight appends the movable requests of a worker that a selection includes.
func (w *worker) inFlight(as []router.InFlight, selection router.Selection) []router.InFlight {
	add := func(er *engine.Request, more int64) *router.InFlight {
		r := w.s.request(er)
		as = append(as, router.InFlight{
			ID: r.ID, Adapter: w.s.adapterOf(r), Worker: int32(w.id), Prompt: r.Prompt,
			Generated: r.Generated + int32(more),
			MaxNew:    r.MaxNew, Expected: r.Expected, Age: (w.s.loop.Now() - r.sent).Seconds(),
		})
		a := &as[len(as)-1]
		a.Text, a.Known = r.Known(a.Prompt + a.Generated)
		return a
	}
	most := cmp.Or(selection.MostWaiting, math.MaxInt)
	if !selection.NoWaiting {
		for r := range w.engine.Queue.All() {
			if most--; most < 0 {
				break
			}
			add(r, 0)
		}
	}
	if selection.NoRunning {
		return as
	}
	for r, more := range w.engine.Decoding() {
		if r.Leaving == engine.Staying {
			a := add(r, more)
			a.Running, a.KV = true, int64(r.Computed)+more
		}
	}
	return as
}

// apply carries out a plan completely or, if it is impossible, not at all.
func (s *sim) apply(plan *router.Plan, made tick.Ticks) {
	p := &s.plan
	rec := &record.Plan{Made: made.Seconds(), Applied: s.loop.Now().Seconds(), Plan: plan}
	err := s.checkPlan(plan)
	if err != nil {
		rec.Dropped = err.Error()
	} else if !plan.Empty() {
		p.book.Begin(plan, func(at router.Placement) bool {
			return s.view.Workers[at.Worker].Adapter(at.Adapter).Tier >= router.Host
		})
		s.place(plan)
		for _, m := range plan.Move {
			if r := s.withID(m.ID); r == nil {
				rec.Gone++
			} else if s.move(r, m) {
				rec.Moved++
			}
		}
	}
	p.book.End(plan, err)
	if p.planner != nil {
		p.planner.Applied(plan, err)
	}
	if s.events.Wants(record.EventPlan) {
		s.emit(record.Event{Kind: record.EventPlan, Worker: -1, Plan: rec})
	}
}

// checkPlan returns an error if a plan cannot be carried out. The workers must be up, accept the requests, and have
// host memory for the adapters.
func (s *sim) checkPlan(plan *router.Plan) error {
	if err := plan.Check(&s.view); err != nil {
		return err
	}
	coming := make([]int, len(s.workers))
	for _, l := range plan.Load {
		w := &s.workers[l.Worker]
		if w.engine.LoRA.Gone(&w.adapter(l.Adapter).Adapter) {
			coming[l.Worker]++
		}
	}
	for _, m := range plan.Move {
		if r := s.withID(m.ID); r != nil {
			if reason := s.workers[m.To].engine.Refuse(&r.Request); reason != "" {
				return fmt.Errorf("request %d cannot move to worker %d: %s", m.ID, m.To, reason)
			}
		}
	}
	for w, n := range coming {
		if limit := s.workers[w].engine.Profile.MaxLoadedLoras; limit > 0 && n > limit {
			return fmt.Errorf("%d adapters to load on worker %d, which holds %d", n, w, limit)
		}
	}
	return nil
}

// place carries out the loads and unloads of a plan.
func (s *sim) place(plan *router.Plan) {
	// what goes, goes first, so that it makes room
	for _, l := range plan.Unload {
		w := &s.workers[l.Worker]
		w.engine.LoRA.Unload(&w.adapter(l.Adapter).Adapter)
	}
	for _, l := range plan.Load {
		w := &s.workers[l.Worker]
		w.engine.LoRA.Load(&w.adapter(l.Adapter).Adapter)
	}
}

// change carries out the change of placement that a routing decision requires; nil: none.
func (s *sim) change(plan *router.Plan) {
	if plan != nil {
		s.apply(plan, s.loop.Now())
	}
}
