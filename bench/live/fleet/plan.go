package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"lorasim/router"
)

// planning asks the planner every interval of the fleet's clock.
func (f *Fleet) planning(ctx context.Context, interval float64) {
	every := time.Duration(interval / f.cfg.Speed * float64(time.Second))
	for range Ticks(ctx, max(every, time.Millisecond)) {
		if p, by := f.plan(); p != nil {
			f.apply(ctx, p, by)
		}
	}
}

// plan asks the planner. Requests are routed while it solves; policies and planners share state, so not during the rest. A
// plan whose router was replaced meanwhile is none. The time that takes is counted.
func (f *Fleet) plan() (p *router.Plan, by *router.Router) {
	begun := time.Now()
	defer f.lock()()
	by = f.cfg.Router
	if pending := by.Planner.Begin(f.situation()); pending != nil {
		f.mu.Unlock()
		pending.Solve()
		f.mu.Lock()
		p = pending.Plan()
	}
	f.stats.SolveTime += time.Since(begun).Seconds()
	if p == nil || by != f.cfg.Router {
		return nil, by
	}
	f.stats.Plans++
	return p, by
}

// situation lists the requests in flight, the order of the workers and then of
// the requests' ids; called with mu held.
func (f *Fleet) situation() *router.Situation {
	s := &router.Situation{View: f.fresh()}
	for w, k := range f.workers {
		from := len(s.Requests)
		for _, r := range k.requests {
			if r.Move == nil {
				continue
			}
			a := router.Active{ID: r.ID, Adapter: r.Adapter, Worker: int32(w), Running: r.running, Prompt: r.Prompt,
				Generated: r.generated.Load(), MaxNew: r.MaxNew, Expected: r.Expected, Age: f.view.Now - r.Sent, Text: r.Text, Known: r.Known}
			if r.running {
				a.KV = int64(a.Prompt) + int64(a.Generated)
			}
			s.Requests = append(s.Requests, a)
		}
		slices.SortFunc(s.Requests[from:], func(a, b router.Active) int { return cmp.Compare(a.ID, b.ID) })
	}
	return s
}

// apply carries out a plan by a router that may have been replaced since: what is
// to come is loaded first; if a load fails, what came is dropped again and the
// plan with it. Then the planner is told, so that new requests go where the plan
// wants them, requests move, and what is to go is unloaded once nobody uses it.
func (f *Fleet) apply(ctx context.Context, p *router.Plan, by *router.Router) {
	if p.Empty() {
		f.applied(p, by, nil)
		return
	}
	f.mu.Lock()
	err := p.Check(&f.view)
	f.mu.Unlock()
	if err == nil {
		err = f.loadAll(ctx, p.Load)
	}
	f.applied(p, by, err)
	if err != nil {
		f.cfg.Log("plan dropped: %v", err)
		return
	}
	for _, m := range p.Move {
		f.move(m)
	}
	for _, u := range p.Unload {
		if !slices.Contains(p.Load, u) {
			f.Release(int(u.Worker), u.Adapter)
		}
	}
}

// applied tells the planner what became of its plan.
func (f *Fleet) applied(p *router.Plan, by *router.Router, err error) {
	defer f.lock()()
	switch {
	case err != nil:
		f.stats.Dropped++
	case !p.Empty():
		f.stats.Applied++
	}
	f.logPlan(p, err)
	if by == f.cfg.Router && by.Planner != nil {
		by.Planner.Applied(p, err)
	}
}

// logPlan writes a line on a plan; called with mu held.
func (f *Fleet) logPlan(p *router.Plan, err error) {
	if f.cfg.Plans == nil {
		return
	}
	places := func(ps []router.Placement) []string {
		names := []string{}
		for _, p := range ps {
			name := fmt.Sprint(p.Adapter) // of a plan that is dropped for it
			if p.Adapter >= 0 && int(p.Adapter) < len(f.cfg.Adapters) {
				name = f.cfg.Adapters[p.Adapter].Name
			}
			names = append(names, fmt.Sprintf("%s@%d", name, p.Worker))
		}
		return names
	}
	result := "applied"
	attrs := []any{"reason", p.Reason, "load", places(p.Load), "unload", places(p.Unload), "moves", len(p.Move), "solve_s", p.SolveTime}
	switch {
	case err != nil:
		result, attrs = "dropped", append(attrs, "error", err.Error())
	case p.Empty():
		result = "nothing to do"
	}
	f.cfg.Plans.Info("plan", append([]any{"result", result}, attrs...)...)
}

// loadAll loads the adapters of a plan, all or none.
func (f *Fleet) loadAll(ctx context.Context, loads []router.Placement) error {
	f.mu.Lock()
	fresh := slices.DeleteFunc(slices.Clone(loads), func(l router.Placement) bool { return f.workers[l.Worker].adapters[l.Adapter].held })
	f.mu.Unlock()
	err := errors.Join(each(len(loads), func(i int) error { return f.keep(ctx, int(loads[i].Worker), loads[i].Adapter) })...)
	if err != nil {
		for _, l := range fresh {
			f.Release(int(l.Worker), l.Adapter)
		}
	}
	return err
}

// move asks the owner of a request to take it elsewhere; one that has ended or
// is not where the plan thinks stays.
func (f *Fleet) move(m router.Move) {
	var r *Request
	f.mu.Lock()
	if m.From >= 0 && int(m.From) < len(f.workers) {
		r = f.workers[m.From].requests[m.ID]
	}
	f.mu.Unlock()
	if r != nil && r.Move != nil && r.Move(int(m.From), int(m.To)) {
		defer f.lock()()
		f.stats.Moves++
	}
}

// adjustLocked starts what the latest routing decision entails; called with mu
// held.
func (f *Fleet) adjustLocked() {
	a, ok := f.cfg.Router.Policy.(router.Adjuster)
	if !ok {
		return
	}
	by := f.cfg.Router
	if p := a.Adjust(); p != nil && !p.Empty() {
		f.background.Go(func() {
			ctx, cancel := context.WithTimeout(f.ctx, f.cfg.LoadLimit)
			defer cancel()
			f.apply(ctx, p, by)
		})
	}
}
