package planroute

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"slices"

	"lorasim/ilp"
	"lorasim/internal/format"
	"lorasim/router"
	"lorasim/router/choose"
	"lorasim/router/place"
	"lorasim/trace"
)

// forecastGroups is the number of virtual requests that stand for the demand of
// one adapter; more split it more finely over workers.
const forecastGroups = 16

func (p *planAndRoute) Begin(s *router.PlannerInput) *router.Pending {
	p.repeats = false
	p.read(s.View)
	if !p.due(s.Now) {
		return p.between(s)
	}
	p.Forecast(s.Now)
	p.repeats = p.idle(s)
	g := p.problem(s)
	if g == nil {
		s.Idle = "no requests to plan for"
		return nil
	}
	var sol *ilp.Solution // of a plan that is worth it
	var plan *router.Plan
	var little bool
	return &router.Pending{Solve: func() { sol, plan, little = p.solve(g.Problem) }, Plan: func() *router.Plan {
		p.repeats = p.repeats && little && p.allPlaced(g.Problem)
		if sol == nil {
			return plan
		}
		plan.Move = atHand(s, g.Moves(s, sol.Flows, nil))
		if p.places {
			plan.Load, plan.Unload = p.Aim(p.placement(g, sol))
			plan.Load = p.soonUsed(plan.Load, s.View)
			plan.Unload = p.inTheWay(plan.Load, plan.Unload, s.View)
		}
		plan.Reason = fmt.Sprintf("the busiest worker's work falls from %.3f s to %.3f s", plan.Stay, plan.Objective)
		return plan
	}}
}

// idle says whether no requests are in flight, and no news of workers is to come.
func (p *planAndRoute) idle(s *router.PlannerInput) bool {
	return len(s.Requests) == 0 && !p.late &&
		!slices.ContainsFunc(s.Workers, func(w router.Worker) bool { return !w.Up || w.Age > 0 || w.Load() > 0 })
}

// allPlaced says whether all requests of a problem are where their adapters are placed.
func (p *planAndRoute) allPlaced(pr *ilp.Problem) bool {
	return !slices.ContainsFunc(pr.Groups, func(g ilp.Group) bool { return !p.Holds(g.Adapter, int(g.Worker)) })
}

// Again implements router.Repeater. While no requests come, each plan has half the demand of the one before it. So its
// workers have less to do, and it stays for the same reason. There are no loads that would not become shorter.
func (p *planAndRoute) Again() (rest float64, repeat func(now float64) (rest float64)) {
	if !p.repeats {
		return 0, nil
	}
	return p.dueAt(), func(now float64) float64 {
		p.Forecast(now)
		return p.dueAt()
	}
}

// Interval implements Planner: requests that wait are looked at more often than
// adapters are placed.
func (p *planAndRoute) Interval() float64 { return p.look }

// due says whether the time has come for a plan: one that places adapters or moves running requests. Else
// only waiting requests are looked at.
func (p *planAndRoute) due(now float64) bool { return now >= p.dueAt() }

func (p *planAndRoute) dueAt() float64 {
	if !p.places && !p.moves.running {
		return math.Inf(1)
	}
	return p.PlannedAt() + p.interval - p.look/2
}

// rests says whether a look at waiting requests would find none for too long, and no news of workers (see read).
func (p *planAndRoute) rests(v *router.View) bool {
	if p.late {
		return false
	}
	idle := p.someoneIdle(v)
	for j := range v.Workers {
		if w := &v.Workers[j]; !w.Up || w.Age > 0 || w.Queued > 0 && p.waitsLong(j, v, idle) {
			return false
		}
	}
	if n := len(v.Workers); n > 0 {
		p.turn = (p.turn + 1) % n
	}
	return true
}

// Select implements Planner: between plans, what waits for too long.
func (p *planAndRoute) Select(v *router.View) router.Selection {
	if p.due(v.Now) {
		return router.Selection{MostWaiting: p.deep}
	}
	if p.rests(v) {
		return router.Selection{Rest: p.dueAt()}
	}
	if !p.moves.waiting || p.margin >= 1 {
		return router.Selection{Worker: func(int) bool { return false }} // nothing can move
	}
	if p.queues.count(v); !p.someoneFree(v) {
		return router.Selection{NoRunning: true, MostWaiting: p.deep,
			Worker: func(j int) bool { return p.overdue(j, v.Now) && (p.queues.long(j) || p.stalls(j, v)) }}
	}
	idle := p.someoneIdle(v)
	return router.Selection{NoRunning: true, MostWaiting: p.deep,
		Worker: func(j int) bool { return p.waitsLong(j, v, idle) }}
}

// someoneIdle says whether a usable worker has no waiting requests and no prompts to compute.
func (p *planAndRoute) someoneIdle(v *router.View) bool {
	for j := range v.Workers {
		if w := &v.Workers[j]; w.Usable() && w.Queued == 0 && p.backlogs[j].prefilled <= v.Now {
			return true
		}
	}
	return false
}

// waitsLong says whether requests of a worker should have left its queue by now. While another worker is idle, it also
// says so where the prompts sent there take longer than an execution: prices even such queues out, but not where most
// requests of a worker's queue belong to an adapter that the other workers had no slot for.
func (p *planAndRoute) waitsLong(j int, v *router.View, idle bool) bool {
	l := &p.backlogs[j]
	return p.overdue(j, v.Now) || idle && l.prefilled-v.Now > l.exec.Or(p.exec.Or(guessExec))
}

// seen lists the requests of a situation but for those that wait behind many others
// on their worker.
func (p *planAndRoute) seen(s *router.PlannerInput) iter.Seq2[int, *router.InFlight] {
	return func(yield func(int, *router.InFlight) bool) {
		waiting := append(p.scratch.waiting[:0], make([]int, len(s.Workers))...)
		p.scratch.waiting = waiting
		for i := range s.Requests {
			a := &s.Requests[i]
			if !a.Running {
				if waiting[a.Worker]++; waiting[a.Worker] > p.deep {
					continue
				}
			}
			if !yield(i, a) {
				return
			}
		}
	}
}

// someoneFree says whether requests could be moved to some worker: where requests
// are stuck on all, as in overload, the queues need not be looked at.
func (p *planAndRoute) someoneFree(v *router.View) bool {
	for j := range v.Workers {
		if w := &v.Workers[j]; w.Usable() && w.Queued < p.deep && !(p.overdue(j, v.Now) && waits(w)) {
			return true
		}
	}
	return false
}

// waits says whether a request waits on the worker whose adapter is at hand.
func waits(w *router.Worker) bool {
	base := w.Queued
	for _, f := range w.InFlight() {
		if f.Queued > 0 && w.InHost(f.Adapter) {
			return true
		}
		base -= int(f.Queued)
	}
	return base > 0
}

// between is what is to be done between plans.
func (p *planAndRoute) between(s *router.PlannerInput) *router.Pending {
	moves := p.steal(s)
	if len(moves) == 0 {
		return nil
	}
	reason := format.Count(len(moves), "waiting request") + " could start elsewhere"
	return router.Ready(&router.Plan{Reason: reason, Move: moves, SolveTime: place.SolveBase})
}

// solve returns a solution that is worth carrying out and what a plan tells of it,
// or nil and a plan to stay. little: it stays since the workers have little to do.
func (p *planAndRoute) solve(pr *ilp.Problem) (_ *ilp.Solution, _ *router.Plan, little bool) {
	if plan, little := p.notWorthIt(pr); plan != nil {
		return nil, plan, little
	}
	sol, plan, err := place.Solve(p.Env(), pr, p.interval)
	if err != nil {
		return nil, &router.Plan{Reason: err.Error()}, false
	}
	gain := plan.Stay - plan.Objective
	if needed := p.margin * plan.Stay; gain <= needed {
		plan.Reason = fmt.Sprintf("stay: the gain is %.3f s of %.3f s, less than %.0f %%", gain, plan.Stay,
			100*p.margin)
		return nil, plan, false
	}
	return sol, plan, false
}

// notWorthIt returns a plan to stay where that needs no solver: the workers have
// little to do, or even the bound on what can be reached gains too little.
func (p *planAndRoute) notWorthIt(pr *ilp.Problem) (_ *router.Plan, little bool) {
	stay, err := ilp.Evaluate(pr, ilp.StayFlows(pr))
	if err != nil {
		return nil, false // the solver says what is wrong
	}
	plan := &router.Plan{Objective: stay.Objective, Stay: stay.Objective, SolveTime: place.SolveBase}
	if stay.Objective < p.busy*p.horizon {
		plan.Reason = fmt.Sprintf("stay: the busiest worker has work for %.3f s of the next %.3f s",
			stay.Objective, p.horizon)
		return plan, true
	}
	plan.Bound = ilp.LowerBound(pr)
	if gain := stay.Objective - plan.Bound; gain <= p.margin*stay.Objective {
		plan.Reason = fmt.Sprintf("stay: the gain is at most %.3f s of %.3f s, less than %.0f %%",
			max(gain, 0), stay.Objective, 100*p.margin)
		return plan, false
	}
	return nil, false
}

// atHand leaves out moves to where the adapter is not even in host memory: the
// request would stop the worker until it has come.
func atHand(s *router.PlannerInput, ms []router.Move) []router.Move {
	adapter := make(map[int64]int32, len(s.Requests))
	for i := range s.Requests {
		adapter[s.Requests[i].ID] = s.Requests[i].Adapter
	}
	return slices.DeleteFunc(ms, func(m router.Move) bool { return !s.Workers[m.To].InHost(adapter[m.ID]) })
}

// soonUsed leaves out loads of adapters that are not in host memory and for which no request is expected within the
// horizon. A loader brings one adapter after the other: who comes first would wait for one that nobody asks for. The
// placement stays: the first request brings the adapter. So it is where more adapters are placed than host memory
// holds: what a plan fetches drives out what is used.
func (p *planAndRoute) soonUsed(loads []router.Placement, v *router.View) []router.Placement {
	return slices.DeleteFunc(loads, func(l router.Placement) bool {
		if v.Workers[l.Worker].InHost(l.Adapter) {
			return false
		}
		room := p.Env().Workers[l.Worker].HostSlots
		return p.Demand()[l.Adapter].Rate*p.horizon < 1 || room > 0 && len(p.Next()[l.Worker]) > room
	})
}

// inTheWay leaves out unloads that no load needs the room of: what stays in host memory need not be fetched again.
// The adapters least asked for go.
func (p *planAndRoute) inTheWay(loads, unloads []router.Placement, v *router.View) []router.Placement {
	over := make([]int, len(v.Workers)) // adapters too many in host memory, by worker
	for j := range v.Workers {
		over[j] = v.Workers[j].Hosted() - p.Env().Workers[j].HostSlots
	}
	for _, l := range loads {
		if !v.Workers[l.Worker].InHost(l.Adapter) {
			over[l.Worker]++
		}
	}
	slices.SortStableFunc(unloads, func(a, b router.Placement) int {
		return cmp.Compare(p.Demand()[a.Adapter].Rate, p.Demand()[b.Adapter].Rate)
	})
	return slices.DeleteFunc(unloads, func(l router.Placement) bool {
		if over[l.Worker] <= 0 {
			return true
		}
		if v.Workers[l.Worker].InHost(l.Adapter) {
			over[l.Worker]--
		}
		return false
	})
}

// problem states the situation with the forecast demand as a migration problem
// over all workers; nil if there is nothing to plan.
func (p *planAndRoute) problem(s *router.PlannerInput) *place.Grouping {
	n := len(s.Workers)
	pr := &ilp.Problem{
		Adapters: len(p.Env().Adapters), MaxMoves: p.maxMoves, MoveWeight: moveWeight, LoadWeight: loadWeight,
	}
	pr.LoadTime = p.loadTimes(s)
	speeds, unit := p.speeds(s)
	page := place.PageSize(p.Env())
	for j := range s.Workers {
		w := &s.Workers[j]
		pr.Workers = append(pr.Workers, ilp.Worker{Speed: speeds[j], Closed: !w.Usable(), Resident: p.Held()[j]})
	}
	g := place.NewGrouping(pr)
	present := newPresence(n)
	for i, a := range p.seen(s) {
		work := p.remaining(a, unit)
		if !p.movable(a) {
			pr.Workers[a.Worker].Base += work / speeds[a.Worker]
			continue
		}
		g.Add(i, a, a.Worker, work, p.moveCost(a, unit), place.Pages(page, a))
		present.requests(a.Worker, a.Adapter)
	}
	for j := range s.Workers { // what is not seen stays
		if w := &s.Workers[j]; w.Queued > p.deep {
			each := unit.request(w.QueuedToks/int64(w.Queued), p.output.Or(router.UnknownOutput))
			pr.Workers[j].Base += float64(w.Queued-p.deep) * each / speeds[j]
		}
	}
	p.addForecast(g, unit, present)
	if len(pr.Groups) == 0 {
		return nil
	}
	// As many adapters as have a slot; more where there are more than slots.
	share := (len(p.Env().Adapters)+n-1)/n + 1
	for j := range pr.Workers {
		pr.Workers[j].Slots = max(p.Env().Workers[j].Slots, share, present.adapters[j])
	}
	return g
}

// loadTimes returns the time to load an adapter on a worker, from where it is now. Later changes of the view do not
// change it.
func (p *planAndRoute) loadTimes(s *router.PlannerInput) func(k, j int) float64 {
	env := p.Env()
	tiers := make([]router.Tiers, len(s.Workers))
	for j := range s.Workers {
		tiers[j] = s.Workers[j].Tiers()
	}
	return func(k, j int) float64 {
		tier := tiers[j].Of(int32(k))
		if !p.places && tier < router.Host {
			return neverLoads
		}
		return env.Workers[j].Cost.AdapterLoad(env.Adapters[k].Rank, tier)
	}
}

// neverLoads is the time of a load that no plan may ask for, s: longer than any queue.
const neverLoads = 1e6

// Weights of a move and a load beside the predicted time: enough to leave alone
// what does not help the busiest worker.
const (
	moveWeight = 0.002 // s
	loadWeight = 0.010 // s
)

// rate is how fast a worker works: the time that one decode step of one request
// takes of it in a full batch, s, and its other costs.
type rate struct {
	step float64
	cost router.CostModel
}

// request is the time that a request takes of a worker.
func (r rate) request(prompt int64, output float64) float64 {
	return r.cost.Prefill(prompt) + output*r.step
}

// speeds compares the workers by what a typical request takes of them: the fastest
// has speed 1, and its rate is the unit in which work is counted, as the capacity
// that it needs.
func (p *planAndRoute) speeds(s *router.PlannerInput) (speeds []float64, unit rate) {
	var kv int64
	running, rank := 0, 0
	for j := range s.Workers {
		if w := &s.Workers[j]; w.Usable() {
			running += w.Running
			kv += w.KVUsed
			rank = max(rank, w.MaxRank)
		}
	}
	context := kv / int64(max(running, 1))
	prompt, output := int64(p.prompt.Or(guessPrompt)), p.output.Or(router.UnknownOutput)
	speeds = make([]float64, len(s.Workers))
	least := math.Inf(1)
	for j := range speeds {
		w := &p.Env().Workers[j]
		b := max(w.MaxRunning, 1)
		full := min(s.Workers[j].KVCapacity, context*int64(b))
		r := rate{step: w.Cost.DecodeStep(b, b, full, rank) / float64(b), cost: w.Cost}
		speeds[j] = r.request(prompt, output)
		if speeds[j] < least {
			least, unit = speeds[j], r
		}
	}
	for j, t := range speeds {
		speeds[j] = least / t
	}
	return speeds, unit
}

// remaining is the work that a request still needs, s at speed 1.
func (p *planAndRoute) remaining(a *router.InFlight, unit rate) float64 {
	if a.Running {
		return left(a) * unit.step
	}
	return unit.request(int64(a.Prompt)+int64(a.Generated), left(a))
}

// movable says whether a plan may move a request.
func (p *planAndRoute) movable(a *router.InFlight) bool {
	switch {
	case a.Adapter == trace.BaseModel || p.Env().Moving == router.MoveNone || p.Env().Moving == "":
		return false
	case a.Running:
		return p.moves.running && p.Env().Moving != router.MoveQueued
	}
	return p.moves.waiting
}

// moveCost is what moving a request costs its new worker, s at speed 1.
func (p *planAndRoute) moveCost(a *router.InFlight, unit rate) float64 {
	if !a.Running {
		return 0
	}
	tokens := int64(a.Prompt) + int64(a.Generated)
	if p.Env().Moving == router.MoveRecompute {
		return unit.cost.Prefill(tokens)
	}
	from := &p.Env().Workers[a.Worker]
	return from.Cost.Copy(float64(tokens) * from.KVBytes)
}

// addForecast adds the demand to come as virtual requests on the workers that
// hold the adapter, split so that these are as even as can be: so that staying
// is not made out to be worse than it is. Where plans place no adapters the demand
// stays there: it is work that no decision changes.
func (p *planAndRoute) addForecast(g *place.Grouping, unit rate, present *presence) {
	pr, asked := g.Problem, p.Asked()
	load := make([]float64, len(pr.Workers))
	for j := range pr.Workers {
		load[j] = pr.Workers[j].Base
	}
	for i := range pr.Groups {
		gr := &pr.Groups[i]
		load[gr.Worker] += float64(gr.Count) * gr.Work / pr.Workers[gr.Worker].Speed
	}
	all := openWorkers(pr)
	shares := make([]forecastShare, len(asked))
	places := 0
	for i, k := range asked {
		d, f := &p.Demand()[k], &shares[i]
		f.each = d.Rate * p.horizon * unit.request(int64(d.Prompt.Value), d.Output.Or(router.UnknownOutput)) /
			forecastGroups
		if f.to = all; p.places { // else it is not placed anywhere: the router spreads it
			f.to = openOf(pr, p.Where(k), all)
		}
		places += len(f.to)
	}
	split := make([]int64, places)
	for i := range shares {
		f := &shares[i]
		f.split, split = split[:len(f.to):len(f.to)], split[len(f.to):]
	}
	for range 3 {
		for i := range shares {
			shares[i].spread(pr, load)
		}
	}
	if p.places {
		pr.Groups = slices.Grow(pr.Groups, len(shares))
	}
	for n := range shares {
		f, k := &shares[n], asked[n]
		for i, c := range f.split {
			j := f.to[i]
			switch {
			case c > 0 && !p.places:
				w := &pr.Workers[j]
				w.Base += float64(c) * f.each / w.Speed
				present.forecast(j, k)
			case c > 0:
				virtual := ilp.Group{Adapter: k, Worker: j, Count: c, Work: f.each, Virtual: true}
				pr.Groups = append(pr.Groups, virtual)
				present.forecast(j, k)
			}
		}
	}
}

// forecastShare is the demand to come for an adapter as virtual requests.
type forecastShare struct {
	each  float64 // work of a request
	to    []int32 // workers that it may go to
	split []int64 // requests, by index of to
}

// presence counts the adapters that have requests on each worker, virtual ones included.
type presence struct {
	adapters []int            // by worker
	has      []map[int32]bool // by worker: adapters with requests in flight
}

func newPresence(workers int) *presence {
	return &presence{adapters: make([]int, workers), has: make([]map[int32]bool, workers)}
}

// requests notes that an adapter has requests in flight on a worker.
func (c *presence) requests(worker, adapter int32) {
	if c.has[worker] == nil {
		c.has[worker] = map[int32]bool{}
	}
	c.has[worker][adapter] = true
	c.adapters[worker] = len(c.has[worker])
}

// forecast notes that an adapter has virtual requests on a worker. It is called once for both, after requests.
func (c *presence) forecast(worker, adapter int32) {
	if !c.has[worker][adapter] {
		c.adapters[worker]++
	}
}

// openWorkers lists the workers that take requests.
func openWorkers(pr *ilp.Problem) (open []int32) {
	for j := range pr.Workers {
		if !pr.Workers[j].Closed {
			open = append(open, int32(j))
		}
	}
	return open
}

// openOf lists the workers among the given ones that take requests; where none does, all that do.
func openOf(pr *ilp.Problem, among, all []int32) []int32 {
	closed := func(j int32) bool { return pr.Workers[j].Closed }
	if slices.ContainsFunc(among, closed) {
		among = slices.DeleteFunc(slices.Clone(among), closed)
	}
	if len(among) == 0 {
		return all
	}
	return among
}

// spread takes the virtual requests back and gives each to the worker among those that it may go to that would be done
// first.
func (f *forecastShare) spread(pr *ilp.Problem, load []float64) {
	for i, j := range f.to {
		load[j] -= float64(f.split[i]) * f.each / pr.Workers[j].Speed
		f.split[i] = 0
	}
	if len(f.to) == 1 {
		j := f.to[0]
		t, more := load[j], f.each/pr.Workers[j].Speed
		for range forecastGroups {
			before := t
			if t += more; t == before {
				break // nor do the others count
			}
		}
		load[j], f.split[0] = t, forecastGroups
		return
	}
	for range forecastGroups {
		best := choose.New(nil) // among the indices of to
		for i, j := range f.to {
			best.Offer(i, load[j]+f.each/pr.Workers[j].Speed)
		}
		if best.Worker == router.None {
			return
		}
		f.split[best.Worker]++
		load[f.to[best.Worker]] = best.Cost
	}
}

// placement is what a solution leads to: adapters where it has requests, and
// those that stay because there is room and nobody else has them.
func (p *planAndRoute) placement(g *place.Grouping, sol *ilp.Solution) [][]int32 {
	held := make([][]int32, len(g.Problem.Workers))
	has := make([]bool, len(p.Env().Adapters))
	for _, f := range sol.Flows {
		k := g.Problem.Groups[f.Group].Adapter
		held[f.Worker] = append(held[f.Worker], k)
		has[k] = true
	}
	for j := range held {
		held[j] = sorted(held[j])
	}
	for j := range held {
		for _, k := range p.Held()[j] {
			if !has[k] {
				held[j] = append(held[j], k)
				has[k] = true
			}
		}
		held[j] = sorted(held[j])
	}
	return held
}

func sorted(ks []int32) []int32 {
	slices.Sort(ks)
	return slices.Compact(ks)
}
