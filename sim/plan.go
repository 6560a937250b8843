package sim

import (
	"errors"
	"fmt"

	"lorasim/internal/tick"
	"lorasim/router"
	"lorasim/trace"
)

// PlanRecord is what became of one plan.
type PlanRecord struct {
	Made    float64      `json:"made_s"`    // when it was made
	Applied float64      `json:"applied_s"` // when it was applied, or dropped
	Plan    *router.Plan `json:"plan"`
	Dropped string       `json:"dropped,omitempty"` // why it was not applied
	Moved   int          `json:"moved"`             // requests that did move
	Gone    int          `json:"gone"`              // requests that had ended by then
}

// PlanObserver is an observer that wants to see plans. The record is complete
// and not used further.
type PlanObserver interface {
	Plan(r *PlanRecord)
}

// pendingPlan is a plan whose solving time is not over.
type pendingPlan struct {
	plan *router.Plan
	made tick.Ticks
}

// planning is the state of planning in a run.
type planning struct {
	planner  router.Planner
	adjuster router.Adjuster
	learner  router.Learner
	watcher  router.LoadWatcher
	every    tick.Ticks
	busy     bool // a plan is being solved
	pending  pendingPlan
	byID     map[int64]int32 // requests in flight
	situ     router.Situation
	stats    PlanStats
	place    []bool // place[w*adapters+a]: wanted there, for thrashing
	first    []bool // the same before the first plan
}

// PlanStats counts what plans did.
type PlanStats struct {
	Plans     int64 // made, empty ones included
	Applied   int64 // not empty, and applied
	Dropped   int64 // could not be applied
	SolveTime float64
	GapSum    float64 // of the plans that tell a bound
	Gaps      int64
	Moves     map[string]int64 // requests by what moved: "queued", or the mode
	Loads     int64            // adapters that plans brought to a worker
	Unloads   int64
	Failed    int64 // loads that failed
	// Recomputed counts KV tokens that were prefilled again after a move;
	// Copied is bytes of KV cache sent.
	Recomputed int64
	Copied     float64
	Lost       tick.Ticks // time that moved requests neither ran nor waited in a queue
	// Changes counts changes of the placement, Net those that were not undone:
	// the rest is thrashing.
	Changes, Net int64
}

func (s *sim) initPlanning() error {
	p := &s.plan
	rt := s.cfg.Router
	p.planner = rt.Planner
	p.adjuster, _ = rt.Policy.(router.Adjuster)
	p.learner, _ = rt.Policy.(router.Learner)
	p.watcher, _ = rt.Policy.(router.LoadWatcher)
	p.stats.Moves = map[string]int64{}
	p.place = make([]bool, len(s.workers)*len(s.adapters))
	for w := range s.workers {
		for a, st := range s.workers[w].v.Adapters {
			p.place[w*len(s.adapters)+a] = st.Tier >= router.Host
		}
	}
	p.first = append([]bool(nil), p.place...)
	if p.planner != nil {
		p.byID = map[int64]int32{}
		p.every = tick.FromSeconds(p.planner.Interval())
		if p.every <= 0 {
			return fmt.Errorf("sim: the planner's interval is %v s, expected > 0", p.planner.Interval())
		}
		s.events.push(p.every, eventPlan, 0)
	}
	return nil
}

// planNow asks the planner, unless its last plan is still being solved.
func (s *sim) planNow() {
	p := &s.plan
	if s.headT != tick.Never || s.done < s.requests {
		s.events.push(s.now+p.every, eventPlan, 0) // as long as there is something to plan for
	}
	if p.busy {
		return
	}
	plan := p.planner.Plan(s.situation())
	if plan == nil {
		return
	}
	p.stats.Plans++
	p.stats.SolveTime += plan.SolveTime
	if plan.Bound > 0 {
		p.stats.GapSum += plan.Gap()
		p.stats.Gaps++
	}
	p.busy = true
	p.pending = pendingPlan{plan, s.now}
	s.events.push(s.now+max(0, tick.FromSeconds(plan.SolveTime)), eventApply, 0)
}

// situation is what a planner sees now.
func (s *sim) situation() *router.Situation {
	p := &s.plan.situ
	p.Requests = p.Requests[:0]
	for i := range s.workers {
		w := &s.workers[i]
		w.v.KVUsed = w.kvNow()
		p.Requests = w.describe(p.Requests)
	}
	p.View = s.routerView()
	return p
}

// describe appends the requests of a worker that may be moved.
func (w *worker) describe(as []router.Active) []router.Active {
	add := func(i int32, running bool, more int64) {
		r := &w.s.reqs[i]
		a := router.Active{
			ID: r.id, Adapter: r.adapter, Worker: int32(w.id), Running: running, Prompt: r.prompt,
			Generated: r.generated, MaxNew: r.maxNew, Expected: r.expected, Age: (w.s.now - r.sent).Seconds(),
		}
		if !w.isLoRA(r.adapter) {
			a.Adapter = trace.BaseModel
		}
		if running {
			a.Generated += int32(more)
			a.KV = int64(r.prefilled) + more
		}
		as = append(as, a)
	}
	for i := w.queue.head; i >= 0; i = w.s.reqs[i].next {
		add(i, false, 0)
	}
	done := w.stepsDone()
	for _, i := range w.batch {
		if w.s.reqs[i].moving == notMoving {
			add(i, true, w.steps-w.s.reqs[i].joinStep+done)
		}
	}
	return as
}

// applyPending applies the plan that was being solved.
func (s *sim) applyPending() {
	p := &s.plan
	p.busy = false
	s.apply(p.pending.plan, p.pending.made)
	p.pending = pendingPlan{}
}

// apply carries a plan out, wholly or not at all.
func (s *sim) apply(plan *router.Plan, made tick.Ticks) {
	p := &s.plan
	rec := &PlanRecord{Made: made.Seconds(), Applied: s.now.Seconds(), Plan: plan}
	err := s.checkPlan(plan)
	if err != nil {
		p.stats.Dropped++
		rec.Dropped = err.Error()
	} else if !plan.Empty() {
		p.stats.Applied++
		s.place(plan)
		for _, m := range plan.Move {
			if i, ok := p.byID[m.ID]; !ok {
				rec.Gone++
			} else if s.move(i, m) {
				rec.Moved++
			}
		}
	}
	if p.planner != nil {
		p.planner.Applied(plan, err)
	}
	for _, o := range s.others.plans {
		o.Plan(rec)
	}
}

var errDown = errors.New("a worker that the plan needs is down")

// checkPlan says why a plan cannot be carried out, or nil.
func (s *sim) checkPlan(plan *router.Plan) error {
	inRange := func(w int32, a int32) error {
		if int(w) < 0 || int(w) >= len(s.workers) || int(a) < 0 || int(a) >= len(s.adapters) {
			return fmt.Errorf("adapter %d on worker %d: no such place", a, w)
		}
		return nil
	}
	for _, l := range plan.Load {
		if err := inRange(l.Worker, l.Adapter); err != nil {
			return err
		}
		if !s.workers[l.Worker].v.Usable() {
			return errDown
		}
	}
	for _, l := range plan.Unload {
		if err := inRange(l.Worker, l.Adapter); err != nil {
			return err
		}
	}
	for _, m := range plan.Move {
		if int(m.To) < 0 || int(m.To) >= len(s.workers) || m.To == m.From {
			return fmt.Errorf("request %d to worker %d: no such move", m.ID, m.To)
		}
		if !s.workers[m.To].v.Usable() {
			return errDown
		}
		if i, ok := s.plan.byID[m.ID]; ok {
			if reason := s.workers[m.To].refuses(&s.reqs[i]); reason != "" {
				return fmt.Errorf("request %d cannot move to worker %d: %s", m.ID, m.To, reason)
			}
		}
	}
	return s.checkRoom(plan)
}

// checkRoom makes sure that the adapters a plan brings fit in host memory, with
// those gone that it takes away.
func (s *sim) checkRoom(plan *router.Plan) error {
	room := map[int32]int{}
	for _, l := range plan.Load {
		w := &s.workers[l.Worker]
		if w.eng.MaxLoadedLoras > 0 && w.v.Adapters[l.Adapter].Tier < router.Host && !w.adapters.rows[l.Adapter].fetching() {
			room[l.Worker]++
		}
	}
	for w, n := range room {
		if n > s.workers[w].eng.MaxLoadedLoras {
			return fmt.Errorf("%d adapters to load on worker %d, which holds %d", n, w, s.workers[w].eng.MaxLoadedLoras)
		}
	}
	return nil
}

// place carries out the loads and unloads of a plan.
func (s *sim) place(plan *router.Plan) {
	p := &s.plan
	note := func(l router.Placement, there bool) {
		i := int(l.Worker)*len(s.adapters) + int(l.Adapter)
		if p.place[i] != there {
			p.place[i] = there
			p.stats.Changes++
		}
	}
	// what goes, goes first, so that it makes room
	for _, l := range plan.Unload {
		s.workers[l.Worker].release(l.Adapter)
		note(l, false)
		p.stats.Unloads++
	}
	for _, l := range plan.Load {
		s.workers[l.Worker].bring(l.Adapter)
		note(l, true)
		p.stats.Loads++
	}
}

// planStats completes the counts at the end of a run.
func (s *sim) planStats() PlanStats {
	st := s.plan.stats
	for i, there := range s.plan.place {
		if there != s.plan.first[i] {
			st.Net++
		}
	}
	return st
}
