package fleet

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"lorasim/router"
	"lorasim/trace"
)

// Request is a request in flight, as routers and planners know it. Its fields
// are set by its owner and not changed while the fleet has it.
type Request struct {
	router.Request         // but for Expected, which the fleet fills in
	Output         int32   // tokens it will generate, where routers are to know; 0: they expect
	Sent           float64 // s on the fleet's clock
	// Move, where set, asks the owner to take the request to another worker; it
	// must not block. It returns false where the request cannot go.
	Move func(from, to int) bool
	// Owner, where set, is told to give up an attempt on a worker that is hung.
	Owner interface{ Cut(worker int, cause error) }
	// Streams: the first token comes as soon as it is there, not with the whole reply.
	Streams bool

	generated atomic.Int32
	worker    int // -1: none; this and what follows guarded by Fleet.mu
	running   bool
	booked    float64 // when, on the fleet's clock
	// numbers of the trials of the worker and of the adapter there that the request is a part of, 0: none
	trial, adapterTrial uint32
	quiet               silence
}

// Generated is the number of tokens so far.
func (r *Request) Generated() int { return int(r.generated.Load()) }

// Route picks a worker for a request and books it there; router.None: no worker
// is usable. avoid is a worker to pass over if there is another, -1: none.
func (f *Fleet) Route(r *Request, avoid int) int {
	defer f.lock()()
	v := f.fresh()
	masked := avoid >= 0 || f.anyOutlier()
	if masked {
		f.mask(v, r.Adapter, avoid)
	}
	f.expect(r)
	w := f.cfg.Router.Policy.Route(r.Request, v)
	if masked {
		f.unmask(v)
	}
	if w != router.None {
		f.cfg.Router.Admission.Sent(r.Request, w, v)
		f.book(r, w)
		f.adjustLocked()
	}
	return w
}

// Refuse says why the router does not take a request, "" if it does, and in how many
// seconds it may be worth another try.
func (f *Fleet) Refuse(r *Request) (reason string, after float64) {
	if f.cfg.Router.Admission == nil {
		return "", 0
	}
	defer f.lock()()
	f.expect(r)
	return f.cfg.Router.Admission.Refuse(r.Request, f.fresh())
}

// Book puts a request on a worker that its owner picked.
func (f *Fleet) Book(r *Request, w int) {
	defer f.lock()()
	f.book(r, w)
}

// BookOr puts a request on the worker that a plan wants, or, if that is not
// usable any more, on one that the policy picks.
func (f *Fleet) BookOr(r *Request, w int) int {
	f.mu.Lock()
	usable := f.view.Workers[w].Usable()
	if usable {
		f.book(r, w)
	}
	f.mu.Unlock()
	if !usable {
		return f.Route(r, w)
	}
	return w
}

// First is the first usable worker that holds an adapter, else the first usable
// one; router.None: there is none.
func (f *Fleet) First(a int32) int {
	defer f.lock()()
	first := router.None
	for i, k := range f.workers {
		switch {
		case !k.view.Usable():
		case a == trace.BaseModel || k.adapters[a].held:
			return i
		case first == router.None:
			first = i
		}
	}
	return first
}

// expect fills in the output that routers expect of a request, from its first
// booking on.
func (f *Fleet) expect(r *Request) {
	if r.Expected == 0 {
		r.Expected = cmp.Or(r.Output, f.outputs.Expect(r.Adapter, r.MaxNew))
	}
}

func (f *Fleet) book(r *Request, w int) {
	f.expect(r)
	k := f.workers[w]
	r.worker, r.running, r.booked, r.quiet = w, false, f.view.Now, silence{}
	k.enter(r)
	k.requests[r.ID] = r
	k.view.Tokens += int64(r.Prompt) + int64(r.Expected)
	k.count(r, 0, 1)
	if r.Adapter != trace.BaseModel {
		k.adapters[r.Adapter].leaving = false // it is needed after all
		k.view.MaxRank = max(k.view.MaxRank, f.cfg.Adapters[r.Adapter].Rank)
	}
}

// count changes the requests that run and that wait by a request.
func (k *worker) count(r *Request, running, queued int32) {
	v := k.view
	v.Running += int(running)
	v.Queued += int(queued)
	v.QueuedToks += int64(queued) * int64(r.Prompt)
	if running != 0 {
		k.kv.Add(int64(running) * (int64(r.Prompt) + int64(r.generated.Load())))
	}
	if r.Adapter != trace.BaseModel {
		v.Count(r.Adapter, running, queued)
	}
}

// Tokens notes n new tokens of a request; with the first on a worker it counts
// as running there.
func (f *Fleet) Tokens(r *Request, n int, first bool) {
	n = min(n, maxGenerated-r.Generated())
	r.generated.Add(int32(n))
	k := f.workers[r.worker] // only the owner changes it
	k.heard.Add(1)
	if !first {
		k.kv.Add(int64(n))
		return
	}
	defer f.lock()()
	if k.requests[r.ID] != r || r.running {
		return
	}
	r.running = true
	k.count(r, 1, -1)
	if r.Adapter != trace.BaseModel {
		k.used(r.Adapter)
	}
}

// Left takes a request off its worker.
func (f *Fleet) Left(r *Request) {
	defer f.lock()()
	if r.worker < 0 {
		return
	}
	k := f.workers[r.worker]
	v := k.view
	r.worker = -1
	k.leave(r)
	delete(k.requests, r.ID)
	v.Tokens -= int64(r.Prompt) + int64(r.Expected)
	if r.running {
		k.count(r, -1, 0)
	} else {
		k.count(r, 0, -1)
	}
	if r.Adapter == trace.BaseModel {
		return
	}
	st := &v.Adapters[r.Adapter]
	if st.Running+st.Queued == 0 && f.cfg.Adapters[r.Adapter].Rank == v.MaxRank {
		v.MaxRank = 0
		for _, r := range k.requests {
			if r.Adapter != trace.BaseModel {
				v.MaxRank = max(v.MaxRank, f.cfg.Adapters[r.Adapter].Rank)
			}
		}
	}
	if st.Running == 0 {
		k.slots()
	}
	if k.postedOf(r.Adapter) <= 0 {
		k.notify()
	}
}

// Finished notes the output of a request that ended well, and tells a policy that
// learns; exec is the time from its first token to its end.
func (f *Fleet) Finished(r *Request, w int, exec float64) {
	defer f.lock()()
	f.succeeded(r, w)
	f.outputs.Ended(r.Adapter, r.generated.Load())
	end := router.Finished{Adapter: r.Adapter, Worker: int32(w), Output: r.generated.Load(), Exec: exec,
		Now: f.cfg.Now()}
	f.cfg.Router.Admission.Finished(end)
	if l, ok := f.cfg.Router.Policy.(router.CompletionObserver); ok {
		l.Finished(end)
	}
}

// fresh brings the view up to now.
func (f *Fleet) fresh() *router.View {
	f.view.Now = max(f.view.Now, f.cfg.Now())
	for _, k := range f.workers {
		k.view.KVUsed = k.kv.Load()
		k.view.Age = f.view.Now - k.polled
		k.tick(f.wall())
	}
	if f.stale != nil {
		return f.stale.Update(&f.view)
	}
	return &f.view
}

// used notes that a request with the adapter runs on the worker: its weights are
// in a GPU slot now, and those used least recently have made room.
func (k *worker) used(a int32) {
	k.adapters[a].touched = k.nextUse()
	i := slices.Index(k.lru, a)
	if i < 0 {
		i, k.lru = len(k.lru), append(k.lru, a)
	}
	copy(k.lru[1:i+1], k.lru[:i])
	k.lru[0] = a
	k.slots()
}

// unknownSlots is the number of adapters that count as in GPU slots where nobody knows
// how many there are.
const unknownSlots = 128

// slots derives the tiers of adapters from their latest uses. It forgets those that have
// left their slots, so that its cost does not grow with the number of adapters.
func (k *worker) slots() {
	k.lru = slices.DeleteFunc(k.lru, func(a int32) bool { return !k.adapters[a].held })
	v := k.view
	v.SlotsUsed, v.SlotsIdle = 0, 0
	most := cmp.Or(v.Slots, unknownSlots)
	for i, a := range k.lru {
		st := &v.Adapters[a]
		if st.Tier = router.Host; i < most {
			st.Tier = router.GPU
			v.SlotsUsed++
			if st.Running == 0 {
				v.SlotsIdle++
			}
		}
	}
	k.lru = k.lru[:min(len(k.lru), most)]
}

// resetTiers enters that the worker holds nothing but what held says.
func (k *worker) resetTiers() {
	for a, s := range k.adapters {
		k.view.Adapters[a].Tier = router.Disk
		if s.held {
			k.view.Adapters[a].Tier = router.Host
		}
	}
	k.slots()
}

// foreign notes what the worker says of its load beyond the fleet's own requests,
// at a time: own is the largest number of these while it was asked.
func (k *worker) foreign(l load, own int, now float64) {
	others := max(l.Running+l.Queued-own, 0)
	queued := min(others, l.Queued)
	k.view.Queued += queued - k.foreignQueued
	k.view.Running += others - queued - k.foreignRunning
	k.foreignQueued, k.foreignRunning, k.polled = queued, others-queued, now
}

// planning asks the planner every interval of the fleet's clock.
func (f *Fleet) planning(ctx context.Context, interval float64) {
	every := time.Duration(interval / f.cfg.Speed * float64(time.Second))
	for range Ticks(ctx, max(every, time.Millisecond)) {
		f.Guard(-1, func() error {
			if p, by := f.plan(); p != nil {
				f.apply(ctx, p, by)
			}
			return nil
		})
	}
}

// plan asks the planner. Requests are routed while it solves; policies and planners share state, so not during the
// rest. A plan whose router was replaced meanwhile is none. The time that takes is counted.
func (f *Fleet) plan() (p *router.Plan, by *router.Router) {
	begun := time.Now()
	defer f.lock()()
	by = f.cfg.Router
	if pending := by.Planner.Begin(f.situation()); pending != nil {
		f.unlocked(pending.Solve)
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
func (f *Fleet) situation() *router.PlannerInput {
	s := &router.PlannerInput{View: f.fresh()}
	for w, k := range f.workers {
		from := len(s.Requests)
		for _, r := range k.requests {
			if r.Move == nil {
				continue
			}
			a := router.InFlight{ID: r.ID, Adapter: r.Adapter, Worker: int32(w), Running: r.running, Prompt: r.Prompt,
				Generated: r.generated.Load(), MaxNew: r.MaxNew, Expected: r.Expected, Age: f.view.Now - r.Sent, Text: r.Text, Known: r.Known}
			if r.running {
				a.KV = int64(a.Prompt) + int64(a.Generated)
			}
			s.Requests = append(s.Requests, a)
		}
		slices.SortFunc(s.Requests[from:], func(a, b router.InFlight) int { return cmp.Compare(a.ID, b.ID) })
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
			names = append(names, p.Name(f.cfg.Adapters)) // one that is not there is why a plan is dropped
		}
		return names
	}
	result := "applied"
	attrs := []any{"reason", p.Reason, "load", places(p.Load), "unload", places(p.Unload), "moves", len(p.Move),
		"solve_s", p.SolveTime}
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
	fresh := slices.DeleteFunc(slices.Clone(loads),
		func(l router.Placement) bool { return f.workers[l.Worker].adapters[l.Adapter].held })
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
	a, ok := f.cfg.Router.Policy.(router.PlacementChanger)
	if !ok {
		return
	}
	by := f.cfg.Router
	if p := a.Adjust(); p != nil && !p.Empty() {
		f.background.Go(func() {
			ctx, cancel := context.WithTimeout(f.ctx, f.cfg.LoadLimit)
			defer cancel()
			f.Guard(-1, func() error { f.apply(ctx, p, by); return nil })
		})
	}
}
