package fleet

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"lorasim/router"
	"lorasim/sim/record"
)

// planRunner gets plans from the router and carries them out.
type planRunner struct {
	cfg     *Config
	tasks   *tasks
	table   *table
	catalog *catalog
	journal *journal
	loras   *LoRAManager

	book record.PlanBook // guarded by the lock of the table
}

// begin notes what the workers hold of a plan's placements before the plan. Called with mu held.
func (p *planRunner) begin(plan *router.Plan) {
	p.book.Begin(plan, func(at router.Placement) bool { return p.table.workers[at.Worker].loras.rows[at.Adapter].held })
}

// run plans at every interval of the fleet's clock.
func (p *planRunner) run(ctx context.Context, interval float64) {
	every := time.Duration(interval / p.cfg.Speed * float64(time.Second))
	for range Ticks(ctx, max(every, time.Millisecond)) {
		p.table.guard(-1, func() error {
			if plan, by := p.plan(); plan != nil {
				p.apply(ctx, plan, by)
			}
			return nil
		})
	}
}

// plan calls the planner. Requests are routed while it solves, but not during its other work, because policies and
// planners share state. A plan is discarded if its router was replaced meanwhile. The time of making a plan is counted.
func (p *planRunner) plan() (plan *router.Plan, by *router.Router) {
	begun := time.Now()
	defer p.table.lock()()
	by = p.table.router
	in, rests := p.input()
	if rests {
		return nil, by
	}
	if pending := by.Planner.Begin(in); pending == nil {
		p.book.Rest(in.Idle)
	} else {
		p.table.unlocked(pending.Solve)
		if by == p.table.router { // else the plan is for other workers or fewer adapters
			plan = p.table.fitting(pending.Plan())
		}
	}
	if plan != nil {
		p.book.Make(plan, time.Since(begun).Seconds())
	}
	return plan, by
}

// input returns the requests in flight that the planner reads, in the order of the workers and then of the requests'
// IDs. A planner that rests reads none. Called with mu held.
func (p *planRunner) input() (in *router.PlannerInput, rests bool) {
	in = &router.PlannerInput{View: p.table.fresh()}
	wanted := p.table.router.Planner.Select(in.View)
	if wanted.Rest > in.Now {
		return in, true
	}
	for w, k := range p.table.workers {
		if wanted.Worker != nil && !wanted.Worker(w) {
			continue
		}
		in.Requests = append(in.Requests, k.books.inFlight(w, p.table.view.Now)...)
	}
	return in, false
}

// change starts the loads and unloads that a routing decision entails; nil: none. Called with mu held.
func (p *planRunner) change(plan *router.Plan) {
	if plan = p.table.fitting(plan); plan == nil || plan.Empty() {
		return
	}
	by := p.table.router
	p.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(p.tasks.ctx, p.cfg.LoadLimit)
		defer cancel()
		p.table.guard(-1, func() error { p.apply(ctx, plan, by); return nil })
	})
}

// apply carries out a plan of a router that may have been replaced since. It loads adapters first. If a load fails, it
// unloads those that were loaded and drops the plan. Then the planner is notified, so that new requests go to the
// workers in the plan. Finally requests move, and adapters are unloaded once no request uses them.
func (p *planRunner) apply(ctx context.Context, plan *router.Plan, by *router.Router) {
	rec := &record.Plan{Plan: plan, Made: p.cfg.Now()}
	defer func() {
		defer p.table.lock()()
		p.table.emitPlan(rec)
	}()
	if plan.Empty() {
		p.applied(plan, by, nil)
		return
	}
	p.table.mu.Lock()
	err := plan.Check(&p.table.view)
	if err == nil {
		p.begin(plan)
	}
	p.table.mu.Unlock()
	if err == nil {
		err = p.loras.keepAll(ctx, plan.Load)
	}
	p.applied(plan, by, err)
	if err != nil {
		rec.Dropped = err.Error()
		p.cfg.Log("plan dropped: %v", err)
		return
	}
	var moved []router.Move
	for _, m := range plan.Move {
		if p.move(m) {
			moved = append(moved, m)
		}
	}
	rec.Moved = len(moved)
	p.noteMoves(moved)
	for _, u := range plan.Unload {
		if !slices.Contains(plan.Load, u) {
			p.loras.Release(int(u.Worker), u.Adapter)
		}
	}
}

// applied notifies the planner of the outcome of its plan.
func (p *planRunner) applied(plan *router.Plan, by *router.Router, err error) {
	defer p.table.lock()()
	p.book.End(plan, err)
	p.log(plan, err)
	p.notePlan(plan, err)
	if by == p.table.router && by.Planner != nil {
		by.Planner.Applied(plan, err)
	}
}

// log writes a line on a plan; called with mu held.
func (p *planRunner) log(plan *router.Plan, err error) {
	if p.cfg.Plans == nil {
		return
	}
	result := "applied"
	attrs := []any{"reason", plan.Reason, "load", p.names(plan.Load), "unload", p.names(plan.Unload),
		"moves", len(plan.Move), "solve_s", plan.SolveTime}
	switch {
	case err != nil:
		result, attrs = "dropped", append(attrs, "error", err.Error())
	case plan.Empty():
		result = "nothing to do"
	}
	p.cfg.Plans.Info("plan", append([]any{"result", result}, attrs...)...)
}

// move starts a move of a request through its owner, and reports whether it did. A request stays if it has ended, or is
// not on the worker that the plan assumes.
func (p *planRunner) move(m router.Move) bool {
	var r *Request
	p.table.mu.Lock()
	if m.From >= 0 && int(m.From) < len(p.table.workers) {
		r = p.table.workers[m.From].books.requests[m.ID]
	}
	p.table.mu.Unlock()
	return r != nil && r.Move != nil && r.Move(int(m.From), int(m.To))
}

// names returns placements as text for the log, each ADAPTER@URL. Called with mu held.
func (p *planRunner) names(list []router.Placement) []string {
	names := []string{}
	for _, at := range list {
		name := at.Name(p.catalog.list()) // an unknown adapter is why a plan is dropped
		if w := int(at.Worker); w >= 0 && w < len(p.table.workers) {
			name = strings.TrimSuffix(name, fmt.Sprint("@", w)) + "@" + p.table.workers[w].url
		}
		names = append(names, name)
	}
	return names
}
